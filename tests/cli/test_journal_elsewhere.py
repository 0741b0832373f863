"""`--journal DIR` and `--quarantine DIR` for every command that changes files, on complete data directories."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kseg.change.apply.disk import Disk
from kseg.cli.main import run
from tests.support.change_cases import CHANGINGS, NOW
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.failing_disks import Held, held
from tests.support.mounts import done_or_skipped, mounted
from tests.support.trees import tree_state


def all_held(data: Path) -> dict[str, dict[str, Held]]:
    return {path.name: held(path) for path in (data, *sorted(data.iterdir())) if path.is_dir()}


@pytest.mark.evidence("kseg-journal-elsewhere")
@pytest.mark.parametrize("command", list(CHANGINGS))
def test_run_with_journal_elsewhere_is_undone(
    command: str, capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    data, away = tmp_path / "data", tmp_path / "away"
    changing = CHANGINGS[command]
    changing.lay(capture_small, data)
    words = [word for word in changing.words if word != "--purge"]
    elsewhere = ["--journal", str(away / "journals"), "--quarantine", str(away / "kept")]
    start = all_held(data)
    assert run([*words, *elsewhere, "--json", str(data)]) == 1
    assert all_held(data) == start and not away.exists()
    rows = rows_of(capfd, *words, *elsewhere, "--apply", data, status=0)
    journals = [row["journal"] for row in rows if row["type"] == "result" and row["journal"]]
    assert journals and all(Path(path).is_relative_to(away / "journals") for path in journals)
    assert not list(data.rglob(".kseg")) and not list(data.rglob("kseg-journal-*.jsonl"))
    assert all_held(data) != start
    assert run(["verify", "--quiet", str(data)]) in (0, 1)
    # as on another machine, without that disk
    (away / "journals").rename(away / "hidden")
    assert run(["undo", str(data)]) == 4
    assert "is not there" in capfd.readouterr().err
    (away / "hidden").rename(away / "journals")
    assert run(["undo", str(data)]) == 0
    assert all_held(data) == start
    assert not list((away / "journals").iterdir()) and not list((away / "kept").glob("*/*/*"))


@pytest.mark.parametrize("at", [0, 3, 7])
@pytest.mark.parametrize("command", list(CHANGINGS))
def test_run_whose_journals_are_unmounted_meanwhile_is_undone(
    command: str, at: int, capture_small: Path, tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of a run wrote its journals to the mount point: then they were out of reach once the disk was back, the others before."""
    data, away = tmp_path / "data", tmp_path / "away"
    changing = CHANGINGS[command]
    changing.lay(capture_small, data)
    start = all_held(data)
    words = [*(word for word in changing.words if word != "--purge"), "--jobs", "1", "--apply"]
    with mounted_at(away) as mount:
        unmounting(at, away, monkeypatch)
        status = run([*words, "--journal", str(away), "--quarantine", str(away), str(data)])
        err = capfd.readouterr().err
        assert status in (4, 5) and "mount " in err, err
        assert not list(away.iterdir()), "it is the mount point"
        is_half_done = "half done" in err
        assert run(["doctor", "--now", NOW, str(data)]) in (0, 1)
        assert ("1. Mount again what " in capfd.readouterr().out) == is_half_done
        if all_held(data) != start:
            assert run(["undo", str(data)]) == 4
            assert "mount what it lies on" in capfd.readouterr().err
        done_or_skipped(mount)
        run(["undo", str(data)])
        assert all_held(data) == start


def test_append_whose_journal_is_unmounted_meanwhile_says_so(
    capture_small: Path, tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to say only that nothing was changed by its undo, which failed as well."""
    data, away, lines = tmp_path / "data", tmp_path / "away", tmp_path / "lines.jsonl"
    shutil.copytree(capture_small / "data", data)
    lines.write_text('{"type":"record","value":"one"}\n' * 3)
    start = all_held(data)
    words = ["append", "--from", str(lines), "--now", NOW, "--apply", "--quiet", str(data / "fares-0")]
    with mounted_at(away) as mount:
        unmounting(4, away, monkeypatch)
        assert run([*words, "--journal", str(away), "--quarantine", str(away)]) == 4
        err = capfd.readouterr().err
        assert (
            err.startswith("kseg: cannot write ")
            and "No such file or directory; the append is half done" in err
        )
        assert "could not be taken back: " in err and "mount what it lies on, then `kseg undo" in err
        done_or_skipped(mount)
        assert run(["undo", str(data)]) == 0
        assert all_held(data) == start


@contextmanager
def mounted_at(away: Path) -> Iterator[list[str]]:
    """A file system at a new directory that keeps its files when it is unmounted; yields the command that mounts it again."""
    away.mkdir()
    with mounted(away.parent / "disk", "-t", "tmpfs", "tmpfs") as disk:
        mount = ["mount", "--bind", str(disk), str(away)]
        done_or_skipped(mount)
        try:
            yield mount
        finally:
            subprocess.run(["umount", str(away)], check=False, capture_output=True)


def unmounting(at: int, away: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unmount `away` before a directory is created or a file renamed after `at` others."""
    done = list[str]()
    for name in ("make_directory", "rename"):
        original = getattr(Disk, name)

        def method(self: Disk, *words: str, original: Callable[..., None] = original) -> None:
            if len(done) == at:
                subprocess.run(["umount", "--lazy", str(away)], check=True)
            done.append(words[-1])
            original(self, *words)

        monkeypatch.setattr(Disk, name, method)


def test_verify_does_not_report_ksegs_own_files_in_a_partition(
    capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """`verify` used to report pointers, files kept for undo, and the journal of a killed run as not being files of Kafka."""
    data, partition = tmp_path / "data", tmp_path / "data" / "metro-none-0"
    changing = CHANGINGS["recover"]
    changing.lay(capture_small, data)
    assert run([*changing.words, "--journal", str(tmp_path / "away"), "--apply", str(partition)]) in (0, 1)
    assert len([path for path in partition.iterdir() if path.name.startswith("kseg-journal-")]) > 1
    capfd.readouterr()
    run(["verify", "--json", str(partition)])
    out = capfd.readouterr().out
    assert "kseg-journal-" not in out
    (partition / "kseg-journal-20260101T120000Z-1f2e3d4c.jsonl").write_text("{}\n")
    run(["verify", "--json", str(partition)])
    rows = [
        row for row in map(json.loads, capfd.readouterr().out.splitlines()) if "kseg-journal-" in str(row)
    ]
    (left,) = [row for row in rows if row["id"] == "leftover-tmp"]
    assert "killed before it changed anything" in left["message"]
    assert not [row for row in rows if row["id"] == "unknown-file"]


@pytest.mark.parametrize("is_new", [False, True])
def test_append_with_journal_elsewhere_is_undone(
    is_new: bool, capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    data, away = tmp_path / "data", tmp_path / "away"
    shutil.copytree(capture_small / "data", data)
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"type":"record","value":"one"}\n' * 3)
    partition = data / ("new-0" if is_new else "fares-0")
    start = all_held(data)
    words = ["append", "--from", str(lines), "--now", NOW, "--apply", "--json", str(partition)]
    assert run([*words, "--journal", str(away), "--quarantine", str(away)]) == 0
    (row,) = (json.loads(line) for line in capfd.readouterr().out.splitlines())
    assert Path(row["journal"]).is_relative_to(away)
    assert all_held(data) != start
    assert run(["undo", row["journal"]]) == 0
    assert all_held(data) == start and not list(away.iterdir())


def test_older_change_is_not_undone_instead_of_one_without_its_journal(
    capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """The first of two appends to different partitions used to be undone while the journal of the second was not mounted."""
    data, away, line = tmp_path / "data", tmp_path / "away", tmp_path / "line.jsonl"
    shutil.copytree(capture_small / "data", data)
    line.write_text('{"type":"record","value":"one"}\n')
    start = all_held(data)
    append = ["append", "--from", str(line), "--now", NOW, "--apply", "--quiet"]
    assert run([*append, str(data / "fares-0")]) == 0
    between = all_held(data)
    assert run([*append, "--journal", str(away), str(data / "metro-none-0")]) == 0
    both = all_held(data)
    away.rename(tmp_path / "hidden")
    for paths in ([str(data)], [str(data), str(data / "metro-none-0")]):
        assert run(["undo", *paths]) == 4
        err = capfd.readouterr().err
        assert "mount what it lies on" in err and all_held(data) == both
    advice = re.search(r"without it, the change before is undone with: kseg (undo \S+)$", err, re.MULTILINE)
    assert advice
    (tmp_path / "hidden").rename(away)
    assert run(["undo", str(data)]) == 0
    assert all_held(data) == between
    assert run(advice[1].split()) == 0
    assert all_held(data) == start


def test_impossible_quarantine_is_refused_and_leaves_nothing_behind(
    capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    data, file = tmp_path / "data", tmp_path / "file"
    file.touch()
    CHANGINGS["recover"].lay(capture_small, data)
    start = all_held(data)
    words = [*CHANGINGS["recover"].words, "--apply", "--quarantine", str(file / "kept"), str(data)]
    assert run(words) == 4
    output = capfd.readouterr().err
    assert (
        f"{file / 'kept'} cannot hold a quarantine: {file} is not a directory; nothing was changed" in output
    )
    assert run(["undo", str(data)]) == 0
    assert all_held(data) == start


def test_longest_topic_name_fits_into_a_quarantine_directory(capture_small: Path, tmp_path: Path) -> None:
    """A topic name may have up to 249 characters, so the directory name with a suffix may be longer than a file system allows."""
    partition = tmp_path / "data" / f"{'t' * 249}-12345"
    shutil.copytree(capture_small / "data" / "metro-none-0", partition)
    with max(partition.glob("*.log")).open("ab") as log:
        log.write(b"torn")
    before = tree_state(partition)
    beside = ("--quarantine", str(tmp_path / "kept"), "--journal", str(tmp_path / "kept"))
    assert run(["recover", "--apply", "--quiet", *beside, str(partition)]) in (0, 1)
    assert tree_state(partition) != before
    assert run(["undo", "--quiet", str(partition)]) == 0
    assert tree_state(partition) == before
