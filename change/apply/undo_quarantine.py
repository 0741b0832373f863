"""Keeps what an undo removes from a directory, if only an unsigned journal claims that kseg had written it.

Such a journal may have been planted (module journal_signature): the bytes that it makes an undo remove can be the only copy of the
log. So before a file is removed or replaced it gets a hard link, which takes no space, and truncated tails are copied:

    <directory>/kseg-undone-<id>-<name>.kept                    a file
    <directory>/kseg-undone-<id>-<name>.from-<position>.kept    the tail that was truncated from this position on

Nothing is overwritten: if a name is taken, a number is appended. If a file system lacks the space for the whole tail, it is moved
piece by piece, from the end, so that the space for one piece is enough.
"""

import errno
import itertools
import os
import stat

from kseg.change.apply.disk import Disk, closing
from kseg.change.apply.file_operations import COPY_BYTES, copy, is_same_file, link_or_copy
from kseg.change.apply.journal import Journal
from kseg.change.apply.keeping import DECIDED
from kseg.change.apply.proof import is_copy
from kseg.change.apply.room import Room, refuse_without, rooms_for
from kseg.segment.partition.names import UNDONE_PREFIX

_KEPT = ".kept"  # a broker does not treat a file of this name as part of a log


class UndoQuarantine:
    """Keeps what the undo of one journal removes; does nothing if the journal is signed. Methods raise OSError."""

    def __init__(self, journal: Journal, disk: Disk) -> None:
        self._is_needed = not journal.is_signed
        self._directory = journal.location.directory
        self._prefix = f"{UNDONE_PREFIX}{journal.location.id}-"
        self._disk = disk

    def paths(self) -> tuple[str, ...]:
        """The kept files, also those of an undo of the same journal that was killed."""
        if not self._is_needed:
            return ()
        names = [name for name in self._disk.names(self._directory) if name.startswith(self._prefix)]
        return tuple(os.path.join(self._directory, name) for name in names)

    def check_room(self, cut_off_bytes: int) -> None:
        """Raises Refused if there is not enough space to keep what will be truncated."""
        if self._is_needed and cut_off_bytes:
            rooms = rooms_for([(self._directory, min(cut_off_bytes, COPY_BYTES))])
            refuse_without(rooms, self._directory, DECIDED)

    def keep(self, path: str, name: str) -> None:
        """Give a file that is about to be removed or replaced a hard link."""
        disk, status = self._disk, self._disk.status(path)
        if not self._is_needed or status is None or stat.S_ISDIR(status.st_mode):
            return
        for number in itertools.count():
            kept = self._path(name, number)
            there = disk.status(kept)
            if there is None:
                link_or_copy(disk, path, kept)
                disk.sync_directory(self._directory)
                return
            if is_same_file(there, status):
                return

    def cut(self, path: str, name: str, position: int) -> None:
        """Truncate a file to `position`, and keep the tail. A killed undo may have kept it already."""
        disk = self._disk
        with closing(disk, disk.open_to_write(path)) as descriptor:
            end = os.fstat(descriptor).st_size
            if end < position:
                raise OSError(errno.EIO, "the file was truncated in the meantime", path)
            length = COPY_BYTES
            if not self._is_needed or all(room.is_enough for room in self._rooms(end - position)):
                length = max(1, end - position)
            while self._is_needed and end > position:
                start = max(position, end - length)
                self._copy(path, descriptor, name, start, end - start)
                disk.truncate(descriptor, start)
                disk.sync(descriptor)
                end = start
            disk.truncate(descriptor, position)
            disk.sync(descriptor)

    def _rooms(self, length: int) -> tuple[Room, ...]:
        return rooms_for([(self._directory, length)])

    def _copy(self, path: str, source: int, name: str, position: int, length: int) -> None:
        disk = self._disk
        for number in itertools.count():
            kept = self._path(f"{name}.from-{position}", number)
            status = disk.status(kept)
            if status is None:
                break
            if stat.S_ISREG(status.st_mode) and is_copy(kept, path, position, disk):
                disk.unlink(kept)  # a killed undo had begun to copy it
                break
        with closing(disk, disk.create(kept)) as target:
            copy(disk, source, position, length, target, 0)
            disk.sync(target)
        disk.sync_directory(self._directory)

    def _path(self, name: str, number: int) -> str:
        again = f".{number}" if number else ""
        return os.path.join(self._directory, f"{self._prefix}{name}{again}{_KEPT}")
