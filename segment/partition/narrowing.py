"""Narrow a read to the segments, and the bytes of a segment, that can contain records within bounds, by names and indexes alone.

1. By name: a segment whose successor begins at or below the lowest offset, or that begins at or above the highest, is left out, without
   opening a file.
2. By time: a segment is left out if the last entry of its time index, which covers all of it, is below the least timestamp. Only
   the last 12 bytes of that file are read. An index that does not cover its segment, or is invalid, is ignored; the last segment is
   always kept, because a broker completes its index only at a roll.
3. Within a segment the offset index provides the end of the range (`LogSegment.start_for` its start).
"""

from collections.abc import Iterator

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.partition.bounds import INT64_MIN, Bounds
from kseg.segment.partition.log_segment import LogSegment, Notes
from kseg.segment.partition.names import Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.probe import read_end
from kseg.segment.sidecar.index import TimeIndex, TimeIndexEntry


def segments_within(log: PartitionLog, bounds: Bounds, use_indexes: bool = True) -> Iterator[LogSegment]:
    """The segments that may have records within the bounds, in order."""
    greatest_ms = INT64_MIN
    for segment in log.segments[max(0, log.floor_index(bounds.from_offset)) :]:
        if segment.base_offset >= bounds.to_offset:
            return
        if segment.next_base_offset is not None and bounds.from_ms > INT64_MIN and use_indexes:
            last_entry = last_time_entry(log, segment)
            if (
                last_entry is not None
                and covers_segment(segment, last_entry)
                and greatest_ms <= last_entry.timestamp_ms < bounds.from_ms
            ):
                greatest_ms = last_entry.timestamp_ms
                continue
        yield segment


def last_time_entry(notes: Notes, segment: LogSegment) -> TimeIndexEntry | None:
    """The last entry of a segment's time index, read without mapping the file; None if that cannot be used."""
    path = segment.paths.get(Role.TIME_INDEX)
    if path is None or not notes.use_index:
        return None
    size_bytes, tail = read_end(path, L.TIME_INDEX_ENTRY)
    notes.meter.bytes_read += len(tail)
    if size_bytes % L.TIME_INDEX_ENTRY or len(tail) < L.TIME_INDEX_ENTRY or not any(tail):
        return None
    return TimeIndex(tail, segment.base_offset).entry(0)


def covers_segment(segment: LogSegment, last_entry: TimeIndexEntry) -> bool:
    """Whether the entry covers the whole segment, which is not the last one: its last entry is written at the roll."""
    return segment.next_base_offset is not None and last_entry.offset == segment.next_base_offset - 1


def stop_for(segment: LogSegment, offset: int, start: int) -> int | None:
    """The start of the second of two adjacent valid batches whose offsets are all at or above `offset`; None if it is
    unknown. A single batch is no proof, since the checksum does not cover its base offset."""
    if segment.offset_index is None:
        return None

    def behind(table: Columns) -> Iterator[int]:
        bases, magics = table.column(C.BASE_OFFSET), table.column(C.MAGIC)
        return (row for row in range(table.count) if bases[row] >= offset and magics[row] >= L.MAGIC_V2)

    end = -1
    for batch in segment.walk.find(max(start, segment.start_for(offset)), behind):
        if batch.position == end:
            return batch.position
        end = batch.end_position
    return None
