"""Read a few positions of many files without mapping them."""

import errno
import os
from typing import Self

from kseg.segment import unreadable
from kseg.segment.errors import cannot_read
from kseg.segment.opening import opened, opened_at_once, opened_in_part, read_part
from kseg.segment.storage.attached import is_anything_attached
from kseg.segment.storage.local_copy import RangedCopy
from kseg.segment.unreadable import BadArea


class Probe:
    """A regular file of which only a few positions are read, without mapping it, for commands that open many files; a context manager.

    path: of a file that a listing has shown to be a regular one, or anything else that `opened` opens. size_bytes: when it was opened.
    Raises UnreadableInput if it cannot be opened or read.
    """

    __slots__ = ("_descriptor", "_ranges", "_status", "path", "size_bytes")

    def __init__(self, path: str | os.PathLike[str], *, is_surely_regular: bool = False) -> None:
        self.path = os.fspath(path)
        self._ranges: RangedCopy | None = None
        if is_anything_attached():
            self._descriptor, self._ranges = opened_in_part(self.path, True)
        else:
            self._descriptor = opened_at_once(self.path) if is_surely_regular else opened(self.path)
        try:
            self._status = os.fstat(self._descriptor)
        except OSError as error:
            os.close(self._descriptor)
            raise cannot_read(self.path, error) from error
        self.size_bytes = self._status.st_size
        unreadable.opened(self._status, self.path)

    def read(self, position: int, count: int) -> bytes:
        """At most `count` bytes from `position` on; unreadable bytes become zeros."""
        try:
            if self._ranges is not None:
                self._ranges.need(position, position + count)
            return read_part(self._descriptor, self._status, count, position)
        except OSError as error:
            raise cannot_read(self.path, error) from error

    def unreadable(self, start: int, stop: int) -> tuple[BadArea, ...]:
        """The ranges between two positions that could not be read so far; they read as zeros."""
        return unreadable.areas(unreadable.identity_of(self._status), start, stop)

    def is_hole_from(self, position: int) -> bool:
        """Whether everything from `position` on is a hole; False if the file system does not report holes."""
        if self._ranges is not None:
            return False
        try:
            os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError as error:
            return error.errno == errno.ENXIO
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
        if self._ranges is not None:
            self._ranges.close()


def read_end(
    path: str | os.PathLike[str], count: int, *, is_surely_regular: bool = False
) -> tuple[int, bytes]:
    """(size in bytes, the last `count` bytes) of a file; fewer bytes if it is shorter. is_surely_regular: as for a `Probe`.

    Raises UnreadableInput if it cannot be read.
    """
    with Probe(path, is_surely_regular=is_surely_regular) as file:
        return file.size_bytes, file.read(max(0, file.size_bytes - count), count)
