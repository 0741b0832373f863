"""Whether the records of a batch are valid, without decoding them into columns.

`kernel.validate` checks them: one call for a run of uncompressed batches, one for each compressed batch after its decompression.
Nearly every batch passes; a batch that does not is decoded (`decode`) to find out why.
"""

from collections.abc import Iterable

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.codecs.codec import MAX_BODY_BYTES, reader_of
from kseg.segment.errors import CodecError
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import compressed_run
from kseg.segment.kernel.validate import compressed_valid, plain_valid


def valid_until(view: memoryview, table: Columns, row: int, stop: int) -> int:
    """The first of the rows `row` … stop − 1 that deserves a closer look, `stop` when there is none.

    view: the whole file. table: of its batches. Of a sound batch every record can be read, its offsets rise within
    the batch's, and the greatest timestamp is the one in the header. Control batches other than a transaction's marker as brokers write
    it, and magic 0 and 1, are not judged.
    """
    cells, capacity = table.cells, table.capacity
    while row < stop:
        row = plain_valid(view, row, stop, cells, capacity)
        packed_end = compressed_run(cells, capacity, row, stop, L.INT64_MAX)
        if packed_end == row:
            return row
        row = _compressed_until(view, table, row, packed_end)
        if row < packed_end:
            return row
    return row


def invalid_rows(view: memoryview, table: Columns, rows: Iterable[int]) -> list[int]:
    """Which of `rows` need a closer look; see `valid_until`."""
    cells, capacity = table.cells, table.capacity
    attributes = table.column(C.ATTRIBUTES)
    return [
        row
        for row in rows
        if (
            _compressed_until(view, table, row, row + 1) == row
            if attributes[row] & L.CODEC_MASK
            else plain_valid(view, row, row + 1, cells, capacity) == row
        )
    ]


def _compressed_until(view: memoryview, table: Columns, row: int, stop: int) -> int:
    # magic 0 and 1 are decompressed in vain here, where anyone asks about them
    cells, capacity = table.cells, table.capacity
    columns = (at * capacity for at in (C.POSITION, C.SIZE, C.ATTRIBUTES))
    # as little as possible around each call of the library
    fields = (cells[column + row : column + stop].tolist() for column in columns)
    known_codec, read = -1, reader_of(L.NONE)
    for at, (start, size, attributes) in enumerate(zip(*fields, strict=True), row):
        try:
            if attributes & L.CODEC_MASK != known_codec:
                known_codec = attributes & L.CODEC_MASK
                read = reader_of(known_codec)
            body = read(view[start + L.BATCH_HEADER : start + size], L.MAGIC_V2, MAX_BODY_BYTES)
        except CodecError:
            return at
        if not compressed_valid(body, cells, capacity, at):
            return at
    return stop
