"""The bytes of a file of an origin, available through a local descriptor.

Kernels work on contiguous memory, and code above `segment.files` uses descriptors. So a file of an origin becomes an
unnamed local file for as long as it is open:

    whole      every byte, read in order, in blocks of READ_BYTES. Up to IN_MEMORY_BYTES it is anonymous memory, otherwise a scratch file in
               the folder for temporary files (TMPDIR), after a check of the free space. The last few files are kept for
               a while, because side files are opened repeatedly.
    ranges     a sparse file of the same size, filled on demand (`RangedCopy.need`), in whole blocks. A request that continues the
               previous one fetches more at a time, up to READ_BYTES.

Processes do not share what they have fetched. A closed file takes no space.
"""

import errno
import os
from collections import OrderedDict
from contextlib import suppress

from kseg.segment.storage.origin import ByteOrigin, Item

IN_MEMORY_BYTES = 4 << 20
READ_BYTES = 16 << 20
# below this size a file is fetched whole: another request costs more than its bytes
WHOLE_BYTES = 256 << 10
BLOCK_BYTES = 16 << 10
_READ_AHEAD_BYTES = (0, 0, 0, 128 << 10, 512 << 10, 2 << 20, 8 << 20)
_KEPT_BYTES = 64 << 20
_KEPT_FILES = 256


class _Kept:
    """Descriptors of the files read last, duplicated for each open."""

    def __init__(self) -> None:
        self._files: OrderedDict[tuple[int, str, str, int], int] = OrderedDict()
        self._bytes = 0

    def get(self, key: tuple[int, str, str, int]) -> int | None:
        descriptor = self._files.get(key)
        if descriptor is None:
            return None
        self._files.move_to_end(key)
        return os.dup(descriptor)

    def keep(self, key: tuple[int, str, str, int], descriptor: int, size_bytes: int) -> None:
        if size_bytes > _KEPT_BYTES // 4 or key in self._files:
            return
        self._files[key] = os.dup(descriptor)
        self._bytes += size_bytes
        while self._bytes > _KEPT_BYTES or len(self._files) > _KEPT_FILES:
            (*_, dropped_bytes), dropped = self._files.popitem(last=False)
            self._bytes -= dropped_bytes
            os.close(dropped)

    def forget(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()
        self._bytes = 0


_KEPT = _Kept()


def whole_copy(origin: ByteOrigin, inside: str, item: Item) -> int:
    """A descriptor of all bytes of a file. Raises OSError."""
    key = id(origin), inside, item.version, item.size_bytes
    kept = _KEPT.get(key)
    if kept is not None:
        return kept
    descriptor = _unnamed(item, is_in_memory=item.size_bytes <= IN_MEMORY_BYTES)
    try:
        for start in range(0, item.size_bytes, READ_BYTES):
            stop = min(item.size_bytes, start + READ_BYTES)
            _write_at(descriptor, origin.read(inside, item, start, stop), start)
        os.utime(descriptor, ns=(item.mtime_ns, item.mtime_ns))
        _KEPT.keep(key, descriptor, item.size_bytes)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def forget_copies() -> None:
    """Close the kept descriptors."""
    _KEPT.forget()


class RangedCopy:
    """A file of an origin of which only the needed ranges are fetched. descriptor: of the sparse copy, which its owner closes. Raises
    OSError."""

    def __init__(self, origin: ByteOrigin, inside: str, item: Item) -> None:
        self._origin, self._inside, self._item = origin, inside, item
        self.descriptor = _unnamed(item, is_in_memory=False, room_bytes=0)
        try:
            os.ftruncate(self.descriptor, item.size_bytes)
            os.utime(self.descriptor, ns=(item.mtime_ns, item.mtime_ns))
            self._own = os.dup(self.descriptor)
        except BaseException:
            os.close(self.descriptor)
            raise
        self._present = bytearray(-(-item.size_bytes // BLOCK_BYTES))
        self._last_end = -1  # block after the last one fetched
        self._streak = 0  # number of consecutive requests that continued the previous one

    def need(self, start: int, stop: int) -> None:
        """Make sure the copy has the bytes between two positions. Raises OSError."""
        first, last = max(0, start) // BLOCK_BYTES, -(-min(stop, self._item.size_bytes) // BLOCK_BYTES)
        while first < last:
            first = self._present.find(0, first, last)
            if first < 0:
                return
            end = self._present.find(1, first, last)
            first = self._fetch(first, last if end < 0 else end)

    def _fetch(self, first: int, last: int) -> int:
        """Fetch blocks, and read ahead when they continue the previous fetch; returns the block after the last one fetched."""
        self._streak = min(self._streak + 1, len(_READ_AHEAD_BYTES) - 1) if first == self._last_end else 0
        ahead = first + _READ_AHEAD_BYTES[self._streak] // BLOCK_BYTES
        if ahead > last:
            known = self._present.find(1, last, ahead)
            last = min(len(self._present), ahead if known < 0 else known)
        last = min(last, first + READ_BYTES // BLOCK_BYTES)
        start, stop = first * BLOCK_BYTES, min(last * BLOCK_BYTES, self._item.size_bytes)
        _check_room(stop - start)
        data = self._origin.read(self._inside, self._item, start, stop)
        _write_at(self._own, data, start)
        os.utime(self._own, ns=(self._item.mtime_ns, self._item.mtime_ns))
        self._present[first:last] = b"\1" * (last - first)
        self._last_end = last
        return last

    def close(self) -> None:
        """Drop the source of the bytes; a map of the descriptor stays unchanged."""
        if self._own >= 0:
            os.close(self._own)
            self._own = -1


def is_worth_ranges(origin: ByteOrigin, inside: str, item: Item) -> bool:
    """Whether fetching a few ranges costs less than fetching the whole file."""
    return item.size_bytes > WHOLE_BYTES and origin.is_seekable(inside)


def _unnamed(item: Item, *, is_in_memory: bool, room_bytes: int | None = None) -> int:
    """A new unnamed file, which disappears with its last descriptor. room_bytes: what will be written; None: all of it."""
    if is_in_memory and hasattr(os, "memfd_create"):
        return os.memfd_create("kseg", os.MFD_CLOEXEC)
    import tempfile  # importing it takes longer than the rest of the module

    _check_room(item.size_bytes if room_bytes is None else room_bytes)
    descriptor, path = tempfile.mkstemp(prefix="kseg-")
    with suppress(FileNotFoundError):
        os.unlink(path)
    return descriptor


def _check_room(size_bytes: int) -> None:
    import tempfile

    folder = tempfile.gettempdir()
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if free < size_bytes:
        raise _no_room(size_bytes, folder, free)


def _no_room(size_bytes: int, folder: str, free_bytes: int) -> OSError:
    sentence = f"a local copy takes {size_bytes} bytes, and {folder} has {free_bytes} bytes left; set TMPDIR to a folder with more room"
    return OSError(errno.ENOSPC, sentence)


def _write_at(descriptor: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    try:
        while view:
            written = os.pwrite(descriptor, view, position)
            view, position = view[written:], position + written
    except OSError as error:  # another process has used the free space meanwhile
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        import tempfile

        raise _no_room(len(view), tempfile.gettempdir(), 0) from error
