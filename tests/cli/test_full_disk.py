"""Freeing a full file system: `retain --purge --apply` needs no free byte, and other changes say how much space they need."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support import trees
from tests.support.archives import nothing_attached, tar_of
from tests.support.change_cases import CHANGINGS, NOW, OLD_NS, RETAIN
from tests.support.command_lines import Capfd
from tests.support.compact_helpers import Topic
from tests.support.failing_disks import held
from tests.support.mounts import done_or_skipped, mounted

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")

SIZE = 8 << 20
MARKED_BYTES = 1 << 20


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    words = ["-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs"]
    if request.param == "ext4":
        image = tmp_path / "image"
        image.write_bytes(b"")
        os.truncate(image, SIZE)
        done_or_skipped(["mkfs.ext4", "-q", "-b", "4096", "-m", "0", str(image)])
        words = ["-o", "loop", str(image)]
    with mounted(tmp_path / "disk", *words) as place:
        yield place


def _fill(path: Path) -> None:
    with path.open("wb", 0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(512))


def test_retain_purge_needs_no_free_byte(disk: Path, capture_small: Path) -> None:
    data = disk / "data"
    RETAIN.lay(capture_small, data)
    # then there is nothing to mark
    (data / "log-start-offset-checkpoint").unlink()
    marked = sorted(data.glob("*/*.deleted"))
    with marked[-1].open("ab") as file:
        file.write(bytes(MARKED_BYTES))
    os.utime(marked[-1], ns=(OLD_NS, OLD_NS))
    _fill_up(disk)
    words = ["retain", "--purge", "--apply", "--now", NOW, "--quiet", "--jobs", "1"]
    assert run([*words, *map(str, sorted({path.parent for path in marked}))]) in (0, 5)
    assert not [path for path in marked if path.exists()]
    assert os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize >= MARKED_BYTES - 64 * 1024


def _fill_up(disk: Path) -> None:
    """Leave no free block. When ext4 syncs, it frees deleted blocks and the reserves of delayed allocations."""
    for round_ in range(10):
        subprocess.run(["sync", "-f", str(disk)], check=True)
        if round_ and os.statvfs(disk).f_bavail == 0:
            return
        _fill(disk / f"others {round_}")
    pytest.fail("the file system keeps giving back blocks")


def _free_bytes(disk: Path) -> int:
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize


def test_retain_with_limits_and_purge_purges_first(disk: Path, capture_small: Path) -> None:
    """Purging files that are marked already frees the space that marking more files requires."""
    data = disk / "data"
    RETAIN.lay(capture_small, data)
    for directory in data.glob("*-[01]"):
        marked = directory / f"{80:020}.log.deleted"
        marked.write_bytes(bytes(MARKED_BYTES // 8))
        os.utime(marked, ns=(OLD_NS, OLD_NS))
    _fill_up(disk)
    assert run([*RETAIN.words, "--apply", "--quiet", "--jobs", "1", str(data)]) == 0
    assert not list(data.glob("*/*.deleted"))
    assert not (data / "orders-0" / f"{0:020}.log").exists() and list((data / "fresh-0").glob("*.log"))
    assert _free_bytes(disk) >= MARKED_BYTES // 8
    assert run(["verify", "--quiet", str(data)]) == 0


@pytest.mark.parametrize(
    "words", [["--free", "200KiB"], ["--retention-ms", "1d", "--file-delete-delay-ms", "0"]]
)
def test_retain_free_purge_needs_no_free_byte_and_no_marks(
    disk: Path, words: list[str], capfd: Capfd
) -> None:
    data = disk / "data"
    data.mkdir()
    for name in ("orders-0", "orders-1"):
        topic = Topic(data, name=name)
        for number in range(40):
            topic.send((number, "x" * 9000))
            topic.roll()
        topic.close()
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    (data / "log-start-offset-checkpoint").write_text("0\n0\n")
    (data / ".lock").touch()
    before = len(list(data.glob("*/*.log")))
    _fill_up(disk)
    command = [
        "retain",
        "--cleanup-policy",
        "delete",
        *words,
        "--purge",
        "--now",
        NOW,
        "--jobs",
        "1",
        str(data),
    ]
    assert run([*command, "--apply"]) == 0
    output = capfd.readouterr()
    assert "No space" not in output.err
    assert not list(data.glob("*/*.deleted"))
    gone = before - len(list(data.glob("*/*.log")))
    assert 10 <= gone < before and _free_bytes(disk) >= 200 * 1024
    assert run(["verify", "--quiet", str(data)]) == 0


@pytest.mark.parametrize("command", list(CHANGINGS))
def test_change_without_room_says_how_much_it_needs_and_changes_nothing(
    disk: Path, command: str, capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    data = disk / "data"
    changing = CHANGINGS[command]
    changing.lay(capture_small, data)
    words = [word for word in changing.words if word != "--purge"]
    _fill_up(disk)
    with trees.unchanged(data):
        assert run([*words, "--json", "--jobs", "1", str(data)]) in (1, 4, 5)
        rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        rooms = [room for row in rows for room in row.get("room") or ()]
        short = [room for room in rooms if not room["fits"]]
        assert all(room["free"] == 0 < room["needed"] for room in short)
        assert run([*words, "--apply", "--jobs", "1", str(data)]) in (4, 5)
        output = capfd.readouterr().err
        assert re.search(r"[1-9][\d,]* bytes (or more )?are needed .* and 0 are free", output), output
        assert "kseg retain --purge --apply" in output and "--free SIZE" in output
        assert command == "compact" or "--journal DIR" in output


@pytest.mark.parametrize("spare", [0, 3, 40])
@pytest.mark.parametrize("command", ["recover", "compact", "retain"])
def test_change_without_inodes_says_so_and_is_atomic(
    command: str, spare: int, capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """The message used to say how many bytes were needed, although millions were free."""
    changing = CHANGINGS[command]
    changing.lay(capture_small, tmp_path / "data")
    files = sum(len([folder, *names]) for folder, _, names in os.walk(tmp_path / "data")) + 1
    with mounted(
        tmp_path / "disk", "-t", "tmpfs", "-o", f"nr_inodes={files + spare},size={SIZE}", "tmpfs"
    ) as disk:
        data = Path(shutil.copytree(tmp_path / "data", disk / "data"))
        assert os.statvfs(disk).f_favail == spare
        words = [word for word in changing.words if word != "--purge"]
        with trees.unchanged(data):
            assert run([*words, "--json", "--jobs", "1", str(data)]) in (1, 5)
            rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
            short = [room for row in rows for room in row.get("room") or () if not room["fits"]]
            assert all(room["free_files"] == spare < room["needed_files"] for room in short)
            assert short or spare == 40 or command == "compact"
            status = run([*words, "--apply", "--jobs", "1", str(data)])
            output = capfd.readouterr().err
            assert status in (0, 1, 4, 5)
            if spare < 40:
                assert re.search(
                    r"inodes for \d+ new files? or more are needed .*, and \d+ are free", output
                ), output
            assert not re.search(r"\d bytes (or more )?are needed", output), output
            assert run(["undo", str(data)]) in (0, 3)


def test_retain_marks_with_a_journal_on_another_disk(disk: Path, capture_small: Path, tmp_path: Path) -> None:
    """A log whose leader epochs do not change needs no new blocks: only renames and an empty file."""
    data = disk / "data"
    RETAIN.lay(capture_small, data)
    for path in (
        *data.glob("*/leader-epoch-checkpoint"),
        *data.glob("*/*.deleted"),
        data / "meta.properties",
    ):
        path.unlink()
    partition = data / "orders-0"
    start = held(partition)
    words = [
        "retain",
        "--cleanup-policy",
        "delete",
        "--retention-bytes",
        "100",
        "--now",
        NOW,
        "--quiet",
        "--apply",
    ]
    _fill_up(disk)
    assert run([*words, str(partition)]) == 4
    assert held(partition) == start
    assert run([*words, "--journal", str(tmp_path / "away"), str(partition)]) in (0, 5)
    assert list(partition.glob("*.deleted")), "marked with 0 bytes free"
    assert run(["undo", str(partition)]) == 0
    assert held(partition) == start and os.statvfs(disk).f_bavail == 0


def test_full_disk_of_the_journal_is_not_one_of_the_logs(disk: Path, data: Path, capfd: Capfd) -> None:
    """Deleting logs, which used to be recommended, makes no room for the journal."""
    log = max((data / "fares-0").glob("*.log"))
    os.truncate(log, log.stat().st_size - 1)
    _fill_up(disk)
    with trees.unchanged(data):
        assert run(["recover", "--apply", "--journal", str(disk / "away"), str(data / "fares-0")]) == 4
    output = capfd.readouterr().err
    assert (
        f"needed on the file system of {disk}/away, and 0 are free; nothing was changed; make room" in output
    )
    assert "kseg retain" not in output


@pytest.mark.parametrize("layout", ["log dir", "new", "0.7"])
def test_append_without_room_is_refused_before_it_writes(
    disk: Path, tmp_path: Path, layout: str, capfd: Capfd
) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps({"value": "x" * 1000 + str(number)}) + "\n" for number in range(300)))
    few = tmp_path / "few.jsonl"
    few.write_text('{"value":"x"}\n')
    target = disk / "data" / "new-0"
    target.parent.mkdir()
    words = ["append", "--apply", "--quiet", "--start-offset", "0"]
    if layout == "log dir":
        (disk / "data" / "meta.properties").write_text("version=1\n")
    if layout == "0.7":
        words += ["--format", "0.7"]
    if layout != "new":
        assert run([*words, "--from", str(few), str(target)]) == 0
    _fill(disk / "others")
    os.truncate(disk / "others", (disk / "others").stat().st_size - (200 << 10))
    with trees.unchanged(disk):
        assert run([*words, "--from", str(lines), str(target)]) == 4
    output = capfd.readouterr().err
    assert re.search(
        r": [0-9,]+ bytes are needed on the file system of .*, and [0-9,]+ are free; nothing was changed; ",
        output,
    )
    assert "--journal DIR" in output and "kseg retain --free SIZE" in output
    assert run([*words, "--from", str(few), str(target)]) == 0


def test_holes_are_read_on_a_full_tmpfs(disk: Path, capture_small: Path, capfd: Capfd) -> None:
    """Reading a hole through a mapping allocates nothing, even on tmpfs, so the answers are the same as with free space."""
    place = Path(shutil.copytree(capture_small / "data" / "metro-none-0", disk / "metro-none-0"))
    log = place / f"{0:020}.log"
    whole = log.stat().st_size
    # zeros that were allocated and never written
    os.truncate(log, whole + (64 << 20))
    words = [["verify"], ["dump"], ["list"], ["recover"], ["lookup", "--offset", "3"]]

    def reported() -> list[tuple[int, list[str]]]:
        found = []
        for each in words:
            capfd.readouterr()
            status = run([*each, "--json", str(place)])
            rows = capfd.readouterr().out.splitlines()
            # without the remaining space, which differs
            found.append((status, [row for row in rows if '"room"' not in row]))
        return found

    before = reported()
    _fill_up(disk)
    assert reported() == before
    assert not any('"unreadable"' in row for _, rows in before for row in rows)


def test_unpacking_an_archive_member_without_room_is_reported(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capfd
) -> None:
    """This is reported before a byte is copied, or when the space is used up in the meantime. The log is not called damaged, and nothing is
    left behind."""
    log = tmp_path / "large-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(bytes(2 * SIZE))
    archive = tar_of(tmp_path / "large-0", tmp_path / "b.tar")
    monkeypatch.setattr("tempfile.tempdir", str(disk))
    before = sorted(disk.iterdir())
    for is_known in (True, False):
        if not is_known:
            monkeypatch.setattr("kseg.segment.storage.local_copy._check_room", lambda size_bytes: None)
        capfd.readouterr()
        with nothing_attached():
            assert run(["verify", f"{archive}/large-0"]) == 3
        reported = capfd.readouterr()
        assert f"cannot read {archive}/large-0/{log.name}: a local copy takes " in reported.err
        assert (
            f", and {disk} has " in reported.err and "set TMPDIR to a folder with more room" in reported.err
        )
        assert "DAMAGED" not in reported.out
        assert sorted(disk.iterdir()) == before
