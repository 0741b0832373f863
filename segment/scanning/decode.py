"""Decode batches into tables of records: used by dump, verify, lookup and the Spark source.

The rows of a table of batches are processed in runs. Consecutive uncompressed batches are decoded directly from the file's bytes in one
kernel call. Consecutive compressed ones are decompressed (with a size limit) into one buffer (`decompressed_runs`) and decoded from there
in one call; one that does not fit is decoded alone, and so are the wrappers of magic 0 and 1. Control batches are decoded alone too,
because callers need each of their records. A batch that cannot be decoded becomes a `Problem`, and decoding continues after it.
"""

from array import array
from collections.abc import Generator, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from kseg.segment import crc
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.codecs.codec import MAX_BODY_BYTES, decompress
from kseg.segment.errors import CodecError
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import record_walk as R
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import compressed_run, first_uncounted, plain_run
from kseg.segment.model import Headers, Record
from kseg.segment.scanning.decompressed_runs import (
    BODY_BYTES,
    MAX_BODIES,
    DecompressedRun,
    DecompressionBuffer,
)
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from types import ModuleType

    from kseg.segment.kernel.buffer_types import ReadableBuffer

RECORDS_PER_TABLE = 8192 + 8  # not a power of two, see `scan.BATCHES_PER_TABLE`
# A small file gets a small table, see `scan`.
_MIN_ROWS = 128
_OFFSET_BYTES = 8
_BYTES_PER_ROW = 16


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the records of a batch could not (all) be decoded. row: of the batch. code: from `kernel.record_walk`, or
    None if decompression failed. sentence: the reason as text."""

    row: int
    code: int | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Decoded records of the batch rows `first_row` … `last_row`.

    body: the buffer to which the positions in `records` refer. records: shared with the decoder like the body, valid
    until the next chunk. complete: all records of the last row were returned (False: the next chunk continues with it).
    problem: of row `last_row`; the records before it are in the table.
    """

    body: "ReadableBuffer"
    records: Columns
    first_row: int
    last_row: int
    complete: bool
    control: bool
    problem: Problem | None

    def size_in(self, table: Columns) -> int:
        """The number of file bytes that are read for this chunk. A batch of several chunks counts in its last one."""
        end = table.at(C.POSITION, self.last_row)
        if self.complete:
            end += table.at(C.SIZE, self.last_row)
        return end - table.at(C.POSITION, self.first_row)


class Decoder:
    """Decodes batches of one file. view: the whole file."""

    def __init__(
        self, view: "ReadableBuffer", capacity: int = RECORDS_PER_TABLE, limit_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self.view = memoryview(view)
        self._rows = min(capacity, _MIN_ROWS + len(self.view) // _BYTES_PER_ROW)
        self.limit_bytes = limit_bytes
        self._state = memoryview(array("q", bytes(8 * S.WALK_WIDTH)))
        self._bodies = DecompressionBuffer()

    @cached_property
    def records(self) -> Columns:
        """The table of records. Allocated for the first record, since many decoders never need it."""
        return Columns(C.RECORD_WIDTH, self._rows)

    def chunks(self, table: Columns, first: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        """The records of rows first … stop − 1 of a table of batches, in order."""
        end = table.count if stop is None else stop
        row = first
        while row < end:
            run_end = plain_run(table.cells, table.capacity, row, end)
            if run_end > row:
                yield from self._plain(table, row, run_end - 1)
                row = run_end
                continue
            most = min(end, row + MAX_BODIES)
            run_end = compressed_run(table.cells, table.capacity, row, most, self.records.capacity)
            if run_end > row + 1:
                yield from self._compressed(table, row, run_end)
                row = run_end
            else:
                yield from self._single(table, row)
                row += 1

    def note_sets(self, table: Columns) -> None:
        """Set the first offset and the count of the compressed sets of old formats in a table, which their headers do not contain.
        A set that cannot be decoded keeps the values of its header: no count, and the last offset as the first one."""
        if first_uncounted(table.cells, table.capacity, table.count) == table.count:
            return
        for row in range(table.count):
            if table.at(C.COUNT, row) < 0 and table.at(C.MAGIC, row) < L.MAGIC_V2:
                bounds = self._bounds_of_set(table, row)
                if bounds is not None:
                    table.column(C.BASE_OFFSET)[row], table.column(C.COUNT)[row] = bounds

    def _bounds_of_set(self, table: Columns, row: int) -> tuple[int, int] | None:
        """(offset of its first message, number of its messages) of a compressed set; None if unknown."""
        start = table.at(C.POSITION, row)
        last_offset = table.at(C.LAST_OFFSET, row)
        try:
            body, base_offset = self._set_body(table, row, start, start + table.at(C.SIZE, row))
            count = _messages().count_messages(body)[0]
        except CodecError:
            return None
        first_offset = base_offset + int.from_bytes(memoryview(body)[:_OFFSET_BYTES], "big", signed=True)
        return (first_offset, count) if count and 0 <= first_offset <= last_offset else None

    # --- runs of uncompressed batches

    def _plain(self, table: Columns, first: int, last: int) -> Iterator[Chunk]:
        while first <= last:
            first = yield from self._plain_until_problem(table, first, last)

    def _plain_until_problem(self, table: Columns, first: int, last: int) -> Generator[Chunk, None, int]:
        state, records = self._state, self.records
        self._begin(first)
        read = R.read_plain if table.at(C.MAGIC, first) >= L.MAGIC_V2 else _messages().read_messages
        while True:
            state[S.WALK_COUNT] = 0
            outcome = read(
                self.view, last, table.cells, table.capacity, records.cells, records.capacity, state
            )
            records.count = state[S.WALK_COUNT]
            row = state[S.WALK_ROW]
            if outcome == R.BODY_DONE:
                yield Chunk(self.view, records, first, last, True, False, None)
                return last + 1
            if outcome == R.BODY_BAD:
                yield Chunk(self.view, records, first, row, True, False, self._problem(row))
                return row + 1
            if records.count:
                yield Chunk(
                    self.view, records, first, records.at(C.R_BATCH, records.count - 1), False, False, None
                )
            first = row

    # --- runs of compressed batches

    def _compressed(self, table: Columns, first: int, stop: int) -> Iterator[Chunk]:
        for run in self._bodies.runs(self.view, table, first, stop, self.limit_bytes):
            if run.problem is not None:
                self.records.count = 0
                problem = Problem(run.first, None, run.problem)
                yield Chunk(b"", self.records, run.first, run.first, True, False, problem)
            elif len(run.body) > BODY_BYTES:
                yield from self.body(table, run.first, run.body, 0, len(run.body))
            else:
                yield from self._records_of(table, run)

    def _records_of(self, table: Columns, run: DecompressedRun) -> Iterator[Chunk]:
        """The records of a run, all of which fit into the table of records."""
        state, records, first, last = self._state, self.records, run.first, run.stop - 1
        while first <= last:
            self._begin(first)
            state[S.WALK_COUNT] = 0
            outcome = R.read_bodies(run.body, run.bounds, run.first, last, *table.raw, *records.raw, state)
            records.count = state[S.WALK_COUNT]
            row = last if outcome == R.BODY_DONE else state[S.WALK_ROW]
            problem = self._problem(row) if outcome == R.BODY_BAD else None
            yield Chunk(run.body, records, first, row, True, False, problem)
            first = row + 1

    # --- one batch that is decoded alone

    def _single(self, table: Columns, row: int) -> Iterator[Chunk]:
        attributes = table.at(C.ATTRIBUTES, row)
        legacy = table.at(C.MAGIC, row) < L.MAGIC_V2
        control = not legacy and bool(attributes & L.CONTROL_BIT)
        start = table.at(C.POSITION, row)
        end = start + table.at(C.SIZE, row)
        self.records.count = 0
        if not legacy and (table.at(C.SIZE, row) < L.BATCH_HEADER or table.at(C.COUNT, row) == 0):
            problem = None
            if table.at(C.COUNT, row) != 0:
                problem = Problem(row, R.TOO_FEW_RECORDS, R.SENTENCES[R.TOO_FEW_RECORDS])
            yield Chunk(self.view, self.records, row, row, True, control, problem)
            return
        try:
            if legacy:
                yield from self._wrapper(table, row, start, end)
            else:
                yield from self._batch(table, row, start + L.BATCH_HEADER, end, control)
        except CodecError as error:
            problem = Problem(row, None, str(error))
            yield Chunk(b"", self.records, row, row, True, control, problem)

    def _batch(self, table: Columns, row: int, start: int, end: int, control: bool) -> Iterator[Chunk]:
        body: ReadableBuffer = self.view
        codec = table.at(C.ATTRIBUTES, row) & L.CODEC_MASK
        if codec:
            body = decompress(codec, L.MAGIC_V2, self.view[start:end], self.limit_bytes)
            start, end = 0, len(memoryview(body))
        yield from self.body(table, row, body, start, end, control)

    def body(
        self,
        table: Columns,
        row: int,
        body: "ReadableBuffer",
        start: int,
        end: int,
        control: bool = False,
    ) -> Iterator[Chunk]:
        """The records of a batch of magic 2 whose body, decompressed if necessary, is body[start:end]."""
        state, records = self._state, self.records
        self._begin(row)
        while True:
            state[S.WALK_COUNT] = 0
            outcome = R.read_body(
                body, start, end, table.cells, table.capacity, records.cells, records.capacity, state
            )
            records.count = state[S.WALK_COUNT]
            problem = self._problem(row) if outcome == R.BODY_BAD else None
            yield Chunk(body, records, row, row, outcome != R.BODY_FULL, control, problem)
            if outcome != R.BODY_FULL:
                return

    def _wrapper(self, table: Columns, row: int, start: int, end: int) -> Iterator[Chunk]:
        """A compressed message set of magic 0 or 1 (Kafka: AbstractLegacyRecordBatch.DeepRecordsIterator)."""
        body, base_offset = self._set_body(table, row, start, end)
        state, records = self._state, self.records
        self._begin(row)
        while True:
            state[S.WALK_COUNT] = 0
            outcome = _messages().read_message_set(
                body, base_offset, table.cells, table.capacity, records.cells, records.capacity, state
            )
            records.count = state[S.WALK_COUNT]
            self._check_messages(body)
            problem = self._problem(row) if outcome == R.BODY_BAD else None
            yield Chunk(body, records, row, row, outcome != R.BODY_FULL, False, problem)
            if outcome != R.BODY_FULL:
                return

    def _set_body(self, table: Columns, row: int, start: int, end: int) -> "tuple[ReadableBuffer, int]":
        """The messages of a compressed set, and the number to add to their offsets. Raises CodecError."""
        magic = table.at(C.MAGIC, row)
        value = self._wrapper_value(magic, start, end)
        body = decompress(table.at(C.ATTRIBUTES, row) & L.CODEC_MASK, magic, value, self.limit_bytes)
        return body, self._base_of_set(magic, table.at(C.LAST_OFFSET, row), body)

    def _wrapper_value(self, magic: int, start: int, end: int) -> memoryview:
        if magic not in (L.MAGIC_V0, L.MAGIC_V1):
            raise CodecError(f"a compressed message set cannot have magic {magic}")
        key_at = start + L.ENTRY_OVERHEAD + (6 if magic == L.MAGIC_V0 else 14)
        value_at = key_at + 4 + max(0, self._int_at(key_at, end))
        length = self._int_at(value_at, end)
        if length < 0:
            raise CodecError("a compressed message set has a null value")
        if length > end - value_at - 4:
            raise CodecError("a compressed message set is longer than its message")
        return self.view[value_at + 4 : value_at + 4 + length]

    def _int_at(self, position: int, end: int) -> int:
        if position + 4 > end:
            raise CodecError("a message is too short for its fields")
        return int.from_bytes(self.view[position : position + 4], "big", signed=True)

    @staticmethod
    def _base_of_set(magic: int, wrapper_offset: int, body: "ReadableBuffer") -> int:
        """The number to add to the inner offsets: magic 0 stores absolute offsets; in magic 1 the wrapper has the last one."""
        count: int
        last_inner: int
        count, last_inner = _messages().count_messages(body)
        if count < 0:
            raise CodecError(R.SENTENCES[-count])
        if magic == L.MAGIC_V0 or wrapper_offset == 0:
            return 0
        if wrapper_offset < last_inner:
            raise CodecError(R.SENTENCES[R.BAD_WRAPPER_OFFSET])
        return wrapper_offset - last_inner

    def _check_messages(self, body: "ReadableBuffer") -> None:
        """Replace the checksum ranges that `read_message_set` left by their validity (1 or 0)."""
        view, records = memoryview(body), self.records
        start_at, end_at = C.R_HEADERS_START * records.capacity, C.R_VALID * records.capacity
        crc_at, cells, crc32 = C.R_CRC * records.capacity, records.cells, crc.crc32
        for at in range(records.count):
            cells[end_at + at] = crc32(view[cells[start_at + at] : cells[end_at + at]]) == cells[crc_at + at]

    def _begin(self, row: int) -> None:
        self._state[S.WALK_ROW] = row
        self._state[S.WALK_NEXT] = 0
        self._state[S.WALK_DONE] = 0
        self._state[S.WALK_ERROR] = R.OK

    def _problem(self, row: int) -> Problem:
        code = self._state[S.WALK_ERROR]
        return Problem(row, code, R.SENTENCES[code])


def _messages() -> "ModuleType":
    from kseg.segment.kernel import legacy_messages  # imported here: only old formats need it

    return legacy_messages


def record_at(chunk: Chunk, at: int) -> Record:
    """Row `at` of a chunk's table of records as a value."""
    body = memoryview(chunk.body)
    cell = chunk.records.at
    crc_stored = cell(C.R_CRC, at)
    return Record(
        offset=cell(C.R_OFFSET, at),
        timestamp_ms=cell(C.R_TIMESTAMP, at),
        key=_field(body, cell(C.R_KEY_START, at), cell(C.R_KEY_LENGTH, at)),
        value=_field(body, cell(C.R_VALUE_START, at), cell(C.R_VALUE_LENGTH, at)),
        headers=headers_at(body, cell(C.R_HEADERS_START, at), cell(C.R_HEADER_COUNT, at)),
        sequence=cell(C.R_SEQUENCE, at),
        crc=None if crc_stored < 0 else crc_stored,
        crc_valid=None if crc_stored < 0 else cell(C.R_VALID, at) == 1,
    )


def _field(body: memoryview, start: int, length: int) -> bytes | None:
    # a legacy value that exceeds its message has a length and no start: its bytes are unknown
    return None if length < 0 or start < 0 else bytes(body[start : start + length])


def headers_at(body: memoryview, position: int, count: int) -> Headers:
    """`count` headers at `position`, which the record walk has validated."""
    headers = []
    for _ in range(count):
        length, position = _varint(body, position)
        name = bytes(body[position : position + length])
        length, position = _varint(body, position + length)
        headers.append((name, None if length < 0 else bytes(body[position : position + length])))
        position += max(0, length)
    return tuple(headers)


def _varint(body: memoryview, position: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = body[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
