"""Files on a disk with bad sectors: everything readable is read, with as few requests to the disk as possible."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from kseg.segment import unreadable
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile, read_small
from kseg.segment.kernel import bad_pages
from kseg.segment.probe import read_end
from tests.support.sector_faults import SECTOR_BYTES, BadSectors, bad_sectors, units

CASES = int(os.environ.get("KSEG_BAD_SECTORS", "60"))
SEED = int(os.environ.get("KSEG_BAD_SECTORS_SEED", "1"))
SIZES = (1, 511, 512, 513, 4095, 4096, 4097, 20_000, 32_768, 32_769, 70_001, 300_000, 1_048_576, 2_500_000)
# by reads of one MiB, of 64 KiB, of a page and of a sector, and by the attempt to map it
MOST_READS_OF_A_SECTOR = 5


def spoilt(lots: random.Random, size_bytes: int) -> list[int]:
    """Some sectors: possibly the first and the (partial) last one, and others, single or consecutive."""
    last = (size_bytes - 1) // SECTOR_BYTES
    found = {sector for sector in (0, last) if lots.random() < 0.3}
    for _ in range(lots.randrange(5)):
        start = lots.randrange(last + 1)
        found.update(range(start, min(last + 1, start + lots.choice((1, 1, 2, 9, 40)))))
    return sorted(found or {lots.randrange(last + 1)})


def areas_of(path: Path) -> list[tuple[int, int]]:
    return [(area.position, area.length) for area in unreadable.areas(unreadable.identity_of(path.stat()))]


@pytest.mark.parametrize("is_direct", [True, False])
@pytest.mark.parametrize("sector_bytes", [512, 4096])
@pytest.mark.parametrize("ends_early", [True, False])
def test_everything_but_the_bad_sectors_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_direct: bool, sector_bytes: int, ends_early: bool
) -> None:
    lots = random.Random(SEED)
    disk = bad_sectors(monkeypatch, BadSectors(sector_bytes, is_direct, ends_early))
    for number in range(CASES // 4):
        bad_pages.forget()
        disk.failed_alone.clear()
        disk.failed.clear()
        path = tmp_path / str(number)
        size = lots.choice(SIZES)
        path.write_bytes(lots.randbytes(size))
        sectors = spoilt(lots, size)
        disk.spoil(path, sectors)
        reported = f"KSEG_BAD_SECTORS_SEED={SEED}, case {number}: {size} bytes, sectors {sectors}"
        expected, lost = disk.content(path), disk.lost(path)
        for _ in range(2):
            with MappedFile(path) as file:
                assert file.view == expected, reported
                assert [(area.position, area.length) for area in file.unreadable()] == lost, reported
        assert read_small(path) == expected, reported
        assert read_end(path, 700) == (size, expected[-700:]), reported
        assert areas_of(path) == lost, reported
        # no later access, of whatever kind, has read a bad sector again
        assert disk.failed_alone, reported
        assert set(disk.failed_alone.values()) == {1}, reported
        assert max(disk.failed.values()) <= MOST_READS_OF_A_SECTOR, reported
        status = path.stat()
        per = disk.smallest_bytes // SECTOR_BYTES
        asked = {sector // per for device, inode, sector in ((*file, at) for file, at in disk.failed_alone)}
        assert asked == set(units(disk, path)) and status.st_size == size, reported


def test_sector_readable_after_retries_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = bad_sectors(monkeypatch, BadSectors(failures=2))
    path = tmp_path / "file"
    path.write_bytes(os.urandom(30_000))
    disk.spoil(path, [7, 30])
    assert read_small(path) == path.read_bytes()
    assert areas_of(path) == []
    assert disk.failed_alone == {} and disk.failed


def test_file_restored_with_its_old_mtime_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cp -p` from a backup may reuse the inode of the damaged file."""
    disk = bad_sectors(monkeypatch, BadSectors())
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5000)
    before = path.stat()
    disk.spoil(path, [3])
    assert read_small(path) == disk.content(path)
    assert areas_of(path) == disk.lost(path) != []
    disk.bad.clear()
    path.write_bytes(b"y" * 5000)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert areas_of(path) == []
    assert read_small(path) == b"y" * 5000


def test_large_healthy_part_is_read_with_few_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = bad_sectors(monkeypatch, BadSectors())
    path = tmp_path / "file"
    path.write_bytes(bytes(5 << 20))
    disk.spoil(path, [4001])
    calls: list[tuple[int, int]] = []
    pread = os.pread

    def noted(descriptor: int, count: int, position: int) -> bytes:
        calls.append((count, position))
        return pread(descriptor, count, position)

    monkeypatch.setattr(os, "pread", noted)
    with MappedFile(path) as file:
        assert [(area.position, area.length) for area in file.unreadable()] == [(4001 * 512, 512)]
    # reads of a MiB, of 64 KiB in the bad MiB, and of a page in the bad 64 KiB
    assert len(calls) == 5 + 16 + 16
    assert disk.failed_reads <= MOST_READS_OF_A_SECTOR


@pytest.mark.parametrize("error", [errno.ESTALE, errno.ENOTCONN])
def test_error_of_the_file_itself_is_not_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    disk = bad_sectors(monkeypatch, BadSectors(error=error))
    for size in (3000, 300_000):
        path = tmp_path / str(size)
        path.write_bytes(bytes(size))
        disk.spoil(path, range(size // 512))
        disk.failed_reads = 0
        with pytest.raises(UnreadableInput, match=os.strerror(error)):
            MappedFile(path)
        assert disk.failed_reads <= 2


def test_file_with_more_bad_areas_than_can_be_recorded_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If not all bad areas of a file can be recorded, it is not read at all, rather than with zeros that nobody notices."""
    disk = bad_sectors(monkeypatch, BadSectors())
    path = tmp_path / "file"
    path.write_bytes(b"x" * (6 << 20))
    disk.spoil(path, range(0, 2 * 5000, 2))
    with pytest.raises(UnreadableInput, match="too many"):
        MappedFile(path)
    other = tmp_path / "healthy"
    other.write_bytes(b"y" * 5000)
    assert read_small(other) == b"y" * 5000
    bad_pages.forget()
