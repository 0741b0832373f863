"""What a consumer gets from a batch with a valid checksum whose header or body is wrong.

A broker does not notice: it returns whole batches. The consumer either throws an exception in such a batch, or silently skips records. The
rules are those of the Java consumer of 4.3 (DefaultRecordBatch, CompletedFetch), compared in `tests/kafka/test_price_by_consumers.py`:

    count too low       the last declared record is read but dropped, since bytes are left over; with a count of 0 all are skipped
    count too high      every record is returned, followed by an exception
    count negative      no record is returned
    control bit         a consumer skips control batches: it never returns data in them
    codec               a body that cannot be decompressed is not returned; of a truncated frame, an unknown part is returned
    a bad record        the records before it are returned
    offsets             a record at or below the offset of the previous one, or below the batch, is skipped

The number of records is counted to the end of the body; the declared count is not used.
"""

from collections.abc import Iterator

from kseg.recovery.verify.records_check import RecordsCheck
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import counted
from kseg.segment.errors import FormatError
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import record_walk as R
from kseg.segment.scanning.decode import Chunk, Decoder, record_at
from kseg.segment.scanning.lost_offsets import UnreadBatch
from kseg.segment.scanning.record_validation import invalid_rows
from kseg.segment.state.control import UNKNOWN, parse_control_record
from kseg.segment.values import dataclass

_REPORTED = frozenset(
    ("undecodable-batch", "record-count-mismatch", "offset-outside-batch", "offset-not-increasing-in-batch")
)
_FRAMES = {1: b"\x1f\x8b", 2: b"\x82SNAPPY\0", 3: b"\x04\x22\x4d\x18", 4: b"\x28\xb5\x2f\xfd"}


@dataclass(slots=True)
class _Walk:
    """The result of walking the body of a batch to its end. records: number that can be decoded. code: why the walk ended, from
    `kernel.record_walk`; None if the body cannot be decompressed. late: indexes of records whose offset is below the batch
    or not above the previous ones. last_offset: the greatest, at least that before the batch. is_control: every record is a known control
    record."""

    records: int = 0
    code: int | None = R.OK
    late: list[int] | None = None
    last_offset: int = -1
    is_control: bool = True

    @property
    def is_whole(self) -> bool:
        return self.code in (R.OK, R.TOO_FEW_RECORDS)


class BatchReader:
    """Opens single batches of a log. is_deep: another consumer checks and reports the records."""

    def __init__(self, path: str, view: memoryview, *, is_deep: bool) -> None:
        self._path = path
        self._view = view
        self._is_deep = is_deep
        self._records = RecordsCheck(path, view)
        self._decoder = Decoder(view)

    def is_doubtful(self, table: Columns, row: int) -> bool:
        """Whether a batch has to be opened; most batches with a suspicious header need not be."""
        return bool(_is_control_batch(table, row) or invalid_rows(self._view, table, (row,)))

    def findings(self, table: Columns, row: int) -> Iterator[Finding]:
        if _is_control_batch(table, row):
            walk = self._walk(table, row)
            if _holds_data(table, row, walk) and (not self._is_deep or walk.is_control):
                yield self._data_in_control(table, row, walk)
        elif table.at(C.COUNT, row) == 0:
            yield self._none_declared(table, row, self._walk(table, row))
        elif not self._is_deep:
            for finding in self._records.take(table, row, row + 1):
                if finding.id in _REPORTED:
                    yield finding

    def unread(self, table: Columns, row: int) -> Iterator[UnreadBatch]:
        """Yield an `UnreadBatch` if a consumer does not get what the header declares."""
        walk, is_control = self._walk(table, row), _is_control_batch(table, row)
        if is_control and not _holds_data(table, row, walk):
            return
        declared = table.at(C.COUNT, row)
        records, given = _known(table, row, walk), 0 if is_control else _given(table, row, walk, self._view)
        if records != declared or given != declared:
            first = table.at(C.BASE_OFFSET, row)
            last = max(table.at(C.LAST_OFFSET, row), walk.last_offset if walk.is_whole else first)
            content = table.at(C.CRC, row), table.at(C.SIZE, row)
            yield UnreadBatch(content, first, last, records, given, not is_control and declared != 0)

    def _walk(self, table: Columns, row: int) -> _Walk:
        alone = Columns(C.BATCH_WIDTH, 1)
        alone.count = 1
        for field in range(C.BATCH_WIDTH):
            alone.cells[field] = table.at(field, row)
        alone.cells[C.COUNT] = L.INT32_MAX
        walk, late, reached = _Walk(), list[int](), table.at(C.BASE_OFFSET, row) - 1
        for chunk in self._decoder.chunks(alone):
            for at, offset in enumerate(chunk.records.column(C.R_OFFSET), walk.records):
                if offset <= reached:
                    late.append(at)
                reached = max(reached, offset)
            if chunk.control:
                walk.is_control = walk.is_control and _is_control(chunk)
            walk.records += chunk.records.count
            if chunk.problem is not None:
                walk.code = chunk.problem.code
        walk.late, walk.last_offset = late, reached
        return walk

    def _none_declared(self, table: Columns, row: int, walk: _Walk) -> Finding:
        message = f"the batch at position {table.at(C.POSITION, row)} declares no record, but holds {_held(walk)}: consumers skip it"
        return self._passed_over("record-count-mismatch", table, row, message)

    def _data_in_control(self, table: Columns, row: int, walk: _Walk) -> Finding:
        message = (
            f"the batch at position {table.at(C.POSITION, row)} is marked as a control batch and holds {_held(walk)} "
            "that are not control records: consumers skip it"
        )
        return self._passed_over("bad-control-record", table, row, message)

    def _passed_over(self, kind: str, table: Columns, row: int, message: str) -> Finding:
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        first, last = table.at(C.BASE_OFFSET, row), table.at(C.LAST_OFFSET, row)
        return Finding(kind, self._path, message, position, size, first, last)


def _held(walk: _Walk) -> str:
    return counted(walk.records, "record") if walk.is_whole else "bytes"


def _is_control_batch(table: Columns, row: int) -> bool:
    return bool(table.at(C.ATTRIBUTES, row) & L.CONTROL_BIT)


def _holds_data(table: Columns, row: int, walk: _Walk) -> bool:
    """Whether the control bit of a batch is wrong: only data batches have sequences, and the record of a marker has a known type."""
    has_sequence = table.at(C.PRODUCER_ID, row) >= 0 and table.at(C.BASE_SEQUENCE, row) >= 0
    return has_sequence or not walk.is_control


def _is_control(chunk: Chunk) -> bool:
    for at in range(chunk.records.count):
        record = record_at(chunk, at)
        try:
            if parse_control_record(record.key, record.value).kind == UNKNOWN:
                return False
        except FormatError:
            return False
    return True


def _known(table: Columns, row: int, walk: _Walk) -> int | None:
    """The number of records in a batch; None if it cannot be determined."""
    if walk.is_whole:
        return walk.records
    declared = table.at(C.COUNT, row)
    width = table.at(C.LAST_OFFSET, row) - table.at(C.BASE_OFFSET, row) + 1
    is_open = walk.code is not None and walk.records >= declared and declared != width
    return declared if 0 < declared <= width and not is_open else None


def _given(table: Columns, row: int, walk: _Walk, view: memoryview) -> int | None:
    """The number of records of a data batch that a consumer gets; None if it cannot be determined."""
    declared = table.at(C.COUNT, row)
    if declared <= 0:
        return 0
    if walk.code is None:
        codec = table.at(C.ATTRIBUTES, row) & L.CODEC_MASK
        start = table.at(C.POSITION, row) + L.BATCH_HEADER
        frame = _FRAMES.get(codec, b"")
        begins = frame and view[start : start + len(frame)] == frame
        return None if begins and declared > 1 else 0
    has_more = walk.records > declared or (walk.records == declared and not walk.is_whole)
    given = declared - 1 if has_more else walk.records
    return given - sum(at < given for at in walk.late or ())
