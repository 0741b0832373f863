"""The journal of a stream of writes: after a kill at any point, the change can be undone or completed."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import pytest

from kseg.change.apply.append_journal import Guard
from kseg.change.apply.disk import Disk
from kseg.change.apply.executor import finish
from kseg.change.apply.file_operations import write_all
from kseg.change.apply.journal_scan import journals_in
from kseg.change.apply.undo import undo
from kseg.change.apply.unfinished import complete_unfinished, half_done, half_done_findings, refuse_half_done
from kseg.segment.errors import KsegError, Refused
from tests.support.failing_disks import FailingDisk, Held, QuickDisk, held, outlives, survives
from tests.support.plan_cases import EPOCHS, INDEX, LOG, LOG_9, PARTITION, Case

ID = "20260101T000000Z-00000001"
QUICK = QuickDisk()
CASE = Case(PARTITION, lambda _directory: ())
ROLLED = f"{50:020}.log"


def add(disk: Disk, path: Path, data: bytes) -> None:
    descriptor = disk.open_to_write(str(path))
    write_all(disk, descriptor, data, path.stat().st_size)
    disk.close(descriptor)


def write_stream(directory: Path, disk: Disk) -> None:
    """As append does: a log grows, an index is rewritten, a segment is rolled, a checkpoint is replaced."""
    with Guard(
        str(directory),
        "append",
        journal_id=ID,
        grows=(LOG_9,),
        replaces=(INDEX, EPOCHS),
        creates=(f"{EPOCHS}.tmp",),
        disk=disk,
    ) as guard:
        add(disk, directory / LOG_9, b"a batch")
        descriptor = disk.open_to_write(str(directory / INDEX))
        disk.truncate(descriptor, 3)
        write_all(disk, descriptor, b"new entries", 3)
        disk.close(descriptor)
        guard.will_create(ROLLED)
        disk.close(disk.create(str(directory / ROLLED)))
        add(disk, directory / ROLLED, b"another batch")
        disk.close(disk.create(str(directory / f"{EPOCHS}.tmp")))
        add(disk, directory / f"{EPOCHS}.tmp", b"new epochs")
        disk.rename(str(directory / f"{EPOCHS}.tmp"), str(directory / EPOCHS))
        guard.done()


def roll_back(directory: Path, disk: Disk = QUICK) -> None:
    settle_or_undo = [journal for journal in journals_in(str(directory), disk) if Path(journal.path).exists()]
    for journal in settle_or_undo:
        undo(journal.location, disk)
    complete_unfinished(str(directory), "append", disk)


def assert_as_found(directory: Path, start: dict[str, Held]) -> None:
    assert held(directory) == start
    assert not [path for path in directory.rglob("*") if path.is_file() and path.parent != directory]


def test_completed_stream_can_be_undone(tmp_path: Path) -> None:
    directory = CASE.lay(tmp_path)
    start = held(directory)
    write_stream(directory, QUICK)
    end = held(directory)
    assert end[LOG_9].content == PARTITION[LOG_9] + b"a batch" and end[EPOCHS].content == b"new epochs"
    assert half_done(str(directory)) == []
    roll_back(directory)
    assert_as_found(directory, start)


@pytest.mark.slow
def test_killed_stream_can_be_undone(tmp_path: Path) -> None:
    for number in itertools.count():
        directory = CASE.lay(tmp_path / str(number))
        start = held(directory)
        survived = survives(lambda disk, at=directory: write_stream(at, disk), number)  # type: ignore[misc]
        if held(directory) != start:
            (journal,) = journals_in(str(directory))
            assert journal.is_half_done != (journal.line("done") is not None)
        roll_back(directory)
        assert_as_found(directory, start)
        if survived:
            break
    assert number > 30


def test_killed_undo_of_a_stream_can_be_completed(tmp_path: Path) -> None:
    for number in itertools.count():
        directory = CASE.lay(tmp_path / str(number))
        start = held(directory)
        write_stream(directory, QUICK)
        survived = outlives(lambda disk, at=directory: roll_back(at, disk), number)  # type: ignore[misc]
        roll_back(directory)
        assert_as_found(directory, start)
        if survived:
            break
    assert number > 10


def test_killed_stream_can_be_finished_and_still_undone(tmp_path: Path) -> None:
    for number in itertools.count():
        directory = CASE.lay(tmp_path / str(number))
        start = held(directory)
        survived = outlives(lambda disk, at=directory: write_stream(at, disk), number)  # type: ignore[misc]
        now = held(directory)
        if half_done(str(directory)):
            with pytest.raises(Refused, match=r"append was interrupted.*keeps it"):
                complete_unfinished(str(directory), "append", QUICK)
            finish(half_done(str(directory))[0].location, QUICK)
            assert half_done(str(directory)) == []
        assert held(directory) == now
        roll_back(directory)
        assert_as_found(directory, start)
        if survived:
            break


def test_system_error_in_a_stream_is_one_sentence(tmp_path: Path) -> None:
    for number in itertools.count():
        directory = CASE.lay(tmp_path / str(number))
        start = held(directory)
        disk = FailingDisk(number, (errno.ENOSPC, errno.EIO)[number % 2])
        try:
            write_stream(directory, disk)
        except KsegError as error:
            assert "\n" not in str(error)
        except OSError as error:  # from the stream's own writes, not from the journaling
            assert disk.failed.endswith(str(error.filename))
        roll_back(directory)
        assert_as_found(directory, start)
        if not disk.failed:
            break


def test_hard_linked_file_is_not_extended(tmp_path: Path) -> None:
    directory = CASE.lay(tmp_path)
    os.link(directory / LOG_9, tmp_path / "backup")
    start = held(directory)
    with pytest.raises(Refused, match="a second name elsewhere"):
        write_stream(directory, QUICK)
    assert_as_found(directory, start)


@pytest.mark.parametrize("name", [LOG, LOG_9, EPOCHS, f"{99:020}.log"])
def test_undo_of_a_stream_refuses_to_discard_later_changes(name: str, tmp_path: Path) -> None:
    directory = CASE.lay(tmp_path)
    write_stream(directory, QUICK)
    with (directory / name).open("ab") as file:
        file.write(b"since")
    end = held(directory)
    with pytest.raises(Refused, match="changed since append was here"):
        roll_back(directory)
    assert held(directory) == end


def test_stream_excludes_other_changes_of_the_directory(tmp_path: Path) -> None:
    directory = CASE.lay(tmp_path)
    with Guard(str(directory), "append", journal_id=ID, grows=(LOG_9,), disk=QUICK) as guard:
        for ask in (lambda: write_stream(directory, QUICK), lambda: undo(guard.location, QUICK)):
            with pytest.raises(Refused, match="another kseg"):
                ask()
        with pytest.raises(Refused, match="at this moment"):
            refuse_half_done(str(directory), QUICK)
        (finding,) = half_done_findings(str(directory), QUICK)
        assert finding.message == f"another kseg is changing {directory} at this moment"
        guard.roll_back()
    assert not (directory / ".kseg").exists()
