"""What an examination has found, as far as the steps of `kseg doctor` depend on it: a part for each kind of step.

Each finding belongs to the first part whose `takes` notes what it says and returns that it is about nothing else. What no part takes is a
matter of the repair that the finding suggests.
"""

from typing import TYPE_CHECKING

from kseg.cli.doctor.client_steps import Clients
from kseg.cli.doctor.damaged_replicas import DamagedReplicas
from kseg.cli.doctor.disk_steps import Disks
from kseg.cli.doctor.metadata_log_steps import MetadataLogs
from kseg.cli.doctor.next_step import ANY_SERVER
from kseg.cli.doctor.obstacle_steps import Obstacles
from kseg.cli.doctor.repair_steps import Repairs
from kseg.cli.doctor.replica_steps import Replicas
from kseg.cli.doctor.several_nodes_steps import Identities
from kseg.cli.doctor.unloaded_steps import Unloaded
from kseg.cli.doctor.unserved_steps import UnservedDirectories
from kseg.cli.request import Request
from kseg.segment.findings import INFO, Finding

if TYPE_CHECKING:
    from kseg.cli.doctor.deleted_topic_steps import DeletedLog
    from kseg.cli.doctor.properties_steps import PropertiesOfNode
    from kseg.compaction.cleaner.uncleaned import Uncleaned
    from kseg.compaction.retention.due import DueDeletion
    from kseg.compaction.retention.unmark import UnmarkableSegments
    from kseg.internal_topics.groups.offset_expiry import ExpiringOffsets, ExpiryCheck


class Situation:
    """The parts, and what belongs to none.

    node_id, cluster_id: of the node, if known. server: HOST:PORT of a broker for clients. properties: server.properties, if it was given.
    topics: the partition count of each topic, according to the directories here. deleted: the logs of deleted topics. due_deletions:
    what retention deletes after a start. leaderless: the partitions that have no leader then. uncleaned: the logs that no cleaner cleans.
    deleted_early: what retention may have deleted by a wrong clock, and can be restored. expiring: the groups whose offsets expire after a
    start; expiry: the check that found them.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.unserved = UnservedDirectories(request)
        self.replicas = Replicas(request)
        self.damaged_replicas = DamagedReplicas(request)
        self.identities = Identities(request)
        self.disks = Disks(request)
        self.obstacles = Obstacles(request)
        self.metadata = MetadataLogs()
        self.repairs = Repairs(request)
        self.clients = Clients(request)
        self.unloaded = Unloaded(request)
        self.node_id: int | None = None
        self.cluster_id: str | None = None
        self.server = ANY_SERVER
        self.properties: PropertiesOfNode | None = None
        self.topics: dict[str, int] = {}
        self.deleted: list[DeletedLog] = []
        self.due_deletions: list[DueDeletion] = []
        self.uncleaned: list[Uncleaned] = []
        self.leaderless: list[str] = []
        self.deleted_early: list[UnmarkableSegments] = []
        self.expiry: ExpiryCheck | None = None
        self.expiring: list[ExpiringOffsets] = []

    def note(self, finding: Finding) -> None:
        if finding.severity == INFO:
            return
        self.repairs.note_kind(finding)
        self.damaged_replicas.note(finding)
        parts = (
            self.unserved,
            self.replicas,
            self.identities,
            self.disks,
            self.obstacles,
            self.metadata,
            self.unloaded,
        )
        if not any(part.takes(finding) for part in parts):
            self.repairs.take(finding)

    @property
    def is_obstructed(self) -> bool:
        """Whether steps other than repairs have to be taken before a start."""
        return bool(
            self.unserved.are_found
            or self.replicas.twice
            or self.replicas.behind
            or self.replicas.moved_behind
            or self.identities.come_before_start
            or self.disks.not_writable
            or self.obstacles.come_before_start
            or self.metadata.come_before_start
            or self.clients.come_before_start
        )

    @property
    def advice(self) -> str:
        """The command that the most severe findings suggest; empty without findings."""
        return self.repairs.advice(self.metadata.gapped)
