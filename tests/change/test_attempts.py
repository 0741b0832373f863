"""Work that is attempted more than once returns and leaves the same as a single undisturbed attempt."""

from __future__ import annotations

import itertools
import random
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from kseg.change.run.options import SharedRun
from kseg.jobs import fanout
from kseg.jobs.events import Event, Failure, Row
from tests.support.change_cases import CHANGINGS, Changing
from tests.support.failing_disks import STRIDE
from tests.support.killed_runs import contents, state, undo_all
from tests.support.retried_changes import both_at_once, killed_first

pytestmark = pytest.mark.slow

RUN = "20260101T000000Z-00000001"
_AGE = re.compile(r"marked .* ago")


@pytest.fixture(params=CHANGINGS)
def changing(request: pytest.FixtureRequest) -> Changing:
    return CHANGINGS[request.param]


class Stage:
    """A data directory at one path, created again for each run, and the result of an undisturbed local run."""

    def __init__(self, changing: Changing, capture: Path, root: Path) -> None:
        self._changing = changing
        self._original = root / "original" / "data"
        self.data = root / "data"
        changing.lay(capture, self._original)
        self.found = state(self._original)

    def set(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.copytree(self._original, self.data)

    def deferring_signals(self, **options: object) -> list[Event]:
        self.set()
        return self._changing.events(self.data, fanout.run, **options)


@pytest.fixture
def stage(changing: Changing, capture_small: Path, tmp_path: Path) -> Stage:
    return Stage(changing, capture_small, tmp_path)


def timeless(events: list[Event]) -> list[Event]:
    """The events without the creation time of the files that this test makes."""
    return [
        Row({**event.values, "marked_at": 0, "reason": _AGE.sub("marked", str(event.values["reason"]))})
        if isinstance(event, Row) and "marked_at" in event.values
        else event
        for event in events
    ]


def journals(data: Path) -> list[str]:
    return sorted(str(path.relative_to(data)) for path in data.rglob("*.jsonl"))


def test_second_attempt_after_a_kill_gives_the_same_result(changing: Changing, stage: Stage) -> None:
    printed = timeless(stage.deferring_signals(apply=True, run_id=RUN))
    planned, reported = contents(state(stage.data)), journals(stage.data)
    assert planned != contents(stage.found)
    assert not any(isinstance(event, Failure) for event in printed)
    for number in itertools.count(random.randrange(STRIDE), STRIDE):
        stage.set()
        was_killed: list[bool] = []
        over = partial(killed_first, kill_at=number, was_killed=was_killed)
        shared = SharedRun(RUN)
        again = changing.events(stage.data, over, apply=True, run_id=RUN, shared=shared)
        assert timeless(again) == printed, number
        assert contents(state(stage.data)) == planned
        assert journals(stage.data) == reported
        # purged files are gone for good
        if changing is not CHANGINGS["retain"]:
            undo_all(stage.data)
            assert state(stage.data) == stage.found
        if not any(was_killed):
            break
    assert number >= 25, "there are fewer changes than that"


def test_two_simultaneous_attempts_make_one_change(changing: Changing, stage: Stage) -> None:
    printed = timeless(stage.deferring_signals(apply=True, run_id=RUN))
    planned, reported = contents(state(stage.data)), journals(stage.data)
    for _ in range(3):
        stage.set()
        shared = SharedRun(RUN)
        again = changing.events(stage.data, both_at_once, apply=True, run_id=RUN, shared=shared)
        assert timeless(again) == printed
        assert contents(state(stage.data)) == planned
        assert journals(stage.data) == reported


def test_plan_needs_no_seat_in_the_lock(changing: Changing, stage: Stage) -> None:
    printed = timeless(stage.deferring_signals())
    assert timeless(changing.events(stage.data, both_at_once, shared=SharedRun(RUN))) == printed
    assert state(stage.data) == stage.found


def copies_below(output: Path) -> dict[str, bytes]:
    """The files of the copies without the journal, which contains the time."""
    found = {str(path.relative_to(output)): path for path in output.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith("kseg-journal-")}


@pytest.mark.parametrize("name", ["recover", "compact"])
def test_repeated_attempts_make_one_copy(name: str, capture_small: Path, tmp_path: Path) -> None:
    changing = CHANGINGS[name]
    stage = Stage(changing, capture_small, tmp_path)
    output = tmp_path / "copies"
    printed = stage.deferring_signals(output=str(output), run_id=RUN)
    planned = copies_below(output)
    assert any(isinstance(event, Row) and event.values.get("output") for event in printed)
    shared = SharedRun(RUN, output=str(output))

    def copied(over: object) -> None:
        shutil.rmtree(output)
        assert changing.events(stage.data, over, output=str(output), run_id=RUN, shared=shared) == printed  # type: ignore[arg-type]
        assert copies_below(output) == planned
        assert state(stage.data) == stage.found

    copied(both_at_once)
    for number in itertools.count(random.randrange(STRIDE), STRIDE):
        was_killed: list[bool] = []
        copied(partial(killed_first, kill_at=number, was_killed=was_killed))
        if not any(was_killed):
            break
    assert number >= 10, "nothing was killed"


@pytest.mark.parametrize("name", ["recover", "compact"])
def test_copy_that_existed_before_the_run_is_refused(name: str, capture_small: Path, tmp_path: Path) -> None:
    changing = CHANGINGS[name]
    stage = Stage(changing, capture_small, tmp_path)
    output = tmp_path / "copies"
    stage.deferring_signals(output=str(output))
    alone = changing.events(stage.data, fanout.run, output=str(output))
    failures = [event for event in alone if isinstance(event, Failure)]
    assert failures and "already exists" in failures[0].sentence
    shared = SharedRun(RUN, output=str(output))
    assert changing.events(stage.data, both_at_once, output=str(output), shared=shared) == alone


def test_attempts_on_a_partition_outside_a_data_directory(capture_small: Path, tmp_path: Path) -> None:
    changing = CHANGINGS["recover"]
    stage = Stage(changing, capture_small, tmp_path)
    stage.set()
    alone = tmp_path / "alone"

    def lay() -> Path:
        shutil.rmtree(alone, ignore_errors=True)
        shutil.copytree(stage.data / "metro-zstd-0", alone / "metro-zstd-0")
        return alone / "metro-zstd-0"

    printed = changing.events(lay(), fanout.run, apply=True, run_id=RUN)
    planned = contents(state(alone))
    shared = SharedRun(RUN)
    for number in (0, 3, 9, 1 << 60):
        over = partial(killed_first, kill_at=number, was_killed=[])
        assert changing.events(lay(), over, apply=True, run_id=RUN, shared=shared) == printed
        assert contents(state(alone)) == planned
        assert [path.name for path in alone.iterdir()] == ["metro-zstd-0"]
