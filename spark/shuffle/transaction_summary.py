"""How a segment changes the state of transactions, short enough for the driver to replay all segments of a log.

`Transactions` decides in the order of the log. A task that starts in the middle needs the state at that point, and reading all earlier
batches for each task would cost as much as everything else. A summary contains the events that matter:

1. Every end-transaction marker.
2. A data batch, if its producer was not listed since its last marker, or if an aborted transaction of that producer begins between the
   batch listed last and this one. Any other batch changes nothing: its producer is already known to have aborted or committed data.

So a summary has a few numbers for each transaction. Damage is skipped, as by a pass that leaves the segment unchanged.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from kseg.compaction.cleaner.cleaned_transactions import ABORT, COMMIT, Transactions
from kseg.compaction.cleaner.segment_reader import DamagedSegment, control_kind, tables
from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_runs import plain_stop, same_transaction
from kseg.segment.scanning.decode import Decoder
from kseg.segment.sidecar.txn_index import AbortedTxn

_DATA = -1
_WIDTH = 3  # producer, last offset, kind


def trace(segment: CleanerSegment, view: memoryview, position: int, aborted: Iterable[AbortedTxn]) -> bytes:
    """The events of a segment from `position` on. aborted: the aborted transactions that begin in it."""
    tracer = _Tracer(segment, view, aborted)
    for table in tables(segment, view, position, []):
        tracer.table(table)
    return tracer.events.tobytes()


def replay(events: bytes, transactions: Transactions) -> None:
    """Apply the events of a segment to `transactions`, with the same effect as reading its batches."""
    numbers = array("q", events)
    for at in range(0, len(numbers), _WIDTH):
        producer, last, kind = numbers[at : at + _WIDTH]
        if kind == _DATA:
            transactions.is_aborted(producer, last)
        else:
            transactions.on_control_batch(producer, last, kind)


class _Tracer:
    def __init__(self, segment: CleanerSegment, view: memoryview, aborted: Iterable[AbortedTxn]) -> None:
        self._segment = segment
        self._view = view
        self._decoder = Decoder(view)
        self._begins: dict[int, list[int]] = {}
        for entry in sorted(aborted, key=lambda entry: entry.first_offset):
            self._begins.setdefault(entry.producer_id, []).append(entry.first_offset)
        self._named: dict[int, int] = {}  # last offset by producer, since its last marker
        self.events = array("q")

    def table(self, table: Columns) -> None:
        row = 0
        while (row := plain_stop(table.cells, table.capacity, row, table.count)) < table.count:
            producer, last = table.at(C.PRODUCER_ID, row), table.at(C.LAST_OFFSET, row)
            if table.at(C.ATTRIBUTES, row) & L.CONTROL_BIT:
                self._marker(table, row, producer, last)
                row += 1
                continue
            self._data(producer, last)
            begins = self._begins.get(producer, ())
            at = bisect_right(begins, last)
            stop = begins[at] if at < len(begins) else L.INT64_MAX
            row = max(row + 1, same_transaction(table.cells, table.capacity, row, table.count, stop))

    def _data(self, producer: int, last: int) -> None:
        before = self._named.get(producer)
        if before is None or _count(self._begins.get(producer, ()), before, last):
            self.events.extend((producer, last, _DATA))
            self._named[producer] = last

    def _marker(self, table: Columns, row: int, producer: int, last: int) -> None:
        try:
            kind = control_kind(self._segment, self._view, self._decoder, table, row)
        except DamagedSegment:
            return
        if kind in (ABORT, COMMIT):
            self.events.extend((producer, last, kind))
            self._named.pop(producer, None)


def _count(begins: Sequence[int], after: int, to: int) -> int:
    """The number of sorted numbers n with after < n ≤ to."""
    return bisect_right(begins, to) - bisect_right(begins, after)
