"""Sets of offsets as sorted, disjoint ranges (first, last), both inclusive."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

OffsetRange = tuple[int, int]


def union(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The same offsets in the fewest possible ranges; empty ranges are dropped."""
    found: list[OffsetRange] = []
    for first, last in sorted(each for each in ranges if each[0] <= each[1]):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def minus(ranges: Sequence[OffsetRange], others: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The offsets of `ranges` that are in none of `others`; both in the form that `union` returns."""
    found = []
    cuts = iter(others)
    cut = next(cuts, None)
    for first, last in ranges:
        while cut is not None and cut[1] < first:
            cut = next(cuts, None)
        while cut is not None and cut[0] <= last:
            if first < cut[0]:
                found.append((first, cut[0] - 1))
            first = cut[1] + 1
            if cut[1] > last:
                break
            cut = next(cuts, None)
        if first <= last:
            found.append((first, last))
    return found


def common(ranges: Sequence[OffsetRange], others: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The offsets that are in both."""
    return minus(ranges, minus(ranges, others))


def count(ranges: Iterable[OffsetRange]) -> int:
    """The number of offsets."""
    return sum(last - first + 1 for first, last in ranges)


class OffsetSet:
    """A set that grows: logs with thousands of damaged places need every question about it in logarithmic time. ranges: in any order; they
    may overlap."""

    def __init__(self, ranges: Iterable[OffsetRange] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def add(self, first: int, last: int) -> int:
        """Add the offsets first … last; returns how many of them were not in the set."""
        start, stop = bisect_left(self._lasts, first - 1), bisect_right(self._firsts, last + 1)
        firsts, lasts = self._firsts[start:stop], self._lasts[start:stop]
        had = sum(
            max(0, min(last, known_last) - max(first, known_first) + 1)
            for known_first, known_last in zip(firsts, lasts, strict=True)
        )
        self._firsts[start:stop] = [min(first, *firsts)] if firsts else [first]
        self._lasts[start:stop] = [max(last, *lasts)] if lasts else [last]
        return last - first + 1 - had

    def covers(self, first: int, last: int) -> bool:
        """Whether all offsets first … last are in the set; there are none if `last` is below `first`."""
        if first > last:
            return True
        at = bisect_right(self._firsts, first) - 1
        return at >= 0 and last <= self._lasts[at]
