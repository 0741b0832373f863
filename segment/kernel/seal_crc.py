# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Computes the checksums of new batches in their buffer; rows of `table` are those of `outcome`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import batch_encode, buffer_access
from kseg.segment.kernel.checksum import castagnoli_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kseg.segment.kernel.buffer_types import Readable, Writable


def seal_small(
    out: bytearray, table: Writable, table_capacity: int, count: int, limit_bytes: int, castagnoli: Readable
) -> int:
    """Compute the missing checksums of batches of at most `limit_bytes`; returns the number of those left."""
    if C.BATCH_WIDTH * table_capacity > len(table) or count > table_capacity or len(castagnoli) != 2048:
        raise ValueError("a table is smaller than its capacity says")
    left = 0
    for row in range(count):
        if table[C.VALID * table_capacity + row] == -1:
            start = table[C.CRC * table_capacity + row]
            size = table[C.SIZE * table_capacity + row]
            if start < 0 or size < 61 or start > len(out) - size:
                raise ValueError("a batch lies outside the buffer")
            if size > limit_bytes:
                left = left + 1
            else:
                crc = castagnoli_of(out, start + 21, start + size, castagnoli)
                batch_encode.put_int(buffer_access.room_in(out), start + 17, crc)
                table[C.VALID * table_capacity + row] = 1
    return left


def seal_large(
    view: memoryview,
    out: bytearray,
    table: Writable,
    table_capacity: int,
    count: int,
    castagnoli: Callable[[memoryview], int],
) -> int:
    """Compute the remaining checksums with a function that returns the CRC-32C of a buffer. view: of `out`, for slices."""
    if C.BATCH_WIDTH * table_capacity > len(table) or count > table_capacity:
        raise ValueError("a table is smaller than its capacity says")
    for row in range(count):
        if table[C.VALID * table_capacity + row] == -1:
            start = table[C.CRC * table_capacity + row]
            size = table[C.SIZE * table_capacity + row]
            if start < 0 or size < 61 or start > len(out) - size:
                raise ValueError("a batch lies outside the buffer")
            crc = castagnoli(view[start + 21 : start + size])
            batch_encode.put_int(buffer_access.room_in(out), start + 17, crc)
            table[C.VALID * table_capacity + row] = 1
    return 0
