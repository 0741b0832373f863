"""Fast path: whether the headers of a log, each table of them read once, can be what a leader wrote.

The CRC does not cover base offset and leader epoch. An altered one leaves missing or duplicate offsets, or a leader epoch that differs
from those of adjacent batches. Compaction and elections leave the same traces, so this does not decide that a header is altered: it
only recognises logs that need no further check.
"""

from array import array

from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel import verify_records
from kseg.segment.kernel.batch_walk import FULL, walk
from kseg.segment.layout import INT64_MAX

_ROWS = 4096


class HeaderContinuity:
    """The headers of one log. batches: number read so far."""

    def __init__(self) -> None:
        self.batches = 0
        self._sums = memoryview(array("q", bytes(8 * S.SUM_WIDTH)))
        self._first = self._last = -1
        self._state = memoryview(array("q", bytes(8 * S.SEEN_WIDTH)))
        self._state[S.SEEN_LAST] = self._state[S.SEEN_EPOCH] = -1
        self._is_cut = self._has_suspects = False

    def note(self, table: Columns) -> None:
        """Add the next batches of the log."""
        count = table.count
        if not count:
            return
        if not self.batches:
            self._first = table.at(C.BASE_OFFSET, 0)
        if not self._has_suspects:
            suspect = verify_records.next_suspect(table.cells, table.capacity, 0, count, self._state)
            self._has_suspects = suspect < count
        verify_records.tally(table.cells, table.capacity, 0, count, INT64_MAX, self._sums)
        self._last = table.at(C.LAST_OFFSET, count - 1)
        self.batches += count

    def walk(self, view: memoryview) -> None:
        """Add all batches of the log, walking from length to length."""
        table = Columns(C.BATCH_WIDTH, _ROWS)
        state = memoryview(array("q", [0, 0]))
        while state[S.BATCHES_END] < len(view):
            reason = walk(view, len(view), table.cells, table.capacity, state)
            table.count = state[S.BATCHES_COUNT]
            self.note(table)
            if reason != FULL and state[S.BATCHES_END] != len(view):
                self._is_cut = True
                return

    def proves(self, base_offset: int) -> bool:
        """Whether it is certain that no header in a log with this base offset is altered; also true of an empty log."""
        if self._is_cut or self._has_suspects or self._sums[S.SUM_GAPS]:
            return False
        records: int = self._sums[S.SUM_RECORDS]
        is_full = self._first == base_offset and records == self._last - self._first + 1
        return not self.batches or (self.batches > 1 and is_full)
