"""Batches whose offsets are far from those around them, though each follows from the previous one.

The pass over a file compares a batch with its two neighbours. Where damage removed a neighbour, and where several
batches in a row were altered, that is not enough:

1. A *run*: offsets jump by more than a log can skip, or beyond the base offset of the next segment, while the file, the next segment, or
   nothing at all continues from before the jump. The batches after the jump are doubtful if they are few. Their values are certain if the
   true offset of each is one bit away from its claim (directly after the previous batch, if nothing follows), or if together they fill the
   gap exactly.
2. A batch that ends a valid run above the offsets with which the file continues, or far above everything before the damaged end, is
   doubtful if the order is correct without it.
3. A valid run that is out of order in its file and far beyond the log end, of which no side file knows, is removed: it is in a block of
   another log.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from kseg.recovery.salvage.file_order import out_of_order
from kseg.recovery.salvage.logs import HeaderFix, Logs, ValidRun, valid_run_of
from kseg.recovery.salvage.valid_runs import DoubtfulBatch, ValidRunCollector
from kseg.recovery.verify.header_plausibility import altered_base_offset
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.scanning.offset_fit import fit_offset, flipped_bit, one_bit_away

# The last offset of a valid run is believed if at most this many offsets are missing before it.
BELIEVABLE_GAP = 1 << 24
# At most this many consecutive batches may have been altered; a longer sequence whose offsets fit together is right.
MAX_IN_A_RUN = 16
_WHY = "the log continues far below that"


def remove_beyond_end(logs: Logs, collectors: Sequence[ValidRunCollector], known_end: int | None) -> None:
    """Remove valid runs that are out of order in their files and far beyond the log end. known_end: the largest offset that side files
    have."""
    astray, end = list[tuple[ValidRunCollector, ValidRun]](), -1 if known_end is None else known_end
    for collector in collectors:
        runs = collector.valid_runs
        is_in_order = all(before.last_offset < after.first_offset for before, after in pairwise(runs))
        excluded = frozenset[int]() if is_in_order else out_of_order(logs, runs)
        astray += ((collector, valid_run) for valid_run in runs if valid_run.position in excluded)
        end = max(end, *(run.last_offset for run in runs if run.position not in excluded), -1)
    for collector, valid_run in astray:
        if valid_run.first_offset > end and not is_near(valid_run, end):
            collector.remove(valid_run)


def is_near(claim: ValidRun, end: int) -> bool:
    """Whether fewer offsets are missing between the end and a batch than the batch has."""
    return claim.first_offset - end - 1 <= claim.last_offset - claim.first_offset


def doubt_outliers(logs: Logs, collector: ValidRunCollector) -> None:
    """Remove batches with offsets that are too high from the ends of valid runs, and mark them doubtful."""
    last_damage = max((loss.position for loss in collector.losses), default=-1)
    number = 0
    while number < len(collector.valid_runs):
        valid_run = collector.valid_runs[number]
        before = collector.valid_runs[number - 1].last_offset if number else collector.log.base_offset - 1
        is_named = not valid_run.position and valid_run.first_offset == before + 1
        is_misnamed = (
            not number and not is_named and any(s.first_offset <= before for s in collector.valid_runs[:2])
        )
        if is_misnamed:
            before = -1  # the file is not named after its first offset
        after = collector.valid_runs[number + 1] if number + 1 < len(collector.valid_runs) else None
        bound = _bound(collector, after)
        if _jumps(before, valid_run.last_offset, bound) and _doubt_run(
            logs, collector, number, before, bound
        ):
            continue
        ends_in_damage = collector.next_base is None and last_damage >= valid_run.end_position
        is_contradicted = after is not None and after.first_offset <= valid_run.last_offset
        # without a previous batch, either of the two may be the one whose offset is wrong
        if (is_contradicted or (after is None and ends_in_damage)) and (
            number or is_misnamed or valid_run.batches > 1
        ):
            rest, outlier = _without_last(logs, valid_run)
            lower = before if rest is None else rest.last_offset
            doubt = _outlier(logs, collector, lower, outlier, after)
            if doubt is not None:
                collector.doubtful.append(doubt)
                collector.valid_runs[number : number + 1] = [] if rest is None else [rest]
                number -= rest is None
        number += 1


# --- runs


def _bound(collector: ValidRunCollector, after: ValidRun | None) -> int:
    """The offset that no batch before `after` can have: the base offset of the next segment, if the file continues below that. If it does
    not, its end may be a copy of what the next segment has."""
    bound = collector.next_base
    return L.INT64_MAX if bound is None or after is None or after.first_offset >= bound else bound


def _jumps(last: int, offset: int, bound: int) -> bool:
    """Whether a log cannot skip the offsets between two batches."""
    return offset - last > BELIEVABLE_GAP or last < bound <= offset


def _doubt_run(logs: Logs, collector: ValidRunCollector, number: int, before: int, bound: int) -> bool:
    """Mark the batches after a jump in a valid run as doubtful; return whether there were any."""
    valid_run = collector.valid_runs[number]
    rest, run = _parted(logs, valid_run, before, bound)
    if not run:
        return False
    lower = before if rest is None else rest.last_offset
    later = (s.first_offset for s in collector.valid_runs[number + 1 : number + 1 + MAX_IN_A_RUN])
    upper = next((first for first in later if lower < first < run[0].first_offset), collector.next_base)
    if upper is not None and not lower < upper <= run[0].first_offset:
        return False
    doubts = [*_explained(run, lower, upper)]
    if upper is None and any(doubt.corrected is None for doubt in doubts):
        return False  # nothing contradicts it
    for doubt in doubts:
        if doubt.corrected is not None:
            set_altered_offset(logs, collector, doubt.claimed, doubt.corrected.first_offset, _WHY)
    collector.doubtful += doubts
    collector.valid_runs[number : number + 1] = [] if rest is None else [rest]
    return True


def _parted(
    logs: Logs, valid_run: ValidRun, before: int, bound: int
) -> tuple[ValidRun | None, list[ValidRun]]:
    """The part before the first jump that few batches follow (None: empty), and these batches."""
    ending = deque[tuple[ValidRun, int, int]](maxlen=MAX_IN_A_RUN)
    last, epoch = before, valid_run.first_epoch
    for table in logs.tables(valid_run):
        for row in range(table.count):
            if row + MAX_IN_A_RUN >= table.count:
                ending.append((valid_run_of(valid_run.log, table, row, row + 1), last, epoch))
            last, epoch = table.at(C.LAST_OFFSET, row), table.at(C.LEADER_EPOCH, row)
    run = [batch for batch, _, _ in ending]
    for at, (batch, last, epoch) in enumerate(ending):
        if _jumps(last, batch.first_offset, bound):
            return _front(valid_run, batch.position, last, epoch, valid_run.batches - len(run) + at), run[at:]
    return valid_run, []


def _explained(run: Sequence[ValidRun], lower: int, upper: int | None) -> Iterator[DoubtfulBatch]:
    """A doubt for each batch of a run between `lower` and `upper`, with the value that it must have had."""
    widths = [batch.last_offset - batch.first_offset + 1 for batch in run]
    is_full = upper is not None and upper - lower - 1 == sum(widths)
    for batch, width in zip(run, widths, strict=True):
        bound = lower + width + 1 if upper is None else upper
        candidates = [v for v in one_bit_away(batch.first_offset, 64) if lower < v and v + width <= bound]
        is_one_bit = len(candidates) == 1
        if is_full:
            value, is_one_bit = lower + 1, lower + 1 in candidates
        elif is_one_bit:
            value = candidates[0]
        else:
            yield DoubtfulBatch(batch)
            continue
        lower = value + width - 1
        yield DoubtfulBatch(batch, moved_to(batch, value), is_one_bit, is_of_a_run=True)


# --- single batches


def _outlier(
    logs: Logs, collector: ValidRunCollector, lower: int, outlier: ValidRun, after: ValidRun | None
) -> DoubtfulBatch | None:
    """The doubt about a batch above `lower`, None when there is none."""
    first, width = outlier.first_offset, outlier.last_offset - outlier.first_offset + 1
    if after is None:
        if first - lower <= BELIEVABLE_GAP:
            return None
    elif not lower < after.first_offset <= outlier.last_offset:
        gap = first - max(lower, after.last_offset) - 1
        return DoubtfulBatch(outlier, is_above_both=gap < BELIEVABLE_GAP) if gap > width else None
    fit = fit_offset(first, width, lower, None if after is None else after.first_offset)
    value = fit.value
    is_one_bit = flipped_bit(first, value, 64) is not None
    if value is None or not is_one_bit:
        is_above = after is not None and first > after.last_offset
        return DoubtfulBatch(outlier) if is_above else None
    corrected = set_altered_offset(logs, collector, outlier, value, _WHY)
    return DoubtfulBatch(outlier, corrected, is_one_bit=True)


def moved_to(batch: ValidRun, first: int) -> ValidRun:
    """The same batch at other offsets."""
    return replace(batch, first_offset=first, last_offset=batch.last_offset - batch.first_offset + first)


def set_altered_offset(
    logs: Logs, collector: ValidRunCollector, batch: ValidRun, first: int, why: str
) -> ValidRun:
    """Correct the base offset of a batch to `first`, with a finding; returns the corrected batch."""
    fix = HeaderFix(base_offset=first)
    logs.set_fix(batch.log, batch.position, fix.over(collector.log.fixes.get(batch.position)))
    width = batch.last_offset - batch.first_offset + 1
    collector.altered.append(
        altered_base_offset(collector.log.path, batch.position, batch.first_offset, width, first, why)
    )
    return moved_to(batch, first)


def _front(valid_run: ValidRun, position: int, last: int, epoch: int, batches: int) -> ValidRun | None:
    """The part of a valid run before `position`, None when that is nothing."""
    if not batches:
        return None
    length = position - valid_run.position
    return replace(valid_run, length=length, last_offset=last, last_epoch=epoch, batches=batches)


def _without_last(logs: Logs, valid_run: ValidRun) -> tuple[ValidRun | None, ValidRun]:
    """A valid run without its last batch (None when there is no other), and that batch."""
    last, epoch = valid_run.first_offset, valid_run.first_epoch
    for table in logs.tables(valid_run):
        row = table.count - 1
        end = table.at(C.POSITION, row) + table.at(C.SIZE, row)
        if end < valid_run.end_position:
            last, epoch = table.at(C.LAST_OFFSET, row), table.at(C.LEADER_EPOCH, row)
            continue
        outlier = valid_run_of(valid_run.log, table, row, row + 1)
        if row:
            last, epoch = table.at(C.LAST_OFFSET, row - 1), table.at(C.LEADER_EPOCH, row - 1)
        return _front(valid_run, outlier.position, last, epoch, valid_run.batches - 1), outlier
    raise AssertionError("a stretch holds batches")
