"""State of a partition before cleaning: its segments, the offsets of the log, its producers.

With `include_active` the last segment is rolled first, as the broker would by segment.ms: a new, empty one begins at
the log end, with a snapshot of the producers. A damaged segment is not rolled, because its end offset and its
producers depend on the damaged bytes.
"""

import os
from collections.abc import Iterator, Mapping, Sequence

from kseg.change.plan.steps import FileIdentity
from kseg.compaction.cleaner.active_producers import LastRecords, last_records
from kseg.compaction.cleaner.cleanable import LogToClean
from kseg.compaction.cleaner.header_order import contradictions
from kseg.compaction.cleaner.options import CompactOptions
from kseg.compaction.cleaner.segment_reader import survey
from kseg.compaction.cleaner.segments import CleanerSegment, Origin
from kseg.segment import layout as L
from kseg.segment.errors import Refused
from kseg.segment.files import MappedFile, read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.derived_state import producer_state, stable_offset
from kseg.segment.partition.largest_timestamp import Loaded, largest_timestamp
from kseg.segment.partition.log_dir_state import LogDirState, read_log_dir_state
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.names import SEGMENT_ROLES, FileState, Role, parse_file_name
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.probe import read_end
from kseg.segment.sidecar.index import OffsetIndex, TimeIndex
from kseg.segment.sidecar.index_writer import TIME_SLOT, can_index_offset
from kseg.segment.sidecar.snapshot import encode_snapshot
from kseg.segment.sidecar.txn_index import TxnIndex
from kseg.segment.values import dataclass

_FILES = (Role.LOG, Role.OFFSET_INDEX, Role.TIME_INDEX, Role.TXN_INDEX)


@dataclass(frozen=True, slots=True)
class Roll:
    """The new active segment, and the producer snapshot that is written with it.

    preallocated: (name, size without the zeros) of the files of the previous active segment that end with preallocated zeros; a broker
    truncates them when it rolls. time_index: (name, used bytes, last entry) of that segment's time index, if the greatest timestamp is not
    in it yet; a broker adds it when it rolls (LogSegment.onBecomeInactiveSegment), and takes the age of the segment from that entry.
    """

    base_offset: int
    snapshot: bytes
    preallocated: tuple[tuple[str, int], ...] = ()
    time_index: tuple[str, int, bytes] | None = None


@dataclass(frozen=True, slots=True)
class CleaningEvidence:
    """log: open, the caller closes it. log_to_clean.segments: with the rolled one, which is not on disk yet. roll_damage: the
    damage that prevents the active segment from being rolled."""

    log: PartitionLog
    inputs: tuple[FileIdentity, ...]
    log_to_clean: LogToClean
    last_records: LastRecords
    roll: Roll | None
    roll_damage: tuple[Finding, ...] = ()

    @property
    def segments(self) -> Sequence[CleanerSegment]:
        return self.log_to_clean.segments


def open_log(target: PartitionTarget, options: CompactOptions) -> tuple[PartitionLog, LogDirState | None]:
    """Open the log and read the checkpoints of its log dir. Raises UnreadableInput."""
    dir_state = None if target.log_dir is None else read_log_dir_state(target.log_dir)
    log = PartitionLog(target)
    start = options.log_start_offset
    if start is None:
        start = _checkpoint_value(log, dir_state, Role.LOG_START_OFFSETS) or 0
    return PartitionLog(target, log_start_offset=start), dir_state


def gather(
    log: PartitionLog,
    dir_state: LogDirState | None,
    inputs: tuple[FileIdentity, ...],
    options: CompactOptions,
) -> CleaningEvidence:
    """Collect everything that the rules need. Raises Refused if a broker would first change the log in some other way (finish a
    swap, empty it), UnreadableInput."""
    _refuse_unfinished_swap(log.directory, inputs)
    by_name = {file.name: file for file in inputs}
    segments = [_segment(log, segment, by_name, dir_state, options) for segment in log.segments]
    end = log.end_of_batches
    if log.start_offset > end:
        raise Refused(
            f"{log.directory} starts at {log.start_offset} and ends at {end}: a broker discards the whole log "
            "at startup; `kseg recover` shows what remains"
        )
    state = producer_state(log)
    high_watermark = _high_watermark(log, dir_state, options)
    stable = stable_offset(log, state.first_unstable_offset, high_watermark)
    state.expire(options.settings.now_ms, options.settings.producer_id_expiration_ms)
    state.end_offset = end
    roll = None
    roll_damage: tuple[Finding, ...] = ()
    if segments:
        segments[-1].size_bytes -= log.unwritten_bytes
    if options.include_active and segments and segments[-1].size_bytes:
        roll_damage = tuple(_damage(segments[-1]))
        if not roll_damage:
            preallocated = tuple(_preallocated(segments[-1], by_name))
            time_index = _completed_time_index(log.segments[-1], segments[-1])
            roll = Roll(end, encode_snapshot(state.snapshot()), preallocated, time_index)
            segments.append(_empty(end, segments[-1]))
    last_clean = _last_clean_offset(log, dir_state, options)
    log_to_clean = LogToClean(segments, log.start_offset, end, stable, last_clean)
    return CleaningEvidence(log, inputs, log_to_clean, last_records(state), roll, roll_damage)


def _preallocated(active: CleanerSegment, by_name: Mapping[str, FileIdentity]) -> Iterator[tuple[str, int]]:
    """(name, used bytes) of the files of the active segment that are longer than their content."""
    held_bytes = {
        L.LOG_SUFFIX: active.size_bytes,
        L.OFFSET_INDEX_SUFFIX: active.index_bytes,
        L.TIME_INDEX_SUFFIX: active.time_index_bytes,
    }
    for name in active.origins[0].names:
        size_bytes = held_bytes.get(os.path.splitext(name)[1])
        if size_bytes is not None and name in by_name and by_name[name].size_bytes > size_bytes:
            yield name, size_bytes


def _completed_time_index(segment: LogSegment, active: CleanerSegment) -> tuple[str, int, bytes] | None:
    """The last entry that a roll adds to the time index of the active segment, as in `Roll`; None if there is none to add."""
    path = segment.paths.get(Role.TIME_INDEX)
    largest = largest_timestamp(segment, active.size_bytes, Loaded.RECOVERED)
    if path is None or largest.offset is None or not can_index_offset(largest.offset, segment.base_offset):
        return None
    index = segment.time_index
    if index is not None and index.entries and index.last_entry.timestamp_ms >= largest.timestamp_ms:
        return None
    entry = TIME_SLOT.pack(largest.timestamp_ms, largest.offset - segment.base_offset)
    return os.path.basename(path), active.time_index_bytes, entry


def _damage(segment: CleanerSegment) -> list[Finding]:
    """All damage of the active segment; it is marked as damaged if there is any."""
    found = [*survey(segment), *contradictions(segment, None)]
    segment.is_damaged = bool(found)
    return found


def first_timestamps(segments: Sequence[CleanerSegment], log: PartitionLog) -> list[int]:
    """The maximum timestamp of the first batch of each of these segments (Kafka: getFirstBatchTimestamp)."""
    wanted = {segment.base_offset for segment in segments}
    found = []
    for segment in log.segments:
        if segment.base_offset in wanted:
            batch = next(segment.walk.find(0, lambda table: range(min(1, table.count))), None)
            segment.close()
            if batch is not None:
                found.append(batch.max_timestamp_ms)
    return found


def _refuse_unfinished_swap(directory: str, inputs: Sequence[FileIdentity]) -> None:
    for file in inputs:
        name = parse_file_name(file.name)
        if name.state is FileState.SWAP and name.role in SEGMENT_ROLES:
            raise Refused(
                f"{os.path.join(directory, file.name)} has not been swapped in yet, which a broker does first; "
                "run `kseg recover --policy kafka`"
            )


def _checkpoint_value(log: PartitionLog, dir_state: LogDirState | None, role: Role) -> int | None:
    if dir_state is None or log.name is None:
        return None
    return dir_state.offset(role, log.name.topic, log.name.partition)


def _high_watermark(log: PartitionLog, dir_state: LogDirState | None, options: CompactOptions) -> int:
    """The high watermark, bounded by the log as in a broker; the log end offset when it is unknown."""
    known = options.high_watermark
    if known is None:
        known = _checkpoint_value(log, dir_state, Role.HIGH_WATERMARKS)
    return log.end_offset if known is None else min(max(known, log.start_offset), log.end_offset)


def _last_clean_offset(
    log: PartitionLog, dir_state: LogDirState | None, options: CompactOptions
) -> int | None:
    if options.from_checkpoint:
        return _checkpoint_value(log, dir_state, Role.CLEANER_OFFSETS)
    return options.first_dirty_offset


def _segment(
    log: PartitionLog,
    segment: LogSegment,
    by_name: Mapping[str, FileIdentity],
    dir_state: LogDirState | None,
    options: CompactOptions,
) -> CleanerSegment:
    paths = segment.paths
    names = tuple(os.path.basename(paths[role]) for role in _FILES if role in paths)
    of_log = by_name.get(names[0])
    if of_log is None:
        raise Refused(f"{paths[Role.LOG]} appeared while the directory was read, or is not a regular file")
    mtime_ms = of_log.mtime_ns // 1_000_000
    largest = -1
    if options.settings.min_compaction_lag_ms > 0:
        largest = largest_timestamp(segment, of_log.size_bytes, _loaded(dir_state)).timestamp_ms
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


def _loaded(dir_state: LogDirState | None) -> Loaded:
    if dir_state is None:
        return Loaded.UNKNOWN
    return Loaded.AT_REST if dir_state.is_clean else Loaded.RECOVERED


def _used_bytes(path: str | None, kind: type[OffsetIndex] | type[TimeIndex], slot_bytes: int) -> int:
    """Size of the entries of an index, without trailing zeros."""
    if path is None:
        return 0
    size_bytes, tail = read_end(path, slot_bytes)
    if not any(tail) and size_bytes:
        with MappedFile(path, random_access=True) as file:  # up to 10 MiB of zeros when preallocated
            return kind(file.sparse_view, 0, need=file.need).entries * slot_bytes
    return size_bytes // slot_bytes * slot_bytes


def _empty(base_offset: int, like: CleanerSegment) -> CleanerSegment:
    """The segment that a roll creates."""
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
