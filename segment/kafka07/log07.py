"""A partition of Kafka 0.7 as a log: an offset is a byte position, and files follow each other without a gap (fact sheet §2.1).

A file covers the offsets from the number in its name up to its end; the log ends where its last file ends. A fetch returns
the bytes from an offset on, whether or not a message begins there (0.7.2: Log.read, Log.findRange).
"""

import os
from typing import Self

from kseg.segment.errors import UnreadableInput, cannot_read
from kseg.segment.files import MappedFile
from kseg.segment.partition.names import FileState, Role, parse_file_name
from kseg.segment.partition.targets import FileTarget, LogTarget
from kseg.segment.storage import places
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class File07:
    """One `.kafka` file: the offsets base_offset … end_offset - 1."""

    path: str
    base_offset: int
    size_bytes: int

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.size_bytes

    def holds(self, offset: int) -> bool:
        return self.base_offset <= offset < self.end_offset


class Log07:
    """The `.kafka` files of a directory, or a single one; a context manager.

    files: by offset, at least one. directory: its path. name: of the directory. Raises UnreadableInput if there is no file.
    """

    def __init__(self, target: LogTarget) -> None:
        if isinstance(target, FileTarget):
            directory, paths = os.path.dirname(target.path) or os.curdir, [target.path]
        else:
            directory, paths = target.path, _paths_in(target.path)
        self.directory, self.name = directory, os.path.basename(places.abspath(directory))
        self.files = sorted((_file(path) for path in paths), key=lambda file: file.base_offset)
        if not self.files:
            raise UnreadableInput(f"cannot read {target.path}: it contains no .kafka file")
        self._open: dict[str, MappedFile] = {}

    @property
    def start_offset(self) -> int:
        return self.files[0].base_offset

    @property
    def end_offset(self) -> int:
        return self.files[-1].end_offset

    def file_with(self, offset: int) -> File07 | None:
        """The file that contains a byte, None if none does (outside the log, or in a gap)."""
        return next((file for file in reversed(self.files) if file.holds(offset)), None)

    def opened(self, file: File07) -> MappedFile:
        """The mapped file, open until the log is closed."""
        if file.path not in self._open:
            self._open[file.path] = MappedFile(file.path)
        return self._open[file.path]

    def view(self, file: File07) -> memoryview:
        """The bytes of a file."""
        return self.opened(file).view

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()


def _paths_in(directory: str) -> list[str]:
    try:
        names = [parse_file_name(entry) for entry in places.listdir(directory)]
    except OSError as error:
        raise cannot_read(directory, error) from error
    return [
        os.path.join(directory, name.name)
        for name in names
        if name.role is Role.KAFKA07_LOG and name.state is FileState.LIVE and name.base_offset is not None
    ]


def _file(path: str) -> File07:
    try:
        size_bytes = places.stat(path).st_size
    except OSError as error:
        raise cannot_read(path, error) from error
    return File07(path, parse_file_name(os.path.basename(path)).base_offset or 0, size_bytes)
