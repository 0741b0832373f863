# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""Locate the single block of a usual compressed batch, and decompress a run of such blocks into one buffer.

    lz4     04 22 4D 18 60 40 82, int32 little-endian: length of the block, block, int32: 0      a frame as Java begins it
    snappy  82 'SNAPPY' 00, int32: 1, int32: 1, int32: length of the block, block                a xerial stream
    zstd    28 B5 2F FD 00, window, 3 bytes little-endian: block header, block                 a frame without content size;
            the block ends the frame, or precedes an empty one left by a flush              the library gets all of it

A batch with at most 64 KiB of content (snappy: 32 KiB, zstd: 128 KiB) has one block. All others are left to `codecs.codec.decompress`,
which determines whether they are valid. Bounds checks are off because every position is compared with the end before it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def lz4_end(body: Readable, p: int, end: int) -> int:
    if end - p < 16 or body[p] != 4 or body[p + 1] != 34 or body[p + 2] != 77 or body[p + 3] != 24:
        return 0
    if body[p + 4] != 96 or body[p + 5] != 64 or body[p + 6] != 130:
        return 0
    size = body[p + 7] + body[p + 8] * 256 + body[p + 9] * 65536
    block_end = p + 11 + size
    # a block that is stored uncompressed has the top bit set
    if body[p + 10] or size == 0 or size > 65536 or block_end + 4 > end:
        return 0
    if body[block_end] or body[block_end + 1] or body[block_end + 2] or body[block_end + 3]:
        return 0
    return block_end


def snappy_end(body: Readable, p: int, end: int) -> int:
    if end - p < 21 or buffer_access.int_at(body, p + 16) != end - p - 20:
        return 0
    if body[p] != 130 or body[p + 1] != 83 or body[p + 2] != 78 or body[p + 3] != 65:
        return 0
    if body[p + 4] != 80 or body[p + 5] != 80 or body[p + 6] != 89 or body[p + 7]:
        return 0
    if buffer_access.int_at(body, p + 8) != 1 or buffer_access.int_at(body, p + 12) != 1:
        return 0
    return end


def zstd_end(body: Readable, p: int, end: int) -> int:
    if end - p < 10 or body[p] != 40 or body[p + 1] != 181 or body[p + 2] != 47 or body[p + 3] != 253:
        return 0
    # a window above 128 MiB is rejected
    if body[p + 4] or body[p + 5] > 136:
        return 0
    header = body[p + 6] + body[p + 7] * 256 + body[p + 8] * 65536
    if header & 7 == 5 and (header >> 3) == end - p - 9:
        return end
    if header & 7 != 4 or (header >> 3) != end - p - 12:
        return 0
    return end if body[end - 3] == 1 and body[end - 2] == 0 and body[end - 1] == 0 else 0


def block_end(body: Readable, p: int, end: int, codec: int) -> int:
    if codec == 3:
        return lz4_end(body, p, end)
    if codec == 4:
        return zstd_end(body, p, end)
    return snappy_end(body, p, end) if codec == 2 else 0


def usual_block_end(body: Readable, codec: int) -> int:
    """The end of the single block in the body of a usual batch; 0 for every other batch. It begins at 0 (zstd), 11 (lz4) or 20 (snappy)."""
    return block_end(buffer_access.bytes_in(body), 0, len(body), codec)


def fill_bodies(
    view: memoryview,
    buf: Readable,
    row: int,
    stop: int,
    cells: Readable,
    capacity: int,
    fill: Callable[..., int],
    unreadable: type[Exception],
    room_bytes: int,
    room: memoryview,
    bounds: Writable,
    first: int,
    filled: int,
) -> int:
    """Decompress the usual batches from `row` on that have the codec of `row`; returns the first row that is not such a batch, or for which
    no room is left.

    view: a memoryview of the file, whose slices `fill` gets. buf: the same bytes. fill, unreadable, room_bytes: see `codec.Filler`. The
    content of row r goes to room[bounds[2i]:bounds[2i + 1]] with i = r − first, that of `row` to `filled`.
    """
    if capacity * C.BATCH_WIDTH > len(cells) or first < 0 or row < first or not row < stop <= capacity:
        raise ValueError("the table of batches is too small")
    source = buffer_access.bytes_in(buf)
    size_of_buf = len(buf)
    most = len(room) - room_bytes
    codec = cells[C.ATTRIBUTES * capacity + row] & C.CODEC_MASK
    begin = 0
    if codec != 4:
        begin = 11 if codec == 3 else 20
    while row < stop and filled <= most and 2 * (row - first) + 1 < len(bounds):
        start = cells[C.POSITION * capacity + row] + 61
        end = start - 61 + cells[C.SIZE * capacity + row]
        if cells[C.ATTRIBUTES * capacity + row] & C.CODEC_MASK != codec or start < 61 or end > size_of_buf:
            break
        end = block_end(source, start, end, codec)
        if end == 0:
            break
        try:
            if codec == 3:
                size = fill(view[start + begin : end], room[filled:], room_bytes)
            else:
                size = fill(view[start + begin : end], room[filled:])
        except unreadable:
            break
        if size < 0 or size > room_bytes:
            break
        bounds[2 * (row - first)] = filled
        filled = filled + size
        bounds[2 * (row - first) + 1] = filled
        row = row + 1
    return row
