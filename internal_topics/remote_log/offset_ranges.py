"""Sets of offsets as sorted, disjoint ranges (first, last), both inclusive."""

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
