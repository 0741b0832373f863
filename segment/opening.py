"""Open an input, which need not be on a disk (`segment.storage`), and read a part of it. `files` maps it, `probe` reads single positions of
it."""

import os
import stat

from kseg.segment import unreadable
from kseg.segment.errors import UnreadableInput, cannot_read
from kseg.segment.kernel import bad_pages
from kseg.segment.storage.attached import is_anything_attached, item_at, located
from kseg.segment.storage.local_copy import RangedCopy, is_worth_ranges, whole_copy
from kseg.segment.storage.origin import ItemKind

# Only these are opened: opening a tape or a watchdog device has side effects.
_DEVICES = (stat.S_IFCHR, stat.S_IFBLK)


def opened_in_part(name: str, random_access: bool) -> tuple[int, RangedCopy | None]:
    """A descriptor of a file, which need not be on a disk, and the object that fetches ranges of it if only parts will be read."""
    try:
        place = located(name)
        if place is None:
            return opened(name), None
        item = item_at(*place)
        if item.kind is not ItemKind.FILE:
            raise UnreadableInput(f"cannot read {name}: not a regular file")
        if random_access and is_worth_ranges(*place, item):
            ranges = RangedCopy(*place, item)
            return ranges.descriptor, ranges
        return whole_copy(*place, item), None
    except OSError as error:
        raise cannot_read(name, error) from error


def opened(name: str) -> int:
    """A descriptor to read from. O_NONBLOCK: opening a pipe must not wait for a writer. A device is not opened, since
    that could have side effects: a link among the evidence can lead to one."""
    if is_anything_attached() and located(name) is not None:
        return opened_in_part(name, False)[0]
    try:
        if stat.S_IFMT(os.stat(name).st_mode) in _DEVICES:
            raise UnreadableInput(f"cannot read {name}: not a regular file")
    except OSError as error:
        raise cannot_read(name, error) from error
    return opened_at_once(name)


def opened_at_once(name: str) -> int:
    """Like `opened`, for a path that a listing has shown to be a regular file: its type is not checked again."""
    try:
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise cannot_read(name, error) from error


def read_part(descriptor: int, status: os.stat_result, max_bytes: int, start: int = 0) -> bytes:
    """The content of a file from `start` on; unreadable bytes become zeros. Raises OSError."""
    failed: OSError | None = None
    if not bad_pages.count():
        try:
            data = unreadable.pread(descriptor, max_bytes, start)
        except OSError as error:
            if not unreadable.is_of_a_place(error):
                raise
            failed = error
        else:
            if start + len(data) >= min(start + max_bytes, status.st_size):
                return data
            # a short read means that the file has been truncated, or that unreadable bytes follow
            if start + len(data) >= min(start + max_bytes, os.fstat(descriptor).st_size):
                return data
    return unreadable.read_around(descriptor, status, start, max_bytes, failed)
