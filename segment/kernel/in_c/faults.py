"""Pages of mapped files that cannot be read: what only C can do about them, and what plain Python does instead.

Whoever touches such a page is sent SIGBUS, which ends the process. The compiled kernels have a handler for it, in C in the
`.pxd` (this module itself is not compiled; `bad_pages` takes it in):

1. It knows which maps are watched. A fault in another place is left to the handler from before, or ends the process.
2. It puts a page of memory in the place of the one that cannot be read, and reads the page's sectors into it one by one,
   past the page cache where the file system allows that: a block that cannot be read mostly has one bad sector of eight.
   What a read gives is there (also of a hole for which a full tmpfs has no page). The rest stays zeros, and is noted:
   the file, the place, the error. An error of 0 means that the file has become shorter meanwhile.
3. Whoever touched the page goes on, and sees the bytes that can be read.

The notes are in memory that forked processes share, so none of them asks for a bad sector again when it maps a file later.
A file is told by device, inode and the time of its last change: inodes are used again.

In plain Python nothing can be watched, so `watch` says no; the notes are a list of this process.
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
