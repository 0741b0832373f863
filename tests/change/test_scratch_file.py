"""Files that are written before a plan is applied: without a name until they are staged, and then like any other piece."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kseg.change.apply.copy import write_copy
from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.executor import apply_plan
from kseg.change.apply.scratch_file import ScratchFile
from kseg.change.plan.content import Fresh, Made, Piece, content_of
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Plan, Write, step_row, step_words
from kseg.segment.crc import crc32c
from kseg.segment.errors import Refused

OLD = b"old bytes of a log" * 100
NEW = b"new" + OLD[18:54]


class NamelessDisk(Disk):
    """A file system that cannot give a name to an unnamed file."""

    def give_name(self, descriptor: int, path: str) -> bool:
        return False


def partition(tmp_path: Path) -> Path:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / "00000000000000000000.log").write_bytes(OLD)
    return folder


def scratch(folder: Path) -> ScratchFile:
    file = ScratchFile(str(folder))
    log = folder / "00000000000000000000.log"
    file.write(b"new")
    file.copy(str(log), memoryview(OLD), 18, 36)
    return file


def plan_of(folder: Path, *pieces: Piece) -> Plan:
    write = Write("00000000000000000000.log", content_of(pieces), "a test")
    return Plan(command="compact", directory=str(folder), inputs=inputs_of(str(folder)), steps=(write,))


def test_scratch_file_has_no_name_until_it_is_staged(tmp_path: Path) -> None:
    folder = partition(tmp_path)
    with scratch(folder) as file:
        assert os.listdir(folder) == ["00000000000000000000.log"]
        assert (bytes(file.view), file.size_bytes, file.crc) == (NEW, len(NEW), crc32c(NEW))
        assert Path(file.path).read_bytes() == NEW
    assert os.listdir(folder) == ["00000000000000000000.log"]


@pytest.mark.parametrize("disk", [Disk(), NamelessDisk()])
def test_scratch_file_is_applied_by_a_plan(tmp_path: Path, disk: Disk) -> None:
    folder = partition(tmp_path)
    with scratch(folder) as file:
        apply_plan(plan_of(folder, file.piece), journal_id="a-run", disk=disk)
    assert (folder / "00000000000000000000.log").read_bytes() == NEW


@pytest.mark.parametrize("disk", [Disk(), NamelessDisk()])
def test_scratch_file_is_written_to_a_copy(tmp_path: Path, disk: Disk) -> None:
    folder = partition(tmp_path)
    with scratch(folder) as file:
        write_copy(plan_of(folder, file.piece), str(tmp_path / "copy"), disk=disk)
    assert (tmp_path / "copy" / "00000000000000000000.log").read_bytes() == NEW
    assert (folder / "00000000000000000000.log").read_bytes() == OLD


def test_scratch_file_can_be_part_of_a_file(tmp_path: Path) -> None:
    folder = partition(tmp_path)
    with scratch(folder) as file:
        apply_plan(plan_of(folder, Fresh(b"head"), file.piece, Fresh(b"tail")), journal_id="a-run")
    assert (folder / "00000000000000000000.log").read_bytes() == b"head" + NEW + b"tail"


def test_scratch_file_is_shown_by_its_length(tmp_path: Path) -> None:
    folder = partition(tmp_path)
    with scratch(folder) as file:
        step = plan_of(folder, file.piece).steps[0]
        assert step_words(step) == f"write 00000000000000000000.log ({len(NEW)} bytes): a test"
        assert step_row(step)["pieces"] == [{"fresh": len(NEW)}]
        assert file.piece == Made(-1, len(NEW), crc32c(NEW))


def test_empty_scratch_file(tmp_path: Path) -> None:
    with ScratchFile(None) as file:
        assert (bytes(file.view), file.size_bytes, file.crc) == (b"", 0, 0)


def test_scratch_file_is_copied_from_another(tmp_path: Path) -> None:
    with ScratchFile(str(tmp_path)) as first, ScratchFile(str(tmp_path)) as second:
        first.write(NEW)
        second.copy(first.path, first.view, 3, 9)
        assert bytes(second.view) == NEW[3:12]
        assert second.crc == crc32c(NEW[3:12])
        second.release()
        assert bytes(first.view) == NEW, "it is open still"


def test_named_scratch_file_is_found_by_another_process(tmp_path: Path) -> None:
    with ScratchFile(str(tmp_path), name="12-3") as file:
        file.write(b"made ")
        file.write(b"elsewhere")
        size_bytes, crc = file.size_bytes, file.crc
        file.leave()
    assert (tmp_path / "12-3").read_bytes() == b"made elsewhere"
    with pytest.raises(Refused):
        ScratchFile(str(tmp_path), name="12-3")
    found = ScratchFile.found(str(tmp_path / "12-3"), size_bytes, crc)
    assert bytes(found.view) == b"made elsewhere"
    assert DISK.give_name(found.piece.descriptor, str(tmp_path / "final"))
    found.close()
    assert [path.name for path in tmp_path.iterdir()] == ["final"]
    assert (tmp_path / "final").read_bytes() == b"made elsewhere"


def test_abandoned_named_scratch_file_is_removed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), ScratchFile(str(tmp_path), name="12-3") as file:
        file.write(b"half of")
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_incomplete_named_scratch_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        ScratchFile.found(str(tmp_path / "12-3"), 4, 0)
    (tmp_path / "12-3").write_bytes(b"123")
    with pytest.raises(Refused, match="another size"):
        ScratchFile.found(str(tmp_path / "12-3"), 4, 0)
