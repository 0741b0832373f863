"""State of a partition before retention: its segments with size and age, and the offsets of the log.

Files are judged by their names and one stat of each; of a closed segment only the last entry of its time index is read. Only the
last segment is read, for the log end (`log_ends`).
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from kseg.change.plan.steps import FileIdentity
from kseg.compaction.retention.options import RetainOptions
from kseg.compaction.retention.rules import Candidate, LogToRetain
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, Refused, UsageError
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.largest_timestamp import LargestTimestamp, Loaded, largest_timestamp
from kseg.segment.partition.log_dir_state import LogDirState, read_log_dir_state
from kseg.segment.partition.log_ends import quick_end
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.names import SEGMENT_ROLES, PartitionName, Role, parse_file_name
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.scanning.preallocated_tail import has_preallocated_size
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class AgedSegment:
    """One segment. names: of its files, the log first. mtime_ms: of the `.log`."""

    segment: LogSegment
    names: tuple[str, ...]
    size_bytes: int
    files_bytes: int
    mtime_ms: int
    largest: LargestTimestamp

    @property
    def candidate(self) -> Candidate:
        stamp_ms = self.largest.timestamp_ms if self.largest.timestamp_ms >= 0 else self.mtime_ms
        return Candidate(self.segment.base_offset, self.size_bytes, stamp_ms)


@dataclass(frozen=True, slots=True)
class RetentionEvidence:
    """log: open, the caller closes it. previous_start: the log start before --log-start-offset."""

    log: PartitionLog
    inputs: Mapping[str, FileIdentity]
    segments: tuple[AgedSegment, ...]
    previous_start: int
    log_to_retain: LogToRetain


def open_log(
    target: PartitionTarget, names: Sequence[str] | None = None
) -> tuple[PartitionLog, LogDirState | None]:
    """The log, with the log start from its data directory, and what that directory says.

    names: of everything in the partition directory, if it has been listed. Raises UnreadableInput.
    """
    dir_state = None if target.log_dir is None else read_log_dir_state(target.log_dir)
    start = checkpointed_start(target, dir_state) or 0
    return PartitionLog(target, log_start_offset=start, names=names), dir_state


def checkpointed_start(target: PartitionTarget, dir_state: LogDirState | None) -> int | None:
    """The log start offset in the data directory's checkpoint; None if there is none."""
    if dir_state is None:
        return None
    return _checkpoint_value(dir_state, Role.LOG_START_OFFSETS, own_partition_name(target.path))


def gather(
    log: PartitionLog,
    dir_state: LogDirState | None,
    inputs: tuple[FileIdentity, ...],
    options: RetainOptions,
) -> RetentionEvidence:
    """Collect everything that the rules need.

    Raises Refused if a broker would first change the log in some other way (finish a swap, empty it), UsageError for a log start
    offset above the high watermark, UnreadableInput.
    """
    _refuse_unfinished_swap(log.directory, inputs)
    by_name = {file.name: file for file in inputs}
    _take_quick_end(log, by_name)
    recovered_from = None if dir_state is None else log.recovered_from(dir_state)
    segments = tuple(_aged(log, segment, by_name, dir_state, recovered_from) for segment in log.segments)
    end = log.end_of_batches
    previous_start = _start_offset(log, dir_state, options)
    if previous_start > end:
        raise Refused(
            f"{log.directory} starts at {previous_start} by its checkpoint and ends at {end}: a broker deletes all "
            f"of it when it starts; `kseg recover` shows what is left then"
        )
    high_watermark = _high_watermark(log, dir_state, options, previous_start)
    start = _requested_start(log, options, previous_start, high_watermark)
    log_to_retain = LogToRetain(
        tuple(aged.candidate for aged in segments),
        start,
        end,
        max(high_watermark, start),
        options.now_ms,
        (options.remote_end_offset or 0) if options.limits.is_copied else None,
    )
    return RetentionEvidence(log, by_name, segments, previous_start, log_to_retain)


def refuse_remote_start(evidence: RetentionEvidence, checkpointed: int | None) -> None:
    """Raises Refused if the log begins below its first local segment by its checkpoints, as only with tiered storage: then segments that
    have not been copied must not be deleted, and a broker deletes the remote segments whose leader epochs are gone. checkpointed: its log
    start offset."""
    first = evidence.segments[0].segment.base_offset if evidence.segments else 0
    if checkpointed is None or checkpointed >= first:
        return
    data = evidence.log.read_side_file(Role.LEADER_EPOCHS)
    with suppress(FormatError):
        if data is not None and EpochHistory(decode_leader_epochs(data)).begins_below(first):
            raise Refused(
                f"{evidence.log.directory}: by its checkpoints the log begins at {checkpointed}, below its first segment {first}, so the "
                "older records may be in remote storage; --metadata PATH, or --config FILE with remote.storage.enable settles it"
            )


def _start_offset(log: PartitionLog, dir_state: LogDirState | None, options: RetainOptions) -> int:
    """The log start offset: with tiered storage as checkpointed, also below the first local segment (Kafka: LogLoader.load)."""
    if not options.limits.is_tiered or dir_state is None:
        return log.start_offset
    return _checkpoint_value(dir_state, Role.LOG_START_OFFSETS, log.name) or 0


def _take_quick_end(log: PartitionLog, regular: Mapping[str, FileIdentity]) -> None:
    """Find the end of an ordinary log by a few reads. regular: the regular files of its directory."""
    if not log.segments:
        return
    last = log.segments[-1]
    paths = [last.paths.get(role) for role in (Role.LOG, Role.OFFSET_INDEX)]
    log_path, index_path = (
        path if path and path.rpartition(os.sep)[2] in regular else None for path in paths
    )
    if log_path and index_path and (end := quick_end(log_path, index_path, last.base_offset)) is not None:
        log.take_end(end)


def _refuse_unfinished_swap(directory: str, inputs: tuple[FileIdentity, ...]) -> None:
    for file in inputs:
        if file.name.endswith(L.SWAP_SUFFIX) and parse_file_name(file.name).role in SEGMENT_ROLES:
            raise Refused(
                f"{os.path.join(directory, file.name)} has not been swapped in yet, which a broker does first; "
                "run `kseg recover --policy kafka`"
            )


def _checkpoint_value(dir_state: LogDirState, role: Role, name: PartitionName | None) -> int | None:
    return None if name is None else dir_state.offset(role, name.topic, name.partition)


def _aged(
    log: PartitionLog,
    segment: LogSegment,
    by_name: Mapping[str, FileIdentity],
    dir_state: LogDirState | None,
    recovered_from: int | None,
) -> AgedSegment:
    names = {role: path.rpartition(os.sep)[2] for role, path in segment.paths.items()}
    files = [by_name[names[role]] for role in SEGMENT_ROLES if names.get(role) in by_name]
    loaded = Loaded.UNKNOWN if dir_state is None else Loaded.AT_REST
    if recovered_from is not None and segment.base_offset >= recovered_from:
        loaded = Loaded.RECOVERED
    of_log = by_name.get(names[Role.LOG])
    size_bytes = 0 if of_log is None else of_log.size_bytes
    if segment is log.segments[-1] and has_preallocated_size(size_bytes):
        size_bytes = max(0, size_bytes - log.unwritten_bytes)
    return AgedSegment(
        segment,
        tuple(file.name for file in files),
        size_bytes,
        sum(file.size_bytes for file in files),
        0 if of_log is None else of_log.mtime_ns // 1_000_000,
        largest_timestamp(
            segment, size_bytes, loaded, is_surely_regular=names.get(Role.TIME_INDEX) in by_name
        ),
    )


def _high_watermark(
    log: PartitionLog, dir_state: LogDirState | None, options: RetainOptions, start: int
) -> int:
    """The high watermark, bounded by the log as in a broker (UnifiedLog.updateHighWatermark)."""
    known = options.high_watermark
    if known is None and dir_state is not None:
        known = _checkpoint_value(dir_state, Role.HIGH_WATERMARKS, log.name)
    return log.end_offset if known is None else min(max(known, start), log.end_offset)


def _requested_start(
    log: PartitionLog, options: RetainOptions, previous_start: int, high_watermark: int
) -> int:
    """The log start offset with --log-start-offset, which can only increase it (UnifiedLog.maybeIncrementLogStartOffset)."""
    requested = options.log_start_offset
    if requested is None or requested <= previous_start:
        return previous_start
    if requested > high_watermark:
        raise UsageError(
            f"{log.directory} cannot start at {requested}: that is above its high watermark {high_watermark}"
        )
    return requested
