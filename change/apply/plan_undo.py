"""Undo of a planned change: restore every file under its original name, and remove what the steps made."""

import os
import stat
from collections.abc import Iterator, Mapping

from kseg.change.apply.disk import Disk, closing
from kseg.change.apply.file_operations import (
    checksum,
    copy,
    copy_file,
    give_times,
    is_same_file,
    link_or_copy,
    remove_quietly,
)
from kseg.change.apply.journal import Journal, JournalState
from kseg.change.apply.proof import check_removable, has_other_names, is_copy, may_grow
from kseg.change.apply.recorded_change import change_of, half_done_sentence, refuse_changed
from kseg.change.apply.staging import Staged, look, tail_path
from kseg.change.apply.step_progress import Tail, unlike
from kseg.change.apply.undo_quarantine import UndoQuarantine
from kseg.segment.errors import Refused


class PlanUndo:
    """Undo of a planned change (implements `undo.DirectoryUndo`)."""

    def __init__(self, journal: Journal, disk: Disk) -> None:
        change = change_of(journal, disk)
        assert change.staged is not None
        self._change = change
        self._staged: Staged = change.staged
        self._course = change.progress
        self._location = journal.location
        self._disk = disk
        self.quarantine = UndoQuarantine(journal, disk)
        self._tails: dict[str, list[Tail]] = {}
        for tail in change.progress.tails:
            if tail.length:
                self._tails.setdefault(tail.name, []).append(tail)

    def files(self) -> Iterator[str]:
        yield from self._course.touched
        yield from self._course.made

    # --- checks

    def check(self) -> None:
        actual = look(self._location.directory, self._disk)
        journal = self._change.journal
        if journal.state is not JournalState.DONE:
            if self._change.off_the_way(actual):
                raise Refused(half_done_sentence(journal))
            return
        expected = self._course.end_state(self._staged.files)
        refuse_changed(journal, unlike(actual, expected))

    def hold(self) -> dict[str, int]:
        with self._change.quarantine_elsewhere():
            return self._held()

    def _held(self) -> dict[str, int]:
        for tails in self._tails.values():
            for tail in tails:
                self._check_tail(tail)
        made: list[str] = []
        try:
            now = self._survivors()
            holders = {name: self._hold(name, now.get(name), made) for name in self._course.touched}
            for path in self._location.directories[-1:] or (self._location.directory,):
                self._disk.sync_directory(path)
            check_removable(self._location, self._course, self._staged, holders, self._disk)
        except BaseException:
            for path in made:
                remove_quietly(self._disk, path)
            raise
        return holders

    def _check_tail(self, tail: Tail) -> None:
        path = tail_path(self._location, self._change.elsewhere, tail.name, tail.position)
        try:
            with closing(self._disk, self._disk.open_to_read(path)) as descriptor:
                crc = checksum(self._disk, descriptor, 0, tail.length)
        except OSError as error:
            raise Refused(f"cannot undo: {path}: {error.strerror}; nothing was changed") from error
        if crc != self._staged.tails[tail.number]:
            raise Refused(f"cannot undo: {path} is not what was removed; nothing was changed")

    def _survivors(self) -> dict[str, str]:
        """The current names of the found files that are in the directory."""
        if self._change.journal.state is JournalState.DONE:
            return self._course.survivors
        actual = look(self._location.directory, self._disk)
        names = {seen.inode: name for name, seen in actual.items()}
        return {name: names[file.inode] for name, file in self._course.inputs.items() if file.inode in names}

    def _hold(self, name: str, now: str | None, made: list[str]) -> int:
        """Make sure that the quarantine next to the journal has an original file; returns its inode there. now: its name in the
        directory, None if it is not there."""
        disk, path, found = self._disk, self._location.old(name), self._course.inputs[name]
        status = disk.status(path)
        is_copied = name in self._staged.copied
        if (
            status is not None
            and stat.S_ISREG(status.st_mode)
            and not is_copied
            and status.st_ino in (found.inode, self._staged.kept.get(name))
        ):
            is_as_found = (status.st_size, status.st_mtime_ns) == (found.size_bytes, found.mtime_ns)
            if not is_as_found and name not in self._tails:
                raise Refused(f"cannot undo: {path} is not what was removed; nothing was changed")
            if now is None or not self._needs_own_file(name, path):
                return status.st_ino
            disk.unlink(path)
            status = None
        if is_copied and self._change.elsewhere is not None:
            source = os.path.join(self._change.elsewhere, name)
        elif now is not None:
            source = self._location.target(now)
        else:
            raise Refused(f"cannot undo: {path} is gone; nothing was changed")
        if status is not None:  # left by an undo that was killed while copying
            if not stat.S_ISREG(status.st_mode) or not is_copy(path, source, 0, disk):
                raise Refused(f"cannot undo: {path} is not what was removed; nothing was changed")
            disk.unlink(path)
        made.append(path)
        if not is_copied and self._needs_own_file(name, source):
            copy_file(disk, source, path)  # its end is appended to this copy, and not in the backup too
        elif not is_copied:
            return link_or_copy(disk, source, path)
        else:
            self._copy_back(name, source, path)
        held = disk.status(path)
        return -1 if held is None else held.st_ino

    def _copy_back(self, name: str, source: str, path: str) -> None:
        """Copy a file from a quarantine elsewhere."""
        if copy_file(self._disk, source, path) != self._staged.copied[name]:
            raise Refused(f"cannot undo: {source} is not what was removed; nothing was changed")

    def _needs_own_file(self, name: str, path: str) -> bool:
        """Whether a log that was truncated is in a backup as well, in which its end must not appear. Who presents an unsigned journal may
        have linked the log, so with one the undo is refused when the end would be appended."""
        is_trusted = self._change.journal.is_signed
        return is_trusted and name in self._tails and self._is_linked_elsewhere(name, path)

    def _is_linked_elsewhere(self, name: str, path: str) -> bool:
        """Whether a file that was truncated has a name that this change does not know (a backup made with `cp -l`)."""
        names = map(self._location.target, (*self._course.touched, *self._course.made))
        return has_other_names(path, (self._location.old(name), *names), self._disk)

    # --- after the commit

    def restore(self, holders: Mapping[str, int]) -> None:
        if self._change.journal.state is JournalState.UNDOING:  # otherwise `hold` has just checked
            check_removable(self._location, self._course, self._staged, holders, self._disk)
        with self._change.quarantine_elsewhere():
            self._restore(holders)

    def _restore(self, holders: Mapping[str, int]) -> None:
        disk = self._disk
        inodes = {**holders}
        restored = {*holders.values()}
        for name in self._course.touched:
            target, holder = self._location.target(name), self._location.old(name)
            here, held = disk.status(target), disk.status(holder)
            is_there = here is not None and (
                here.st_ino == holders[name] if held is None else is_same_file(here, held)
            )
            if here is not None and is_there:
                inodes[name] = here.st_ino  # its hard link may report another (`is_same_file`)
                restored.add(here.st_ino)
            path = target if is_there else holder
            for tail in self._tails.get(name, ()):
                self._append_tail(tail, path)
            mtime_ns = self._course.inputs[name].mtime_ns
            if name in self._tails:
                give_times(disk, path, mtime_ns)
            else:
                disk.change_times(path, mtime_ns)
            if not is_there:
                self._keep(name, restored)
                disk.rename(holder, target)
        for name in self._course.made:
            self._keep(name, restored)
            remove_quietly(disk, self._location.target(name))
        disk.sync_directory(self._location.directory)
        if not self._is_restored_by(inodes):
            journal = self._location.journal
            raise Refused(f"{self._location.directory} is not as it was found, though {journal} was undone")

    def _keep(self, name: str, restored: set[int]) -> None:
        """Keep the file under a name before it is removed or replaced, unless it is one of the restored files."""
        status = self._disk.status(self._location.target(name))
        if status is not None and status.st_ino not in restored:
            self.quarantine.keep(self._location.target(name), name)

    def _is_restored_by(self, holders: Mapping[str, int]) -> bool:
        """Whether every file is as found; the inode distinguishes a touched file from its replacement."""
        actual = look(self._location.directory, self._disk)
        return actual.keys() == self._course.inputs.keys() and all(
            (seen.size_bytes, seen.mtime_ns) == (file.size_bytes, file.mtime_ns)
            and seen.inode == holders.get(name, seen.inode)
            for name, seen in actual.items()
            for file in (self._course.inputs[name],)
        )

    def _append_tail(self, tail: Tail, path: str) -> None:
        disk = self._disk
        tail_file = tail_path(self._location, self._change.elsewhere, tail.name, tail.position)
        if not may_grow(path, tail_file, tail.position, disk):
            raise Refused(f"cannot undo: {path} continues with other bytes than {tail_file}")
        if self._is_linked_elsewhere(tail.name, path):
            raise Refused(
                f"cannot undo: {path} has a second name elsewhere (a hard link), which would grow too"
            )
        with (
            closing(disk, disk.open_to_read(tail_file)) as source,
            closing(disk, disk.open_to_write(path)) as target,
        ):
            copy(disk, source, 0, tail.length, target, tail.position)
            disk.sync(target)

    def clear(self) -> None:
        self._change.clear(self._disk)
