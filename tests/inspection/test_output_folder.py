"""A directory of new files is published as a whole, whatever existed there before, and wherever the run is killed."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from kseg.change.apply.disk import Disk
from kseg.inspection.export.output_folder import SUCCESS, Mode, is_taken, new_folder
from kseg.segment.errors import Refused
from tests.support.failing_disks import FailingDisk, QuickDisk, Stopped, StoppingDisk

QUICK = QuickDisk()
NAMES = ("part-a.json", "topic=t/hour=7/part-b.json")


def make(target: Path, mode: Mode, mark: str, disk: Disk = QUICK, names: tuple[str, ...] = NAMES) -> None:
    with new_folder(str(target), mode, mark, disk) as folder:
        for name in (*names, "part-unfinished", "topic=u/part-unfinished"):
            path = Path(folder.path, _named(name, mark))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(mark)
        folder.publish([_named(name, mark) for name in names], is_complete=True)


def _named(name: str, mark: str) -> str:
    return name.replace("part-", f"part-{mark}-")


def seen(target: Path) -> dict[str, str]:
    """The names that a reader sees: those that do not begin with `.` or `_`."""
    found = {}
    for path in sorted(target.rglob("*")):
        name = path.relative_to(target)
        if path.is_file() and not any(step.startswith((".", "_")) for step in name.parts):
            found[str(name)] = path.read_text()
    return found


def whole(*marks: str) -> dict[str, str]:
    return dict(sorted((_named(name, mark), mark) for mark in marks for name in NAMES))


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("is_there", [False, True])
def test_new_output_folder_is_published_completely(mode: Mode, is_there: bool, tmp_path: Path) -> None:
    target = tmp_path / "above" / "out"
    if is_there:
        target.mkdir(parents=True)
    make(target, mode, "new")
    assert seen(target) == whole("new") and (target / SUCCESS).read_bytes() == b""
    assert sorted(path.name for path in target.iterdir()) == [SUCCESS, "part-new-a.json", "topic=t"]
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("mode", list(Mode))
def test_existing_output_is_treated_by_the_save_mode(mode: Mode, tmp_path: Path) -> None:
    target = tmp_path / "out"
    make(target, Mode.ERROR_IF_EXISTS, "old")
    if mode in (Mode.APPEND, Mode.OVERWRITE):
        make(target, mode, "new")
        assert seen(target) == (whole("old", "new") if mode is Mode.APPEND else whole("new"))
    else:
        with pytest.raises(Refused, match="already exists and is not empty"):
            make(target, mode, "new")
        assert seen(target) == whole("old")
    assert list(tmp_path.iterdir()) == [target]
    assert not [path for path in target.iterdir() if path.name.startswith("_kseg")]


def test_output_folder_with_foreign_files_is_never_replaced(tmp_path: Path) -> None:
    for stranger in ("notes.txt", "sub/part-1", "x=1/thesis.tex"):
        target = tmp_path / stranger.replace("/", "-")
        (target / stranger).parent.mkdir(parents=True)
        (target / stranger).write_text("mine")
        with pytest.raises(Refused, match="no export wrote"):
            make(target, Mode.OVERWRITE, "new")
        assert seen(target) == {stranger: "mine"}
    for log in ("_delta_log", "metadata"):
        target = tmp_path / "table" / log
        target.mkdir(parents=True)
        for mode in (Mode.OVERWRITE, Mode.APPEND):
            with pytest.raises(Refused, match="table"):
                make(target.parent, mode, "new")
        target.rmdir()
    file = tmp_path / "file"
    file.write_text("mine")
    assert is_taken(str(file)) and not is_taken(str(tmp_path / "nothing"))
    with pytest.raises(Refused, match="is not a directory"):
        make(file, Mode.OVERWRITE, "new")


def test_output_folder_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    make(tmp_path / "link", Mode.ERROR_IF_EXISTS, "new")
    assert (tmp_path / "link").is_symlink() and seen(tmp_path / "real") == whole("new")


def test_failed_export_publishes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_folder(str(tmp_path / "out"), Mode.APPEND, "x") as folder:
        Path(folder.path, "part-1").write_text("half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [Mode.ERROR_IF_EXISTS, Mode.APPEND, Mode.OVERWRITE])
def test_output_folder_killed_at_any_change_is_old_or_new(mode: Mode, tmp_path: Path) -> None:
    """Readers see the old output or the complete new one. After an append they may see only some of the new files, each of them
    complete."""
    target = tmp_path / "out"
    old = whole("old") if mode is not Mode.ERROR_IF_EXISTS else {}
    for left in itertools.count():
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        if old:
            make(target, Mode.ERROR_IF_EXISTS, "old")
        disk = StoppingDisk(left)
        with suppress(Stopped):
            make(target, mode, "new", disk)
        now = seen(target)
        if mode is Mode.APPEND:
            assert old.items() <= now.items() <= whole("old", "new").items()
        else:
            assert now in (old, whole("new"), {})
            # between the two renames, the complete old output has another name
            if not now and old:
                (aside,) = tmp_path.glob(".out.kseg-*.old")
                assert seen(aside) == old
        if not disk.is_stopped:
            break
        # run again: nothing of the first run is left
        if now != whole("new") or mode is not Mode.ERROR_IF_EXISTS:
            make(target, mode, "again")
            kept = now if mode is Mode.APPEND else {}
            assert seen(target) == dict(sorted((kept | whole("again")).items()))
        else:
            with pytest.raises(Refused):
                make(target, mode, "again")
        assert list(tmp_path.iterdir()) == [target]
        assert not list(target.glob("_kseg*"))
    assert left > 5


@pytest.mark.parametrize("mode", [Mode.ERROR_IF_EXISTS, Mode.APPEND, Mode.OVERWRITE])
def test_failed_publication_leaves_the_output_unchanged(mode: Mode, tmp_path: Path) -> None:
    """Whichever operation fails, including the sync after the last rename, the output is unchanged and the export can be repeated."""
    target = tmp_path / "out"
    old = whole("old") if mode is not Mode.ERROR_IF_EXISTS else {}
    failed = 0
    for left in itertools.count():
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        if old:
            make(target, Mode.ERROR_IF_EXISTS, "old")
        disk = FailingDisk(left, errno.EIO)
        try:
            make(target, mode, "new", disk)
        except Refused as error:
            failed += 1
            assert "Input/output error" in str(error)
            assert seen(target) == old, disk.failed
            make(target, mode, "new")
        assert seen(target) == dict(sorted(((old if mode is Mode.APPEND else {}) | whole("new")).items())), (
            disk.failed
        )
        if not disk.failed:
            break
    assert failed > 5


def test_directory_created_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """An export can take an hour, and another process may create the directory in the meantime."""
    target = tmp_path / "out"
    for number, mode in enumerate(Mode):
        with (
            pytest.raises(Refused, match=r"in the meantime|no export wrote"),
            new_folder(str(target), mode, f"run{number}", QUICK) as folder,
        ):
            Path(folder.path, "part-1").write_text("new")
            target.mkdir()
            (target / "thesis.tex").write_text("mine")
            folder.publish(["part-1"], is_complete=True)
        assert (target / "thesis.tex").read_text() == "mine"
        assert list(tmp_path.iterdir()) == [target]
        shutil.rmtree(target)


class MeddlingDisk(QuickDisk):
    """Another run begins when this one has renamed the old directory and has not yet taken its place."""

    def __init__(self, other: Path) -> None:
        self.other = other

    def rename(self, path: str, new_path: str) -> None:
        super().rename(path, new_path)
        if new_path.endswith(".old"):
            with new_folder(str(self.other), Mode.OVERWRITE, "meddler", QUICK):
                pass


def test_output_set_aside_by_another_run_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "out"
    make(target, Mode.ERROR_IF_EXISTS, "old")
    make(target, Mode.OVERWRITE, "new", MeddlingDisk(target))
    assert seen(target) == whole("new")
    assert list(tmp_path.iterdir()) == [target]


class ClingingDisk(QuickDisk):
    """Directories that were renamed away, or that were written inside the output, cannot be removed."""

    def remove_directory(self, path: str) -> None:
        if ".old" in path or "_kseg-" in path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        super().remove_directory(path)


@pytest.mark.parametrize("mode", [Mode.OVERWRITE, Mode.APPEND])
def test_unremovable_old_output_is_left_for_the_next_run(mode: Mode, tmp_path: Path) -> None:
    target = tmp_path / "out"
    make(target, Mode.ERROR_IF_EXISTS, "old")
    for mark in ("new", "newer"):
        make(target, mode, mark, ClingingDisk())
    assert seen(target) == (whole("newer") if mode is Mode.OVERWRITE else whole("old", "new", "newer"))
    make(target, mode, "last")
    assert [path.name for path in (*tmp_path.iterdir(), *target.glob("_kseg*"))] == ["out"]
