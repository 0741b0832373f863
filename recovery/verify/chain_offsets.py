"""Decide which of two batches of a segment has an altered base offset, or whether they are out of order (`header_plausibility`, 1 to 4 and
6)."""

from kseg.recovery.verify import header_plausibility as N
from kseg.recovery.verify.chain_rows import ChainRows
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import offsets_words
from kseg.segment.scanning import offset_fit as F
from kseg.segment.scanning.damage import Damage


class OffsetComparison:
    """Compares the offsets of rows, and corrects altered ones in the table."""

    def __init__(self, rows: ChainRows) -> None:
        self._rows = rows

    def check(self, row: int, upper: int | None, is_end: bool, is_believed: bool) -> None:
        """Called if `row` does not start above the end of the previous batch: find the altered one, or report the pair. upper: the offset
        that follows the last of the rows, None if unknown. is_end: no batch follows in the segment. is_believed: damage follows, and its
        offsets begin after those of `row` (`offset_order`)."""
        table = self._rows.table
        first, before = N.first_of(table, row), self._rows.last_before(row)
        if self._rows.is_misnamed and not row and self._rows.is_start:
            self._out_of_order(row)
            return
        following = self._open(self._following(row, upper))
        current = F.fit_offset(first, N.width_of(table, row), before, following)
        previous, is_misnamed = F.Fit(0), False
        if row:
            lower = self._rows.last_before(row - 1)
            is_misnamed = row == 1 and self._rows.is_start and N.first_of(table, 0) <= lower
            if is_misnamed:
                lower = -1  # the file is not named after its first offset
            previous = F.fit_offset(N.first_of(table, row - 1), N.width_of(table, row - 1), lower, first)
            fills_hole = first == lower + 1 and table.at(C.LAST_OFFSET, row) + 1 == N.first_of(table, row - 1)
            if N.is_copy(table, row) or fills_hole:
                self._out_of_order(row)
                return
            previous = self._by_index(previous, row - 1, lower, first)
        current = self._by_index(current, row, before, following)
        previous, current = self._by_segment(previous, current, row)
        possible_previous = previous
        if following is not None and not is_misnamed:
            previous, current = self._by_gap(previous, current, row, following)
        if is_believed and possible_previous.strength and current.strength != F.CERTAIN:
            previous, current = possible_previous, F.Fit(0)
        if previous.strength > current.strength:
            self.correct(row - 1, previous.value, "the next batch does not start above its end")
        elif current.strength > previous.strength:
            is_first = not row and self._rows.is_start
            base = f"the file name says that the segment begins at offset {self._rows.context.base_offset}"
            self.correct(row, current.value, base if is_first else "the previous batch ends above that")
        elif row + 1 < table.count or not is_end or not self._by_side_files(row, before):
            self._out_of_order(row)

    def _following(self, row: int, upper: int | None) -> int | None:
        """The offset below which the batch must end, unless all adjacent batches are beyond the bound of the segment as well."""
        if row + 1 >= self._rows.table.count:
            return upper
        behind = N.first_of(self._rows.table, row + 1)
        return behind if self._rows.last_before(row) >= self._rows.limit else min(behind, self._rows.limit)

    def _by_segment(self, previous: F.Fit, current: F.Fit, row: int) -> tuple[F.Fit, F.Fit]:
        """If the segment can hold the offsets of only one of the two, the other one is altered."""
        if not row or self._rows.is_misnamed:
            return previous, current
        is_held = [self._rows.table.at(C.LAST_OFFSET, at) < self._rows.limit for at in (row - 1, row)]
        if is_held == [False, True] and previous.strength:
            return previous, F.Fit(0)
        if is_held == [True, False] and current.strength:
            return F.Fit(0), current
        return previous, current

    def _by_gap(self, previous: F.Fit, current: F.Fit, row: int, following: int) -> tuple[F.Fit, F.Fit]:
        """The fits of a pair of batches either of which may be altered: gaps are legal there, so a tight fit is no evidence. The altered
        batch is the one whose offset is out of context; where there is more room than needed, a batch is more likely missing."""
        if (
            not previous.strength
            or not current.strength
            or F.CERTAIN in (previous.strength, current.strength)
        ):
            return previous, current
        lower = self._rows.last_before(row - 1)
        spare_here = following - self._rows.last_before(row) - N.width_of(self._rows.table, row)
        spare_before = N.first_of(self._rows.table, row) - lower - N.width_of(self._rows.table, row - 1)
        if spare_here == spare_before:
            return previous, current
        return (previous, F.Fit(0)) if spare_before > spare_here else (F.Fit(0), current)

    def _by_index(self, fit: F.Fit, row: int, lower: int, upper: int | None) -> F.Fit:
        """The fit of a hypothesis according to the offset index, if it has an entry for the batch."""
        table = self._rows.table
        last = self._rows.context.indexed(table.at(C.POSITION, row)) if fit.strength else None
        if last is None or self._rows.is_misnamed or table.at(C.MAGIC, row) < L.MAGIC_V2:
            return fit
        if last == table.at(C.LAST_OFFSET, row):
            return F.Fit(0)
        first = last - N.width_of(table, row) + 1
        is_possible = lower < first and (upper is None or last < upper)
        is_one_bit = F.flipped_bit(table.at(C.BASE_OFFSET, row), first, 64) is not None
        return F.Fit(F.CERTAIN, first) if is_possible and is_one_bit else fit

    def _open(self, following: int | None) -> int | None:
        """The offset that follows the last row; None for the last batch of a log, whose bound is too far away to be evidence."""
        if self._rows.context.next_base is None and following == self._rows.limit:
            return None
        return following

    def correct(self, row: int, probable: int | None, why: str) -> None:
        """Report an altered base offset, and continue as if the batch had the probable one."""
        self._rows.found.append(
            N.altered_offset(self._rows.context.path, self._rows.table, row, probable, why)
        )
        N.set_offset(self._rows.table, row, self._rows.last_before(row) + 1 if probable is None else probable)

    def _out_of_order(self, row: int) -> None:
        table = self._rows.table
        first, last = N.first_of(table, row), table.at(C.LAST_OFFSET, row)
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        if not row and self._rows.is_start:
            message = (
                f"the first batch has {offsets_words(first, last)}, below the base offset "
                f"{self._rows.context.base_offset} in the file name"
            )
            self._rows.report("offset-below-segment", message, position, size, first, last)
            return
        copy = ", a copy of it" if row and N.is_copy(table, row) else ""
        before = self._rows.last_before(row)
        message = f"the batch at position {position} starts at offset {first}; the previous one ends at {before}{copy}"
        self._rows.report(
            "offset-not-monotonic", message, position, size, first, last, {"former_last_offset": before}
        )

    def check_before(self, damage: Damage) -> None:
        """Report the last batch if it claims offsets above the one at which the damage after it begins (`offset_order`). The batch before
        it is reported as well if it leaves no room for the corrected one, but would fit below that with one bit flipped back."""
        row = self._rows.table.count - 1
        if row < 0 or damage.next_offset is None:
            return
        last, width = self._rows.table.at(C.LAST_OFFSET, row), N.width_of(self._rows.table, row)
        probable = damage.next_offset - width
        if last < damage.next_offset:
            return
        is_one_bit = F.flipped_bit(N.first_of(self._rows.table, row), probable, 64) is not None
        if not is_one_bit and last < self._rows.limit:
            return  # the batch may have been moved here
        why = f"the segment must end below offset {self._rows.limit}"
        if damage.first_behind is not None:
            why = f"after the damage that follows, the log continues at offset {damage.first_behind}"
        if self._rows.last_before(row) >= probable:
            former = self._flipped_below(row - 1, probable) if row and is_one_bit else None
            if former is None:
                return
            self.correct(row - 1, former, why)
        self.correct(row, probable if is_one_bit else None, why)

    def _flipped_below(self, row: int, upper: int) -> int | None:
        """The first offset that the batch had before one bit was flipped, if only one fits above the batch before it and below `upper`."""
        table = self._rows.table
        first = N.first_of(table, row)
        probable = F.fit_offset(first, N.width_of(table, row), self._rows.last_before(row), upper).value
        return probable if F.flipped_bit(first, probable, 64) is not None else None

    def check_end(self) -> None:
        """Verdicts on the last batch, which need the end of the segment."""
        table, row = self._rows.table, self._rows.table.count - 1
        first, last, width = N.first_of(table, row), table.at(C.LAST_OFFSET, row), N.width_of(table, row)
        lower = self._rows.last_before(row)
        if last >= self._rows.limit:
            # the base offset of the next segment is as close a bound as an adjacent batch; an index entry may be far away
            bound = self._rows.limit if self._rows.limit == self._rows.context.next_base else None
            fit = F.fit_offset(first, width, lower, bound)
            if self._by_side_files(row, lower):
                return
            if fit.strength:
                self.correct(row, fit.value, f"the segment must end below offset {self._rows.limit}")
            elif bound is None:
                message = f"offset {last} is more than 2^31 - 1 above the base offset {self._rows.context.base_offset}"
                self._rows.report(
                    "offset-overflow", message, table.at(C.POSITION, row), table.at(C.SIZE, row), first, last
                )
            return
        if self._rows.context.is_last and table.at(C.COUNT, row) >= 0:
            self._check_last(row, first, lower)

    def _check_last(self, row: int, first: int, lower: int) -> None:
        """Check the last batch of the log against side files, which may know where the log ends; otherwise check a gap before it."""
        table, probable = self._rows.table, lower + 1
        if (
            self._by_side_files(row, lower)
            or first <= probable
            or table.at(C.LAST_OFFSET, row) in self._rows.context.evidence.last_offsets
        ):
            return
        if F.flipped_bit(first, probable, 64) is not None and self._is_gap_by_flip(row):
            self.correct(row, probable, f"the previous offset is {lower} and no offset is missing")

    def _by_side_files(self, row: int, lower: int) -> bool:
        """Whether side files know a batch that ends where the last one of the log would with one bit flipped back. Not if no offset is
        missing before it: then batches after it are lost, as any number of them that is a power of two is one flipped bit as well."""
        evidence, width = self._rows.context.evidence, N.width_of(self._rows.table, row)
        last_offset = self._rows.table.at(C.LAST_OFFSET, row)
        first = N.first_of(self._rows.table, row)
        if not self._rows.context.is_last or self._rows.is_misnamed or first == lower + 1:
            return False
        known = evidence.last_offsets
        if last_offset in known:
            return False
        candidates = [v for v in F.one_bit_away(first, 64) if v > lower and v + width - 1 in known]
        if len(candidates) != 1:
            return False
        self.correct(
            row,
            candidates[0],
            f"an index, snapshot or checkpoint refers to a batch that ends at {candidates[0] + width - 1}",
        )
        return True

    def _is_gap_by_flip(self, row: int) -> bool:
        """Whether the gap before the last batch is the only one in the segment."""
        if not self._rows.is_gapless or not row:
            return False
        table = self._rows.table
        gapless_here = all(
            N.first_of(table, at) == self._rows.last_before(at) + 1
            for at in range(0 if not self._rows.is_start else 1, row)
        )
        return gapless_here and N.goes_on(table, row) is not False
