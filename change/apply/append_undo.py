"""The undo of an append: truncate the log to its former end, restore replaced files, remove new ones.

If the journal is genuine, the append itself wrote all that is truncated or removed. A signed journal is trusted with that; with an unsigned
one, all of those bytes are kept (module undo_quarantine).
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from kseg.change.apply.disk import Disk
from kseg.change.apply.file_operations import (
    copy_file,
    give_times,
    has_checksum,
    remove_if_empty,
    remove_quietly,
)
from kseg.change.apply.journal import Journal, JournalState
from kseg.change.apply.journal_lines import LOG_ROLES, last_log
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.proof import check_disposable, has_other_names, is_copy
from kseg.change.apply.recorded_change import clear_guard, quarantine_open, refuse_changed
from kseg.change.apply.staging import look
from kseg.change.apply.step_progress import ObservedFile, is_alike, unlike
from kseg.change.apply.undo_quarantine import UndoQuarantine
from kseg.segment.errors import FormatError, Refused
from kseg.segment.partition.names import parse_file_name


def kept_path(location: JournalLocation, elsewhere: str | None, name: str) -> str:
    """The path of the copy of a replaced file."""
    return location.old(name) if elsewhere is None else os.path.join(elsewhere, name)


def numbers_of(seen: ObservedFile) -> tuple[int, int, int]:
    return seen.size_bytes, seen.mtime_ns, seen.inode


def _seen_by_name(rows: Iterable[Sequence[int]]) -> dict[str, ObservedFile]:
    """The files in the journal's lists, by name. Raises ValueError or TypeError for lists that kseg does not write."""
    found = {}
    for name, size_bytes, mtime_ns, inode in rows:
        found[str(name)] = ObservedFile(int(inode), int(size_bytes), int(mtime_ns))
    return found


class AppendUndo:
    """Undo of an append (implements `undo.DirectoryUndo`)."""

    def __init__(self, journal: Journal, disk: Disk) -> None:
        self._journal = journal
        self._location = journal.location
        self._disk = disk
        try:
            header = journal.header
            self._found = _seen_by_name(header["inputs"])
            self._grows = [name for name in header["grows"] if name in self._found]
            self._created = [str(line["name"]) for line in journal.lines if line["type"] == "create"]
            self._new_partitions = [str(name) for name in header.get("new_partitions", ())]
            kept = (journal.line("staged") or {}).get("kept", {})
            self._kept = {str(name): int(crc) for name, crc in kept.items() if name in self._found}
            self._elsewhere = journal.elsewhere(disk)
            self.quarantine = UndoQuarantine(journal, disk)
            self._check_names()
        except (KeyError, ValueError, TypeError, FormatError) as error:
            raise Refused(f"{journal.path} is not a valid kseg journal: {error}") from error

    def _check_names(self) -> None:
        """Raises ValueError for names that no append records."""
        last = last_log(self._found)
        for name in self._created:
            if name in self._found:
                raise ValueError(f"{name} existed and was created")
            is_log = parse_file_name(name).role in LOG_ROLES
            if is_log and last is not None and last_log((last, name)) == last:
                raise ValueError(f"{name} was made before {last}, the last log")
        if not self._kept.keys() <= {*self._journal.header["replaces"]}:
            raise ValueError("it kept other files than those that were replaced")
        if self._journal.line("undoing") is not None and self._journal.holders.keys() != self._kept.keys():
            raise ValueError("its undo puts back other files than those that were kept")

    def files(self) -> Iterator[str]:
        yield from (*self._grows, *self._kept, *self._created)

    def check(self) -> None:
        actual = look(self._location.directory, self._disk)
        done = self._journal.line("done")
        if self._journal.state is JournalState.DONE and done is not None:
            expected = _seen_by_name(done["files"])
            wrong = unlike(actual, expected)
        else:
            wrong = [name for name in {*actual, *self._found} if not self._may_be(name, actual.get(name))]
        refuse_changed(self._journal, wrong)

    def _may_be(self, name: str, seen: ObservedFile | None) -> bool:
        """Whether a file can be the result of a killed append or a killed undo."""
        found = self._found.get(name)
        if name in self._created or name in self._kept:
            return True
        if name in self._grows and found is not None and seen is not None:
            return seen.inode == found.inode and seen.size_bytes >= found.size_bytes
        return is_alike(seen, found)

    def hold(self) -> dict[str, int]:
        self._check_grown()
        sizes = {name: self._disk.status(self._location.target(name)) for name in self._grows}
        self.quarantine.check_room(
            sum(s.st_size - self._found[name].size_bytes for name, s in sizes.items() if s is not None)
        )
        holders = {}
        for name, crc in self._kept.items():
            path = self._fetched(name, crc)
            status = self._disk.status(path)
            if status is None or not has_checksum(path, status.st_size, crc, self._disk):
                raise Refused(f"cannot undo: {path} is not what was kept there; nothing was changed")
            holders[name] = status.st_ino
        return holders

    def _check_grown(self) -> None:
        """Raises Refused for a file that cannot be truncated safely."""
        for name in self._grows:
            path, found = self._location.target(name), self._found[name]
            status = self._disk.status(path)
            if (
                status is None
                or status.st_ino != found.inode
                or status.st_size < found.size_bytes
                or has_other_names(path, (), self._disk)
            ):
                raise Refused(
                    f"cannot undo: {path} is not the file that grew, or has a second name elsewhere (a hard link); "
                    "nothing was changed"
                )

    def _fetched(self, name: str, crc: int) -> str:
        """The path of a kept file next to the journal; copied there first from a quarantine elsewhere."""
        disk, path = self._disk, self._location.old(name)
        if self._elsewhere is None:
            return path
        source = kept_path(self._location, self._elsewhere, name)
        with quarantine_open(self._journal, self._elsewhere) as is_there:
            if not is_there or disk.status(source) is None:
                raise Refused(f"cannot undo: {source} is gone; nothing was changed")
            if disk.status(path) is not None:  # left by an undo that was killed while copying
                if not is_copy(path, source, 0, disk):
                    raise Refused(f"cannot undo: {path} is not what was kept there; nothing was changed")
                disk.unlink(path)
            if copy_file(disk, source, path) != crc:
                disk.unlink(path)
                raise Refused(f"cannot undo: {source} is not what was kept there; nothing was changed")
        return path

    def restore(self, holders: Mapping[str, int]) -> None:
        disk, location, quarantine = self._disk, self._location, self.quarantine
        self._check_grown()
        for name in self._created:
            quarantine.keep(location.target(name), name)
            remove_quietly(disk, location.target(name))
        for name in self._kept:
            status = disk.status(location.target(name))
            if status is None or status.st_ino != holders[name]:
                quarantine.keep(location.target(name), name)
                disk.rename(location.old(name), location.target(name))
        for name in self._grows:
            quarantine.cut(location.target(name), name, self._found[name].size_bytes)
            give_times(disk, location.target(name), self._found[name].mtime_ns)
        disk.sync_directory(location.directory)
        actual = {name: numbers_of(seen)[:2] for name, seen in look(location.directory, disk).items()}
        if actual != {name: numbers_of(seen)[:2] for name, seen in self._found.items()}:
            raise Refused(
                f"{location.directory} is not as it was found, though {location.journal} was undone"
            )

    def clear(self) -> None:
        check_disposable(self._journal, self._disk)
        for name in self._new_partitions:  # created, but not written yet
            remove_if_empty(self._disk, self._location.target(name))
        clear_guard(self._journal, self._disk)
        if self._journal.header.get("is_new") is True:
            with suppress(OSError):  # it contains something else by now
                self._disk.remove_directory(self._location.directory)
