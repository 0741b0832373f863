"""The batches and records of a `.log` as rows (JSON lines, table). Like the text, they continue after damage.

Unlike the text, rows follow the scanner and not Kafka's trusting walk: batches with a wrong checksum whose lengths
are corroborated (they lead exactly to the end of the damage) become rows with `"valid": false`, as do their records as far
as they can be decoded; any other damage is a finding only. The selection applies to them too, by the values in their headers.
"""

from collections.abc import Callable, Iterator

from kseg.inspection.dump.batch_filter import BatchFilter
from kseg.inspection.dump.open_log import catch_up
from kseg.inspection.dump.options import DumpOptions
from kseg.jobs.events import Event, Row
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.json_rows import batch_row, record_row
from kseg.segment.kernel.batch_walk import FULL
from kseg.segment.model import Batch, Record
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding, undecodable
from kseg.segment.scanning.decode import Chunk, Decoder, record_at
from kseg.segment.scanning.header_continuity import HeaderContinuity
from kseg.segment.scanning.scan import Scanner


class LogRows:
    """Yields one file's batches and records as `Row` events."""

    def __init__(self, path: str, scanner: Scanner, options: DumpOptions, batch_filter: BatchFilter) -> None:
        self.path = path
        self.options = options
        decoder = options.row_decoder
        self.row_decoder = None if decoder is None else decoder.for_log(path)
        self.batch_filter = batch_filter
        self.seen: HeaderContinuity | None = None  # sees all valid batches
        self.scanner = scanner
        self.decoder = Decoder(scanner.view)
        self.end = self._limit = options.end_of(len(self.scanner.view))
        self.is_deep = options.deep_iteration or options.print_data_log or batch_filter.needs_records

    def catch_up(self, position: int) -> None:
        """Update the state for valid data before `position`, as if its rows had been written."""
        catch_up(self.scanner, position)

    def write_into(self, room: Callable[[], memoryview]) -> None:
        """Rows are not text; see `LogJson`."""

    def events(self, start: int = 0) -> Iterator[Event]:
        """All rows and findings of the file from position `start` on, in the order of the file."""
        for block in self.scanner.blocks(start, self.end):
            if isinstance(block, Damage):
                if block.position + block.length == self._limit < len(self.scanner.view):
                    return  # the user's byte limit cuts a batch: that is no damage
                lost = block.lost
                if not self.batch_filter.selection.leaves_out(lost.first_offset, lost.last_offset):
                    yield damage_finding(self.path, block)
                yield from self._damaged_batches(block)
            else:
                if self.seen is not None:
                    self.seen.note(block)
                yield from self._table(block)
            if self.batch_filter.exhausted:
                return

    def _damaged_batches(self, damage: Damage) -> Iterator[Event]:
        """The batches of a damage span by their headers, if they fill it exactly."""
        if damage.kind != "bad-crc" or not self._is_filled(damage):
            return
        position, end = damage.position, damage.position + damage.length
        while position < end and not self.batch_filter.exhausted:
            self.scanner.fill(position, end)
            table = self.scanner.table
            position = _end_of(table)
            self.decoder.note_sets(table)
            yield from self._rows_of(table)

    def _is_filled(self, damage: Damage) -> bool:
        position, end = damage.position, damage.position + damage.length
        while position < end:
            reason = self.scanner.fill(position, end)
            table = self.scanner.table
            if (
                not table.count
                or not 0 <= min(table.column(C.MAGIC)) <= max(table.column(C.MAGIC)) <= L.MAGIC_V2
            ):
                return False
            position = _end_of(table)
            if reason != FULL and position < end:
                return False
        return True

    def _table(self, table: Columns) -> Iterator[Event]:
        self.decoder.note_sets(table)
        yield from self._rows_of(table)

    def _rows_of(self, table: Columns) -> Iterator[Event]:
        rows = self.batch_filter.rows(table)
        if not self.is_deep:
            for row in self.batch_filter.take_batches(table, rows):
                yield Row(batch_row(self.path, batch_at(table, row)))
            return
        for row in rows:
            yield from self._batch(table, row)
            if self.batch_filter.exhausted:
                return

    def _batch(self, table: Columns, row: int) -> Iterator[Event]:
        batch = batch_at(table, row)
        shown = not self.batch_filter.tests_records
        if shown:
            yield Row(batch_row(self.path, batch))
        for chunk in self.decoder.chunks(table, row, row + 1):
            taken = self.batch_filter.take_records(chunk)
            if taken and not shown:
                shown = True
                yield Row(batch_row(self.path, batch))
            for at in taken:
                yield Row(self._record(batch, record_at(chunk, at)))
            yield from self._problem(table, chunk)

    def _record(self, batch: Batch, record: Record) -> dict[str, object]:
        options = self.options
        return record_row(self.path, batch, record, options.bytes_mode, self.row_decoder)

    def _problem(self, table: Columns, chunk: Chunk) -> Iterator[Event]:
        if chunk.problem is not None:
            yield undecodable(self.path, table, chunk.problem)


def _end_of(table: Columns) -> int:
    last = table.count - 1
    return table.at(C.POSITION, last) + table.at(C.SIZE, last)
