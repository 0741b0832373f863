"""Determine which offsets stay in the log, and how many records are lost with superseded batches.

The header of a batch may cover offsets for which it has no record: the cleaner leaves such batches behind, and so does a wrong last
offset with a valid checksum. Such a batch does not preserve the records that a removed, overlapping batch has at those offsets. So where
batches were removed because others cover their offsets, the records of the kept batches count, not their headers; everywhere else a
valid run keeps its whole range. Even then, two kinds of batches keep their whole range: a batch with the same offsets as a removed
one, which is its cleaned version, and a batch of a later leader, since the replicas truncated what an earlier leader had there.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise

from kseg.recovery.salvage.logs import Logs, ValidRun
from kseg.recovery.salvage.overlaps import COPY, EPOCH, Superseded
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.scanning.decode import Decoder
from kseg.segment.scanning.lost_offsets import plus, records_of
from kseg.segment.values import dataclass

Range = tuple[int, int]


class KeptOffsets:
    """Ranges of offsets that stay, in order. The constructor takes them in order and joins adjacent ones."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self.ranges: list[Range] = []
        for first, last in ranges:
            if self.ranges and self.ranges[-1][1] + 1 == first:
                self.ranges[-1] = self.ranges[-1][0], last
            else:
                self.ranges.append((first, last))
        self._lasts = [last for _, last in self.ranges]
        self._firsts = [first for first, _ in self.ranges]

    def without(self, first: int, last: int) -> Range | None:
        """The span from the first to the last offset within first … last that is not kept; None when all are kept."""
        at = bisect_left(self._lasts, first)
        if at < len(self.ranges) and self._firsts[at] <= first:
            first = self._lasts[at] + 1
        at = bisect_right(self._firsts, last) - 1
        if at >= 0 and self._lasts[at] >= last:
            last = self._firsts[at] - 1
        return (first, last) if first <= last else None

    def touches(self, first: int, last: int) -> bool:
        """Whether any offset of first … last is kept."""
        at = bisect_left(self._lasts, first)
        return at < len(self.ranges) and self._firsts[at] <= last


def kept_offsets(
    logs: Logs, stays: Iterable[ValidRun], superseded: Sequence[Superseded], lost: Iterable[Range] = ()
) -> KeptOffsets:
    """The offsets that stay in the log. stays: the valid runs that are kept, by offset. lost: offsets that a previous round lost; a gap
    between two batches does not keep them."""
    gone = [entry.valid_run for entry in superseded if entry.rule not in (COPY, EPOCH)]
    removed = [(valid_run.first_offset, valid_run.last_offset) for valid_run in gone]
    contest = _Contest(
        KeptOffsets(_joined(removed)),
        KeptOffsets(_joined([*removed, *lost])),
        {found for valid_run in gone for found in _batch_ranges(logs, valid_run)},
    )
    return KeptOffsets(found for valid_run in stays for found in _ranges(logs, valid_run, contest))


@dataclass(frozen=True, slots=True)
class _Contest:
    """removed: offsets of removed batches. doubted: these, and offsets that were lost before. same: the ranges of removed batches."""

    removed: KeptOffsets
    doubted: KeptOffsets
    same: AbstractSet[Range]


def records_lost(logs: Logs, valid_run: ValidRun, kept: KeptOffsets) -> int | None:
    """How many records of removed batches are at offsets that do not stay; None when unknown."""
    records: int | None = 0
    for table in logs.tables(valid_run):
        for row in range(table.count):
            first, last = logs.first_offset(valid_run.log, table, row), table.at(C.LAST_OFFSET, row)
            count = records_of(table, row, row + 1)
            if count and kept.touches(first, last):
                offsets = _record_offsets(logs, valid_run.log, table, row)
                if offsets is not None:
                    count = sum(kept.without(offset, offset) is not None for offset in offsets)
                else:
                    count = 0 if kept.without(first, last) is None else None
            records = plus(records, count)
    return records


def _joined(ranges: Iterable[Range]) -> Iterator[Range]:
    """Ranges that may overlap, joined and in order."""
    begin, reach = 0, -1
    for first, last in sorted(ranges):
        if first > reach >= begin:
            yield begin, reach
        begin = first if first > reach else begin
        reach = max(reach, last)
    if reach >= begin:
        yield begin, reach


def _batch_ranges(logs: Logs, valid_run: ValidRun) -> Iterator[Range]:
    for table in logs.tables(valid_run):
        yield from zip(table.column(C.BASE_OFFSET), table.column(C.LAST_OFFSET), strict=True)


def _ranges(logs: Logs, valid_run: ValidRun, contest: _Contest) -> Iterator[Range]:
    begin, expected = valid_run.first_offset, valid_run.first_offset
    for table in logs.tables(valid_run) if contest.doubted.touches(begin, valid_run.last_offset) else ():
        for row in range(table.count):
            first, last = logs.first_offset(valid_run.log, table, row), table.at(C.LAST_OFFSET, row)
            if expected < first and contest.doubted.touches(expected, first - 1):
                if begin < expected:
                    yield begin, expected - 1
                begin = first
            expected = last + 1
            is_same = (first, last) in contest.same or not contest.removed.touches(first, last)
            if is_same or _is_full(table, row):
                continue
            offsets = _record_offsets(logs, valid_run.log, table, row)
            if offsets is not None:
                if begin < first:
                    yield begin, first - 1
                yield from ((offset, offset) for offset in offsets)
                begin = last + 1
    if begin <= valid_run.last_offset:
        yield begin, valid_run.last_offset


def _is_full(table: Columns, row: int) -> bool:
    """Whether the header claims a record for each offset of the batch. Batches of old formats count as full."""
    width = table.at(C.LAST_OFFSET, row) - table.at(C.BASE_OFFSET, row) + 1
    return table.at(C.MAGIC, row) < L.MAGIC_V2 or table.at(C.COUNT, row) == width


def _record_offsets(logs: Logs, log: int, table: Columns, row: int) -> list[int] | None:
    """The offsets of the records of a batch, rising; None when they cannot be read."""
    offsets: list[int] = []
    for chunk in Decoder(logs.view(log)).chunks(table, row, row + 1):
        if chunk.problem is not None:
            return None
        offsets += chunk.records.column(C.R_OFFSET)[: chunk.records.count]
    is_within = not offsets or (
        table.at(C.BASE_OFFSET, row) <= offsets[0] and offsets[-1] <= table.at(C.LAST_OFFSET, row)
    )
    is_rising = all(one < other for one, other in pairwise(offsets))
    return offsets if is_within and is_rising else None
