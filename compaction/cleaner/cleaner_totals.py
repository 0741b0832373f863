"""Counters of a second pass. They add up, so groups of segments can be cleaned separately."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import field

from kseg.segment.kernel import state_fields as S
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class PassTotals:
    """totals: of filtered records (`key_verdicts.J_…`). counts: of new segments (`filter_batches.S_…`). records_read: as declared
    in the headers. aborted_records: data of aborted transactions, which are not looked up in the map. horizons: number of
    retained tombstones by delete horizon."""

    totals: tuple[int, ...] = (0,) * S.TOTAL_WIDTH
    counts: tuple[int, ...] = (0,) * S.REWRITE_WIDTH
    records_read: int = 0
    aborted_records: int = 0
    markers_kept: int = 0
    markers_removed: int = 0
    markers_stamped: int = 0
    horizons: Counter[int] = field(default_factory=Counter)

    def __add__(self, other: "PassTotals") -> "PassTotals":
        return PassTotals(
            _added(self.totals, other.totals),
            _added(self.counts, other.counts),
            self.records_read + other.records_read,
            self.aborted_records + other.aborted_records,
            self.markers_kept + other.markers_kept,
            self.markers_removed + other.markers_removed,
            self.markers_stamped + other.markers_stamped,
            self.horizons + other.horizons,
        )


def _added(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    return tuple(sum(pair) for pair in zip(left, right, strict=True))
