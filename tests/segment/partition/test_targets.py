"""From PATH arguments to targets (the command contract)."""

import os
from pathlib import Path

import pytest

from kseg.segment.errors import UnreadableInput
from kseg.segment.partition.targets import (
    Expansion,
    FileTarget,
    LogDirTarget,
    PartitionTarget,
    Target,
    resolve_targets,
)

ZERO = f"{0:020d}"
ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two data directories below `disks`, listed from the directory above."""
    for name in (
        "a/meta.properties",
        "a/bootstrap.checkpoint",
        f"a/foo-0/{ZERO}.timeindex",
        f"a/foo-0/{ZERO}.log",
        f"a/foo-0/{ZERO}.index",
        f"a/foo-0/{9:020d}.log",
        f"a/foo-0/{9:020d}.snapshot",
        f"a/foo-0/{9:020d}.txnindex",
        f"a/foo-0/{ZERO}.log.deleted",
        "a/foo-0/partition.metadata",
        f"a/foo-1.{ID}-delete/{ZERO}.log",
        f"a/food-0/{ZERO}.log",
        "a/junk/x",
        "b/meta.properties",
        f"b/bar-10/{ZERO}.log",
        f"b/bar-2/{ZERO}.log",
    ):
        path = tmp_path / "disks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "disks"


def paths(targets: list[Target]) -> list[str]:
    return [target.path for target in targets]


@pytest.mark.usefixtures("disks")
def test_file_targets_are_in_kafkas_order() -> None:
    foo = [
        f"disks/a/foo-0/{name}"
        for name in (
            f"{ZERO}.log",
            f"{ZERO}.index",
            f"{ZERO}.timeindex",
            f"{9:020d}.log",
            f"{9:020d}.txnindex",
            f"{9:020d}.snapshot",
        )
    ]
    assert paths(resolve_targets(["disks/a/foo-0"], expand=Expansion.FILES)) == foo
    assert paths(resolve_targets(["disks/a/foo-0//"], expand=Expansion.FILES)) == foo
    everything = resolve_targets(["disks"], expand=Expansion.FILES)
    assert all(isinstance(target, FileTarget) for target in everything)
    assert paths(everything) == [
        "disks/a/bootstrap.checkpoint",
        *foo,
        f"disks/a/food-0/{ZERO}.log",
        f"disks/b/bar-10/{ZERO}.log",
        f"disks/b/bar-2/{ZERO}.log",
    ]


@pytest.mark.usefixtures("disks")
def test_targets_are_partitions_and_log_dirs() -> None:
    deleted = PartitionTarget(f"disks/a/foo-1.{ID}-delete", "disks/a")
    a = [PartitionTarget("disks/a/foo-0", "disks/a"), PartitionTarget("disks/a/food-0", "disks/a")]
    b = [PartitionTarget("disks/b/bar-10", "disks/b"), PartitionTarget("disks/b/bar-2", "disks/b")]
    assert resolve_targets(["disks"]) == a + b
    for expand in (Expansion.VERIFY, Expansion.INVENTORY):
        there = [a[0], deleted, a[1]] if expand is Expansion.INVENTORY else a
        expected = [LogDirTarget("disks/a"), *there, LogDirTarget("disks/b"), *b]
        assert resolve_targets(["disks"], expand=expand) == expected
        assert resolve_targets(["disks/a/", "disks/b"], expand=expand) == expected


@pytest.mark.usefixtures("disks")
@pytest.mark.parametrize(
    ("topics", "partition", "expected"),
    [
        (["foo"], None, ["foo-0"]),
        (["foo*"], None, ["foo-0", "food-0"]),
        (["foo*"], 0, ["foo-0", "food-0"]),
        (["bar", "food"], None, ["food-0", "bar-10", "bar-2"]),
        ([], 10, ["bar-10"]),
        (["FOO"], None, []),
    ],
)
def test_targets_are_narrowed_by_topic_and_partition(
    topics: list[str], partition: int | None, expected: list[str]
) -> None:
    for expand in (Expansion.PARTITIONS, Expansion.VERIFY):
        targets = resolve_targets(["disks"], topics=topics, partition=partition, expand=expand)
        assert [os.path.basename(path) for path in paths(targets)] == expected
    files = resolve_targets(["disks"], topics=topics, partition=partition, expand=Expansion.FILES)
    assert sorted({path.split("/")[2] for path in paths(files)}) == sorted(expected)


@pytest.mark.usefixtures("disks")
def test_directories_marked_for_deletion_are_skipped_unless_named() -> None:
    passed_over: list[str] = []
    assert deleted_in(resolve_targets(["disks"], passed_over=passed_over)) == []
    assert passed_over == [f"disks/a/foo-1.{ID}-delete"]
    assert deleted_in(resolve_targets([passed_over[0]])) == passed_over, "named itself it is a target"
    assert resolve_targets(["disks"], topics=["foo"], partition=1) == []


def deleted_in(targets: list[Target]) -> list[str]:
    return [path for path in paths(targets) if path.endswith("-delete")]


@pytest.mark.usefixtures("disks")
@pytest.mark.parametrize("expand", list(Expansion))
def test_file_path_stays_a_file_target(expand: Expansion) -> None:
    path = f"disks/a/foo-0/{ZERO}.log.deleted"
    assert resolve_targets([path], expand=expand) == [FileTarget(path)]
    assert resolve_targets([path], topics=["foo"], partition=0, expand=expand) == [FileTarget(path)]
    assert resolve_targets([path], topics=["bar"], expand=expand) == []
    assert resolve_targets(["disks/a/meta.properties"], topics=["bar"], expand=expand) != []


@pytest.mark.usefixtures("disks")
def test_single_partition_target_knows_its_log_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_targets(["disks/a/foo-0/"]) == [PartitionTarget("disks/a/foo-0", "disks/a")]
    monkeypatch.chdir("disks/a")
    assert resolve_targets(["foo-0"]) == [PartitionTarget("foo-0", ".")]
    monkeypatch.chdir("foo-0")
    assert resolve_targets(["."], topics=["foo"], partition=0) == [PartitionTarget(".", "./..")]
    assert resolve_targets([".."])[0] == PartitionTarget("../foo-0", "..")


def test_partition_outside_any_log_dir_is_a_target(tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / f"{ZERO}.log").touch()
    path = str(tmp_path / "evidence")
    assert resolve_targets([path]) == [PartitionTarget(path, None)]
    assert resolve_targets([path], topics=["foo"]) == []


@pytest.mark.usefixtures("disks")
def test_repeated_paths_are_one_target_except_for_dump() -> None:
    assert len(resolve_targets(["disks/b", "disks/b", "disks/b/bar-2"])) == 2
    path = f"disks/b/bar-2/{ZERO}.log"
    assert len(resolve_targets([path, path], expand=Expansion.FILES)) == 2


@pytest.mark.parametrize("expand", [Expansion.PARTITIONS, Expansion.VERIFY, Expansion.INVENTORY])
def test_directory_reached_by_several_paths_is_one_target(disks: Path, expand: Expansion) -> None:
    expected = paths(resolve_targets(["disks"], expand=expand))
    (disks / "a" / "linked-7").symlink_to(disks / "b" / "bar-2")
    (disks / "b" / "food-0").symlink_to("../a/food-0")
    (disks / "c").symlink_to("a")
    assert paths(resolve_targets(["disks"], expand=expand)) == expected
    for more in ("./disks", "disks/a/../b", "disks/c", "disks/c/foo-0", str(disks)):
        assert paths(resolve_targets(["disks", more], expand=expand)) == expected
    alone = resolve_targets(["disks/c", "disks/a/foo-0"], expand=expand)
    assert "disks/a/foo-0" in paths(alone) and "disks/c/foo-0" not in paths(alone)


def test_link_to_a_directory_elsewhere_is_a_target(disks: Path) -> None:
    (disks / "elsewhere").mkdir()
    (disks / "a" / "food-0").rename(disks / "elsewhere" / "far-0")
    (disks / "a" / "food-0").symlink_to("../elsewhere/far-0")
    assert "disks/a/food-0" in paths(resolve_targets(["disks/a"]))
    files = paths(resolve_targets(["disks/a"], expand=Expansion.FILES, topics=["food"]))
    assert files == [f"disks/a/food-0/{ZERO}.log"]


@pytest.mark.behaviour("D09")
@pytest.mark.usefixtures("disks")
@pytest.mark.parametrize("path", ["nowhere", "disks/a/foo-0/nowhere.log", "disks/a/junk", ""])
def test_path_without_kafka_data_is_named(path: str) -> None:
    with pytest.raises(UnreadableInput) as caught:
        resolve_targets(["disks/b", path])
    assert path in str(caught.value) and caught.value.exit_status == 3


def test_targets_of_the_captures(capture_small: Path, ancient_small: Path) -> None:
    data = str(capture_small / "data")
    files = resolve_targets([data], expand=Expansion.FILES)
    expected = {
        str(p.relative_to(capture_small / "expected")) for p in (capture_small / "expected").rglob("*.txt")
    }
    found = {f"{os.path.relpath(path, data)}.txt" for path in paths(files)}
    # the script that made the capture left this file out
    assert found == expected | {"bootstrap.checkpoint.txt"}
    assert len(resolve_targets([data], expand=Expansion.VERIFY)) == 13
    assert len(resolve_targets([str(ancient_small)])) == 9
