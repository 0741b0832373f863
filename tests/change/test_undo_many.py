"""Parallel undo of a run over many partitions can be repeated after a kill or a failure at any point."""

from __future__ import annotations

import errno
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kseg.change.apply.disk import Disk
from kseg.change.apply.executor import apply_plan
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.undo import undo
from kseg.segment.errors import KsegError
from tests.support.failing_disks import FailingDisk, Held, QuickDisk, held, survives
from tests.support.plan_cases import CASES, ID

QUICK = QuickDisk()
PARTITIONS = 12
STRIDE = int(os.environ.get("KSEG_KILL_STRIDE", "29"))
STEPS = ("truncate", "swap", "remove", "side files")


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory in memory if possible, because thousands of small files are created."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:
        yield Path(directory)


class Run:
    """A data directory in which a run has changed all partitions."""

    def __init__(self, root: Path) -> None:
        self.data = CASES["data directory"].lay(root)
        self.partitions = []
        for number in range(PARTITIONS):
            made = CASES[STEPS[number % len(STEPS)]].lay(root / "made")
            self.partitions.append(made.rename(self.data / f"orders-{number}"))
        self.before, self.times_before = self.held(), self.times()
        for number, directory in enumerate(self.partitions):
            apply_plan(CASES[STEPS[number % len(STEPS)]].plan(directory), journal_id=ID, disk=QUICK)
        names = [path.name for path in self.partitions]
        apply_plan(CASES["data directory"].plan(self.data), journal_id=ID, partitions=names, disk=QUICK)
        assert all(now != before for now, before in zip(self.held(), self.before, strict=True))

    def held(self) -> list[dict[str, Held]]:
        return [held(directory) for directory in (self.data, *self.partitions)]

    def times(self) -> list[int]:
        return [directory.stat().st_mtime_ns for directory in (self.data, *self.partitions)]

    def undo(self, disk: Disk = QUICK) -> None:
        undo(JournalLocation(str(self.data), ID, in_log_dir=True), disk)

    def assert_undone(self) -> None:
        assert self.held() == self.before
        assert not [path for path in self.data.rglob("*") if ".kseg" in path.parts or "journal" in path.name]


def test_undo_restores_a_run_over_many_partitions(root: Path) -> None:
    run = Run(root)
    run.undo()
    run.assert_undone()


def test_undo_of_many_partitions_killed_anywhere_can_be_repeated(root: Path) -> None:
    kills = 0
    for number in itertools.count(3, STRIDE):
        run = Run(root / str(number))
        if survives(run.undo, number):
            break
        kills += 1
        if os.path.exists(JournalLocation(str(run.data), ID, in_log_dir=True).journal):
            run.undo()
        run.assert_undone()
    assert kills > 5


@pytest.mark.slow
def test_undo_of_many_partitions_failed_anywhere_can_be_repeated(root: Path) -> None:
    failures = 0
    for number in itertools.count(5, 3 * STRIDE):
        run = Run(root / str(number))
        disk = FailingDisk(number, errno.EIO)
        with suppress(KsegError):
            run.undo(disk)
        if not disk.failed:
            break
        failures += 1
        if os.path.exists(JournalLocation(str(run.data), ID, in_log_dir=True).journal):
            run.undo()
        run.assert_undone()
        if not disk.failed.startswith("change_times"):
            assert run.times() == run.times_before, disk.failed
    assert failures > 5
