"""Segments by offset (row I20; Kafka: LogSegments)."""

import pickle
from pathlib import Path

import pytest

from kseg.compaction.cleaner.segments import CleanerSegment, between, floor_at, kept_open


def segment(base: int) -> CleanerSegment:
    return CleanerSegment(
        base_offset=base,
        path="",
        size_bytes=0,
        mtime_ms=0,
        index_bytes=0,
        time_index_bytes=0,
        largest_timestamp_ms=0,
        origins=(),
    )


SEGMENTS = tuple(segment(base) for base in (0, 100, 200))


@pytest.mark.behaviour("I20")
@pytest.mark.parametrize(
    ("offset", "floor"), [(-1, -1), (0, 0), (1, 0), (99, 0), (100, 1), (199, 1), (200, 2), (201, 2)]
)
def test_floor_finds_the_segment_of_an_offset(offset: int, floor: int) -> None:
    assert floor_at(SEGMENTS, offset) == floor
    assert floor_at((), offset) == -1


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
def test_between_finds_the_segments_of_an_offset_range(
    from_offset: int, to_offset: int, bases: list[int]
) -> None:
    assert [found.base_offset for found in between(SEGMENTS, from_offset, to_offset)] == bases
    assert not between((), from_offset, to_offset)


def test_passes_share_one_mapping_of_each_file(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(100))
    found = segment(0)
    found.path, found.size_bytes = str(path), 100
    with kept_open([found]):
        with found.opened() as view:
            assert len(view) == 100
        file = found.file
        assert file is not None
        with found.opened():
            assert found.file is file
        sent = pickle.loads(pickle.dumps(found))
        assert sent == found and sent.file is None and not sent.stays_open
    assert found.file is None
    with found.opened():
        assert found.file is not file
    assert found.file is None
