# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Unreadable pages of mapped files, and the list of those that were found; `in_c.faults` describes the mechanism.

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
    """Prepare for watching files and recording areas, also in processes forked later; 0 if that is not supported."""
    return faults.start()


def watch(view: Readable, descriptor: int, block: int, device: int, inode: int, mtime: int) -> int:
    """Watch a map of a file, from its first byte on; known bad areas in it are zeros from now on.

    descriptor: of the file, open while the map is watched. block: the smallest unit that the file system reads, in bytes.
    Returns a number for `unwatch`; -1 if the map cannot be watched, in which case an access to a bad page ends the process.
    """
    return faults.watch(buffer_access.bytes_in(view), len(view), descriptor, block, device, inode, mtime)


def unwatch(number: int) -> int:
    """Stop watching: the map is closed."""
    faults.unwatch(number)
    return 0


def note(device: int, inode: int, mtime: int, position: int, length: int, error: int) -> int:
    """Record an area that could not be read; 0 if the list is full."""
    return faults.note(device, inode, mtime, position, length, error)


def count() -> int:
    """The number of known areas."""
    return faults.count()


def area(number: int, out: Writable) -> int:
    """Copy area `number` into seven numbers."""
    if number < 0 or number >= faults.count() or len(out) < 7:
        raise ValueError("there is no such area")
    faults.tell(number, buffer_access.table_in(out))
    return 0


def touch(view: Readable) -> int:
    """Access each page so that the system reads all of them; it returns an error where a direct access would raise a signal."""
    total = 0
    at = 0
    while at < len(view):
        total = total + view[at]
        at = at + 4096
    if len(view) > 0:
        total = total + view[len(view) - 1]
    return total


def forget() -> int:
    """Forget all known areas."""
    faults.forget()
    return 0
