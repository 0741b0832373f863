"""Whether the records of batches are as they should be, without taking them to pieces.

`kernel.validate` looks: one call for a run of plain batches, one for each compressed batch behind its decompression.
It says yes to nearly every batch there is; who gets a no decodes that batch (`decode`) to see why.
"""

from collections.abc import Iterable

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.codecs.codec import MAX_BODY_BYTES, decompress
from kseg.segment.errors import CodecError
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import packed_run
from kseg.segment.kernel.validate import packed_sound, plain_sound


def sound_until(view: memoryview, table: Columns, row: int, stop: int) -> int:
    """The first of the rows `row` … stop − 1 that deserves a closer look, `stop` when there is none.

    view: the whole file. table: of its batches. Of a sound batch every record can be read, its offsets rise within
    the batch's, and the greatest timestamp is the one in the header. Control batches and magic 0 and 1 are not judged.
    """
    cells, capacity = table.cells, table.capacity
    while row < stop:
        row = plain_sound(view, row, stop, cells, capacity)
        packed_end = packed_run(cells, capacity, row, stop, L.INT64_MAX)
        if packed_end == row:
            return row
        row = _packed_until(view, table, row, packed_end)
        if row < packed_end:
            return row
    return row


def unsound(view: memoryview, table: Columns, rows: Iterable[int]) -> list[int]:
    """Those of single `rows` that deserve a closer look; see `sound_until`."""
    cells, capacity = table.cells, table.capacity
    attributes = table.column(C.ATTRIBUTES)
    return [
        row
        for row in rows
        if (
            _packed_until(view, table, row, row + 1) == row
            if attributes[row] & L.CODEC_MASK
            else plain_sound(view, row, row + 1, cells, capacity) == row
        )
    ]


def _packed_until(view: memoryview, table: Columns, row: int, stop: int) -> int:
    # magic 0 and 1 are decompressed in vain here, where anyone asks about them
    cells, capacity = table.cells, table.capacity
    size_at, attributes_at = C.SIZE * capacity, C.ATTRIBUTES * capacity
    while row < stop:
        start = cells[row]
        packed = view[start + L.BATCH_HEADER : start + cells[size_at + row]]
        try:
            body = decompress(cells[attributes_at + row] & L.CODEC_MASK, L.MAGIC_V2, packed, MAX_BODY_BYTES)
        except CodecError:
            return row
        if not packed_sound(body, cells, capacity, row):
            return row
        row += 1
    return row
