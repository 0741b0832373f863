"""Which batches of one log file are out of order with the others.

A block of the file system that belonged to another log, or to a former log of the same name, may contain valid batches whose offsets other
batches of the file have as well. The batches of a log have increasing, disjoint offset ranges: as in `scanning/offset_order`, the largest
set that does so in the order of the file is in order. Of equally large ones, which differ in copies of the same offsets, none is preferred
here: the batches of all of them are in order.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import compress
from operator import gt

from kseg.recovery.salvage.logs import Logs, ValidRun
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns


def out_of_order(logs: Logs, valid_runs: Sequence[ValidRun]) -> frozenset[int]:
    """The positions of the batches that are not in order. valid_runs: those of one log."""
    with_first, with_last = _Sequences(), _Sequences(has_last_copies=True)
    for valid_run in sorted(valid_runs, key=lambda each: each.position):
        for table in logs.tables(valid_run):
            for sequences in (with_first, with_last):
                if not sequences.extend(table):
                    for row in range(table.count):
                        first = logs.first_offset(valid_run.log, table, row)
                        sequences.add(table.at(C.POSITION, row), first, table.at(C.LAST_OFFSET, row))
    return with_first.left_out() & with_last.left_out()


class _Sequences:
    """The longest increasing sequences of the batches so far. ends, lasts: by their number of batches, the last batch, and its last
    offset. previous: of each batch, the one before it in its sequence, -1 for none. has_last_copies: whether they have the last or the
    first ones of batches that end at the same offset."""

    def __init__(self, *, has_last_copies: bool = False) -> None:
        self._tie = 1 if has_last_copies else 0
        self._positions, self._previous = array("q"), array("q")
        self._ends, self._lasts = list[int](), list[int]()

    def extend(self, table: Columns) -> bool:
        """Add a table whose batches all continue the longest sequence, as most do. False, and nothing is added, if they do not, or if first
        offsets are unknown without decoding (old formats)."""
        firsts, lasts = table.column(C.BASE_OFFSET).tolist(), table.column(C.LAST_OFFSET).tolist()
        is_continued = not self._lasts or firsts[0] > self._lasts[-1]
        if not is_continued or min(table.column(C.MAGIC)) < L.MAGIC_V2 or not all(map(gt, firsts[1:], lasts)):
            return False
        numbers = range(len(self._positions), len(self._positions) + table.count)
        self._previous.append(self._ends[-1] if self._ends else -1)
        self._previous.extend(numbers[:-1])
        self._positions.extend(table.column(C.POSITION))
        self._ends += numbers
        self._lasts += lasts
        return True

    def add(self, position: int, first: int, last: int) -> None:
        number, at = len(self._positions), bisect_left(self._lasts, first)
        self._positions.append(position)
        self._previous.append(self._ends[at - 1] if at else -1)
        if at == len(self._lasts):
            self._ends.append(number)
            self._lasts.append(last)
        elif last < self._lasts[at] + self._tie:
            self._ends[at], self._lasts[at] = number, last

    def left_out(self) -> frozenset[int]:
        """The positions of the batches that are not in the longest sequence."""
        is_left_out, number = bytearray(b"\1") * len(self._positions), self._ends[-1] if self._ends else -1
        while number >= 0:
            is_left_out[number] = 0
            number = self._previous[number]
        return frozenset(compress(self._positions, is_left_out))
