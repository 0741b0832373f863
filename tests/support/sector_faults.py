"""Simulate a disk with bad sectors in this process: replace the system calls that read a file, so that some of its sectors cannot be read.

The file layer uses os.pread (through the page cache, a page at least), os.preadv (straight from the disk, a sector at least) and
MADV_POPULATE_READ; access to a map cannot be simulated in Python (`tests.support.bad_sectors` has real bad sectors). Every request is
counted by sector.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kseg.change.apply.disk import Disk
from kseg.segment import unreadable
from kseg.segment.kernel import bad_pages

PAGE_BYTES = 4096
SECTOR_BYTES = 512
File = tuple[int, int]  # device and inode


@dataclass
class BadSectors:
    """sector_bytes: 512 or 4096, the smallest unit of the disk. is_direct: whether the file system supports direct reads. ends_early: a
    large read returns what precedes the bad page; otherwise it fails as a whole. failures: how often a sector fails before it can be read
    after all; None forever.

    failed: the number of failed reads of each sector (in units of 512 bytes). failed_alone: of those, the reads of the smallest size.
    """

    sector_bytes: int = 512
    is_direct: bool = True
    ends_early: bool = False
    error: int = errno.EIO
    failures: int | None = None
    bad: dict[File, set[int]] = field(default_factory=dict)
    failed: Counter[tuple[File, int]] = field(default_factory=Counter)
    failed_alone: Counter[tuple[File, int]] = field(default_factory=Counter)
    failed_reads: int = 0

    def spoil(self, path: Path, sectors: Iterable[int]) -> None:
        """Make these sectors of 512 bytes unreadable, together with the rest of the disk's larger sectors."""
        status = path.stat()
        per = self.sector_bytes // SECTOR_BYTES
        all_of = {sector // per * per + part for sector in sectors for part in range(per)}
        self.bad[status.st_dev, status.st_ino] = all_of

    @property
    def smallest_bytes(self) -> int:
        """The smallest number of bytes that a read can request."""
        return self.sector_bytes if self.is_direct else PAGE_BYTES

    def lost(self, path: Path) -> list[tuple[int, int]]:
        """(position, length) of the unreadable parts of a file, in order, computed in the simplest way."""
        status = path.stat()
        per = self.smallest_bytes // SECTOR_BYTES
        found: list[tuple[int, int]] = []
        units = sorted({sector // per for sector in self.bad.get((status.st_dev, status.st_ino), ())})
        for unit in units:
            start = unit * self.smallest_bytes
            end = min(start + self.smallest_bytes, status.st_size)
            if start >= end:
                continue
            if found and sum(found[-1]) == start:
                start = found.pop()[0]
            found.append((start, end - start))
        return found

    def content(self, path: Path) -> bytes:
        """The content of a file, with zeros where it cannot be read."""
        with path.open("rb") as file:
            data = bytearray(file.read())
        for start, length in self.lost(path):
            data[start : start + length] = bytes(length)
        return bytes(data)

    # --- system calls

    def _file(self, descriptor: int) -> File | None:
        status = os.fstat(descriptor)
        file = status.st_dev, status.st_ino
        return file if file in self.bad else None

    def _first_bad(self, file: File, start: int, stop: int) -> int | None:
        """The first bad sector between two positions."""
        sectors = range(start // SECTOR_BYTES, -(-stop // SECTOR_BYTES))
        return next((at for at in sectors if at in self.bad[file] and self._fails(file, at)), None)

    def _fails(self, file: File, sector: int) -> bool:
        return self.failures is None or self.failed[file, sector] < self.failures

    def _fail(self, file: File, start: int, stop: int, *, is_smallest: bool) -> OSError:
        self.failed_reads += 1
        for sector in range(start // SECTOR_BYTES, -(-stop // SECTOR_BYTES)):
            if sector in self.bad[file]:
                self.failed[file, sector] += 1
                if is_smallest:
                    self.failed_alone[file, sector] += 1
        return OSError(self.error, os.strerror(self.error))

    def pages(self, descriptor: int, position: int, count: int) -> int:
        """Read through the page cache; returns the number of bytes. Raises OSError."""
        file = self._file(descriptor)
        if file is None:
            return count
        count = min(count, os.fstat(descriptor).st_size - position)
        if count <= 0:
            return 0
        start = position // PAGE_BYTES * PAGE_BYTES
        stop = -(-(position + count) // PAGE_BYTES) * PAGE_BYTES
        bad = self._first_bad(file, start, stop)
        if bad is None:
            return count
        page = bad * SECTOR_BYTES // PAGE_BYTES * PAGE_BYTES
        if self.ends_early and page > position:
            return page - position
        is_smallest = stop - start == PAGE_BYTES == self.smallest_bytes
        if self.ends_early:
            stop = page + PAGE_BYTES
        raise self._fail(file, start, stop, is_smallest=is_smallest)

    def sectors(self, descriptor: int, position: int, count: int) -> None:
        """Read directly from the disk. Raises OSError."""
        file = self._file(descriptor)
        if file is None:
            return
        if not self.is_direct or position % self.sector_bytes or count % self.sector_bytes:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if self._first_bad(file, position, position + count) is not None:
            raise self._fail(file, position, position + count, is_smallest=count == self.sector_bytes)


def bad_sectors(patch: pytest.MonkeyPatch, disk: BadSectors) -> BadSectors:
    """While active, this process reads from such a disk."""
    pread, copy_file_range, populate = os.pread, os.copy_file_range, unreadable.populate

    def read(descriptor: int, count: int, position: int) -> bytes:
        return pread(descriptor, disk.pages(descriptor, position, count), position)

    def read_directly(descriptor: int, buffers: Any, position: int, *_more: Any) -> int:
        disk.sectors(descriptor, position, sum(memoryview(buffer).nbytes for buffer in buffers))
        (buffer,) = buffers
        flags = int(fcntl.fcntl(descriptor, fcntl.F_GETFL))
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        # the real file system may not support direct reads
        data = pread(descriptor, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def copied(source: int, target: int, count: int, position: int, *rest: Any) -> int:
        return copy_file_range(source, target, disk.pages(source, position, count), position, *rest)

    def populated(view: Any, position: int, count: int) -> None:
        try:
            short = disk.pages(view._descriptor, position, count) < count
        except OSError:
            short = True
        if short:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        populate(view, position, count)

    patch.setattr(os, "pread", read)
    patch.setattr(os, "preadv", read_directly)
    patch.setattr(os, "copy_file_range", copied)
    patch.setattr(unreadable, "populate", populated)
    patch.setattr(bad_pages, "watch", lambda *_: -1)
    patch.setattr(Disk, "clone", lambda *_: False)
    bad_pages.forget()
    return disk


def units(disk: BadSectors, path: Path) -> Iterator[int]:
    """The bad sectors of a file, in units of the smallest possible request."""
    for start, length in disk.lost(path):
        yield from range(start // disk.smallest_bytes, -(-(start + length) // disk.smallest_bytes))
