"""The journal of a run that makes changed copies (--output): the same command continues from it, `undo` removes the copies.

It is in the output directory, like the journal of a data directory, and is written before anything else:

    journal, staged   the command; whether the output, and which directories above it, were made for this
    copy              before a copy gets its name: that name, and inode, size and time of everything in it; for files in a
                      directory that already exists also those that they replace, which are kept beside the journal
    done              every copy is there
    undoing, undone   as in every journal

Several processes make copies at a time; each appends whole lines, one at a time. Undo removes only what a line describes, and directories
with the names that only this run uses while a copy is incomplete. If a copy was changed since, nothing is removed.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from kseg.change.apply.disk import DISK, Disk, closing
from kseg.change.apply.elsewhere import PREFIX
from kseg.change.apply.file_operations import (
    link_or_copy,
    remove_if_empty,
    remove_quietly,
    remove_with_files,
    write_all,
)
from kseg.change.apply.journal import Journal, JournalState, read_journal
from kseg.change.apply.journal_lines import Line, encoded
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.lock import SHARED_LOCK
from kseg.change.apply.undo_quarantine import UndoQuarantine
from kseg.segment.errors import Refused

_Row = tuple[str, int, int, int]


def clear_begun(output: str) -> list[str]:
    """Remove what killed runs left of an output that was never completed; returns the removed paths. Raises OSError."""
    output = os.path.abspath(output)
    made = missing_parents(output, DISK)
    return (
        BegunOutput(made[-1], JournalLocation(output, "", in_log_dir=True)).clear_others(DISK) if made else []
    )


class BegunOutput:
    """A new output directory is created under another name and gets its own together with its journal: a kill
    between the two would leave a directory of unknown origin. top: the outermost directory to be created."""

    def __init__(self, top: str, location: JournalLocation) -> None:
        self.top = top
        self._before = f".{os.path.basename(top)}{aside(None)}"
        self.folder = os.path.join(os.path.dirname(top), f".{os.path.basename(top)}{aside(location)}begun")

    def path(self, path: str) -> str:
        """Where the directory of this final path is while incomplete."""
        return self.folder + path[len(self.top) :]

    def clear_others(self, disk: Disk) -> list[str]:
        """Remove what killed runs left; returns what was removed. Raises OSError."""
        parent = os.path.dirname(self.top)
        names = disk.names(parent)
        begun = [name for name in names if name.startswith(self._before) and name.endswith("-begun")]
        left = [os.path.join(parent, name) for name in begun]
        for folder in left:
            self._remove(folder, disk)
        return left

    def _remove(self, folder: str, disk: Disk) -> None:
        status = disk.status(folder)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return
        for name in disk.names(folder):
            if name.startswith(PREFIX):
                disk.unlink(os.path.join(folder, name))
            else:
                self._remove(os.path.join(folder, name), disk)
        remove_if_empty(disk, folder)


def aside(location: JournalLocation | None) -> str:
    """The suffix of the name of an incomplete copy."""
    return ".kseg-" if location is None else f".kseg-{location.id}-"


def note_copy(
    location: JournalLocation, target: str, folder: str, names: Sequence[str] | None, disk: Disk
) -> None:
    """Record that a copy, or only these files of it, is complete in `folder` and about to be renamed to `target`. Raises
    OSError."""
    status = disk.status(folder)
    inode = 0 if status is None else status.st_ino
    files = [_row(name, folder, disk) for name in (disk.names(folder) if names is None else names)]
    line = {
        "type": "copy",
        "name": os.path.relpath(target, location.directory),
        "is_whole": names is None,
        "inode": inode,
        "files": files,
        "over": [] if names is None else _found(location, target, names, disk),
    }
    _add_line(location, line, disk)


def set_aside(location: JournalLocation, target: str, names: Sequence[str], disk: Disk) -> None:
    """Hard-link the files that are about to be replaced into a directory beside the journal. Raises OSError."""
    for row in _found(location, target, names, disk):
        if disk.status(_kept(location, row)) is None:
            link_or_copy(disk, os.path.join(target, row[0]), _kept(location, row))


def _found(location: JournalLocation, target: str, names: Sequence[str], disk: Disk) -> list[_Row]:
    """Files of a directory that do not belong to this run."""
    ours = _known([line for line in read_journal(location, disk).lines if line["type"] == "copy"])
    lying = set(disk.names(target))
    return [row for name in names if name in lying and (row := _row(name, target, disk)) not in ours]


def _kept(location: JournalLocation, row: _Row) -> str:
    return location.old(f"{row[3]:x}-{row[0]}")


def _row(name: str, folder: str, disk: Disk) -> _Row:
    status = disk.status(os.path.join(folder, name))
    if status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.path.join(folder, name))
    return name, status.st_size, status.st_mtime_ns, status.st_ino


def _add_line(location: JournalLocation, line: Line, disk: Disk) -> None:
    """Append to the journal, to which other processes append too. A line that does not fit is removed again."""
    with closing(disk, disk.open_to_write(location.journal)) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        end = os.fstat(descriptor).st_size
        before = disk.read(descriptor, end, 0)
        end = before.rfind(b"\n") + 1
        disk.truncate(descriptor, end)  # the rest of a line that a kill left
        try:
            write_all(disk, descriptor, encoded(line, before[:end], is_signed=True), end)
            disk.sync(descriptor)
        except OSError:
            with suppress(OSError):
                disk.truncate(descriptor, end)
            raise


def missing_parents(path: str, disk: Disk) -> list[str]:
    """The missing directories above a path, innermost first."""
    missing = []
    while disk.status(path) is None:
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def _known(lines: Sequence[Line], field: str = "files") -> set[_Row]:
    return {(row[0], row[1], row[2], row[3]) for line in lines for row in line[field]}


class CopyUndo:
    """Undo of --output (implements `undo.DirectoryUndo`): remove the copies."""

    def __init__(self, journal: Journal, disk: Disk) -> None:
        self._journal = journal
        self._location = journal.location
        self._disk = disk
        self._made = [str(path) for path in journal.header.get("made", ())]
        self.quarantine = UndoQuarantine(journal, disk)
        # several attempts at one copy have a line each; only one of them got the name
        self._copies: dict[str, list[Line]] = {}
        for line in journal.lines:
            if line["type"] == "copy":
                self._copies.setdefault(str(line["name"]), []).append(line)

    def files(self) -> Iterator[str]:
        yield from self._copies

    def check(self) -> None:
        for name in self._copies:
            files, _ = self._ours(name)
            for row in _known(self._copies[name], "over"):
                if row[0] in files:
                    self._check_kept(row)

    def hold(self) -> dict[str, int]:
        return {}

    def restore(self, holders: Mapping[str, int]) -> None:
        disk, output = self._disk, self._location.directory
        around = set()
        for name in self._copies:
            target = os.path.join(output, name)
            files, is_whole = self._ours(name)
            replaced = {row[0]: _kept(self._location, row) for row in _known(self._copies[name], "over")}
            for file in files:
                self._keep(os.path.join(target, file))
                if file in replaced and disk.status(replaced[file]) is not None:
                    disk.rename(replaced[file], os.path.join(target, file))
                else:
                    remove_quietly(disk, os.path.join(target, file))
            for path in replaced.values():  # kept versions of files that were not replaced yet
                self._keep(path)
                remove_quietly(disk, path)
            if is_whole:
                disk.remove_directory(target)
                around.add(os.path.dirname(target))
            else:
                around.add(target)
        for folder in (output, *self._nested()):
            for name in disk.names(folder):
                if (
                    name.startswith(".")
                    and aside(self._location) in name
                    and self._is_directory(folder, name)
                ):
                    for file in disk.names(os.path.join(folder, name)):
                        self._keep(os.path.join(folder, name, file))
                    remove_with_files(disk, os.path.join(folder, name))
        for folder in {*around, *self._nested()}:
            if os.path.normpath(folder) != output:
                remove_if_empty(disk, folder)
        disk.sync_directory(output)

    def clear(self) -> None:
        disk, directory = self._disk, self._location.directory
        disk.unlink(self._location.journal)
        if self._made:
            self._clear_lock()
        for path in self._made:
            with suppress(OSError):  # it contains files of others
                disk.remove_directory(path)
        mtime_ns = self._journal.header.get("directory_mtime_ns")
        if isinstance(mtime_ns, int):
            with suppress(OSError):
                disk.change_times(directory, mtime_ns)

    def _clear_lock(self) -> None:
        """Remove the lock file of a cluster run that was killed."""
        path = os.path.join(self._location.directory, SHARED_LOCK)
        status = self._disk.file_status(path)
        if status is not None and not status.st_size:
            remove_quietly(self._disk, path)

    def _keep(self, path: str) -> None:
        """Keep a file that is about to be removed, by its inode: files of several directories have the same names."""
        status = self._disk.status(path)
        if status is not None:
            self.quarantine.keep(path, f"{status.st_ino:x}-{os.path.basename(path)}")

    def _nested(self) -> list[str]:
        """The copies of data directories, where there are several."""
        output = self._location.directory
        return [
            os.path.join(output, name)
            for name in self._disk.names(output)
            if not name.startswith(".")
            and self._is_directory(output, name)
            and any(each.startswith(f"{name}/") for each in self._copies)
        ]

    def _is_directory(self, folder: str, name: str) -> bool:
        status = self._disk.status(os.path.join(folder, name))
        return status is not None and stat.S_ISDIR(status.st_mode)

    def _ours(self, name: str) -> tuple[list[str], bool]:
        """(existing files of a copy, whether their directory belongs to it too). Raises Refused if they are not the copy as it
        was made."""
        disk, target = self._disk, os.path.join(self._location.directory, name)
        status = disk.status(target)
        if status is None:
            return [], False
        lines = self._copies[name]
        if not all(line["is_whole"] for line in lines):  # files in a directory that belongs to others
            known, before = _known(lines), _known(lines, "over")
            names = {row[0] for row in known}
            rows = [_row(each, target, disk) for each in disk.names(target) if each in names]
            rows = [row for row in rows if row not in before]  # not replaced yet, or restored already
            return [row[0] for row in rows if self._checked(row, known, target)], False
        ours = [line for line in lines if line["inode"] == status.st_ino]
        if not stat.S_ISDIR(status.st_mode) or not ours:
            # the directory was there before, and no copy got its name
            if self._journal.state is not JournalState.DONE:
                return [], False
            raise self._changed(target)
        known = _known(ours)
        rows = [_row(each, target, disk) for each in disk.names(target)]
        return [row[0] for row in rows if self._checked(row, known, target)], True

    def _check_kept(self, row: _Row) -> None:
        """Raises Refused unless the original of a replaced file is still there."""
        path = _kept(self._location, row)
        status = self._disk.file_status(path)
        if status is None or (status.st_size, status.st_mtime_ns) != (row[1], row[2]):
            raise Refused(f"{path} is not what {self._journal.command} replaced; nothing was changed")

    def _checked(self, row: _Row, known: set[_Row], target: str) -> bool:
        if row not in known:
            raise self._changed(os.path.join(target, row[0]))
        return True

    def _changed(self, path: str) -> Refused:
        return Refused(
            f"{path} changed since {self._journal.command} made it; undoing {self._location.journal} would discard that"
        )
