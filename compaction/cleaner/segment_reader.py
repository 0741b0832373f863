"""Read a segment batch table by batch table, and decode control batches. Damage ends the pass.

A segment whose CRCs were verified in this run is not verified again.
"""

from array import array
from collections.abc import Iterator

from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import buffer_access
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import FULL, walk
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding, undecodable
from kseg.segment.scanning.decode import Decoder, Problem
from kseg.segment.scanning.scan import BATCHES_PER_TABLE, Scanner

_LEAST_CONTROL_KEY = 4


class DamagedSegment(Exception):
    """A pass reached damaged bytes, which a cleaner must not touch."""

    def __init__(self, segment: CleanerSegment, findings: tuple[Finding, ...]) -> None:
        super().__init__(segment.path)
        self.segment = segment
        self.findings = findings


class NotJoined(Exception):
    """No batch ends where a part of a log should end."""


def tables(
    segment: CleanerSegment,
    view: memoryview,
    position: int,
    found: list[Finding] | None = None,
    stop: int | None = None,
) -> Iterator[Columns]:
    """The batches from `position` on; a table is valid until the next.

    found: collects damage, and reading continues after it. Raises DamagedSegment when it is None. stop: the position where a
    batch, and with it the last table, must end; None is the end of the segment. Raises NotJoined when no batch ends there.
    """
    end = position
    for table in _tables(segment, view, position, found, stop):
        end = table.at(C.POSITION, table.count - 1) + table.at(C.SIZE, table.count - 1)
        yield table
    if stop is not None and end != stop:
        raise NotJoined(segment.path)


def _tables(
    segment: CleanerSegment,
    view: memoryview,
    position: int,
    found: list[Finding] | None,
    stop: int | None,
) -> Iterator[Columns]:
    if segment.is_whole:
        yield from headers(view, position, stop)
        return
    is_whole = True
    for block in Scanner(view, segment.base_offset, file=segment.file).blocks(position, until=stop):
        if isinstance(block, Damage):
            is_whole = False
            segment.is_damaged = True
            finding = damage_finding(segment.path, block)
            if found is None:
                raise DamagedSegment(segment, (finding,))
            found.append(finding)
        else:
            yield block
    if is_whole and position == 0 and stop is None:
        segment.is_whole = True


def headers(view: memoryview, position: int, stop: int | None) -> Iterator[Columns]:
    """The batches from `position` to `stop` (None: to the end), without verifying checksums."""
    table = Columns(C.BATCH_WIDTH, min(BATCHES_PER_TABLE, 16 + len(view) // 128))
    state = memoryview(array("q", [position, 0]))
    end = len(view) if stop is None else stop
    reason = FULL
    while reason == FULL and state[S.BATCHES_END] < end:
        reason = walk(view, len(view), table.cells, table.capacity, state, end)
        table.count = state[S.BATCHES_COUNT]
        if table.count:
            yield table


def survey(segment: CleanerSegment) -> list[Finding]:
    """All damage of a segment, in batches and in records; it is marked as damaged if there is any."""
    found: list[Finding] = []
    segment.is_whole = False
    with segment.opened() as view:
        decoder = Decoder(view)
        for table in tables(segment, view, 0, found):
            for chunk in decoder.chunks(table):
                if chunk.problem is not None:
                    found.append(undecodable(segment.path, table, chunk.problem))
    segment.is_damaged = segment.is_damaged or bool(found)
    return found


def problem_of(segment: CleanerSegment, table: Columns, problem: Problem) -> DamagedSegment:
    """The finding that the records of a batch cannot be decoded."""
    return DamagedSegment(segment, (undecodable(segment.path, table, problem),))


def outside(row: int) -> Problem:
    """The error for a legacy message whose fields exceed its size."""
    return Problem(row, None, "a message is shorter than its key or value")


def control_kind(
    segment: CleanerSegment, view: memoryview, decoder: Decoder, table: Columns, row: int
) -> int | None:
    """The type in the key of a control batch's first record; None when there is no record.

    Raises DamagedSegment when it cannot be decoded (Kafka: ControlRecordType.parse throws).
    """
    if not table.at(C.COUNT, row):
        return None
    kind = None
    if not table.at(C.ATTRIBUTES, row) & L.CODEC_MASK:
        start = table.at(C.POSITION, row)
        kind = _plain_kind(view, start + L.BATCH_HEADER, start + table.at(C.SIZE, row))
    if kind is not None:
        return kind
    for chunk in decoder.chunks(table, row, row + 1):
        if chunk.problem is not None:
            raise problem_of(segment, table, chunk.problem)
        if chunk.records.count and chunk.records.at(C.R_KEY_LENGTH, 0) >= _LEAST_CONTROL_KEY:
            key = chunk.records.at(C.R_KEY_START, 0)
            body = memoryview(chunk.body)
            return int.from_bytes(body[key + 2 : key + 4], "big", signed=True)
        break
    raise problem_of(segment, table, Problem(row, None, "its first record has no type in its key"))


def _plain_kind(view: memoryview, position: int, end: int) -> int | None:
    """The type of an uncompressed control batch whose first record is as brokers write it; None if it has to be decoded."""
    packed = buffer_access.varint(view, position, end)
    position += (packed & 15) + 1
    while position < end and view[position] > 127:  # the timestamp delta
        position += 1
    position += 2  # and the offset delta, always 0
    if position + _LEAST_CONTROL_KEY >= end or view[position - 1] or view[position] != 2 * _LEAST_CONTROL_KEY:
        return None
    return view[position + 3] << 8 | view[position + 4]
