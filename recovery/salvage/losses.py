"""What is lost, in ranges: bytes that leave a log, and the offsets that go with them.

Which offsets damage stands for is said once, where it is found (`segment.scanning.lost_offsets`); here those are taken out that
stay somewhere else. At the end of the log that may leave the last offset open; then witnesses know, files beside the
log that tell of a greater one. Valid batches that no log can hold stand for the offsets between their neighbours, and
several of them between the same neighbours share one range, which is told with the first.

A log that ends between two batches, while files beside it know of later ones, was never written to its end: a range
of offsets is lost, and no bytes (`lost-tail`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from kseg.recovery.policy import Removed
from kseg.recovery.salvage.leftovers import SetAside
from kseg.recovery.salvage.logs import Logs, ValidRun
from kseg.recovery.salvage.overlaps import Beaten
from kseg.recovery.salvage.valid_runs import Loss, Watch
from kseg.segment.findings import Finding
from kseg.segment.values import dataclass

LOST_TAIL = "lost-tail"

Range = tuple[int, int]


class Kept:
    """The ranges of offsets that stay, in order: given as such, neighbours are joined."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self.ranges: list[Range] = []
        for first, last in ranges:
            if self.ranges and self.ranges[-1][1] + 1 == first:
                self.ranges[-1] = self.ranges[-1][0], last
            else:
                self.ranges.append((first, last))
        self._lasts = [last for _, last in self.ranges]
        self._firsts = [first for first, _ in self.ranges]

    @classmethod
    def of(cls, stretches: Iterable[ValidRun]) -> Self:
        return cls((stretch.first_offset, stretch.last_offset) for stretch in stretches)

    def without(self, first: int, last: int) -> Range | None:
        """From the first to the last offset of first … last that does not stay; None when all do."""
        at = bisect_left(self._lasts, first)
        if at < len(self.ranges) and self._firsts[at] <= first:
            first = self._lasts[at] + 1
        at = bisect_right(self._firsts, last) - 1
        if at >= 0 and self._lasts[at] >= last:
            last = self._firsts[at] - 1
        return (first, last) if first <= last else None


@dataclass(frozen=True, slots=True)
class Witnessed:
    """An offset that files beside the log know of. by: which files, in words."""

    last_offset: int
    by: str


class Losses:
    """Everything that goes from the logs of one partition. witness: of offsets behind the log end."""

    def __init__(self, logs: Logs, watches: Sequence[Watch], kept: Kept, witness: Witnessed | None) -> None:
        self._logs = logs
        self._watches = watches
        self._kept = kept
        self._witness = witness
        self._told_to = -1  # the greatest offset that is lost with damage

    def removed(self, beaten: Sequence[Beaten], replaced: Sequence[SetAside]) -> tuple[Removed, ...]:
        """All of it, in the order of the logs."""
        found: list[tuple[int, int, Removed]] = []
        for number, watch in enumerate(self._watches):
            found += ((number, loss.position, self._of_loss(number, watch, loss)) for loss in _once(watch))
        for entry in beaten:
            found.append((entry.stretch.log, entry.stretch.position, self._of_beaten(entry)))
        in_order = [removed for _, _, removed in sorted(found, key=lambda item: item[:2])]
        asides = [
            Removed(log.name, 0, log.contents.size_bytes, None, None, log.cause, log.contents.batches, 0)
            for log in replaced
            if log.is_replaced and log.contents.size_bytes
        ]
        return (*asides, *in_order)

    def _of_beaten(self, beaten: Beaten) -> Removed:
        stretch = beaten.stretch
        first, last = self._kept.without(stretch.first_offset, stretch.last_offset) or (None, None)
        cause = "offset-not-monotonic" if beaten.keeper == stretch.log else "segment-overlap"
        return Removed(
            self._logs[stretch.log].name,
            stretch.position,
            stretch.length,
            first,
            last,
            cause,
            stretch.batches,
            0 if first is None else self._logs.records_in(stretch, first),
        )

    def _of_loss(self, number: int, watch: Watch, told: "_Told") -> Removed:
        loss = told.loss
        if loss.batches:
            lost = self._between(number, watch, loss) if told.is_first else None
            records = None if lost is not None else 0
        else:
            lost, records = self._of_damage(number, loss)
        first, last = lost or (None, None)
        return Removed(
            self._logs[number].name,
            loss.position,
            loss.length,
            first,
            last,
            loss.cause,
            loss.batches,
            records,
        )

    def _of_damage(self, number: int, loss: Loss) -> tuple[Range | None, int | None]:
        """What the finding says, without what stays elsewhere."""
        first, last, records = loss.first_offset, loss.last_offset, loss.records
        if first is None:
            return None, 0
        if last is None:
            is_end = number + 1 == len(self._logs)
            if not is_end or self._witness is None or self._witness.last_offset < first:
                return None, records
            self._told_to = max(self._told_to, self._witness.last_offset)
            return self._kept.without(first, self._witness.last_offset), None
        self._told_to = max(self._told_to, last)
        lost = self._kept.without(first, last)
        if lost is None:
            return None, 0
        return lost, records if lost == (first, last) else None

    def _between(self, number: int, watch: Watch, loss: Loss) -> Range | None:
        at = bisect_left(watch.stretches, loss.position, key=lambda stretch: stretch.position)
        first = watch.stretches[at - 1].last_offset + 1 if at else self._logs[number].base_offset
        if at < len(watch.stretches):
            last: int | None = watch.stretches[at].first_offset - 1
        elif number + 1 < len(self._logs):
            last = self._logs[number + 1].base_offset - 1
        else:
            last = None
        return None if last is None or last < first else self._kept.without(first, last)

    def with_tail(
        self, removed: tuple[Removed, ...], end_offset: int
    ) -> tuple[tuple[Removed, ...], Finding | None]:
        """`removed` and what files beside the log know of behind its end, unless damaged bytes there account for it."""
        witness, first = self._witness, max(end_offset, self._told_to + 1)
        if witness is None or witness.last_offset < first:
            return removed, None
        log, last = self._logs[len(self._logs) - 1], witness.last_offset
        message = f"the log ends at offset {end_offset}, but {witness.by} knows of offset {last}"
        finding = Finding(LOST_TAIL, log.path, message, log.size_bytes, 0, first, last)
        return (*removed, Removed(log.name, log.size_bytes, 0, first, last, LOST_TAIL)), finding


def lost_offsets(removed: Iterable[Removed]) -> list[Range]:
    """The ranges of offsets that are lost, in order."""
    return sorted(
        (entry.first_offset, entry.last_offset)
        for entry in removed
        if entry.first_offset is not None and entry.last_offset is not None
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """is_first: of those between the same two neighbours."""

    loss: Loss
    is_first: bool

    @property
    def position(self) -> int:
        return self.loss.position


def _once(watch: Watch) -> Iterator[_Told]:
    former = -1
    for loss in sorted(watch.losses, key=lambda loss: loss.position):
        at = bisect_left(watch.stretches, loss.position, key=lambda stretch: stretch.position)
        yield _Told(loss, at != former)
        former = at
