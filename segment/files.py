"""The file layer: the only place (with `apply`) that opens, maps and replaces files.

Everything above sees buffers. Inputs are opened read-only and mapped, read in order, and on request dropped from
the page cache afterwards, so that a scan does not evict a working broker's pages.
"""

import errno
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from kseg.segment import unreadable
from kseg.segment.errors import Refused, UnreadableInput, cannot_read
from kseg.segment.kernel import bad_pages
from kseg.segment.unreadable import BadArea

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Up to this size reading costs less than a map with its page faults.
SMALL_BYTES = 32 * 1024
_POPULATED_BYTES = 32 * 1024 * 1024
LARGE_HOLE_BYTES = 1 << 20


class _Map(mmap.mmap):
    """A map that is watched as long as anybody holds it: what cannot be read in it is zeros (`bad_pages`)."""

    _number = -1
    _descriptor = -1

    def watch(self, descriptor: int, status: os.stat_result) -> bool:
        """Whether it is watched from now on; `descriptor` stays open as long."""
        self._number = bad_pages.watch(
            self, descriptor, min(status.st_blksize, unreadable.PAGE_BYTES), *unreadable.identity_of(status)
        )
        self._descriptor = descriptor
        return self._number >= 0

    def disown(self) -> None:
        """The descriptor is somebody else's."""
        self._descriptor = -1

    def forget(self) -> None:
        """The map is closed."""
        if self._number >= 0:
            bad_pages.unwatch(self._number)
            self._number = -1
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.forget()


class MappedFile:
    """A read-only map of a regular file (a small one is read); a context manager.

    path: as the user named it. size_bytes, mtime_ms: of the file when it was opened. data_end: behind that is nothing but a
    hole, which reads as zeros. view: the bytes (an empty
    view for an empty file; the map is a snapshot of the inode, a rename or unlink does not disturb it); zeros where
    they cannot be read (`unreadable`).
    random_access: only a few places will be looked at, so reading ahead is in vain.
    Raises UnreadableInput when the path is missing, no regular file, or may not be read.
    """

    def __init__(
        self, path: str | os.PathLike[str], drop_cache: bool = False, *, random_access: bool = False
    ) -> None:
        self.path = os.fspath(path)
        self._map: mmap.mmap | None = None
        self._drops_cache = drop_cache
        self._descriptor = _opened(self.path)
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableInput(f"cannot read {self.path}: not a regular file")
            self.size_bytes = status.st_size
            self._status = status
            self.data_end = status.st_size
            if 512 * status.st_blocks < status.st_size:
                self.data_end = _data_end(self._descriptor, status.st_size)
            content = b""
            if 0 < status.st_size <= SMALL_BYTES:
                content = _content(self._descriptor, status, SMALL_BYTES)
                self.size_bytes = len(content)
            elif status.st_size:
                self._map = self._mapped(random_access)
            self.view = memoryview(content if self._map is None else self._map)
        except OSError as error:
            os.close(self._descriptor)
            raise cannot_read(self.path, error) from error
        except ValueError as error:
            os.close(self._descriptor)
            raise UnreadableInput(f"cannot read {self.path}: it became shorter meanwhile") from error
        except BaseException:
            os.close(self._descriptor)
            raise
        unreadable.opened(unreadable.identity_of(status), self.path, status.st_size)
        if not isinstance(self._map, _Map) and not drop_cache:
            os.close(self._descriptor)
            self._descriptor = -1

    def _mapped(self, random_access: bool) -> mmap.mmap:
        """Raises OSError, and ValueError for a file that has become shorter."""
        status = self._status
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
        """(position, length) of what of a range is no hole, in order."""
        if self._descriptor < 0 or self.data_end == self.size_bytes <= 512 * self._status.st_blocks:
            return iter(((start, stop - start),))
        return data_extents(self._descriptor, start, stop - start)

    @property
    def mtime_ms(self) -> int:
        return self._status.st_mtime_ns // 1_000_000

    def is_still(self, status: os.stat_result) -> bool:
        """Whether `status` is that of this file, and nothing was written to it since it was opened."""
        return _identity(status) == _identity(self._status)

    def unreadable(self, start: int = 0, stop: int | None = None) -> tuple[BadArea, ...]:
        """What could not be read so far between two positions; zeros stand there."""
        return unreadable.areas(unreadable.identity_of(self._status), start, stop)

    def close(self) -> None:
        self.view.release()
        if self._drops_cache and self._descriptor >= 0:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if self._map is not None:
            is_watched = isinstance(self._map, _Map)
            with suppress(BufferError):  # a consumer still holds a slice: the map lives until that is gone
                self._map.close()
                if isinstance(self._map, _Map):
                    self._map.forget()
            self._map = None
            if is_watched:  # its descriptor is the map's
                self._descriptor = -1
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OpenFile(Protocol):
    """The bytes of a file as long as it is open: a `MappedFile`, or what stands in for one."""

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Reader:
    """By whom files are opened that may be on no disk yet: this one reads what lies there, others answer for files as
    they would be. Raises UnreadableInput."""

    def open(self, path: str, drop_cache: bool = False) -> OpenFile:
        """A `MappedFile`."""
        return MappedFile(path, drop_cache)

    def read_small(self, path: str) -> bytes:
        """The whole content of a side file."""
        return read_small(path)


DISK = Reader()


def _content(descriptor: int, status: os.stat_result, most_bytes: int, start: int = 0) -> bytes:
    """What lies in a file from `start` on; zeros where it cannot be read. Raises OSError."""
    failed: OSError | None = None
    if not bad_pages.count():
        try:
            data = unreadable.pread(descriptor, most_bytes, start)
        except OSError as error:
            if not unreadable.is_of_a_place(error):
                raise
            failed = error
        else:
            if start + len(data) >= min(start + most_bytes, status.st_size):
                return data
            # a read ends early before what cannot be read, too
            if start + len(data) >= min(start + most_bytes, os.fstat(descriptor).st_size):
                return data
    return unreadable.read_around(descriptor, status, start, most_bytes, failed)


def _is_whole(descriptor: int, view: mmap.mmap, status: os.stat_result) -> bool:
    """Whether all of a map can be touched: for a process that cannot be saved from doing so. Raises OSError."""
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
                try:  # this system does not know how
                    if len(unreadable.pread(descriptor, size, at)) < size:
                        return False
                except OSError:
                    return False
    return True


def _copied(descriptor: int, status: os.stat_result) -> mmap.mmap:
    """What can be read of a file, in memory. Raises OSError."""
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
    """Where the hole at the end of a file begins; its end when there is none."""
    end = 0
    for start, length in data_extents(descriptor, 0, size_bytes):
        end = start + length
    return end


def data_extents(descriptor: int, position: int, count: int) -> Iterator[tuple[int, int]]:
    """Where the bytes of a range of an open file lie (position, length), in order; between them are holes, which read
    as zeros. All of it where the file system does not tell."""
    end = position + count
    while position < end:
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                return
            start, stop = position, end
        else:
            if start >= end:
                return
            stop = min(end, os.lseek(descriptor, start, os.SEEK_HOLE))
        yield start, stop - start
        position = stop


def without_large_holes(extents: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(start, end) of what lies between the holes of a file that are worth to be left out.

    extents: (position, length) of what is no hole, in order.
    """
    found: list[tuple[int, int]] = []
    for start, length in extents:
        if found and start - found[-1][1] < LARGE_HOLE_BYTES:
            found[-1] = found[-1][0], start + length
        else:
            found.append((start, start + length))
    return found


def mapped(descriptor: int) -> mmap.mmap:
    """A map of all of an open file that is not empty; what cannot be read in it is zeros. Raises OSError."""
    view = _Map(descriptor, 0, access=mmap.ACCESS_READ)
    own = os.dup(descriptor)
    if not view.watch(own, os.fstat(descriptor)):
        view.disown()
        os.close(own)
    return view


def shared_memory(size_bytes: int) -> memoryview:
    """Zeroed memory that this process will share with those it forks."""
    return memoryview(mmap.mmap(-1, size_bytes))


class PrivateMemory:
    """Zeroed memory of this process alone; pages that nobody touches cost nothing.

    is_large: most of it will be touched, here and there, so large pages pay.
    """

    def __init__(self, size_bytes: int, *, is_large: bool = False) -> None:
        self._map = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if is_large and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self.view = memoryview(self._map)

    def forget(self) -> None:
        """All zeros again."""
        self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Give it back; views of it must have been released."""
        self.view.release()
        self._map.close()


def read_small(path: str | os.PathLike[str], limit_bytes: int = 64 * 1024 * 1024) -> bytes:
    """The whole content of a side file (checkpoint, snapshot, metadata), at most `limit_bytes`; zeros where it cannot
    be read.

    Raises UnreadableInput when it cannot be read or is larger than the limit.
    """
    name = os.fspath(path)
    descriptor = _opened(name)
    try:
        status = os.fstat(descriptor)
        # a read reserves what it is asked for; the byte more shows that the limit is passed
        wanted = min(limit_bytes, status.st_size) + 1
        data = _content(descriptor, status, wanted)
        while len(data) < status.st_size and (more := os.pread(descriptor, wanted - len(data), len(data))):
            data += more
    except OSError as error:
        raise cannot_read(name, error) from error
    finally:
        os.close(descriptor)
    unreadable.opened(unreadable.identity_of(status), name, status.st_size)
    if len(data) > limit_bytes:
        raise UnreadableInput(f"cannot read {name}: larger than {limit_bytes} bytes")
    return data


class InputStream:
    """A file, a pipe, or (as `-`) standard input, that is read from where it stands to its end. Raises UnreadableInput."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._descriptor = 0 if path == "-" else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._start = os.lseek(self._descriptor, 0, os.SEEK_CUR) if self._is_regular() else 0
        except OSError as error:
            raise cannot_read(self._path, error) from error

    def blocks(self, block_bytes: int = 1 << 20) -> Iterator[bytes]:
        """What comes, in blocks as it comes."""
        try:
            while block := os.read(self._descriptor, block_bytes):
                yield block
        except OSError as error:
            raise cannot_read(self._path, error) from error

    def rewind(self) -> None:
        """Go back to where the reading began; of a regular file only."""
        try:
            os.lseek(self._descriptor, self._start, os.SEEK_SET)
        except OSError as error:
            raise cannot_read(self._path, error) from error

    def status(self) -> os.stat_result:
        try:
            return os.fstat(self._descriptor)
        except OSError as error:
            raise cannot_read(self._path, error) from error

    def close(self) -> None:
        if self._descriptor > 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _is_regular(self) -> bool:
        return stat.S_ISREG(os.fstat(self._descriptor).st_mode)


def read_end(path: str | os.PathLike[str], count: int) -> tuple[int, bytes]:
    """(size in bytes, the last `count` bytes) of a file, for a look at many files; fewer when it is shorter.

    Raises UnreadableInput when it cannot be read.
    """
    name = os.fspath(path)
    descriptor = _opened(name)
    try:
        status = os.fstat(descriptor)
        size_bytes = status.st_size
        unreadable.opened(unreadable.identity_of(status), name, size_bytes)
        start = max(0, size_bytes - count)
        return size_bytes, _content(descriptor, status, count, start)
    except OSError as error:
        raise cannot_read(name, error) from error
    finally:
        os.close(descriptor)


def _opened(name: str) -> int:
    """A descriptor to read from. O_NONBLOCK: opening a pipe must not wait for whoever writes it. A device is not even
    opened, which could set off anything: a link among the evidence can lead to one."""
    try:
        mode = os.stat(name).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise UnreadableInput(f"cannot read {name}: not a regular file")
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise cannot_read(name, error) from error


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class NewFile:
    """A file that did not exist before, written from front to back; a context manager.

    Left by an exception it removes itself, so that no half-written file stays behind. Raises Refused when the name
    is taken (also by a link) or the file system does not take the bytes.
    """

    def __init__(self, path: str | os.PathLike[str], mode: int = 0o644) -> None:
        self.path = os.fspath(path)
        self.size_bytes = 0
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        except OSError as error:
            raise Refused(f"cannot create {self.path}: {error.strerror}") from error

    def write(self, data: "Buffer") -> None:
        """Write all of `data` behind what is there."""
        rest = memoryview(data).cast("B")
        try:
            while len(rest):
                written = unreadable.write(self._descriptor, rest)
                self.size_bytes += written
                rest = rest[written:]
        except OSError as error:
            raise Refused(f"cannot write {self.path}: {error.strerror}") from error

    def sync(self) -> None:
        """Return when the bytes are on the disk."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise Refused(f"cannot write {self.path}: {error.strerror}") from error

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if kind is not None:
            with suppress(FileNotFoundError):
                os.unlink(self.path)


def write_new_file(
    path: str | os.PathLike[str],
    data: bytes | bytearray | memoryview | Iterable["Buffer"],
    mode: int = 0o644,
    fsync: bool = True,
) -> int:
    """Write a file that must not exist yet, from one buffer or from several in order; returns its size in bytes.

    mode: permissions before the umask. fsync: wait for the disk (the directory's entry is the caller's business).
    Raises Refused when the name is taken or the bytes cannot be written; then nothing stays behind.
    """
    chunks = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
    with NewFile(path, mode) as file:
        for chunk in chunks:
            file.write(chunk)
        if fsync:
            file.sync()
        return file.size_bytes


def is_directory(path: str | os.PathLike[str]) -> bool | None:
    """Whether `path` is a directory, or leads to one; None when there is nothing. Raises UnreadableInput when nobody can
    tell: os.path.isdir would say no."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise cannot_read(os.fspath(path), error) from error


def ensure_directory(path: str | os.PathLike[str]) -> None:
    """Make a directory unless it is there (its parent must be); raises Refused when that cannot be."""
    try:
        os.mkdir(path)
    except FileExistsError:
        if not is_directory(path):
            raise Refused(f"cannot create {os.fspath(path)}: it is no directory") from None
    except OSError as error:
        raise Refused(f"cannot create {os.fspath(path)}: {error.strerror}") from error


def sync_file(path: str | os.PathLike[str]) -> None:
    """Return when the bytes of a file are on the disk; raises Refused when that cannot be."""
    name = os.fspath(path)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Refused(f"cannot sync {name}: {error.strerror}") from error


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Return when the names in a directory are on the disk."""
    name = os.fspath(path)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Refused(f"cannot write {name}: {error.strerror}") from error
