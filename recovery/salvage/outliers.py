"""Batches whose offsets lie far from those around them, though each follows from the one before it.

The pass over a file judges a batch beside its two neighbours. Where damage took a neighbour away, and where several
batches in a row were altered, that is not enough:

1. A *run*: offsets jump by more than any log leaves out, while the file, the next segment, or nothing at all goes on
   from before the jump. The batches behind the jump are doubtful, when they are few. The true offset of each is one
   bit away from what it says (right behind the one before, where nothing follows), or together they fill the hole
   to the byte; what follows from that is certain.
2. A batch that ends a stretch above where the file goes on, or far above all that is before the damaged end, is
   doubtful when the order holds without it.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kseg.recovery.salvage.logs import HeaderFix, Logs, ValidRun, stretch_of
from kseg.recovery.salvage.valid_runs import Doubtful, Watch
from kseg.recovery.verify.header_plausibility import (
    altered_base_offset,
    fit_offset,
    flipped_bit,
    one_bit_away,
)
from kseg.segment import header_tables as C

# An end is believed when no more offsets than these are missing before it.
BELIEVABLE_GAP = 1 << 24
# So many batches in a row may have been altered; where more agree with one another they are right.
MOST_IN_A_RUN = 16
_WHY = "the log goes on far below that"


def doubt_outliers(logs: Logs, watch: Watch) -> None:
    """Take batches that end stretches too high out of them, and doubt them."""
    last_damage = max((loss.position for loss in watch.losses), default=-1)
    number = 0
    while number < len(watch.stretches):
        stretch = watch.stretches[number]
        before = watch.stretches[number - 1].last_offset if number else watch.log.base_offset - 1
        is_misnamed = not number and any(s.first_offset <= before for s in watch.stretches[:2])
        if is_misnamed:
            before = -1  # the name says nothing of what comes first
        if stretch.last_offset - before > BELIEVABLE_GAP and _doubt_run(logs, watch, number, before):
            continue
        behind = watch.stretches[number + 1] if number + 1 < len(watch.stretches) else None
        ends_in_damage = watch.next_base is None and last_damage >= stretch.end_position
        is_contradicted = behind is not None and behind.first_offset <= stretch.last_offset
        # without a batch before nobody can say which of two is too high
        if (is_contradicted or (behind is None and ends_in_damage)) and (
            number or is_misnamed or stretch.batches > 1
        ):
            rest, outlier = _without_last(logs, stretch)
            lower = before if rest is None else rest.last_offset
            doubt = _outlier(logs, watch, lower, outlier, behind)
            if doubt is not None:
                watch.doubtful.append(doubt)
                watch.stretches[number : number + 1] = [] if rest is None else [rest]
                number -= rest is None
        number += 1


# --- runs


def _doubt_run(logs: Logs, watch: Watch, number: int, before: int) -> bool:
    """Doubt the batches behind a jump in a stretch; whether there were any."""
    stretch = watch.stretches[number]
    rest, run = _parted(logs, stretch, before)
    if not run:
        return False
    lower = before if rest is None else rest.last_offset
    later = (s.first_offset for s in watch.stretches[number + 1 : number + 1 + MOST_IN_A_RUN])
    upper = next((first for first in later if lower < first < run[0].first_offset), watch.next_base)
    if upper is not None and not lower < upper <= run[0].first_offset:
        return False
    doubts = [*_explained(run, lower, upper)]
    if upper is None and any(doubt.corrected is None for doubt in doubts):
        return False  # nothing contradicts it
    for doubt in doubts:
        if doubt.corrected is not None:
            set_altered_offset(logs, watch, doubt.claimed, doubt.corrected.first_offset, _WHY)
    watch.doubtful += doubts
    watch.stretches[number : number + 1] = [] if rest is None else [rest]
    return True


def _parted(logs: Logs, stretch: ValidRun, before: int) -> tuple[ValidRun | None, list[ValidRun]]:
    """What lies before the first jump that few batches follow (None: nothing), and these batches."""
    ending = deque[tuple[ValidRun, int, int]](maxlen=MOST_IN_A_RUN)
    last, epoch = before, stretch.first_epoch
    for table in logs.tables(stretch):
        for row in range(table.count):
            if row + MOST_IN_A_RUN >= table.count:
                ending.append((stretch_of(stretch.log, table, row, row + 1), last, epoch))
            last, epoch = table.at(C.LAST_OFFSET, row), table.at(C.LEADER_EPOCH, row)
    run = [batch for batch, _, _ in ending]
    for at, (batch, last, epoch) in enumerate(ending):
        if batch.first_offset - last > BELIEVABLE_GAP:
            return _front(stretch, batch.position, last, epoch, stretch.batches - len(run) + at), run[at:]
    return stretch, []


def _explained(run: Sequence[ValidRun], lower: int, upper: int | None) -> Iterator[Doubtful]:
    """A doubt for each batch of a run between `lower` and `upper`, with the value that it must have had."""
    widths = [batch.last_offset - batch.first_offset + 1 for batch in run]
    is_full = upper is not None and upper - lower - 1 == sum(widths)
    for batch, width in zip(run, widths, strict=True):
        bound = lower + width + 1 if upper is None else upper
        meant = [v for v in one_bit_away(batch.first_offset, 64) if lower < v and v + width <= bound]
        is_one_bit = len(meant) == 1
        if is_full:
            value, is_one_bit = lower + 1, lower + 1 in meant
        elif is_one_bit:
            value = meant[0]
        else:
            yield Doubtful(batch)
            continue
        lower = value + width - 1
        yield Doubtful(batch, moved_to(batch, value), is_one_bit, is_of_a_run=True)


# --- single batches


def _outlier(
    logs: Logs, watch: Watch, lower: int, outlier: ValidRun, behind: ValidRun | None
) -> Doubtful | None:
    """The doubt about a batch above `lower`, None when there is none."""
    first, width = outlier.first_offset, outlier.last_offset - outlier.first_offset + 1
    if behind is None:
        if first - lower <= BELIEVABLE_GAP:
            return None
    elif not lower < behind.first_offset <= outlier.last_offset:
        gap = first - max(lower, behind.last_offset) - 1
        return Doubtful(outlier, is_strange=gap < BELIEVABLE_GAP) if gap > width else None
    fit = fit_offset(first, width, lower, None if behind is None else behind.first_offset)
    value = fit.value
    is_one_bit = flipped_bit(first, value, 64) is not None
    if value is None or not is_one_bit:
        is_above = behind is not None and first > behind.last_offset
        return Doubtful(outlier) if is_above else None
    corrected = set_altered_offset(logs, watch, outlier, value, _WHY)
    return Doubtful(outlier, corrected, is_one_bit=True)


def moved_to(batch: ValidRun, first: int) -> ValidRun:
    """A batch with other offsets."""
    return replace(batch, first_offset=first, last_offset=batch.last_offset - batch.first_offset + first)


def set_altered_offset(logs: Logs, watch: Watch, batch: ValidRun, first: int, why: str) -> ValidRun:
    """Let a batch begin at `first`, and say so; the batch as it is then."""
    fix = HeaderFix(base_offset=first)
    logs.set_fix(batch.log, batch.position, fix.over(watch.log.fixes.get(batch.position)))
    width = batch.last_offset - batch.first_offset + 1
    watch.altered.append(
        altered_base_offset(watch.log.path, batch.position, batch.first_offset, width, first, why)
    )
    return moved_to(batch, first)


def _front(stretch: ValidRun, position: int, last: int, epoch: int, batches: int) -> ValidRun | None:
    """The part of a stretch before `position`, None when that is nothing."""
    if not batches:
        return None
    length = position - stretch.position
    return replace(stretch, length=length, last_offset=last, last_epoch=epoch, batches=batches)


def _without_last(logs: Logs, stretch: ValidRun) -> tuple[ValidRun | None, ValidRun]:
    """A stretch without its last batch (None when there is no other), and that batch."""
    last, epoch = stretch.first_offset, stretch.first_epoch
    for table in logs.tables(stretch):
        row = table.count - 1
        end = table.at(C.POSITION, row) + table.at(C.SIZE, row)
        if end < stretch.end_position:
            last, epoch = table.at(C.LAST_OFFSET, row), table.at(C.LEADER_EPOCH, row)
            continue
        outlier = stretch_of(stretch.log, table, row, row + 1)
        if row:
            last, epoch = table.at(C.LAST_OFFSET, row - 1), table.at(C.LEADER_EPOCH, row - 1)
        return _front(stretch, outlier.position, last, epoch, stretch.batches - 1), outlier
    raise AssertionError("a stretch holds batches")
