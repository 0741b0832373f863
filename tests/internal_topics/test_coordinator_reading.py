"""Segments with batches of others: which of them a coordinator reads. tests/kafka/test_misplaced_coordinator_segments.py has cases that
were compared with a real broker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kseg.internal_topics.coordinator_log import CoordinatorRecord, LogProblem, read_coordinator_log
from kseg.internal_topics.coordinator_reading import BEYOND_THE_END, ENDLESS, PASSED_OVER
from tests.internal_topics.coordinator_logs import batch, write_segment

OFFSETS = "__consumer_offsets"


def _found(directory: Path, **segments: Sequence[int]) -> tuple[list[int], list[tuple[str, int | None]]]:
    """The offsets of the records that are read, and the problems. segments: the offsets of batches, by `from_<base offset>`."""
    for name, offsets in segments.items():
        batches = [batch(offset, (b"k", b"v")) for offset in offsets]
        write_segment(directory, *batches, base_offset=int(name.removeprefix("from_")))
    found = list(read_coordinator_log(str(directory)))
    problems = [(each.damage, each.offset) for each in found if isinstance(each, LogProblem)]
    return [each.offset for each in found if isinstance(each, CoordinatorRecord)], problems


@pytest.mark.parametrize(
    ("segments", "read", "problems"),
    [
        ({"from_0": [0, 1], "from_2": [2, 3]}, [0, 1, 2, 3], []),
        # left by an interrupted cleaning: the first segment has the records of the second, too
        ({"from_0": [0, 1, 2, 3], "from_2": [2, 3], "from_4": [4]}, [0, 1, 2, 3, 4], []),
        ({"from_0": [2, 3], "from_2": [0, 1], "from_4": [4]}, [2, 3, 4], [(PASSED_OVER, 0)]),
        # the first batch of a segment has an offset below it
        ({"from_0": [0, 1], "from_3": [2, 4], "from_5": [5]}, [0, 1, 2, 4, 5], []),
        ({"from_0": [1, 2], "from_3": [0, 4], "from_5": [5]}, [1, 2, 4, 5], [(PASSED_OVER, 0)]),
        # once a batch of a segment was found, all that follow are read
        ({"from_0": [0, 3, 1, 4], "from_5": [5]}, [0, 3, 1, 4, 5], []),
        ({"from_0": [0, 2, 3, 1], "from_5": [5]}, [0, 2, 3, 1, 5], [(ENDLESS, 2)]),
        # the load ends at the log end, which is the base offset of a segment whose batches are all older, or beyond it
        ({"from_0": [0, 1], "from_2": [2, 3], "from_4": [0, 1]}, [0, 1, 2, 3], []),
        (
            {"from_0": [0, 1], "from_2": [4, 5], "from_4": [2, 3]},
            [0, 1, 4, 5],
            [(BEYOND_THE_END, 6), (PASSED_OVER, 2)],
        ),
    ],
)
def test_batches_are_read_where_a_coordinator_looks_for_their_offsets(
    tmp_path: Path,
    segments: dict[str, list[int]],
    read: list[int],
    problems: list[tuple[str, int | None]],
) -> None:
    assert _found(tmp_path / f"{OFFSETS}-0", **segments) == (read, problems)


def test_batches_below_the_log_start_are_not_missed(tmp_path: Path) -> None:
    directory = tmp_path / f"{OFFSETS}-0"
    write_segment(directory, batch(0, (b"k", b"v")), base_offset=2)
    assert _found(directory, from_3=[3, 4]) == ([3, 4], [])
