# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Unreadable pages of mapped files, and the list of those that were met; `in_c.faults` describes the mechanism.

An area, as returned by `area`: device, inode, ctime (ns), position, length, errno (0: the file was truncated), and the
number of reads that failed there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment.kernel import buffer_access
from kseg.segment.kernel.in_c import faults

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable

AREA_WIDTH = 7


def start() -> int:
    """Prepare for files to be watched and noted, also by processes that will be forked; 0 where that cannot be."""
    return faults.start()


def watch(view: Readable, descriptor: int, block: int, device: int, inode: int, mtime: int) -> int:
    """Watch a map of a file, from its first byte on; what is known to be bad in it is zeros from now on.

    descriptor: of the file, open as long as it is watched. block: bytes that the file system reads at least. Returns
    a number for `unwatch`; -1 when it cannot be watched, and whoever touches a bad page ends the process.
    """
    return faults.watch(buffer_access.bytes_in(view), len(view), descriptor, block, device, inode, mtime)


def unwatch(number: int) -> int:
    """The map is gone."""
    faults.unwatch(number)
    return 0


def note(device: int, inode: int, mtime: int, position: int, length: int, error: int) -> int:
    """Note an area that somebody failed to read; 0 when too many are known."""
    return faults.note(device, inode, mtime, position, length, error)


def count() -> int:
    """How many areas are known."""
    return faults.count()


def area(number: int, out: Writable) -> int:
    """Put area `number` into seven numbers."""
    if number < 0 or number >= faults.count() or len(out) < 7:
        raise ValueError("there is no such area")
    faults.tell(number, buffer_access.table_in(out))
    return 0


def touch(view: Readable) -> int:
    """Look at each page, so that the system can read all: it gives an error where a program would be sent a signal."""
    total = 0
    at = 0
    while at < len(view):
        total = total + view[at]
        at = at + 4096
    if len(view) > 0:
        total = total + view[len(view) - 1]
    return total


def forget() -> int:
    """Nothing is known to be bad."""
    faults.forget()
    return 0
