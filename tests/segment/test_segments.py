"""Segments by offset (row I20; Kafka: LogSegments)."""

import pytest

from kseg.segment.partition.directory import Entry, SegmentFiles
from kseg.segment.partition.names import parse_file_name
from kseg.segment.partition.segments import floor_segment, higher_segment, lower_segment, segments_between


def segment(base: int) -> SegmentFiles:
    return SegmentFiles(base, Entry("x", 0, 0, parse_file_name(f"{base:020d}.log")))


SEGMENTS = tuple(segment(base) for base in (0, 100, 200))


def base(found: SegmentFiles | None) -> int | None:
    return None if found is None else found.base_offset


@pytest.mark.behaviour("I20")
@pytest.mark.parametrize(
    ("offset", "floor", "lower", "higher"),
    [
        (-1, None, None, 0),
        (0, 0, None, 100),
        (1, 0, 0, 100),
        (99, 0, 0, 100),
        (100, 100, 0, 200),
        (200, 200, 100, None),
        (201, 200, 200, None),
    ],
)
def test_neighbours(offset: int, floor: int | None, lower: int | None, higher: int | None) -> None:
    found = [base(find(SEGMENTS, offset)) for find in (floor_segment, lower_segment, higher_segment)]
    assert found == [floor, lower, higher]


@pytest.mark.behaviour("I20")
@pytest.mark.parametrize(
    ("from_offset", "to_offset", "bases"),
    [
        (0, 1, [0]),
        (0, 100, [0]),
        (0, 101, [0, 100]),
        (50, 150, [0, 100]),
        (100, 200, [100]),
        (150, 10_000, [100, 200]),
        (5000, 10_000, [200]),
        (-10, 0, []),
        (-10, 1, [0]),
        (150, 150, []),
        (200, 100, []),
    ],
)
def test_range(from_offset: int, to_offset: int, bases: list[int]) -> None:
    assert [found.base_offset for found in segments_between(SEGMENTS, from_offset, to_offset)] == bases
    assert not segments_between((), from_offset, to_offset)
