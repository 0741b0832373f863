"""Files that grow and small files that are replaced: how `append` changes a directory in place.

The executor of plans writes complete files; only a log to which batches are appended grows in place.
"""

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from kseg.change.apply.anchors import open_file, parent_of
from kseg.change.apply.disk import DISK, closing
from kseg.change.apply.file_operations import give_owner, remove_quietly, write_all
from kseg.segment import unreadable
from kseg.segment.errors import Refused, disk_words
from kseg.segment.new_files import sync_directory, sync_file
from kseg.segment.partition.names import Role, parse_file_name

if TYPE_CHECKING:
    from typing_extensions import Buffer


class GrowingFile(Protocol):
    """What the writer of a log needs of a growing file."""

    size_bytes: int

    def write(self, data: "Buffer") -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class NoFile:
    """Replaces a log in a dry run: counts the bytes and writes none."""

    def __init__(self, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes

    def write(self, data: "Buffer") -> None:
        self.size_bytes += memoryview(data).nbytes

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class LogFile:
    """A file that grows by complete writes: a failed write is truncated, so that no torn batch stays.

    is_new: it must not exist yet, and gets the owner of its directory; else it must exist. Raises Refused.
    """

    def __init__(self, path: str | os.PathLike[str], *, is_new: bool) -> None:
        self.path = os.fspath(path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        try:
            if is_new:
                with parent_of(self.path) as (folder, name):
                    new = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                    self._descriptor = os.open(name, flags | new, 0o644, dir_fd=folder)
            else:
                self._descriptor = open_file(self.path, flags)
            self.size_bytes = os.fstat(self._descriptor).st_size
            if is_new:
                _give_owner_of_folder(self.path)
        except OSError as error:
            verb = "create" if is_new else "write"
            raise Refused(f"cannot {verb} {self.path}: {error.strerror}") from error

    def write(self, data: "Buffer") -> None:
        """Add all of `data`, or nothing."""
        rest = memoryview(data).cast("B")
        size_bytes = self.size_bytes + len(rest)
        try:
            while len(rest):
                rest = rest[unreadable.write(self._descriptor, rest) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self.size_bytes)
            raise Refused(f"cannot write {self.path}: {error.strerror}") from error
        self.size_bytes = size_bytes

    def sync(self) -> None:
        """Sync the bytes to disk."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise Refused(f"cannot write {self.path}: {error.strerror}") from error

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def create_file(path: str | os.PathLike[str], data: "Buffer", fsync: bool = True) -> None:
    """Create a file with the owner of its directory. Raises Refused when it exists."""
    name = os.fspath(path)
    try:
        _write_new(name, data, fsync)
        _give_owner_of_folder(name)
    except OSError as error:
        raise Refused(f"cannot write {name}: {error.strerror}") from error


def temporary_name(name: str) -> str:
    """The name under which the replacement of a file is written, as in Kafka."""
    return f"{name}.tmp"


def replace_file(path: str | os.PathLike[str], data: "Buffer", fsync: bool = True) -> None:
    """Replace an existing file by `data` atomically; owner and permissions are kept.

    The bytes are written under its `temporary_name`, replacing any file of that name. Raises Refused.
    """
    name = os.fspath(path)
    temporary = temporary_name(name)
    try:
        like = DISK.file_status(name)
        if like is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", name)
        remove_quietly(DISK, temporary)
        _write_new(temporary, data, fsync)
        give_owner(DISK, temporary, like)
        DISK.change_mode(temporary, stat.S_IMODE(like.st_mode))
        DISK.rename(temporary, name)
    except OSError as error:
        raise Refused(f"cannot write {name}: {error.strerror}") from error


def remove_file(path: str | os.PathLike[str]) -> None:
    """Unlink a file. Raises Refused."""
    try:
        DISK.unlink(os.fspath(path))
    except OSError as error:
        raise Refused(f"cannot remove {os.fspath(path)}: {error.strerror}") from error


def _write_new(name: str, data: "Buffer", fsync: bool) -> None:
    """Write all of a new file or nothing. Raises OSError."""
    with closing(DISK, DISK.create(name)) as descriptor:
        try:
            write_all(DISK, descriptor, data, 0)
            if fsync:
                DISK.sync(descriptor)
        except BaseException:
            remove_quietly(DISK, name)
            raise


def _give_owner_of_folder(name: str) -> None:
    folder = DISK.status(os.path.dirname(name) or os.curdir)
    if folder is not None and stat.S_ISDIR(folder.st_mode):
        give_owner(DISK, name, folder)


def sync_files(directory: str) -> int:
    """Sync every regular file of a directory (not of its subdirectories) that other processes wrote, and its entries.

    Returns the number of files. The `.lock` of a data directory is skipped: closing it would release the lock. Raises Refused if
    a file cannot be synced: then the directory must not be marked clean.
    """
    try:
        with os.scandir(directory) as entries:
            paths = [
                entry.path
                for entry in entries
                if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)
                and parse_file_name(entry.name).role is not Role.LOCK
            ]
    except OSError as error:
        raise Refused(f"cannot sync {directory}: {error.strerror}{disk_words(error)}") from error
    for path in paths:
        sync_file(path)
    sync_directory(directory)
    return len(paths)
