"""The bytes of an archive: a local file or an object, read by range, and its decompressed content in order.

A compressed stream has no index. It is read forward only; to reach an earlier position, reading restarts from the beginning.
"""

import io
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

from kseg.segment.storage.origin import ByteOrigin, Item, out_of_reach

if TYPE_CHECKING:
    from typing import BinaryIO

_READ_AHEAD_BYTES = 64 << 10
_INPUT_BYTES = 1 << 20
_STEP_BYTES = 1 << 20
_GZIP = 31  # zlib's wbits for a gzip header
_GZIP_INPUT_BYTES = 64 << 10
_GZIP_SUFFIXES = (".gz", ".tgz")
_ZSTD_SUFFIXES = (".zst", ".tzst")


class ArchiveBytes(Protocol):
    """A byte source of known size. Raises OSError."""

    size_bytes: int
    mtime_ns: int

    def read(self, start: int, stop: int) -> bytes:
        """All bytes between two positions."""
        ...


class LocalBytes:
    """A file on disk, which must not change after it was first read."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(self._descriptor)
        self.size_bytes, self.mtime_ns = status.st_size, status.st_mtime_ns

    def read(self, start: int, stop: int) -> bytes:
        data = os.pread(self._descriptor, stop - start, start)
        while len(data) < stop - start:
            more = os.pread(self._descriptor, stop - start - len(data), start + len(data))
            if not more:
                raise out_of_reach("the archive became shorter while it was read")
            data += more
        return data

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            close(self._descriptor)  # also at interpreter exit, when modules are gone


class OriginBytes:
    """A file of an origin: an archive in a bucket."""

    def __init__(self, origin: ByteOrigin, inside: str, item: Item) -> None:
        self._origin, self._inside, self._item = origin, inside, item
        self.size_bytes, self.mtime_ns = item.size_bytes, item.mtime_ns

    def read(self, start: int, stop: int) -> bytes:
        return self._origin.read(self._inside, self._item, start, stop)


class ArchiveFile(io.RawIOBase):
    """A file object for libraries; buffers small reads in blocks of `_READ_AHEAD_BYTES`."""

    def __init__(self, source: ArchiveBytes, read_ahead_bytes: int = _READ_AHEAD_BYTES) -> None:
        self._source, self._ahead = source, read_ahead_bytes
        self._position = 0
        self._start, self._held = 0, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._source.size_bytes}[whence]
        self._position = base + position
        return self._position

    def read(self, count: int = -1) -> bytes:
        end = self._source.size_bytes if count is None or count < 0 else self._position + count
        end = min(end, self._source.size_bytes)
        if end <= self._position:
            return b""
        if not self._start <= self._position <= end <= self._start + len(self._held):
            self._start = self._position
            self._held = self._source.read(
                self._start, min(self._source.size_bytes, max(end, self._start + self._ahead))
            )
        data = self._held[self._position - self._start : end - self._start]
        self._position = end
        return data

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class ForwardStream:
    """The decompressed content, read from its beginning. damage: why it ended early, once it has. Raises OSError if the
    archive cannot be read."""

    def __init__(self, source: ArchiveBytes, suffix: str) -> None:
        self._source, self._suffix = source, suffix
        self.damage: str | None = None
        self.position = 0
        self._stream = self._opened()

    def _opened(self) -> "BinaryIO":
        file = ArchiveFile(self._source, _INPUT_BYTES)
        self.position = 0
        if self._suffix.endswith(_GZIP_SUFFIXES):
            return cast("BinaryIO", _Gunzipped(file))
        import zstandard

        reader = zstandard.ZstdDecompressor().stream_reader(
            cast("BinaryIO", file), read_size=_INPUT_BYTES, read_across_frames=True
        )
        return cast("BinaryIO", reader)

    def read(self, count: int) -> bytes:
        """The next bytes, fewer at the end of the stream."""
        parts, wanted = [], count
        while wanted > 0 and (data := self._some(min(wanted, _STEP_BYTES))):
            parts.append(data)
            wanted -= len(data)
            self.position += len(data)
        return b"".join(parts)

    def _some(self, count: int) -> bytes:
        try:
            return self._stream.read(count)
        except OSError as error:
            if error.errno is not None:
                raise  # an error of the store or the disk
            self.damage = str(error)
        except _damage() as error:
            self.damage = str(error)
        return b""

    def skip_to(self, position: int) -> None:
        """Go to a position; restarts from the beginning if it is before the current one."""
        if position < self.position:
            self._stream = self._opened()
        while self.position < position and self.read(min(_STEP_BYTES, position - self.position)):
            pass


def is_compressed(path: str) -> bool:
    """Whether an archive of this name is compressed."""
    return path.endswith((*_GZIP_SUFFIXES, *_ZSTD_SUFFIXES))


class _Gunzipped:
    """The content of a gzip file of one or more members. The libraries' own file objects discard what they have decompressed of a truncated
    stream."""

    def __init__(self, file: ArchiveFile) -> None:
        library: ModuleType = zlib
        with suppress(ImportError):
            from isal import isal_zlib

            library = isal_zlib
        self._inflater: Callable[[], Any] = partial(library.decompressobj, _GZIP)
        self._file, self._member, self._input = file, self._inflater(), b""

    def read(self, count: int) -> bytes:
        """At most that many bytes, none at the end. Raises EOFError or an error of the library for an invalid stream."""
        while not self._member.eof or self._has_another_member():
            self._input = self._input or self._file.read(_GZIP_INPUT_BYTES)
            is_last = not self._input
            data: bytes = self._member.decompress(self._input, count)
            self._input = self._member.unconsumed_tail
            if data:
                return data
            if is_last and not self._member.eof:
                raise EOFError("the compressed stream was cut off")
        return b""

    def _has_another_member(self) -> bool:
        found = self._member.unused_data.lstrip(b"\0")  # a tape's padding
        while not found:
            data = self._file.read(_GZIP_INPUT_BYTES)
            if not data:
                return False
            found = data.lstrip(b"\0")
        self._member, self._input = self._inflater(), found
        return True


def _damage() -> tuple[type[Exception], ...]:
    """The exceptions that decompressors raise for an invalid or truncated stream."""
    import zstandard

    kinds: tuple[type[Exception], ...] = (EOFError, ValueError, zlib.error, zstandard.ZstdError)
    try:
        from isal.igzip_lib import IsalError
    except ImportError:
        return kinds
    return (*kinds, cast("type[Exception]", IsalError))
