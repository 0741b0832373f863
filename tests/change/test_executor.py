"""Guarantees of the executor apart from surviving a kill: attributes, results, refusals."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kseg.change.apply.disk import Disk
from kseg.change.apply.executor import apply_plan, finish
from kseg.change.apply.journal_scan import journals_in
from kseg.change.apply.keeping import Keeping
from kseg.change.apply.lock import claimed
from kseg.change.apply.undo import undo
from kseg.change.apply.unfinished import half_done
from kseg.change.plan.content import Fresh
from kseg.change.plan.steps import Remove, Rename, Step, Truncate, Write
from kseg.segment.errors import Refused
from tests.support.failing_disks import QuickDisk, held
from tests.support.plan_cases import (
    CASES,
    COMMAND,
    EPOCHS,
    ID,
    INDEX,
    LOG,
    LOG_DIR,
    PARTITION,
    QUICK,
    T0_NS,
    carry_out,
    place,
    stopped_in_the_middle,
    with_steps,
)

# --- what a change does


def test_applied_result_names_journal_and_quarantine(tmp_path: Path) -> None:
    directory = CASES["truncate"].lay(tmp_path)
    applied = carry_out(CASES["truncate"], directory)
    assert applied.journal == f"{directory}/.kseg/{ID}/journal.jsonl"
    assert applied.quarantine == f"{directory}/.kseg/{ID}/old"
    gone = {name for name in PARTITION if not (directory / name).exists()}
    cut = len(PARTITION[LOG]) - 25
    in_quarantine = {path.name: path.stat().st_size for path in Path(applied.quarantine).iterdir()}
    assert in_quarantine == {name: len(PARTITION[name]) for name in gone} | {f"{LOG}.from-25": cut}
    header = json.loads(Path(applied.journal).read_text().splitlines()[0])
    assert (header["type"], header["version"], header["command"]) == ("journal", 2, COMMAND)
    assert {name for name, *_ in header["inputs"]} == set(PARTITION)


def test_change_creates_no_directory_that_fails_a_broker(tmp_path: Path) -> None:
    case = CASES["data directory"]
    directory = case.lay(tmp_path)
    carry_out(case, directory)
    assert [path.name for path in directory.iterdir() if path.is_dir()] == []
    assert (directory / f"kseg-journal-{ID}.jsonl").is_file()
    assert (directory / f"kseg-journal-{ID}-old-.kafka_cleanshutdown").read_bytes() == LOG_DIR[
        ".kafka_cleanshutdown"
    ]


class SyncingDisk(Disk):
    """Records what is done to a file or directory that has not been synced since, by its name now."""

    def __init__(self) -> None:
        self.unsynced: set[str] = set()
        self.cut_before_names: list[str] = []

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.dirname(path) in self.unsynced and path.endswith(LOG):
            self.cut_before_names.append(path)
        super().truncate(descriptor, size_bytes)
        self.unsynced.add(path)

    def change_times(self, path: str, mtime_ns: int) -> None:
        super().change_times(path, mtime_ns)
        self.unsynced.add(path)

    def rename(self, path: str, new_path: str) -> None:
        super().rename(path, new_path)
        self.unsynced |= {os.path.dirname(new_path)}

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.unsynced |= {os.path.dirname(path)}

    def sync(self, descriptor: int) -> None:
        self.unsynced.discard(os.readlink(f"/proc/self/fd/{descriptor}"))

    def sync_directory(self, path: str) -> None:
        self.unsynced.discard(path)


def test_truncated_log_is_synced_after_the_names_before_it_and_with_its_time(tmp_path: Path) -> None:
    """btrfs syncs a file without them: after a power failure the log was cut before the steps that precede it, or had the time of the
    truncation, and undo took it for a later change."""
    directory = CASES["truncate"].lay(tmp_path)
    disk = SyncingDisk()
    plan = CASES["truncate"].plan(directory)
    steps = sorted(plan.steps, key=lambda step: isinstance(step, Truncate))
    apply_plan(replace(plan, steps=tuple(steps)), journal_id=ID, disk=disk)
    assert not disk.cut_before_names
    assert not {str(directory), str(directory / LOG)} & disk.unsynced
    (journal,) = journals_in(str(directory))
    undo(journal.location, disk)
    assert not {str(directory), str(directory / LOG)} & disk.unsynced


def test_change_keeps_permissions_and_times(tmp_path: Path) -> None:
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
def test_change_keeps_owners_and_new_files_get_the_directorys(tmp_path: Path) -> None:
    directory = CASES["side files"].lay(tmp_path)
    os.chown(directory, 1234, 4321)
    os.chown(directory / EPOCHS, 1111, 2222)
    carry_out(CASES["side files"], directory)
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in directory.iterdir()}
    assert owners[EPOCHS] == (1111, 2222)
    assert owners["partition.metadata"] == owners[".kseg"] == (1234, 4321)
    (journal,) = journals_in(str(directory))
    assert all(path.stat().st_uid == 1234 for path in (directory / ".kseg").rglob("*") if path.name != EPOCHS)
    undo(journal.location, QUICK)
    assert (directory / EPOCHS).stat().st_uid == 1111


def test_owner_that_cannot_be_set_is_reported(tmp_path: Path) -> None:
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
    """The fields that are not in the tuple. Python 3.13 does not accept a field twice."""
    in_tuple = {"st_mode", "st_ino", "st_dev", "st_nlink", "st_uid", "st_gid", "st_size"}
    names = (name for name in dir(status) if name.startswith("st_") and name not in in_tuple)
    return {name: getattr(status, name) for name in names}


def test_truncation_leaves_a_hard_link_elsewhere_unchanged(tmp_path: Path) -> None:
    case = CASES["hard links"]
    directory = case.lay(tmp_path)
    carry_out(case, directory)
    assert (directory / LOG).read_bytes() == PARTITION[LOG][:25]
    assert (tmp_path / "backup" / LOG).read_bytes() == PARTITION[LOG]


def test_quarantine_without_hard_links_keeps_copies(tmp_path: Path) -> None:
    class NoLinks(QuickDisk):
        def link(self, path: str, new_path: str) -> None:
            raise OSError(errno.EPERM, "Operation not permitted", path)

    for case in (CASES["ring"], CASES["truncate"]):
        directory = case.lay(tmp_path / str(id(case)))
        start = held(directory)
        applied = carry_out(case, directory, disk=NoLinks())
        undo(place(applied), NoLinks())
        assert held(directory) == start and not (directory / ".kseg").exists()


def test_unchanged_files_keep_no_hard_link_in_the_quarantine(tmp_path: Path) -> None:
    """Otherwise the space of a segment would not be freed when a broker deletes it later."""
    directory = CASES["swap"].lay(tmp_path)
    carry_out(CASES["swap"], directory)
    assert {
        path.name: path.stat().st_nlink for path in directory.iterdir() if path.is_file()
    } == dict.fromkeys(held(directory), 1)


def test_two_hard_links_of_one_file_can_be_renamed_to_each_other(tmp_path: Path) -> None:
    case = with_steps(Rename("twin", LOG, "the same file"))
    directory = case.lay(tmp_path)
    os.link(directory / LOG, directory / "twin")
    start = held(directory)
    applied = carry_out(case, directory)
    assert not (directory / "twin").exists() and (directory / LOG).read_bytes() == PARTITION[LOG]
    undo(place(applied), QUICK)
    assert held(directory) == start


# --- what is refused


def _replace(directory: Path) -> None:
    copy = directory / "copy"
    shutil.copy2(directory / LOG, copy)
    copy.replace(directory / LOG)


MEDDLING: dict[str, Callable[[Path], object]] = {
    "grow": lambda directory: (directory / LOG).write_bytes(PARTITION[LOG] + b"more"),
    "touch": lambda directory: os.utime(directory / LOG, ns=(T0_NS + 1, T0_NS + 1)),
    "replace": _replace,
    "add": lambda directory: (directory / f"{77:020}.log").touch(),
    "remove": lambda directory: (directory / EPOCHS).unlink(),
}


@pytest.mark.parametrize("how", MEDDLING)
def test_inputs_that_changed_since_planning_are_refused(how: str, tmp_path: Path) -> None:
    directory = CASES["replace"].lay(tmp_path)
    plan = CASES["replace"].plan(directory)
    MEDDLING[how](directory)
    start = held(directory)
    with pytest.raises(Refused, match="changed since planning"):
        apply_plan(plan, journal_id=ID, disk=QUICK)
    assert held(directory) == start and not (directory / ".kseg").exists()


@pytest.mark.parametrize("how", ["grow", "touch", "add", "remove"])
def test_undo_that_would_discard_later_changes_is_refused(how: str, tmp_path: Path) -> None:
    directory = CASES["swap"].lay(tmp_path)
    applied = carry_out(CASES["swap"], directory)
    MEDDLING[how](directory)
    end = held(directory)
    with pytest.raises(Refused, match="changed since recover was here") as refusal:
        undo(place(applied), QUICK)
    assert refusal.value.exit_status == 4
    assert held(directory) == end


@pytest.mark.parametrize("how", ["grow", "add"])
def test_unfinished_change_with_altered_files_is_left_alone(how: str, tmp_path: Path) -> None:
    directory = CASES["side files"].lay(tmp_path)
    stopped_in_the_middle(CASES["side files"], directory)
    MEDDLING[how](directory)
    now = held(directory)
    for way in (finish, undo):
        (journal,) = half_done(str(directory))
        with pytest.raises(Refused, match="changed since"):
            way(journal.location, QUICK)
        assert held(directory) == now


@pytest.mark.parametrize(
    ("steps", "output"),
    [
        ((Remove("nothing", "why"),), "there is no nothing"),
        ((Truncate(LOG, 1000, "why"),), "fewer than 1000"),
        ((Write("../escaped", (Fresh(b"x"),), "why"),), "is not a file name"),
        ((Rename(LOG, "a/b", "why"),), "is not a file name"),
        ((Write(INDEX, (Fresh(b"x"),), "why"), Truncate(INDEX, 0, "why")), "after it was written"),
    ],
)
def test_contradictory_plan_raises_value_error(steps: tuple[Step, ...], output: str, tmp_path: Path) -> None:
    case = with_steps(*steps)
    directory = case.lay(tmp_path)
    start = held(directory)
    with pytest.raises(ValueError, match=output):
        carry_out(case, directory)
    assert held(directory) == start and not (directory / ".kseg").exists()


def test_directory_in_place_of_a_file_is_not_replaced(tmp_path: Path) -> None:
    case = with_steps(Write("folder", (Fresh(b"x"),), "why"))
    directory = case.lay(tmp_path)
    (directory / "folder").mkdir()
    with pytest.raises(Refused, match="in the way"):
        carry_out(case, directory)
    assert not (directory / ".kseg").exists()


def test_two_changes_of_one_directory_exclude_each_other(tmp_path: Path) -> None:
    directory = CASES["swap"].lay(tmp_path)
    with claimed(str(directory)), pytest.raises(Refused, match="another kseg"):
        carry_out(CASES["swap"], directory)
    applied = carry_out(CASES["swap"], directory)
    with claimed(str(directory)), pytest.raises(Refused, match="another kseg"):
        undo(place(applied), QUICK)


def test_quarantine_that_would_fail_a_broker_is_refused(tmp_path: Path) -> None:
    data = CASES["data directory"].lay(tmp_path)
    directory = CASES["swap"].lay(data)
    for quarantine in (data, directory, data / "mine", data / "mine" / "deeper"):
        with pytest.raises(Refused, match="cannot hold a quarantine"):
            apply_plan(
                CASES["swap"].plan(directory),
                journal_id=ID,
                keeping=Keeping(None, str(quarantine)),
                disk=QUICK,
            )
    assert not (directory / ".kseg").exists()


def test_interrupt_waits_until_a_decided_change_is_done(tmp_path: Path) -> None:
    class Interrupted(QuickDisk):
        def rename(self, path: str, new_path: str) -> None:
            # but not when the journal is moved to its place
            if Path(new_path).parent == directory:
                signal.raise_signal(signal.SIGINT)
            super().rename(path, new_path)

    directory = CASES["ring"].lay(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        carry_out(CASES["ring"], directory, disk=Interrupted())
    assert half_done(str(directory)) == []
    (journal,) = journals_in(str(directory))
    assert journal.line("done") is not None


@pytest.mark.parametrize("name", ["truncate", "data directory"])
def test_directory_mtime_is_restored_before_the_journal_is_removed(name: str, tmp_path: Path) -> None:
    """After a kill between the removal of the journal and the change of the time, nothing would contain the time any more."""
    directory = CASES[name].lay(tmp_path)
    before = directory.stat().st_mtime_ns
    carry_out(CASES[name], directory)
    seen = []

    class Watching(QuickDisk):
        def sync_directory(self, path: str) -> None:
            if not journals_in(str(directory)):
                seen.append(directory.stat().st_mtime_ns)

    undo(journals_in(str(directory))[0].location, Watching())
    assert {*seen} == {before}
