"""The decoded records of one copy, a chunk at a time, as far as they are requested.

The caller opens a run of batches at the cursor, takes chunk after chunk, and marks the records that the other copy does not have.
The cursor advances past the run when its last chunk has been taken.
"""

from array import array
from collections.abc import Callable, Iterator

from kseg.inspection.copies.copy_batches import CopyBatches, OffsetSpan
from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import compare_records as K
from kseg.segment.scanning.decode import RECORDS_PER_TABLE, Chunk, Decoder

TakeGaps = Callable[[Columns, Chunk, bytearray], None]


class Missing:
    """Offsets of records that one copy has and the other lacks, as ranges. ranges: only the first ones, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.ranges: list[OffsetSpan] = []
        self.records = 0
        self._limit = limit
        self._last: int | None = None

    def add(self, first: int, last: int, records: int) -> None:
        self.records += records
        if self.ranges and self._last is not None and self._last + 1 == first:
            self.ranges[-1] = OffsetSpan(self.ranges[-1].first, last)
        elif len(self.ranges) < self._limit:
            self.ranges.append(OffsetSpan(first, last))
        else:
            return
        self._last = last

    def add_flagged(self, records: Columns, flags: bytearray) -> None:
        """Add the flagged records of a table."""
        bounds, row = memoryview(array("q", (0, 0, 0))), 0
        while row < records.count:
            row = K.flagged_range(records.cells, records.capacity, row, records.count, flags, bounds)
            if bounds[2]:
                self.add(*bounds)

    def extend(self, later: "Missing") -> None:
        """Add the offsets collected after these."""
        records = self.records + later.records
        for each in later.ranges:
            self.add(each.first, each.last, 0)
        self.records = records


class RecordStream:
    """chunk, row: the current position; None if no run of batches is open. last_offset: of the run, by the headers. take_gaps:
    takes each chunk with marked records, before the next one."""

    def __init__(self, copy: CopyBatches, take_gaps: TakeGaps) -> None:
        self._copy = copy
        self._take_gaps = take_gaps
        self._decoder: Decoder | None = None
        self._chunks: Iterator[Chunk] = iter(())
        self._rows = 0
        self.chunk: Chunk | None = None
        self.row = 0
        self.flags = bytearray(RECORDS_PER_TABLE)
        self.last_offset = -1

    def open(self, rows: int) -> None:
        """Open a run of this many batches, at most `left` of the cursor."""
        copy = self._copy
        if self._decoder is None or self._decoder.view.obj is not copy.view.obj:
            self._decoder = Decoder(copy.view)
        self._rows = rows
        self.last_offset = copy.table.at(C.LAST_OFFSET, copy.row + rows - 1)
        self._chunks = self._decoder.chunks(copy.table, copy.row, copy.row + rows)
        self._next_chunk()

    @property
    def table(self) -> Columns:
        return self._copy.table

    def skip_exhausted(self) -> None:
        """Go on to the next chunk if this one is exhausted; after the last chunk the run ends."""
        while self.chunk is not None and self.row >= self.chunk.records.count:
            self._finish_chunk()
            self._next_chunk()

    def flag_rest(self, first_offset: int, last_offset: int) -> None:
        """The rest of the run has no counterpart: mark its records between these offsets."""
        while self.chunk is not None:
            records = self.chunk.records
            K.flag_rest(
                *(records.cells, records.capacity, self.row, records.count),
                *(first_offset, last_offset, self.flags),
            )
            self.row = records.count
            self.skip_exhausted()

    def _finish_chunk(self) -> None:
        assert self.chunk is not None
        count = self.chunk.records.count
        if self.flags.find(1, 0, count) >= 0:
            self._take_gaps(self._copy.table, self.chunk, self.flags)
            self.flags[:count] = bytes(count)

    def _next_chunk(self) -> None:
        self.chunk = next(self._chunks, None)
        self.row = 0
        if self.chunk is None:
            self._copy.advance(self._rows)
        elif self.chunk.problem is not None:
            self._copy.report_undecodable(self._copy.table, self.chunk.problem)
