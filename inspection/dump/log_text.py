"""Print a `.log` (or KRaft snapshot) line for line as DumpLogSegments 4.3 does, and continue after damage.

1. Heading: `Log starting offset` from the file's name, or the snapshot's end offset and epoch.
2. Batches are walked as Kafka walks them, trusting the length fields: a batch with a wrong checksum becomes a line with
   `isvalid: false`, and with deep iteration its records follow as far as they can be read.
3. Where Kafka's walk ends silently before the end of the file, its line `Found N invalid bytes at the end of …` is printed.
4. Where that walk ends before the file does, silently or with an exception, the scanner finds the next plausible batch,
   the bytes between become a finding, and the dump continues. Kafka's own output is a prefix of kseg's.

Events: `Text` blocks of whole lines, findings in between, in the order of the file.
"""

import os
from array import array
from collections.abc import Callable, Generator, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from kseg.inspection.dump.batch_filter import BatchFilter
from kseg.inspection.dump.decoded_records import DecodedRecords, RecordLines, plain_lines
from kseg.inspection.dump.open_log import catch_up
from kseg.inspection.dump.options import DumpOptions
from kseg.inspection.dump.output_block import Block
from kseg.jobs.events import Event
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import FormatError
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import dump_text as T
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import END, FULL, HEADER_CUT, PARTIAL, TOO_SMALL, next_remarkable
from kseg.segment.redaction import Redactor
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding, official_stop, undecodable
from kseg.segment.scanning.scan import Scanner

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable
    from kseg.segment.scanning.decode import Chunk, Decoder, Problem
    from kseg.segment.scanning.header_continuity import HeaderContinuity

# what makes kafka-dump-log.sh stop with an exception
STOPS = {TOO_SMALL: "CorruptRecordException", HEADER_CUT: "KafkaException"}

# The lengths of this many batches with wrong checksums in a row, each leading to the next, are trusted.
MAX_SUSPECTS = 256
# Going back after wrong lengths is limited, so that a hostile file is not printed repeatedly.
REWALK_ALLOWANCE_BYTES = 16 * 1024 * 1024
REWALK_FACTOR = 4
_NO_RECORDS = Columns(C.RECORD_WIDTH, 1)


class LogText:
    """Writes one file's batches as text. path: as shown. scanner: over the whole file. batch_filter: the selection."""

    def __init__(self, path: str, scanner: Scanner, options: DumpOptions, batch_filter: BatchFilter) -> None:
        self.path = path
        self.options = options
        self.batch_filter = batch_filter
        self.scanner = scanner
        self.seen: HeaderContinuity | None = None  # sees all batches of the walk
        self.size_bytes = len(self.scanner.view)
        self.end = options.end_of(self.size_bytes)
        deep = options.deep_iteration or options.print_data_log or batch_filter.needs_records
        self._flags = (
            (T.DEEP if deep else 0)
            | (T.CONTENTS if options.print_data_log else 0)
            | (T.SKIP_METADATA if options.skip_record_metadata else 0)
            | (T.ESCAPE if options.escape_control else 0)
        )
        decodes = options.decoder is not None and deep and options.print_data_log
        self._decoded = DecodedRecords(path, options) if decodes else None
        redactor = options.redactor if deep and options.print_data_log else None
        self._redactor = redactor if redactor is not None and redactor.concerns(path) else None
        self._block = Block(4096 + 4 * self.size_bytes)
        self._state = memoryview(array("q", bytes(8 * S.LINES_WIDTH)))
        # batches with wrong checksums that no valid batch has followed yet, so that their lengths may be wrong, too:
        # the position of the first, and how many they are
        self._suspect: int | None = None
        self._suspects = 0
        self._reported_to = 0
        self._rewalked_bytes = 0
        self._rewalk_limit_bytes = REWALK_ALLOWANCE_BYTES + REWALK_FACTOR * self.size_bytes

    @cached_property
    def decoder(self) -> "Decoder":
        from kseg.segment.scanning.decode import Decoder  # not needed for lines of batches

        return Decoder(self.scanner.view)

    def events(self, start: int = 0) -> Iterator[Event]:
        """All lines and findings of the file from position `start` on, where a batch begins."""
        position = start
        while position < self.end and not self.batch_filter.exhausted:
            if self._rewalked_bytes > self._rewalk_limit_bytes:
                yield from self._scan_rest(position)
                break
            reason = self.scanner.fill(position, self.end)
            table = self.scanner.table
            if table.count:
                last = table.count - 1
                position = table.at(C.POSITION, last) + table.at(C.SIZE, last)
                yield from self._check_batches(table)
                if self.seen is not None:
                    self.seen.note(table)
                yield from self._table(table)
            if reason != FULL and position < self.end:
                if reason in (END, PARTIAL) and self.end < self.size_bytes:
                    break  # the user's byte limit cuts a batch: that is no damage
                position = yield from self._after_walk_ends(position, reason)
        yield from self._settle(position)
        yield from self._block.flush()

    def catch_up(self, position: int) -> None:
        """Update the expected offset for valid data before `position`, whose lines are not needed."""
        catch_up(self.scanner, position)

    def write_into(self, room: Callable[[], memoryview]) -> None:
        self._block.write_into(room)

    def _scan_rest(self, position: int) -> Iterator[Event]:
        """The rest of a file with too many wrong lengths: batches with a wrong checksum are damage at once."""
        for block in self.scanner.blocks(position, self.end):
            if not isinstance(block, Damage):
                yield from self._check_batches(block)
                yield from self._table(block)
            elif block.position + block.length < self.end or self.end == self.size_bytes:
                yield from self._damage(block)
            if self.batch_filter.exhausted:
                return

    def _after_walk_ends(self, position: int, reason: int) -> Generator[Event, None, int]:
        """Handle the end of Kafka's walk before the end of the file: report it, and return the position of the next plausible batch."""
        if reason not in (END, PARTIAL):
            yield official_stop(self.path, position, STOPS[reason])
        elif self.batch_filter.everything and self.options.max_bytes == L.INT32_MAX:
            name = os.path.basename(self.path)
            line = f"Found {self.end - position} invalid bytes at the end of {name}\n"
            yield from self._block.append(line.encode(errors="surrogateescape"))
        if self._suspect is not None:
            suspect = max(self._suspect, self._reported_to)
            self._rewalked_bytes += max(0, position - suspect)
            position = suspect
            self._suspect, self._suspects = None, 0
            if position >= self.end or self.scanner.is_valid_at(position, self.end):
                return position
        damage = self.scanner.resync(position, self.end)
        self._reported_to = position + damage.length
        yield from self._damage(damage)
        return self._reported_to

    def _check_batches(self, table: Columns) -> Iterator[Event]:
        """Findings about the table's batches; those that no valid batch has followed yet are held back."""
        row = next_remarkable(table.cells, table.capacity, 0, table.count)
        if row > 0:
            yield from self._settle(table.at(C.POSITION, 0))
            self.scanner.remember_offsets(table, 0, row)
        while row < table.count:
            position, is_valid = table.at(C.POSITION, row), table.at(C.VALID, row) == 1
            if table.at(C.ATTRIBUTES, row) & L.CODEC_MASK > L.ZSTD:
                yield official_stop(self.path, position, "IllegalArgumentException")
            if not is_valid:
                self._suspect = position if self._suspect is None else self._suspect
                self._suspects += 1
            following = next_remarkable(table.cells, table.capacity, row + 1, table.count)
            if is_valid or following > row + 1 or self._suspects > MAX_SUSPECTS:
                yield from self._settle(position if is_valid else position + table.at(C.SIZE, row))
                self.scanner.remember_offsets(table, row if is_valid else row + 1, following)
            row = following

    def _settle(self, stop: int) -> Iterator[Event]:
        """Report damage among the held-back findings in the same terms as other commands. stop: where it ends."""
        if self._suspect is None:
            return
        position = max(self._suspect, self._reported_to)
        self._suspect, self._suspects = None, 0
        for damage in self.scanner.damage_between(position, stop, self.end):
            self._reported_to = damage.position + damage.length
            yield from self._damage(damage)

    def _damage(self, damage: Damage) -> Iterator[Event]:
        """Its finding, unless it is outside the selected offsets."""
        lost = damage.lost
        if not self.batch_filter.selection.leaves_out(lost.first_offset, lost.last_offset):
            yield damage_finding(self.path, damage)

    # --- batches and records

    def _table(self, table: Columns) -> Iterator[Event]:
        self._state[S.LINES_ROW] = 0
        if not self.batch_filter.everything:
            yield from self._filtered(table)
        elif self._flags & T.DEEP:
            for chunk in self.decoder.chunks(table):
                yield from self._chunk(table, chunk)
        else:
            yield from self._batches(table, table.count - 1)

    def _filtered(self, table: Columns) -> Iterator[Event]:
        rows = self.batch_filter.rows(table)
        if not self._flags & T.DEEP:
            for row in self.batch_filter.take_batches(table, rows):
                self._state[S.LINES_ROW] = row
                yield from self._batches(table, row)
            return
        for row in rows:
            self._state[S.LINES_ROW] = row
            for chunk in self.decoder.chunks(table, row, row + 1):
                for at in self.batch_filter.take_records(chunk):
                    yield from self._records(table, chunk, at, at + 1)
                if chunk.problem is not None:
                    yield from self._problem(table, chunk, chunk.problem)
            if self.batch_filter.exhausted:
                return

    def _chunk(self, table: Columns, chunk: "Chunk") -> Iterator[Event]:
        if chunk.control and not self.options.skip_record_metadata:
            yield from self._batches(table, chunk.last_row)
            for at in range(chunk.records.count):
                yield from self._records(table, chunk, at, at + 1)
        else:
            yield from self._records(table, chunk, 0, chunk.records.count)
        if chunk.problem is not None:
            yield from self._problem(table, chunk, chunk.problem)

    def _problem(self, table: Columns, chunk: "Chunk", problem: "Problem") -> Iterator[Event]:
        """Kafka's tool does not examine a message of an old format if it prints nothing from it: its line is empty."""
        row, count = problem.row, chunk.records.count
        is_message = table.at(C.MAGIC, row) < L.MAGIC_V2 and not table.at(C.ATTRIBUTES, row) & L.CODEC_MASK
        has_line = count and chunk.records.at(C.R_BATCH, count - 1) == row
        if is_message and not has_line and self._flags & (T.SKIP_METADATA | T.CONTENTS) == T.SKIP_METADATA:
            yield from self._batches(table, row)
            yield from self._block.append(b"\n")
        yield undecodable(self.path, table, problem)

    def _batches(self, table: Columns, last_row: int) -> Iterator[Event]:
        """Lines of the batches from state[LINES_ROW] to `last_row`, without their records."""
        yield from self._lines(b"", table, last_row, _NO_RECORDS, 0, 0, self._flags & ~T.DEEP)

    def _records(self, table: Columns, chunk: "Chunk", start: int, stop: int) -> Iterator[Event]:
        """Lines of a chunk's records start … stop − 1, each batch's own line before its first record."""
        last_row = chunk.last_row
        if self._redactor is not None and not chunk.control:
            yield from self._warn_of_secrets(self._redactor, chunk, start, stop)
        if self._decoded is not None and not chunk.control:
            lines = RecordLines(table, chunk, start, stop, self._flags, self._block, self._state)
            yield from self._decoded.events(lines)
            return
        yield from self._lines(chunk.body, table, last_row, chunk.records, start, stop, self._flags)
        if chunk.control and not self.options.skip_record_metadata:
            yield from self._control(chunk, start)

    def _warn_of_secrets(self, redactor: Redactor, chunk: "Chunk", start: int, stop: int) -> Iterator[Event]:
        """Once per file, a finding before lines that show a secret: the text is that of Kafka's tool, which redacts nothing."""
        from kseg.segment.scanning.decode import record_at

        records = (record_at(chunk, at) for at in range(start, stop))
        if any(redactor.redacted(self.path, each.key, each.value) is not None for each in records):
            self._redactor = None
            yield Finding(
                "secrets-shown",
                self.path,
                "the text shows secrets (passwords, credentials or keys), as Kafka's own dump tool does; "
                "--json and --format table do not",
            )

    def _control(self, chunk: "Chunk", at: int) -> Iterator[Event]:
        """The rest of a control record's line, which `_lines` has just started."""
        from kseg.segment.scanning.decode import record_at
        from kseg.segment.state.control import kafka_text, parse_control_record

        record = record_at(chunk, at)
        try:
            meaning = kafka_text(parse_control_record(record.key, record.value))
        except FormatError as error:
            yield Finding(
                "bad-control-record",
                self.path,
                f"the control record at offset {record.offset} cannot be parsed: {error}",
                first_offset=record.offset,
                last_offset=record.offset,
            )
            return
        self._block.reopen_line()
        yield from self._block.append(meaning.encode() + b"\n")

    def _lines(
        self,
        body: "Readable",
        table: Columns,
        last_row: int,
        records: Columns,
        start: int,
        stop: int,
        flags: int,
    ) -> Iterator[Event]:
        self._state[S.LINES_RECORD] = start
        return plain_lines(self._block, body, table, last_row, records, stop, flags, self._state)
