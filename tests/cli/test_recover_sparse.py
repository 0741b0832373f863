"""A segment whose end was never written is a hole on disk, which is neither read nor filled."""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.cli.main import run
from kseg.segment.crc import crc32c, crc32c_of_zeros
from kseg.segment.files import MappedFile
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of

LAST = "00000000000000000297"
HOLE_BYTES = 3 << 30


def reading_seconds(count: int) -> float:
    """Processor time that Python's zlib needs for this number of zeros, on this machine under its present load."""
    piece, started = bytes(1 << 20), time.process_time()
    for _ in range(256):
        zlib.crc32(piece)
    return (time.process_time() - started) * (count / (256 << 20))


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    made = healthy.partition(tmp_path / "metro-0")
    log = made / f"{LAST}.log"
    os.truncate(log, log.stat().st_size + HOLE_BYTES)
    if log.stat().st_blocks * 512 > HOLE_BYTES:
        pytest.skip("this file system knows no holes")
    return made


def test_trailing_hole_is_truncated_and_restored_as_a_hole(partition: Path, capfd: Capfd) -> None:
    log = partition / f"{LAST}.log"
    before, started = log.stat(), time.process_time()
    rows = rows_of(capfd, "recover", "--apply", partition, status=0)
    result = next(row for row in rows if row["type"] == "result")
    assert result["removed"][0]["finding"] == "zero-tail" and result["removed"][0]["length"] == HOLE_BYTES
    assert log.stat().st_size == before.st_size - HOLE_BYTES
    (tail,) = Path(result["quarantine"]).glob("*.from-*")
    assert tail.stat().st_size == HOLE_BYTES
    assert tail.stat().st_blocks * 512 < 1 << 20
    assert run(["undo", result["journal"]]) == 0
    assert (log.stat().st_size, log.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert log.stat().st_blocks * 512 < 1 << 20
    assert time.process_time() - started < 2 * reading_seconds(HOLE_BYTES)


@pytest.mark.parametrize("command", ["verify", "recover"])
def test_holes_take_no_reading_time(partition: Path, command: str, capfd: Capfd) -> None:
    start = time.process_time()
    assert run([command, str(partition)]) == 1
    assert time.process_time() - start < reading_seconds(HOLE_BYTES)
    assert (
        f"zero-tail; bytes {(partition / f'{LAST}.log').stat().st_size - HOLE_BYTES}-"
        in capfd.readouterr().out
    )


def test_data_end_of_a_sparse_file_is_found(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100_000)
    os.truncate(file, 50 << 20)
    with MappedFile(file) as opened:
        assert 100_000 <= opened.data_end <= 50 << 20
        assert not any(opened.view[opened.data_end :])


@pytest.mark.parametrize("count", [0, 1, 7, 4096, 100_003])
@pytest.mark.parametrize("before", [b"", b"\x00", b"some bytes"])
def test_crc32c_of_zeros_equals_that_of_the_bytes(before: bytes, count: int) -> None:
    assert crc32c_of_zeros(count, crc32c(before)) == crc32c(before + bytes(count))
