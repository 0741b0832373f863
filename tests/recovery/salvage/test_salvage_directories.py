"""Salvage of random partition directories, ordinary and odd: it succeeds, and a second salvage has nothing to do.

`KSEG_SALVAGE_DIRECTORIES` is the number of directories (default 60), half of them odd, `KSEG_SALVAGE_DIRECTORIES_SEED` the first seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.disk_directories import disk_case
from tests.kafka.odd_directories import odd_case
from tests.kafka.random_directories import Case, random_case
from tests.support.salvage_helpers import plan, write_repaired

COUNT = int(os.environ.get("KSEG_SALVAGE_DIRECTORIES", "60"))
FIRST_SEED = int(os.environ.get("KSEG_SALVAGE_DIRECTORIES_SEED", "1000"))

Maker = Callable[[int, Path], Case]


def assert_final(case: Case, place: Path) -> None:
    repair = plan(case.directory)
    result = write_repaired(repair, case.directory, place / "result" / case.directory.name)
    again = plan(result)
    assert not again.why, again.why


@pytest.mark.parametrize("make", [random_case, odd_case, disk_case])
def test_second_salvage_has_nothing_to_do(make: Maker, tmp_path: Path) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + COUNT // 2):
        place = tmp_path / str(seed)
        place.mkdir()
        assert_final(make(seed, place), place)


@pytest.mark.parametrize(
    ("make", "seed"),
    [
        (random_case, 145),
        (random_case, 246),
        (random_case, 5301),
        (random_case, 8204),
        (odd_case, 8921),
    ],
)
def test_directories_that_once_failed_are_salvaged_completely(make: Maker, seed: int, tmp_path: Path) -> None:
    """Seeds with time indexes for some segments of a v0 log; an epoch that the new leader-epoch checkpoint decides; and a log that ends
    below 0."""
    assert_final(make(seed, tmp_path), tmp_path)


def test_snapshot_of_another_log_at_the_log_start_is_removed(tmp_path: Path) -> None:
    """The snapshot has batches above its own offset, so the replay of this log does not start from its producers. It made the correct
    snapshot at the log end look wrong."""
    case = disk_case(2301375, tmp_path)
    assert case.done == ["of_another_partition"]
    assert set(plan(case.directory).why) >= {f"{5:020d}.snapshot"}
    assert_final(case, tmp_path)


@pytest.mark.parametrize("seed", [2500663])
def test_removed_wrong_index_entry_is_no_longer_evidence(tmp_path: Path, seed: int) -> None:
    """The entry claims offsets far above a batch whose base offset has a flipped bit. Without the entry, other files correct the batch.
    Salvage used to empty the index first and correct the batch only in a second run."""
    case = random_case(seed, tmp_path)
    assert case.done == ["damage_a_side_file", "flip_a_bit"]
    assert_final(case, tmp_path)
