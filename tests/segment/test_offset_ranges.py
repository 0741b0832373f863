"""Sets of offsets, against sets of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kseg.segment.offset_ranges import OffsetSet

RANGE = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda each: (each[0], each[0] + each[1]))


@given(ranges=st.lists(RANGE, max_size=12), asked=RANGE)
def test_ranges_are_the_sets_of_their_offsets(ranges: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    found, expected = OffsetSet(), set[int]()
    for first, last in ranges:
        new = {*range(first, last + 1)} - expected
        assert found.add(first, last) == len(new)
        expected |= new
    assert found.covers(3, 2)
    assert found.covers(*asked) == (expected >= {*range(asked[0], asked[1] + 1)})
