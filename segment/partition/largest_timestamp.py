"""The greatest timestamp of a segment, which determines its age for a broker (Kafka: LogSegment.largestTimestamp).

A broker does not read batches for it. The value depends on how the log was loaded:

    at rest      after a clean shutdown, or below the recovery point: the last slot of the time index, whatever it contains. A
                 preallocated index that was never trimmed ends in zeros, which count as the timestamp 0. Without
                 an offset index the segment is recovered.
    recovered    after an unclean shutdown, from the recovery point on: the index is rebuilt from the batches. The last entry
                 of an index is used here if it covers the offset before the next segment, as the entry that is written at a
                 roll does; otherwise the batches from its last used entry on are walked.
    unknown      a partition directory without its data directory: as at rest, but zeros are not used.

An index without entries means that no record has a timestamp (magic 0, or −1 throughout); then the file's modification
time is used. Source: LogSegment.readMaxTimestampAndOffsetSoFar, LogLoader; fact sheet §6.3b, §7.3.
"""

import struct
from collections.abc import Iterator
from enum import StrEnum

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.model import Record
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.names import Role
from kseg.segment.probe import read_end
from kseg.segment.values import dataclass

_ENTRY = struct.Struct(">qi")
assert _ENTRY.size == L.TIME_INDEX_ENTRY


class Loaded(StrEnum):
    """How a broker would load the segment (see the module's table)."""

    AT_REST = "at-rest"
    RECOVERED = "recovered"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LargestTimestamp:
    """timestamp_ms: −1 if no record has one. offset: no record up to it has a greater timestamp; normally the last offset of the
    first batch with the timestamp, None without a timestamp. is_zeros: it comes from preallocated zeros."""

    timestamp_ms: int = L.NO_TIMESTAMP
    offset: int | None = None
    is_zeros: bool = False


def largest_timestamp(
    segment: LogSegment, size_bytes: int, loaded: Loaded, *, is_surely_regular: bool = False
) -> LargestTimestamp:
    """The greatest timestamp, by the table in the module. size_bytes: of the `.log`. is_surely_regular: a listing has shown its time index
    to be a regular file. Raises UnreadableInput."""
    if not size_bytes:
        return LargestTimestamp()
    if Role.OFFSET_INDEX not in segment.paths:
        return _of_batches(segment)
    slot = _last_slot(segment, is_surely_regular)
    if slot is None:
        return _of_batches(segment) if loaded is Loaded.RECOVERED else LargestTimestamp()
    timestamp_ms, relative = _ENTRY.unpack(slot)
    offset = segment.base_offset + relative
    is_zeros = not any(slot)
    if loaded is Loaded.RECOVERED and offset + 1 != segment.next_base_offset:
        return _of_batches(segment)
    if loaded is Loaded.UNKNOWN and is_zeros:
        return _of_batches(segment)
    if timestamp_ms < 0:
        return LargestTimestamp()
    return LargestTimestamp(timestamp_ms, offset, is_zeros)


def record_of(segment: LogSegment, largest: LargestTimestamp) -> Record | None:
    """The first record with the greatest timestamp; None if there is none, or the index is wrong."""
    if largest.offset is None:
        return None

    def has_it(table: Columns) -> Iterator[int]:
        times = table.column(C.MAX_TIMESTAMP)
        return (row for row in range(table.count) if times[row] >= largest.timestamp_ms)

    def is_it(records: Columns, at: int) -> bool:
        return records.at(C.R_TIMESTAMP, at) == largest.timestamp_ms

    try:
        for batch in segment.walk.find(segment.start_for(largest.offset), has_it):
            record = segment.first_record(batch, is_it) if batch.magic != L.MAGIC_V0 else None
            if record is not None:
                return record
        return None
    finally:
        segment.close()


def _last_slot(segment: LogSegment, is_surely_regular: bool) -> bytes | None:
    """The last complete slot of the time index, used or not; None if there is none."""
    path = segment.paths.get(Role.TIME_INDEX)
    if path is None:
        return None
    size_bytes, tail = read_end(path, 2 * L.TIME_INDEX_ENTRY - 1, is_surely_regular=is_surely_regular)
    end = len(tail) - size_bytes % L.TIME_INDEX_ENTRY
    return tail[end - L.TIME_INDEX_ENTRY : end] if size_bytes >= L.TIME_INDEX_ENTRY else None


def _of_batches(segment: LogSegment) -> LargestTimestamp:
    """The greatest timestamp of the batches, walked from the last used index entry if that entry is correct."""
    best = LargestTimestamp()

    def greater(table: Columns) -> Iterator[int]:
        times = table.column(C.MAX_TIMESTAMP)
        return (row for row in range(table.count) if times[row] > best.timestamp_ms)

    try:
        start = _start(segment)
        for batch in segment.walk.find(start, greater):
            best = LargestTimestamp(batch.max_timestamp_ms, batch.last_offset)
        segment.scanned(start, segment.file.size_bytes)
        return best
    finally:
        segment.close()


def _start(segment: LogSegment) -> int:
    """A position from which to walk: no timestamp before it exceeds those after it."""
    index = segment.time_index
    if index is None or not index.entries or Role.OFFSET_INDEX not in segment.paths:
        return 0
    entry = index.last_entry
    start = segment.start_for(entry.offset)
    batch = next(segment.reaching(entry.offset, start), None)
    if batch is None or batch.max_timestamp_ms != entry.timestamp_ms:
        return 0
    return start
