"""A log that is larger than a process's share of the work is processed by all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fixtures import healthy
from kseg.cli import shared_targets
from kseg.cli.main import run
from kseg.cli.shared_targets import Sharing, TargetRun, target_runs
from kseg.jobs import fanout
from kseg.segment.partition.targets import FileTarget, LogDirTarget, PartitionTarget, Target
from tests.support.command_lines import Capfd

MIB = 1024 * 1024


def partitions(root: Path, *sizes: int) -> list[Target]:
    """A data directory and its partitions, each with two logs of this size in MiB together."""
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


def shape(targets: Sequence[Target], jobs: int, sharing: Sharing = Sharing.LARGE) -> list[int | str]:
    """The number of targets in each run, "shared" for a target that all processes share, and last the number of processes for the
    others."""
    found, jobs_for_rest = target_runs(targets, jobs, sharing)
    assert [target for each in found for target in each.targets] == list(targets)
    assert all(len(each.targets) == 1 for each in found if each.is_shared)
    return [*("shared" if each.is_shared else len(each.targets) for each in found), jobs_for_rest]


@pytest.mark.parametrize(
    ("sizes", "jobs", "expected"),
    [
        ([500, 1, 1], 2, [1, "shared", 2, 1]),  # one log is nearly everything
        ([500, 4, 4], 2, [1, "shared", 2, 2]),
        ([1, 1, 500], 2, [3, "shared", 1]),
        ([300, 1, 300], 2, [1, "shared", 1, "shared", 1]),
        ([100] * 9, 2, [10, 2]),  # enough to keep both busy all the time
        ([100] * 4, 2, [1, *["shared"] * 4, 1]),
        ([100] * 4 + [1000], 8, [1, *["shared"] * 5, 1]),
        ([10] * 60 + [1000], 8, [61, "shared", 8]),
        ([60, 1], 2, [3, 2]),  # too small to be shared
    ],
)
def test_large_logs_are_shared_between_processes(
    sizes: list[int], jobs: int, expected: list[int | str], tmp_path: Path
) -> None:
    assert shape(partitions(tmp_path, *sizes), jobs) == expected


def test_single_process_shares_no_log(tmp_path: Path) -> None:
    targets = partitions(tmp_path, 500, 1)
    assert target_runs(targets, 1, Sharing.LARGE) == ([TargetRun(targets)], 1)
    assert target_runs(targets[1:2], 1, Sharing.ALL) == ([TargetRun(targets[1:2])], 1)


def test_single_target_is_shared_whatever_its_size(tmp_path: Path) -> None:
    (_, target) = partitions(tmp_path, 1)
    assert target_runs([target], 2, Sharing.LARGE) == ([TargetRun([target], is_shared=True)], 1)
    assert target_runs([target], 2, Sharing.NONE) == ([TargetRun([target])], 2)


def test_large_output_shares_every_worthwhile_log(tmp_path: Path) -> None:
    partitions(tmp_path, 900, 20, 2)
    files: list[Target] = [FileTarget(str(path)) for path in sorted(tmp_path.rglob("*.*"))]
    assert shape(files, 2, Sharing.ALL) == [*[1, "shared"] * 4, 4, 2]
    assert shape(files, 2, Sharing.LARGE) == [1, "shared", 1, "shared", 8, 2]


def test_missing_or_unlistable_target_has_no_size(tmp_path: Path) -> None:
    targets = partitions(tmp_path, 500, 1)
    gone: list[Target] = [PartitionTarget(str(tmp_path / "gone-0")), FileTarget(str(tmp_path / "gone.log"))]
    assert shape([*gone, *targets], 2) == [3, "shared", 1, 1]


@pytest.mark.parametrize(
    "command",
    [
        ["verify", "--json"],
        ["verify", "--deep", "--json"],
        ["dump", "--print-data-log", "--json"],
        ["lookup", "--key", "no such key", "--json"],
        ["compact", "--json", "--now", "1790000000000"],
    ],
)
@pytest.mark.parametrize("few_bytes", [1, 1 << 20])
def test_shared_targets_give_the_same_output(
    few_bytes: int, command: list[str], tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(healthy.log_dir(tmp_path / "data"))
    alone = run([*command, "--jobs", "1", root]), capfd.readouterr()
    asked: list[object] = []
    over = fanout.run

    def note(*words: Any) -> object:
        # the jobs with which shared targets are processed
        asked.extend(words[6].jobs for _ in words[5])
        return over(*words)

    monkeypatch.setattr(shared_targets, "_LEAST_SHARED_BYTES", 1)
    monkeypatch.setattr(shared_targets, "_LEAST_SPLIT_BYTES", 1)
    monkeypatch.setattr(shared_targets, "_FEW_BYTES", few_bytes)
    monkeypatch.setattr(fanout, "run", note)
    assert (run([*command, "--jobs", "8", root]), capfd.readouterr()) == alone
    assert set(asked) == {8}
