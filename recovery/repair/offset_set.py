"""A set of offsets, as disjoint ranges in order. Logs with thousands of damaged places need every question about it in logarithmic time."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class OffsetSet:
    """ranges: first and last offset of each, in any order; they may overlap."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
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
