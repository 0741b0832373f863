"""A `Consumer` that finds batches with a valid checksum from which consumers do not get every record, without opening each batch.

The deep level decodes every batch, so only those that `records_check` rejected are examined here. The default level opens only
batches whose header or first two records are suspicious (`validate.next_doubtful`), and those followed by missing offsets. `unread_batch`
determines what is in them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kseg.recovery.verify.segment_check import Consumer
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.validate import next_doubtful
from kseg.segment.scanning.lost_offsets import UnreadBatch

if TYPE_CHECKING:
    from kseg.recovery.verify.records_check import RecordsCheck
    from kseg.recovery.verify.unread_batch import BatchReader

# If this many compressed batches before gaps were decompressed without a finding, the remaining gaps are attributed to compaction.
_GAPS = 64


class UnreadRecords(Consumer):
    """A `Consumer`. found: batches of which not every record is returned, or whose header declares another number. next_base: base offset
    of the next segment. records: has taken the same rows before, and reported what is wrong with their records; None if the records are not
    decoded."""

    def __init__(
        self, path: str, view: memoryview, next_base: int | None, records: "RecordsCheck | None" = None
    ) -> None:
        self.found: list[UnreadBatch] = []
        self._path = path
        self._view = view
        self._next_base = next_base
        self._records = records
        self._gaps = _GAPS
        self._reader: BatchReader | None = None

    def take(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        if self._records is not None:
            for row in self._records.taken_apart:
                if table.at(C.MAGIC, row) == L.MAGIC_V2 and not _is_emptied(table, row):
                    yield from self._judge(table, row)
            return
        row, judged, cells, capacity = first, -1, table.cells, table.capacity
        while (row := next_doubtful(self._view, row, stop, cells, capacity, self._gaps > 0)) < stop:
            yield from self._judge(table, row)
            judged, row = row, row + 1
        if judged != stop - 1 and self._is_open_end(table, stop - 1):
            yield from self._judge(table, stop - 1)

    def _is_open_end(self, table: Columns, row: int) -> bool:
        """Whether this is the last batch of the segment and nothing after it shows where its offsets end."""
        end = table.at(C.POSITION, row) + table.at(C.SIZE, row)
        is_compressed = table.at(C.MAGIC, row) == L.MAGIC_V2 and table.at(C.ATTRIBUTES, row) & L.CODEC_MASK
        is_open = self._next_base != table.at(C.LAST_OFFSET, row) + 1
        return bool(is_compressed) and end == len(self._view) and is_open

    def _judge(self, table: Columns, row: int) -> Iterator[Finding]:
        if self._reader is None:
            from kseg.recovery.verify.unread_batch import BatchReader  # most logs do not need it

            self._reader = BatchReader(self._path, self._view, is_deep=self._records is not None)
        if self._reader.is_doubtful(table, row):
            yield from self._reader.findings(table, row)
            self.found += self._reader.unread(table, row)
        elif table.at(C.COUNT, row) == table.at(C.LAST_OFFSET, row) - table.at(C.BASE_OFFSET, row) + 1:
            self._gaps -= 1


def _is_emptied(table: Columns, row: int) -> bool:
    """Whether the cleaner has removed all records of a batch; it keeps the codec in the header."""
    return table.at(C.COUNT, row) == 0 and table.at(C.SIZE, row) == L.BATCH_HEADER
