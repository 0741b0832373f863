"""A journal for a command that writes a stream to a directory and therefore has no plan: `append`.

1. Before anything is written the journal records every file as found, and copies of the small files that will be
   replaced go to its quarantine; then the line `staged`: from here on the directory may change.
2. The name of a new file is recorded before the file is created.
3. `done` records the final state of the changed files.

Undo truncates files that grew, restores those that were replaced, and removes new ones. The output of a killed command can also
be kept: the journal is then closed and the directory stays as it is.

A file with a second hard link elsewhere is refused: writes to it would appear there too.
"""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Self

from kseg.change.apply.append_files import temporary_name
from kseg.change.apply.append_undo import kept_path, numbers_of
from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.elsewhere import check_place
from kseg.change.apply.file_operations import copy_file, make_directories
from kseg.change.apply.journal import Journal
from kseg.change.apply.journal_lines import GUARD, Line
from kseg.change.apply.journal_location import JournalLocation, location_for, put_elsewhere
from kseg.change.apply.journal_writer import append, begin, sync_names
from kseg.change.apply.keeping import BESIDE, Keeping
from kseg.change.apply.lock import claimed_by_command
from kseg.change.apply.recorded_change import cannot_change, clear_the_way, roll_back
from kseg.change.apply.room import out_of_room
from kseg.change.apply.staging import look, refuse_flags
from kseg.segment.errors import Refused, disk_words


class Guard:
    """The journal of one directory while a command writes into it; a context manager.

    If the body raises before `done`, the change stays incomplete, and the user is told how to finish or undo it. Raises Refused if the
    journal cannot be written; then nothing has changed yet, or the message explains how to continue.
    """

    def __init__(
        self,
        directory: str,
        command: str,
        *,
        journal_id: str,
        grows: Iterable[str] = (),
        replaces: Iterable[str] = (),
        creates: Iterable[str] = (),
        is_new: bool = False,
        in_log_dir: bool | None = None,
        partitions: Iterable[str] = (),
        new_partitions: Iterable[str] = (),
        keeping: Keeping = BESIDE,
        disk: Disk = DISK,
    ) -> None:
        """grows: existing files that will only grow. replaces: existing files that may change anywhere or be removed; a replacement is
        first written under a temporary name, and replaces any file of that name. creates: names that do not exist yet. is_new: the
        directory was created for this change, and its undo removes it. in_log_dir: whether it is a data directory; None: determined by its
        content. partitions: for the journal of a data directory, the names of the partitions that change with it, and are undone with it.
        new_partitions: those of them that do not exist yet. The caller holds the lock of the data directory."""
        self._disk = disk
        self._stack = ExitStack()
        self._created: set[str] = set()
        self._grows = sorted(set(grows))
        names = set(replaces)
        waiting = {temporary_name(name) for name in names}
        there = {name for name in waiting if os.path.lexists(os.path.join(directory, name))}
        self._replaces = sorted(names | there)
        self._is_new = is_new
        self._partitions, self._new_partitions = sorted(partitions), sorted(new_partitions)
        location = (
            location_for(directory, journal_id)
            if in_log_dir is None
            else JournalLocation(directory, journal_id, in_log_dir=in_log_dir)
        )
        self.location = put_elsewhere(location, keeping.journal_dir, disk)
        self._elsewhere: str | None = None
        self._keeping = keeping
        if keeping.quarantine is not None:
            check_place(keeping.quarantine, directory, "quarantine")
            self._elsewhere = location.elsewhere(keeping.quarantine, disk)
        try:
            self._stack.enter_context(claimed_by_command(directory, disk.follow_links))
            clear_the_way(directory, disk)
            self._journal = self._begun(command)
            for name in sorted({*creates, *(waiting - there)}):
                self.will_create(name)
        except BaseException as error:
            self._stack.close()
            if isinstance(error, OSError):
                more = out_of_room(error, (), keeping)
                raise cannot_change(directory, error, f"nothing was changed{more}") from error
            raise

    @property
    def journal(self) -> str:
        return self.location.journal

    def _begun(self, command: str) -> Journal:
        disk, location = self._disk, self.location
        status = disk.status(location.directory)
        assert status is not None  # it is claimed
        found = look(location.directory, disk)
        for name in (*self._grows, *self._replaces):
            if name not in found:
                raise Refused(
                    f"{location.target(name)} is not a file that can be written to; nothing was changed"
                )
        for name in self._grows:
            itself = disk.status(location.target(name))
            if itself is not None and itself.st_nlink > 1:
                raise Refused(
                    f"{location.target(name)} has a second name elsewhere (a hard link), which would grow too; "
                    "nothing was changed"
                )
        self._keeping.refuse_moved()
        refuse_flags(location.directory, (*self._grows, *self._replaces), disk)
        header = {
            "id": location.id,
            "kind": GUARD,
            "command": command,
            "directory": location.directory if location.home is None else os.path.abspath(location.directory),
            "directory_mtime_ns": status.st_mtime_ns,
            "inputs": [[n, seen.size_bytes, seen.mtime_ns, seen.inode] for n, seen in found.items()],
            "grows": self._grows,
            "replaces": self._replaces,
            "is_new": self._is_new,
            "partitions": self._partitions,
            "new_partitions": self._new_partitions,
            "quarantine": self._elsewhere,
        }
        try:
            journal = begin(location, header, disk)
            if self._elsewhere is not None:
                make_directories(self._elsewhere, disk)
            kept = {}
            for name in self._replaces:
                path = kept_path(location, self._elsewhere, name)
                kept[name] = copy_file(disk, location.target(name), path)
            sync_names(location, disk)
            if self._elsewhere is not None:
                disk.sync_directory(self._elsewhere)
            self._keeping.refuse_moved()
            return append(journal, {"type": "staged", "kept": kept}, disk)
        except BaseException:
            roll_back(self.location, disk)
            raise

    def will_create(self, name: str) -> None:
        """Record a name before its file is created (or a replaced file is renamed to it)."""
        if name not in self._created:
            self._note({"type": "create", "name": name})
            self._created.add(name)

    def done(self) -> None:
        """Record that everything is written and synced."""
        self._note(_done_line(self.location.directory, self._disk))

    def _note(self, line: Line) -> None:
        try:
            self._journal = append(self._journal, line, self._disk)
        except OSError as error:
            raise Refused(
                f"cannot write {self._journal.path}: {error.strerror}{disk_words(error)}"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def release(self) -> None:
        """Close without `done`: undoing the data directory's journal undoes this one too."""
        self._stack.close()

    def roll_back(self) -> None:
        """Undo everything now, instead of leaving the change incomplete."""
        from kseg.change.apply.undo import undo

        self.release()
        undo(self.location, self._disk)


def _done_line(directory: str, disk: Disk) -> Line:
    """The last line of a journal: the directory as it is now."""
    files = [[name, *numbers_of(seen)] for name, seen in look(directory, disk).items()]
    return {"type": "done", "files": files}


def keep(journal: Journal, disk: Disk) -> None:
    """Close the journal of an incomplete change and keep the directory as it is. The caller holds the claim. Raises Refused."""
    try:
        append(journal, _done_line(journal.location.directory, disk), disk)
    except OSError as error:
        raise cannot_change(journal.location.directory, error, "nothing was changed") from error
