"""Create files and directories, and sync them to disk.

Only this module, `files` and `change.apply.disk` write; this one never changes an existing file.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from kseg.segment import unreadable
from kseg.segment.errors import Refused, disk_words
from kseg.segment.files import is_directory

if TYPE_CHECKING:
    from typing_extensions import Buffer


class NewFile:
    """A new file, written from front to back; a context manager.

    On an exception it removes the file, so that no half-written file remains. Raises Refused if the name
    is taken (also by a link) or the file system rejects the bytes.
    """

    def __init__(self, path: str | os.PathLike[str], mode: int = 0o644) -> None:
        self.path = os.fspath(path)
        self.size_bytes = 0
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        except OSError as error:
            raise Refused(f"cannot create {self.path}: {error.strerror}") from error

    def write(self, data: "Buffer") -> None:
        """Append all of `data`."""
        rest = memoryview(data).cast("B")
        try:
            while len(rest):
                written = unreadable.write(self._descriptor, rest)
                self.size_bytes += written
                rest = rest[written:]
        except OSError as error:
            raise Refused(f"cannot write {self.path}: {error.strerror}") from error

    def sync(self) -> None:
        """Return once the bytes are on disk."""
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

    def __exit__(self, kind: object, *_: object) -> None:
        self.close()
        if kind is not None:
            with suppress(FileNotFoundError):
                os.unlink(self.path)


def write_new_file(
    path: str | os.PathLike[str],
    data: bytes | bytearray | memoryview | Iterable["Buffer"],
    mode: int = 0o644,
) -> int:
    """Write a file that must not exist yet, from one or several buffers in order; returns its size in bytes.

    mode: permissions before the umask. Syncs the file; the caller syncs its directory.
    Raises Refused if the name is taken or the bytes cannot be written; then no file remains.
    """
    chunks = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
    with NewFile(path, mode) as file:
        for chunk in chunks:
            file.write(chunk)
        file.sync()
        return file.size_bytes


def ensure_directory(path: str | os.PathLike[str]) -> None:
    """Create a directory unless it exists (its parent must exist); raises Refused if that fails."""
    try:
        os.mkdir(path)
    except FileExistsError:
        if not is_directory(path):
            raise Refused(f"cannot create {os.fspath(path)}: it is not a directory") from None
    except OSError as error:
        raise Refused(f"cannot create {os.fspath(path)}: {error.strerror}") from error


def sync_file(path: str | os.PathLike[str]) -> None:
    """Return once the bytes of a file are on disk; raises Refused if that fails."""
    _sync(os.fspath(path), 0, "sync")


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Return once the names in a directory are on disk; raises Refused if that fails."""
    _sync(os.fspath(path), os.O_DIRECTORY, "write")


def _sync(name: str, flags: int, verb: str) -> None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Refused(f"cannot {verb} {name}: {error.strerror}{disk_words(error)}") from error
