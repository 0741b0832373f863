"""The input of `append`, which is read twice: once to check every line, once to write.

A regular file is read again from where reading began (also as standard input: `< lines.jsonl`). Input that can be read only once
(a pipe, a terminal) is copied to an unnamed temporary file (`apply.scratch_file`), never kept in memory; a dry run keeps nothing.
Size, modification time, inode and a checksum show whether the second read returned the bytes that were checked.
"""

import os
import stat
from collections.abc import Iterator
from typing import Self

from kseg.change.apply.scratch_file import ScratchFile
from kseg.jobs.events import Advance
from kseg.segment.crc import crc32c
from kseg.segment.errors import Refused
from kseg.segment.input_stream import InputStream

_STANDARD_INPUT = "-"


class AppendInput:
    """The input of one append; a context manager.

    path: `-` is standard input, None for no lines. is_read_again: whether `again` will be called. size_bytes: read so far in the current
    pass.
    Raises UnreadableInput when it cannot be read, Refused when it cannot be kept or has changed.
    """

    def __init__(self, path: str | None, *, is_read_again: bool) -> None:
        self.path = path or ""
        self.size_bytes = 0
        self._is_read_again = is_read_again
        self._bytes_told = 0
        self._crc = 0
        self._stream: InputStream | None = None
        self._kept: ScratchFile | None = None
        self._found: os.stat_result | None = None

    @property
    def name(self) -> str:
        return "standard input" if self.path == _STANDARD_INPUT else self.path

    def __enter__(self) -> Self:
        if not self.path:
            return self
        self._stream = InputStream(self.path)
        self._found = self._stream.status()
        if self._is_read_again and not stat.S_ISREG(self._found.st_mode):
            try:
                self._kept = ScratchFile(None)
            except BaseException:
                self._stream.close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            self._kept.close()
        if self._stream is not None:
            self._stream.close()

    def blocks(self) -> Iterator[bytes]:
        """The bytes of the first pass, block by block."""
        if self._stream is None:
            return
        for block in self._stream.blocks():
            self._crc = crc32c(block, self._crc)
            self.size_bytes += len(block)
            if self._kept is not None:
                self._keep(self._kept, block)
            yield block

    def again(self) -> Iterator[bytes]:
        """Read the same bytes again. Raises Refused after the last one if they are not those that were checked."""
        if self._stream is None:
            return
        if self._kept is not None:
            stream = InputStream(self._kept.path)
        else:
            stream = self._stream
            stream.rewind()
        expected_bytes, expected_crc = self.size_bytes, self._crc
        self.size_bytes = self._bytes_told = self._crc = 0
        try:
            for block in stream.blocks():
                self._crc = crc32c(block, self._crc)
                self.size_bytes += len(block)
                yield block
        finally:
            if stream is not self._stream:
                stream.close()
        if (self.size_bytes, self._crc) != (expected_bytes, expected_crc):
            raise self.changed()

    def check_unchanged(self) -> None:
        """Raises Refused if inode, size or modification time are no longer those of the first pass."""
        if self._stream is None or self._found is None:
            return
        if self._kept is None and _identity(self._stream.status()) != _identity(self._found):
            raise self.changed()

    def changed(self) -> Refused:
        return Refused(f"{self.name} changed while it was read; nothing was appended")

    def progress(self) -> Iterator[Advance]:
        """The bytes read since the previous call, if any."""
        news = self.size_bytes - self._bytes_told
        if news:
            self._bytes_told = self.size_bytes
            yield Advance(self.path, news)

    def _keep(self, kept: ScratchFile, block: bytes) -> None:
        try:
            kept.write(block)
        except Refused as error:
            raise Refused(
                f"{error}: {self.name} can be read only once, so it is stored until all of it has been checked "
                f"({kept.size_bytes:,} bytes so far); set TMPDIR to a file system with enough space, or give a file with --from"
            ) from error


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
