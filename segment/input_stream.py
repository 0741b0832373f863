"""An input that a command reads from start to end: a file, a pipe, or standard input."""

import os
import stat
from collections.abc import Iterator

from kseg.segment.errors import cannot_read


class InputStream:
    """A file, a pipe, or (as `-`) standard input, read from its current position to the end. Raises UnreadableInput."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._descriptor = 0 if path == "-" else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._start = os.lseek(self._descriptor, 0, os.SEEK_CUR) if self._is_regular() else 0
        except OSError as error:
            raise cannot_read(self._path, error) from error

    def blocks(self, block_bytes: int = 1 << 20) -> Iterator[bytes]:
        """The input in blocks, as it arrives."""
        try:
            while block := os.read(self._descriptor, block_bytes):
                yield block
        except OSError as error:
            raise cannot_read(self._path, error) from error

    def rewind(self) -> None:
        """Return to the position where the reading began; only for a regular file."""
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
