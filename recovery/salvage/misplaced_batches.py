"""Decide from the whole log whether a batch was altered, moved or copied, where its neighbours in the file cannot tell.

A base offset that contradicts its neighbours may have been altered, or the batch may be in the wrong place with the
right offsets. Damage may contain complete batches, too: a batch inside a partially written one, bytes that were written twice. Each
doubtful batch is compared with all undoubted batches:

1. A byte-equal batch has the claimed offsets: it is a copy, and copies are resolved like any others.
2. No batch has one of the claimed offsets, not even a damaged one whose header is readable, and they are inside the log (or join its
   end, or side files have them): it was moved, and belongs where its header says. Exception: with one bit changed it fills the gap between
   its neighbours exactly, or it follows damage, which may extend into its header, and with its offsets unchanged it fills no gap exactly.
3. Otherwise it was altered. If the true value is certain, because with it the batch joins adjacent batches without a gap (including damaged
   ones with a readable header), because it is one bit away from a claimed offset that is far from all others of the log, or because it is
   one bit away and the file is named after it, the batch gets that value; a copy of a batch that stays gets it only if one bit differs.
   Otherwise the batch competes for the offsets that it claims if the log has them, or else is removed: no valid batch gets a guessed
   offset.

Doubtful batches whose claims are uncontested count as neighbours of one another: of two batches that changed places, each
fills the gap that the other one leaves.

Then the leader epochs are checked in the resulting order (`salvaged_epochs`).
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from kseg.recovery.salvage.logs import HeaderFix, Logs, ValidRun, valid_run_of
from kseg.recovery.salvage.outliers import (
    BELIEVABLE_GAP,
    doubt_outliers,
    is_near,
    moved_to,
    remove_beyond_end,
    set_altered_offset,
)
from kseg.recovery.salvage.overlaps import MergeResult, in_order
from kseg.recovery.salvage.salvaged_epochs import correct_epochs
from kseg.recovery.salvage.valid_runs import DoubtfulBatch, Loss, ValidRunCollector
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.scanning.offset_fit import one_bit_away
from kseg.segment.sidecar.leader_epochs import EpochHistory


def resolved_order(
    logs: Logs, collectors: Sequence[ValidRunCollector], known_end: int | None, epochs: EpochHistory | None
) -> MergeResult:
    """All that stays, in order, with every doubt resolved: fixes that are not needed are dropped, and removed batches are added to the
    losses of their collector. known_end: the largest offset that side files have. epochs: the leader-epoch checkpoint."""
    for collector in collectors:
        doubt_outliers(logs, collector)
    remove_beyond_end(logs, collectors, known_end)
    plain = [
        valid_run for collector in collectors for valid_run in collector.valid_runs if valid_run.is_believed
    ]
    order = in_order(logs, plain, epochs)
    accepted = [*_accepted_after_damage(logs, collectors, order, known_end)]
    if accepted:
        order = in_order(logs, [*plain, *accepted], epochs)
    for number, collector in enumerate(collectors):
        if collector.losses:
            collector.search_damage(logs.file(number))
    doubtful = [doubt for collector in collectors for doubt in collector.doubtful]
    if doubtful:
        resolved = _Doubts(logs, collectors, order, known_end).resolved(doubtful)
        order = in_order(logs, [*plain, *accepted, *resolved], epochs)
    correct_epochs(logs, order.kept, epochs)
    return order


def _accepted_after_damage(
    logs: Logs, collectors: Sequence[ValidRunCollector], order: MergeResult, known_end: int | None
) -> Iterator[ValidRun]:
    """Accept a valid run after damage if it is inside the log, if the file contains nothing else (then the file is in the wrong place), or
    if trusted runs continue from it. Remove all others: they may be part of record values."""
    low = logs[0].base_offset if len(logs) else 0
    high = max(order.last_offset + 1, known_end or 0)
    for collector in collectors:
        is_all = not any(valid_run.is_believed for valid_run in collector.valid_runs)
        leading = _leading_on(collector)
        for valid_run in [valid_run for valid_run in collector.valid_runs if not valid_run.is_believed]:
            is_inside = low <= valid_run.first_offset <= valid_run.last_offset <= high
            if is_all or is_inside or valid_run.position in leading:
                yield valid_run
                continue
            collector.remove(valid_run)


def _leading_on(collector: ValidRunCollector) -> set[int]:
    """Positions of the valid runs from which trusted ones continue: between the two, no more offsets are missing than the damage there has
    bytes."""
    found, after = set[int](), None
    for valid_run in reversed(collector.valid_runs):
        is_leading = (
            after is not None
            and 0 < after.first_offset - valid_run.last_offset <= 1 + after.position - valid_run.end_position
        )
        if not valid_run.is_believed and is_leading:
            found.add(valid_run.position)
        after = valid_run if valid_run.is_believed or is_leading else None
    return found


class _Doubts:
    def __init__(
        self, logs: Logs, collectors: Sequence[ValidRunCollector], order: MergeResult, known_end: int | None
    ) -> None:
        self._logs = logs
        self._collectors = collectors
        self._order = order
        self._known_end = known_end
        self._start = 0
        self._claims: list[ValidRun] = []
        self._uncontested_claims: list[ValidRun] = []
        # damage whose offsets are known from headers
        damage = [loss for each in collectors for loss in each.losses if not loss.batches and loss.records]
        self._damage = sorted(
            (loss for loss in damage if loss.last_offset is not None), key=lambda loss: loss.last_offset or 0
        )

    def resolved(self, doubtful: Sequence[DoubtfulBatch]) -> Iterator[ValidRun]:
        """The batches that stay, each as a valid run of one batch."""
        self._claims = claims = [doubt.claimed for doubt in doubtful]
        self._start = self._start_of(claims)
        self._uncontested_claims = self._uncontested(claims)
        for doubt in doubtful:
            claimed, corrected = doubt.claimed, doubt.corrected
            if doubt.is_inside:
                yield from self._kept_inside_damage(doubt)
            elif self._has_own_offsets(doubt) or self._has_copy(claimed):
                _set_fix(self._logs, claimed, base_offset=None)
                yield claimed
            elif corrected is not None and self._is_certain(doubt) and not self._is_repeated(doubt):
                yield corrected
            elif doubt.is_above_both and not self._is_altered_copy(claimed):
                yield claimed
            elif self._is_rival(doubt):
                _set_fix(self._logs, claimed, base_offset=None)
                yield claimed
            else:
                self._logs.set_fix(claimed.log, claimed.position, HeaderFix())
                loss = Loss(claimed.log, claimed.position, claimed.length, "altered-base-offset", 1)
                self._collectors[claimed.log].losses.append(loss)

    def _kept_inside_damage(self, doubt: DoubtfulBatch) -> Iterator[ValidRun]:
        """A batch inside damage, if it stays: at its own offsets, or in the gap around it that it fills."""
        claimed, collector = doubt.claimed, self._collectors[doubt.claimed.log]
        is_possible = 0 <= claimed.first_offset <= claimed.last_offset < L.INT64_MAX
        if is_possible and not self._is_zeroed(claimed) and self._has_own_offsets(doubt):
            collector.rescue(claimed)
            yield claimed
            return
        value = self._value_in_hole(collector, doubt)
        if value is not None and not self._is_repeated(doubt):
            moved = set_altered_offset(
                self._logs, collector, claimed, value, "the gap around it is exactly as wide"
            )
            collector.rescue(claimed)
            yield moved

    def _is_zeroed(self, claimed: ValidRun) -> bool:
        """Whether the zeros before a batch may extend into its base offset, which then proves nothing."""
        position = claimed.position
        return position > 0 and not any(
            self._logs.view(claimed.log)[position - 1 : position + L.LENGTH_POSITION]
        )

    def _value_in_hole(self, collector: ValidRunCollector, doubt: DoubtfulBatch) -> int | None:
        """The offset of a batch that ends the damage and has exactly as many offsets as are missing there. Except in the old formats, a
        batch inside a record value never ends where the enclosing batch does."""
        claimed, valid_runs = doubt.claimed, collector.valid_runs
        at = bisect_left(valid_runs, claimed.position, key=lambda valid_run: valid_run.position)
        if doubt.is_wrapper or at == len(valid_runs) or valid_runs[at].position != claimed.end_position:
            return None
        before = valid_runs[at - 1].last_offset if at else collector.log.base_offset - 1
        width = claimed.last_offset - claimed.first_offset + 1
        if valid_runs[at].first_offset - before - 1 != width:
            return None
        return before + 1 if self._is_free(moved_to(claimed, before + 1)) else None

    def _uncontested(self, claims: Sequence[ValidRun]) -> list[ValidRun]:
        """The claims to offsets of the log that no other batch has or claims, in order."""
        copies = {_copy_key(claim): claim for claim in claims}
        by_offset = sorted(copies.values(), key=lambda claim: claim.first_offset)
        end = max(self._order.last_offset, -1 if self._known_end is None else self._known_end)
        found, reach = list[ValidRun](), -1
        for number, claim in enumerate(by_offset):
            following = by_offset[number + 1].first_offset if number + 1 < len(by_offset) else L.INT64_MAX
            is_alone = reach < claim.first_offset and claim.last_offset < following
            reach = max(reach, claim.last_offset)
            is_inside = self._is_above_start(claim) and (claim.last_offset <= end or is_near(claim, end))
            if is_alone and is_inside and self._is_free(claim):
                found.append(claim)
                end = max(end, claim.last_offset)
        return found

    def _has_own_offsets(self, doubt: DoubtfulBatch) -> bool:
        """Whether the claimed offsets are the batch's own (rule 2)."""
        claimed, kept = doubt.claimed, self._order.kept
        before, after = self._doubtful_neighbours(claimed, claimed)
        lost_before, _ = self._damage_around(claimed)
        if not self._is_above_start(claimed) or after <= claimed.last_offset or self._is_of_damage(claimed):
            return False
        if lost_before is not None and self._is_zeroed(claimed):
            return False
        if not kept or claimed.first_offset > kept[-1].last_offset:
            is_known = self._known_end is not None and claimed.last_offset <= self._known_end
            if doubt.corrected is None:
                return is_known or is_near(claimed, before)
            return (is_known or claimed.first_offset == before + 1) and not self._is_certain(doubt)
        is_likely_altered = doubt.is_one_bit or lost_before is not None
        if self._fills_a_hole(claimed) or not is_likely_altered or doubt.corrected is None:
            return True
        return not self._is_certain(doubt)

    def _damage_around(self, claimed: ValidRun) -> tuple[Loss | None, Loss | None]:
        """The damage directly before a batch in the file, and directly after it."""
        damage = [loss for loss in self._collectors[claimed.log].losses if not loss.batches]
        before = next((loss for loss in damage if loss.position + loss.length == claimed.position), None)
        return before, next((loss for loss in damage if loss.position == claimed.end_position), None)

    def _is_of_damage(self, claimed: ValidRun) -> bool:
        """Whether headers in damaged bytes elsewhere have one of the claimed offsets; headers of this batch do not count."""
        at = bisect_left(self._damage, claimed.first_offset, key=lambda loss: loss.last_offset or 0)
        loss = self._damage[at] if at < len(self._damage) else None
        if loss is None or loss.first_offset is None or claimed.last_offset < loss.first_offset:
            return False
        if loss.log == claimed.log and loss.position <= claimed.position < loss.position + loss.length:
            return False
        start = claimed.position + L.CRC_POSITION
        checksum = bytes(self._logs.view(claimed.log)[start : start + 4])
        return checksum not in bytes(self._logs.view(loss.log)[loss.position : loss.position + loss.length])

    def _is_above_start(self, claim: ValidRun) -> bool:
        """Whether the offsets can be at the beginning of the log: not below its names and batches, nor below batches that claim the
        offsets directly before these."""
        return claim.first_offset >= min(self._logs[0].base_offset, self._start)

    def _start_of(self, claims: Sequence[ValidRun]) -> int:
        """The log start, extended by claims that lead up to its first batch without a gap."""
        kept = self._order.kept
        start = kept[0].first_offset if kept else self._logs[0].base_offset
        for claim in sorted(claims, key=lambda claim: claim.last_offset, reverse=True):
            if claim.last_offset + 1 == start and 0 <= claim.first_offset < start:
                start = claim.first_offset
        return start

    def _is_rival(self, doubt: DoubtfulBatch) -> bool:
        """Whether the batch may be right and another one wrong (rule 3): it claims offsets of the log, and differs from the corrected value
        in more than one bit."""
        kept, claimed = self._order.kept, doubt.claimed
        is_inside = bool(kept) and kept[0].first_offset <= claimed.first_offset <= kept[-1].last_offset
        return is_inside and doubt.corrected is not None and not doubt.is_one_bit

    def _is_free(self, valid_run: ValidRun) -> bool:
        """Whether no batch has one of its offsets."""
        _, after, _ = self._neighbours(valid_run)
        return valid_run.last_offset < after

    def _fills_a_hole(self, valid_run: ValidRun) -> bool:
        """Whether its offsets are adjacent to those of both neighbours."""
        before, after = self._doubtful_neighbours(valid_run, valid_run)
        return before + 1 == valid_run.first_offset and after in (valid_run.last_offset + 1, L.INT64_MAX)

    def _is_certain(self, doubt: DoubtfulBatch) -> bool:
        """Whether the corrected batch fills the gap between two batches exactly. After the last batch of all there is no second neighbour;
        there one flipped bit or a side file must confirm the value as well. If no log of this partition can have had the claimed offset,
        the one bit is enough."""
        valid_run = doubt.corrected
        assert valid_run is not None
        if doubt.is_of_a_run:
            return self._is_free(valid_run)
        highest = max(self._order.last_offset, -1 if self._known_end is None else self._known_end)
        if doubt.is_one_bit and doubt.claimed.first_offset > highest + BELIEVABLE_GAP:
            return self._is_free(valid_run)
        before, after = self._doubtful_neighbours(valid_run, doubt.claimed)
        lost_before, lost_behind = self._damage_around(doubt.claimed)
        if lost_before is not None and lost_before.records is not None:
            before = max(before, -1 if lost_before.last_offset is None else lost_before.last_offset)
        if lost_behind is not None and lost_behind.records is not None:
            after = min(after, L.INT64_MAX if lost_behind.first_offset is None else lost_behind.first_offset)
        if after == L.INT64_MAX and valid_run.last_offset == self._known_end:
            return before < valid_run.first_offset
        if doubt.is_wrapper:
            return False
        if doubt.is_one_bit and self._is_named(doubt.claimed, valid_run):
            return before < valid_run.first_offset and valid_run.last_offset < after
        if before + 1 != valid_run.first_offset:
            return False
        return doubt.is_one_bit if after == L.INT64_MAX else after == valid_run.last_offset + 1

    def _is_named(self, claimed: ValidRun, corrected: ValidRun) -> bool:
        """Whether the file is named after the corrected offset of its first batch."""
        return claimed.position == 0 and corrected.first_offset == self._logs[claimed.log].base_offset

    def _doubtful_neighbours(self, valid_run: ValidRun, itself: ValidRun) -> tuple[int, int]:
        """`_neighbours` with the uncontested claims of other doubtful batches: the last offset before, the first after."""
        before, after, _ = self._neighbours(valid_run)
        claims = self._uncontested_claims
        at = bisect_left(claims, valid_run.first_offset, key=lambda found: found.last_offset)
        for claim in reversed(claims[max(0, at - 2) : at]):
            if _copy_key(claim) != _copy_key(itself):
                before = max(before, claim.last_offset)
                break
        for claim in claims[at : at + 2]:
            if _copy_key(claim) != _copy_key(itself):
                after = min(after, claim.first_offset)
                break
        return before, after

    def _has_copy(self, claimed: ValidRun) -> bool:
        _, after, holder = self._neighbours(claimed)
        if holder is None or after != claimed.first_offset or holder.length != claimed.length:
            return False
        return self._body(holder) == self._body(claimed)

    def _is_altered_copy(self, claimed: ValidRun) -> bool:
        """Whether a batch that stays differs only in one bit of its offset."""
        width = claimed.last_offset - claimed.first_offset
        return any(
            self._has_copy(moved_to(claimed, value))
            for value in one_bit_away(claimed.first_offset, 64)
            if 0 <= value <= self._order.last_offset - width
        )

    def _is_repeated(self, doubt: DoubtfulBatch) -> bool:
        """Whether a batch that stays has the same bytes, apart from an offset that differs in more than one bit: then this is a copy of it
        with a damaged header, and no batch that was lost."""
        claimed = doubt.claimed
        same = () if doubt.is_one_bit else self._with_same_checksums.get(self._checksum(claimed), ())
        return any(self._body(each) == self._body(claimed) for each in same)

    @cached_property
    def _with_same_checksums(self) -> Mapping[int, Sequence[ValidRun]]:
        """The undoubted batches that have the checksum of a doubtful one, by checksum."""
        wanted = {self._checksum(claim) for claim in self._claims}
        found: dict[int, list[ValidRun]] = {}
        for valid_run in self._order.kept:
            for table in self._logs.tables(valid_run):
                for row, checksum in enumerate(table.column(C.CRC)):
                    if checksum in wanted:
                        batch = valid_run_of(valid_run.log, table, row, row + 1)
                        found.setdefault(checksum, []).append(batch)
        return found

    def _checksum(self, batch: ValidRun) -> int:
        return next(table.at(C.CRC, 0) for table in self._logs.tables(batch))

    def _body(self, valid_run: ValidRun) -> memoryview:
        view = self._logs.view(valid_run.log)
        return view[valid_run.position + L.HEADER_TO_MAGIC : valid_run.end_position]

    def _neighbours(self, valid_run: ValidRun) -> tuple[int, int, ValidRun | None]:
        """Among undoubted batches: the last offset below the first one of the valid run, and the first batch that does
        not end below it (its first offset, and itself as a valid run)."""
        kept = self._order.kept
        at = bisect_left(kept, valid_run.first_offset, key=lambda found: found.last_offset)
        before = kept[at - 1].last_offset if at else self._logs[0].base_offset - 1
        if at == len(kept):
            return before, L.INT64_MAX, None
        for table in self._logs.tables(kept[at]):
            row = bisect_left(table.column(C.LAST_OFFSET), valid_run.first_offset)
            if row:
                before = table.at(C.LAST_OFFSET, row - 1)
            if row < table.count:
                first = self._logs.first_offset(kept[at].log, table, row)
                return before, first, valid_run_of(kept[at].log, table, row, row + 1)
        raise AssertionError("a stretch ends with its last offset")


def _copy_key(claim: ValidRun) -> tuple[int, int, int]:
    """The properties that all copies of a batch share."""
    return claim.first_offset, claim.last_offset, claim.length


def _set_fix(logs: Logs, valid_run: ValidRun, **values: None) -> None:
    fix = logs[valid_run.log].fixes.get(valid_run.position)
    if fix is not None:
        logs.set_fix(valid_run.log, valid_run.position, replace(fix, **values))
