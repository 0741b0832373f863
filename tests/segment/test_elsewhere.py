"""Journals in another directory than the one that they describe (`--journal DIR`)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kseg.change.apply.append_journal import Guard
from kseg.change.apply.elsewhere import pointer_name, read_pointer
from kseg.change.apply.executor import apply_plan
from kseg.change.apply.journal import JournalState
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.journal_scan import journals_in, unfinished_in
from kseg.change.apply.keeping import Keeping
from kseg.change.apply.undo import undo
from kseg.change.apply.undo_command import UndoOptions, undo_journal
from kseg.change.apply.unfinished import complete_unfinished, half_done, half_done_findings, refuse_half_done
from kseg.jobs.events import Failure, Row
from kseg.segment.errors import Refused
from tests.support.failing_disks import QuickDisk, Stopped, StoppingDisk, held
from tests.support.plan_cases import CASES, COMMAND, EPOCHS, ID, INDEX, LATER, LOG_9, PARTITION, Case

QUICK = QuickDisk()
CASE = CASES["truncate"]


def carry_out(directory: Path, around: Path, disk: QuickDisk = QUICK, journal_id: str = ID) -> str:
    plan = CASE.plan(directory)
    return apply_plan(plan, journal_id=journal_id, keeping=Keeping(str(around)), disk=disk).journal


def half_done_at(directory: Path, around: Path) -> None:
    for number in range(1000):
        try:
            carry_out(directory, around, StoppingDisk(number))
        except Stopped:
            if half_done(str(directory)):
                return
            complete_unfinished(str(directory), COMMAND, QUICK)
            # nothing refers to its content
            shutil.rmtree(around, ignore_errors=True)
    raise AssertionError("it was never half done")


@pytest.mark.parametrize("name", list(CASES))
def test_undo_finds_a_journal_elsewhere_by_directory_and_by_path(tmp_path: Path, name: str) -> None:
    around = tmp_path / "an other disk"
    for number, by_path in enumerate((True, False)):
        directory = CASES[name].lay(tmp_path / str(number))
        start = held(directory)
        plan = CASES[name].plan(directory)
        applied = apply_plan(plan, journal_id=ID, keeping=Keeping(str(around)), disk=QUICK)
        assert Path(applied.journal).is_relative_to(around) and held(directory) != start
        assert unfinished_in(str(directory)) == []
        what = applied.journal if by_path else str(directory)
        (row,) = undo_journal(what, UndoOptions())
        assert isinstance(row, Row) and row.values["directory"] == str(directory)
        assert held(directory) == start
        assert not list(around.iterdir()) and not list(directory.glob("kseg-*"))


def test_pointer_to_a_journal_elsewhere_takes_no_bytes(tmp_path: Path) -> None:
    directory = CASE.lay(tmp_path)
    carry_out(directory, tmp_path / "journals")
    assert not (directory / ".kseg").exists()
    pointers = [path for path in directory.glob("kseg-journal-*") if "-at-" in path.name]
    assert [path.stat().st_size for path in pointers] == [0]
    # names that a broker would take for a file of a log, or for an unfinished file of its own
    known = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".swap", ".cleaned", ".deleted")
    assert not [path for path in directory.glob("kseg-journal-*") if path.name.endswith(known)]


def test_unfinished_change_elsewhere_continues_or_blocks_other_commands(tmp_path: Path) -> None:
    directory, around = CASE.lay(tmp_path), tmp_path / "journals"
    half_done_at(directory, around)
    (finding,) = half_done_findings(str(directory))
    assert str(around) in finding.path
    for other in (refuse_half_done, lambda path: complete_unfinished(path, "compact", QUICK)):
        with pytest.raises(Refused, match=f"{around}.*{COMMAND} was interrupted"):
            other(str(directory))
    with pytest.raises(Refused, match="was interrupted"):
        carry_out(directory, tmp_path / "yet another", journal_id=LATER)
    assert len(complete_unfinished(str(directory), COMMAND, QUICK)) == 1
    assert half_done(str(directory)) == []


def test_unmounted_journal_disk_blocks_only_unfinished_changes(tmp_path: Path) -> None:
    directory, around, away = CASE.lay(tmp_path), tmp_path / "usb", tmp_path / "away"
    start = held(directory)
    half_done_at(directory, around)
    middle = held(directory)
    around.rename(away)
    (journal,) = unfinished_in(str(directory))
    assert journal.state is JournalState.OUT_OF_REACH
    for action in (
        lambda: refuse_half_done(str(directory)),
        lambda: complete_unfinished(str(directory), COMMAND, QUICK),
        lambda: undo(journal.location, QUICK),
        lambda: carry_out(directory, tmp_path / "other", journal_id=LATER),
    ):
        with pytest.raises(Refused, match=f"its journal {around}.* is not there: mount"):
            action()
    assert held(directory) == middle
    away.rename(around)
    undo(journal.location, QUICK)
    assert held(directory) == start
    carry_out(directory, around)
    around.rename(away)
    refuse_half_done(str(directory))
    (failure,) = undo_journal(str(directory), UndoOptions())
    assert isinstance(failure, Failure) and "is not there" in failure.sentence


def test_planted_journal_elsewhere_is_not_followed(tmp_path: Path) -> None:
    directory, around = CASE.lay(tmp_path / "one"), tmp_path / "journals"
    carry_out(directory, around)
    (pointer,) = (path for path in directory.glob("kseg-journal-*") if "-at-" in path.name)
    other = CASE.lay(tmp_path / "two")
    (other / pointer.name.replace(".done", ".open")).touch()
    (journal,) = unfinished_in(str(other))
    assert journal.state is JournalState.OUT_OF_REACH, "the journal is of another inode"
    # a link in the path
    home = next(around.glob("*/*"))
    home.rename(tmp_path / "victim")
    home.symlink_to(tmp_path / "victim")
    (journal,) = journals_in(str(directory))
    assert journal.state is JournalState.UNREADABLE and "link" in journal.fault
    with pytest.raises(Refused, match="link"):
        undo(journal.location, QUICK)
    assert len(list((tmp_path / "victim").iterdir())) == 1


@pytest.mark.parametrize(
    "around", ["/mnt/x", "/mnt/with space and % and ü", "/a-at-b/c-old-d/e-new-f.open", "/x.done"]
)
def test_journal_pointer_round_trips(around: str) -> None:
    name = pointer_name(f"{around}/kseg-{ID}/orders-0.1f", ID)
    for suffix in (".open", ".done"):
        assert read_pointer(name + suffix) == (ID, around)
    assert "/" not in name


@pytest.mark.parametrize(
    "name",
    [
        f"kseg-journal-{ID}-at-mnt.open",
        f"kseg-journal-{ID}-at-%2Fmnt%2F..%2Fetc.open",
        f"kseg-journal-{ID}-at-%2Fmnt%00.open",
        f"kseg-journal-{ID}-at-%2fmnt.open",
        f"kseg-journal-{ID}-at-%2Fmnt",
        f"kseg-journal-{ID}-old-%2Fmnt.open",
        "kseg-journal-..-at-%2Fmnt.open",
    ],
)
def test_invalid_pointer_name_is_ignored(name: str) -> None:
    assert read_pointer(name) is None


def test_journal_places_that_would_fail_a_broker_are_refused(tmp_path: Path) -> None:
    data = CASES["data directory"].lay(tmp_path)
    directory = CASE.lay(data)
    for around in (data, directory, data / "journals"):
        with pytest.raises(Refused, match="journal"):
            carry_out(directory, around)
    with pytest.raises(Refused, match="too long"):
        carry_out(directory, tmp_path / "/".join(["long" * 20] * 4))


def append_something(directory: Path, around: Path, quarantine: Path | None, disk: QuickDisk) -> None:
    with Guard(
        str(directory),
        "append",
        journal_id=ID,
        grows=(LOG_9,),
        replaces=(INDEX, EPOCHS),
        keeping=Keeping(str(around), None if quarantine is None else str(quarantine)),
        disk=disk,
    ) as guard:
        with (directory / LOG_9).open("ab") as log:
            log.write(b"a batch")
        (directory / INDEX).write_bytes(b"new entries")
        disk.rename(str(directory / INDEX), str(directory / EPOCHS))
        guard.done()


@pytest.mark.parametrize("apart", [False, True])
def test_killed_append_with_a_journal_elsewhere_is_undone(tmp_path: Path, apart: bool) -> None:
    case = Case(PARTITION, lambda _directory: ())
    quarantine = tmp_path / "kept" if apart else None
    for number in range(1000):
        directory, around = case.lay(tmp_path / str(number)), tmp_path / f"journals-{number}"
        start = held(directory)
        is_whole = True
        try:
            append_something(directory, around, quarantine, StoppingDisk(number))
        except Stopped:
            is_whole = False
        for journal in journals_in(str(directory)):
            if os.path.exists(journal.path):
                undo(journal.location, QUICK)
        assert held(directory) == start, number
        assert not list(directory.glob("kseg-*"))
        assert quarantine is None or not list(quarantine.glob("*/*/*"))
        if is_whole:
            assert not list(around.iterdir())
            break
    assert number > 10


def test_journal_location_is_a_value() -> None:
    assert JournalLocation("/d", ID, in_log_dir=False, home="/mnt/kseg-x/d.1").is_flat
