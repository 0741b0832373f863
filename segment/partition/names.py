"""Parse names: partition directories and every file name of a data directory.

Directories (fact sheet §1.1; Kafka: LocalLog.parseTopicPartitionName)
    <topic>-<partition>                          live
    <topic>-<partition>.<32 hex>-delete          scheduled for deletion   (topic cut so that the name has ≤ 255 chars)
    <topic>-<partition>.<32 hex>-stray           set aside                (cut likewise)
    <topic>-<partition>.<32 hex>-future          destination of a move between log dirs (never cut)
Topics contain `-` and `.`, so names are read from the right.

Files (fact sheet §1.2, §1.4 to §1.7, §2.1)
    <20 digits>.log|.index|.timeindex|.txnindex|.snapshot     number = offset     (0.7: <20 digits>.kafka, a byte)
    <20 digits>-<10 digits>[-<random>].checkpoint             KRaft snapshot: end offset, epoch
    <offset>_<uuid>.index|.timeindex|.txnindex                local cache of a tiered segment's indexes
    leader-epoch-checkpoint, partition.metadata, quorum-state, meta.properties, …-checkpoint, .lock, …
each followed by any of .deleted .cleaned .swap .tmp .part, the outermost of which is the file's state.
A name that is none of these is a `FileName` too, with role UNKNOWN: no file is ever left out.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache

from kseg.segment import layout as L
from kseg.segment.errors import FormatError
from kseg.segment.java.java_text import INT_BITS, LONG_BITS, parse_integer
from kseg.segment.values import dataclass

MAX_DIRECTORY_NAME = 255
OFFSET_DIGITS = 20
EPOCH_DIGITS = 10
METADATA_TOPIC = "__cluster_metadata"
METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"  # it has one partition
LOST_AND_FOUND = "lost+found"  # in the root of every new ext file system, readable only by its owner
CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
GROUP_TOPICS = (CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC)
# Kafka: Topic.isInternal
INTERNAL_TOPICS = (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC)
REMOTE_INDEX_CACHE = "remote-log-index-cache"
KSEG_DIRECTORY = ".kseg"


class PartitionState(StrEnum):
    """The state in the suffix of a partition directory; the value is the word in the name."""

    LIVE = "live"
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


@dataclass(frozen=True, slots=True)
class PartitionName:
    """The parsed name of a partition directory.

    unique_id: the text before the suffix word (32 hex digits when Kafka wrote it), None for a live one.
    """

    topic: str
    partition: int
    state: PartitionState = PartitionState.LIVE
    unique_id: str | None = None

    @property
    def text(self) -> str:
        """`topic-partition`, as in checkpoints and messages."""
        return f"{self.topic}-{self.partition}"

    @property
    def is_metadata_log(self) -> bool:
        return self.topic == METADATA_TOPIC


_SUFFIXED = "([^ \t\n\x0b\f\r]+)-([^ \t\n\x0b\f\r]+)[.]([^ \t\n\x0b\f\r]+)-(delete|future|stray)"
_STATE_SUFFIXES = tuple(f"-{state}" for state in PartitionState if state is not PartitionState.LIVE)


def is_topic_name(text: str) -> bool:
    """Whether a broker accepts it as the name of a topic (Kafka: Topic.validate)."""
    return re.fullmatch("[a-zA-Z0-9._-]{1,249}", text) is not None and text not in (".", "..")


def parse_partition_directory(name: str) -> PartitionName:
    """Parse the name of a partition directory (name only, no path).

    Raises FormatError with the directory if a broker would refuse to start because of it.
    """
    state, unique_id, plain = PartitionState.LIVE, None, name
    if name.endswith(_STATE_SUFFIXES):
        if not re.fullmatch(_SUFFIXED, name):
            raise FormatError(
                f"{name!r} has the suffix of a renamed partition directory, but is not topic-partition.id-suffix"
            )
        plain, _, tail = name.rpartition(".")
        identity, _, word = tail.rpartition("-")
        state, unique_id = PartitionState(word), identity
    topic, dash, number = plain.rpartition("-")
    partition = parse_integer(number, INT_BITS)
    if not dash or not topic or partition is None:
        raise FormatError(f"{name!r} is not the name of a partition directory (topic-partition)")
    return PartitionName(topic, partition, state, unique_id)


def format_partition_directory(name: PartitionName) -> str:
    """The directory name that Kafka would use; raises FormatError if a suffixed state lacks its unique id."""
    if name.state is PartitionState.LIVE:
        return name.text
    if not name.unique_id:
        raise FormatError(f"a -{name.state} directory needs a unique id")
    suffix = f"-{name.partition}.{name.unique_id}-{name.state}"
    if name.state is PartitionState.FUTURE:
        return name.topic + suffix
    return name.topic[: max(0, MAX_DIRECTORY_NAME - len(suffix))] + suffix


def contains_partition_name(directory: str, partition: str) -> bool:
    """Whether the name of a directory contains that of a partition as a whole: `orders-1.bak` and `_orders-1 (copy)` contain `orders-1`,
    `orders-10.bak` does not."""
    return partition in directory and bool(
        re.search(rf"(?<![a-zA-Z0-9]){re.escape(partition)}(?![0-9])", directory)
    )


class Role(StrEnum):
    """The purpose of a file. The first five make up a segment, in the order in which they are shown."""

    LOG = "log"
    OFFSET_INDEX = "offset-index"
    TIME_INDEX = "time-index"
    TXN_INDEX = "transaction-index"
    PRODUCER_SNAPSHOT = "producer-snapshot"
    KAFKA07_LOG = "log-0.7"
    METADATA_SNAPSHOT = "metadata-snapshot"
    BOOTSTRAP_SNAPSHOT = "bootstrap-snapshot"
    LEADER_EPOCHS = "leader-epochs"
    PARTITION_METADATA = "partition-metadata"
    QUORUM_STATE = "quorum-state"
    RECOVERY_POINTS = "recovery-points"
    HIGH_WATERMARKS = "high-watermarks"
    LOG_START_OFFSETS = "log-start-offsets"
    CLEANER_OFFSETS = "cleaner-offsets"
    META_PROPERTIES = "meta-properties"
    CLEAN_SHUTDOWN = "clean-shutdown"
    LOCK = "lock"
    KSEG_JOURNAL = "kseg-journal"
    KSEG_STREAM = "kseg-stream"
    UNKNOWN = "unknown"


class FileState(StrEnum):
    """The state in the outermost suffix; the value is the suffix without its dot."""

    LIVE = "live"
    DELETED = "deleted"
    CLEANED = "cleaned"
    SWAP = "swap"
    TMP = "tmp"
    PART = "part"


SEGMENT_ROLES = (Role.LOG, Role.OFFSET_INDEX, Role.TIME_INDEX, Role.TXN_INDEX, Role.PRODUCER_SNAPSHOT)
INDEX_ROLES = (Role.OFFSET_INDEX, Role.TIME_INDEX, Role.TXN_INDEX)
# files of a partition that are named by a number
NUMBERED_ROLES = frozenset((*SEGMENT_ROLES, Role.KAFKA07_LOG))
OFFSET_CHECKPOINT_ROLES = (
    Role.RECOVERY_POINTS,
    Role.HIGH_WATERMARKS,
    Role.LOG_START_OFFSETS,
    Role.CLEANER_OFFSETS,
)

_ROLE_BY_SUFFIX = {
    L.LOG_SUFFIX: Role.LOG,
    L.OFFSET_INDEX_SUFFIX: Role.OFFSET_INDEX,
    L.TIME_INDEX_SUFFIX: Role.TIME_INDEX,
    L.TXN_INDEX_SUFFIX: Role.TXN_INDEX,
    L.SNAPSHOT_SUFFIX: Role.PRODUCER_SNAPSHOT,
    L.KAFKA07_SUFFIX: Role.KAFKA07_LOG,
}
_LARGEST_OFFSET = f"{L.INT64_MAX:0{OFFSET_DIGITS}d}"
SUFFIX_BY_ROLE = {role: suffix for suffix, role in _ROLE_BY_SUFFIX.items()}

_ROLE_BY_NAME = {
    "leader-epoch-checkpoint": Role.LEADER_EPOCHS,
    "partition.metadata": Role.PARTITION_METADATA,
    "quorum-state": Role.QUORUM_STATE,
    "bootstrap.checkpoint": Role.BOOTSTRAP_SNAPSHOT,
    "recovery-point-offset-checkpoint": Role.RECOVERY_POINTS,
    "replication-offset-checkpoint": Role.HIGH_WATERMARKS,
    "log-start-offset-checkpoint": Role.LOG_START_OFFSETS,
    "cleaner-offset-checkpoint": Role.CLEANER_OFFSETS,
    "meta.properties": Role.META_PROPERTIES,
    ".kafka_cleanshutdown": Role.CLEAN_SHUTDOWN,
    ".lock": Role.LOCK,
}
NAME_BY_ROLE = {role: name for name, role in _ROLE_BY_NAME.items()}

_LOG_DIR_ROLES = frozenset(
    (*OFFSET_CHECKPOINT_ROLES, Role.META_PROPERTIES, Role.CLEAN_SHUTDOWN, Role.LOCK, Role.BOOTSTRAP_SNAPSHOT)
)
_LOG_DIR_NAMES = frozenset(NAME_BY_ROLE[role] for role in _LOG_DIR_ROLES)
_PARTITION_ROLES = frozenset((Role.PARTITION_METADATA, Role.LEADER_EPOCHS, Role.QUORUM_STATE))

_STATES = {f".{state}": state for state in FileState if state is not FileState.LIVE}
_FILE_STATE_SUFFIXES = tuple(_STATES)
# files written by the tasks of a cluster job until they are joined (`write.staged_runs`)
STAGED_PREFIX = "kseg-staged-"
STREAM_PREFIX = "kseg-stream-"  # records which micro-batch of a streaming query was written last
# a copy that a step of `doctor` makes, until it is complete and gets its name
COPYING_SUFFIX = ".kseg-copying"
UNDONE_PREFIX = "kseg-undone-"  # files that an undo removed and kept
# the first of them also begins the names of files that belong to a journal
_OWN_PREFIXES = ("kseg-journal-", STAGED_PREFIX, UNDONE_PREFIX)
# not compiled before a similar name is parsed: compiling takes longer than reading a name
_METADATA_SNAPSHOT = r"([0-9]{20,})-([0-9]{10,})(-[^.]+)?"
_REMOTE_INDEX = r"([0-9]+)_([A-Za-z0-9_-]{22})"


@dataclass(frozen=True, slots=True)
class FileName:
    """One file name, parsed as far as possible.

    base_offset: the number in the name (a segment's base offset, the exclusive end offset of a snapshot, a byte
    position for 0.7), None when it has none. is_well_formed: written the way Kafka writes it; False for `5.log`,
    which Kafka's tools read, and for every UNKNOWN. epoch: of a KRaft snapshot. remote_segment_id: the uuid of a
    tiered segment's cached index. stem: the name without state suffixes.
    """

    name: str
    base_offset: int | None
    role: Role
    state: FileState = FileState.LIVE
    is_well_formed: bool = True
    epoch: int | None = None
    remote_segment_id: str | None = None
    stem: str = ""

    @property
    def is_live(self) -> bool:
        return self.state is FileState.LIVE


def parse_file_name(name: str) -> FileName:
    """Parse a file name (no path). Never fails: an unknown name has role UNKNOWN.

    So does a name that a broker does not see."""
    if not is_seen_by_java(name):
        return FileName(name, None, Role.UNKNOWN, is_well_formed=False, stem=name)
    return parse_given_name(name)


@lru_cache(maxsize=4096)  # each name is parsed when it is listed and again when it is opened
def parse_given_name(name: str) -> FileName:
    """Like `parse_file_name`, for a file given by the user, whether or not a broker would see it."""
    digits = name[:OFFSET_DIGITS]
    role = _ROLE_BY_SUFFIX.get(name[OFFSET_DIGITS:])
    if role is not None and digits.isascii() and digits.isdigit() and digits <= _LARGEST_OFFSET:
        return FileName(name, int(digits), role, stem=name)  # nearly every name in a large partition
    stem, state = _strip_states(name)
    role = _ROLE_BY_NAME.get(stem)
    if role is not None:
        return FileName(name, None, role, state, stem=stem)
    if name.startswith(_OWN_PREFIXES):
        return FileName(name, None, Role.KSEG_JOURNAL, stem=name)
    if name.startswith(STREAM_PREFIX) and state is FileState.LIVE:
        return FileName(name, None, Role.KSEG_STREAM, stem=name)
    body, dot, suffix = stem.rpartition(".")
    if dot and f".{suffix}" == L.CHECKPOINT_SUFFIX:
        return _metadata_snapshot(name, body, state, stem)
    role = _ROLE_BY_SUFFIX.get(f".{suffix}") if dot else None
    if role is None:
        return FileName(name, None, Role.UNKNOWN, state, is_well_formed=False, stem=stem)
    remote = re.fullmatch(_REMOTE_INDEX, body) if "_" in body and role in INDEX_ROLES else None
    if remote is not None:
        offset = parse_integer(remote[1], LONG_BITS)
        return FileName(name, offset, role, state, offset is not None, None, remote[2], stem)
    # Kafka takes everything before the first dot as the number
    offset = _offset(body.partition(".")[0])
    is_well_formed = offset is not None and stem == segment_file_name(offset, f".{suffix}")
    return FileName(name, offset, role, state, is_well_formed, stem=stem)


def is_seen_by_java(name: str) -> bool:
    """Whether a broker finds a file of this name: Java decodes a name that is not UTF-8 to another one, which does not exist."""
    return name.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in name)


def _strip_states(name: str) -> tuple[str, FileState]:
    """The name without its state suffixes, and the outermost of them; a bare suffix is not a state."""
    state = FileState.LIVE
    while True:
        body, dot, suffix = name.rpartition(".")
        outer = _STATES.get(f".{suffix}") if dot and body else None
        if outer is None:
            return name, state
        if state is FileState.LIVE:
            state = outer
        name = body


def _metadata_snapshot(name: str, body: str, state: FileState, stem: str) -> FileName:
    match = re.fullmatch(_METADATA_SNAPSHOT, body)
    if match is None:
        return FileName(name, None, Role.METADATA_SNAPSHOT, state, is_well_formed=False, stem=stem)
    offset, epoch = _offset(match[1]), parse_integer(match[2], INT_BITS)
    is_well_formed = offset is not None and epoch is not None
    if offset is not None and epoch is not None:
        is_well_formed = metadata_snapshot_name(offset, epoch).startswith(f"{match[1]}-{match[2]}.")
    return FileName(name, offset, Role.METADATA_SNAPSHOT, state, is_well_formed, epoch, None, stem)


def metadata_snapshot_name(offset: int, epoch: int) -> str:
    """The name of the KRaft snapshot that ends before `offset` in `epoch` (Kafka: Snapshots)."""
    return f"{offset:0{OFFSET_DIGITS}d}-{epoch:0{EPOCH_DIGITS}d}{L.CHECKPOINT_SUFFIX}"


def _offset(digits: str) -> int | None:
    value = parse_integer(digits, LONG_BITS)
    return value if value is not None and value >= 0 else None


def segment_file_name(base_offset: int, suffix: str) -> str:
    """`<20 digits><suffix>`, at least 20 digits, no sign (Kafka: LogFileUtils.filenamePrefixFromOffset)."""
    if base_offset < 0:
        raise FormatError(f"a file name cannot contain the negative offset {base_offset}")
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix}"


def is_of_log_directory(name: str) -> bool:
    """Whether a file of this name occurs only in data directories."""
    return name in _LOG_DIR_NAMES or (
        name.endswith(_FILE_STATE_SUFFIXES) and parse_file_name(name).role in _LOG_DIR_ROLES
    )


def is_of_partition(name: FileName) -> bool:
    """Whether a file of this name occurs only in partitions."""
    is_numbered = name.role in NUMBERED_ROLES and name.base_offset is not None and not name.remote_segment_id
    return (
        is_numbered
        or name.role in _PARTITION_ROLES
        or (name.role is Role.METADATA_SNAPSHOT and name.is_well_formed)
    )


def is_kafka07_log(names: Iterable[FileName]) -> bool:
    """Whether files of these names are a log of Kafka 0.7: there are `.kafka` files, and no `.log`, which later brokers read alone."""
    roles = {name.role for name in names}
    return Role.KAFKA07_LOG in roles and Role.LOG not in roles
