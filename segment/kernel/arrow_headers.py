# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Arrow columns of record headers: list ends for all rows, a column of names and a column of values.

As in `arrow_gather`, tables and buffers are not trusted: every access is checked against their sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access
from kseg.segment.kernel.arrow_gather import RecordRows, check_room

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def measure_headers(body: Readable, rows: RecordRows, most: int, sums: Writable) -> int:
    """The end (exclusive) of the first rows whose headers have at most `most` bytes. sums is set to the sizes that they need: number of
    headers, bytes of names, bytes of values."""
    if len(sums) < 3:
        raise ValueError("a sum is missing")
    cells = buffer_access.cells_in(rows.cells)
    capacity = rows.capacity
    needed = buffer_access.table_in(sums)
    needed[0] = 0
    needed[1] = 0
    needed[2] = 0
    source = buffer_access.bytes_in(body)
    size = len(body)
    row = rows.first
    stop = rows.stop
    while row < stop:
        p = cells[C.R_HEADERS_START * capacity + row]
        left = cells[C.R_HEADER_COUNT * capacity + row]
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
    # adds one header to the sums; returns the position after it
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
    # a field with its length before it, as 16 × the length + the size of the length; −1 if it exceeds the body; a null
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
    rows: RecordRows,
    ends: Writable,
    names: Writable,
    name_ends: Writable,
    values: Writable,
    value_ends: Writable,
    value_flags: Writable,
) -> int:
    """Write the headers of the rows into buffers of the sizes that `measure_headers` returned, from their start.

    ends: int32, one more than rows. Values have flags as elsewhere; a name is never null.
    """
    check_room(rows, len(ends) - 1, 0)
    cells = buffer_access.cells_in(rows.cells)
    capacity = rows.capacity
    source = buffer_access.bytes_in(body)
    size = len(body)
    count = 0
    name_bytes = 0
    value_bytes = 0
    ends[0] = 0
    name_ends[0] = 0
    value_ends[0] = 0
    row = rows.first
    stop = rows.stop
    while row < stop:
        p = cells[C.R_HEADERS_START * capacity + row]
        left = cells[C.R_HEADER_COUNT * capacity + row]
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
        ends[row - rows.first] = count
    return count
