"""Whether the records of a batch are valid, without decoding them into columns.

`kernel.validate` checks them: one call for a run of batches, compressed ones after their decompression.
Nearly every batch passes; a batch that does not is decoded (`decode`) to find out why.
"""

from array import array
from collections.abc import Iterable

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.codecs.codec import MAX_BODY_BYTES
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import compressed_run
from kseg.segment.kernel.validate import compressed_valid, plain_valid
from kseg.segment.scanning.decompressed_runs import DecompressionBuffer


def valid_until(view: memoryview, table: Columns, row: int, stop: int) -> int:
    """The first of the rows `row` … stop − 1 that needs a closer look, `stop` if there is none.

    view: the whole file. table: of its batches. In a valid batch every record can be read, offsets increase within those of
    the batch, and the greatest timestamp is that of the header. Control batches other than transaction markers as brokers write
    them, and batches of magic 0 and 1, are not checked.
    """
    cells, capacity = table.cells, table.capacity
    bodies = DecompressionBuffer()
    while row < stop:
        row = plain_valid(view, row, stop, cells, capacity)
        packed_end = compressed_run(cells, capacity, row, stop, L.INT64_MAX)
        if packed_end == row:
            return row
        row = _compressed_until(view, table, row, packed_end, bodies)
        if row < packed_end:
            return row
    return row


def mark_sound(view: memoryview, table: Columns) -> None:
    """Record in the table which batches have only valid records."""
    row, bodies = 0, table.column(C.BODY)
    while row < table.count:
        sound = valid_until(view, table, row, table.count)
        bodies[row:sound] = memoryview(array("q", [C.BODY_SOUND]) * (sound - row))
        row = sound + 1


def invalid_rows(view: memoryview, table: Columns, rows: Iterable[int]) -> list[int]:
    """The `rows` that need a closer look; see `valid_until`."""
    cells, capacity = table.cells, table.capacity
    attributes = table.column(C.ATTRIBUTES)
    bodies = DecompressionBuffer()
    return [
        row
        for row in rows
        if (
            _compressed_until(view, table, row, row + 1, bodies) == row
            if attributes[row] & L.CODEC_MASK
            else plain_valid(view, row, row + 1, cells, capacity) == row
        )
    ]


def _compressed_until(
    view: memoryview, table: Columns, row: int, stop: int, bodies: DecompressionBuffer
) -> int:
    # there is no fast check for magic 0 and 1, so decompressing them here would be wasted
    for run in bodies.runs(view, table, row, stop, MAX_BODY_BYTES):
        if run.problem is not None:
            return run.first
        valid = compressed_valid(run.body, run.bounds, run.first, run.stop, *table.raw)
        if valid < run.stop:
            return valid
    return stop
