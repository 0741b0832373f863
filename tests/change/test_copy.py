"""Changed copies: their content, that the input stays unchanged, and that a kill leaves nothing behind."""

from __future__ import annotations

import errno
import itertools
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from kseg.change.apply.copy import write_copy
from kseg.change.apply.disk import Disk
from kseg.change.apply.executor import apply_plan
from kseg.change.apply.step_progress import StepProgress
from kseg.change.apply.undo_command import UndoOptions, undo_journal
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Plan
from kseg.change.run.output_run import begin_copies, end_copies
from kseg.jobs.events import Failure, Row
from kseg.segment.errors import KsegError, Refused
from tests.support.failing_disks import (
    CountingDisk,
    FailingDisk,
    QuickDisk,
    Stopped,
    StoppingDisk,
    held,
    survives,
)
from tests.support.plan_cases import CASES, COMMAND, EPOCHS, LOG, PARTITION, Case
from tests.support.trees import tree_state, unchanged

QUICK = QuickDisk()
NAMES = ("replace", "truncate", "swap", "cleaner", "ring", "side files")


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {name: (file.content, file.mode) for name, file in held(directory).items()}


def planned_end(case: Case, tmp_path: Path) -> dict[str, tuple[bytes, int]]:
    directory = case.lay(tmp_path / "applied")
    apply_plan(case.plan(directory), journal_id="x", disk=QUICK)
    return contents(directory)


def whole_files(plan: Plan) -> set[str]:
    """The names of files that a plan leaves with the complete content of one of its inputs."""
    progress = StepProgress(plan.inputs, plan.steps)
    return {
        name
        for name, token in progress.end.items()
        if isinstance(token, str) and progress.end_size(token) == progress.inputs[token].size_bytes
    }


@pytest.mark.parametrize("hard_link", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_copy_equals_the_result_of_an_in_place_change(name: str, hard_link: bool, tmp_path: Path) -> None:
    case = CASES[name]
    directory, target = case.lay(tmp_path), tmp_path / "out" / "orders-0"
    plan = case.plan(directory)
    with unchanged(directory):
        write_copy(plan, str(target), hard_link=hard_link, disk=QUICK)
    assert contents(target) == planned_end(case, tmp_path)
    linked = {path.name for path in target.iterdir() if path.stat().st_nlink > 1}
    assert linked == (whole_files(plan) if hard_link else set())
    assert target.stat().st_mtime_ns == directory.stat().st_mtime_ns
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["orders-0"]


def test_copy_keeps_times_and_permissions_of_unchanged_and_truncated_files(tmp_path: Path) -> None:
    directory, target = CASES["truncate"].lay(tmp_path), tmp_path / "copy"
    write_copy(CASES["truncate"].plan(directory), str(target), disk=QUICK)
    start, copy = held(directory), held(target)
    assert copy[EPOCHS] == start[EPOCHS]
    assert (copy[LOG].mtime_ns, copy[LOG].mode) == (start[LOG].mtime_ns, start[LOG].mode)
    assert copy[LOG].content == PARTITION[LOG][:25]


def test_plan_without_steps_gives_a_plain_copy(tmp_path: Path) -> None:
    case = Case(PARTITION, lambda _directory: ())
    directory, target = case.lay(tmp_path), tmp_path / "copy"
    target.mkdir()
    write_copy(case.plan(directory), str(target), disk=QUICK)
    assert held(target) == held(directory)


def test_copy_overwrites_no_existing_file(tmp_path: Path) -> None:
    directory, target = CASES["swap"].lay(tmp_path), tmp_path / "copy"
    target.mkdir()
    (target / "mine").write_bytes(b"mine")
    with unchanged(directory, target), pytest.raises(Refused, match="not empty") as refusal:
        write_copy(CASES["swap"].plan(directory), str(target), disk=QUICK)
    assert refusal.value.exit_status == 4


@pytest.mark.parametrize("where", [".", LOG], ids=["into itself", "a file"])
def test_copy_into_the_input_is_refused(where: str, tmp_path: Path) -> None:
    directory = CASES["swap"].lay(tmp_path)
    plan = CASES["swap"].plan(directory)
    with unchanged(directory), pytest.raises(Refused):
        write_copy(plan, str(directory / where), disk=QUICK)


def test_inputs_changed_during_the_copy_are_refused(tmp_path: Path) -> None:
    directory, target = CASES["swap"].lay(tmp_path), tmp_path / "out" / "copy"

    class Busy(CountingDisk):
        def at_step(self, name: str, path: str) -> None:
            with (directory / LOG).open("ab") as file:
                file.write(b"more")

    plan = CASES["swap"].plan(directory)
    with pytest.raises(Refused, match="changed since planning"):
        write_copy(plan, str(target), disk=Busy(12))
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("hard_link", [False, True])
def test_killed_copy_leaves_the_input_and_can_be_repeated(hard_link: bool, tmp_path: Path) -> None:
    case = CASES["replace"]
    directory = case.lay(tmp_path)
    plan, end = case.plan(directory), planned_end(case, tmp_path)
    before = tree_state(directory)
    for number in itertools.count():
        out = tmp_path / "out" / str(number)
        out.mkdir(parents=True)

        def make(disk: Disk, out: Path = out) -> None:
            write_copy(plan, str(out / "copy"), hard_link=hard_link, disk=disk)

        survived = survives(make, number)
        assert tree_state(directory) == before
        if (out / "copy").exists():
            assert contents(out / "copy") == end
        else:
            make(QUICK)
        assert contents(out / "copy") == end
        assert [path.name for path in out.iterdir()] == ["copy"]
        if survived:
            break
    assert number > 20


def test_system_error_during_a_copy_is_one_sentence_and_leaves_no_copy(tmp_path: Path) -> None:
    case = CASES["replace"]
    directory = case.lay(tmp_path)
    plan, before = case.plan(directory), tree_state(directory)
    for number in itertools.count():
        out = tmp_path / "out" / str(number)
        out.mkdir(parents=True)
        disk = FailingDisk(number, (errno.ENOSPC, errno.EACCES, errno.EIO)[number % 3])
        try:
            write_copy(plan, str(out / "copy"), disk=disk)
        except KsegError as error:
            assert "\n" not in str(error)
        assert tree_state(directory) == before
        if not disk.failed:
            break
    assert plan.command == COMMAND and number > 40


def test_output_that_cannot_be_examined_is_one_sentence(tmp_path: Path) -> None:
    for left in itertools.count():
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        disk = FailingDisk(left, errno.EIO)
        try:
            end_copies(begin_copies(str(tmp_path / "out"), COMMAND, "x", disk), True)
        except Refused as error:
            assert "Input/output error" in str(error), disk.failed
        if not disk.failed:
            break
    assert left > 5


@pytest.mark.parametrize("output", ["out", "not/there/out"])
def test_leftovers_of_a_copy_killed_at_its_start_are_removed(tmp_path: Path, output: str) -> None:
    """Until the output has its name, there is no path to pass to undo."""
    (tmp_path / "other").mkdir()
    top = output.split("/")[0]
    begun = tmp_path / f".{top}.kseg-20260101T120000Z-7f59ab8c-begun" / output.partition("/")[2]
    begun.mkdir(parents=True)
    (begun / "kseg-journal-20260101T120000Z-7f59ab8c.jsonl").touch()
    (reported,) = undo_journal(str(tmp_path / output), UndoOptions())
    assert isinstance(reported, Row) and reported.values["state"] == "undone"
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    (again,) = undo_journal(str(tmp_path / output), UndoOptions())
    assert isinstance(again, Failure) and again.exit_status == 3


@pytest.mark.parametrize("is_there", [False, True])
def test_partial_output_of_a_killed_copy_is_removed_by_the_next_run(tmp_path: Path, is_there: bool) -> None:
    """This holds even if somebody has created a directory of that name since."""
    output = tmp_path / "out"
    for number in range(100):
        disk = StoppingDisk(number)
        with suppress(Stopped):
            begin_copies(str(output), "recover", "20260101T000000Z-00000001", disk)
        if [path for path in tmp_path.iterdir() if path.name.endswith("-begun")]:
            break
    assert not output.exists()
    if is_there:
        output.mkdir()
    place = begin_copies(str(output), "recover", "20260101T000001Z-00000001")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    end_copies(place, is_complete=False)
    assert output.exists() == is_there


def test_unreadable_input_is_not_reported_as_unwritable_output(tmp_path: Path) -> None:
    source = tmp_path / "orders-0"
    source.mkdir()
    (source / f"{0:020}.log").write_bytes(b"x" * 100)

    class Closed(QuickDisk):
        def open_to_read(self, path: str) -> int:
            if path.startswith(str(source)):
                raise PermissionError(13, "Permission denied", path)
            return super().open_to_read(path)

    plan = Plan(command="recover", directory=str(source), inputs=inputs_of(str(source)), steps=())
    with pytest.raises(
        Refused, match=f"cannot read {source}/{0:020}.log: Permission denied; no copy was written"
    ):
        write_copy(plan, str(tmp_path / "copy"), disk=Closed())
