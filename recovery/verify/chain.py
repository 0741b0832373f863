"""The chain of batches in one segment: compare each batch with its neighbours before any consumer sees it.

`Chain` collects tables of batches, runs the kernel over them, and inspects a row only where the kernel stops. Rows are
released (`table`, rows 0 … `ready`) when no later batch can change the verdict on them, so up to two rows wait
for the next table. `header_plausibility` has the rules.
"""

from array import array
from collections.abc import Iterator

from kseg.recovery.verify import header_plausibility as N
from kseg.recovery.verify.chain_epochs import EpochComparison
from kseg.recovery.verify.chain_offsets import OffsetComparison
from kseg.recovery.verify.chain_rows import CARRIED_ROWS, ChainRows
from kseg.recovery.verify.header_plausibility import HeaderContext, PreviousBatch
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import counted
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel import verify_records
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.offset_order import is_misnamed

# With more altered headers than this the file is not a log any more, and comparing each pair would waste time.
MAX_SUSPECTS = 10_000


class Chain:
    """Feed it blocks; take rows 0 … ready - 1 of `table` after each call, then `carry`."""

    def __init__(self, context: HeaderContext) -> None:
        self.rows = ChainRows(context)
        self.ready = 0
        self._offsets = OffsetComparison(self.rows)
        self._epochs = EpochComparison(self.rows)
        self._checked_rows = 0
        self._lost_to: int | None = None  # the last offset of the damage directly after the rows
        self._suspects = 0
        self._state = memoryview(array("q", bytes(8 * S.SEEN_WIDTH)))
        self._state[S.SEEN_LAST] = self.rows.before_last
        self._state[S.SEEN_EPOCH] = self.rows.before_epoch

    @property
    def table(self) -> Columns:
        return self.rows.table

    @property
    def last_epoch(self) -> int:
        """The leader epoch after everything checked so far."""
        return self._state[S.SEEN_EPOCH]

    def last_batch(self) -> PreviousBatch | None:
        """What the next segment needs to know about the last batch of this one. Valid between `close` and `carry`."""
        row = self.table.count - 1
        if row < 0 or self.rows.epoch_at(row) == L.NO_LEADER_EPOCH:
            return None
        offsets = N.first_of(self.table, row), self.table.at(C.LAST_OFFSET, row)
        position = self.table.at(C.POSITION, row)
        return PreviousBatch(
            self.rows.context.path, position, offsets, self.rows.epoch_at(row), self.rows.epoch_before(row)
        )

    def feed(self, block: Columns) -> Iterator[Finding]:
        """Add a block of valid batches."""
        self.rows.add(block)
        self._check_rows(self.table.count - 1)
        self.ready = max(0, self.table.count - CARRIED_ROWS)
        return self._take_findings()

    def carry(self) -> None:
        """Drop the ready rows, which the caller has processed; keep the others for the next block."""
        self.rows.drop(self.ready)
        self._checked_rows -= self.ready
        self.ready = 0
        if self._lost_to is not None:  # the headers in the damage reveal its offsets
            self.rows.before_last = max(self.rows.before_last, self._lost_to)
            self._state[S.SEEN_LAST] = self.rows.before_last
            self._lost_to = None

    def close(self) -> Iterator[Finding]:
        """To be called when no batch follows those that were added: all rows become ready."""
        self._check_rows(self.table.count, self.rows.limit, is_end=True)
        if self.table.count:
            self._offsets.check_end()
        self.ready = self.table.count
        return self._take_findings()

    def close_before(self, damage: Damage | None) -> Iterator[Finding]:
        """To be called when damage follows the batches that were added (None: unknown batches): all rows become ready."""
        if damage is None:
            self._check_rows(self.table.count)
        else:
            self._check_rows(self.table.count, damage.first_behind, expected=damage.next_offset)
            self._offsets.check_before(damage)
            if self.table.count:
                self._state[S.SEEN_LAST] = self.table.at(C.LAST_OFFSET, self.table.count - 1)
            if damage.lost.records is not None:
                self._lost_to = damage.lost.last_offset
        self.ready = self.table.count
        return self._take_findings()

    def _take_findings(self) -> Iterator[Finding]:
        found, self.rows.found = self.rows.found, []
        return iter(found)

    # --- the assessment

    def _check_rows(
        self, stop: int, upper: int | None = None, *, is_end: bool = False, expected: int | None = None
    ) -> None:
        """Check the rows. upper: the offset that follows the last of them, None if unknown. is_end: no batch follows in the segment.
        expected: the offset at which the damage after them begins, judging by all batches around it."""
        table, state = self.table, self._state
        if self.rows.is_start and not self._checked_rows and table.count:
            # name and side files then belong to another log
            firsts = [N.first_of(table, row) for row in range(min(3, table.count))]
            self.rows.is_misnamed = is_misnamed(firsts, self.rows.context.base_offset) or (
                len(firsts) == 1 and firsts[0] < self.rows.context.base_offset
            )
        row = stop if self._suspects > MAX_SUSPECTS else self._checked_rows
        while row < stop:
            row = verify_records.next_suspect(table.cells, table.capacity, row, stop, state)
            if row >= stop:
                break
            reasons = state[S.SEEN_REASONS]
            self._suspects += 1
            if self._suspects > MAX_SUSPECTS:
                self._give_up(row)
                break
            if reasons & (verify_records.COUNT | verify_records.ATTRIBUTES | verify_records.MAGIC):
                self._header(row, reasons)
            if reasons & verify_records.OFFSET:
                is_believed = row + 1 == table.count and table.at(C.LAST_OFFSET, row) + 1 == expected
                self._offsets.check(row, upper, is_end, is_believed)
            if reasons & verify_records.EPOCH:
                self._epochs.check(row, row + 1 >= table.count)
                state[S.SEEN_EPOCH] = self.rows.epoch_at(row)
            state[S.SEEN_LAST] = table.at(C.LAST_OFFSET, row)
            row += 1
        self._checked_rows = max(self._checked_rows, stop)

    def _give_up(self, row: int) -> None:
        position = self.table.at(C.POSITION, row)
        message = (
            f"more than {MAX_SUSPECTS} batches contradict adjacent batches; later batches are not compared"
        )
        self.rows.report(
            "offset-not-monotonic", message, position, 0, self.table.at(C.BASE_OFFSET, row), None
        )

    def _header(self, row: int, reasons: int) -> None:
        at = self.table.at
        position, size = at(C.POSITION, row), at(C.SIZE, row)
        first, last = at(C.BASE_OFFSET, row), at(C.LAST_OFFSET, row)
        if reasons & verify_records.MAGIC:
            magic = at(C.MAGIC, row)
            message = f"the batch at position {position} has magic {magic}; it is valid with magic 2"
            self.rows.report("bad-magic", message, position, size, first, last, {"magic": magic})
        if reasons & verify_records.COUNT:
            message = (
                f"the batch at position {position} declares {counted(at(C.COUNT, row), 'record')} but "
                f"spans {counted(last - first + 1, 'offset')}"
            )
            self.rows.report("record-count-mismatch", message, position, size, first, last)
        if reasons & verify_records.ATTRIBUTES:
            attributes = at(C.ATTRIBUTES, row)
            message = f"the batch at position {position} has attributes {attributes & 0xFFFF:#06x}"
            self.rows.report(
                "unknown-attributes", message, position, size, first, last, {"attributes": attributes}
            )
