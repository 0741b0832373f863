"""Unreadable pages of mapped files: a SIGBUS handler in C, and its fallback in plain Python.

Accessing such a page raises SIGBUS, which ends the process. The compiled kernels have a handler for it, in C in the
`.pxd` (this module itself is not compiled; `bad_pages` includes it):

1. It knows which maps are watched. A fault elsewhere is passed to the previous handler, or ends the process.
2. It replaces the unreadable page by a page of memory and reads the page's sectors into it one by one, bypassing the page
   cache where the file system allows that: an unreadable block usually has one bad sector of eight. Whatever can be read
   is there (also a hole for which a full tmpfs has no page). The rest stays zeros and is recorded with the file, the
   position and the error. An error of 0 means that the file was truncated in the meantime.
3. The access that faulted continues and sees the bytes that can be read.

The records are in memory that forked processes share, so none of them reads a bad sector again when it maps a file later.
A file is identified by device, inode and ctime, because inodes are reused.

In plain Python nothing can be watched, so `watch` returns false; the records are a list in this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_notes: list[list[int]] = []


def start() -> int:
    return 1


def watch(view: Any, length: int, descriptor: int, block: int, device: int, inode: int, mtime: int) -> int:
    return -1


def unwatch(number: int) -> None:
    return None


def note(device: int, inode: int, mtime: int, position: int, length: int, error: int) -> int:
    if _notes:
        last = _notes[-1]
        is_next = last[0] == device and last[1] == inode and last[2] == mtime and last[5] == error
        if is_next and last[3] + last[4] == position:
            last[4] = last[4] + length
            last[6] = last[6] + 1
            return 1
    _notes.append([device, inode, mtime, position, length, error, 1])
    return 1


def count() -> int:
    return len(_notes)


def tell(number: int, out: Any) -> None:
    i = 0
    while i < 7:
        out[i] = _notes[number][i]
        i = i + 1


def forget() -> None:
    _notes.clear()
