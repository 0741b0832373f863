"""What lies open between the files of a dump: the log of a segment, which both of its indexes are held against.

A directory is dumped log by log, and behind each log its indexes. So the log that was opened last stays open: its
bytes are read once, its batches walked once, and their checksums judged once, as far as its table of batches reaches.
"""

import os
from functools import partial

from kseg.segment.files import MappedFile
from kseg.segment.partition.names import parse_file_name
from kseg.segment.scanning.scan import Scanner
from kseg.segment.scanning.steadiness import Steadiness


class OpenLog:
    """A log that is open. scanner: over the whole file; whoever asks finds in its table what was walked before."""

    __slots__ = ("file", "scanner")

    def __init__(self, path: str, base_offset: int, drop_cache: bool) -> None:
        self.file = MappedFile(path, drop_cache)
        self.scanner = scanner_of(path, self.file, base_offset)


def scanner_of(path: str, file: MappedFile, base_offset: int) -> Scanner:
    """A scanner of the log at `path`; where damage reaches to its end, the log behind it in its directory is asked for."""
    return Scanner.over(file, base_offset, next_base=partial(_following_base, path, base_offset))


def _following_base(path: str, base_offset: int) -> int | None:
    """The base offset of the next segment of its state in the directory of a log."""
    own = parse_file_name(os.path.basename(path))
    if own.base_offset is None:
        return None
    try:
        names = map(parse_file_name, os.listdir(os.path.dirname(path) or os.curdir))
    except OSError:
        return None
    bases = (name.base_offset for name in names if (name.role, name.state) == (own.role, own.state))
    return min((base for base in bases if base is not None and base > base_offset), default=None)


class Desk:
    """Holds the log that was opened last. seen: what was seen of the headers of the log that was dumped last."""

    def __init__(self) -> None:
        self._log: OpenLog | None = None
        self.seen: Steadiness | None = None

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
