"""The state of a cluster at one offset of its metadata log, as an immutable value (Kafka: MetadataImage)."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import NamedTuple

from kseg.internal_topics.metadata.access_image import AccessImage
from kseg.segment.findings import Finding
from kseg.segment.values import dataclass

# Directory ids with a special meaning (Kafka: DirectoryId).
MIGRATING = "AAAAAAAAAAAAAAAAAAAAAA"
UNASSIGNED = "AAAAAAAAAAAAAAAAAAAAAQ"
LOST = "AAAAAAAAAAAAAAAAAAAAAg"


class Resource:
    """Resource types of a ConfigRecord (Kafka: ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Partition(NamedTuple):
    """replicas: node ids; directories: of the replicas, in their order (MIGRATING if the record has none). adding, removing: of
    an ongoing reassignment. elr: eligible leader replicas (KIP-966)."""

    number: int
    replicas: tuple[int, ...]
    directories: tuple[str, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    is_recovering: bool = False

    def directory_of(self, node_id: int) -> str | None:
        """The directory id that a node's replica is assigned to; None when the node has no replica."""
        if node_id not in self.replicas:
            return None
        at = self.replicas.index(node_id)
        return self.directories[at] if at < len(self.directories) else MIGRATING


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. partitions: by number."""

    name: str
    id: str
    partitions: Mapping[int, Partition]


@dataclass(frozen=True, slots=True)
class RemovedTopic:
    """A deleted topic. offset, timestamp_ms: of its RemoveTopicRecord. partitions: how many it had, None when unknown."""

    name: str
    id: str
    offset: int
    timestamp_ms: int = -1
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Listener:
    """security_protocol: Kafka's number (0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL)."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's registration. log_dirs: the directory ids that it has registered; cordoned: those that get no new replicas, None
    if the record does not have the field. uses_zookeeper: it registered for a migration to KRaft, and still keeps its metadata in
    ZooKeeper (isMigratingZkBroker, 3.4 to 3.9)."""

    id: int
    epoch: int
    incarnation_id: str
    log_dirs: tuple[str, ...]
    is_fenced: bool
    rack: str | None
    listeners: tuple[Listener, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()
    is_shutting_down: bool = False
    cordoned: tuple[str, ...] | None = None
    uses_zookeeper: bool = False


@dataclass(frozen=True, slots=True)
class Controller:
    """A controller's registration."""

    id: int
    incarnation_id: str
    listeners: tuple[Listener, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """The node of a log dir, from its meta.properties; None for unknown values."""

    node_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None


@dataclass(frozen=True, slots=True)
class Voter:
    """A node of the quorum. directory_id: None in a static quorum (controller.quorum.voters). endpoints: HOST:PORT, of a dynamic one."""

    id: int
    directory_id: str | None = None
    endpoints: tuple[str, ...] = field(default=(), compare=False)


class Placement(StrEnum):
    """Why a partition is expected in a log dir."""

    ASSIGNED = "assigned"  # assigned to exactly this directory
    ANY_DIRECTORY = "any-directory"  # assigned to the node, but to no particular directory


@dataclass(frozen=True, slots=True)
class ExpectedPartition:
    """A partition that a node should have."""

    topic: str
    topic_id: str
    partition: int
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """path: where it was read. end_offset: the state before this offset; epoch, timestamp_ms: of the last record below it. cluster_id: of
    the node that it was read from, None if unknown. snapshot: the file that the state starts with, None for none. names: of every topic in
    the log or the snapshot, by id, including those after this state. topics: by id. configs: by resource type and name (brokers: the node
    id, "" for the cluster-wide default). feature_levels: all that were set on the way to this state, in order. removed: topics whose
    deletion was seen, by id. controllers, access: only in an image of everything. next_producer_id: None before any was allocated. leaders:
    the active controllers by epoch, as far as the log has them. voters: of the quorum, none if nothing names them. is_cut: later records or
    snapshots were left out. doubts: why this may not be the state at the end of the log; with any of them, no value that may have changed
    later is certain. notes: other remarks. contradictions: (offset, words) of records that a controller cannot apply to the state before
    them; those of controllers and access only in an image of everything. unparsed: the offsets of those that no 4.3.1 node can read.
    is_in_transaction: whether a metadata transaction is open at its end."""

    path: str
    end_offset: int
    epoch: int
    timestamp_ms: int
    cluster_id: str | None = None
    snapshot: str | None = None
    topics: Mapping[str, Topic] = field(default_factory=dict)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    feature_levels: tuple[tuple[str, int], ...] = ()
    removed: Mapping[str, RemovedTopic] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    controllers: Mapping[int, Controller] = field(default_factory=dict)
    access: AccessImage = AccessImage()
    next_producer_id: int | None = None
    leaders: Mapping[int, int] = field(default_factory=dict)
    voters: tuple[Voter, ...] = ()
    is_cut: bool = False
    doubts: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    contradictions: tuple[tuple[int, str], ...] = ()
    unparsed: tuple[int, ...] = ()
    is_in_transaction: bool = False

    @property
    def is_certain(self) -> bool:
        return not self.doubts

    @property
    def reach(self) -> tuple[int, int]:
        """How far the log reaches, as controllers compare it in an election: of several logs the newest one is furthest."""
        return self.epoch, self.end_offset

    @property
    def id_by_name(self) -> Mapping[str, str]:
        """The ids of the topics by their names."""
        return {topic.name: topic.id for topic in self.topics.values()}

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """The properties set for a topic."""
        return self.configs.get((Resource.TOPIC, topic), {})

    def broker_configs(self, node_id: int | None) -> Mapping[str, str]:
        """The dynamic properties of one broker; of all brokers by default for None."""
        return self.configs.get((Resource.BROKER, "" if node_id is None else str(node_id)), {})

    def partitions_of(self, node_id: int, directory_id: str | None = None) -> Iterator[ExpectedPartition]:
        """The partitions expected in a log dir, by topic and number. directory_id: from meta.properties; None selects the node as a whole.
        A replica whose directory is LOST is expected nowhere."""
        for topic in sorted(self.topics.values(), key=lambda each: each.name):
            for number, partition in sorted(topic.partitions.items()):
                assigned = partition.directory_of(node_id)
                if assigned is None or assigned == LOST:
                    continue
                if assigned in (MIGRATING, UNASSIGNED):
                    placement = Placement.ANY_DIRECTORY
                elif directory_id in (None, assigned):
                    placement = Placement.ASSIGNED
                else:
                    continue
                yield ExpectedPartition(topic.name, topic.id, number, placement)
