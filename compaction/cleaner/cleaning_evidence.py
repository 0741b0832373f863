"""What a partition is before it is cleaned: its segments, the offsets of the log, its producers.

With `include_active` the last segment is rolled first, as the broker would by segment.ms: a new, empty one begins at
the log end, with a snapshot of the producers. One with damage is not rolled: where its log ends, and which producers it
has, only the damaged bytes would tell.
"""

import os
from collections.abc import Mapping, Sequence

from kseg.change.plan.steps import FileIdentity
from kseg.compaction.cleaner.active_producers import LastRecords, last_records
from kseg.compaction.cleaner.cleanable import LogToClean
from kseg.compaction.cleaner.header_order import contradictions
from kseg.compaction.cleaner.options import CompactOptions
from kseg.compaction.cleaner.segment_reader import survey
from kseg.compaction.cleaner.segments import CleanerSegment, Origin
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import Refused
from kseg.segment.files import read_end, read_small
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.partition.derived_state import producer_state
from kseg.segment.partition.largest_timestamp import Loaded, largest_timestamp
from kseg.segment.partition.log_dir_state import Surroundings, surroundings
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.names import SEGMENT_ROLES, FileState, Role, parse_file_name
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.sidecar.index import OffsetIndex, TimeIndex
from kseg.segment.sidecar.snapshot import encode_snapshot
from kseg.segment.sidecar.txn_index import TxnIndex
from kseg.segment.values import dataclass

_FILES = (Role.LOG, Role.OFFSET_INDEX, Role.TIME_INDEX, Role.TXN_INDEX)


@dataclass(frozen=True, slots=True)
class Roll:
    """The new active segment, and the snapshot that is written with it."""

    base_offset: int
    snapshot: bytes


@dataclass(frozen=True, slots=True)
class CleaningEvidence:
    """log: opened, the caller closes it. standing.segments: with the rolled one, which is not on disk yet. unrolled: the
    damage because of which the active segment stays as it is, although it was to be rolled."""

    log: PartitionLog
    inputs: tuple[FileIdentity, ...]
    standing: LogToClean
    last_records: LastRecords
    roll: Roll | None
    unrolled: tuple[Finding, ...] = ()

    @property
    def segments(self) -> Sequence[CleanerSegment]:
        return self.standing.segments


def open_log(target: PartitionTarget, options: CompactOptions) -> tuple[PartitionLog, Surroundings | None]:
    """The log, and what its data directory says. Raises UnreadableInput."""
    around = None if target.log_dir is None else surroundings(target.log_dir)
    log = PartitionLog(target)
    start = options.log_start_offset
    if start is None:
        start = _noted(log, around, Role.LOG_START_OFFSETS) or 0
    return PartitionLog(target, log_start_offset=start), around


def gather(
    log: PartitionLog,
    around: Surroundings | None,
    inputs: tuple[FileIdentity, ...],
    options: CompactOptions,
) -> CleaningEvidence:
    """Everything the rules need. Raises Refused where a broker would first do something else to the log (finish a swap,
    empty it), UnreadableInput."""
    _refuse_unfinished(log.directory, inputs)
    by_name = {file.name: file for file in inputs}
    segments = [_segment(log, segment, by_name, around, options) for segment in log.segments]
    end = log.end_offset
    if log.start_offset > end:
        raise Refused(
            f"{log.directory} starts at {log.start_offset} and ends at {end}: a broker deletes all of it when it "
            "starts; `kseg recover` shows what is left then"
        )
    state = producer_state(log)
    high_watermark = _high_watermark(log, around, options)
    stable = state.last_stable_offset(high_watermark, log.start_offset)
    state.expire(options.settings.now_ms, options.settings.producer_id_expiration_ms)
    state.end_offset = end
    roll = None
    unrolled: tuple[Finding, ...] = ()
    if options.include_active and segments and segments[-1].size_bytes:
        unrolled = tuple(_damage(segments[-1]))
        if not unrolled:
            roll = Roll(end, encode_snapshot(state.snapshot()))
            segments.append(_empty(end, segments[-1]))
    noted = _noted_dirty(log, around, options)
    standing = LogToClean(segments, log.start_offset, end, stable, noted)
    return CleaningEvidence(log, inputs, standing, last_records(state), roll, unrolled)


def _damage(segment: CleanerSegment) -> list[Finding]:
    """All damage of the active segment; it is marked as damaged when there is any."""
    found = [*survey(segment), *contradictions(segment, None)]
    segment.is_damaged = bool(found)
    return found


def first_timestamps(segments: Sequence[CleanerSegment], log: PartitionLog) -> list[int]:
    """The maximum timestamp of the first batch of each of these segments (Kafka: getFirstBatchTimestamp)."""
    wanted = {segment.base_offset for segment in segments}
    found = []
    for segment in log.segments:
        if segment.base_offset in wanted:
            batch = next(segment.walk.find(0, _first_row), None)
            segment.close()
            if batch is not None:
                found.append(batch.max_timestamp_ms)
    return found


def _first_row(table: Columns) -> range:
    return range(min(1, len(table.column(C.POSITION))))


def _refuse_unfinished(directory: str, inputs: Sequence[FileIdentity]) -> None:
    for file in inputs:
        name = parse_file_name(file.name)
        if name.state is FileState.SWAP and name.role in SEGMENT_ROLES:
            raise Refused(
                f"{os.path.join(directory, file.name)} was not swapped in yet, which a broker does first; "
                "`kseg recover --policy kafka` does it"
            )


def _noted(log: PartitionLog, around: Surroundings | None, role: Role) -> int | None:
    if around is None or log.name is None:
        return None
    return around.offset(role, log.name.topic, log.name.partition)


def _high_watermark(log: PartitionLog, around: Surroundings | None, options: CompactOptions) -> int:
    """Within the log, as a broker keeps it; the log end when nobody says."""
    known = options.high_watermark
    if known is None:
        known = _noted(log, around, Role.HIGH_WATERMARKS)
    return log.end_offset if known is None else min(max(known, log.start_offset), log.end_offset)


def _noted_dirty(log: PartitionLog, around: Surroundings | None, options: CompactOptions) -> int | None:
    if options.from_checkpoint:
        return _noted(log, around, Role.CLEANER_OFFSETS)
    return options.first_dirty_offset


def _segment(
    log: PartitionLog,
    segment: LogSegment,
    by_name: Mapping[str, FileIdentity],
    around: Surroundings | None,
    options: CompactOptions,
) -> CleanerSegment:
    paths = segment.paths
    names = tuple(os.path.basename(paths[role]) for role in _FILES if role in paths)
    of_log = by_name.get(names[0])
    if of_log is None:
        raise Refused(f"{paths[Role.LOG]} came while the directory was looked at, or is no regular file")
    mtime_ms = of_log.mtime_ns // 1_000_000
    largest = -1
    if options.settings.min_compaction_lag_ms > 0:
        largest = largest_timestamp(segment, of_log.size_bytes, _loaded(around)).timestamp_ms
    snapshot = log.snapshots.get(segment.base_offset)
    txn_path = paths.get(Role.TXN_INDEX)
    aborted = () if txn_path is None else tuple(TxnIndex(read_small(txn_path), segment.base_offset))
    origin = Origin(segment.base_offset, names, None if snapshot is None else os.path.basename(snapshot))
    return CleanerSegment(
        base_offset=segment.base_offset,
        path=paths[Role.LOG],
        size_bytes=of_log.size_bytes,
        mtime_ms=mtime_ms,
        index_bytes=_used_bytes(paths.get(Role.OFFSET_INDEX), OffsetIndex, L.OFFSET_INDEX_ENTRY),
        time_index_bytes=_used_bytes(paths.get(Role.TIME_INDEX), TimeIndex, L.TIME_INDEX_ENTRY),
        largest_timestamp_ms=largest if largest >= 0 else mtime_ms,
        origins=(origin,),
        aborted=aborted,
        like=names[0],
        index_paths=(
            paths.get(Role.OFFSET_INDEX),
            paths.get(Role.TIME_INDEX),
            paths.get(Role.TXN_INDEX),
        ),
    )


def _loaded(around: Surroundings | None) -> Loaded:
    if around is None:
        return Loaded.UNKNOWN
    return Loaded.AT_REST if around.is_clean else Loaded.RECOVERED


def _used_bytes(path: str | None, kind: type[OffsetIndex] | type[TimeIndex], slot_bytes: int) -> int:
    """Bytes of the entries of an index, without its zero tail."""
    if path is None:
        return 0
    size_bytes, tail = read_end(path, slot_bytes)
    if not any(tail) and size_bytes:
        return kind(read_small(path), 0).entries * slot_bytes
    return size_bytes // slot_bytes * slot_bytes


def _empty(base_offset: int, like: CleanerSegment) -> CleanerSegment:
    """The segment that a roll makes."""
    return CleanerSegment(
        base_offset=base_offset,
        path="",
        size_bytes=0,
        mtime_ms=like.mtime_ms,
        index_bytes=0,
        time_index_bytes=0,
        largest_timestamp_ms=like.mtime_ms,
        origins=(),
        like=like.like,
    )
