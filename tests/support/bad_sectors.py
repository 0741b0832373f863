"""A disk with real bad sectors: ext4 on a loop device whose backing file ends before the device does.

Chosen blocks of files are placed beyond that end (debugfs), so reading them gives EIO, and touching them in a map SIGBUS; all others are
good. Needs root and loop devices. Without them the tests are skipped, but fail if CI is set and they run as root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

FILE_SYSTEM_BYTES = 64 << 20
KEPT_BYTES = 48 << 20


@cache
def why_not() -> str:
    """Why such a disk cannot be made here; empty if it can be."""
    missing = [
        tool
        for tool in ("losetup", "mkfs.ext4", "debugfs", "dumpe2fs", "e2fsck", "mount")
        if shutil.which(tool) is None
    ]
    if missing:
        return f"{', '.join(missing)} not found"
    if os.geteuid() != 0:
        return "only root can set up loop devices"
    done = subprocess.run(["losetup", "-f"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no loop device: {done.stderr.strip()}"


def require() -> None:
    """Skip the test if such a disk cannot be made, except for root in CI."""
    reason = why_not()
    if reason and not (os.environ.get("CI") and os.geteuid() == 0):
        pytest.skip(f"no disk with bad sectors: {reason}")
    assert not reason, reason


class DyingDisk:
    """root: its mount point."""

    def __init__(self, place: Path, block_bytes: int) -> None:
        self.root = place / "disk"
        self.block_bytes = block_bytes
        self._image = place / "image"
        self._device = ""
        self._is_mounted = False
        self.root.mkdir()
        with self._image.open("wb") as image:
            image.truncate(FILE_SYSTEM_BYTES)
        options = "^has_journal,^metadata_csum,extent"
        _run("mkfs.ext4", "-q", "-b", str(block_bytes), "-O", options, str(self._image))
        self._device = _run("losetup", "-f", "--show", str(self._image)).strip()
        self._mount()

    def spoil(self, blocks: Mapping[str, Sequence[int]]) -> None:
        """Make these blocks of the files (paths below `root`) unreadable."""
        self.unmount()
        bad = KEPT_BYTES // self.block_bytes + 1000
        orders = []
        for path, numbers in blocks.items():
            orders.append(f'extent_open "{path}"')
            # from the end, because the extent tree grows beside block 0
            for number in sorted(numbers, reverse=True):
                orders += [f"goto_block {number}", f"set_bmap {number} {bad}"]
                bad += 1
            orders.append("extent_close")
        subprocess.run(
            ["debugfs", "-w", "-f", "-", self._device],
            input="\n".join(orders),
            capture_output=True,
            text=True,
            check=True,
        )
        # make the bitmaps agree with the moved blocks, so that the file system can still allocate
        subprocess.run(["e2fsck", "-fy", self._device], capture_output=True, check=False)
        self._take_free_blocks_behind_the_end()
        os.truncate(self._image, KEPT_BYTES)
        self._mount()

    def _take_free_blocks_behind_the_end(self) -> None:
        """Allocate the free blocks beyond the end of the image. A file that got one of them would extend the image when it is written and
        make the bad blocks readable."""
        end = KEPT_BYTES // self.block_bytes
        free = [
            block
            for line in _run("dumpe2fs", self._device).splitlines()
            if line.startswith("  Free blocks: ")
            for first, _, last in (each.partition("-") for each in line.split(": ")[1].split(", ") if each)
            for block in range(max(end, int(first)), int(last or first) + 1)
        ]
        taken = self._image.with_name("taken")
        taken.write_text("\n".join(map(str, free)))
        subprocess.run(["e2fsck", "-fy", "-l", str(taken), self._device], capture_output=True, check=False)

    def make_read_only(self) -> None:
        """Remount read-only, as the kernel does after it finds errors in a file system."""
        _run("mount", "-o", "remount,ro", str(self.root))

    def _mount(self) -> None:
        _run("mount", self._device, str(self.root))
        self._is_mounted = True

    def unmount(self) -> None:
        if self._is_mounted:
            _run("umount", str(self.root))
            self._is_mounted = False

    def close(self) -> None:
        """Remove everything. Files that somebody else has open stay readable, and the device goes with the last of them: a broker that
        failed to start leaves its maps to the garbage collector."""
        try:
            if self._is_mounted:
                _run("umount", "--lazy", str(self.root))
                self._is_mounted = False
        finally:
            if self._device:
                _run("losetup", "-d", self._device)
                self._device = ""


@contextmanager
def dying_disk(place: Path, block_bytes: int = 4096) -> Iterator[DyingDisk]:
    """Skips the test if it cannot be made."""
    require()
    disk = DyingDisk(place, block_bytes)
    try:
        yield disk
    finally:
        disk.close()


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout
