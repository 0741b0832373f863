"""`kseg doctor` on a full or read-only file system, and on one without inodes."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from fixtures.diseases import bad_crc
from kseg.cli.main import run
from tests.support.broker_dirs import broker_dir
from tests.support.command_lines import Capfd
from tests.support.command_rows import of_type
from tests.support.doctor_helpers import NOW, commands, doctor

FIRST, ACTIVE = f"{0:020d}.log", f"{297:020d}.log"


def damaged_with_a_leftover(tmp_path: Path) -> Path:
    data = broker_dir(tmp_path / "data", 1, 2)
    bad_crc(data / "orders.00-1" / FIRST)
    (data / "orders.00-0" / f"{0:020}.log.deleted").write_bytes(bytes(100))
    return data


def test_first_step_on_a_full_disk_frees_space(
    tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = damaged_with_a_leftover(tmp_path)
    real = os.statvfs

    def full(path: str) -> os.statvfs_result:
        values = list(real(path))
        values[4] = 0
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", full)
    rows = doctor(capfd, data, status=1)
    assert rows[0]["free_bytes"] == 0
    assert shlex.split(commands(rows)[0]) == ["kseg", "retain", "--purge", "--apply", str(data)]
    (data / "orders.00-0" / f"{0:020}.log.deleted").unlink()
    first = shlex.split(commands(doctor(capfd, data, status=1))[0])
    assert first == ["kseg", "retain", "--free", "64MiB", str(data)]
    assert run([*first[1:], "--quiet", *NOW]) in (0, 1)


def test_first_step_names_a_read_only_mount(
    tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """doctor used to report that a broker starts, and to advise an in-place repair."""
    data = broker_dir(tmp_path / "data", 1, 2)
    real = os.statvfs

    def read_only(path: str) -> os.statvfs_result:
        values = list(real(path))
        values[8] |= os.ST_RDONLY
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", read_only)
    rows = doctor(capfd, data, status=1)
    assert rows[0]["read_only"]
    (start,) = of_type(rows, "broker-start")
    assert (start["outcome"], start["exception"]) == ("does-not-start", "FileSystemException")
    assert start["read_only"] == [str(data)] and start["once_writable"]["outcome"] == "starts"
    assert [command.split()[0] for command in commands(rows)] == ["dmesg", "mount"]
    bad_crc(data / "orders.00-1" / FIRST)
    reported = commands(doctor(capfd, data, status=1))
    assert reported[1] == f"kseg recover {data} --output repaired" and reported[2].startswith(
        "mount -o remount,rw /"
    )
    assert run(["verify", str(data)]) == 1
    out = capfd.readouterr().out
    assert (
        "does not start: FileSystemException" in out
        and "is mounted read-only; once a broker can write there:" in out
    )


def test_first_step_without_inodes_deletes_files(
    tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = damaged_with_a_leftover(tmp_path)
    real = os.statvfs

    def few(path: str) -> os.statvfs_result:
        values = list(real(path))
        values[2:8] = [1 << 20, 1 << 20, 1 << 20, 1000, 9, 9]
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", few)
    first = doctor(capfd, data, status=1)
    (step, *_) = of_type(first, "step")
    assert "inode" in step["why"] and "disk is full" not in step["why"]
    assert shlex.split(step["command"]) == ["kseg", "retain", "--purge", "--apply", str(data)]
    assert run(["doctor", str(data)]) == 1
    assert "and 9 more files can be created" in capfd.readouterr().out
