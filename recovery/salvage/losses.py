"""What is lost, as ranges: bytes that leave a log, and the offsets that are lost with them.

The offsets of a damaged range are computed once, where it is found (`segment.scanning.lost_offsets`); this module subtracts
those that exist elsewhere. At the end of the log the last lost offset may be unknown; side files may then have a higher
one. Valid batches that no log can hold count for the offsets between their neighbours that no damage there accounts for; several
of them between the same neighbours share one range, which is reported with the first.

A log that ends between two batches, while side files have later ones, lost its end before it was written to disk: a range
of offsets is lost, but no bytes (`lost-tail`).
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from kseg.recovery.policy import Removed
from kseg.recovery.salvage.kept_offsets import KeptOffsets, Range, records_lost
from kseg.recovery.salvage.known_end import LogEndEvidence
from kseg.recovery.salvage.leftovers import LeftoverLog
from kseg.recovery.salvage.logs import Logs
from kseg.recovery.salvage.overlaps import COPY, Superseded
from kseg.recovery.salvage.valid_runs import Loss, ValidRunCollector
from kseg.segment.findings import Finding
from kseg.segment.values import dataclass

LOST_TAIL = "lost-tail"


class Losses:
    """Everything that is removed from the logs of one partition. evidence: of offsets after the log end."""

    def __init__(
        self,
        logs: Logs,
        collectors: Sequence[ValidRunCollector],
        kept: KeptOffsets,
        evidence: LogEndEvidence | None,
    ) -> None:
        self._logs = logs
        self._collectors = collectors
        self._kept = kept
        self._evidence = evidence
        self._taken: dict[int, dict[int, KeptOffsets]] = {}
        self._of_logs: dict[int, _Neighbors] = {}
        self._lost_to = -1  # the largest offset that is lost with damage

    def removed(
        self, superseded: Sequence[Superseded], replaced: Sequence[LeftoverLog]
    ) -> tuple[Removed, ...]:
        """Everything that is removed, in the order of the logs."""
        found: list[tuple[int, int, Removed]] = []
        for number, collector in enumerate(self._collectors):
            found += (
                (number, loss.position, self._of_loss(number, collector, loss))
                for loss in _ranked_losses(collector)
            )
        for entry in superseded:
            found.append((entry.valid_run.log, entry.valid_run.position, self._of_superseded(entry)))
        in_order = [removed for _, _, removed in sorted(found, key=lambda item: item[:2])]
        replaced_logs = [
            Removed(log.name, 0, log.contents.size_bytes, None, None, log.cause, log.contents.batches, 0)
            for log in replaced
            if log.is_replaced and log.contents.size_bytes
        ]
        return (*replaced_logs, *in_order)

    def _of_superseded(self, superseded: Superseded) -> Removed:
        valid_run = superseded.valid_run
        lost = None
        if superseded.rule != COPY:
            lost = self._kept.without(valid_run.first_offset, valid_run.last_offset)
        first, last = lost or (None, None)
        cause = "offset-not-monotonic" if superseded.kept_log == valid_run.log else "segment-overlap"
        return Removed(
            self._logs[valid_run.log].name,
            valid_run.position,
            valid_run.length,
            first,
            last,
            cause,
            valid_run.batches,
            0 if lost is None else records_lost(self._logs, valid_run, self._kept),
        )

    def _of_loss(self, number: int, collector: ValidRunCollector, ranked: "_RankedLoss") -> Removed:
        loss = ranked.loss
        if loss.batches:
            lost = self._between(number, collector, loss) if ranked.is_first else None
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
        """The loss of a finding, without the offsets that exist elsewhere."""
        first, last, records = loss.first_offset, loss.last_offset, loss.records
        if first is None:
            return None, 0
        more = self._kept.without(self._first_after_previous(number, loss, first), first - 1)
        if more is not None:
            first, records = more[0], None
        if last is None or self._is_before_removed(number, loss):
            following = self._last_before_next(number, loss)
            records = records if following is None else None
            last = following
        if last is None:
            is_end = number + 1 == len(self._logs)
            if not is_end or self._evidence is None or self._evidence.last_offset < first:
                return None, records
            self._lost_to = max(self._lost_to, self._evidence.last_offset)
            return self._kept.without(first, self._evidence.last_offset), None
        if records is None and number + 1 < len(self._logs):
            # the batch after it may claim the offsets of another log
            base_offset = self._logs[number + 1].base_offset
            last = base_offset - 1 if first < base_offset <= last else last
        self._lost_to = max(self._lost_to, last)
        lost = self._kept.without(first, last)
        if lost is None:
            return None, 0
        return lost, records if lost == (first, last) else None

    def _first_after_previous(self, number: int, loss: Loss, first: int) -> int:
        """The first offset that damage can have had if the batch directly before it in the file has later ones: that was taken for an
        altered batch of this place, until its offsets were found in another segment. One that is removed has a range of its own."""
        collector, base_offset = self._collectors[number], self._logs[number].base_offset
        if loss.position not in self._neighbors(number).ends_of_doubtful:
            return first
        at = _gap_of(collector, loss)
        below = (row.last_offset for row in reversed(collector.valid_runs[:at]) if row.last_offset < first)
        return min(first, next(below, base_offset - 1) + 1)

    def _is_before_removed(self, number: int, loss: Loss) -> bool:
        """Whether the batch directly after damage, which bounded its offsets, is removed as one of another log."""
        return loss.position + loss.length in self._neighbors(number).starts_of_foreign

    def _neighbors(self, number: int) -> "_Neighbors":
        if number not in self._of_logs:
            self._of_logs[number] = _Neighbors.of(self._collectors[number])
        return self._of_logs[number]

    def _last_before_next(self, number: int, loss: Loss) -> int | None:
        """The last offset that damage can have had if the batches after it are not in order with those before it, which bounds nothing:
        that before the first later batch in the file, or before the next segment. None at the end of the log."""
        runs = self._collectors[number].valid_runs
        behind = (runs[at].first_offset for at in range(_gap_of(self._collectors[number], loss), len(runs)))
        later = next((offset for offset in behind if offset > (loss.first_offset or 0)), None)
        if later is None and number + 1 < len(self._logs):
            later = max(self._logs[number + 1].base_offset, loss.first_offset or 0)
        return None if later is None else later - 1

    def _between(self, number: int, collector: ValidRunCollector, loss: Loss) -> Range | None:
        at = _gap_of(collector, loss)
        first = collector.valid_runs[at - 1].last_offset + 1 if at else self._logs[number].base_offset
        if at < len(collector.valid_runs):
            last: int | None = collector.valid_runs[at].first_offset - 1
        elif number + 1 < len(self._logs):
            last = self._logs[number + 1].base_offset - 1
        else:
            last = None
        if last is None or last < first:
            return None
        taken = self._taken_by_damage(number).get(at)
        if taken is None:
            return self._kept.without(first, last)
        remaining = taken.without(first, last)
        return None if remaining is None else self._kept.without(*remaining)

    def _taken_by_damage(self, number: int) -> dict[int, KeptOffsets]:
        """The offsets that damage accounts for, by gap between valid runs of a log."""
        if number not in self._taken:
            ranges: dict[int, list[Range]] = {}
            for loss in self._collectors[number].losses:
                if not loss.batches and loss.first_offset is not None and loss.last_offset is not None:
                    gap = _gap_of(self._collectors[number], loss)
                    ranges.setdefault(gap, []).append((loss.first_offset, loss.last_offset))
            self._taken[number] = {gap: KeptOffsets(sorted(found)) for gap, found in ranges.items()}
        return self._taken[number]

    def with_tail(
        self, removed: tuple[Removed, ...], end_offset: int
    ) -> tuple[tuple[Removed, ...], Finding | None]:
        """`removed`, and the offsets that side files have beyond the log end unless damaged bytes there account for them."""
        evidence, first = self._evidence, max(end_offset, self._lost_to + 1)
        if evidence is None or evidence.last_offset < first:
            return removed, None
        log, last = self._logs[len(self._logs) - 1], evidence.last_offset
        message = f"the log ends at offset {end_offset}, but {evidence.by} refers to offset {last}"
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
class _Neighbors:
    """What decides the bounds of damage beside it, by position in the file. starts_of_foreign: of removed batches of another log.
    ends_of_doubtful: of kept batches whose offsets were doubted."""

    starts_of_foreign: frozenset[int]
    ends_of_doubtful: frozenset[int]

    @classmethod
    def of(cls, collector: ValidRunCollector) -> "_Neighbors":
        removed = {loss.position for loss in collector.losses if loss.batches}
        doubtful = (each.claimed for each in collector.doubtful)
        return cls(
            frozenset(loss.position for loss in collector.losses if loss.is_of_another_log),
            frozenset(each.end_position for each in doubtful if each.position not in removed),
        )


@dataclass(frozen=True, slots=True)
class _RankedLoss:
    """is_first: of the valid batches between the same two neighbours."""

    loss: Loss
    is_first: bool

    @property
    def position(self) -> int:
        return self.loss.position


def _ranked_losses(collector: ValidRunCollector) -> Iterator[_RankedLoss]:
    previous = -1
    for loss in sorted(collector.losses, key=lambda loss: loss.position):
        at = _gap_of(collector, loss) if loss.batches else previous
        yield _RankedLoss(loss, at != previous)
        previous = at


def _gap_of(collector: ValidRunCollector, loss: Loss) -> int:
    """The number of the first valid run after a loss in the file."""
    return bisect_left(collector.valid_runs, loss.position, key=lambda valid_run: valid_run.position)
