"""Which batches of one log file are out of order with the others.

A block of the file system that belonged to another log, or to a former log of the same name, may contain valid batches whose offsets other
batches of the file have as well. The batches of a log have increasing, disjoint offset ranges: as in `scanning/offset_order`, the largest
set that does so in the order of the file is in order, and of equally large ones that with the first copies.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from kseg.recovery.salvage.logs import Logs, ValidRun
from kseg.segment import header_tables as C


def out_of_order(logs: Logs, valid_runs: Sequence[ValidRun]) -> frozenset[int]:
    """The positions of the batches that are not in order. valid_runs: those of one log."""
    positions, previous = array("q"), array("q")
    # of the sequences, by their number of batches: the last batch, and its last offset
    ends, lasts = list[int](), list[int]()
    for valid_run in sorted(valid_runs, key=lambda each: each.position):
        for table in logs.tables(valid_run):
            for row in range(table.count):
                number, last = len(positions), table.at(C.LAST_OFFSET, row)
                at = bisect_left(lasts, logs.first_offset(valid_run.log, table, row))
                positions.append(table.at(C.POSITION, row))
                previous.append(ends[at - 1] if at else -1)
                if at == len(lasts):
                    ends.append(number)
                    lasts.append(last)
                elif last < lasts[at]:
                    ends[at], lasts[at] = number, last
    ordered, number = set[int](), ends[-1] if ends else -1
    while number >= 0:
        ordered.add(number)
        number = previous[number]
    return frozenset(position for number, position in enumerate(positions) if number not in ordered)
