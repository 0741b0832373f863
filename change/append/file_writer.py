"""Writes the pieces of files to a partition directory, in the order in which they arrive.

A `.log` grows piece by piece; every other file is one piece, which is created or replaces the existing file.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

from kseg.change.apply.append_files import LogFile, create_file, replace_file
from kseg.segment import layout as L
from kseg.segment.files import read_small
from kseg.segment.new_files import sync_directory
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Bytes for the file `name` of the partition directory: appended if it is a `.log`, its whole content otherwise."""

    name: str
    data: bytes


class PieceSink(Protocol):
    """Where the pieces of one partition go."""

    def put(self, pieces: Sequence[FilePiece]) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...

    def release(self) -> None: ...


class NoFiles:
    """Discards the pieces of an append that is only planned. bytes_by_name: how much each file would get."""

    def __init__(self) -> None:
        self.bytes_by_name: Counter[str] = Counter()

    def put(self, pieces: Sequence[FilePiece]) -> None:
        for piece in pieces:
            self.bytes_by_name[piece.name] += len(piece.data)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass

    def release(self) -> None:
        pass


class PieceFiles:
    """Writes pieces to the files of one directory.

    existing: names of the files that may change; any other file must be new. fsync: sync each file once it is complete. announce:
    called with the name of each new file before it is created. Every method raises Refused.
    """

    def __init__(
        self,
        directory: Path,
        existing: Collection[str] = (),
        *,
        fsync: bool = False,
        announce: Callable[[str], None] | None = None,
    ) -> None:
        self.directory = directory
        self._existing = frozenset(existing)
        self._fsync = fsync
        self._announce = announce
        self._log: LogFile | None = None
        self._log_name = ""

    def put(self, pieces: Sequence[FilePiece]) -> None:
        """Write the pieces."""
        for piece in pieces:
            if not piece.name.endswith(L.LOG_SUFFIX):
                self._put_side_file(piece)
                continue
            if self._log is None or self._log_name != piece.name:
                self._end_log()
                is_new = self._is_new(piece)
                self._log, self._log_name = LogFile(self.directory / piece.name, is_new=is_new), piece.name
            self._log.write(piece.data)

    def sync(self) -> None:
        """Sync the current log."""
        if self._log is not None:
            self._log.sync()

    def close(self) -> None:
        """Finish the last log."""
        self._end_log()
        if self._fsync:
            sync_directory(self.directory)

    def release(self) -> None:
        """Close the current log without syncing it."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _put_side_file(self, piece: FilePiece) -> None:
        path = self.directory / piece.name
        if self._is_new(piece):
            create_file(path, piece.data, fsync=self._fsync)
        elif read_small(path) != piece.data:
            replace_file(path, piece.data, fsync=self._fsync)

    def _is_new(self, piece: FilePiece) -> bool:
        """Whether the file is new; then it is announced."""
        is_new = piece.name not in self._existing
        if is_new and self._announce is not None:
            self._announce(piece.name)
        return is_new

    def _end_log(self) -> None:
        if self._log is not None:
            if self._fsync:
                self._log.sync()
            self.release()
