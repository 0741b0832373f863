"""The deep level: decode every record of every batch, decompress where needed, and compare it with its batch.

1. Nearly every batch is valid, and a kernel that only validates confirms that: one call for a run of uncompressed batches, one
   for each compressed batch after its decompression.
2. A batch that it rejects (or a control batch, or one of magic 0 or 1) is decoded: the decoder returns tables
   of records, and another kernel checks them and reports what is wrong where.

Python code runs per run of batches or per batch, never per record.
"""

from array import array
from collections.abc import Iterator

from kseg.recovery.verify.segment_check import Consumer
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import counted
from kseg.segment.errors import FormatError
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import record_walk as R
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel import verify_records
from kseg.segment.kernel.batch_walk import declared_records, equal_run
from kseg.segment.moments import moment
from kseg.segment.scanning.decode import Chunk, Decoder, Problem, record_at
from kseg.segment.scanning.record_validation import valid_until
from kseg.segment.state.control import parse_control_record

_COUNT_PROBLEMS = (R.NEGATIVE_COUNT, R.TOO_FEW_RECORDS, R.BYTES_LEFT_OVER)
_RULES = {
    verify_records.OUTSIDE: ("offset-outside-batch", "is outside the offsets of its batch"),
    verify_records.NOT_INCREASING: (
        "offset-not-increasing-in-batch",
        "is not above the offset of the previous record",
    ),
    verify_records.BAD_MESSAGE_CRC: ("bad-crc", "has a wrong checksum of its own"),
}


def _look_end(table: Columns, row: int, stop: int) -> int:
    """The end of the rows to decode from `row` on: one row, or all adjacent messages of magic 0 and 1."""
    magics = table.column(C.MAGIC)
    after = row + 1
    if magics[row] < L.MAGIC_V2:
        while after < stop and magics[after] < L.MAGIC_V2:
            after += 1
    return after


class RecordsCheck(Consumer):
    """A `Consumer` that decodes. records: number of records so far. taken_apart: rows of the last `take` that the validating kernel
    rejected. Batches whose body is known to be valid are only counted."""

    def __init__(self, path: str, view: memoryview) -> None:
        self.records = 0
        self.taken_apart: list[int] = []
        self._path = path
        self._view = view
        self._decoder = Decoder(view)
        self._state = memoryview(array("q", bytes(8 * S.RECORDS_WIDTH)))

    def take(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        row = first
        self.taken_apart = []
        while row < stop:
            after = equal_run(table.cells, table.capacity, C.BODY, row, stop)
            if table.at(C.BODY, row) == C.BODY_SOUND:
                self.records += declared_records(table.cells, table.capacity, row, after)
            else:
                yield from self._decode(table, row, after)
            row = after

    def _decode(self, table: Columns, row: int, stop: int) -> Iterator[Finding]:
        while row < stop:
            sound = valid_until(self._view, table, row, stop)
            self.records += declared_records(table.cells, table.capacity, row, sound)
            row = sound
            if row < stop:
                after = _look_end(table, row, stop)
                self.taken_apart += range(row, after)
                yield from self._check_rows(table, row, after)
                row = after

    def _check_rows(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        state = self._state
        state[S.RECORDS_BATCH] = -1
        for chunk in self._decoder.chunks(table, first, stop):
            count = chunk.records.count
            self.records += count
            if count:
                yield from self._walk(table, chunk, count)
            if chunk.problem is not None:
                begun = state[S.RECORDS_BATCH] == chunk.problem.row
                if begun:
                    state[S.RECORDS_BATCH] = -1
                yield from self._problem(table, chunk.problem, begun)
            elif chunk.control:
                yield from self._control(table, chunk)
        if state[S.RECORDS_BATCH] >= 0:
            row = state[S.RECORDS_BATCH]
            if not verify_records.max_reached(table.cells, table.capacity, row, state[S.RECORDS_MAX]):
                yield self._max_timestamp(table, row)

    def _walk(self, table: Columns, chunk: Chunk, count: int) -> Iterator[Finding]:
        records, state = chunk.records, self._state
        at = 0
        while True:
            at = verify_records.next_record(
                records.cells, records.capacity, at, count, table.cells, table.capacity, state
            )
            if at >= count:
                return
            if state[S.RECORDS_RULE] == verify_records.MAX_TIMESTAMP:
                yield self._max_timestamp(table, state[S.RECORDS_MISSED])
                continue
            kind, words = _RULES[state[S.RECORDS_RULE]]
            row, offset = records.at(C.R_BATCH, at), records.at(C.R_OFFSET, at)
            position = table.at(C.POSITION, row)
            message = f"the record with offset {offset} in the batch at position {position} {words}"
            yield self._report(kind, table, row, message, offset)
            at += 1

    def _report(
        self, kind: str, table: Columns, row: int, message: str, offset: int | None = None
    ) -> Finding:
        first = table.at(C.BASE_OFFSET, row) if offset is None else offset
        last = table.at(C.LAST_OFFSET, row) if offset is None else offset
        return Finding(
            kind, self._path, message, table.at(C.POSITION, row), table.at(C.SIZE, row), first, last
        )

    def _problem(self, table: Columns, problem: Problem, begun: bool) -> Iterator[Finding]:
        """begun: at least one record of the batch could be decoded."""
        row = problem.row
        position, declared = table.at(C.POSITION, row), table.at(C.COUNT, row)
        is_v2 = table.at(C.MAGIC, row) >= L.MAGIC_V2
        if is_v2 and (
            declared < 0 or declared > table.at(C.LAST_OFFSET, row) - table.at(C.BASE_OFFSET, row) + 1
        ):
            return  # the finding about the header is enough
        if is_v2 and begun and problem.code in _COUNT_PROBLEMS:
            message = (
                f"the batch at position {position} declares {counted(declared, 'record')}: {problem.sentence}"
            )
            yield self._report("record-count-mismatch", table, row, message)
            return
        message = f"the records of the batch at position {position} cannot be decoded: {problem.sentence}"
        yield self._report("undecodable-batch", table, row, message)

    def _max_timestamp(self, table: Columns, row: int) -> Finding:
        position, declared = table.at(C.POSITION, row), table.at(C.MAX_TIMESTAMP, row)
        message = f"the batch at position {position} declares maximum timestamp {moment(declared)}, but its records have a different one"
        return self._report("max-timestamp-mismatch", table, row, message)

    def _control(self, table: Columns, chunk: Chunk) -> Iterator[Finding]:
        for at in range(chunk.records.count):
            record = record_at(chunk, at)
            try:
                parse_control_record(record.key, record.value)
            except FormatError as error:
                message = f"the control record with offset {record.offset}: {error}"
                yield self._report("bad-control-record", table, chunk.first_row, message, record.offset)
