"""Lines of records with decoded keys and values: the kernel writes the readable ones, the others are decoded one by one.

If the decoder has no kernel program, or if control characters are escaped for a terminal, all records are decoded one by one.
"""

import re
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kseg.inspection.dump.options import DumpOptions
from kseg.inspection.dump.output_block import Block, Buffer
from kseg.jobs.events import Event
from kseg.segment import header_tables as C
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import decoded_lines as D
from kseg.segment.kernel import dump_text as T
from kseg.segment.kernel import message_fields as M
from kseg.segment.kernel import state_fields as S
from kseg.segment.record_decoder import RecordText
from kseg.segment.scanning.decode import Chunk, record_at
from kseg.segment.terminal import CONTROL
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable


@dataclass(frozen=True, slots=True)
class RecordLines:
    """The lines to write: records start … stop − 1 of a chunk, each batch's line before its first record. state: of `format_lines`."""

    table: Columns
    chunk: Chunk
    start: int
    stop: int
    flags: int
    block: Block
    state: memoryview


class DecodedRecords:
    """Writes the records of one file."""

    def __init__(self, path: str, options: DumpOptions) -> None:
        assert options.decoder is not None
        self.path = path
        self._decoder = options.decoder
        self._escape = options.escape_control
        self._program = None if options.escape_control else options.decoder.program()
        self._message_state = memoryview(array("q", bytes(8 * M.LINES_STATE_WIDTH)))
        self._has_crashed = False

    def events(self, lines: RecordLines) -> Iterator[Event]:
        """The lines, and once per file a finding where Kafka's tool would fail."""
        state, records = lines.state, lines.chunk.records
        state[S.LINES_RECORD] = lines.start
        while True:
            if self._program is not None:
                yield from self._by_program(self._program, lines)
                if not self._message_state[M.STAGE]:
                    return
            at = state[S.LINES_RECORD]
            if at >= lines.stop:
                break
            yield from _plain(lines, records.at(C.R_BATCH, at), at + 1)
            yield from self._one(lines, at)
        yield from _plain(lines, lines.chunk.last_row, lines.stop)

    def _by_program(self, program: tuple[memoryview, bytes], lines: RecordLines) -> Iterator[Event]:
        """All lines up to the end or to a record that cannot be read."""
        table, chunk, state, stopped = lines.table, lines.chunk, lines.state, self._message_state
        ops, names = program

        def put(out: Buffer, filled: int) -> int:
            return D.format_decoded(
                ops,
                names,
                chunk.body,
                *table.raw,
                chunk.last_row,
                *chunk.records.raw,
                lines.stop,
                lines.flags,
                out,
                filled,
                state,
                stopped,
            )

        def is_finished() -> bool:
            return bool(stopped[M.STAGE]) or (
                state[S.LINES_ROW] > chunk.last_row and state[S.LINES_RECORD] >= lines.stop
            )

        return lines.block.fill(put, is_finished)

    def _one(self, lines: RecordLines, at: int) -> Iterator[Event]:
        """The rest of the line of record `at`, after its metadata."""
        record = record_at(lines.chunk, at)
        text = self._decoder.text(record.offset, record.key, record.value)
        parts = self._shown(text)
        if parts:
            lines.block.reopen_line()
            bar = b"|" if lines.flags & T.SKIP_METADATA else b""
            yield from lines.block.append(bar + parts + b"\n")
        if text.crash is not None and not self._has_crashed:
            self._has_crashed = True
            yield from lines.block.flush()
            yield self._crash(lines, at, text.crash)

    def _crash(self, lines: RecordLines, at: int, exception: str) -> Finding:
        offset = lines.chunk.records.at(C.R_OFFSET, at)
        return Finding(
            "undecodable-record",
            self.path,
            f"the record at offset {offset} cannot be decoded: Kafka's own dump tool ends here with {exception}; this dump continues",
            position=lines.table.at(C.POSITION, lines.chunk.records.at(C.R_BATCH, at)),
            first_offset=offset,
            last_offset=offset,
            numbers={"exception": exception},
        )

    def _shown(self, text: RecordText) -> bytes:
        key = b"" if text.key is None else b" key: " + text.key
        payload = b"" if text.payload is None else b" payload: " + text.payload
        if not self._escape:
            return key + payload
        shown = (key + payload).decode("utf-8", "surrogatepass")
        return re.sub(f"[{CONTROL}]", lambda match: f"\\x{ord(match[0]):02x}", shown).encode()


def _plain(lines: RecordLines, last_row: int, stop: int) -> Iterator[Event]:
    """Batches up to `last_row` and the metadata of the records before `stop` that are not yet written."""
    chunk, flags = lines.chunk, lines.flags & ~T.CONTENTS
    return plain_lines(
        lines.block, chunk.body, lines.table, last_row, chunk.records, stop, flags, lines.state
    )


def plain_lines(
    block: Block,
    body: "Readable",
    table: Columns,
    last_row: int,
    records: Columns,
    stop: int,
    flags: int,
    state: memoryview,
) -> Iterator[Event]:
    """Batches up to `last_row` and records before `stop` that are not yet written, with undecoded keys and values."""

    def put(out: Buffer, at: int) -> int:
        return T.format_lines(body, *table.raw, last_row, *records.raw, stop, flags, out, at, state)

    def is_finished() -> bool:
        return state[S.LINES_ROW] > last_row and (not flags & T.DEEP or state[S.LINES_RECORD] >= stop)

    return block.fill(put, is_finished)
