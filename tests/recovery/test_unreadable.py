"""Unreadable bytes on a real failing disk: every command skips and reports them, and causes no further damage."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support.bad_sectors import DyingDisk, dying_disk
from tests.support.forked_programs import run_kseg as kseg

Done = subprocess.CompletedProcess[str]
LOG = "00000000000000000000.log"
# big-0 belongs to a topic that the capture's metadata log does not contain
OF_TOPICS = {"becomes-stray", "partition-metadata-corrupt"}


def rows(done: Done, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [row for row in found if row["type"] == kind]


def bad_areas(done: Done) -> set[tuple[str, int, int]]:
    """(partition/file, position, length) of the areas that could not be read."""
    return {
        ("/".join(Path(row["path"]).parts[-2:]), row["position"], row["length"])
        for row in rows(done, "finding")
        if row["id"] == "unreadable"
    }


def contents(directory: Path, readable: Sequence[str]) -> dict[str, str]:
    return {name: sha256((directory / name).read_bytes()).hexdigest() for name in readable}


@pytest.fixture(scope="module")
def large_partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4,000 records in 45 batches: a log of 167 blocks, which is mapped, with its indexes."""
    home = tmp_path_factory.mktemp("large")
    lines = home / "records.jsonl"
    with lines.open("w") as file:
        for at in range(4000):
            row = {
                "type": "record",
                "key": f"k{at}",
                "value": f"v{at}-" + "x" * 150,
                "timestamp": 1700000000000 + at,
            }
            file.write(json.dumps(row) + "\n")
    topic_id = "Pm0fXkDvQ0yTn7Qq3uXJ8A"
    done = kseg("append", "--apply", "--from", lines, "--topic-id", topic_id, home / "big-0")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(home / "big-0" / ".kseg")
    return home / "big-0"


@pytest.fixture(params=[4096])
def disk(
    request: pytest.FixtureRequest, tmp_path: Path, capture_small: Path, large_partition: Path
) -> Iterator[DyingDisk]:
    """A complete data directory, and a partition whose log is mapped, on a disk that does not fail yet."""
    with dying_disk(tmp_path, request.param) as disk:
        shutil.copytree(capture_small / "data", disk.root / "data")
        shutil.copytree(large_partition, disk.root / "data" / "big-0")
        (disk.root / "data" / ".kafka_cleanshutdown").unlink()
        yield disk


def spoil(disk: DyingDisk, blocks: Mapping[str, Sequence[int]]) -> set[tuple[str, int, int]]:
    """Make blocks of 4096 bytes of files in `data` unreadable; returns what should be reported about them."""
    per = 4096 // disk.block_bytes
    sizes = {name: (disk.root / "data" / name).stat().st_size for name in blocks}
    disk.spoil(
        {
            f"data/{name}": [
                block * per + part
                for block in numbers
                for part in range(per)
                if (block * per + part) * disk.block_bytes < sizes[name]
            ]
            for name, numbers in blocks.items()
        }
    )
    return {
        (name, block * 4096, min(4096, sizes[name] - block * 4096))
        for name, numbers in blocks.items()
        for block in numbers
    }


SPOILED = {
    f"big-0/{LOG}": [0, 60, 166],
    f"fares-0/{LOG}": [1],
    f"metro-zstd-0/{LOG}": [1],
    f"metro-gzip-0/{LOG}": [0],
    "metro-lz4-0/00000000000000000000.index": [0],
    "gates-append-0/partition.metadata": [0],
    "recovery-point-offset-checkpoint": [0],
}


@pytest.mark.evidence("unreadable-bytes")
@pytest.mark.parametrize(("disk", "jobs"), [(4096, 1), (1024, 3)], indirect=["disk"])
def test_verify_accounts_for_unreadable_bytes_and_continues(disk: DyingDisk, jobs: int) -> None:
    expected = spoil(disk, SPOILED)
    before = kseg("verify", "--json", "--jobs", jobs, disk.root / "data")
    assert before.returncode == 1
    assert f"{len(expected)} bad areas" in before.stderr
    named = {(name if "/" in name else f"data/{name}", at, many) for name, at, many in expected}
    assert bad_areas(before) == named
    for row in rows(before, "finding"):
        if row["id"] == "unreadable":
            assert (row["severity"], row["error"], row["errno"]) == ("error", "Input/output error", 5)
        assert row["id"] not in ("torn-tail", "zero-tail", "bad-crc", "false-clean-shutdown")
    for row in rows(before, "verified"):
        parts = row["bytes_valid"] + row["bytes_damaged"] + row["bytes_padding"]
        assert parts == row["bytes_total"]
        assert row["bytes_unreadable"] <= row["bytes_damaged"]
    (summary,) = rows(before, "summary")
    assert summary["bytes_unreadable"] == sum(many for _, _, many in expected)
    assert summary["targets_failed"] == 0
    # 1,305 records of the capture, and most of the 4,000
    assert summary["records"] > 4000


def test_commands_read_everything_around_bad_sectors(disk: DyingDisk) -> None:
    spoil(disk, {f"big-0/{LOG}": [0, 60], "big-0/00000000000000000000.index": [0]})
    big = disk.root / "data" / "big-0"
    dumped = kseg("dump", "--json", "--deep-iteration", big / LOG)
    assert dumped.returncode == 1
    offsets = [row["offset"] for row in rows(dumped, "record")]
    lost = sorted(set(range(4000)) - set(offsets))
    # blocks 0 and 60 are in different batches, of 91 and 89 records
    spans = {
        (row["position"], row["length"]) for row in rows(dumped, "finding") if row["id"] == "unreadable-batch"
    }
    assert len(spans) == 2 and len(lost) < 200
    # the index is read as well, because it helps to judge the headers around lost batches
    index = ("big-0/00000000000000000000.index", 0, 352)
    assert bad_areas(dumped) == {(f"big-0/{LOG}", 0, 4096), (f"big-0/{LOG}", 60 * 4096, 4096), index}
    text = kseg("dump", big / LOG)
    assert text.returncode == 1
    assert "unreadable-batch" in text.stderr and "bad-crc" not in text.stderr
    found = kseg("lookup", "--json", "--offset", 3000, big)
    assert [row["offset"] for row in rows(found, "lookup")] == [3000]
    timed = kseg("lookup", "--json", "--timestamp", 1700000002500, big)
    assert [row["offset"] for row in rows(timed, "lookup")] == [2500]
    read = kseg("read", "--json", "--offset", 2000, "--max-bytes", "64KiB", big)
    assert 2000 in [row["offset"] for row in rows(read, "record")]
    listed = kseg("list", "--json", big)
    assert listed.returncode == 1
    assert [row["records"] for row in rows(listed, "partition")] == [len(offsets)]
    out = disk.root.parent / "out"
    exported = kseg("export", "--to", "csv", "--output", out, big)
    assert exported.returncode == 1, exported.stderr
    assert "cannot be read: Input/output error" in exported.stderr


@pytest.mark.evidence("unreadable-partition")
def test_recover_refuses_unreadable_bytes_without_accept_unreadable(disk: DyingDisk) -> None:
    spoil(disk, SPOILED)
    data = disk.root / "data"
    sound = ["big-0/partition.metadata", "big-0/00000000000000000000.timeindex", f"metro-lz4-0/{LOG}"]
    kept = contents(data, sound)
    sizes = {name: (data / name).stat().st_size for name in SPOILED}
    planned = kseg("recover", data / "big-0")
    assert planned.returncode == 1
    assert "--accept-unreadable" in planned.stdout
    refused = kseg("recover", "--apply", data / "big-0")
    assert refused.returncode == 4
    assert "cannot be read (Input/output error), so nothing was changed" in refused.stderr
    whole = kseg("recover", "--apply", data)
    assert whole.returncode == 5
    assert contents(data, sound) == kept
    assert {name: (data / name).stat().st_size for name in SPOILED} == sizes
    assert not (data / ".kafka_cleanshutdown").exists()
    accepted = kseg("recover", "--apply", "--accept-unreadable", "--json", data)
    # a topic id is lost, and its partition is still in doubt
    assert accepted.returncode == 1
    assert "bug" not in accepted.stderr
    after = kseg("verify", "--json", data)
    # a user who knows the topic's id can write this file again (--topic-id)
    assert bad_areas(after) <= {("gates-append-0/partition.metadata", 0, 43)}
    assert not [
        row
        for row in rows(after, "finding")
        if row["severity"] == "error"
        and row["id"] not in OF_TOPICS
        and not row["path"].endswith("/partition.metadata")
    ]
    (big,) = [row for row in rows(accepted, "result") if row.get("partition") == "big-0"]
    # the last block and its content are lost
    assert big["log_end_offset"] >= 3928
    assert sum(part["length"] for part in big["removed"]) < 5 * 16000


def test_recover_output_copies_everything_readable(disk: DyingDisk) -> None:
    spoil(disk, SPOILED)
    out = disk.root.parent / "copy"
    done = kseg("recover", "--output", out, disk.root / "data")
    assert done.returncode in (0, 1), (done.returncode, done.stderr)
    checked = kseg("verify", "--json", out)
    assert bad_areas(checked) == set()
    assert {row["id"] for row in rows(checked, "finding") if row["severity"] == "error"} <= OF_TOPICS
    (summary,) = rows(checked, "summary")
    assert summary["records"] > 4900


@pytest.mark.parametrize(
    "command",
    [
        ("compact", "--cleanup-policy", "compact"),
        ("retain", "--retention-ms", "1", "--cleanup-policy", "delete"),
    ],
)
def test_other_changing_commands_refuse_unreadable_bytes(disk: DyingDisk, command: tuple[str, ...]) -> None:
    spoil(disk, {f"metro-zstd-0/{LOG}": [0], "metro-zstd-0/00000000000000000000.timeindex": [0]})
    partition = disk.root / "data" / "metro-zstd-0"
    names = sorted(path.name for path in partition.iterdir())
    done = kseg(*command, "--apply", partition)
    assert done.returncode == 4, (done.stdout, done.stderr)
    assert sorted(path.name for path in partition.iterdir() if path.name != ".kseg") == names


def test_append_refuses_unreadable_files(disk: DyingDisk, tmp_path: Path) -> None:
    spoil(disk, {"metro-zstd-0/leader-epoch-checkpoint": [0]})
    lines = tmp_path / "one.jsonl"
    lines.write_text('{"type":"record","key":"a","value":"b"}\n')
    partition = disk.root / "data" / "metro-zstd-0"
    done = kseg("append", "--apply", "--from", lines, partition)
    assert done.returncode in (3, 4), (done.stdout, done.stderr)
    assert not (partition / ".kseg").exists()


def test_read_raw_continues_around_a_bad_block(disk: DyingDisk) -> None:
    log = disk.root / "data" / "big-0" / LOG
    expected = bytearray(log.read_bytes()[: 400 << 10])
    expected[60 * 4096 : 61 * 4096] = bytes(4096)
    spoil(disk, {f"big-0/{LOG}": [60]})
    words = ["read", "--raw", "--no-grow", "--offset", "0", "--max-bytes", "400KiB", str(log.parent)]
    done = subprocess.run([sys.executable, "-P", "-m", "kseg", *words], capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout == expected
    assert b"4,096 bytes at position 245760 cannot be read: Input/output error" in done.stderr


CUT_OFF = """
import subprocess, sys
from kseg.segment.files import MappedFile

with MappedFile(sys.argv[1]) as file:
    assert file.view[0] == 120
    subprocess.run(["truncate", "-s", "8192", sys.argv[1]], check=True)
    assert not any(file.view[8192:]) and set(file.view[:8192]) == {120}
    print(file.unreadable())
"""


def test_file_truncated_while_mapped_is_unreadable_there(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 200_000)
    done = subprocess.run(
        [sys.executable, "-P", "-c", CUT_OFF, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert "position=8192, length=191808, error=0" in done.stdout


HANDED_OVER = """
import os, sys
from kseg.change.apply.append_files import LogFile
from kseg.change.apply.scratch_file import ScratchFile
from kseg.segment.errors import Refused
from kseg.segment.files import MappedFile
from kseg.segment.new_files import NewFile

folder = sys.argv[1]
for kind in (lambda: NewFile(folder + "/new"), lambda: LogFile(folder + "/log", is_new=True), lambda: ScratchFile(folder)):
    with open(folder + "/evidence", "wb") as evidence:
        evidence.write(b"x" * 200_000)
    with MappedFile(folder + "/evidence") as file:
        os.truncate(folder + "/evidence", 8192)
        new = kind()
        new.write(file.view[:8192])
        try:
            new.write(file.view[4096:100_000])
        except Refused as error:
            print(error)
        assert file.unreadable()[0][:2] == (8192, 191_808)
        print(new.size_bytes)
        new.close()
"""


def test_unreadable_bytes_are_not_copied_to_a_file(tmp_path: Path) -> None:
    """The system call returns EFAULT where a program that touches the page gets SIGBUS."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", HANDED_OVER, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    why = "some of its bytes cannot be read"
    output = done.stdout.splitlines()
    assert output[::2] == [f"cannot write {tmp_path}{name}: {why}" for name in ("/new", "/log", "")]
    # a write to a log that grows is done completely or not at all
    assert output[3] == "8192"
    assert (tmp_path / "log").read_bytes() == b"x" * 8192


STRANGE_SIGNALS = """
import faulthandler, mmap, os, resource, signal, sys
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))  # two handlers that call each other do not end
from kseg.segment.files import MappedFile

with open(sys.argv[1], "wb") as file:
    file.write(b"x" * 200_000)
MappedFile(sys.argv[1]).close()
if sys.argv[3] == "watched":
    faulthandler.enable()
with MappedFile(sys.argv[1]) as file:
    if sys.argv[2] == "cut":
        os.truncate(sys.argv[1], 4096)
        assert file.view[100_000] == 0
        assert file.unreadable()[0][:2] == (4096, 195_904)
    elif sys.argv[2] == "sent":
        os.kill(os.getpid(), signal.SIGBUS)
    else:
        other = os.open(sys.argv[1] + "-other", os.O_RDWR | os.O_CREAT)
        os.truncate(other, 200_000)
        view = mmap.mmap(other, 200_000, access=mmap.ACCESS_READ)
        os.truncate(other, 0)
        assert view[100_000] == 0
print("alive")
"""


def _meets(kind: str, other_handler: str, file: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-P", "-c", STRANGE_SIGNALS, str(file), kind, other_handler]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("other_handler", ["none", "watched"])
@pytest.mark.parametrize("kind", ["sent", "touched"])
def test_sigbus_outside_a_mapped_file_keeps_its_effect(tmp_path: Path, kind: str, other_handler: str) -> None:
    done = _meets(kind, other_handler, tmp_path / "file")
    assert done.returncode == -signal.SIGBUS, (done.returncode, done.stdout, done.stderr)
    assert "alive" not in done.stdout
    assert done.stderr.count("Fatal Python error: Bus error") == (other_handler == "watched")


@pytest.mark.parametrize("other_handler", ["none", "watched"])
def test_later_sigbus_handler_does_not_get_faults_of_mapped_files(tmp_path: Path, other_handler: str) -> None:
    """Test runners and notebooks enable faulthandler before or after they import kseg."""
    done = _meets("cut", other_handler, tmp_path / "file")
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
