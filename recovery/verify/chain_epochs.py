"""Decide which of two batches of a segment has an altered leader epoch, or whether epochs decrease (`header_plausibility`, rule 5)."""

from kseg.recovery.verify import header_plausibility as N
from kseg.recovery.verify.chain_rows import ChainRows
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.scanning import offset_fit as F


class EpochComparison:
    """Compares the leader epochs of rows, and corrects altered ones in the table."""

    def __init__(self, rows: ChainRows) -> None:
        self._rows = rows

    def check(self, row: int, is_last: bool) -> None:
        """Called if the epoch of `row` differs from the previous one: find the altered one, or report a decrease. is_last: it is the last
        row."""
        found, before = self._rows.epoch_at(row), self._rows.epoch_before(row)
        after = None if is_last else self._rows.epoch_at(row + 1)
        if after == L.NO_LEADER_EPOCH:
            after = None
        if found > before >= 0:
            if self._rows.is_start and row == 1 and self._rows.context.previous_epoch < 0:
                self._contradicts_checkpoint(0, before, 0, found)  # the log's first batch has no predecessor
            if after is None or after > found:
                self._rise(row, found, self._rows.epoch_before(row), after)
            return
        current = self._without_sign(found, before, after) if found < 0 else N.fit_epoch(found, before, after)
        previous = F.Fit(0)
        across = self._rows.context.previous if not row and self._rows.is_start else None
        if found >= 0 and row and self._rows.epoch_at(row - 1) == before:
            previous = N.fit_epoch(before, self._rows.epoch_before(row - 1), found)
        elif found >= 0 and across is not None:
            previous = N.fit_epoch(before, across.epoch_before, found)
        previous, current = self._by_checkpoint(row, previous, current)
        if previous.strength > current.strength and across is not None:
            why = f"the first batch of the next segment has epoch {found}"
            altered = N.altered_epoch(
                across.path, across.position, before, previous.value, why, across.offsets
            )
            self._rows.found.append(altered)
        elif previous.strength > current.strength:
            self._correct_epoch(row - 1, previous.value, f"the next batch has epoch {found}")
        elif current.strength > previous.strength:
            self._correct_epoch(row, current.value, f"the previous batch has epoch {before}")
        else:
            self._decreases(row, found, before)

    @staticmethod
    def _without_sign(found: int, before: int, after: int | None) -> F.Fit:
        """The fit for a negative epoch, which is certainly altered, whatever the adjacent batches have."""
        positive = found & L.INT32_MAX
        fits = positive >= before and (after is None or after < 0 or positive <= after)
        return F.Fit(F.CERTAIN, positive if fits or before < 0 else before)

    def _by_checkpoint(self, row: int, previous: F.Fit, current: F.Fit) -> tuple[F.Fit, F.Fit]:
        """Break a tie by the leader-epoch checkpoint, when exactly one of the two epochs contradicts it."""
        epochs = self._rows.context.evidence.epochs
        if previous.strength != current.strength or epochs is None:
            return previous, current
        filed = [
            None if at < 0 else epochs.epoch_for_offset(N.first_of(self._rows.table, at))
            for at in (row - 1, row)
        ]
        wrong = [
            at >= 0 and epoch is not None and epoch != self._rows.epoch_at(at)
            for at, epoch in zip((row - 1, row), filed, strict=True)
        ]
        if wrong == [True, False]:
            return F.Fit(F.CERTAIN, filed[0]), current
        if wrong == [False, True]:
            return previous, F.Fit(F.CERTAIN, filed[1])
        return previous, current

    def _rise(self, row: int, found: int, before: int, after: int | None) -> None:
        """Check an epoch that only one batch has. It is accepted unless the leader-epoch checkpoint contradicts it."""
        epochs = self._rows.context.evidence.epochs
        if epochs is not None and epochs.latest is not None:
            self._contradicts_checkpoint(row, found, before, after)
            return
        is_end = after is None and self._rows.context.is_last and row + 1 == self._rows.table.count
        if (
            is_end
            and found - before > N.BELIEVABLE_EPOCH_RISE
            and F.flipped_bit(found, before, 32) is not None
        ):
            self._correct_epoch(row, before, f"the previous batch has epoch {before}")

    def _contradicts_checkpoint(self, row: int, found: int, lower: int, upper: int | None) -> None:
        """Correct an epoch that the checkpoint does not have, if it has one that fits the offset of the batch."""
        epochs = self._rows.context.evidence.epochs
        filed = None if epochs is None else epochs.epoch_for_offset(N.first_of(self._rows.table, row))
        if epochs is None or filed is None or epochs.has(found):
            return
        if filed >= lower and (upper is None or filed <= upper):
            self._correct_epoch(row, filed, f"the leader-epoch checkpoint has epoch {filed} there")

    def _correct_epoch(self, row: int, probable: int | None, why: str) -> None:
        table = self._rows.table
        offsets = N.first_of(table, row), table.at(C.LAST_OFFSET, row)
        position = table.at(C.POSITION, row)
        found = self._rows.epoch_at(row)
        self._rows.found.append(
            N.altered_epoch(self._rows.context.path, position, found, probable, why, offsets)
        )
        value = self._rows.epoch_before(row) if probable is None else probable
        table.cells[C.LEADER_EPOCH * table.capacity + row] = value

    def _decreases(self, row: int, found: int, before: int) -> None:
        table = self._rows.table
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        message = (
            f"the batch at position {position} has leader epoch {found}, but the previous one has {before}"
        )
        first, last = N.first_of(table, row), table.at(C.LAST_OFFSET, row)
        self._rows.report("leader-epoch-decreases", message, position, size, first, last)
