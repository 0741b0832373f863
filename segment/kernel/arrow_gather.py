# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Arrow columns from a table of records and the body to which it refers.

    number column   one value a row, 8 or 4 bytes, native order
    flag column     one bit a row, the lowest bit of a byte first
    bytes column    flags (1 = not null) │ int32 ends: row n is between ends[n] and ends[n + 1] │ the bytes themselves

Every function appends `RecordRows` after the `at` existing rows; flag columns start as zeros. Fields of a
record's batch are looked up in the table of batches by R_BATCH. Tables and buffers are not trusted: every access is
checked against their sizes. For the headers of records see `arrow_headers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


class RecordRows:
    """Rows first … stop − 1 of a table of records, and the table of their batches. Raises ValueError if a table is too small."""

    def __init__(
        self,
        batches: Readable,
        batch_capacity: int,
        cells: Readable,
        capacity: int,
        first: int,
        stop: int,
    ) -> None:
        if batch_capacity < 0 or C.BATCH_WIDTH * batch_capacity > len(batches):
            raise ValueError("the table of batches is smaller than its capacity says")
        if (
            capacity < 0
            or C.RECORD_WIDTH * capacity > len(cells)
            or first < 0
            or stop > capacity
            or first > stop
        ):
            raise ValueError("the rows lie outside the table of records")
        self.batches = batches
        self.batch_capacity = batch_capacity
        self.cells = cells
        self.capacity = capacity
        self.first = first
        self.stop = stop


def check_room(rows: RecordRows, room: int, at: int) -> int:
    # room: number of rows for which there is any space, after the `at` existing ones
    if at < 0 or rows.stop - rows.first > room - at:
        raise ValueError("the column has no room for the rows")
    return 0


def check_field(field: int, count: int) -> int:
    if field < 0 or field >= count:
        raise ValueError("there is no such column")
    return 0


def batch_of(cells: Readable, row: int, batch_capacity: int) -> int:
    batch = cells[row]
    if batch < 0 or batch >= batch_capacity:
        raise ValueError("a record's batch lies outside the table of batches")
    return batch


# --- which rows


def wanted_until(batches: Readable, capacity: int, row: int, count: int, bounds: Readable) -> int:
    """The end (exclusive) of the run of batches from `row` on that are all wanted; `row` itself if that batch is not wanted.

    bounds: lowest offset, first offset above the range, least timestamp, whether control batches are wanted. The first offset
    of a compressed set of an old format is not in its header: such a set is wanted if it may be within the bounds.
    """
    if (
        capacity < 0
        or C.BATCH_WIDTH * capacity > len(batches)
        or row < 0
        or count > capacity
        or len(bounds) < 4
    ):
        raise ValueError("the rows lie outside the table of batches")
    table = buffer_access.cells_in(batches)
    lowest = bounds[0]
    highest = bounds[1]
    least_ms = bounds[2]
    with_control = bounds[3]
    while row < count:
        is_old = table[C.MAGIC * capacity + row] < 2
        if (
            table[C.LAST_OFFSET * capacity + row] < lowest
            or table[C.MAX_TIMESTAMP * capacity + row] < least_ms
        ):
            break
        if table[C.BASE_OFFSET * capacity + row] >= highest and (
            not is_old or table[C.COUNT * capacity + row] >= 0
        ):
            break
        if not with_control and not is_old and table[C.ATTRIBUTES * capacity + row] & C.CONTROL_BIT:
            break
        row = row + 1
    return row


def keep_rows(cells: Writable, capacity: int, count: int, bounds: Readable) -> int:
    """Move the rows within `bounds` (as in `wanted_until`, followed by the first timestamp above the range) to the front;
    return their number. Rows whose value is unknown (a length without a position) are dropped as well."""
    if (
        capacity < 0
        or C.RECORD_WIDTH * capacity > len(cells)
        or count < 0
        or count > capacity
        or len(bounds) < 5
    ):
        raise ValueError("the rows lie outside the table of records")
    table = buffer_access.table_in(cells)
    kept = 0
    for row in range(count):
        offset = table[C.R_OFFSET * capacity + row]
        time = table[C.R_TIMESTAMP * capacity + row]
        keep = offset >= bounds[0] and offset < bounds[1] and time >= bounds[2] and time < bounds[4]
        if keep and (
            table[C.R_VALUE_START * capacity + row] >= 0 or table[C.R_VALUE_LENGTH * capacity + row] < 0
        ):
            if kept != row:
                for field in range(12):
                    table[field * capacity + kept] = table[field * capacity + row]
            kept = kept + 1
    return kept


def rows_within(rows: RecordRows, keys: bool, values: bool, room: Writable) -> int:
    """The end (exclusive) of the first rows whose keys and values together have at most room[0] bytes; their size is subtracted
    from room[0].

    keys, values: whether each of them counts.
    """
    if len(room) < 1:
        raise ValueError("the room is missing")
    table = buffer_access.cells_in(rows.cells)
    capacity = rows.capacity
    left = room[0]
    row = rows.first
    stop = rows.stop
    while row < stop:
        if keys and table[C.R_KEY_LENGTH * capacity + row] > 0:
            left = left - table[C.R_KEY_LENGTH * capacity + row]
        if values and table[C.R_VALUE_LENGTH * capacity + row] > 0:
            left = left - table[C.R_VALUE_LENGTH * capacity + row]
        if left < 0:
            break
        room[0] = left
        row = row + 1
    return row


# --- keys and values


def gather_bytes(
    body: Readable,
    rows: RecordRows,
    field: int,
    out: Writable,
    filled: int,
    ends: Writable,
    flags: Writable,
    at: int,
) -> int:
    """Append the bytes to which columns `field` (start) and `field` + 1 (length) refer, after `filled` bytes.

    Returns the number of bytes afterwards.
    """
    check_room(rows, len(ends) - 1, at)
    check_field(field, 11)
    if (at + rows.stop - rows.first + 7) >> 3 > len(flags):
        raise ValueError("the column has no room for the rows")
    if filled < 0 or filled > len(out):
        raise ValueError("the column has no room for the bytes")
    table = buffer_access.cells_in(rows.cells)
    capacity = rows.capacity
    source = buffer_access.bytes_in(body)
    target = buffer_access.room_in(out)
    size = len(body)
    room = len(out)
    for row in range(rows.first, rows.stop):
        length = table[(field + 1) * capacity + row]
        if length >= 0:
            start = table[field * capacity + row]
            if start < 0 or start > size - length:
                raise ValueError("a field lies outside its body")
            if length > room - filled:
                raise ValueError("the column has no room for the bytes")
            buffer_access.copied(target, filled, source, start, length)
            filled = filled + length
            flags[at >> 3] = flags[at >> 3] | 1 << (at & 7)
        at = at + 1
        ends[at] = filled
    return filled


# --- numbers of records


def gather_longs(rows: RecordRows, field: int, out: Writable, at: int) -> int:
    """Append column `field` as 8-byte numbers."""
    check_room(rows, len(out), at)
    check_field(field, 12)
    source = buffer_access.cells_in(rows.cells)
    capacity = rows.capacity
    target = buffer_access.table_in(out)
    for row in range(rows.first, rows.stop):
        target[at] = source[field * capacity + row]
        at = at + 1
    return at


def gather_ints(rows: RecordRows, field: int, out: Writable, at: int) -> int:
    """Append column `field` as 4-byte numbers; its values must fit."""
    check_room(rows, len(out), at)
    check_field(field, 12)
    source = buffer_access.cells_in(rows.cells)
    capacity = rows.capacity
    for row in range(rows.first, rows.stop):
        out[at] = source[field * capacity + row]
        at = at + 1
    return at


def gather_times(rows: RecordRows, out: Writable, at: int) -> int:
    """Append timestamps in microseconds; one that does not fit becomes the nearest possible value."""
    check_room(rows, len(out), at)
    source = buffer_access.cells_in(rows.cells)
    capacity = rows.capacity
    target = buffer_access.table_in(out)
    # the most milliseconds whose microseconds fit a long; a literal beyond 31 bits would be a Python object
    most = 0x7FFFFFFF
    most = (most << 16) | 0xFFFF
    most = ((most << 16) | 0xFFFF) // 1000
    for row in range(rows.first, rows.stop):
        time = source[C.R_TIMESTAMP * capacity + row]
        if time > most:
            time = most
        if time < -most:
            time = -most
        target[at] = time * 1000
        at = at + 1
    return at


# --- fields of batches


def spread_longs(rows: RecordRows, field: int, out: Writable, at: int) -> int:
    """Append column `field` of each record's batch as 8-byte numbers."""
    check_room(rows, len(out), at)
    check_field(field, 15)
    source = buffer_access.cells_in(rows.batches)
    cells = buffer_access.cells_in(rows.cells)
    capacity = rows.batch_capacity
    target = buffer_access.table_in(out)
    for row in range(rows.first, rows.stop):
        target[at] = source[field * capacity + batch_of(cells, row, capacity)]
        at = at + 1
    return at


def spread_ints(rows: RecordRows, field: int, out: Writable, at: int) -> int:
    """Append column `field` of each record's batch as 4-byte numbers; its values must fit."""
    check_room(rows, len(out), at)
    check_field(field, 15)
    source = buffer_access.cells_in(rows.batches)
    cells = buffer_access.cells_in(rows.cells)
    capacity = rows.batch_capacity
    for row in range(rows.first, rows.stop):
        out[at] = source[field * capacity + batch_of(cells, row, capacity)]
        at = at + 1
    return at


def spread_time_types(rows: RecordRows, out: Writable, at: int) -> int:
    """Append the timestamp type of each record with Kafka's numbers: −1 none, 0 CreateTime, 1 LogAppendTime."""
    check_room(rows, len(out), at)
    source = buffer_access.cells_in(rows.batches)
    cells = buffer_access.cells_in(rows.cells)
    capacity = rows.batch_capacity
    for row in range(rows.first, rows.stop):
        batch = batch_of(cells, row, capacity)
        if source[C.MAGIC * capacity + batch] == 0:
            out[at] = -1
        else:
            out[at] = source[C.ATTRIBUTES * capacity + batch] >> 3 & 1
        at = at + 1
    return at


def spread_codecs(rows: RecordRows, out: Writable, at: int) -> int:
    """Append the codec id of each record's batch, one byte each."""
    check_room(rows, len(out), at)
    source = buffer_access.cells_in(rows.batches)
    cells = buffer_access.cells_in(rows.cells)
    capacity = rows.batch_capacity
    for row in range(rows.first, rows.stop):
        out[at] = source[C.ATTRIBUTES * capacity + batch_of(cells, row, capacity)] & C.CODEC_MASK
        at = at + 1
    return at


def spread_flags(rows: RecordRows, bit: int, flags: Writable, at: int) -> int:
    """Append whether each record's batch has the attribute `bit`, which only magic 2 defines."""
    check_room(rows, 8 * len(flags), at)
    source = buffer_access.cells_in(rows.batches)
    cells = buffer_access.cells_in(rows.cells)
    capacity = rows.batch_capacity
    for row in range(rows.first, rows.stop):
        batch = batch_of(cells, row, capacity)
        if source[C.MAGIC * capacity + batch] >= 2 and source[C.ATTRIBUTES * capacity + batch] & bit:
            flags[at >> 3] = flags[at >> 3] | 1 << (at & 7)
        at = at + 1
    return at


def spread_validity(rows: RecordRows, flags: Writable, at: int) -> int:
    """Append whether the checksums of each record are valid: that of its batch, and its own if it has one."""
    check_room(rows, 8 * len(flags), at)
    source = buffer_access.cells_in(rows.batches)
    cells = buffer_access.cells_in(rows.cells)
    capacity = rows.batch_capacity
    for row in range(rows.first, rows.stop):
        batch = batch_of(cells, row, capacity)
        if source[C.VALID * capacity + batch] == 1 and cells[C.R_VALID * rows.capacity + row] != 0:
            flags[at >> 3] = flags[at >> 3] | 1 << (at & 7)
        at = at + 1
    return at


def spread_checksums(rows: RecordRows, out: Writable, at: int) -> int:
    """Append the stored checksum of each record: its own in magic 0 and 1, otherwise that of its batch."""
    check_room(rows, len(out), at)
    source = buffer_access.cells_in(rows.batches)
    cells = buffer_access.cells_in(rows.cells)
    capacity = rows.batch_capacity
    target = buffer_access.table_in(out)
    for row in range(rows.first, rows.stop):
        target[at] = cells[C.R_CRC * rows.capacity + row]
        if target[at] < 0:
            target[at] = source[C.CRC * capacity + batch_of(cells, row, capacity)]
        at = at + 1
    return at
