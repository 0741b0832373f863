"""The window of batches that `chain` compares, and what is known of the batches before it.

A batch is compared with the batches before and after it, so up to two rows wait for the next table.
"""

from kseg.recovery.verify.header_plausibility import HeaderContext
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.diagnosis import Numbers
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import copy_rows

CARRIED_ROWS = 2


class ChainRows:
    """table: the batches. limit: the offset below which the segment must end. is_start: row 0 is the first batch of the segment.
    is_misnamed: the name of the segment does not match its batches. is_gapless: the caller has seen no gap and no trace of cleaning
    so far; the caller sets it. found: findings that the caller has not taken yet. before_last, before_epoch: the last offset and the
    leader epoch before row 0."""

    def __init__(self, context: HeaderContext) -> None:
        self.context = context
        self.table = Columns(C.BATCH_WIDTH, CARRIED_ROWS)
        limit = context.base_offset + L.INT32_MAX + 1
        self.limit = limit if context.next_base is None else min(limit, context.next_base)
        self.is_start = True
        self.is_misnamed = False
        self.is_gapless = True
        self.found: list[Finding] = []
        self.before_last = context.base_offset - 1
        self.before_epoch = context.previous_epoch

    def add(self, block: Columns) -> None:
        """Append a block of batches."""
        carried = self.table.count
        self._reserve(carried + block.count)
        copy_rows(*block.raw, 0, block.count, *self.table.raw, carried)
        self.table.count = carried + block.count

    def _reserve(self, rows: int) -> None:
        if rows > self.table.capacity:
            wider = Columns(C.BATCH_WIDTH, max(rows, 2 * self.table.capacity))
            wider.count = self.table.count
            copy_rows(*self.table.raw, 0, wider.count, *wider.raw, 0)
            self.table = wider

    def drop(self, ready: int) -> None:
        """Drop the first rows; the others become the first."""
        table = self.table
        if ready:
            self.before_last = table.at(C.LAST_OFFSET, ready - 1)
            self.before_epoch = self.epoch_before(ready)
            self.is_start = False
        copy_rows(*table.raw, ready, table.count, *table.raw, 0)
        table.count -= ready

    def last_before(self, row: int) -> int:
        return self.table.at(C.LAST_OFFSET, row - 1) if row else self.before_last

    def epoch_at(self, row: int) -> int:
        """The leader epoch of a batch, −1 if its format has none."""
        table = self.table
        return table.at(C.LEADER_EPOCH, row) if table.at(C.MAGIC, row) >= L.MAGIC_V2 else L.NO_LEADER_EPOCH

    def epoch_before(self, row: int) -> int:
        """The leader epoch known before `row`, ignoring batches without one."""
        for before in range(row - 1, -1, -1):
            if self.epoch_at(before) != L.NO_LEADER_EPOCH:
                return self.epoch_at(before)
        return self.before_epoch

    def report(
        self,
        kind: str,
        message: str,
        position: int,
        length: int,
        first: int,
        last: int | None,
        numbers: Numbers | None = None,
    ) -> None:
        """Add a finding about this segment."""
        self.found.append(
            Finding(kind, self.context.path, message, position, length, first, last, numbers or {})
        )
