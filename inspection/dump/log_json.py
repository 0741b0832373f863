"""Write the batches and records of a `.log` as JSON lines in the kernel: the same rows as `log_rows`.

The kernel writes whole tables; special cases (control records, a narrowed selection, other
ways of showing bytes, decoded records with remarks) are left to the rows, which produce the same lines one at a time.
"""

from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kseg.inspection.dump.batch_filter import BatchFilter
from kseg.inspection.dump.log_rows import LogRows
from kseg.inspection.dump.options import DumpOptions
from kseg.inspection.dump.output_block import Block, Buffer
from kseg.jobs.events import Event, Row, Text
from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.json_line import compact_json, json_line
from kseg.segment.json_rows import record_row
from kseg.segment.kernel import message_fields as M
from kseg.segment.kernel import message_rows as R
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.json_lines import format_json
from kseg.segment.kernel.json_strings import AUTO, TEXT
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.decode import Chunk, record_at
from kseg.segment.scanning.scan import Scanner

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable

MODES = {"auto": AUTO, "utf8": TEXT}


class LogJson(LogRows):
    """Yields one file's batches and records as `Text` events of JSON lines."""

    def __init__(self, path: str, scanner: Scanner, options: DumpOptions, batch_filter: BatchFilter) -> None:
        super().__init__(path, scanner, options, batch_filter)
        self._file = compact_json(path).encode("utf-8", "backslashreplace")
        self._program = None if self.row_decoder is None else self.row_decoder.program()
        is_left_to_rows = self.row_decoder is not None and self._program is None
        self._is_plain = batch_filter.everything and not is_left_to_rows and options.bytes_mode in MODES
        self._block = Block()
        self._state = memoryview(array("q", bytes(8 * S.LINES_WIDTH)))
        self._message_state = memoryview(array("q", bytes(8 * M.ROWS_STATE_WIDTH)))

    def events(self, start: int = 0) -> Iterator[Event]:
        for event in super().events(start):
            if isinstance(event, Row):
                yield from self._block.append(json_line(event.values))
                continue
            if not isinstance(event, Text):
                # a finding comes after the lines of everything before it in the file
                yield from self._block.flush()
            yield event
        yield from self._block.flush()

    def write_into(self, room: Callable[[], memoryview]) -> None:
        self._block.write_into(room)

    def _table(self, table: Columns) -> Iterator[Event]:
        if not self._is_plain:
            yield from super()._table(table)
            return
        self.decoder.note_sets(table)
        self._state[S.LINES_ROW] = 0
        if not self.is_deep:
            yield from self._lines(b"", table, table.count - 1, self.decoder.records, 0)
            return
        for chunk in self.decoder.chunks(table):
            if chunk.control:
                yield from self._control(table, chunk)
            elif self._program is not None:
                yield from self._messages(self._program, table, chunk)
            else:
                yield from self._lines(chunk.body, table, chunk.last_row, chunk.records, chunk.records.count)
            yield from self._problem(table, chunk)

    def _control(self, table: Columns, chunk: Chunk) -> Iterator[Event]:
        yield from self._lines(b"", table, chunk.last_row, chunk.records, 0)
        batch = batch_at(table, chunk.last_row)
        for at in range(chunk.records.count):
            yield Row(record_row(self.path, batch, record_at(chunk, at), self.options.bytes_mode))

    def _messages(self, program: tuple[memoryview, bytes], table: Columns, chunk: Chunk) -> Iterator[Event]:
        """Like `_lines`, for records that are messages; the kernel stops at those that it leaves to the rows."""
        ops, names = program
        records, stop = chunk.records, chunk.records.count
        state, stopped = self._state, self._message_state
        file, mode = self._file, MODES[self.options.bytes_mode]
        state[S.LINES_RECORD] = 0

        def put(out: Buffer, filled: int) -> int:
            return R.format_rows(
                ops,
                names,
                chunk.body,
                *table.raw,
                chunk.last_row,
                *records.raw,
                stop,
                mode,
                file,
                out,
                filled,
                state,
                stopped,
            )

        def is_finished() -> bool:
            return bool(stopped[M.STOPPED]) or (
                state[S.LINES_ROW] > chunk.last_row and state[S.LINES_RECORD] >= stop
            )

        while True:
            yield from self._block.fill(put, is_finished)
            if not stopped[M.STOPPED]:
                return
            record = record_at(chunk, state[S.LINES_RECORD])
            batch = batch_at(table, records.at(C.R_BATCH, state[S.LINES_RECORD]))
            yield Row(self._record(batch, record))
            state[S.LINES_RECORD] += 1

    def _lines(
        self, body: "Readable", table: Columns, last_row: int, records: Columns, stop: int
    ) -> Iterator[Event]:
        """Batch rows up to `last_row` that are not yet written, and records 0 … stop − 1 of `records`."""
        state, file, mode = self._state, self._file, MODES[self.options.bytes_mode]
        state[S.LINES_RECORD] = 0

        def put(out: Buffer, filled: int) -> int:
            return format_json(body, *table.raw, last_row, *records.raw, stop, mode, file, out, filled, state)

        def is_finished() -> bool:
            return state[S.LINES_ROW] > last_row and state[S.LINES_RECORD] >= stop

        return self._block.fill(put, is_finished)
