"""Runs of compressed batches of magic 2, decompressed one after the other into a buffer that stays in the CPU cache.

A kernel call for a whole run of bodies costs as much as a call for one, so the bodies of many batches are collected first, which is a
copy within the cache. Buffer and bounds are reused: they are valid until the next run.
"""

from array import array
from collections.abc import Iterator

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.codecs.codec import decompress, filler
from kseg.segment.errors import CodecError
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.usual_blocks import fill_bodies
from kseg.segment.values import dataclass

BODY_BYTES = 256 * 1024
MAX_BODIES = 512


@dataclass(frozen=True, slots=True)
class DecompressedRun:
    """The rows first … stop − 1 of a table of batches.

    body: the buffer with their bodies, that of row r in body[bounds[2i]:bounds[2i + 1]] with i = r − first. problem: why the only row of
    this run could not be decompressed, as text; then there is no body.
    """

    first: int
    stop: int
    body: memoryview
    bounds: memoryview
    problem: str | None = None


class DecompressionBuffer:
    """The buffer, reused for each run."""

    def __init__(self) -> None:
        self._body = memoryview(b"")
        self._bounds = memoryview(array("q"))

    def runs(
        self, view: memoryview, table: Columns, first: int, stop: int, limit_bytes: int
    ) -> Iterator[DecompressedRun]:
        """The rows first … stop − 1, all of them batches of magic 2, in order and in runs that fit into the buffer.

        A body that is larger than the buffer is a run of its own. That of an uncompressed batch stays in the file: its bounds in the buffer
        are empty. view: the file. limit_bytes: the maximum size of one body.
        """
        if not self._body:
            self._body = memoryview(bytearray(BODY_BYTES))
            self._bounds = memoryview(array("q", bytes(16 * MAX_BODIES)))
        room, bounds = self._body, self._bounds
        begin, filled, reached = first, 0, first
        known_codec, known = L.NONE, filler(L.NONE)
        # as little overhead as possible around each call of the library
        fields = (table.column(field)[first:stop].tolist() for field in (C.POSITION, C.SIZE, C.ATTRIBUTES))
        for row, (start, size, attributes) in enumerate(zip(*fields, strict=True), first):
            if row < reached:
                continue
            codec = attributes & L.CODEC_MASK
            if codec != known_codec:
                known_codec, known = codec, filler(codec)
                if known is not None and limit_bytes < known.room_bytes:
                    known = None
            if row - begin == MAX_BODIES or (known is not None and filled > BODY_BYTES - known.room_bytes):
                yield DecompressedRun(begin, row, room, bounds)
                begin, filled = row, 0
            at = 2 * (row - begin)
            if not codec:
                bounds[at] = bounds[at + 1] = filled
                continue
            if known is not None:
                reached = fill_bodies(
                    view,
                    view,
                    row,
                    stop,
                    *table.raw,
                    known.fill,
                    known.unreadable,
                    known.room_bytes,
                    room,
                    bounds,
                    begin,
                    filled,
                )
                if reached > row:
                    filled = bounds[2 * (reached - begin) - 1]
                    continue
            try:
                content = decompress(
                    codec, L.MAGIC_V2, view[start + L.BATCH_HEADER : start + size], limit_bytes
                )
            except CodecError as error:
                if row > begin:
                    yield DecompressedRun(begin, row, room, bounds)
                begin, filled = row + 1, 0
                yield DecompressedRun(row, begin, memoryview(b""), bounds, str(error))
                continue
            put = len(content)
            if filled + put > BODY_BYTES:
                if row > begin:
                    yield DecompressedRun(begin, row, room, bounds)
                begin, filled = row, 0
                if put > BODY_BYTES:
                    begin = row + 1
                    yield DecompressedRun(row, begin, content, memoryview(array("q", (0, put))))
                    continue
            room[filled : filled + put] = content
            at = 2 * (row - begin)
            bounds[at] = filled
            bounds[at + 1] = filled = filled + put
        if begin < stop:
            yield DecompressedRun(begin, stop, room, bounds)
