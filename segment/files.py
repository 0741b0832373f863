"""The file layer: maps every input. (`opening` opens it, `probe` reads single positions of it, `new_files` creates files, `change.apply`
changes them.)

All other code sees buffers. Inputs are opened read-only, mapped, read in order, and on request dropped from the page
cache afterwards, so that a scan does not evict a running broker's pages. For a file that is not on a disk (`segment.storage`), the
needed parts are copied to a local file.
"""

import errno
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Protocol, Self

from kseg.segment import unreadable
from kseg.segment.errors import UnreadableInput, VanishedInput, cannot_read
from kseg.segment.holes import data_extents
from kseg.segment.kernel import bad_pages
from kseg.segment.opening import opened, opened_at_once, opened_in_part, read_part
from kseg.segment.storage import places
from kseg.segment.storage.attached import is_anything_attached, located
from kseg.segment.storage.local_copy import RangedCopy
from kseg.segment.unreadable import BadArea

# Up to this size, reading costs less than mapping and its page faults.
SMALL_BYTES = 32 * 1024
_POPULATED_BYTES = 32 * 1024 * 1024


class _Map(mmap.mmap):
    """A map that is watched while it is in use: unreadable bytes in it become zeros (`bad_pages`)."""

    _number = -1
    _descriptor = -1

    def watch(self, descriptor: int, status: os.stat_result) -> bool:
        """Watch the map; returns whether that is possible. `descriptor` must stay open while it is watched."""
        self._number = bad_pages.watch(
            self, descriptor, min(status.st_blksize, unreadable.PAGE_BYTES), *unreadable.identity_of(status)
        )
        self._descriptor = descriptor
        return self._number >= 0

    def disown(self) -> None:
        """Give up ownership of the descriptor."""
        self._descriptor = -1

    def forget(self) -> None:
        """Stop watching: the map is closed."""
        if self._number >= 0:
            bad_pages.unwatch(self._number)
            self._number = -1
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.forget()


class MappedFile:
    """A read-only map of a regular file (a small one is read into memory instead); a context manager.

    path: as given by the user. size_bytes, mtime_ms: of the file when it was opened. data_end: everything after it is a hole, which reads
    as zeros. view: the bytes (an empty view for an empty file); zeros where they cannot be read (`unreadable`). The map is a snapshot of
    the inode, which a rename or unlink does not affect. random_access: only a few positions will be read, so disable read-ahead. For a file
    that is not on a disk, nothing is fetched until the caller uses `view`, which fetches everything, or announces the ranges of
    `sparse_view` that it will read (`need`). is_surely_regular: a listing has shown the path to be a regular file, so its type is not
    checked again before it is opened. Raises UnreadableInput if the path is missing, is not a regular file, or may not be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        drop_cache: bool = False,
        *,
        random_access: bool = False,
        is_surely_regular: bool = False,
    ) -> None:
        self.path = os.fspath(path)
        self._map: mmap.mmap | None = None
        self._drops_cache = drop_cache
        self._ranges: RangedCopy | None = None
        if is_anything_attached():
            self._descriptor, self._ranges = opened_in_part(self.path, random_access)
        else:
            self._descriptor = opened_at_once(self.path) if is_surely_regular else opened(self.path)
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableInput(f"cannot read {self.path}: not a regular file")
            self.size_bytes = status.st_size
            self._status = status
            self.data_end = status.st_size
            if 512 * status.st_blocks < status.st_size and self._ranges is None:
                self.data_end = _data_end(self._descriptor, status.st_size)
            content = b""
            if 0 < status.st_size <= SMALL_BYTES:
                content = read_part(self._descriptor, status, SMALL_BYTES)
                self.size_bytes = len(content)
            elif status.st_size:
                self._map = self._mapped(random_access)
            self.sparse_view = memoryview(content if self._map is None else self._map)
        except OSError as error:
            os.close(self._descriptor)
            raise cannot_read(self.path, error) from error
        except ValueError as error:
            os.close(self._descriptor)
            raise VanishedInput(f"cannot read {self.path}: it was truncated while being read") from error
        except BaseException:
            os.close(self._descriptor)
            raise
        unreadable.opened(status, self.path)
        if not isinstance(self._map, _Map) and not drop_cache:
            os.close(self._descriptor)
            self._descriptor = -1

    def _mapped(self, random_access: bool) -> mmap.mmap:
        """Raises OSError, and ValueError for a file that has been truncated in the meantime."""
        status = self._status
        if self._ranges is not None:  # this process fills the file while it is mapped
            return mmap.mmap(self._descriptor, status.st_size, access=mmap.ACCESS_READ)
        found = _Map(self._descriptor, status.st_size, access=mmap.ACCESS_READ)
        found.madvise(mmap.MADV_RANDOM if random_access else mmap.MADV_SEQUENTIAL)
        if found.watch(self._descriptor, status):
            return found
        try:
            if _is_whole(self._descriptor, found, status):
                return found
            copy = _copied(self._descriptor, status)
        except BaseException:
            found.disown()
            raise
        found.disown()
        found.close()
        return copy

    def extents(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """(position, length) of the parts of a range that are not holes, in order."""
        if self._descriptor < 0 or self.data_end == self.size_bytes <= 512 * self._status.st_blocks:
            return iter(((start, stop - start),))
        return data_extents(self._descriptor, start, stop - start)

    @property
    def view(self) -> memoryview:
        """All bytes."""
        if self._ranges is not None:
            self.need(0, self.size_bytes)
        return self.sparse_view

    def need(self, start: int, stop: int) -> None:
        """Make the range between two positions available in `sparse_view`. Raises UnreadableInput."""
        if self._ranges is None:
            return
        try:
            self._ranges.need(start, stop)
        except OSError as error:
            raise cannot_read(self.path, error) from error

    @property
    def is_in_part(self) -> bool:
        """Whether `sparse_view` contains only the requested ranges."""
        return self._ranges is not None

    @property
    def mtime_ms(self) -> int:
        return self._status.st_mtime_ns // 1_000_000

    def is_unchanged(self, status: os.stat_result) -> bool:
        """Whether `status` is that of this file, and the file was not written to since it was opened."""
        if is_anything_attached() and located(self.path) is not None:
            # the file opened is a copy with an inode of its own, and one process always sees the same listing of the origin
            return (status.st_size, status.st_mtime_ns) == (self._status.st_size, self._status.st_mtime_ns)
        return _identity(status) == _identity(self._status)

    def unreadable(self, start: int = 0, stop: int | None = None) -> tuple[BadArea, ...]:
        """The ranges between two positions that could not be read so far; they read as zeros."""
        return unreadable.areas(unreadable.identity_of(self._status), start, stop)

    def close(self) -> None:
        self.sparse_view.release()
        if self._ranges is not None:
            self._ranges.close()
        if self._drops_cache and self._descriptor >= 0:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if self._map is not None:
            is_watched = isinstance(self._map, _Map)
            # a caller still holds a slice: the file stays mapped until the slice is released
            with suppress(BufferError):
                self._map.close()
                if isinstance(self._map, _Map):
                    self._map.forget()
            self._map = None
            if is_watched:  # its descriptor belongs to the map
                self._descriptor = -1
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OpenFile(Protocol):
    """The bytes of a file while it is open: a `MappedFile`, or a substitute."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def data_end(self) -> int: ...

    @property
    def view(self) -> memoryview: ...

    def extents(self, start: int, stop: int) -> Iterable[tuple[int, int]]: ...

    def unreadable(self, start: int = 0, stop: int | None = None) -> tuple[BadArea, ...]: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Reader:
    """Opens files that a listing of their directory has shown to be regular ones. This implementation opens existing ones; others return
    planned files as if they existed. Raises UnreadableInput."""

    def open(self, path: str, drop_cache: bool = False) -> OpenFile:
        """A `MappedFile`."""
        return MappedFile(path, drop_cache, is_surely_regular=True)

    def read_small(self, path: str) -> bytes:
        """The whole content of a side file."""
        return read_small(path, is_surely_regular=True)


DISK = Reader()


def _is_whole(descriptor: int, view: mmap.mmap, status: os.stat_result) -> bool:
    """Whether all of a map can be touched, for a process that cannot handle SIGBUS. Raises OSError."""
    if bad_pages.count() and unreadable.areas(unreadable.identity_of(status)):
        return False
    for start, length in data_extents(descriptor, 0, status.st_size):
        for at in range(start // mmap.PAGESIZE * mmap.PAGESIZE, start + length, _POPULATED_BYTES):
            size = min(_POPULATED_BYTES, start + length - at)
            try:
                unreadable.populate(view, at, size)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    return False
                try:  # not supported by this system
                    if len(unreadable.pread(descriptor, size, at)) < size:
                        return False
                except OSError:
                    return False
    return True


def _copied(descriptor: int, status: os.stat_result) -> mmap.mmap:
    """The readable content of a file, in memory. Raises OSError."""
    memory = mmap.mmap(-1, status.st_size)
    for start, length in data_extents(descriptor, 0, status.st_size):
        for at in range(start, start + length, _POPULATED_BYTES):
            size = min(_POPULATED_BYTES, start + length - at)
            data = unreadable.read_around(descriptor, status, at, size)
            memory[at : at + len(data)] = data
            if len(data) < size:
                end = at + len(data)
                bad_pages.note(*unreadable.identity_of(status), end, status.st_size - end, 0)
                return memory
    return memory


def _data_end(descriptor: int, size_bytes: int) -> int:
    """Where the hole at the end of a file begins; the end of the file if there is none."""
    end = 0
    for start, length in data_extents(descriptor, 0, size_bytes):
        end = start + length
    return end


def mapped(descriptor: int) -> mmap.mmap:
    """A map of a whole open file that is not empty; unreadable bytes become zeros. Raises OSError."""
    view = _Map(descriptor, 0, access=mmap.ACCESS_READ)
    own = os.dup(descriptor)
    if not view.watch(own, os.fstat(descriptor)):
        view.disown()
        os.close(own)
    return view


def read_small(
    path: str | os.PathLike[str], limit_bytes: int = 64 * 1024 * 1024, *, is_surely_regular: bool = False
) -> bytes:
    """The whole content of a side file (checkpoint, snapshot, metadata), at most `limit_bytes`; unreadable bytes become zeros.

    is_surely_regular: as for a `MappedFile`. Raises UnreadableInput if it cannot be read or exceeds the limit.
    """
    name = os.fspath(path)
    is_listed_here = is_surely_regular and not is_anything_attached()
    descriptor = opened_at_once(name) if is_listed_here else opened(name)
    try:
        status = os.fstat(descriptor)
        # a read allocates the requested size; one byte more shows that the limit is exceeded
        wanted = min(limit_bytes, status.st_size) + 1
        data = read_part(descriptor, status, wanted)
        while len(data) < status.st_size and (more := os.pread(descriptor, wanted - len(data), len(data))):
            data += more
    except OSError as error:
        raise cannot_read(name, error) from error
    finally:
        os.close(descriptor)
    unreadable.opened(status, name)
    if len(data) > limit_bytes:
        raise UnreadableInput(f"cannot read {name}: larger than {limit_bytes} bytes")
    return data


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def is_directory(path: str | os.PathLike[str]) -> bool | None:
    """Whether `path` is a directory, or a link to one; None if nothing is there. Raises UnreadableInput if that cannot be
    determined; os.path.isdir would return False."""
    try:
        return stat.S_ISDIR(places.stat(os.fspath(path)).st_mode)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise cannot_read(os.fspath(path), error) from error
