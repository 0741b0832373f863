"""The file layer: the only place (with `apply`) that opens, maps and replaces files.

Everything above sees buffers. Inputs are opened read-only and mapped, read in order, and on request dropped from
the page cache afterwards, so that a scan does not evict a working broker's pages.
"""

import mmap
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from kseg.segment.errors import UnreadableInput


class MappedFile:
    """A read-only map of a regular file; a context manager.

    path: as the user named it. size_bytes, mtime_ms: of the file when it was opened. view: the bytes (an empty
    view for an empty file; the map is a snapshot of the inode, a rename or unlink does not disturb it).
    Raises UnreadableInput when the path is missing, no regular file, or may not be read.
    """

    def __init__(self, path: str | os.PathLike[str], drop_cache: bool = False) -> None:
        self.path = os.fspath(path)
        self._drop_cache = drop_cache
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise UnreadableInput(f"cannot read {self.path}: {error.strerror}") from error
        try:
            status = os.fstat(self._descriptor)
            if not os.path.isfile(self.path):
                raise UnreadableInput(f"cannot read {self.path}: not a regular file")
            self.size_bytes = status.st_size
            self.mtime_ms = status.st_mtime_ns // 1_000_000
            self._map: mmap.mmap | None = None
            if status.st_size:
                self._map = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
                self._map.madvise(mmap.MADV_SEQUENTIAL)
            self.view = memoryview(self._map if self._map is not None else b"")
        except OSError as error:
            os.close(self._descriptor)
            raise UnreadableInput(f"cannot read {self.path}: {error.strerror}") from error
        except BaseException:
            os.close(self._descriptor)
            raise

    def close(self) -> None:
        self.view.release()
        if self._map is not None:
            try:
                self._map.close()
            except BufferError:  # a consumer still holds a slice: the map lives until that is gone
                self._map = None
        if self._drop_cache:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_small(path: str | os.PathLike[str], limit_bytes: int = 64 * 1024 * 1024) -> bytes:
    """The whole content of a side file (checkpoint, snapshot, metadata), at most `limit_bytes`.

    Raises UnreadableInput when it cannot be read or is larger than the limit.
    """
    name = os.fspath(path)
    try:
        with Path(name).open("rb") as stream:
            data = stream.read(limit_bytes + 1)
    except OSError as error:
        raise UnreadableInput(f"cannot read {name}: {error.strerror}") from error
    if len(data) > limit_bytes:
        raise UnreadableInput(f"cannot read {name}: larger than {limit_bytes} bytes")
    return data
