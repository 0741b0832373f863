"""One partition in several directories of a node: interrupted moves, numbers with leading zeros, links. A real broker does at its start
what `verify` predicted, and where the start fails, a finding names the two directories."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.kafka.conftest import require_kafka
from tests.kafka.starting import assert_as_foretold, foretold, observed
from tests.kafka.test_broker_start import ALL, disks
from tests.support.trees import copy_tree

__all__ = ["disks"]

pytestmark = pytest.mark.kafka

FUTURE, ANOTHER = f"{'0b' * 16}-future", f"{'0c' * 16}-future"
FOREIGN = "version: 0\ntopic_id: Zm9yZWlnbi10b3BpYy1pZA"
Double = Callable[[Path, Path], None]


def _one(log_dir: Path) -> Path:
    return min(path for path in log_dir.glob("many-*") if "." not in path.name)


def moving_within(own: Path, _: Path) -> None:
    shutil.copytree(_one(own), own / f"{_one(own).name}.{FUTURE}")


def moving_twice(own: Path, other: Path) -> None:
    partition = _one(own)
    shutil.copytree(partition, own / f"{partition.name}.{FUTURE}")
    shutil.copytree(partition, other / f"{partition.name}.{ANOTHER}")


def moved_but_for_the_name(own: Path, other: Path) -> None:
    """The metadata log already assigns the partition to the directory of the future replica."""
    partition = _one(own)
    shutil.copytree(partition, other / partition.name)
    partition.rename(own / f"{partition.name}.{FUTURE}")


def moved_and_gone(own: Path, _: Path) -> None:
    _one(own).rename(own / f"{_one(own).name}.{FUTURE}")


def moving_with_the_id_of_another(own: Path, other: Path) -> None:
    partition = _one(own)
    shutil.copytree(partition, other / f"{partition.name}.{FUTURE}")
    (other / f"{partition.name}.{FUTURE}" / "partition.metadata").write_text(FOREIGN)


def moving_twice_and_one_with_the_id_of_another(own: Path, other: Path) -> None:
    moving_twice(own, other)
    moving = other / f"{_one(own).name}.{ANOTHER}"
    (moving / "partition.metadata").write_text(FOREIGN)
    shutil.rmtree(own / f"{_one(own).name}.{FUTURE}")
    shutil.copytree(_one(own), other / f"{_one(own).name}.{FUTURE}")


def live_twice_and_one_with_the_id_of_another(own: Path, other: Path) -> None:
    shutil.copytree(_one(own), other / _one(own).name)
    (other / _one(own).name / "partition.metadata").write_text(FOREIGN)


def moving_without_an_id_and_gone(own: Path, _: Path) -> None:
    """The moving replica becomes stray, and the partition is created again."""
    moved_and_gone(own, own)
    next(own.glob(f"*.{FUTURE}/partition.metadata")).unlink()


def with_a_zero(own: Path, _: Path) -> None:
    topic, dash, number = _one(own).name.rpartition("-")
    shutil.copytree(_one(own), own / f"{topic}{dash}0{number}")


def with_a_zero_alone(own: Path, _: Path) -> None:
    topic, dash, number = _one(own).name.rpartition("-")
    _one(own).rename(own / f"{topic}{dash}0{number}")


def linked(own: Path, other: Path) -> None:
    (other / _one(own).name).symlink_to(_one(own))


def linked_before(own: Path, other: Path) -> None:
    """The link is in the data directory that comes first."""
    partition = _one(own)
    partition.rename(other / partition.name)
    partition.symlink_to(other / partition.name)


# (the change, whether a finding says that the broker does not start with both directories)
CASES: tuple[tuple[Double, bool], ...] = (
    (moving_within, True),
    (moving_twice, True),
    (moved_but_for_the_name, False),
    (moved_and_gone, False),
    (moving_with_the_id_of_another, False),
    (moving_twice_and_one_with_the_id_of_another, False),
    (live_twice_and_one_with_the_id_of_another, False),
    (moving_without_an_id_and_gone, False),
    (with_a_zero, True),
    (with_a_zero_alone, False),
    (linked, True),
    (linked_before, True),
)
IN_THE_GATE = (
    moving_within,
    moving_twice,
    moving_twice_and_one_with_the_id_of_another,
    moved_but_for_the_name,
    with_a_zero,
    linked_before,
)


@pytest.mark.evidence("broker-start", "partition-twice")
@pytest.mark.parametrize(
    ("double", "is_fatal"),
    [case for case in CASES if ALL or case[0] in IN_THE_GATE],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_forecast_for_a_partition_in_several_log_dirs_matches_the_broker(
    double: Double, is_fatal: bool, disks: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    copy_tree(disks, tmp_path / "node")
    own, other = tmp_path / "node" / "0", tmp_path / "node" / "1"
    double(own, other)
    reported = foretold([own, other])
    capfd.readouterr()
    run(["verify", "--json", "--quick", str(own), str(other)])
    found = {json.loads(line).get("id") for line in capfd.readouterr().out.splitlines()}
    assert ("partition-twice" in found) == is_fatal
    assert reported.node["outcome"] == ("does-not-start" if is_fatal else "starts")
    assert_as_foretold(reported, observed(tmp_path, [own, other]))
    if double is moved_but_for_the_name:
        assert reported.node["partitions_removed"] == [_one(own).name]
        assert next(path.name for path in other.glob("many-*-delete")).startswith(f"{_one(own).name}.")


@pytest.mark.evidence("broker-start")
def test_broker_promotes_a_future_replica_beside_a_stray(disks: Path, tmp_path: Path) -> None:
    """The future replica is promoted, and the partition is not missing."""
    require_kafka()
    copy_tree(disks, tmp_path / "node")
    own, other = tmp_path / "node" / "0", tmp_path / "node" / "1"
    partition = _one(own)
    shutil.copytree(partition, own / f"{partition.name}.{ANOTHER}")
    (own / f"{partition.name}.{ANOTHER}" / "partition.metadata").write_text(FOREIGN)
    partition.rename(own / f"{partition.name}.{FUTURE}")
    reported = foretold([own, other])
    assert reported.node["partitions_promoted"] == [f"{partition.name}.{FUTURE}"]
    assert reported.node["partitions_missing"] == []
    assert_as_foretold(reported, observed(tmp_path, [own, other]))
