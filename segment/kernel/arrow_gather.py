# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Columns as Arrow lays them out, from a table of records and the body it points into.

    number column   one value a row, 8 or 4 bytes, native order
    flag column     one bit a row, the lowest bit of a byte first
    bytes column    flags (1 = not null) │ int32 ends: row n lies between ends[n] and ends[n + 1] │ the bytes themselves
    headers         ends over the headers of all rows; of these a column of names and a column of values

Every function appends rows first … stop − 1 of a table of records behind `at` rows that are there already; flag
columns begin as zeros. What belongs to a record's batch is looked up in the table of batches by R_BATCH. Tables and
buffers may come from anywhere: nothing outside of them is touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment.kernel import buffer_access

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def check_rows(cells: Readable, capacity: int, first: int, stop: int, room: int, at: int) -> int:
    # room: for how many rows there is any, behind `at` that are there
    if capacity < 0 or 12 * capacity > len(cells) or first < 0 or stop > capacity or first > stop:
        raise ValueError("the rows lie outside the table of records")
    if at < 0 or stop - first > room - at:
        raise ValueError("the column has no room for the rows")
    return 0


def batch_of(cells: Readable, row: int, batch_capacity: int) -> int:
    batch = cells[row]
    if batch < 0 or batch >= batch_capacity:
        raise ValueError("a record's batch lies outside the table of batches")
    return batch


def check_batches(batches: Readable, batch_capacity: int) -> int:
    if batch_capacity < 0 or 15 * batch_capacity > len(batches):
        raise ValueError("the table of batches is smaller than its capacity says")
    return 0


def check_spread(
    batches: Readable,
    batch_capacity: int,
    cells: Readable,
    capacity: int,
    first: int,
    stop: int,
    room: int,
    at: int,
) -> int:
    check_batches(batches, batch_capacity)
    check_rows(cells, capacity, first, stop, room, at)
    return 0


# --- which rows


def wanted_until(batches: Readable, capacity: int, row: int, count: int, bounds: Readable) -> int:
    """The end (exclusive) of the run of batches from `row` on that are all wanted; `row` itself when it is not.

    bounds: lowest offset, lowest offset that is too high, least timestamp, whether control batches are wanted. The
    first offset of a compressed set of an old format is not in its header: such a one is wanted when it may be.
    """
    check_batches(batches, capacity)
    if row < 0 or count > capacity or len(bounds) < 4:
        raise ValueError("the rows lie outside the table of batches")
    table = buffer_access.cells_in(batches)
    lowest = bounds[0]
    highest = bounds[1]
    least_ms = bounds[2]
    with_control = bounds[3]
    while row < count:
        is_old = table[2 * capacity + row] < 2
        if table[4 * capacity + row] < lowest or table[10 * capacity + row] < least_ms:
            break
        if table[3 * capacity + row] >= highest and (not is_old or table[5 * capacity + row] >= 0):
            break
        if not with_control and not is_old and table[6 * capacity + row] & 32:
            break
        row = row + 1
    return row


def keep_rows(cells: Writable, capacity: int, count: int, bounds: Readable) -> int:
    """Move the rows that are within `bounds` (as in `wanted_until`, and behind them the least timestamp that is too
    high) to the front; returns how many they are. Rows whose value cannot be told (a length and no place) go, too."""
    check_rows(cells, capacity, 0, count, count, 0)
    if len(bounds) < 5:
        raise ValueError("a bound is missing")
    table = buffer_access.table_in(cells)
    kept = 0
    row = 0
    while row < count:
        offset = table[capacity + row]
        time = table[2 * capacity + row]
        keep = offset >= bounds[0] and offset < bounds[1] and time >= bounds[2] and time < bounds[4]
        if keep and (table[5 * capacity + row] >= 0 or table[6 * capacity + row] < 0):
            if kept != row:
                field = 0
                while field < 12:
                    table[field * capacity + kept] = table[field * capacity + row]
                    field = field + 1
            kept = kept + 1
        row = row + 1
    return kept


def rows_within(
    cells: Readable, capacity: int, first: int, stop: int, keys: bool, values: bool, room: Writable
) -> int:
    """The end (exclusive) of the rows from `first` on whose keys and values together have at most room[0] bytes,
    which they are taken off.

    keys, values: whether each of them counts.
    """
    check_rows(cells, capacity, first, stop, stop, 0)
    if len(room) < 1:
        raise ValueError("the room is missing")
    table = buffer_access.cells_in(cells)
    left = room[0]
    row = first
    while row < stop:
        if keys and table[4 * capacity + row] > 0:
            left = left - table[4 * capacity + row]
        if values and table[6 * capacity + row] > 0:
            left = left - table[6 * capacity + row]
        if left < 0:
            break
        room[0] = left
        row = row + 1
    return row


# --- keys, values, headers


def gather_bytes(
    body: Readable,
    cells: Readable,
    capacity: int,
    first: int,
    stop: int,
    field: int,
    out: Writable,
    filled: int,
    ends: Writable,
    flags: Writable,
    at: int,
) -> int:
    """Append the bytes that columns `field` (start) and `field` + 1 (length) point to, behind `filled` bytes.

    Returns how many bytes there are then.
    """
    check_rows(cells, capacity, first, stop, len(ends) - 1, at)
    if field < 0 or field > 10 or (at + stop - first + 7) >> 3 > len(flags):
        raise ValueError("the column has no room for the rows")
    if filled < 0 or filled > len(out):
        raise ValueError("the column has no room for the bytes")
    table = buffer_access.cells_in(cells)
    source = buffer_access.bytes_in(body)
    target = buffer_access.room_in(out)
    size = len(body)
    room = len(out)
    row = first
    while row < stop:
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
        row = row + 1
    return filled


def measure_headers(
    body: Readable, cells: Readable, capacity: int, first: int, stop: int, most: int, sums: Writable
) -> int:
    """The end (exclusive) of the rows from `first` on whose headers have at most `most` bytes, and how much these
    need: sums becomes headers, bytes of names, bytes of values."""
    check_rows(cells, capacity, first, stop, stop, 0)
    if len(sums) < 3:
        raise ValueError("a sum is missing")
    needed = buffer_access.table_in(sums)
    needed[0] = 0
    needed[1] = 0
    needed[2] = 0
    source = buffer_access.bytes_in(body)
    size = len(body)
    row = first
    while row < stop:
        p = cells[7 * capacity + row]
        left = cells[8 * capacity + row]
        if left > 0:
            count = needed[0]
            name_bytes = needed[1]
            value_bytes = needed[2]
            while left > 0:
                p = header_at(source, p, size, needed)
                left = left - 1
            if needed[1] + needed[2] > most:
                needed[0] = count
                needed[1] = name_bytes
                needed[2] = value_bytes
                break
        row = row + 1
    return row


def header_at(source: Readable, p: int, size: int, sums: Writable) -> int:
    # adds one header to the sums; the position behind it
    place = field_at(source, p, size)
    if place < 0:
        raise ValueError("a header lies outside its body")
    sums[0] = sums[0] + 1
    sums[1] = sums[1] + (place >> 4)
    p = p + (place & 15) + (place >> 4)
    place = field_at(source, p, size)
    if place == -1:
        raise ValueError("a header lies outside its body")
    if place < 0:
        return p - place - 16
    sums[2] = sums[2] + (place >> 4)
    return p + (place & 15) + (place >> 4)


def field_at(source: Readable, p: int, size: int) -> int:
    # a field with its length before it, as 16 × the length + the size of the length; −1: it leaves the body; a null
    # as −16 − the size of the length
    if p < 0:
        return -1
    packed = buffer_access.varint(source, p, size)
    if packed == 0:
        return -1
    length = packed >> 4
    if length < 0:
        return -16 - (packed & 15)
    if length > size - p - (packed & 15):
        return -1
    return packed


def gather_headers(
    body: Readable,
    cells: Readable,
    capacity: int,
    first: int,
    stop: int,
    ends: Writable,
    names: Writable,
    name_ends: Writable,
    values: Writable,
    value_ends: Writable,
    value_flags: Writable,
) -> int:
    """Lay out the headers of the rows in buffers of the sizes that `measure_headers` gave, from their beginning on.

    ends: int32, one more than rows. flags of values as elsewhere; a name is never null.
    """
    check_rows(cells, capacity, first, stop, len(ends) - 1, 0)
    source = buffer_access.bytes_in(body)
    size = len(body)
    count = 0
    name_bytes = 0
    value_bytes = 0
    ends[0] = 0
    name_ends[0] = 0
    value_ends[0] = 0
    row = first
    while row < stop:
        p = cells[7 * capacity + row]
        left = cells[8 * capacity + row]
        while left > 0:
            place = field_at(source, p, size)
            if place < 0 or place >> 4 > len(names) - name_bytes:
                raise ValueError("a header lies outside its body")
            buffer_access.copied(
                buffer_access.room_in(names), name_bytes, source, p + (place & 15), place >> 4
            )
            name_bytes = name_bytes + (place >> 4)
            p = p + (place & 15) + (place >> 4)
            place = field_at(source, p, size)
            if place == -1 or (place > 0 and place >> 4 > len(values) - value_bytes):
                raise ValueError("a header lies outside its body")
            if place >= 0:
                buffer_access.copied(
                    buffer_access.room_in(values), value_bytes, source, p + (place & 15), place >> 4
                )
                value_bytes = value_bytes + (place >> 4)
                value_flags[count >> 3] = value_flags[count >> 3] | 1 << (count & 7)
                p = p + (place & 15) + (place >> 4)
            else:
                p = p - place - 16
            count = count + 1
            name_ends[count] = name_bytes
            value_ends[count] = value_bytes
            left = left - 1
        row = row + 1
        ends[row - first] = count
    return count


# --- numbers of records


def gather_longs(
    cells: Readable, capacity: int, first: int, stop: int, field: int, out: Writable, at: int
) -> int:
    """Append column `field` as 8-byte numbers."""
    check_rows(cells, capacity, first, stop, len(out), at)
    if field < 0 or field > 11:
        raise ValueError("there is no such column")
    source = buffer_access.cells_in(cells)
    target = buffer_access.table_in(out)
    row = first
    while row < stop:
        target[at] = source[field * capacity + row]
        at = at + 1
        row = row + 1
    return at


def gather_ints(
    cells: Readable, capacity: int, first: int, stop: int, field: int, out: Writable, at: int
) -> int:
    """Append column `field` as 4-byte numbers; what is there must be one."""
    check_rows(cells, capacity, first, stop, len(out), at)
    if field < 0 or field > 11:
        raise ValueError("there is no such column")
    source = buffer_access.cells_in(cells)
    row = first
    while row < stop:
        out[at] = source[field * capacity + row]
        at = at + 1
        row = row + 1
    return at


def gather_times(cells: Readable, capacity: int, first: int, stop: int, out: Writable, at: int) -> int:
    """Append timestamps in microseconds; one that has none takes the nearest that there is."""
    check_rows(cells, capacity, first, stop, len(out), at)
    source = buffer_access.cells_in(cells)
    target = buffer_access.table_in(out)
    # the most milliseconds whose microseconds are a long; a literal beyond 31 bits would be a Python object
    most = 0x7FFFFFFF
    most = (most << 16) | 0xFFFF
    most = ((most << 16) | 0xFFFF) // 1000
    row = first
    while row < stop:
        time = source[2 * capacity + row]
        if time > most:
            time = most
        if time < -most:
            time = -most
        target[at] = time * 1000
        at = at + 1
        row = row + 1
    return at


# --- what batches say


def spread_longs(
    batches: Readable,
    batch_capacity: int,
    cells: Readable,
    capacity: int,
    first: int,
    stop: int,
    field: int,
    out: Writable,
    at: int,
) -> int:
    """Append column `field` of each record's batch as 8-byte numbers."""
    check_spread(batches, batch_capacity, cells, capacity, first, stop, len(out), at)
    if field < 0 or field > 14:
        raise ValueError("there is no such column")
    source = buffer_access.cells_in(batches)
    rows = buffer_access.cells_in(cells)
    target = buffer_access.table_in(out)
    row = first
    while row < stop:
        target[at] = source[field * batch_capacity + batch_of(rows, row, batch_capacity)]
        at = at + 1
        row = row + 1
    return at


def spread_ints(
    batches: Readable,
    batch_capacity: int,
    cells: Readable,
    capacity: int,
    first: int,
    stop: int,
    field: int,
    out: Writable,
    at: int,
) -> int:
    """Append column `field` of each record's batch as 4-byte numbers; what is there must be one."""
    check_spread(batches, batch_capacity, cells, capacity, first, stop, len(out), at)
    if field < 0 or field > 14:
        raise ValueError("there is no such column")
    source = buffer_access.cells_in(batches)
    rows = buffer_access.cells_in(cells)
    row = first
    while row < stop:
        out[at] = source[field * batch_capacity + batch_of(rows, row, batch_capacity)]
        at = at + 1
        row = row + 1
    return at


def spread_time_types(
    batches: Readable,
    batch_capacity: int,
    cells: Readable,
    capacity: int,
    first: int,
    stop: int,
    out: Writable,
    at: int,
) -> int:
    """Append the kind of each record's timestamp by Kafka's numbers: −1 none, 0 CreateTime, 1 LogAppendTime."""
    check_spread(batches, batch_capacity, cells, capacity, first, stop, len(out), at)
    source = buffer_access.cells_in(batches)
    rows = buffer_access.cells_in(cells)
    row = first
    while row < stop:
        batch = batch_of(rows, row, batch_capacity)
        if source[2 * batch_capacity + batch] == 0:
            out[at] = -1
        else:
            out[at] = source[6 * batch_capacity + batch] >> 3 & 1
        at = at + 1
        row = row + 1
    return at


def spread_codecs(
    batches: Readable,
    batch_capacity: int,
    cells: Readable,
    capacity: int,
    first: int,
    stop: int,
    out: Writable,
    at: int,
) -> int:
    """Append the codec's id of each record's batch, a byte each."""
    check_spread(batches, batch_capacity, cells, capacity, first, stop, len(out), at)
    source = buffer_access.cells_in(batches)
    rows = buffer_access.cells_in(cells)
    row = first
    while row < stop:
        out[at] = source[6 * batch_capacity + batch_of(rows, row, batch_capacity)] & 7
        at = at + 1
        row = row + 1
    return at


def spread_flags(
    batches: Readable,
    batch_capacity: int,
    cells: Readable,
    capacity: int,
    first: int,
    stop: int,
    bit: int,
    flags: Writable,
    at: int,
) -> int:
    """Append whether each record's batch has the attribute `bit`, which only magic 2 defines."""
    check_spread(batches, batch_capacity, cells, capacity, first, stop, 8 * len(flags), at)
    source = buffer_access.cells_in(batches)
    rows = buffer_access.cells_in(cells)
    row = first
    while row < stop:
        batch = batch_of(rows, row, batch_capacity)
        if source[2 * batch_capacity + batch] >= 2 and source[6 * batch_capacity + batch] & bit:
            flags[at >> 3] = flags[at >> 3] | 1 << (at & 7)
        at = at + 1
        row = row + 1
    return at


def spread_validity(
    batches: Readable,
    batch_capacity: int,
    cells: Readable,
    capacity: int,
    first: int,
    stop: int,
    flags: Writable,
    at: int,
) -> int:
    """Append whether the checksums over each record are right: that of its batch, and its own if it has one."""
    check_spread(batches, batch_capacity, cells, capacity, first, stop, 8 * len(flags), at)
    source = buffer_access.cells_in(batches)
    rows = buffer_access.cells_in(cells)
    row = first
    while row < stop:
        batch = batch_of(rows, row, batch_capacity)
        if source[14 * batch_capacity + batch] == 1 and rows[11 * capacity + row] != 0:
            flags[at >> 3] = flags[at >> 3] | 1 << (at & 7)
        at = at + 1
        row = row + 1
    return at


def spread_checksums(
    batches: Readable,
    batch_capacity: int,
    cells: Readable,
    capacity: int,
    first: int,
    stop: int,
    out: Writable,
    at: int,
) -> int:
    """Append the stored checksum of each record: its own in magic 0 and 1, else that of its batch."""
    check_spread(batches, batch_capacity, cells, capacity, first, stop, len(out), at)
    source = buffer_access.cells_in(batches)
    rows = buffer_access.cells_in(cells)
    target = buffer_access.table_in(out)
    row = first
    while row < stop:
        target[at] = rows[10 * capacity + row]
        if target[at] < 0:
            target[at] = source[8 * batch_capacity + batch_of(rows, row, batch_capacity)]
        at = at + 1
        row = row + 1
    return at
