"""Was a batch altered, moved or copied? What its neighbours in the file cannot tell, the whole log can.

A base offset that contradicts its neighbours may have been altered, or the batch may stand in a wrong place with the
right offsets. Damage may hold whole batches too: an interrupted batch, bytes that were written twice. For each such
doubtful batch, against all batches without doubts:

1. A byte-equal batch holds the claimed offsets: it is a copy, and the copies are settled like any others.
2. Nobody holds one of the claimed offsets, and they lie inside the log (or join its end, or files beside the log know
   of them): it was moved, and is where its header says. Unless it fills the hole between its neighbours exactly with
   one bit changed, and no hole exactly as it is: then
3. it was altered. Where its value is certain, because it joins the batches around it without a gap (or is one bit away
   from an offset that is far from all that the log ever held), it stays at that value. Else it competes for the
   offsets it claims when they are the log's, or it goes: no valid batch gets an offset that is a guess.

Doubtful batches whose claims nobody contests count as neighbours and as holders of their offsets for one another: of
two batches that changed places each fills the hole that the other seems to have.

Then the leader epochs are judged in the order that stays (`epochs`).
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kseg.recovery.salvage.logs import HeaderFix, Logs, ValidRun, stretch_of
from kseg.recovery.salvage.outliers import BELIEVABLE_GAP, doubt_outliers, moved_to, set_altered_offset
from kseg.recovery.salvage.overlaps import Joiner, in_order
from kseg.recovery.salvage.salvaged_epochs import judge_epochs
from kseg.recovery.salvage.valid_runs import Doubtful, Loss, Watch
from kseg.recovery.verify.header_plausibility import one_bit_away
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.sidecar.leader_epochs import EpochHistory


def settled_order(
    logs: Logs, watches: Sequence[Watch], witness: int | None, epochs: EpochHistory | None
) -> Joiner:
    """All that stays, in order, with every doubt settled: fixes that are none are dropped, what goes is a loss of its
    watch. witness: the greatest offset that files beside the log know of. epochs: the leader-epoch checkpoint."""
    for watch in watches:
        doubt_outliers(logs, watch)
    plain = [stretch for watch in watches for stretch in watch.stretches if stretch.is_believed]
    order = in_order(logs, plain, epochs)
    strange = [*_believed_after_all(logs, watches, order, witness)]
    if strange:
        order = in_order(logs, [*plain, *strange], epochs)
    for number, watch in enumerate(watches):
        if watch.losses:
            watch.search_damage(logs.file(number))
    doubtful = [doubt for watch in watches for doubt in watch.doubtful]
    if doubtful:
        settled = _Doubts(logs, watches, order, witness).settled(doubtful)
        order = in_order(logs, [*plain, *strange, *settled], epochs)
    judge_epochs(logs, order.kept, epochs)
    return order


def _believed_after_all(
    logs: Logs, watches: Sequence[Watch], order: Joiner, witness: int | None
) -> Iterator[ValidRun]:
    """The stretches behind damage that do not go on from before: believed inside the log, where the file holds nothing
    else (then it stands in a wrong place), and where believed ones go on from them. Others may be somebody's values, and go."""
    low = logs[0].base_offset if len(logs) else 0
    high = max(order.last_offset + 1, witness or 0)
    for watch in watches:
        is_all = not any(stretch.is_believed for stretch in watch.stretches)
        leading = _leading_on(watch)
        for stretch in [stretch for stretch in watch.stretches if not stretch.is_believed]:
            is_inside = low <= stretch.first_offset <= stretch.last_offset <= high
            if is_all or is_inside or stretch.position in leading:
                yield stretch
                continue
            watch.stretches.remove(stretch)
            loss = Loss(
                stretch.log, stretch.position, stretch.length, "offset-not-monotonic", stretch.batches
            )
            watch.losses.append(loss)


def _leading_on(watch: Watch) -> set[int]:
    """Positions of the stretches that believed ones go on from: no more offsets are missing in between than the damage
    there has bytes."""
    found, behind = set[int](), None
    for stretch in reversed(watch.stretches):
        is_leading = (
            behind is not None
            and 0 < behind.first_offset - stretch.last_offset <= 1 + behind.position - stretch.end_position
        )
        if not stretch.is_believed and is_leading:
            found.add(stretch.position)
        behind = stretch if stretch.is_believed or is_leading else None
    return found


class _Doubts:
    def __init__(self, logs: Logs, watches: Sequence[Watch], order: Joiner, witness: int | None) -> None:
        self._logs = logs
        self._watches = watches
        self._order = order
        self._witness = witness
        self._start = 0
        self._company: list[ValidRun] = []

    def settled(self, doubtful: Sequence[Doubtful]) -> Iterator[ValidRun]:
        """Those that stay, as stretches of one batch."""
        claims = [doubt.claimed for doubt in doubtful]
        self._start = self._start_of(claims)
        self._company = self._uncontested(claims)
        for doubt in doubtful:
            claimed, corrected = doubt.claimed, doubt.corrected
            if doubt.is_inside:
                yield from self._rescued(doubt)
            elif self._is_at_home(doubt) or self._has_copy(claimed):
                _set_fix(self._logs, claimed, base_offset=None)
                yield claimed
            elif corrected is not None and self._is_certain(doubt):
                yield corrected
            elif doubt.is_strange and not self._is_altered_copy(claimed):
                yield claimed
            elif self._is_rival(doubt):
                _set_fix(self._logs, claimed, base_offset=None)
                yield claimed
            else:
                self._logs.set_fix(claimed.log, claimed.position, HeaderFix())
                loss = Loss(claimed.log, claimed.position, claimed.length, "altered-base-offset", 1)
                self._watches[claimed.log].losses.append(loss)

    def _rescued(self, doubt: Doubtful) -> Iterator[ValidRun]:
        """A batch inside of damage, where it stays: at its own offsets, or in the hole around it that it fills."""
        claimed, watch = doubt.claimed, self._watches[doubt.claimed.log]
        if 0 <= claimed.first_offset <= claimed.last_offset < L.INT64_MAX and self._is_at_home(doubt):
            watch.rescue(claimed)
            yield claimed
            return
        value = self._value_in_hole(watch, doubt)
        if value is not None:
            moved = set_altered_offset(
                self._logs, watch, claimed, value, "the hole around it is just as wide"
            )
            watch.rescue(claimed)
            yield moved

    def _value_in_hole(self, watch: Watch, doubt: Doubtful) -> int | None:
        """The offset of a batch that ends the damage, and has as many offsets as are missing there. What a record holds
        never ends where its batch does, except in the old formats."""
        claimed, stretches = doubt.claimed, watch.stretches
        at = bisect_left(stretches, claimed.position, key=lambda stretch: stretch.position)
        if doubt.is_wrapper or at == len(stretches) or stretches[at].position != claimed.end_position:
            return None
        before = stretches[at - 1].last_offset if at else watch.log.base_offset - 1
        width = claimed.last_offset - claimed.first_offset + 1
        if stretches[at].first_offset - before - 1 != width:
            return None
        return before + 1 if self._is_free(moved_to(claimed, before + 1)) else None

    def _uncontested(self, claims: Sequence[ValidRun]) -> list[ValidRun]:
        """The claims to offsets of the log that nobody else holds or claims, in order."""
        copies = {_likeness(claim): claim for claim in claims}
        by_offset = sorted(copies.values(), key=lambda claim: claim.first_offset)
        end = max(self._order.last_offset, -1 if self._witness is None else self._witness)
        found, reach = list[ValidRun](), -1
        for number, claim in enumerate(by_offset):
            following = by_offset[number + 1].first_offset if number + 1 < len(by_offset) else L.INT64_MAX
            is_alone = reach < claim.first_offset and claim.last_offset < following
            reach = max(reach, claim.last_offset)
            is_inside = self._is_above_start(claim) and (claim.last_offset <= end or _is_near(claim, end))
            if is_alone and is_inside and self._is_free(claim):
                found.append(claim)
                end = max(end, claim.last_offset)
        return found

    def _is_at_home(self, doubt: Doubtful) -> bool:
        """Whether the claimed offsets are the batch's own (rule 2)."""
        claimed, kept = doubt.claimed, self._order.kept
        before, behind = self._beside(claimed, claimed)
        if not self._is_above_start(claimed) or behind <= claimed.last_offset:
            return False
        if not kept or claimed.first_offset > kept[-1].last_offset:
            is_known = self._witness is not None and claimed.last_offset <= self._witness
            is_near = doubt.corrected is None and _is_near(claimed, before)
            return is_known or claimed.first_offset == before + 1 or is_near
        if self._fills_a_hole(claimed) or not doubt.is_one_bit or doubt.corrected is None:
            return True
        return not self._is_certain(doubt)

    def _is_above_start(self, claim: ValidRun) -> bool:
        """Whether the offsets are the log's at its beginning: not below its names and batches, nor below what claims to
        lie right before these."""
        return claim.first_offset >= min(self._logs[0].base_offset, self._start)

    def _start_of(self, claims: Sequence[ValidRun]) -> int:
        """Where the log begins with the claims that lead up to its first batch without a gap."""
        kept = self._order.kept
        start = kept[0].first_offset if kept else self._logs[0].base_offset
        for claim in sorted(claims, key=lambda claim: claim.last_offset, reverse=True):
            if claim.last_offset + 1 == start and 0 <= claim.first_offset < start:
                start = claim.first_offset
        return start

    def _is_rival(self, doubt: Doubtful) -> bool:
        """Whether the batch may be right and another wrong (rule 3): it claims offsets of the log, and not one bit
        makes the difference."""
        kept, claimed = self._order.kept, doubt.claimed
        is_inside = bool(kept) and kept[0].first_offset <= claimed.first_offset <= kept[-1].last_offset
        return is_inside and doubt.corrected is not None and not doubt.is_one_bit

    def _is_free(self, stretch: ValidRun) -> bool:
        """Whether nobody holds one of its offsets."""
        _, behind, _ = self._around(stretch)
        return stretch.last_offset < behind

    def _fills_a_hole(self, stretch: ValidRun) -> bool:
        """Whether its offsets touch those of both neighbours."""
        before, behind = self._beside(stretch, stretch)
        return before + 1 == stretch.first_offset and behind in (stretch.last_offset + 1, L.INT64_MAX)

    def _is_certain(self, doubt: Doubtful) -> bool:
        """Whether it fills, as corrected, the hole between two batches: none misses an offset then, and none is too
        many. Behind the last one of all there is no second neighbour; there one bit or a file beside the log must tell
        it as well. Where no log of this partition can have had the claimed offset, the one bit is enough."""
        stretch = doubt.corrected
        assert stretch is not None
        if doubt.is_of_a_run:
            return self._is_free(stretch)
        highest = max(self._order.last_offset, -1 if self._witness is None else self._witness)
        if doubt.is_one_bit and doubt.claimed.first_offset > highest + BELIEVABLE_GAP:
            return self._is_free(stretch)
        before, behind = self._beside(stretch, doubt.claimed)
        if behind == L.INT64_MAX and stretch.last_offset == self._witness:
            return before < stretch.first_offset
        if doubt.is_wrapper or before + 1 != stretch.first_offset:
            return False
        return doubt.is_one_bit if behind == L.INT64_MAX else behind == stretch.last_offset + 1

    def _beside(self, stretch: ValidRun, itself: ValidRun) -> tuple[int, int]:
        """`_around` with the uncontested claims of other doubtful batches: the last offset before, the first behind."""
        before, behind, _ = self._around(stretch)
        company = self._company
        at = bisect_left(company, stretch.first_offset, key=lambda found: found.last_offset)
        for claim in reversed(company[max(0, at - 2) : at]):
            if _likeness(claim) != _likeness(itself):
                before = max(before, claim.last_offset)
                break
        for claim in company[at : at + 2]:
            if _likeness(claim) != _likeness(itself):
                behind = min(behind, claim.first_offset)
                break
        return before, behind

    def _has_copy(self, claimed: ValidRun) -> bool:
        _, behind, holder = self._around(claimed)
        if holder is None or behind != claimed.first_offset or holder.length != claimed.length:
            return False
        return self._body(holder) == self._body(claimed)

    def _is_altered_copy(self, claimed: ValidRun) -> bool:
        """Whether a batch that stays is the same but for one bit of its offset."""
        width = claimed.last_offset - claimed.first_offset
        return any(
            self._has_copy(moved_to(claimed, value))
            for value in one_bit_away(claimed.first_offset, 64)
            if 0 <= value <= self._order.last_offset - width
        )

    def _body(self, stretch: ValidRun) -> memoryview:
        view = self._logs.view(stretch.log)
        return view[stretch.position + L.HEADER_TO_MAGIC : stretch.end_position]

    def _around(self, stretch: ValidRun) -> tuple[int, int, ValidRun | None]:
        """Of the batches without doubts: the last offset below the stretch's first one, and the first batch that does
        not end below it (its first offset, and itself as a stretch)."""
        kept = self._order.kept
        at = bisect_left(kept, stretch.first_offset, key=lambda found: found.last_offset)
        before = kept[at - 1].last_offset if at else self._logs[0].base_offset - 1
        if at == len(kept):
            return before, L.INT64_MAX, None
        for table in self._logs.tables(kept[at]):
            row = bisect_left(table.column(C.LAST_OFFSET), stretch.first_offset)
            if row:
                before = table.at(C.LAST_OFFSET, row - 1)
            if row < table.count:
                first = self._logs.first_offset(kept[at].log, table, row)
                return before, first, stretch_of(kept[at].log, table, row, row + 1)
        raise AssertionError("a stretch ends with its last offset")


def _is_near(claim: ValidRun, end: int) -> bool:
    """Whether fewer offsets are missing between the end and a batch than the batch has."""
    return claim.first_offset - end - 1 <= claim.last_offset - claim.first_offset


def _likeness(claim: ValidRun) -> tuple[int, int, int]:
    """What copies of one batch have in common."""
    return claim.first_offset, claim.last_offset, claim.length


def _set_fix(logs: Logs, stretch: ValidRun, **values: None) -> None:
    fix = logs[stretch.log].fixes.get(stretch.position)
    if fix is not None:
        logs.set_fix(stretch.log, stretch.position, replace(fix, **values))
