"""What lies open between the files of a dump: the log of a segment, which both of its indexes are held against.

A directory is dumped log by log, and behind each log its indexes. So the log that was opened last stays open: its
bytes are read once, its batches walked once, and their checksums judged once, as far as its table of batches reaches.
"""

import os

from kseg.segment.files import MappedFile
from kseg.segment.scanning.scan import Scanner


class OpenLog:
    """A log that is open. scanner: over the whole file; whoever asks finds in its table what was walked before."""

    __slots__ = ("file", "scanner")

    def __init__(self, path: str, base_offset: int, drop_cache: bool) -> None:
        self.file = MappedFile(path, drop_cache)
        self.scanner = Scanner(self.file.view, base_offset)


class Desk:
    """Holds the log that was opened last."""

    def __init__(self) -> None:
        self._log: OpenLog | None = None

    def open(self, path: str, base_offset: int, drop_cache: bool = False) -> OpenLog:
        """The log at `path`, opened now; the one before it is closed. Raises UnreadableInput."""
        self.clear()
        self._log = OpenLog(path, base_offset, drop_cache)
        return self._log

    def look_up(self, path: str, base_offset: int, drop_cache: bool = False) -> OpenLog:
        """The log at `path`, as it lies here unless it has changed since. Raises UnreadableInput."""
        held = self._log
        if held is not None and held.file.path == path and _is_unchanged(held.file):
            return held
        return self.open(path, base_offset, drop_cache)

    def clear(self) -> None:
        """Close what is open."""
        if self._log is not None:
            file = self._log.file
            self._log = None  # the scanner looks into the map, which can only be closed without it
            file.close()


def _is_unchanged(file: MappedFile) -> bool:
    try:
        return file.is_still(os.stat(file.path))
    except OSError:
        return False
