"""The records with one key, from tables of batches: a batch without the key creates no objects, and is decompressed only once.

1. `kernel.key_search` runs over the rows whose records are uncompressed in the file, and over those whose header the limits exclude,
   until one has to be decoded or decompressed.
2. Compressed batches are decompressed run by run (`decompressed_runs`), and the kernel continues in the decompressed bytes. Transaction
   markers, which are between the batches of every transactional log, do not end a run.
3. Only batches that contain the key, or are invalid, are decoded into columns, from the bytes that are decompressed already.
"""

from array import array
from collections.abc import Iterator

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.codecs.codec import MAX_BODY_BYTES
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import key_search
from kseg.segment.scanning.decode import Chunk, Decoder
from kseg.segment.scanning.decompressed_runs import DecompressedRun, DecompressionBuffer

_NO_BOUNDS = memoryview(array("q"))


class KeyedRecords:
    """Finds the records of one key in the batches of one file.

    view: the whole file. lowest_offset, below_offset, earliest_ms: limits that the header of a batch must meet (inclusive,
    exclusive, inclusive); the caller tests each record against them as well.
    """

    def __init__(
        self, view: memoryview, key: bytes, lowest_offset: int, below_offset: int, earliest_ms: int
    ) -> None:
        self._view = view
        self._key = key
        self._limits = memoryview(array("q", (lowest_offset, below_offset, earliest_ms)))
        self._bodies: DecompressionBuffer | None = None
        self._decoder: Decoder | None = None

    def chunks(self, table: Columns) -> Iterator[Chunk]:
        """In order, the decoded records of each batch that may contain the key or cannot be decoded completely.

        A chunk is valid until the next one.
        """
        row = 0
        while (row := self._next(table, row)) < table.count:
            stop = key_search.run_end(row, table.count, table.cells, table.capacity, self._limits)
            if not table.at(C.ATTRIBUTES, row) & L.CODEC_MASK or stop == row:
                # uncompressed, of an old format, or unusual
                stop = row + 1 if table.at(C.MAGIC, row) >= L.MAGIC_V2 else self._end_of_legacy(table, row)
                yield from self._decoding.chunks(table, row, stop)
            else:
                yield from self._packed(table, row, stop)
            row = stop

    def rows(self, chunk: Chunk) -> Iterator[int]:
        """The records of a chunk that have the key."""
        if chunk.control:
            return
        records, at = chunk.records, -1
        while (at := self._next_of_key(chunk, at + 1)) < records.count:
            yield at

    @property
    def _decoding(self) -> Decoder:
        if self._decoder is None:
            self._decoder = Decoder(self._view)
        return self._decoder

    def _next(self, table: Columns, row: int) -> int:
        return key_search.next_candidate(
            self._view, b"", _NO_BOUNDS, row, row, table.count, *table.raw, self._limits, self._key
        )

    def _next_of_key(self, chunk: Chunk, at: int) -> int:
        records = chunk.records
        return key_search.next_of_key(
            chunk.body, records.cells, records.capacity, at, records.count, self._key
        )

    def _end_of_legacy(self, table: Columns, row: int) -> int:
        while row < table.count and table.at(C.MAGIC, row) < L.MAGIC_V2:
            row += 1
        return row

    def _packed(self, table: Columns, first: int, stop: int) -> Iterator[Chunk]:
        """Like `chunks`, for a run of compressed batches and the uncompressed ones between them."""
        if self._bodies is None:
            self._bodies = DecompressionBuffer()
        for run in self._bodies.runs(self._view, table, first, stop, MAX_BODY_BYTES):
            if run.problem is not None:
                yield from self._decoding.chunks(table, run.first, run.stop)
                continue
            row = run.first
            while (row := self._next_in_run(table, run, row)) < run.stop:
                at = 2 * (row - run.first)
                if table.at(C.ATTRIBUTES, row) & L.CODEC_MASK:
                    yield from self._decoding.body(table, row, run.body, run.bounds[at], run.bounds[at + 1])
                else:
                    yield from self._decoding.chunks(table, row, row + 1)
                row += 1

    def _next_in_run(self, table: Columns, run: DecompressedRun, row: int) -> int:
        return key_search.next_candidate(
            self._view, run.body, run.bounds, run.first, row, run.stop, *table.raw, self._limits, self._key
        )
