"""What a starting broker's log loading does with one partition directory.

For most partitions this follows from the findings of the check: without a finding that affects a load, the log is loaded as it is, and
after an unclean shutdown the segments from the recovery point on are read (their sizes are known). Otherwise the load itself is
simulated (`loading.loader`). The metadata log is loaded by another part of the broker, which ignores marker
and checkpoints: it is recovered from its first offset at every start (Kafka: KafkaRaftLog.createLog).
"""

import bisect
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from kseg.recovery.broker_start.log_dir_start import READ_BEFORE_LOADING, checkpoint_fault
from kseg.recovery.loading.kafka_exceptions import (
    ACCESS_DENIED,
    FILE_NOT_FOUND,
    FILE_SYSTEM,
    IO,
    MALFORMED_INPUT,
    NO_SUCH_FILE,
    STORAGE,
)
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.totals import CheckedPartition
from kseg.segment.diagnosis import UnwritableFile
from kseg.segment.errors import UnreadableInput, cannot_read
from kseg.segment.findings import Finding
from kseg.segment.kernel import bad_pages
from kseg.segment.mounts import is_mount_point
from kseg.segment.partition.directory import list_partition, own_partition_name
from kseg.segment.partition.log_dir_state import LogDirState
from kseg.segment.partition.names import PartitionName, PartitionState, Role
from kseg.segment.partition.topic_identity import BECOMES_STRAY
from kseg.segment.scanning.preallocated_tail import PREALLOCATED
from kseg.segment.storage import places
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kseg.recovery.policy import LoadSettings, Removed, Repair
    from kseg.segment.partition.directory import SegmentFiles

INTERNAL_ERROR = "InternalError"
_FAULT = "a fault occurred in a recent unsafe memory access operation in compiled Java code"

# A load that ends with one of these takes the data directory offline; any other exception ends the process
# (Kafka: LogManager.loadLogs). The broker logs the cause of a KafkaStorageException instead of the exception itself.
_TAKES_DIRECTORY_OFFLINE = frozenset(
    (NO_SUCH_FILE, FILE_NOT_FOUND, FILE_SYSTEM, ACCESS_DENIED, IO, MALFORMED_INPUT)
)

# Findings that are ordinary for a running or crashed broker, or that a load ignores: the log is loaded unchanged.
_IGNORED_BY_LOAD = frozenset(
    (
        *(
            "index-preallocated",
            PREALLOCATED,
            "index-entry-old-style",
            "snapshot-unwritten",
            "snapshot-leftover",
        ),
        *("open-transaction", "offset-gap", "mixed-magic", "sequence-gap", "future-timestamp"),
        *BECOMES_STRAY,
        # the cache of leader epochs begins empty, and the batches of a recovered segment fill it
        *("topic-id-conflict", "partition-metadata-missing", "leader-epoch-file-missing"),
    )
)

# Causes of bytes that a load removes without a loss: zeros, and a segment that a finished cleaning or split replaces.
_NO_LOSS = frozenset((PREALLOCATED, "leftover-swap"))


class Loading(StrEnum):
    """What a load does with a partition directory."""

    UNCHANGED = "unchanged"
    RECOVERED = "recovered"  # segments are read and their indexes rebuilt, nothing is lost
    TRUNCATED = "truncated"
    # no bytes are removed, but going by the last index the log ends below records that it contains
    SHORTENED = "shortened"
    FAILS = "fails"
    BECOMES_STRAY = "becomes-stray"
    STRAY = "stray"  # was renamed as stray before, and stays so
    REMOVED = "removed"  # was marked -delete before
    FUTURE = "future"  # continues as a future replica
    PROMOTED = "promoted"  # was a future replica, and becomes the live one


_BY_STATE = {
    PartitionState.DELETE: Loading.REMOVED,
    PartitionState.STRAY: Loading.STRAY,
    PartitionState.FUTURE: Loading.FUTURE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStart:
    """partition: `topic-partition`. log_start_offset, log_end_offset: after the load; None when the load fails or the partition is deleted.
    bytes_to_scan, batches_to_scan: in the segments that are recovered. bytes_lost, records_lost: removed from the log (None: the number of
    records is unknown). end_offset_in_files: of a log that is shortened; else None. exception, message: those of the failed load;
    exception is the simple name of the Java class. is_of_torn_snapshot: a metadata log whose node starts from a snapshot that is partly
    lost."""

    partition: str
    outcome: Loading
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    bytes_to_scan: int = 0
    batches_to_scan: int = 0
    bytes_lost: int = 0
    records_lost: int | None = 0
    end_offset_in_files: int | None = None
    exception: str | None = None
    message: str | None = None
    is_of_torn_snapshot: bool = False

    @property
    def takes_directory_offline(self) -> bool:
        """Whether the load fails in a way that takes the data directory offline; every other failure ends the process."""
        return self.exception in _TAKES_DIRECTORY_OFFLINE

    def as_row(self) -> dict[str, object]:
        row: dict[str, object] = {
            "partition": self.partition,
            "outcome": self.outcome.value,
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "bytes_to_scan": self.bytes_to_scan,
            "batches_to_scan": self.batches_to_scan,
        }
        if self.bytes_lost:
            row |= {"bytes_lost": self.bytes_lost, "records_lost": self.records_lost}
        if self.end_offset_in_files is not None:
            row |= {"end_offset_in_files": self.end_offset_in_files}
        if self.exception is not None:
            row |= {"exception": self.exception, "message": self.message}
        return row


def _unchanged_start(
    checked: CheckedPartition, kinds: set[str], options: VerifyOptions
) -> PartitionStart | None:
    """The start of a live partition that is loaded unchanged, or recovered without a loss, as nearly all are. None for all others, and
    if the outcome is unknown."""
    directory, around = checked.directory, checked.log_dir_state
    end_offset = checked.end_offset
    name = directory.name
    is_plain = around is not None and name is not None and name.state is PartitionState.LIVE
    if (
        not is_plain
        or (around is not None and _is_offline(around))
        or end_offset is None
        or not kinds <= _IGNORED_BY_LOAD
        or _becomes_stray(checked, options)
    ):
        return None
    assert around is not None and name is not None
    noted = _checkpointed(name, around)
    to_scan = 0 if noted.is_clean else _bytes_to_scan(checked, noted)
    return PartitionStart(
        partition=name.text,
        outcome=Loading.RECOVERED if to_scan else Loading.UNCHANGED,
        log_start_offset=_log_start(checked, noted, options),
        log_end_offset=end_offset,
        bytes_to_scan=to_scan,
        batches_to_scan=_batches_to_scan(checked, noted) if to_scan else 0,
    )


def partition_start(
    checked: CheckedPartition, kinds: set[str], options: VerifyOptions, blocked: Finding | None = None
) -> PartitionStart | None:
    """What a broker does with a partition that was just checked. None if that is unknown: the data directory is unknown, the
    name is not that of a partition, or the log is of Kafka 0.7.

    kinds: the ids of the findings about it. blocked: the one about what cannot be written.
    """
    directory, around, name = checked.directory, checked.log_dir_state, checked.directory.name
    if around is None or name is None or (directory.kafka07_files and not directory.segments):
        return None
    if blocked is not None and isinstance(blocked.diagnosis, UnwritableFile):
        return _failed(name, blocked.diagnosis.exception, f"{blocked.path}: {blocked.message}")
    if _becomes_stray(checked, options) and is_mount_point(directory.path):
        return as_stray(PartitionStart(partition=name.text, outcome=Loading.FAILS), directory.path)
    unchanged = _unchanged_start(checked, kinds, options)
    if unchanged is not None:
        return unchanged
    noted = _checkpointed(name, around)
    outcome = _set_outcome(checked, name, options)
    if outcome is Loading.REMOVED:
        return PartitionStart(partition=name.text, outcome=outcome)
    offline = around.path if not name.is_metadata_log and _is_offline(around) else None
    if outcome is None or offline or not kinds <= _IGNORED_BY_LOAD or checked.end_offset is None:
        from kseg.recovery.policy import LoadSettings

        settings = LoadSettings(now_ms=options.now_ms).of_topic(options.topic_of(directory.path))
        return _simulated_load(checked, name, noted, settings, outcome, offline)
    return PartitionStart(
        partition=name.text,
        outcome=outcome,
        log_start_offset=_log_start(checked, noted, options),
        log_end_offset=checked.end_offset,
        bytes_to_scan=_bytes_to_scan(checked, noted),
        batches_to_scan=_batches_to_scan(checked, noted),
    )


def as_stray(start: PartitionStart, path: str) -> PartitionStart:
    """The start of a partition that a broker renames as stray, which fails if its directory is a mount point (observed with 4.3.1)."""
    if not is_mount_point(path):
        return replace(start, outcome=Loading.BECOMES_STRAY)
    message = f"{path} -> {path}.…-stray: Device or resource busy"
    return PartitionStart(
        partition=start.partition, outcome=Loading.FAILS, exception=FILE_SYSTEM, message=message
    )


def _set_outcome(checked: CheckedPartition, name: PartitionName, options: VerifyOptions) -> Loading | None:
    """The outcome where it does not depend on the load; otherwise None."""
    if _becomes_stray(checked, options):
        return Loading.BECOMES_STRAY
    if options.identity_of(checked.directory.path).is_promoted:
        return Loading.PROMOTED
    return _BY_STATE.get(name.state)


def _is_offline(around: LogDirState) -> bool:
    """Whether a broker takes the data directory offline before it loads the logs in it, because it cannot read a checkpoint."""
    faults = (checkpoint_fault(around.path, role) for role in READ_BEFORE_LOADING if role in around.lost)
    return any(fault is not None and fault.exception == STORAGE for fault in faults)


def _becomes_stray(checked: CheckedPartition, options: VerifyOptions) -> bool:
    return bool(options.identities) and options.identity_of(checked.directory.path).becomes_stray


class _Checkpointed(NamedTuple):
    """What the broker's checkpoints say about a partition."""

    is_clean: bool
    recovery_point: int
    log_start_offset: int


_OF_METADATA_LOG = _Checkpointed(False, 0, 0)


def _checkpointed(name: PartitionName, around: LogDirState) -> _Checkpointed:
    """A checkpoint that cannot be read counts as empty."""
    if name.is_metadata_log:
        return _OF_METADATA_LOG
    key = name.topic, name.partition
    points, starts = (
        around.checkpoints.get(Role.RECOVERY_POINTS),
        around.checkpoints.get(Role.LOG_START_OFFSETS),
    )
    return _Checkpointed(
        around.is_clean,
        points.get(key, 0) if points else 0,
        starts.get(key, 0) if starts else 0,
    )


def _log_start(checked: CheckedPartition, noted: _Checkpointed, options: VerifyOptions) -> int:
    """The log start offset of a log that is loaded as it is; with tiered storage it may be below the first local segment."""
    topic = options.topic_of(checked.directory.path)
    return topic.log_start(noted.log_start_offset, checked.first_offset)


def _bytes_to_scan(checked: CheckedPartition, noted: _Checkpointed) -> int:
    if noted.is_clean:
        return 0
    segments = checked.directory.segments
    first = _first_to_recover(segments, noted)
    return sum(segment.log.size_bytes for segment in segments[first:]) - checked.unwritten_bytes


def _batches_to_scan(checked: CheckedPartition, noted: _Checkpointed) -> int:
    if noted.is_clean:
        return 0
    segments = checked.directory.segments
    recovered = segments[_first_to_recover(segments, noted) :]
    return sum(checked.batches.get(segment.base_offset, 0) for segment in recovered)


def _first_to_recover(segments: "Sequence[SegmentFiles]", noted: _Checkpointed) -> int:
    bases = [segment.base_offset for segment in segments]
    return max(0, bisect.bisect_right(bases, noted.recovery_point) - 1)


def opened_by_load(checked: CheckedPartition) -> "tuple[Sequence[SegmentFiles], bool]":
    """The segments whose indexes the load of a checked partition opens, and whether it skips the recovery."""
    name, around = checked.directory.name, checked.log_dir_state
    noted = _OF_METADATA_LOG if name is None or around is None else _checkpointed(name, around)
    return _opened(checked.directory.segments, noted), noted.is_clean


def _opened(segments: "Sequence[SegmentFiles]", noted: _Checkpointed) -> "Sequence[SegmentFiles]":
    """The segments whose indexes a load opens: those that it recovers, and always the last one."""
    first = len(segments) - 1 if noted.is_clean else _first_to_recover(segments, noted)
    return segments[max(0, first) :]


def _simulated_load(
    checked: CheckedPartition,
    name: PartitionName,
    noted: _Checkpointed,
    settings: "LoadSettings",
    outcome: Loading | None,
    offline: str | None,
) -> PartitionStart | None:
    """The outcome of a simulated load. offline: the data directory if it is already offline. Its logs can be loaded, but neither read nor
    renamed (Kafka: LocalLog.maybeHandleIOException), and the broker does not catch the resulting exception."""
    from kseg.recovery.broker_start.load_obstacles import directory_of_a_file

    directory = checked.directory
    obstacle = directory_of_a_file(directory, _opened(directory.segments, noted))
    if obstacle is not None:
        return _failed(name, *obstacle)
    repair = _load(checked.directory.path, name, noted, settings)
    if repair is None or isinstance(repair, PartitionStart):
        return repair
    if offline and (repair.is_read or outcome is Loading.BECOMES_STRAY):
        message = f"The log dir {offline} is already offline due to a previous IO exception."
        return PartitionStart(partition=name.text, outcome=Loading.FAILS, exception=STORAGE, message=message)
    lost = [removed for removed in repair.removed if removed.cause not in _NO_LOSS]
    end = checked.end_offset
    is_short = outcome is None and not lost and end is not None and repair.log_end_offset < end
    if outcome is None:
        changed = Loading.RECOVERED if repair.bytes_scanned else Loading.UNCHANGED
        outcome = Loading.TRUNCATED if lost else Loading.SHORTENED if is_short else changed
    return PartitionStart(
        partition=name.text,
        outcome=outcome,
        log_start_offset=repair.log_start_offset,
        log_end_offset=repair.log_end_offset,
        bytes_to_scan=repair.bytes_scanned,
        batches_to_scan=_batches_to_scan(checked, noted) if repair.bytes_scanned else 0,
        bytes_lost=sum(removed.length for removed in lost),
        records_lost=_records_lost(lost),
        end_offset_in_files=end if is_short else None,
    )


def marked_start(path: str, around: LogDirState, now_ms: int) -> PartitionStart | None:
    """How the load of a directory that is marked for deletion fails (a broker loads it before it removes it); None when it succeeds."""
    name = own_partition_name(path)
    if name is None:
        return None
    from kseg.recovery.policy import LoadSettings

    loaded = _load(path, name, _checkpointed(name, around), LoadSettings(now_ms=now_ms))
    return loaded if isinstance(loaded, PartitionStart) else None


def _load(
    path: str, name: PartitionName, noted: _Checkpointed, settings: "LoadSettings"
) -> "Repair | PartitionStart | None":
    """The simulated load, or its failure. None when the outcome is unknown."""
    # most runs find nothing that affects a load
    from kseg.change.plan.inputs import inputs_of
    from kseg.recovery.broker_start.load_obstacles import faulting_index
    from kseg.recovery.loading.loader import load_as_broker
    from kseg.recovery.policy import BrokerState

    broker_state = BrokerState(
        is_clean=noted.is_clean,
        recovery_point=noted.recovery_point,
        log_start_offset=noted.log_start_offset,
    )
    opened = _opened(list_partition(path).segments, noted) if bad_pages.count() else ()
    fault = faulting_index(opened)
    if fault is not None:
        return _failed(name, INTERNAL_ERROR, f"{_FAULT} ({fault} cannot be read)")
    try:
        inputs = inputs_of(path, follow_links=True)  # as a broker does
        repair = load_as_broker(path, inputs, broker_state, settings, folders=_folders(path))
    except UnreadableInput as error:
        return _failed(name, IO, str(error))
    if repair.load_failure is not None:
        failure = repair.load_failure
        return _failed(name, failure.logged or failure.kafka_exception, failure.sentence)
    return repair


def _folders(path: str) -> list[str]:
    try:
        with places.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except OSError as error:
        raise cannot_read(path, error) from error


def _failed(name: PartitionName, exception: str, message: str) -> PartitionStart:
    return PartitionStart(partition=name.text, outcome=Loading.FAILS, exception=exception, message=message)


def _records_lost(lost: "Sequence[Removed]") -> int | None:
    records = 0
    for removed in lost:
        if removed.records is None:
            return None
        records += removed.records
    return records
