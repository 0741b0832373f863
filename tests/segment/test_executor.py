"""What carrying out and undoing a plan promise beside surviving a kill: attributes, refusals, several journals."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kseg.segment.apply.change import half_done_sentence
from kseg.segment.apply.disk import Disk
from kseg.segment.apply.executor import Applied, apply_plan, finish
from kseg.segment.apply.journal import Place, journals_in, new_run_id, place_for, place_of
from kseg.segment.apply.lock import claimed
from kseg.segment.apply.settle import half_done, refuse_half_done, settle
from kseg.segment.apply.undo import undo
from kseg.segment.errors import KsegError, Refused
from kseg.segment.plan.inputs import inputs_of
from kseg.segment.plan.pieces import Fresh
from kseg.segment.plan.steps import Plan, Remove, Rename, Step, Truncate, Write
from tests.segment.changes import (
    CASES,
    COMMAND,
    EPOCHS,
    INDEX,
    LOG,
    LOG_9,
    LOG_DIR,
    PARTITION,
    T0_NS,
    Case,
)
from tests.segment.disks import FailingDisk, QuickDisk, Stopped, StoppingDisk, held

ID = "20260101T000000Z-00000001"
LATER = "20260101T000001Z-00000001"
QUICK = QuickDisk()


def carry_out(case: Case, directory: Path, journal_id: str = ID, disk: Disk = QUICK) -> Applied:
    return apply_plan(case.plan(directory), journal_id=journal_id, disk=disk)


def with_steps(*steps: Step) -> Case:
    return Case(PARTITION, lambda _directory: steps)


def place(applied: Applied) -> Place:
    found = place_of(applied.journal)
    assert found is not None
    return found


def stopped_in_the_middle(case: Case, directory: Path) -> None:
    """A change that is decided and of which one step is missing at least."""
    for number in range(1000):
        try:
            carry_out(case, directory, disk=StoppingDisk(number))
        except Stopped:
            if half_done(str(directory)):
                return
            settle(str(directory), COMMAND, QUICK)
    raise AssertionError("it was never half done")


# --- what a change does


def test_the_answer_says_where_everything_is(tmp_path: Path) -> None:
    directory = CASES["truncate"].lay(tmp_path)
    applied = carry_out(CASES["truncate"], directory)
    assert applied.journal == f"{directory}/.kseg/{ID}/journal.jsonl"
    assert applied.quarantine == f"{directory}/.kseg/{ID}/old"
    gone = {name for name in PARTITION if not (directory / name).exists()}
    cut = len(PARTITION[LOG]) - 25
    assert applied.bytes_kept == cut + sum(len(PARTITION[name]) for name in gone)
    in_quarantine = {path.name for path in Path(applied.quarantine).iterdir()}
    assert in_quarantine == gone | {f"{LOG}.from-25"}
    header = json.loads(Path(applied.journal).read_text().splitlines()[0])
    assert (header["type"], header["version"], header["command"]) == ("journal", 1, COMMAND)
    assert {name for name, *_ in header["inputs"]} == set(PARTITION)


def test_a_data_directory_gets_no_directory_that_a_broker_would_die_of(tmp_path: Path) -> None:
    case = CASES["data directory"]
    directory = case.lay(tmp_path)
    carry_out(case, directory)
    assert [path.name for path in directory.iterdir() if path.is_dir()] == []
    assert (directory / f"kseg-journal-{ID}.jsonl").is_file()
    assert (directory / f"kseg-journal-{ID}-old-.kafka_cleanshutdown").read_bytes() == LOG_DIR[
        ".kafka_cleanshutdown"
    ]


def test_permissions_and_times_stay(tmp_path: Path) -> None:
    directory = CASES["replace"].lay(tmp_path)
    start = held(directory)
    carry_out(CASES["replace"], directory)
    now = held(directory)
    assert now[LOG].content != start[LOG].content
    assert (now[LOG].mtime_ns, now[LOG].mode) == (start[LOG].mtime_ns, start[LOG].mode)
    shutil.rmtree(directory)
    CASES["truncate"].lay(tmp_path)
    carry_out(CASES["truncate"], directory)
    assert held(directory)[LOG].mtime_ns == T0_NS


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_owners_stay_and_new_files_get_that_of_the_directory(tmp_path: Path) -> None:
    directory = CASES["side files"].lay(tmp_path)
    os.chown(directory, 1234, 4321)
    os.chown(directory / EPOCHS, 1111, 2222)
    carry_out(CASES["side files"], directory)
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in directory.iterdir()}
    assert owners[EPOCHS] == (1111, 2222)
    assert owners["partition.metadata"] == owners[".kseg"] == (1234, 4321)
    (journal,) = journals_in(str(directory))
    assert all(path.stat().st_uid == 1234 for path in (directory / ".kseg").rglob("*") if path.name != EPOCHS)
    undo(journal.place, QUICK)
    assert (directory / EPOCHS).stat().st_uid == 1111


def test_an_owner_that_may_not_be_given_is_told(tmp_path: Path) -> None:
    class Nobody(QuickDisk):
        def change_owner(self, path: str, owner: int, group: int) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted", path)

        def status(self, path: str) -> os.stat_result | None:
            found = super().status(path)
            if found is None or path.endswith("leader-epoch-checkpoint"):
                return found
            return os.stat_result((*found[:4], found.st_uid + 1, *found[5:]), _fields(found))

    directory = CASES["side files"].lay(tmp_path)
    applied = carry_out(CASES["side files"], directory, disk=Nobody())
    assert EPOCHS in applied.not_owned


def _fields(status: os.stat_result) -> dict[str, object]:
    names = (name for name in dir(status) if name.startswith("st_"))
    return {name: getattr(status, name) for name in names}


def test_a_file_with_a_name_elsewhere_is_not_cut_there(tmp_path: Path) -> None:
    case = CASES["hard links"]
    directory = case.lay(tmp_path)
    carry_out(case, directory)
    assert (directory / LOG).read_bytes() == PARTITION[LOG][:25]
    assert (tmp_path / "backup" / LOG).read_bytes() == PARTITION[LOG]


def test_a_file_system_without_links_keeps_copies(tmp_path: Path) -> None:
    class NoLinks(QuickDisk):
        def link(self, path: str, new_path: str) -> None:
            raise OSError(errno.EPERM, "Operation not permitted", path)

    for case in (CASES["ring"], CASES["truncate"]):
        directory = case.lay(tmp_path / str(id(case)))
        start = held(directory)
        applied = carry_out(case, directory, disk=NoLinks())
        undo(place(applied), NoLinks())
        assert held(directory) == start and not (directory / ".kseg").exists()


def test_files_that_stay_do_not_keep_a_second_name(tmp_path: Path) -> None:
    """Else the space of a segment that a broker deletes one day would not be freed."""
    directory = CASES["swap"].lay(tmp_path)
    carry_out(CASES["swap"], directory)
    assert {
        path.name: path.stat().st_nlink for path in directory.iterdir() if path.is_file()
    } == dict.fromkeys(held(directory), 1)


def test_two_names_of_one_file_can_be_renamed_to_each_other(tmp_path: Path) -> None:
    case = with_steps(Rename("twin", LOG, "the same file"))
    directory = case.lay(tmp_path)
    os.link(directory / LOG, directory / "twin")
    start = held(directory)
    applied = carry_out(case, directory)
    assert not (directory / "twin").exists() and (directory / LOG).read_bytes() == PARTITION[LOG]
    undo(place(applied), QUICK)
    assert held(directory) == start


# --- what is refused


def _grow(directory: Path) -> None:
    (directory / LOG).write_bytes(PARTITION[LOG] + b"more")


def _touch(directory: Path) -> None:
    os.utime(directory / LOG, ns=(T0_NS + 1, T0_NS + 1))


def _replace(directory: Path) -> None:
    copy = directory / "copy"
    shutil.copy2(directory / LOG, copy)
    copy.replace(directory / LOG)


def _add(directory: Path) -> None:
    (directory / f"{77:020}.log").write_bytes(b"")


def _remove(directory: Path) -> None:
    (directory / EPOCHS).unlink()


@pytest.mark.parametrize("meddle", [_grow, _touch, _replace, _add, _remove])
def test_inputs_that_changed_since_planning_are_refused(
    meddle: Callable[[Path], None], tmp_path: Path
) -> None:
    directory = CASES["replace"].lay(tmp_path)
    plan = CASES["replace"].plan(directory)
    meddle(directory)
    start = held(directory)
    with pytest.raises(Refused, match="changed since planning"):
        apply_plan(plan, journal_id=ID, disk=QUICK)
    assert held(directory) == start and not (directory / ".kseg").exists()


@pytest.mark.parametrize("meddle", [_grow, _touch, _add, _remove])
def test_an_undo_that_would_throw_away_what_came_since_is_refused(
    meddle: Callable[[Path], None], tmp_path: Path
) -> None:
    directory = CASES["swap"].lay(tmp_path)
    applied = carry_out(CASES["swap"], directory)
    meddle(directory)
    end = held(directory)
    with pytest.raises(Refused, match="changed since recover was here") as refusal:
        undo(place(applied), QUICK)
    assert refusal.value.exit_status == 4
    assert held(directory) == end


@pytest.mark.parametrize("meddle", [_grow, _add])
def test_a_half_done_change_that_somebody_meddled_with_is_left_alone(
    meddle: Callable[[Path], None], tmp_path: Path
) -> None:
    directory = CASES["side files"].lay(tmp_path)
    stopped_in_the_middle(CASES["side files"], directory)
    meddle(directory)
    now = held(directory)
    for way in (finish, undo):
        (journal,) = half_done(str(directory))
        with pytest.raises(Refused, match="changed since"):
            way(journal.place, QUICK)
        assert held(directory) == now


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((Remove("nothing", "why"),), "there is no nothing"),
        ((Truncate(LOG, 1000, "why"),), "fewer than 1000"),
        ((Write("../escaped", (Fresh(b"x"),), "why"),), "no name of a file"),
        ((Rename(LOG, "a/b", "why"),), "no name of a file"),
        ((Write(INDEX, (Fresh(b"x"),), "why"), Truncate(INDEX, 0, "why")), "after it was written"),
    ],
)
def test_a_plan_that_contradicts_itself_is_the_callers_mistake(
    steps: tuple[Step, ...], said: str, tmp_path: Path
) -> None:
    case = with_steps(*steps)
    directory = case.lay(tmp_path)
    start = held(directory)
    with pytest.raises(ValueError, match=said):
        carry_out(case, directory)
    assert held(directory) == start and not (directory / ".kseg").exists()


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    case = with_steps(Write("folder", (Fresh(b"x"),), "why"))
    directory = case.lay(tmp_path)
    (directory / "folder").mkdir()
    with pytest.raises(Refused, match="in the way"):
        carry_out(case, directory)
    assert not (directory / ".kseg").exists()


def test_two_of_kseg_do_not_change_one_directory(tmp_path: Path) -> None:
    directory = CASES["swap"].lay(tmp_path)
    with claimed(str(directory)), pytest.raises(Refused, match="another kseg"):
        carry_out(CASES["swap"], directory)
    applied = carry_out(CASES["swap"], directory)
    with claimed(str(directory)), pytest.raises(Refused, match="another kseg"):
        undo(place(applied), QUICK)


def test_a_quarantine_does_not_go_where_a_broker_would_die_of_it(tmp_path: Path) -> None:
    data = CASES["data directory"].lay(tmp_path)
    directory = CASES["swap"].lay(data)
    for quarantine in (data, directory, data / "mine", data / "mine" / "deeper"):
        with pytest.raises(Refused, match="no place for a quarantine"):
            apply_plan(CASES["swap"].plan(directory), journal_id=ID, quarantine=str(quarantine), disk=QUICK)
    assert not (directory / ".kseg").exists()


def test_an_interrupt_waits_until_a_decided_change_is_done(tmp_path: Path) -> None:
    class Interrupted(QuickDisk):
        def rename(self, path: str, new_path: str) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            super().rename(path, new_path)

    directory = CASES["ring"].lay(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        carry_out(CASES["ring"], directory, disk=Interrupted())
    assert half_done(str(directory)) == []
    (journal,) = journals_in(str(directory))
    assert journal.line("done") is not None


# --- half done


def test_a_half_done_change_is_in_the_way_of_other_commands_and_finished_by_its_own(tmp_path: Path) -> None:
    case = CASES["replace"]
    directory = case.lay(tmp_path)
    stopped_in_the_middle(case, directory)
    (journal,) = half_done(str(directory))
    sentence = half_done_sentence(journal)
    assert f"kseg undo --finish {journal.path}" in sentence and f"`kseg undo {journal.path}`" in sentence
    with pytest.raises(Refused, match="was interrupted"):
        settle(str(directory), "compact", QUICK)
    with pytest.raises(Refused, match="was interrupted"):
        refuse_half_done(str(directory), QUICK)
    with pytest.raises(Refused, match="was interrupted"):
        carry_out(with_steps(Remove(EPOCHS, "why")), directory, LATER)
    (applied,) = settle(str(directory), COMMAND, QUICK)
    assert applied.journal == journal.path and half_done(str(directory)) == []
    assert settle(str(directory), COMMAND, QUICK) == []


def test_a_half_done_undo_can_only_go_on(tmp_path: Path) -> None:
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
        settle(str(directory), COMMAND, QUICK)
    undo(place(applied), QUICK)
    assert held(directory) == start


def test_a_torn_last_line_of_a_journal_was_never_written(tmp_path: Path) -> None:
    case = CASES["replace"]
    directory = case.lay(tmp_path)
    stopped_in_the_middle(case, directory)
    (journal,) = half_done(str(directory))
    with open(journal.path, "ab") as file:
        file.write(b'{"type":"undoing","holders":{"' + b"x" * 200)
    assert half_done(str(directory)) == [journal]
    (applied,) = settle(str(directory), COMMAND, QUICK)
    lines = [json.loads(line)["type"] for line in Path(applied.journal).read_text().splitlines()]
    assert lines == ["journal", "staged", "done"]


def test_journals_of_what_is_done_are_not_read_again(tmp_path: Path) -> None:
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
    assert settle(str(directory), COMMAND, QUICK) == [] and not journal.exists()


# --- several journals


def test_later_changes_are_undone_first(tmp_path: Path) -> None:
    """Also when a quarantine elsewhere brings back copies, which are other inodes."""
    case = CASES["elsewhere"]
    directory = case.lay(tmp_path)
    start = held(directory)
    first = apply_plan(CASES["swap"].plan(directory), journal_id=ID, disk=QUICK)
    between = held(directory)
    again = with_steps(Remove(LOG_9, "why"), Truncate(LOG, 3, "why"), Remove(INDEX, "why"))
    second = apply_plan(
        again.plan(directory), journal_id=LATER, quarantine=str(tmp_path / "elsewhere"), disk=QUICK
    )
    with pytest.raises(Refused, match="changed since"):
        undo(place(first), QUICK)
    undo(place(second), QUICK)
    assert held(directory) == between
    undo(place(first), QUICK)
    assert held(directory) == start and not (directory / ".kseg").exists()


def test_the_journal_of_a_data_directory_undoes_its_partitions_too(tmp_path: Path) -> None:
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


def test_an_earlier_journal_of_the_run_is_undone_behind_the_named_one(tmp_path: Path) -> None:
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


def test_nothing_is_undone_when_one_partition_changed(tmp_path: Path) -> None:
    data = CASES["data directory"].lay(tmp_path)
    partition = CASES["swap"].lay(data)
    carry_out(CASES["swap"], partition)
    whole = apply_plan(
        CASES["data directory"].plan(data), journal_id=ID, partitions=[partition.name], disk=QUICK
    )
    _add(partition)
    now = [held(data), held(partition)]
    with pytest.raises(Refused, match="changed since"):
        undo(place(whole), QUICK)
    assert [held(data), held(partition)] == now


# --- journals that nobody wrote


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace(f'"{LOG_9}"', '"../../escaped"'),
        lambda text: text.replace('"version":1', '"version":2'),
        lambda text: "[]\n" + text,
        lambda text: text.replace('"steps":', '"stops":'),
        lambda text: text.replace('"kept":', '"cept":'),
        lambda text: text.replace('"quarantine":null', '"quarantine":"/etc/kseg"'),
        lambda text: text.replace('"do":"rename"', '"do":"shred"'),
        lambda text: "\x00" * 100 + text,
    ],
)
def test_a_journal_that_makes_no_sense_is_not_followed(spoil: Callable[[str], str], tmp_path: Path) -> None:
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
def test_a_quarantine_that_was_meddled_with_is_refused(what: str, tmp_path: Path) -> None:
    case = CASES["elsewhere" if what == "elsewhere" else "truncate"]
    directory = case.lay(tmp_path)
    quarantine = str(tmp_path / "elsewhere") if what == "elsewhere" else None
    applied = apply_plan(case.plan(directory), journal_id=ID, quarantine=quarantine, disk=QUICK)
    assert applied.quarantine is not None
    for path in Path(applied.quarantine).iterdir():
        if ("from-" in path.name) == (what == "tail"):
            path.write_bytes(b"something else")
    end = held(directory)
    with pytest.raises(Refused, match="is not what was taken out"):
        undo(place(applied), QUICK)
    assert held(directory) == end


# --- places


def test_the_place_of_a_journal_is_found_from_what_a_user_types(tmp_path: Path) -> None:
    directory = CASES["swap"].lay(tmp_path)
    applied = carry_out(CASES["swap"], directory)
    expected = Place(str(directory), ID, in_log_dir=False)
    assert place_of(applied.journal) == place_of(str(Path(applied.journal).parent)) == expected
    assert place_of(f"/data/kseg-journal-{ID}.jsonl") == Place("/data", ID, in_log_dir=True)
    for other in ("/data/orders-0", "journal.jsonl", f"/data/{ID}/journal.jsonl", "kseg-journal-.jsonl"):
        assert place_of(other) is None
    (tmp_path / "orders-7").mkdir()
    assert not place_for(str(tmp_path / "orders-7"), ID).in_log_dir
    (tmp_path / "data-1" / "orders-0").mkdir(parents=True)
    assert place_for(str(tmp_path / "data-1"), ID).in_log_dir, "though its name is that of a partition"
    assert new_run_id(1_767_225_600_000).startswith("20260101T000000Z-")


def test_errors_while_looking_for_journals_are_sentences(tmp_path: Path) -> None:
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


def test_the_inputs_of_a_data_directory_are_without_locks_and_journals(tmp_path: Path) -> None:
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
