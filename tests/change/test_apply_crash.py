"""After a kill at any of its changes, an apply or undo can be completed or undone, and no byte is lost in between.

By default every seventh change is tried, from a different start in each case; KSEG_KILL_STRIDE=1 tries all.
"""

from __future__ import annotations

import errno
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.change.apply.disk import Disk
from kseg.change.apply.executor import apply_plan
from kseg.change.apply.journal_scan import journals_in
from kseg.change.apply.keeping import Keeping
from kseg.change.apply.undo import undo
from kseg.change.apply.unfinished import complete_unfinished, half_done
from kseg.segment.errors import KsegError
from tests.support.failing_disks import (
    FailingDisk,
    QuickDisk,
    assert_no_byte_is_lost,
    held,
    outlives,
    rounds,
    survives,
)
from tests.support.plan_cases import CASES, COMMAND, Case

pytestmark = pytest.mark.slow

ID = "20260101T000000Z-00000001"
QUICK = QuickDisk()
ERRORS = (errno.ENOSPC, errno.EACCES, errno.EIO)
SEVERAL = [pytest.param(case, id=name) for name, case in CASES.items()]


class Scenario:
    """A case that is created again for each kill."""

    def __init__(self, case: Case, root: Path, name: str) -> None:
        self._case = case
        self._root = root
        self._name = name
        self._places = itertools.count()
        self.fresh()
        self.start = held(self.directory)
        self.apply()
        self.end = held(self.directory)
        assert self.end != self.start

    def fresh(self) -> None:
        """The original directory at a new path, with new inodes."""
        shutil.rmtree(self._root, ignore_errors=True)
        self.location = self._root / str(next(self._places))
        self.directory = self._case.lay(self.location)
        self.shared = held(self.location / "backup") if self._case.shared else {}

    def rounds(self) -> Iterator[int]:
        return rounds(self._name)

    def apply(self, disk: Disk = QUICK, journal_id: str = ID) -> None:
        quarantine = str(self.location / "elsewhere") if self._case.elsewhere else None
        journal_dir = str(self.location / "journals") if self._case.journal_elsewhere else None
        apply_plan(
            self._case.plan(self.directory),
            journal_id=journal_id,
            keeping=Keeping(journal_dir, quarantine),
            disk=disk,
        )

    def apply_again(self) -> None:
        """What the same command does when it is run again."""
        complete_unfinished(str(self.directory), COMMAND, QUICK)
        if held(self.directory) == self.start:
            self.apply(journal_id="20260101T000000Z-00000002")

    def undo(self, disk: Disk = QUICK) -> None:
        for journal in journals_in(str(self.directory), disk):
            if Path(journal.path).exists():
                undo(journal.location, disk)
            else:
                complete_unfinished(str(self.directory), COMMAND, disk)

    def assert_start(self) -> None:
        assert held(self.directory) == self.start
        assert self.leftovers() == []

    def assert_end(self) -> None:
        now = held(self.directory)
        assert {name: file.content for name, file in now.items()} == {
            name: file.content for name, file in self.end.items()
        }
        # a new file has the time of its creation
        for name, file in now.items():
            if self.end[name].mtime_ns < self.end_of_past_ns():
                assert file == self.end[name]
        assert half_done(str(self.directory)) == []
        assert not [path for path in self.location.rglob("*") if path.is_file() and _is_staging(path)]

    def end_of_past_ns(self) -> int:
        return max(file.mtime_ns for file in self.start.values()) + 1

    def leftovers(self) -> list[Path]:
        found = {*self.location.rglob("*")} - {self.directory, *self.directory.iterdir()}
        found -= {
            self.location / "backup",
            *(self.location / "backup").glob("*"),
            self.location / "elsewhere",
        }
        found -= {
            *(self.location / "journals").rglob("*"),
            self.location / "journals",
        }  # nothing refers to them
        ours = self.directory / ".kseg"
        # the kill may have come between the creation of this directory and of the next
        if ours.is_dir() and not any(ours.iterdir()):
            ours.rmdir()
        return sorted({*found, *self.directory.glob(".kseg"), *self.directory.glob("kseg-journal-*")})

    def assert_nothing_lost(self) -> None:
        assert_no_byte_is_lost(self.start, self.directory, self.location / "elsewhere")
        assert self.shared == (held(self.location / "backup") if self.shared else {})


def _is_staging(path: Path) -> bool:
    return path.parent.name == "new" or "-new-" in path.name


@pytest.fixture(params=SEVERAL)
def scenario(request: pytest.FixtureRequest, tmp_path: Path) -> Scenario:
    return Scenario(request.param, tmp_path / "scenario", request.node.name)


def test_killed_apply_can_be_completed(scenario: Scenario) -> None:
    for number in scenario.rounds():
        scenario.fresh()
        survived = survives(scenario.apply, number)
        scenario.assert_nothing_lost()
        scenario.apply_again()
        scenario.assert_nothing_lost()
        scenario.assert_end()
        scenario.undo()
        scenario.assert_start()
        if survived:
            break
    assert number > 15


def test_killed_apply_can_be_undone(scenario: Scenario) -> None:
    for number in scenario.rounds():
        scenario.fresh()
        survived = outlives(scenario.apply, number)
        scenario.undo()
        scenario.assert_start()
        if survived:
            break


def test_killed_undo_can_be_completed(scenario: Scenario) -> None:
    for number in scenario.rounds():
        scenario.fresh()
        scenario.apply()
        survived = survives(scenario.undo, number)
        scenario.assert_nothing_lost()
        scenario.undo()
        scenario.assert_start()
        if survived:
            break
    assert number > 5


def test_killed_finish_or_undo_of_an_unfinished_change_can_be_completed(scenario: Scenario) -> None:
    """Two kills: one in the middle of the moves, then one at each change of the run that completes or undoes it."""

    def go_on(disk: Disk) -> None:
        complete_unfinished(str(scenario.directory), COMMAND, disk)

    middle = _first_kill_behind_the_decision(scenario) + 2
    for first_kill in (middle - 2, middle):
        for way in (go_on, scenario.undo):
            for number in scenario.rounds():
                scenario.fresh()
                assert not outlives(scenario.apply, first_kill)
                survived = outlives(way, number)
                scenario.assert_nothing_lost()
                if way is go_on:
                    scenario.apply_again()
                    scenario.assert_end()
                else:
                    scenario.undo()
                    scenario.assert_start()
                if survived:
                    break


def _first_kill_behind_the_decision(scenario: Scenario) -> int:
    for number in itertools.count():
        scenario.fresh()
        outlives(scenario.apply, number)
        if half_done(str(scenario.directory)):
            return number
    raise AssertionError("unreachable")


def test_system_error_during_apply_is_one_sentence_and_loses_nothing(scenario: Scenario) -> None:
    for at in scenario.rounds():
        scenario.fresh()
        number = ERRORS[at % len(ERRORS)]
        disk = FailingDisk(at, number)
        try:
            scenario.apply(disk)
        except KsegError as error:
            assert "\n" not in str(error)
            is_half_done = bool(half_done(str(scenario.directory)))
            assert is_half_done == ("kseg undo --finish" in str(error)), (disk.failed, str(error))
            if not is_half_done:
                assert held(scenario.directory) == scenario.start
        scenario.assert_nothing_lost()
        if at // len(ERRORS) % 2:
            scenario.undo()
            scenario.assert_start()
        else:
            scenario.apply_again()
            scenario.assert_end()
        if not disk.failed:
            break


def test_system_error_during_undo_is_one_sentence(scenario: Scenario) -> None:
    for at in scenario.rounds():
        scenario.fresh()
        number = ERRORS[at % len(ERRORS)]
        scenario.apply()
        disk = FailingDisk(at, number)
        try:
            scenario.undo(disk)
        except KsegError as error:
            assert "\n" not in str(error)
        scenario.assert_nothing_lost()
        scenario.undo()
        scenario.assert_start()
        if not disk.failed:
            break
