"""A log that is larger than the share of a process is the work of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.cli import shared_targets
from kseg.cli.main import run
from kseg.cli.shared_targets import TargetRun, target_runs
from kseg.jobs import fanout
from kseg.segment.partition.targets import FileTarget, LogDirTarget, PartitionTarget, Target

MIB = 1024 * 1024


def partitions(root: Path, *sizes: int) -> list[Target]:
    """A data directory and its partitions, each with two logs of these MiB together."""
    targets: list[Target] = [LogDirTarget(str(root))]
    for number, size in enumerate(sizes):
        path = root / f"orders-{number}"
        path.mkdir()
        for name in ("00000000000000000000", "00000000000000000007"):
            with open(path / f"{name}.log", "wb") as file:
                file.truncate(size * MIB // 2)
            (path / f"{name}.index").write_bytes(bytes(100))
        targets.append(PartitionTarget(str(path), str(root)))
    return targets


def shape(targets: Sequence[Target], jobs: int) -> list[int]:
    """How many targets each each has; 0 for one that all processes share."""
    found = list(target_runs(targets, jobs))
    assert [target for each in found for target in each.targets] == list(targets)
    assert all(len(each.targets) == 1 for each in found if each.is_shared)
    return [0 if each.is_shared else len(each.targets) for each in found]


@pytest.mark.parametrize(
    ("sizes", "jobs", "expected"),
    [
        ([500, 1, 1], 2, [1, 0, 2]),  # one log is nearly everything
        ([1, 1, 500], 2, [3, 0]),
        ([300, 1, 300], 2, [1, 0, 1, 0]),
        ([100] * 9, 2, [10]),  # enough for both all the time
        ([100] * 4, 2, [1, 0, 0, 0, 0]),
        ([100] * 4 + [1000], 8, [1, 0, 0, 0, 0, 0]),
        ([10] * 60 + [1000], 8, [61, 0]),
        ([60, 1], 2, [3]),  # too small for that
        ([500, 1], 1, [3]),
    ],
)
def test_which_logs_are_shared(sizes: list[int], jobs: int, expected: list[int], tmp_path: Path) -> None:
    assert shape(partitions(tmp_path, *sizes), jobs) == expected


def test_a_single_target_is_shared_whatever_its_size(tmp_path: Path) -> None:
    (_, target) = partitions(tmp_path, 1)
    assert target_runs([target], 2) == [TargetRun([target], True)]


def test_files_are_shared_too(tmp_path: Path) -> None:
    partitions(tmp_path, 900, 2)
    files: list[Target] = [FileTarget(str(path)) for path in sorted(tmp_path.rglob("*.log"))]
    assert shape(files, 2) == [0, 0, 2]


def test_what_is_gone_or_cannot_be_listed_has_no_size(tmp_path: Path) -> None:
    targets = partitions(tmp_path, 500, 1)
    gone: list[Target] = [PartitionTarget(str(tmp_path / "gone-0")), FileTarget(str(tmp_path / "gone.log"))]
    assert shape([*gone, *targets], 2) == [3, 0, 1]


@pytest.mark.parametrize(
    "command",
    [
        ["verify", "--json"],
        ["verify", "--deep", "--json"],
        ["dump", "--print-data-log", "--json"],
        ["lookup", "--key", "no such key", "--json"],
        ["doctor", "--json", "--now", "1790000000000"],
        ["compact", "--json", "--now", "1790000000000"],
    ],
)
def test_the_answer_is_the_same(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(healthy.log_dir(tmp_path / "data"))
    alone = run([*command, "--jobs", "1", root]), capfd.readouterr()
    asked: list[tuple[int, int]] = []
    over = fanout.run

    def note(work: object, targets: Sequence[object], options: object, **rest: object) -> object:
        asked.append((len(targets), getattr(options, "jobs", 1)))
        return over(work, targets, options, **rest)  # type: ignore[arg-type, type-var]

    monkeypatch.setattr(shared_targets, "_LEAST_SHARED_BYTES", 0)
    monkeypatch.setattr(fanout, "run", note)
    assert (run([*command, "--jobs", "8", root]), capfd.readouterr()) == alone
    assert any(jobs == 8 and count == 1 for count, jobs in asked)
