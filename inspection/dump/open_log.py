"""Keep the log of a segment open between files of a dump, because both of its indexes are compared with it.

A directory is dumped log by log, each followed by its indexes. So the last log stays open: its bytes are read once, its batches
walked once, and their CRCs verified once, as far as its table of batches reaches.
"""

import os
from array import array
from functools import partial

from kseg.segment import header_tables as C
from kseg.segment.files import MappedFile
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import walk
from kseg.segment.partition.names import parse_file_name
from kseg.segment.scanning.header_continuity import HeaderContinuity
from kseg.segment.scanning.scan import Scanner, rows_for
from kseg.segment.storage import places


class OpenLog:
    """An open log. scanner: over the whole file; its table keeps the batches of the last walk."""

    __slots__ = ("file", "scanner")

    def __init__(self, path: str, base_offset: int, drop_cache: bool) -> None:
        self.file = MappedFile(path, drop_cache)
        self.scanner = scanner_of(path, self.file, base_offset)


def scanner_of(path: str, file: MappedFile, base_offset: int) -> Scanner:
    """A scanner of the log at `path`; if damage extends to its end, the next log in its directory provides the following base offset."""
    return Scanner.over(file, base_offset, next_base=partial(_following_base, path, base_offset))


def _following_base(path: str, base_offset: int) -> int | None:
    """The base offset of the next segment, in the same state, in the directory of a log."""
    own = parse_file_name(os.path.basename(path))
    if own.base_offset is None:
        return None
    try:
        names = map(parse_file_name, places.listdir(os.path.dirname(path) or os.curdir))
    except OSError:
        return None
    bases = (name.base_offset for name in names if (name.role, name.state) == (own.role, own.state))
    return min((base for base in bases if base is not None and base > base_offset), default=None)


def catch_up(scanner: Scanner, position: int) -> None:
    """Advance a scanner's offsets over the valid batches before `position`, without computing CRCs."""
    table, reached = Columns(C.BATCH_WIDTH, rows_for(len(scanner.view))), 0
    state = memoryview(array("q", [0, 0]))
    while reached < position:
        state[S.BATCHES_END] = reached
        walk(scanner.view, position, table.cells, table.capacity, state)
        table.count = state[S.BATCHES_COUNT]
        if not table.count:
            return
        scanner.remember_offsets(table)
        reached = state[S.BATCHES_END]


class OpenLogCache:
    """Caches the last log. seen: collected from the headers of the last dumped log."""

    def __init__(self) -> None:
        self._log: OpenLog | None = None
        self.seen: HeaderContinuity | None = None

    def open(self, path: str, base_offset: int, drop_cache: bool = False) -> OpenLog:
        """Open the log at `path` and close the previous one. Raises UnreadableInput."""
        self.clear()
        self._log = OpenLog(path, base_offset, drop_cache)
        return self._log

    def look_up(self, path: str, base_offset: int, drop_cache: bool = False) -> OpenLog:
        """The log at `path`, cached unless the file has changed. Raises UnreadableInput."""
        held = self._log
        if held is not None and held.file.path == path and _is_unchanged(held.file):
            return held
        return self.open(path, base_offset, drop_cache)

    def clear(self) -> None:
        """Close the cached log."""
        if self._log is not None:
            file = self._log.file
            self._log = None  # drops the scanner, whose reference would keep the map from being closed
            file.close()


def _is_unchanged(file: MappedFile) -> bool:
    try:
        return file.is_unchanged(places.stat(file.path))
    except OSError:
        return False
