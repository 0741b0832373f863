"""Look up a timestamp as ListOffsets does (Kafka: UnifiedLog.fetchOffsetByTimestamp; fact sheet §4.5).

At or after a time T:

1. The first segment whose largest timestamp is ≥ T answers, and no later one is tried. The largest timestamp is the last entry of the time
   index. A segment without any timestamp has its file's mtime instead.
2. In it, begin where the time index's last entry ≤ T leads, through the offset index, and take the first record with timestamp ≥ T at or
   above the log start.

A broker trusts its time indexes; this module trusts them only as far as an error would be noticed. A segment is skipped unopened if the
last entry of its index covers the offset before the next segment, is not older than that of the previous index, and is below T. The last
segment skipped before one that is searched is searched as well, because there an error would hide the answer. During the search, an entry
counts only if the batch that contains its offset is valid and has exactly that timestamp. If an index is missing or wrong the segment is
walked, a finding reports it, and the answer is the one that a broker with correct indexes would give.

With tiered storage, segments in remote storage are searched before the local ones, also where the same offsets are in both.

The maximum timestamp: the segment with the greatest one, the first such batch in it, the first such record in that. Records below the log
start do not count, nor do those in remote storage (a broker looks at the local log only).
"""

from collections.abc import Iterator

from kseg.inspection.lookup.answer import Answer, at_record, not_found
from kseg.inspection.query import LookupQuery
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.model import Batch, Record
from kseg.segment.moments import moment
from kseg.segment.partition.derived_state import last_stable_offset
from kseg.segment.partition.log_segment import LogSegment, Notes
from kseg.segment.partition.names import Role
from kseg.segment.partition.narrowing import covers_segment, last_time_entry
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.sidecar.index import TimeIndexEntry
from kseg.segment.values import dataclass


@dataclass(slots=True)
class _Search:
    """The result of searching one segment: the record, or why there is none. has_reached: there is a batch at or after the time,
    so that a broker stops here. greatest_ms: the greatest timestamp of the skipped batches."""

    batch: Batch | None = None
    record: Record | None = None
    has_reached: bool = False
    greatest_ms: int = L.NO_TIMESTAMP


def by_timestamp(log: PartitionLog, query: LookupQuery) -> Iterator[Answer]:
    """The answer for `query.timestamp_ms`."""
    target = query.timestamp_ms
    assert target is not None
    if log.remote_start is not None:
        in_remote = first_remote(log, query, target)
        if in_remote is not None:
            yield in_remote
            return
    for segment, last_entry in _candidates(log, target):
        search = _search(log, segment, target)
        if search.batch is not None and search.record is not None:
            yield _bounded(log, query, at_record(segment, search.batch, search.record))
            return
        reason = _broker_stops(segment, search, last_entry, target)
        if reason is not None:
            yield not_found(reason)
            return
        segment.close()
    yield not_found(f"no record has a timestamp at or after {moment(target)}")


def first_remote(log: PartitionLog, query: LookupQuery, target: int) -> Answer | None:
    """The answer if it is not in the local log: a broker with tiered storage searches remote storage first (Kafka: UnifiedLog.
    fetchOffsetByTimestamp). If the contents of remote storage are unknown, a finding says so."""
    spans = query.remote.get(log.directory)
    if spans is None:
        log.report_remote(
            f"and a broker with tiered storage first searches what is below the local log, which starts at {log.start_offset}"
        )
        return None
    start = log.remote_start or 0
    reaching = (span for span in spans if span.max_timestamp_ms >= target and span.last_offset >= start)
    span = next(reaching, None)
    if span is None or span.first_offset >= log.start_offset:
        return None
    return not_found(
        f"the first record at or after {moment(target)} is in remote storage, in the segment with offsets {span.first_offset} to "
        f"{span.last_offset} (kseg list --remote); the local log starts at {log.start_offset}"
    )


def _candidates(log: PartitionLog, target: int) -> Iterator[tuple[LogSegment, TimeIndexEntry | None]]:
    """The segments that must be searched, in order, each with the maximum according to its time index."""
    skipped: tuple[LogSegment, TimeIndexEntry] | None = None
    before = L.NO_TIMESTAMP
    for segment in log.segments:
        last_entry = None
        if segment.next_base_offset is not None:
            last_entry = last_time_entry(log, segment)
        if (
            last_entry is not None
            and before <= last_entry.timestamp_ms < target
            and covers_segment(segment, last_entry)
        ):
            skipped, before = (segment, last_entry), last_entry.timestamp_ms
            continue
        if skipped is not None:
            yield skipped
        yield segment, last_entry
        skipped = None
        before = before if last_entry is None else max(before, last_entry.timestamp_ms)


def _bounded(log: PartitionLog, query: LookupQuery, answer: Answer) -> Answer:
    """A broker does not return offsets at or above the last stable offset (Kafka: Partition.fetchOffsetForTimestamp)."""
    if not query.read_committed or answer.offset is None:
        return answer
    stop = last_stable_offset(log)
    if answer.offset < stop:
        return answer
    return not_found(
        f"the record found, at offset {answer.offset}, is not below the last stable offset {stop}"
    )


# --- one segment


def _search(log: PartitionLog, segment: LogSegment, target: int) -> _Search:
    start_offset = log.start_offset
    search = _Search()

    def is_late(records: Columns, at: int) -> bool:
        return records.at(C.R_TIMESTAMP, at) >= target and records.at(C.R_OFFSET, at) >= start_offset

    def late(table: Columns) -> Iterator[int]:
        times = table.column(C.MAX_TIMESTAMP)
        search.greatest_ms = max(search.greatest_ms, max(times))
        return (row for row in range(table.count) if times[row] >= target)

    start = start_for_time(log, segment, target, log.start_offset)
    end = start
    for batch in segment.walk.find(start, late):
        search.has_reached = True
        end = batch.end_position
        record = segment.first_record(batch, is_late)
        if record is not None:
            search.batch, search.record = batch, record
            break
    else:
        end = segment.file.size_bytes
    segment.scanned(start, end)
    if not search.has_reached and segment.base_offset < start_offset:
        below = next(segment.walk.find(0, late), None)  # a batch below the log start that reaches the time
        search.has_reached = below is not None
    return search


def start_for_time(notes: Notes, segment: LogSegment, target: int, start_offset: int) -> int:
    """A position before which no record is at or after `target` (ms) and at or above `start_offset`. notes: the segment's."""
    if not notes.use_index or not segment.file.size_bytes:
        return 0
    index = segment.time_index
    if index is None:
        segment.distrust(Role.TIME_INDEX, "there is no time index")
        return 0
    slot = index.slot_for(target)
    path = segment.paths[Role.TIME_INDEX]
    if slot < 0:
        notes.note({"step": "time-index", "file": path, "slot": None})
        return _start_for_offset(segment, start_offset, 0)
    entry = index.entry(slot)
    notes.note({"step": "time-index", "file": path, "slot": slot, **entry._asdict()})
    start = segment.start_for(entry.offset)
    batch = next(segment.reaching(entry.offset, start), None)
    if batch is None or batch.max_timestamp_ms != entry.timestamp_ms or entry.timestamp_ms > target:
        segment.distrust(Role.TIME_INDEX, f"entry {slot} is wrong: {_contradiction(entry, batch, target)}")
        return 0
    start = start if entry.timestamp_ms < target else min(start, batch.position)
    return _start_for_offset(segment, start_offset, start)


def _start_for_offset(segment: LogSegment, start_offset: int, start: int) -> int:
    return max(start, segment.start_for(start_offset)) if segment.base_offset < start_offset else start


def _contradiction(entry: TimeIndexEntry, batch: Batch | None, target: int) -> str:
    if batch is None:
        return f"the segment has no offset {entry.offset}"
    if entry.timestamp_ms > target:
        return "its entries are not in order"
    return (
        f"it has timestamp {entry.timestamp_ms} for offset {entry.offset}, "
        f"whose batch has the maximum timestamp {batch.max_timestamp_ms}"
    )


def _broker_stops(
    segment: LogSegment, search: _Search, last_entry: TimeIndexEntry | None, target: int
) -> str | None:
    """Why a broker stops searching at this segment, None when it continues; also reports a wrong index."""
    if search.has_reached:
        return (
            f"{segment.path} is the first segment that reaches {target} but has no such record at or above the "
            "log start offset; a broker stops searching there"
        )
    if segment.next_base_offset is None:
        return None
    if last_entry is not None and last_entry.timestamp_ms >= target:
        segment.distrust(
            Role.TIME_INDEX,
            f"its last entry has timestamp {last_entry.timestamp_ms}, which no record in the segment reaches",
        )
    elif last_entry is None and search.greatest_ms < 0 and segment.file.mtime_ms >= target:
        return (
            f"{segment.path} has no timestamps, so a broker uses the file's modification time "
            f"{segment.file.mtime_ms} and stops searching there"
        )
    return None


# --- the maximum


def by_max_timestamp(log: PartitionLog, query: LookupQuery) -> Iterator[Answer]:
    """The answer: the first record with the greatest timestamp."""
    visible = log.segments[max(0, log.floor_index(log.start_offset)) :]
    last_entries = {segment.base_offset: _greatest(log, segment) for segment in visible}
    base_offset = max(last_entries, key=lambda base: (last_entries[base].timestamp_ms, -base))
    segment = log.segments[log.floor_index(base_offset)]
    greatest_ms = last_entries[base_offset].timestamp_ms
    found = _record_of_maximum(log, segment, last_entries[base_offset])
    if found is None and greatest_ms < 0:
        yield not_found("no visible record has a timestamp")
    elif found is None:
        why = "the first batch that reaches it has no visible record with it; a broker looks at no other"
        yield not_found(f"the greatest timestamp is {moment(greatest_ms)}, but {why}")
    else:
        yield _bounded(log, query, at_record(segment, *found))


def _greatest(log: PartitionLog, segment: LogSegment) -> TimeIndexEntry:
    """The greatest batch timestamp of a segment and its offset, walking from the last index entry on."""
    is_truncated = segment.base_offset < log.start_offset
    start = 0 if is_truncated else start_for_time(log, segment, L.INT64_MAX, log.start_offset)
    try:
        return _walked_maximum(log, segment, start)
    finally:
        segment.close()


def _walked_maximum(log: PartitionLog, segment: LogSegment, start: int) -> TimeIndexEntry:
    """The greatest timestamp at or after a position, visible records only."""
    start_offset = log.start_offset
    best = TimeIndexEntry(L.NO_TIMESTAMP, segment.base_offset)

    def greater(table: Columns) -> Iterator[int]:
        times, lasts = table.column(C.MAX_TIMESTAMP), table.column(C.LAST_OFFSET)
        return (
            row for row in range(table.count) if times[row] > best.timestamp_ms and lasts[row] >= start_offset
        )

    for batch in segment.walk.find(start, greater):
        if segment.first_offset_of(batch) >= start_offset:
            best = TimeIndexEntry(batch.max_timestamp_ms, batch.last_offset)
            continue
        for chunk, at in segment.records(batch):
            visible, time = chunk.records.at(C.R_OFFSET, at), chunk.records.at(C.R_TIMESTAMP, at)
            if visible >= start_offset and time > best.timestamp_ms:
                best = TimeIndexEntry(time, batch.last_offset)
    segment.scanned(start, segment.file.size_bytes)
    return best


def _record_of_maximum(
    log: PartitionLog, segment: LogSegment, last_entry: TimeIndexEntry
) -> tuple[Batch, Record] | None:
    """The first visible record that has the claimed timestamp, in the first batch whose maximum it is."""
    start_offset = log.start_offset

    def has_it(table: Columns) -> Iterator[int]:
        times = table.column(C.MAX_TIMESTAMP)
        return (row for row in range(table.count) if times[row] >= last_entry.timestamp_ms)

    def is_it(records: Columns, at: int) -> bool:
        return (
            records.at(C.R_TIMESTAMP, at) == last_entry.timestamp_ms
            and records.at(C.R_OFFSET, at) >= start_offset
        )

    start = segment.start_for(max(last_entry.offset, start_offset))
    for batch in segment.walk.find(start, has_it):
        record = None if batch.magic == L.MAGIC_V0 else segment.first_record(batch, is_it)
        if record is not None or segment.first_offset_of(batch) >= start_offset:
            # a broker looks no further than the first such batch, even if the cleaner has left only its header, or if it is of magic 0,
            # in a log without timestamps
            segment.scanned(start, batch.end_position)
            return None if record is None else (batch, record)
    segment.scanned(start, segment.file.size_bytes)
    return None
