"""Plan the tasks of a read from its options: which partitions, which offsets of each, and which bytes for each task.

1. Resolve the paths to partitions (`partitions`).
2. Resolve the bounds of each partition to offsets: a time by the lookup that a broker does, `earliest` by the checkpoint of the log
   start.
3. Cut the part within `fromOffset` … `toTimestamp` (`inspection.arrow.planning` excludes segments) into pieces of
   `maxPartitionBytes`, or smaller ones if `minPartitions` or the cores of this machine require more; adjacent small pieces share a
   task. With `maxRecordsPerPartition` cut it by offsets; then each piece is a task.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice

from kseg.inspection.arrow.log_ranges import LogPiece
from kseg.inspection.arrow.planning import SMALLEST_PART_BYTES, ReadPlanOptions, SegmentRead, segment_reads
from kseg.inspection.lookup.by_time import by_timestamp
from kseg.inspection.query import LookupQuery
from kseg.segment.errors import UnreadableInput, UsageError
from kseg.segment.layout import INT64_MAX
from kseg.segment.partition.bounds import Bounds
from kseg.segment.partition.derived_state import last_stable_offset
from kseg.segment.partition.partition_log import PartitionLog
from kseg.spark.source.offset_range_limits import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtEnd,
    AtOffsets,
    AtTime,
    AtTimes,
    Bound,
    TopicPartition,
    shown,
)
from kseg.spark.source.options import SourceOptions
from kseg.spark.source.partitions import places_of

# the fixed cost of a piece, as the number of bytes that could be read in that time
OPENING_BYTES = 512 * 1024
MAX_TASKS = 1_000_000
MIN_PART_BYTES = 8 * 1024 * 1024  # smaller parts only on request


class DataLoss(UnreadableInput):
    """Requested data is missing or incomplete, and failOnDataLoss is set."""


def tasks_of(options: SourceOptions) -> list[tuple[LogPiece, ...]]:
    """The pieces that each task reads, in order. Raises UsageError, UnreadableInput, DataLoss."""
    places = places_of(options)
    plan_options = ReadPlanOptions(
        read_committed=options.read_committed,
        trust_transactions=options.trust_transactions,
        use_indexes=options.use_indexes,
    )
    with ExitStack() as logs:
        stretches: list[SegmentRead] = []
        for place in places:
            log = logs.enter_context(PartitionLog(place.target, use_index=options.use_indexes))
            bounds = bounds_of(log, place.where, options).within(options.wanted)
            stretches += segment_reads(log, place.topic, place.partition, bounds, plan_options)
        if options.records_per_partition is not None:
            pieces = _pieces_by_offsets(stretches, options.records_per_partition, options)
            return [(piece,) for piece in pieces]
        return _tasks(stretches, options)


# --- the offsets of each partition


def bounds_of(log: PartitionLog, where: TopicPartition, options: SourceOptions) -> Bounds:
    """The offsets of a log that the options select. Raises DataLoss if they no longer exist, UsageError for a time without a record
    and for a start after the end."""
    start = resolved(log, where, options.starting, options)
    if start is None and not isinstance(options.starting, AtEnd | AtOffsets):
        if not options.latest_when_no_match:
            raise UsageError(
                f"no record of {shown(where)} has a timestamp at or after "
                f"{_time_of(options.starting, where)}; with startingOffsetsByTimestampStrategy=latest nothing is read"
            )
        start = INT64_MAX
    end = resolved(log, where, options.ending, options)
    first = 0 if options.include_deleted or log.is_kafka07 else log.start_offset
    if options.fail_on_data_loss:
        _check_there(log, where, options, first)
    _check_order(log, where, options, first if start is None else start, end)
    return Bounds(max(first, start or 0), INT64_MAX if end is None else end)


def resolved(log: PartitionLog, where: TopicPartition, bound: Bound, options: SourceOptions) -> int | None:
    """The offset of one bound; None for either end of the log, and if no record is at or after the time."""
    match bound:
        case AtEnd():
            return None
        case AtOffsets():
            offset = bound.by_partition[where]
            return None if offset in (EARLIEST_OFFSET, LATEST_OFFSET) else offset
    timestamp_ms = _time_of(bound, where)
    if log.is_kafka07:
        return None  # records of 0.7 have no timestamps
    query = LookupQuery(
        kind="timestamp",
        timestamp_ms=timestamp_ms,
        use_index=options.use_indexes,
        read_committed=options.read_committed,
    )
    return next(by_timestamp(log, query)).offset


def _time_of(bound: Bound, where: TopicPartition) -> int:
    assert isinstance(bound, AtTime | AtTimes)
    return bound.timestamp_ms if isinstance(bound, AtTime) else bound.by_partition[where]


def _check_there(log: PartitionLog, where: TopicPartition, options: SourceOptions, first: int) -> None:
    """Raises DataLoss if an offset that was given as a number is outside the log."""
    if log.is_kafka07:
        return
    for name, bound in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        if not isinstance(bound, AtOffsets) or bound.by_partition[where] < 0:
            continue
        offset, last = bound.by_partition[where], _last_offset(log, options)
        if not first <= offset <= last:
            raise DataLoss(
                f"{name} of {shown(where)} is {offset}, but the log ranges from {first} to {last}; "
                "with failOnDataLoss=false the available records are read"
            )


def _check_order(
    log: PartitionLog, where: TopicPartition, options: SourceOptions, start: int, end: int | None
) -> None:
    """Raises UsageError for a start after the end, regardless of failOnDataLoss, as Spark's source does for resolved offsets
    (RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET). start: INT64_MAX for the end of the log."""
    if log.is_kafka07:
        return
    is_at_end = start == INT64_MAX
    if end is None:
        if is_at_end or not isinstance(options.starting, AtOffsets):
            # neither a time nor the log start is after the end of the log, which need not be determined
            return
        end = _last_offset(log, options)
    if is_at_end:
        start = _last_offset(log, options)
    if start > end:
        raise UsageError(f"{shown(where)} starts at offset {start}, after its end {end}")


def _last_offset(log: PartitionLog, options: SourceOptions) -> int:
    if options.read_committed and log.segments:
        # the log start may have been moved beyond the last stable offset
        return max(log.start_offset, last_stable_offset(log))
    return log.end_offset


# --- distribution over tasks


def _tasks(stretches: Sequence[SegmentRead], options: SourceOptions) -> list[tuple[LogPiece, ...]]:
    part_bytes = _part_bytes(stretches, options)
    least = options.min_partitions or 0
    while True:
        cut = (piece for each in stretches for piece in each.cut(part_bytes, options.use_indexes))
        tasks = list(_packed(cut, part_bytes))
        if len(tasks) >= least or part_bytes <= SMALLEST_PART_BYTES:
            return tasks
        # parts end at batch boundaries, so there may be fewer than expected: shrink them by the missing proportion
        part_bytes = max(SMALLEST_PART_BYTES, min(part_bytes * len(tasks) // least, part_bytes * 7 // 8))


def _part_bytes(stretches: Sequence[SegmentRead], options: SourceOptions) -> int:
    total = sum(each.piece.size_bytes for each in stretches)
    if options.min_partitions is not None:
        return max(1, min(options.partition_bytes, -(-total // options.min_partitions)))
    for_cores = max(MIN_PART_BYTES, total // (2 * (os.cpu_count() or 1)))
    return min(options.partition_bytes, for_cores)


def _pieces_by_offsets(stretches: Sequence[SegmentRead], most: int, options: SourceOptions) -> list[LogPiece]:
    """Pieces of at most `most` offsets, or fewer if `minPartitions` requires more pieces. Raises UsageError."""
    least = options.min_partitions or 0
    while True:
        cut = (piece for each in stretches for piece in each.cut_by_offsets(most))
        pieces = list(islice(cut, MAX_TASKS + 1))
        check_number(len(pieces), options)
        if not pieces or len(pieces) >= least or most == 1:
            return pieces
        # shrink the pieces by the missing proportion; another round follows if `most` is larger than the segments
        most = max(1, min(most * len(pieces) // least, most * 7 // 8))


def check_number(tasks: int, options: SourceOptions) -> None:
    """Raises UsageError for more tasks than a driver can manage: a log may skip any number of offsets, and skipped ones count."""
    if tasks > MAX_TASKS:
        asked = {
            "maxRecordsPerPartition": options.records_per_partition,
            "minPartitions": options.min_partitions,
        }
        said = " and ".join(f"{name} {value}" for name, value in asked.items() if value is not None)
        raise UsageError(f"{said} would split the offsets into more than {MAX_TASKS} tasks")


def _packed(pieces: Iterator[LogPiece], part_bytes: int) -> Iterator[tuple[LogPiece, ...]]:
    group: list[LogPiece] = []
    filled = 0
    for piece in pieces:
        weight = piece.size_bytes + OPENING_BYTES
        if group and filled + weight > part_bytes + OPENING_BYTES:
            yield tuple(group)
            group, filled = [], 0
        group.append(piece)
        filled += weight
    if group:
        yield tuple(group)
