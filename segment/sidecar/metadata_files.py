"""The small files that identify data directories and partitions (fact sheet §1.4, §1.5, §1.7).

    partition.metadata      "version: 0", line break, "topic_id: <uuid>", no line break at the end
    meta.properties         Java properties: version 0 (broker.id, cluster.id) or 1 (node.id, cluster.id, directory.id)
    .kafka_cleanshutdown    empty up to 3.6, then {"version":0,"brokerEpoch":N}; only its existence is required
    quorum-state            one line of JSON, data_version 0 (voters) or 1 (voted directory)

Each reader accepts what Kafka 4.3 accepts (PartitionMetadataReadBuffer, MetaProperties, CleanShutdownFileHandler,
FileQuorumStateStore), so a FormatError means that a broker cannot read the file either. UUIDs are in Kafka's text form.
"""

import re

from kseg.segment.counted import counted
from kseg.segment.errors import FormatError
from kseg.segment.java import uuids
from kseg.segment.java.java_text import INT_BITS, LONG_BITS, parse_integer, read_lines, split_fields
from kseg.segment.java.properties import decode_properties, encode_properties
from kseg.segment.values import dataclass

# the topic id of __cluster_metadata in every cluster (Kafka: Uuid.METADATA_TOPIC_ID)
METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"

_COLON = re.compile(":[ \t\n\x0b\f\r]+")


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """topic_id: the uuid's text, never the zero one."""

    topic_id: str
    version: int = 0


def decode_partition_metadata(data: bytes) -> PartitionMetadata:
    """Raises FormatError with the line. The words before the colons are ignored, as in Kafka."""
    lines = read_lines(bytes(data))
    if len(lines) < 2:
        raise FormatError(f"partition.metadata has {counted(len(lines), 'line')}, it needs 2")
    first, second = (split_named(line) for line in lines[:2])
    version = parse_integer(first[1], INT_BITS) if len(first) == 2 else None
    if version is None:
        raise FormatError(f"line 1 is not version: N: {lines[0][:80]!r}")
    if version < 0:
        raise FormatError(f"line 1 has version {version}")
    if len(second) != 2:
        raise FormatError(f"line 2 is not topic_id: uuid: {lines[1][:80]!r}")
    topic_id = uuids.canonical_uuid(second[1])
    if topic_id == uuids.ZERO:
        raise FormatError("line 2 contains the zero uuid, which is not a valid topic id")
    return PartitionMetadata(topic_id, version)


def check_topic_id(metadata: PartitionMetadata, *, is_metadata_log: bool) -> None:
    """Raises FormatError if the metadata log has a topic id other than its fixed one: a node does not start with it."""
    if is_metadata_log and metadata.topic_id != METADATA_TOPIC_ID:
        raise FormatError(
            f"topic_id is {metadata.topic_id}; __cluster_metadata always has {METADATA_TOPIC_ID}"
        )


def split_named(line: str) -> list[str]:
    """A line of partition.metadata as Kafka parses it: a name and a value, if it is well-formed."""
    return split_fields(line, _COLON)


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """The file's bytes; raises FormatError for an invalid topic id."""
    topic_id = uuids.canonical_uuid(metadata.topic_id)
    if topic_id == uuids.ZERO:
        raise FormatError("the zero uuid is not a valid topic id")
    return f"version: {metadata.version}\ntopic_id: {topic_id}".encode("ascii")


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """version: 0 or 1. node_id: `node.id`, or `broker.id` in version 0. None = missing (allowed in version 0; for the
    directory id in both)."""

    version: int
    node_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None

    @property
    def is_from_zookeeper(self) -> bool:
        """Whether it was written by a broker that kept its metadata in ZooKeeper (Kafka 3.9 and older): KRaft nodes write version 1."""
        return self.version == 0 and self.node_id is not None

    @property
    def problem(self) -> str:
        """Why a broker does not start with these values; empty if it does."""
        if self.node_id is None:
            return "it has no node id; a broker does not start (node ID not found)"
        if self.directory_id is not None and uuids.is_reserved(self.directory_id):
            return f"its directory.id {self.directory_id} is reserved; a broker does not start (Invalid reserved directory ID)"
        return ""


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Raises FormatError for an unknown version, a required key that is missing, or a value of the wrong kind."""
    pairs = decode_properties(bytes(data))
    version = parse_integer(pairs.get("version", "0"), INT_BITS)
    if version not in (0, 1):
        raise FormatError(f"meta.properties has an unknown version {pairs['version'][:40]!r}")
    node_key = "node.id" if version else "broker.id"
    for key in (node_key, "cluster.id") if version else ():
        if key not in pairs:
            raise FormatError(f"meta.properties of version {version} has no {key}")
    node_id = parse_integer(pairs[node_key], INT_BITS) if node_key in pairs else None
    if node_id is None and node_key in pairs:
        raise FormatError(f"{node_key} is not a number: {pairs[node_key][:40]!r}")
    directory_id = pairs.get("directory.id")
    if directory_id is not None:
        directory_id = uuids.canonical_uuid(directory_id)
    return MetaProperties(version, node_id, pairs.get("cluster.id"), directory_id)


def encode_meta_properties(properties: MetaProperties, written_at_ms: int) -> bytes:
    """The file, with the keys in the order in which Java's hash map happens to write them. written_at_ms: for the date line."""
    values = {
        "node.id" if properties.version else "broker.id": properties.node_id,
        "directory.id": properties.directory_id,
        "version": properties.version,
        "cluster.id": properties.cluster_id,
    }
    return encode_properties(
        {key: str(value) for key, value in values.items() if value is not None}, written_at_ms
    )


@dataclass(frozen=True, slots=True)
class CleanShutdown:
    """broker_epoch: None, as for a broker, if the file has none (it was empty before 3.7) or cannot be parsed."""

    broker_epoch: int | None = None


def decode_clean_shutdown(data: bytes) -> CleanShutdown:
    """Never fails: a broker requires only that the file exists."""
    import json  # most commands read no such file

    try:
        content, _ = json.JSONDecoder().raw_decode(data.decode("utf-8").lstrip())
    except (ValueError, RecursionError):
        return CleanShutdown()
    if not isinstance(content, dict):
        return CleanShutdown()
    version = content.get("version")
    if version is not None and _lenient_number(version, INT_BITS) is None:
        return CleanShutdown()
    return CleanShutdown(_lenient_number(content.get("brokerEpoch"), LONG_BITS))


def _lenient_number(value: object, bits: int) -> int | None:
    """The value that Jackson binds to an integer field: numbers, with fractions truncated, and numbers in quotes."""
    if isinstance(value, str):
        return parse_integer(value.strip(), bits)
    if isinstance(value, float) and abs(value) < 2.0**63:
        value = int(value)
    return _bounded(value, bits)


def _bounded(value: object, bits: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


@dataclass(frozen=True, slots=True)
class QuorumState:
    """data_version 0 has cluster_id, applied_offset and current_voters (node ids), 1 has voted_directory_id; the fields of the
    other version are None. leader_id, voted_id: -1 = none."""

    data_version: int
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: str | None = None
    cluster_id: str | None = None
    applied_offset: int | None = None
    current_voters: tuple[int, ...] | None = None


_NOBODY = -1
_ILLEGAL_ARGUMENT = "IllegalArgumentException"


class QuorumStateFault(FormatError):
    """A quorum-state on which a node fails. kafka_exception: the exception that it throws."""

    def __init__(self, message: str, kafka_exception: str = "UncheckedIOException") -> None:
        super().__init__(message)
        self.kafka_exception = kafka_exception


def decode_quorum_state(data: bytes) -> QuorumState:
    """Reads only the first line. Raises QuorumStateFault with the field that is missing or has the wrong type."""
    try:
        lines = read_lines(bytes(data))
    except FormatError as error:
        raise QuorumStateFault(str(error)) from error
    if not lines:
        raise QuorumStateFault("quorum-state is empty")
    import json

    try:
        content = json.loads(lines[0], parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise QuorumStateFault(f"quorum-state is not JSON: {str(error)[:120]}") from error
    if not isinstance(content, dict):
        raise QuorumStateFault("quorum-state is not a JSON object")
    if "data_version" not in content:
        raise QuorumStateFault("quorum-state has no data_version")
    data_version = _short(content["data_version"])
    if data_version not in (0, 1):
        raise QuorumStateFault(
            f"quorum-state has an unknown data_version {data_version}", "IllegalStateException"
        )
    leader_id, leader_epoch, voted_id = (
        _quorum_number(content, key, INT_BITS) for key in ("leaderId", "leaderEpoch", "votedId")
    )
    _check_replicas(leader_id, voted_id)
    if data_version == 1:
        directory_id = _quorum_text(content, "votedDirectoryId")
        try:
            directory_id = uuids.canonical_uuid(directory_id)
        except FormatError as error:
            raise QuorumStateFault(str(error), _ILLEGAL_ARGUMENT) from error
        return QuorumState(1, leader_id, leader_epoch, voted_id, voted_directory_id=directory_id)
    return QuorumState(
        0,
        leader_id,
        leader_epoch,
        voted_id,
        cluster_id=_quorum_text(content, "clusterId"),
        applied_offset=_quorum_number(content, "appliedOffset", LONG_BITS),
        current_voters=_quorum_voters(content),
    )


def _refuse_constant(word: str) -> None:
    """NaN and the infinities are not JSON."""
    raise ValueError(f"{word} is not JSON")


def _short(value: object) -> int:
    """JsonNode.shortValue: the low bits of a number, 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    whole = value if isinstance(value, int) else int(max(-(1 << 31), min(value, (1 << 31) - 1)))
    return (whole + 0x8000 & 0xFFFF) - 0x8000


def _quorum_number(content: dict[str, object], key: str, bits: int) -> int:
    if key not in content:
        raise QuorumStateFault(f"{key} of quorum-state is missing", "RuntimeException")
    value = _bounded(content[key], bits)
    if value is None:
        raise QuorumStateFault(f"{key} of quorum-state is not a {bits}-bit number", "NumberFormatException")
    return value


def _quorum_text(content: dict[str, object], key: str) -> str:
    value = content.get(key)
    if not isinstance(value, str):
        raise QuorumStateFault(f"{key} of quorum-state is missing or not a string", "RuntimeException")
    return value


def _check_replicas(leader_id: int, voted_id: int) -> None:
    """The leader id, or without a leader the id of the voted replica, determines the initial state of the node (Kafka:
    QuorumState.initialize), unless the log has a later epoch."""
    for kind, replica_id in (("leader", leader_id), ("voted", voted_id)):
        if replica_id < _NOBODY:
            raise QuorumStateFault(f"Illegal {kind} Id {replica_id}: must be non-negative", _ILLEGAL_ARGUMENT)
        if replica_id != _NOBODY:
            return


def _quorum_voters(content: dict[str, object]) -> tuple[int, ...]:
    voters = content.get("currentVoters")
    if "currentVoters" in content and voters is None:
        raise QuorumStateFault("currentVoters of quorum-state is null", "NullPointerException")
    if not isinstance(voters, list) or not all(isinstance(voter, dict) for voter in voters):
        raise QuorumStateFault(
            "currentVoters of quorum-state is missing or not a list of voters", "RuntimeException"
        )
    return tuple(_quorum_number(voter, "voterId", INT_BITS) for voter in voters)
