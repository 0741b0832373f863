"""The results of an examination that the steps of `kseg doctor` depend on."""

import os
from dataclasses import field, replace
from typing import TYPE_CHECKING

from kseg.cli.doctor.metadata_log_steps import is_metadata_snapshot
from kseg.cli.doctor.obstacle_steps import has_lost_its_case, why_in_the_way
from kseg.cli.next_command import next_command
from kseg.cli.request import Request
from kseg.inspection.disk_leftovers import Leftover
from kseg.inspection.log_dir_host import LogDirHost
from kseg.recovery.broker_start.metadata_start import snapshot_fault
from kseg.recovery.repair.meta_properties_repair import META_PROPERTIES, IdentityRepair
from kseg.segment.diagnosis import (
    DoubtfulLogStart,
    InvalidBytes,
    MetadataGap,
    MissingReplica,
    PartitionTwice,
    ReplacedVoter,
    ReplicaBehind,
    ReplicaCopy,
    UnwritableFile,
    WrongTopicId,
)
from kseg.segment.findings import ERROR, INFO, WARNING, Finding
from kseg.segment.storage import places
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.cli.doctor.properties_steps import PropertiesOfNode
    from kseg.compaction.retention.due import DueDeletion
    from kseg.internal_topics.groups.group_rows import OffsetOfGroup
    from kseg.internal_topics.groups.offset_expiry import ExpiringOffsets, ExpiryCheck
    from kseg.internal_topics.metadata.refused_configs import RefusedConfig
    from kseg.internal_topics.metadata.refused_features import RefusedFeature
    from kseg.internal_topics.transactions.transaction_rows import HangingTransaction, LostCommit

_HINTED_PATHS = 8  # as suggested by `verify`
_NO_IDENTITY = ("meta-properties-missing", "meta-properties-corrupt")
_APART = ("directory-id-twice", "log-dirs-mixed")

ANY_SERVER = "HOST:PORT"


@dataclass(frozen=True, slots=True)
class OtherNode:
    """A data directory whose meta.properties names another node than the metadata log."""

    log_dir: str
    in_file: int
    by_metadata: int


@dataclass(slots=True)
class Situation:
    """The results of an examination that steps depend on. Lists and mappings are of paths, unless said otherwise.

    server: HOST:PORT of a broker for clients. hints: the suggested commands by severity, each with its paths. foreign: directories whose
    names a broker cannot parse; of_other_topics: those with the topic id of a topic of another name, from which nobody is served;
    of_unknown_topics: those that become stray, whose topic is in no metadata log. lost_identities: log dirs without a readable
    meta.properties. values_needed: by log dir, the values of its meta.properties that only the user knows. apart: log dirs that do not
    belong with the others, and whether they are copies. nodes: the log dirs of each node, by its name; stopped_nodes: the ids of those that
    do not run. twice: (partition directory, another one of the same partition). behind: (replica that lacks records, the one of another
    node that has them). replaced_voters: of the quorum. missing: directories of missing replicas; set_aside: of some, the directory that
    has their log under another name; copied: of some, the replica of another node here; nodes_with_others: the nodes not examined here
    that have another replica of any. wrong_ids: partition directories with another topic id than the topic of their name, whose id is the
    value. in_other_case: directories in which files have lost the case of their names. in_the_way: paths that prevent a start, with the
    reason. given_files, given_empty: paths of the request that are no data directories because they are files, or empty.

    has_metadata: whether a metadata log was read; has_outdated_metadata: whether it is older than
    the partitions. has_dynamic_quorum: whether the voters are in the metadata log instead of
    controller.quorum.voters. topics: the partition count of each topic, according to the directories here. damaged_snapshots: of the
    metadata log. refused_features, refused_configs: entries of the metadata log that a 4.3.1 node refuses. gapped_metadata_logs:
    directories of metadata logs that a repair would make worse, so `advice` leaves them out. lacks_metadata_log: whether none of the
    directories has it. renamed_metadata_log: the only directory that has it under another name.

    has_linked_directories: whether `recover` needs --follow-links. linked_files: files of damaged partitions that are links. properties:
    server.properties, if it was given. unformatted_log_dirs: directories in its log.dirs that do not exist or are empty. deleted: the
    directories of deleted topics. undo_bytes: held for `undo`. unloadable: partitions that a broker fails to load before and after a
    repair. doubtful_starts: logs that may have lost the offset where they start, with that. left_damaged: partitions in which a repair
    changes nothing, with what it leaves. flipped_batches: how many are valid with one bit inverted. due_deletions: what retention deletes
    after a start. expiring: the groups whose offsets expire then, as found by the check expiry.
    """

    request: Request
    node_id: int | None = None
    server: str = ANY_SERVER
    hosts: list[LogDirHost] = field(default_factory=list)
    hints: dict[str, dict[str, dict[str, None]]] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    of_other_topics: list[str] = field(default_factory=list)
    of_unknown_topics: list[str] = field(default_factory=list)
    lost_identities: set[str] = field(default_factory=set)
    values_needed: dict[str, IdentityRepair] = field(default_factory=dict)
    apart: dict[str, bool] = field(default_factory=dict)
    nodes: dict[str, list[str]] = field(default_factory=dict)
    twice: list[tuple[str, str]] = field(default_factory=list)
    behind: list[tuple[str, str]] = field(default_factory=list)
    replaced_voters: list[ReplacedVoter] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    nodes_with_others: set[int] = field(default_factory=set)
    not_writable: list[tuple[str, UnwritableFile]] = field(default_factory=list)
    set_aside: dict[str, str] = field(default_factory=dict)
    copied: dict[str, ReplicaCopy] = field(default_factory=dict)
    stopped_nodes: set[int] = field(default_factory=set)
    wrong_ids: dict[str, str] = field(default_factory=dict)
    in_other_case: dict[str, None] = field(default_factory=dict)
    in_the_way: dict[str, str] = field(default_factory=dict)
    given_files: list[str] = field(default_factory=list)
    given_empty: list[str] = field(default_factory=list)
    cluster_id: str | None = None
    has_metadata: bool = False
    has_outdated_metadata: bool = False
    has_dynamic_quorum: bool = False
    topics: dict[str, int] = field(default_factory=dict)
    damaged_snapshots: list[str] = field(default_factory=list)
    refused_features: "dict[str, RefusedFeature]" = field(default_factory=dict)
    refused_configs: "dict[tuple[str, str], RefusedConfig]" = field(default_factory=dict)
    gapped_metadata_logs: dict[str, None] = field(default_factory=dict)
    lacks_metadata_log: bool = False
    renamed_metadata_log: str | None = None
    has_unreadable: bool = False
    is_half_done: bool = False
    has_linked_directories: bool = False
    properties: "PropertiesOfNode | None" = None
    unformatted_log_dirs: list[str] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    undo_bytes: int = 0
    other_nodes: list[OtherNode] = field(default_factory=list)
    unloadable: list[str] = field(default_factory=list)
    linked_files: list[str] = field(default_factory=list)
    hanging: "list[HangingTransaction]" = field(default_factory=list)
    lost_commits: "list[LostCommit]" = field(default_factory=list)
    stranded: "list[OffsetOfGroup]" = field(default_factory=list)
    doubtful_starts: dict[str, int] = field(default_factory=dict)
    left_damaged: dict[str, str] = field(default_factory=dict)
    flipped_batches: int = 0
    due_deletions: "list[DueDeletion]" = field(default_factory=list)
    expiry: "ExpiryCheck | None" = None
    expiring: "list[ExpiringOffsets]" = field(default_factory=list)

    def note(self, finding: Finding) -> None:
        """Collect the command that a finding suggests."""
        if finding.severity == INFO:
            return
        self.has_unreadable |= finding.id == "unreadable"
        self.is_half_done |= finding.id == "half-done-journal"
        self.has_linked_directories |= finding.id == "linked-directory"
        if isinstance(finding.diagnosis, InvalidBytes):
            self.flipped_batches += len(finding.diagnosis.flipped)
        if finding.id == "bad-directory-name":
            self.foreign.append(finding.path)
            return
        if finding.id == "topic-id-conflict" and finding.diagnosis is None and places.isdir(finding.path):
            self.of_other_topics.append(finding.path)
            return
        if isinstance(finding.diagnosis, ReplicaBehind):
            self.behind.append((finding.path, finding.diagnosis.other))
            return
        if isinstance(finding.diagnosis, ReplacedVoter):
            self.replaced_voters.append(finding.diagnosis)
            return
        if finding.id == "metadata-log-outdated":
            self.has_outdated_metadata = True
            return
        if finding.id == "becomes-stray" and finding.diagnosis is None:
            self.of_unknown_topics.append(finding.path)
            return
        if isinstance(finding.diagnosis, UnwritableFile):
            self.not_writable.append((finding.path, finding.diagnosis))
            return
        if finding.id == "unknown-file" and has_lost_its_case(finding.path):
            self.in_other_case[os.path.dirname(finding.path)] = None
            return
        if finding.id == "unknown-file" and finding.path in self.request.paths:
            self.given_files.append(finding.path)
            return
        why = why_in_the_way(finding)
        if why:
            self.in_the_way[finding.path] = why
            if finding.id != "unreadable":
                return
        is_unreadable = finding.id == "unreadable" and os.path.basename(finding.path) == META_PROPERTIES
        if finding.id in _NO_IDENTITY or is_unreadable:
            self.lost_identities.add(
                finding.path if finding.id == "meta-properties-missing" else os.path.dirname(finding.path)
            )
        if isinstance(finding.diagnosis, MetadataGap) and not finding.diagnosis.is_loadable:
            self.gapped_metadata_logs[finding.diagnosis.directory] = None
        if isinstance(finding.diagnosis, WrongTopicId):
            self.wrong_ids[finding.path] = finding.diagnosis.topic_id
            return
        if finding.id in _APART:
            log_dir = os.path.dirname(finding.path)
            self.apart[log_dir] = self.apart.get(log_dir, False) or finding.id == "directory-id-twice"
        if isinstance(finding.diagnosis, PartitionTwice):
            self.twice.append((finding.path, finding.diagnosis.other))
            return
        if isinstance(finding.diagnosis, MissingReplica):
            if finding.severity == ERROR:
                self._note_missing(finding.path, finding.diagnosis)
            return
        if isinstance(finding.diagnosis, DoubtfulLogStart):
            self.doubtful_starts[finding.path] = finding.diagnosis.offset
            return
        if finding.severity == ERROR and finding.path in self.damaged_snapshots:
            return
        if finding.severity == ERROR and is_metadata_snapshot(finding.path) and snapshot_fault(finding.path):
            self.damaged_snapshots.append(finding.path)
            return
        if finding.id == "no-segments" and finding.path in self.missing:
            return
        self.hints.setdefault(finding.severity, {}).setdefault(finding.hint, {})[finding.path] = None

    def _note_missing(self, path: str, missing: MissingReplica) -> None:
        self.missing.append(path)
        self.nodes_with_others.update(set(missing.others) - self.stopped_nodes)
        if missing.set_aside is not None:
            self.set_aside[path] = missing.set_aside
        if missing.copy is not None:
            self.copied[path] = missing.copy

    @property
    def is_obstructed(self) -> bool:
        """Whether something prevents a start that has to be moved away, or needs its topic id."""
        return bool(
            self.foreign
            or self.of_other_topics
            or self.of_unknown_topics
            or self.in_other_case
            or self.not_writable
            or self.twice
            or self.behind
            or any(each.is_quorum_lost or each.foreign_log for each in self.replaced_voters)
            or self.in_the_way
            or self.wrong_ids
            or self.damaged_snapshots
            or self.gapped_metadata_logs
        )

    @property
    def advice(self) -> str:
        """The command that the most severe findings suggest; empty without findings."""
        hints = self.hints.get(ERROR) or self.hints.get(WARNING) or {}
        left = {*self.gapped_metadata_logs, *self.left_damaged}
        others = {
            hint: [path for path in paths if left.isdisjoint((path, os.path.dirname(path)))]
            for hint, paths in hints.items()
        }
        others = {hint: paths for hint, paths in others.items() if paths}
        if not self.gapped_metadata_logs:
            shown = {hint: paths[:_HINTED_PATHS] for hint, paths in others.items()}
            return next_command(shown, "doctor", self.request) if shown else ""
        partitions = dict.fromkeys(
            path if places.isdir(path) else os.path.dirname(path)
            for paths in others.values()
            for path in paths
        )
        return (
            next_command(others, "doctor", replace(self.request, paths=tuple(partitions))) if others else ""
        )
