"""The chain of batches in one segment: compare each batch with its neighbours before any consumer sees it.

`Chain` collects tables of batches, runs the kernel over them, and inspects a row only where the kernel stops. Rows are
released (`table`, rows 0 … `ready`) when no later batch can change the verdict on them, so up to two rows wait
for the next table. The rules are those of `header_plausibility`.
"""

from array import array
from collections.abc import Iterator

from kseg.recovery.verify import header_plausibility as N
from kseg.recovery.verify.header_plausibility import HeaderContext, PreviousBatch
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import counted, offsets_words
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import verify_records
from kseg.segment.scanning import offset_fit as F
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.offset_order import is_misnamed

_CARRIED_ROWS = 2
# Beyond this the segment is no longer a log, and comparing each pair would waste time.
MAX_SUSPECTS = 10_000


class Chain:
    """Feed it with blocks; take rows 0 … ready - 1 of `table` after each call, then `carry`.

    is_gapless: set by the owner, whether nothing it has taken so far had a gap or a trace of cleaning.
    """

    def __init__(self, context: HeaderContext) -> None:
        self.context = context
        self.table = Columns(C.BATCH_WIDTH, _CARRIED_ROWS)
        self.ready = 0
        self.is_gapless = True
        limit = context.base_offset + L.INT32_MAX + 1
        self._limit = limit if context.next_base is None else min(limit, context.next_base)
        self._before_last = context.base_offset - 1
        self._before_epoch = context.previous_epoch
        self._is_start = True  # row 0 is the first batch of the segment
        self._is_misnamed = False
        self._checked_rows = 0
        self._lost_to: int | None = None  # the last offset of damage right behind the rows
        self._suspects = 0
        self._state = memoryview(array("q", bytes(8 * verify_records.SEEN_WIDTH)))
        self._state[verify_records.SEEN_LAST] = self._before_last
        self._state[verify_records.SEEN_EPOCH] = self._before_epoch
        self._found: list[Finding] = []

    @property
    def last_epoch(self) -> int:
        """The leader epoch after everything checked so far."""
        return self._state[verify_records.SEEN_EPOCH]

    def last_batch(self) -> PreviousBatch | None:
        """After `close`, before `carry`: what the next segment must know of this one's last batch."""
        row = self.table.count - 1
        if row < 0 or self._epoch_at(row) == L.NO_LEADER_EPOCH:
            return None
        offsets = N.first_of(self.table, row), self.table.at(C.LAST_OFFSET, row)
        position = self.table.at(C.POSITION, row)
        return PreviousBatch(
            self.context.path, position, offsets, self._epoch_at(row), self._epoch_before(row)
        )

    def feed(self, block: Columns) -> Iterator[Finding]:
        """Take in a block of valid batches."""
        self._reserve(self.table.count + block.count)
        table, carried = self.table, self.table.count
        for field in range(C.BATCH_WIDTH):
            start = field * table.capacity + carried
            table.cells[start : start + block.count] = block.column(field)
        table.count = carried + block.count
        self._check_rows(table.count - 1)
        self.ready = max(0, table.count - _CARRIED_ROWS)
        return self._take_findings()

    def _reserve(self, rows: int) -> None:
        if rows > self.table.capacity:
            wider = Columns(C.BATCH_WIDTH, max(rows, 2 * self.table.capacity))
            wider.count = self.table.count
            for field in range(C.BATCH_WIDTH):
                wider.column(field)[:] = self.table.column(field)
            self.table = wider

    def carry(self) -> None:
        """Drop the ready rows, which the caller has handled; keep the others for the next block."""
        table, ready = self.table, self.ready
        if ready:
            self._before_last = table.at(C.LAST_OFFSET, ready - 1)
            self._before_epoch = self._epoch_before(ready)
            self._is_start = False
        left = table.count - ready
        for field in range(C.BATCH_WIDTH):
            start = field * table.capacity
            for row in range(left):
                table.cells[start + row] = table.cells[start + ready + row]
        table.count, self.ready = left, 0
        self._checked_rows -= ready
        if self._lost_to is not None:  # the headers of the damage tell which offsets it had
            self._before_last = max(self._before_last, self._lost_to)
            self._state[verify_records.SEEN_LAST] = self._before_last
            self._lost_to = None

    def close(self) -> Iterator[Finding]:
        """No batch follows the ones fed. All are ready."""
        self._check_rows(self.table.count, self._limit, is_end=True)
        if self.table.count:
            self._check_end()
        self.ready = self.table.count
        return self._take_findings()

    def close_before(self, damage: Damage | None) -> Iterator[Finding]:
        """Damage follows the batches fed (None: unknown batches). All are ready."""
        table, following = self.table, None if damage is None else damage.first_behind
        self._check_rows(table.count, following)
        row = table.count - 1
        if row >= 0 and following is not None and table.at(C.LAST_OFFSET, row) >= following:
            lower = self._last_before(row)
            found = N.first_of(table, row)
            fit = F.fit_offset(found, N.width_of(table, row), lower, following)
            # else it may have been moved here
            is_altered = (
                table.at(C.LAST_OFFSET, row) >= self._limit or F.flipped_bit(found, fit.value, 64) is not None
            )
            if fit.strength and is_altered:
                why = f"behind the damage that follows, the log continues at offset {following}"
                self._correct_offset(row, fit.value, why)
                self._state[verify_records.SEEN_LAST] = table.at(C.LAST_OFFSET, row)
        if damage is not None and damage.lost.records is not None:
            self._lost_to = damage.lost.last_offset
        self.ready = table.count
        return self._take_findings()

    def _take_findings(self) -> Iterator[Finding]:
        found, self._found = self._found, []
        return iter(found)

    # --- the assessment

    def _check_rows(self, stop: int, upper: int | None = None, *, is_end: bool = False) -> None:
        """upper: the offset that follows the last of the rows, None when unknown. is_end: no batch follows in the segment."""
        table, state = self.table, self._state
        if self._is_start and not self._checked_rows and table.count:
            # name and side files are then another log's
            firsts = [N.first_of(table, row) for row in range(min(3, table.count))]
            self._is_misnamed = is_misnamed(firsts, self.context.base_offset) or (
                len(firsts) == 1 and firsts[0] < self.context.base_offset
            )
        row = stop if self._suspects > MAX_SUSPECTS else self._checked_rows
        while row < stop:
            row = verify_records.next_suspect(table.cells, table.capacity, row, stop, state)
            if row >= stop:
                break
            reasons = state[verify_records.SEEN_REASONS]
            self._suspects += 1
            if self._suspects > MAX_SUSPECTS:
                self._give_up(row)
                break
            if reasons & (verify_records.COUNT | verify_records.ATTRIBUTES | verify_records.MAGIC):
                self._header(row, reasons)
            if reasons & verify_records.OFFSET:
                self._offset(row, upper, is_end)
            if reasons & verify_records.EPOCH:
                self._epoch(row, row + 1 >= table.count)
                state[verify_records.SEEN_EPOCH] = self._epoch_at(row)
            state[verify_records.SEEN_LAST] = table.at(C.LAST_OFFSET, row)
            row += 1
        self._checked_rows = max(self._checked_rows, stop)

    def _give_up(self, row: int) -> None:
        position = self.table.at(C.POSITION, row)
        message = (
            f"more than {MAX_SUSPECTS} batches contradict adjacent batches; later batches are not compared"
        )
        self._report("offset-not-monotonic", message, position, 0, self.table.at(C.BASE_OFFSET, row), None)

    def _header(self, row: int, reasons: int) -> None:
        at = self.table.at
        position, size = at(C.POSITION, row), at(C.SIZE, row)
        first, last = at(C.BASE_OFFSET, row), at(C.LAST_OFFSET, row)
        if reasons & verify_records.MAGIC:
            magic = at(C.MAGIC, row)
            message = f"the batch at position {position} has magic {magic}; it is valid with magic 2"
            self._report("bad-magic", message, position, size, first, last, {"magic": magic})
        if reasons & verify_records.COUNT:
            message = f"the batch at position {position} declares {counted(at(C.COUNT, row), 'record')} but spans {counted(last - first + 1, 'offset')}"
            self._report("record-count-mismatch", message, position, size, first, last)
        if reasons & verify_records.ATTRIBUTES:
            attributes = at(C.ATTRIBUTES, row)
            message = f"the batch at position {position} has attributes {attributes & 0xFFFF:#06x}"
            self._report(
                "unknown-attributes", message, position, size, first, last, {"attributes": attributes}
            )

    def _report(
        self,
        kind: str,
        message: str,
        position: int,
        length: int,
        first: int,
        last: int | None,
        numbers: dict[str, int | str | bool | None] | None = None,
    ) -> None:
        self._found.append(
            Finding(kind, self.context.path, message, position, length, first, last, numbers or {})
        )

    # --- offsets

    def _last_before(self, row: int) -> int:
        return self.table.at(C.LAST_OFFSET, row - 1) if row else self._before_last

    def _offset(self, row: int, upper: int | None, is_end: bool) -> None:
        """The batch in `row` does not start above the end of the one before it."""
        table = self.table
        first, before = N.first_of(table, row), self._last_before(row)
        if self._is_misnamed and not row and self._is_start:
            self._out_of_order(row)
            return
        following = self._open(self._following(row, upper))
        current = F.fit_offset(first, N.width_of(table, row), before, following)
        previous, is_misnamed = F.Fit(0), False
        if row:
            lower = self._last_before(row - 1)
            is_misnamed = row == 1 and self._is_start and N.first_of(table, 0) <= lower
            if is_misnamed:
                lower = -1  # the name does not tell the first offset
            previous = F.fit_offset(N.first_of(table, row - 1), N.width_of(table, row - 1), lower, first)
            fills_hole = first == lower + 1 and table.at(C.LAST_OFFSET, row) + 1 == N.first_of(table, row - 1)
            if N.is_copy(table, row) or fills_hole:
                self._out_of_order(row)
                return
            previous = self._by_index(previous, row - 1, lower, first)
        current = self._by_index(current, row, before, following)
        previous, current = self._by_segment(previous, current, row)
        if following is not None and not is_misnamed:
            previous, current = self._by_gap(previous, current, row, following)
        if previous.strength > current.strength:
            self._correct_offset(row - 1, previous.value, "the next batch does not start above its end")
        elif current.strength > previous.strength:
            self._correct_offset(row, current.value, "the previous batch ends above that")
        elif row + 1 < table.count or not is_end or not self._by_side_files(row, before):
            self._out_of_order(row)

    def _following(self, row: int, upper: int | None) -> int | None:
        """The offset below which the batch must end, unless all around it is beyond the segment's bound as well."""
        if row + 1 >= self.table.count:
            return upper
        behind = N.first_of(self.table, row + 1)
        return behind if self._last_before(row) >= self._limit else min(behind, self._limit)

    def _by_segment(self, previous: F.Fit, current: F.Fit, row: int) -> tuple[F.Fit, F.Fit]:
        """Where only one of the two has offsets that the segment can hold, the other one is altered."""
        if not row or self._is_misnamed:
            return previous, current
        is_held = [self.table.at(C.LAST_OFFSET, at) < self._limit for at in (row - 1, row)]
        if is_held == [False, True] and previous.strength:
            return previous, F.Fit(0)
        if is_held == [True, False] and current.strength:
            return F.Fit(0), current
        return previous, current

    def _by_gap(self, previous: F.Fit, current: F.Fit, row: int, following: int) -> tuple[F.Fit, F.Fit]:
        """Where both may be altered there are legal gaps, and a tight fit is no evidence. The altered one has left its
        context: where more room is than needed, a batch is likelier missing."""
        if (
            not previous.strength
            or not current.strength
            or F.CERTAIN in (previous.strength, current.strength)
        ):
            return previous, current
        lower = self._last_before(row - 1)
        spare_here = following - self._last_before(row) - N.width_of(self.table, row)
        spare_before = N.first_of(self.table, row) - lower - N.width_of(self.table, row - 1)
        if spare_here == spare_before:
            return previous, current
        return (previous, F.Fit(0)) if spare_before > spare_here else (F.Fit(0), current)

    def _by_index(self, fit: F.Fit, row: int, lower: int, upper: int | None) -> F.Fit:
        """Weigh a hypothesis against the offset index, if that has an entry for the batch."""
        table = self.table
        last = self.context.indexed(table.at(C.POSITION, row)) if fit.strength else None
        if last is None or self._is_misnamed or table.at(C.MAGIC, row) < L.MAGIC_V2:
            return fit
        if last == table.at(C.LAST_OFFSET, row):
            return F.Fit(0)
        first = last - N.width_of(table, row) + 1
        is_possible = lower < first and (upper is None or last < upper)
        is_one_bit = F.flipped_bit(table.at(C.BASE_OFFSET, row), first, 64) is not None
        return F.Fit(F.CERTAIN, first) if is_possible and is_one_bit else fit

    def _open(self, following: int | None) -> int | None:
        """The bound above the last batch of a log is far away: nothing is known to follow."""
        if self.context.next_base is None and following == self._limit:
            return None
        return following

    def _correct_offset(self, row: int, probable: int | None, why: str) -> None:
        self._found.append(N.altered_offset(self.context.path, self.table, row, probable, why))
        N.set_offset(self.table, row, self._last_before(row) + 1 if probable is None else probable)

    def _out_of_order(self, row: int) -> None:
        table = self.table
        first, last = N.first_of(table, row), table.at(C.LAST_OFFSET, row)
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        if not row and self._is_start:
            message = f"the first batch has {offsets_words(first, last)}, below the base offset {self.context.base_offset} in the file name"
            self._report("offset-below-segment", message, position, size, first, last)
            return
        copy = ", a copy of it" if row and N.is_copy(table, row) else ""
        before = self._last_before(row)
        message = f"the batch at position {position} starts at offset {first}; the previous one ends at {before}{copy}"
        self._report(
            "offset-not-monotonic", message, position, size, first, last, {"former_last_offset": before}
        )

    def _check_end(self) -> None:
        """Verdicts on the last batch that need the end of the segment."""
        table, row = self.table, self.table.count - 1
        first, last, width = N.first_of(table, row), table.at(C.LAST_OFFSET, row), N.width_of(table, row)
        lower = self._last_before(row)
        if last >= self._limit:
            # only the next segment is a neighbour to fit before; the reach of an index entry is far away
            bound = self._limit if self._limit == self.context.next_base else None
            fit = F.fit_offset(first, width, lower, bound)
            if self._by_side_files(row, lower):
                return
            if fit.strength:
                self._correct_offset(row, fit.value, f"the segment must end below offset {self._limit}")
            elif bound is None:
                message = (
                    f"offset {last} is more than 2^31 - 1 above the base offset {self.context.base_offset}"
                )
                self._report(
                    "offset-overflow", message, table.at(C.POSITION, row), table.at(C.SIZE, row), first, last
                )
            return
        if self.context.is_last and table.at(C.COUNT, row) >= 0:
            self._check_last(row, first, lower)

    def _check_last(self, row: int, first: int, lower: int) -> None:
        """The last batch of the log: side files may know where it ends; else a gap before it is checked."""
        table, probable = self.table, lower + 1
        if (
            self._by_side_files(row, lower)
            or first <= probable
            or table.at(C.LAST_OFFSET, row) in self.context.evidence.last_offsets
        ):
            return
        if F.flipped_bit(first, probable, 64) is not None and self._is_gap_by_flip(row):
            self._correct_offset(row, probable, f"the previous offset is {lower} and no offset is missing")

    def _by_side_files(self, row: int, lower: int) -> bool:
        """Whether side files know a batch that ends where the log's last one would with one bit flipped back. Where no offset is
        missing before it, a single index entry is more likely to be altered than the batch."""
        evidence, width = self.context.evidence, N.width_of(self.table, row)
        last_offset = self.table.at(C.LAST_OFFSET, row)
        if not self.context.is_last or self._is_misnamed or last_offset in evidence.last_offsets:
            return False
        first = N.first_of(self.table, row)
        known = evidence.confirmed if first == lower + 1 else evidence.last_offsets
        candidates = [v for v in F.one_bit_away(first, 64) if v > lower and v + width - 1 in known]
        if len(candidates) != 1:
            return False
        self._correct_offset(
            row,
            candidates[0],
            f"an index, snapshot or checkpoint refers to a batch that ends at {candidates[0] + width - 1}",
        )
        return True

    def _is_gap_by_flip(self, row: int) -> bool:
        """Whether the only gap in all of the segment is the one before its last batch."""
        if not self.is_gapless or not row:
            return False
        table = self.table
        gapless_here = all(
            N.first_of(table, at) == self._last_before(at) + 1
            for at in range(0 if not self._is_start else 1, row)
        )
        return gapless_here and N.goes_on(table, row) is not False

    # --- leader epochs

    def _epoch_at(self, row: int) -> int:
        table = self.table
        return table.at(C.LEADER_EPOCH, row) if table.at(C.MAGIC, row) >= L.MAGIC_V2 else L.NO_LEADER_EPOCH

    def _epoch_before(self, row: int) -> int:
        """The leader epoch known before `row`; batches without one say nothing."""
        for before in range(row - 1, -1, -1):
            if self._epoch_at(before) != L.NO_LEADER_EPOCH:
                return self._epoch_at(before)
        return self._before_epoch

    def _epoch(self, row: int, is_last: bool) -> None:
        """The batch in `row` has another leader epoch than the one before it."""
        found, before = self._epoch_at(row), self._epoch_before(row)
        after = None if is_last else self._epoch_at(row + 1)
        if after == L.NO_LEADER_EPOCH:
            after = None
        if found > before >= 0:
            if self._is_start and row == 1 and self.context.previous_epoch < 0:
                self._contradicts_checkpoint(0, before, 0, found)  # the log's first batch has no predecessor
            if after is None or after > found:
                self._rise(row, found, self._epoch_before(row), after)
            return
        current = self._without_sign(found, before, after) if found < 0 else N.fit_epoch(found, before, after)
        previous = F.Fit(0)
        across = self.context.previous if not row and self._is_start else None
        if found >= 0 and row and self._epoch_at(row - 1) == before:
            previous = N.fit_epoch(before, self._epoch_before(row - 1), found)
        elif found >= 0 and across is not None:
            previous = N.fit_epoch(before, across.epoch_before, found)
        previous, current = self._by_checkpoint(row, previous, current)
        if previous.strength > current.strength and across is not None:
            why = f"the first batch of the next segment has epoch {found}"
            altered = N.altered_epoch(
                across.path, across.position, before, previous.value, why, across.offsets
            )
            self._found.append(altered)
        elif previous.strength > current.strength:
            self._correct_epoch(row - 1, previous.value, f"the next batch has epoch {found}")
        elif current.strength > previous.strength:
            self._correct_epoch(row, current.value, f"the previous batch has epoch {before}")
        else:
            self._decreases(row, found, before)

    @staticmethod
    def _without_sign(found: int, before: int, after: int | None) -> F.Fit:
        """A negative epoch is wrong whatever its neighbours have."""
        positive = found & L.INT32_MAX
        fits = positive >= before and (after is None or after < 0 or positive <= after)
        return F.Fit(F.CERTAIN, positive if fits or before < 0 else before)

    def _by_checkpoint(self, row: int, previous: F.Fit, current: F.Fit) -> tuple[F.Fit, F.Fit]:
        """Break a tie by the leader-epoch checkpoint, when exactly one of the two epochs contradicts it."""
        epochs = self.context.evidence.epochs
        if previous.strength != current.strength or epochs is None:
            return previous, current
        filed = [
            None if at < 0 else epochs.epoch_for_offset(N.first_of(self.table, at)) for at in (row - 1, row)
        ]
        wrong = [
            at >= 0 and epoch is not None and epoch != self._epoch_at(at)
            for at, epoch in zip((row - 1, row), filed, strict=True)
        ]
        if wrong == [True, False]:
            return F.Fit(F.CERTAIN, filed[0]), current
        if wrong == [False, True]:
            return previous, F.Fit(F.CERTAIN, filed[1])
        return previous, current

    def _rise(self, row: int, found: int, before: int, after: int | None) -> None:
        """An epoch of one batch only: believed unless the leader-epoch checkpoint knows better."""
        epochs = self.context.evidence.epochs
        if epochs is not None and epochs.entries:
            self._contradicts_checkpoint(row, found, before, after)
            return
        is_end = after is None and self.context.is_last and row + 1 == self.table.count
        if (
            is_end
            and found - before > N.BELIEVABLE_EPOCH_RISE
            and F.flipped_bit(found, before, 32) is not None
        ):
            self._correct_epoch(row, before, f"the previous batch has epoch {before}")

    def _contradicts_checkpoint(self, row: int, found: int, lower: int, upper: int | None) -> None:
        """Correct an epoch that the checkpoint lacks, where the checkpoint has one that fits for the batch's offset."""
        epochs = self.context.evidence.epochs
        filed = None if epochs is None else epochs.epoch_for_offset(N.first_of(self.table, row))
        if epochs is None or filed is None or any(entry.epoch == found for entry in epochs.entries):
            return
        if filed >= lower and (upper is None or filed <= upper):
            self._correct_epoch(row, filed, f"the leader-epoch checkpoint has epoch {filed} there")

    def _correct_epoch(self, row: int, probable: int | None, why: str) -> None:
        table = self.table
        offsets = N.first_of(table, row), table.at(C.LAST_OFFSET, row)
        position = table.at(C.POSITION, row)
        found = self._epoch_at(row)
        self._found.append(N.altered_epoch(self.context.path, position, found, probable, why, offsets))
        value = self._epoch_before(row) if probable is None else probable
        table.cells[C.LEADER_EPOCH * table.capacity + row] = value

    def _decreases(self, row: int, found: int, before: int) -> None:
        table = self.table
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        message = (
            f"the batch at position {position} has leader epoch {found}, but the previous one has {before}"
        )
        first, last = N.first_of(table, row), table.at(C.LAST_OFFSET, row)
        self._report("leader-epoch-decreases", message, position, size, first, last)
