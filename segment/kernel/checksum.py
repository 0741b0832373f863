# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""CRC-32C and CRC-32 of many batches in one call.

CRC-32C uses the processor's own instructions if it has them (`in_c.castagnoli`). Otherwise, and for CRC-32, small batches use tables, eight
bytes at a time ("slicing by 8"), and large ones a library: it is several times faster per byte, but a call costs as much as a kilobyte, and
a topic with one record per batch needs millions of calls. Bounds checks are off because every index is masked or was checked on entry.

Tables: 8 × 256 entries; entry [k][b] is the effect of byte b seen k bytes before the end of an 8-byte group.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access
from kseg.segment.kernel.in_c import castagnoli as in_c

if TYPE_CHECKING:
    from collections.abc import Callable

    from kseg.segment.kernel.buffer_types import Readable, Writable

CASTAGNOLI = 0x82F63B78  # reflected polynomial of CRC-32C (magic 2)
IEEE = 0xEDB88320  # reflected polynomial of CRC-32 (magic 0 and 1)


def make_tables(polynomial: int) -> array[int]:
    """The 2048 entries of the eight tables for a reflected polynomial, as `array('I')`."""
    tables = array("I", bytes(4 * 2048))
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (polynomial if value & 1 else 0)
        tables[byte] = value
    for k in range(1, 8):
        for byte in range(256):
            before = tables[(k - 1) * 256 + byte]
            tables[k * 256 + byte] = (before >> 8) ^ tables[before & 255]
    return tables


def crc_of(buf: Readable, start: int, end: int, tables: Readable) -> int:
    """The finished CRC of buf[start:end]; the caller has checked 0 ≤ start ≤ end ≤ len(buf)."""
    mask = 0xFFFF  # built in steps: literals beyond 31 bits would be Python objects in C
    mask = (mask << 16) | 0xFFFF
    crc = mask
    p = start
    while p + 8 <= end:
        low = crc ^ (buf[p] | (buf[p + 1] << 8) | (buf[p + 2] << 16) | (buf[p + 3] << 24))
        low = low & mask
        crc = (
            tables[1792 + (low & 255)]
            ^ tables[1536 + ((low >> 8) & 255)]
            ^ tables[1280 + ((low >> 16) & 255)]
            ^ tables[1024 + (low >> 24)]
            ^ tables[768 + buf[p + 4]]
            ^ tables[512 + buf[p + 5]]
            ^ tables[256 + buf[p + 6]]
            ^ tables[buf[p + 7]]
        )
        p = p + 8
    while p < end:
        crc = (crc >> 8) ^ tables[(crc ^ buf[p]) & 255]
        p = p + 1
    return crc ^ mask


def castagnoli_of(buf: Readable, start: int, end: int, tables: Readable) -> int:
    """CRC-32C of buf[start:end], which must be within the buffer, by the fastest means without a library call; tables: from
    `make_tables`."""
    way = in_c.way()
    if way == 0:
        return crc_of(buf, start, end, tables)
    return in_c.crc_of(way, buffer_access.bytes_in(buf), start, end)


def fastest_way() -> int:
    """The largest `way` for `castagnoli_by`; 0 if the processor lacks the instructions, or the module is not compiled."""
    return in_c.way()


def castagnoli_by(way: int, buf: Readable, start: int, end: int) -> int:
    """CRC-32C of buf[start:end] in a particular way of this processor, 1 … `fastest_way()`."""
    if way < 1 or way > in_c.way() or start < 0 or start > end or end > len(buf):
        raise ValueError("this processor has no such way, or the range lies outside the buffer")
    return in_c.crc_of(way, buffer_access.bytes_in(buf), start, end)


def verify_small(
    buf: Readable,
    cells: Writable,
    capacity: int,
    count: int,
    limit_bytes: int,
    castagnoli: Readable,
    ieee: Readable,
) -> int:
    """Set the VALID column of every row whose entry has at most `limit_bytes`; return the number of rows left at −1.

    A magic 2 batch is valid if it has its whole header and the CRC-32C from byte 21 to its end equals the stored one;
    a legacy entry if the CRC-32 from its magic byte to its end does.
    """
    if len(tables_checked(castagnoli)) + len(tables_checked(ieee)) != 4096 or count > capacity:
        raise ValueError("tables of 2048 entries and count ≤ capacity are required")
    if capacity * C.BATCH_WIDTH > len(cells):
        raise ValueError("the table of batches is too small")
    left = 0
    size_of_buf = len(buf)
    for row in range(count):
        start = cells[C.POSITION * capacity + row]
        size = cells[C.SIZE * capacity + row]
        if start < 0 or size < 26 or start > size_of_buf - size:
            raise ValueError("a batch lies outside the buffer")
        if size > limit_bytes:
            left = left + 1
        elif cells[C.MAGIC * capacity + row] < 2:
            crc = crc_of(buf, start + 16, start + size, ieee)
            cells[C.VALID * capacity + row] = 1 if crc == cells[C.CRC * capacity + row] else 0
        elif size < 61:
            cells[C.VALID * capacity + row] = 0
        else:
            crc = castagnoli_of(buf, start + 21, start + size, castagnoli)
            cells[C.VALID * capacity + row] = 1 if crc == cells[C.CRC * capacity + row] else 0
    return left


def verify_large(
    view: memoryview,
    buf: Readable,
    cells: Writable,
    capacity: int,
    count: int,
    castagnoli: Callable[[memoryview], int],
    ieee: Callable[[memoryview], int],
) -> int:
    """Set the VALID column of the rows that `verify_small` has left at −1, with functions that return the CRC of a buffer.

    view: a memoryview of the whole file, whose slices they get. buf: the same bytes. castagnoli, ieee: for magic 2 and for
    legacy entries; the first is not called if this processor has instructions for it.
    """
    if count > capacity or capacity * C.BATCH_WIDTH > len(cells):
        raise ValueError("the table of batches is too small")
    size_of_buf = len(buf)
    way = in_c.way()
    for row in range(count):
        if cells[C.VALID * capacity + row] == -1:
            start = cells[C.POSITION * capacity + row]
            end = start + cells[C.SIZE * capacity + row]
            if start < 0 or end < start + 26 or end > size_of_buf:
                raise ValueError("a batch lies outside the buffer")
            if cells[C.MAGIC * capacity + row] < 2:
                crc = ieee(view[start + 16 : end])
            elif way > 0:
                crc = in_c.crc_of(way, buffer_access.bytes_in(buf), start + 21, end)
            else:
                crc = castagnoli(view[start + 21 : end])
            cells[C.VALID * capacity + row] = 1 if crc == cells[C.CRC * capacity + row] else 0
    return 0


def multiplied(left: int, right: int, polynomial: int) -> int:
    """The product of two polynomials over GF(2) modulo that of a CRC, all of them reflected: the bit of x^0 is the highest."""
    one = 1
    bit = one << 31
    product = 0
    while left != 0:
        if left & bit:
            product = product ^ right
            left = left ^ bit
        bit = bit >> 1
        right = (right >> 1) ^ polynomial if right & 1 else right >> 1
    return product


def tables_checked(tables: Readable) -> Readable:
    if len(tables) != 2048:
        raise ValueError("a CRC table has 2048 entries")
    return tables
