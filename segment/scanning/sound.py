"""Whether the records of batches are as they should be, without taking them to pieces.

`kernel.sound` looks: one call for a run of plain batches, one for each compressed batch behind its decompression.
It says yes to nearly every batch there is; who gets a no decodes that batch (`decode`) to see why.
"""

from kseg.segment import columns as C
from kseg.segment import layout as L
from kseg.segment.columns import Columns
from kseg.segment.errors import CodecError
from kseg.segment.kernel.sound import packed_sound, plain_sound
from kseg.segment.kernel.walk import packed_run
from kseg.segment.scanning.decode import MAX_BODY_BYTES


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


def _packed_until(view: memoryview, table: Columns, row: int, stop: int) -> int:
    from kseg.segment.codecs.codec import decompress  # here, so that plain batches do not wait for it

    cells, capacity = table.cells, table.capacity
    positions, sizes = table.column(C.POSITION), table.column(C.SIZE)
    attributes = table.column(C.ATTRIBUTES)
    while row < stop:
        start = positions[row]
        packed = view[start + L.BATCH_HEADER : start + sizes[row]]
        try:
            body = decompress(attributes[row] & L.CODEC_MASK, L.MAGIC_V2, packed, MAX_BODY_BYTES)
        except CodecError:
            return row
        if not packed_sound(body, cells, capacity, row):
            return row
        row += 1
    return row
