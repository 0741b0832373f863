"""A file system that the kernel remounts read-only during a change or its undo, one whose device fails, one that is full, and one with a
quota."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.failing_renames import failing_renames
from tests.support.trees import tree_state

READ_ONLY = "; the file system is mounted read-only, as a kernel does after an I/O error (`kseg doctor` says what to do)"

GONE = "; the disk fails or is gone: look at the kernel log (`dmesg`) before anything else is written to it"
FULL = "; `kseg retain --purge --apply` deletes what is marked, and `kseg retain --free SIZE` chooses what to delete"
ADVICE = {errno.EROFS: READ_ONLY, errno.EIO: GONE, errno.ENODEV: GONE, errno.ENOSPC: FULL, errno.EDQUOT: FULL}


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    """A data directory with damage in the middle of logs, and checkpoints that change as well."""
    data = shutil.copytree(capture_small / "data", tmp_path / "data")
    for directory in data.glob("metro-*"):
        with min(directory.glob("*.log")).open("r+b") as log:
            log.seek(800)
            log.write(b"X")
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\nmetro-none-0 1\n")
    return data


@pytest.mark.parametrize("error", ADVICE, ids=errno.errorcode.get)
def test_changes_before_a_disk_fails_can_be_undone(
    data: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Each sentence says what to do about the disk, with options that the commands in it have."""
    before = tree_state(data)
    late = (f"{data}/metro-zstd-0/0", f"{data}/re")
    with failing_renames(monkeypatch, error, lambda _, new: new.startswith(late)):
        assert run(["recover", "--apply", "--jobs", "1", str(data)]) == 5
    out, err = capfd.readouterr()
    first = err.splitlines()[0]
    assert first.startswith(f"kseg: cannot change {data}/metro-zstd-0/")
    assert "the change is half done and nothing is lost" in first and first.endswith(
        f" undoes it{ADVICE[error]}"
    )
    assert f"\nwhat was changed is undone by: kseg undo {data}\n" in out
    with failing_renames(monkeypatch, error, lambda _, new: new.startswith(f"{data}/metro-none-0/0")):
        assert run(["undo", str(data)]) == 4
    assert f" continues{ADVICE[error]}" in capfd.readouterr().err
    assert run(["undo", str(data)]) == 0
    assert tree_state(data) == before


def test_failed_undo_names_some_of_many_directories(
    data: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        shutil.copytree(data / "metro-none-0", data / f"more-{number}")
    before = tree_state(data)
    run(["recover", "--apply", "--quiet", str(data)])
    capfd.readouterr()
    with failing_renames(monkeypatch, errno.EROFS, lambda _, new: "/more-" in new):
        assert run(["undo", "--json", str(data)]) == 4
    (error,) = [row for row in map(json.loads, capfd.readouterr().out.splitlines()) if row["type"] == "error"]
    assert READ_ONLY in error["message"]
    _, _, left = error["message"].partition("; not taken back: ")
    assert "more; repeat the command to continue" in left and left.count(str(data)) == 8
    assert run(["undo", str(data)]) == 0
    assert tree_state(data) == before


def test_undo_that_fails_midway_is_completed_by_a_repeat(
    data: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partitions are outside of a data directory, so there is no journal for all of them."""
    paths = [str(shutil.move(data / name, data.parent / name)) for name in ("metro-none-0", "metro-zstd-0")]
    before = [tree_state(Path(path)) for path in paths]
    run(["recover", "--apply", "--quiet", *paths])
    capfd.readouterr()
    with failing_renames(monkeypatch, errno.EROFS, lambda _, new: "/metro-zstd-0/" in new):
        assert run(["undo", *paths]) == 4
    out, err = capfd.readouterr()
    assert f"taken back: {paths[0]}; not taken back: {paths[1]}; repeat the command" in err
    assert "is undone by" not in out + err
    assert run(["undo", *paths]) == 0
    assert [tree_state(Path(path)) for path in paths] == before


def test_exceeded_quota_is_not_reported_as_lack_of_space(
    data: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree_state(data)
    with failing_renames(
        monkeypatch, errno.EDQUOT, lambda _, new: "/metro-zstd-0/kseg-" in new or "/.kseg/" in new
    ):
        assert run(["recover", "--apply", "--jobs", "1", str(data)]) != 0
    sentence = capfd.readouterr().err.splitlines()[0]
    assert "Disk quota exceeded; nothing was changed; --journal DIR and --quarantine DIR put" in sentence
    assert "are free" not in sentence
    assert run(["undo", "--quiet", str(data)]) in (0, 3)
    assert tree_state(data) == before
