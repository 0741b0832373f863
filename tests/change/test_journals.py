"""Journals: unfinished changes, several journals, forged ones, and where journals are looked for."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kseg.change.apply.executor import apply_plan, finish
from kseg.change.apply.journal_location import JournalLocation, location_for, new_run_id
from kseg.change.apply.journal_scan import location_of
from kseg.change.apply.keeping import Keeping
from kseg.change.apply.recorded_change import half_done_sentence
from kseg.change.apply.undo import undo
from kseg.change.apply.unfinished import complete_unfinished, half_done, refuse_half_done
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Plan, Remove, Truncate
from kseg.segment.errors import KsegError, Refused
from tests.support.failing_disks import FailingDisk, QuickDisk, Stopped, StoppingDisk, held
from tests.support.plan_cases import (
    CASES,
    COMMAND,
    EPOCHS,
    ID,
    INDEX,
    LATER,
    LOG,
    LOG_9,
    LOG_DIR,
    QUICK,
    Case,
    carry_out,
    place,
    stopped_in_the_middle,
    with_steps,
)

# --- half done


def test_unfinished_change_blocks_other_commands_and_is_finished_by_its_own(tmp_path: Path) -> None:
    case = CASES["replace"]
    directory = case.lay(tmp_path)
    stopped_in_the_middle(case, directory)
    (journal,) = half_done(str(directory))
    sentence = half_done_sentence(journal)
    assert f"kseg undo --finish {journal.path}" in sentence and f"`kseg undo {journal.path}`" in sentence
    with pytest.raises(Refused, match="was interrupted"):
        complete_unfinished(str(directory), "compact", QUICK)
    with pytest.raises(Refused, match="was interrupted"):
        refuse_half_done(str(directory), QUICK)
    with pytest.raises(Refused, match="was interrupted"):
        carry_out(with_steps(Remove(EPOCHS, "why")), directory, LATER)
    (applied,) = complete_unfinished(str(directory), COMMAND, QUICK)
    assert applied.journal == journal.path and half_done(str(directory)) == []
    assert complete_unfinished(str(directory), COMMAND, QUICK) == []


def test_unfinished_undo_can_only_be_completed(tmp_path: Path) -> None:
    case = CASES["replace"]
    directory = case.lay(tmp_path)
    start = held(directory)
    applied = carry_out(case, directory)
    for number in range(1000):
        with suppress(Stopped):
            undo(place(applied), StoppingDisk(number))
        if half_done(str(directory)):
            break
    with pytest.raises(Refused, match="an undo of recover was interrupted"):
        finish(place(applied), QUICK)
    with pytest.raises(Refused, match="an undo of recover was interrupted"):
        complete_unfinished(str(directory), COMMAND, QUICK)
    undo(place(applied), QUICK)
    assert held(directory) == start


def test_torn_last_line_of_a_journal_is_ignored(tmp_path: Path) -> None:
    case = CASES["replace"]
    directory = case.lay(tmp_path)
    stopped_in_the_middle(case, directory)
    (journal,) = half_done(str(directory))
    with open(journal.path, "ab") as file:
        file.write(b'{"type":"undoing","holders":{"' + b"x" * 200)
    assert half_done(str(directory)) == [journal]
    (applied,) = complete_unfinished(str(directory), COMMAND, QUICK)
    lines = [json.loads(line)["type"] for line in Path(applied.journal).read_text().splitlines()]
    assert lines == ["journal", "staged", "done"]


def test_journals_of_completed_changes_are_not_read_again(tmp_path: Path) -> None:
    directory = CASES["swap"].lay(tmp_path)
    applied = carry_out(CASES["swap"], directory)
    read: list[int] = []

    class Reading(QuickDisk):
        def read(self, descriptor: int, count: int, position: int) -> bytes:
            read.append(len(data := super().read(descriptor, count, position)))
            return data

    journal = Path(applied.journal)
    first, *others = journal.read_text().splitlines(keepends=True)
    journal.write_text(first + " " * 100_000 + "".join(others))
    assert half_done(str(directory), Reading()) == [] and sum(read) <= 4096
    journal.write_text(first)
    assert half_done(str(directory), Reading()) == [], "not decided, so not half done"
    kept = {path: path.read_bytes() for path in (journal.parent / "old").iterdir()}
    # what it removed exists nowhere else
    with pytest.raises(Refused, match="not cleared away"):
        complete_unfinished(str(directory), COMMAND, QUICK)
    assert kept and all(path.read_bytes() == content for path, content in kept.items())


# --- several journals


def test_later_changes_must_be_undone_first(tmp_path: Path) -> None:
    """This holds even if a quarantine on another disk restores copies, which have other inodes."""
    case = CASES["elsewhere"]
    directory = case.lay(tmp_path)
    start = held(directory)
    first = apply_plan(CASES["swap"].plan(directory), journal_id=ID, disk=QUICK)
    between = held(directory)
    again = with_steps(Remove(LOG_9, "why"), Truncate(LOG, 3, "why"), Remove(INDEX, "why"))
    second = apply_plan(
        again.plan(directory),
        journal_id=LATER,
        keeping=Keeping(None, str(tmp_path / "elsewhere")),
        disk=QUICK,
    )
    with pytest.raises(Refused, match="changed since"):
        undo(place(first), QUICK)
    undo(place(second), QUICK)
    assert held(directory) == between
    undo(place(first), QUICK)
    assert held(directory) == start and not (directory / ".kseg").exists()


def test_journal_of_a_data_directory_undoes_its_partitions(tmp_path: Path) -> None:
    for number in range(1000):
        root = tmp_path / str(number)
        data = CASES["data directory"].lay(root)
        partitions = [CASES[name].lay(data / f"p{at}") for at, name in enumerate(("swap", "truncate"))]
        partitions = [each.rename(data / f"orders-{at}") for at, each in enumerate(partitions)]
        for at in range(2):
            (data / f"p{at}").rmdir()
        starts = [held(each) for each in (data, *partitions)]
        for each, name in zip(partitions, ("swap", "truncate"), strict=True):
            carry_out(CASES[name], each)
        whole = apply_plan(
            CASES["data directory"].plan(data),
            journal_id=ID,
            partitions=[each.name for each in partitions],
            disk=QUICK,
        )
        has_stopped = False
        try:
            undone = undo(place(whole), StoppingDisk(number))
        except Stopped:
            has_stopped = True
            if Path(whole.journal).exists():
                undo(place(whole), QUICK)
        assert [held(each) for each in (data, *partitions)] == starts
        assert not list(data.rglob("kseg-journal-*")) and not list(data.rglob(".kseg"))
        shutil.rmtree(root)
        if not has_stopped:
            assert [each.directory for each in undone] == [str(data), *map(str, partitions)]
            return


def test_earlier_journal_of_the_run_is_undone_after_the_named_one(tmp_path: Path) -> None:
    case = CASES["data directory"]
    taken = Case(LOG_DIR, lambda _directory: (Remove(".kafka_cleanshutdown", "first of all"),), False)
    rest = Case(LOG_DIR, lambda _directory: (Remove("meta.properties", "then"),), False)
    for number in range(1000):
        data = case.lay(tmp_path / str(number))
        start = held(data)
        first = carry_out(taken, data)
        second = apply_plan(rest.plan(data), journal_id=LATER, after=ID, disk=QUICK)
        has_stopped = False
        try:
            undo(place(second), StoppingDisk(number))
        except Stopped:
            has_stopped = True
            if Path(second.journal).exists():
                undo(place(second), QUICK)
        assert held(data) == start
        assert not Path(first.journal).exists() and not list(data.glob("kseg-journal-*"))
        if not has_stopped:
            return


def test_changed_partition_prevents_the_undo_of_the_run(tmp_path: Path) -> None:
    data = CASES["data directory"].lay(tmp_path)
    partition = CASES["swap"].lay(data)
    carry_out(CASES["swap"], partition)
    whole = apply_plan(
        CASES["data directory"].plan(data), journal_id=ID, partitions=[partition.name], disk=QUICK
    )
    (partition / f"{77:020}.log").write_bytes(b"")
    now = [held(data), held(partition)]
    with pytest.raises(Refused, match="changed since"):
        undo(place(whole), QUICK)
    assert [held(data), held(partition)] == now


# --- forged journals


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace(f'"{LOG_9}"', '"../../escaped"'),
        lambda text: text.replace('"version":2', '"version":1'),
        lambda text: "[]\n" + text,
        lambda text: text.replace('"steps":', '"stops":'),
        lambda text: text.replace('"kept":', '"cept":'),
        lambda text: text.replace('"quarantine":null', '"quarantine":"/etc/kseg"'),
        lambda text: text.replace('"do":"rename"', '"do":"shred"'),
        lambda text: "\x00" * 100 + text,
    ],
)
def test_invalid_journal_is_not_followed(spoil: Callable[[str], str], tmp_path: Path) -> None:
    directory = CASES["swap"].lay(tmp_path)
    applied = carry_out(CASES["swap"], directory)
    journal = Path(applied.journal)
    spoiled = spoil(journal.read_text())
    assert spoiled != journal.read_text()
    journal.write_text(spoiled)
    end = held(directory)
    with pytest.raises(KsegError):
        undo(place(applied), QUICK)
    assert held(directory) == end and journal.read_text() == spoiled


@pytest.mark.parametrize("what", ["old", "tail", "elsewhere"])
def test_altered_quarantine_is_refused(what: str, tmp_path: Path) -> None:
    case = CASES["elsewhere" if what == "elsewhere" else "truncate"]
    directory = case.lay(tmp_path)
    quarantine = str(tmp_path / "elsewhere") if what == "elsewhere" else None
    applied = apply_plan(case.plan(directory), journal_id=ID, keeping=Keeping(None, quarantine), disk=QUICK)
    assert applied.quarantine is not None
    for path in Path(applied.quarantine).iterdir():
        if ("from-" in path.name) == (what == "tail"):
            path.write_bytes(b"something else")
    end = held(directory)
    with pytest.raises(Refused, match="is not what was removed"):
        undo(place(applied), QUICK)
    assert held(directory) == end


# --- places


def test_journal_location_is_found_from_any_user_path(tmp_path: Path) -> None:
    directory = CASES["swap"].lay(tmp_path)
    applied = carry_out(CASES["swap"], directory)
    expected = JournalLocation(str(directory), ID, in_log_dir=False)
    assert location_of(applied.journal) == location_of(str(Path(applied.journal).parent)) == expected
    assert location_of(f"/data/kseg-journal-{ID}.jsonl") == JournalLocation("/data", ID, in_log_dir=True)
    for other in ("/data/orders-0", "journal.jsonl", f"/data/{ID}/journal.jsonl", "kseg-journal-.jsonl"):
        assert location_of(other) is None
    (tmp_path / "orders-7").mkdir()
    assert not location_for(str(tmp_path / "orders-7"), ID).in_log_dir
    (tmp_path / "data-1" / "orders-0").mkdir(parents=True)
    assert location_for(str(tmp_path / "data-1"), ID).in_log_dir, "though its name is that of a partition"
    assert new_run_id(1_767_225_600_000).startswith("20260101T000000Z-")


def test_system_error_while_searching_journals_is_one_sentence(tmp_path: Path) -> None:
    directory = CASES["swap"].lay(tmp_path)
    applied = carry_out(CASES["swap"], directory)
    for number in range(30):
        disk = FailingDisk(number, errno.EIO)
        for ask in (
            lambda disk=disk: half_done(str(directory), disk),
            lambda disk=disk: finish(place(applied), disk),
        ):
            try:
                ask()
            except KsegError as error:
                assert "\n" not in str(error)


def test_inputs_of_a_data_directory_exclude_locks_and_journals(tmp_path: Path) -> None:
    case = CASES["data directory"]
    directory = case.lay(tmp_path)
    (directory / ".lock").touch()
    plan = case.plan(directory)
    (directory / ".lock").unlink()
    (directory / "kseg-journal-20250101T000000Z-00000001.jsonl").write_text("")
    applied = apply_plan(plan, journal_id=ID, disk=QUICK)
    (directory / ".lock").touch()
    undo(place(applied), QUICK)
    assert {file.name for file in inputs_of(str(directory))} >= set(LOG_DIR)
    assert Plan(command="x", directory="y", inputs=(), steps=()).is_empty
