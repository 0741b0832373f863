"""A journal for a command that writes a stream into a directory, and so has no plan: `append`.

1. Before anything is written the journal notes every file as found, and copies of the small files that will be
   replaced go into its quarantine; then `staged`: from here on the directory may change.
2. A name that was not there is noted before the file is made.
3. `done` notes what the touched files are like at the end.

The way back cuts files that grew, brings back those that were replaced, and removes those that are new. What a killed
command wrote can also be kept: the journal is then closed as the directory lies.

A file that has a second name elsewhere (a hard link) is refused: what is written to it would appear there too.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from kseg.segment.apply.change import (
    abandon,
    clear_guard,
    clear_the_way,
    give_back_time,
    half_done_sentence,
    quarantine_open,
)
from kseg.segment.apply.course import Seen, is_alike
from kseg.segment.apply.disk import (
    DISK,
    Disk,
    checksum,
    copy_file,
    make_directories,
    remove_if_empty,
    remove_quietly,
)
from kseg.segment.apply.elsewhere import check_place
from kseg.segment.apply.journal import (
    Journal,
    Place,
    State,
    append,
    begin,
    place_for,
    put_elsewhere,
    read_journal,
    sync_names,
)
from kseg.segment.apply.journal_lines import GUARD
from kseg.segment.apply.keeping import Keeping
from kseg.segment.apply.lock import claimed_by_command
from kseg.segment.apply.proof import check_disposable, has_other_names, is_copy
from kseg.segment.apply.room import out_of_room
from kseg.segment.apply.staging import look
from kseg.segment.errors import FormatError, KsegError, Refused


class Guard:
    """The journal of one directory while a command writes into it; a context manager.

    Left without `done` (an exception) it stays half done, and the user is told both ways. Raises Refused when the
    journal cannot be written; then nothing has changed yet, or the sentence says how to go on.
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
        partitions: Sequence[str] = (),
        new_partitions: Sequence[str] = (),
        quarantine: str | None = None,
        journal_dir: str | None = None,
        disk: Disk = DISK,
    ) -> None:
        """grows: files that are there and will only grow. replaces: those that may change anywhere, or go. creates:
        names that are not there. is_new: the directory was made for this, and goes with its way back. in_log_dir:
        whether it is a data directory; None: what it holds tells. partitions: for the journal of a data directory,
        the names of the partitions that change with it, and are undone with it. new_partitions: those of them that are
        not there yet. quarantine, journal_dir: directories elsewhere (`executor.apply_plan`). The lock of the data directory is the caller's."""
        self._disk = disk
        self._stack = ExitStack()
        self._created: set[str] = set()
        self._grows = sorted(set(grows))
        self._replaces = sorted(set(replaces))
        self._is_new, self._partitions = is_new, list(partitions)
        self._new_partitions = list(new_partitions)
        place = (
            place_for(directory, journal_id)
            if in_log_dir is None
            else Place(directory, journal_id, in_log_dir=in_log_dir)
        )
        self.place = put_elsewhere(place, journal_dir, disk)
        self._elsewhere: str | None = None
        if quarantine is not None:
            check_place(quarantine, directory, "quarantine")
            self._elsewhere = place.elsewhere(quarantine, disk)
        try:
            self._stack.enter_context(claimed_by_command(directory, disk.follow_links))
            clear_the_way(directory, disk)
            self._journal = self._begun(command)
            for name in creates:
                self.will_create(name)
        except BaseException as error:
            self._stack.close()
            if isinstance(error, OSError):
                more = out_of_room(error, (), Keeping(journal_dir, quarantine))
                raise _refused(directory, error, f"nothing was changed{more}") from error
            raise

    @property
    def journal(self) -> str:
        return self.place.journal

    def _begun(self, command: str) -> Journal:
        disk, place = self._disk, self.place
        status = disk.status(place.directory)
        assert status is not None  # it is claimed
        found = look(place.directory, disk)
        for name in (*self._grows, *self._replaces):
            if name not in found:
                raise Refused(
                    f"{place.target(name)} is no file that could be written to; nothing was changed"
                )
        for name in self._grows:
            itself = disk.status(place.target(name))
            if itself is not None and itself.st_nlink > 1:
                raise Refused(
                    f"{place.target(name)} has a second name elsewhere (a hard link), which would grow too; "
                    "nothing was changed"
                )
        header = {
            "id": place.id,
            "kind": GUARD,
            "command": command,
            "directory": place.directory if place.home is None else os.path.abspath(place.directory),
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
            journal = begin(place, header, disk)
            if self._elsewhere is not None:
                make_directories(self._elsewhere, disk)
            kept = {}
            for name in self._replaces:
                path = kept_path(place, self._elsewhere, name)
                kept[name] = copy_file(disk, place.target(name), path)
            sync_names(place, disk)
            if self._elsewhere is not None:
                disk.sync_directory(self._elsewhere)
            return append(journal, {"type": "staged", "kept": kept}, disk)
        except BaseException:
            _roll_back(self.place, disk)
            raise

    def will_create(self, name: str) -> None:
        """Note a name before its file is made (also one that a replaced file is renamed to)."""
        if name not in self._created:
            self._note({"type": "create", "name": name})
            self._created.add(name)

    def done(self) -> None:
        """Everything is written and synced."""
        found = look(self.place.directory, self._disk)
        files = [[name, *_numbers(seen)] for name, seen in found.items()]
        self._note({"type": "done", "files": files})

    def _note(self, line: Mapping[str, object]) -> None:
        try:
            self._journal = append(self._journal, line, self._disk)
        except OSError as error:
            raise Refused(f"{error.strerror}; {half_done_sentence(self._journal)}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def let_go(self) -> None:
        """Write no more: whoever undoes the journal of the data directory undoes this one too."""
        self._stack.close()

    def take_back(self) -> None:
        """Undo everything at once, instead of leaving the journal half done."""
        from kseg.segment.apply.undo import undo

        self.let_go()
        undo(self.place, self._disk)


def kept_path(place: Place, elsewhere: str | None, name: str) -> str:
    """Where the copy of a file that is replaced lies."""
    return place.old(name) if elsewhere is None else os.path.join(elsewhere, name)


def _refused(directory: str, error: OSError, stands: str) -> Refused:
    where = directory if error.filename is None else error.filename
    return Refused(f"cannot change {where}: {error.strerror}; {stands}")


def _roll_back(place: Place, disk: Disk) -> None:
    """Clear the journal away; what cannot be cleared now the next run clears."""
    with suppress(OSError, KsegError):
        journal = read_journal(place, disk)
        if journal.state is State.ABANDONED:
            abandon(journal, disk)


def _numbers(seen: Seen) -> tuple[int, int, int]:
    return seen.size_bytes, seen.mtime_ns, seen.inode


def _seen_by_name(rows: Iterable[Sequence[int]]) -> dict[str, Seen]:
    """From the journal's lists. Raises ValueError or TypeError for lists that are none of ours."""
    found = {}
    for name, size_bytes, mtime_ns, inode in rows:
        found[str(name)] = Seen(int(inode), int(size_bytes), int(mtime_ns))
    return found


def keep(journal: Journal, disk: Disk) -> None:
    """Close a half-done journal with the directory as it lies. Needs the claim. Raises Refused."""
    try:
        files = [[name, *_numbers(seen)] for name, seen in look(journal.place.directory, disk).items()]
        append(journal, {"type": "done", "files": files}, disk)
    except OSError as error:
        raise _refused(journal.place.directory, error, "nothing was changed") from error


class GuardWayBack:
    """The way back of what a guarded command wrote (the protocol `undo.WayBack`)."""

    def __init__(self, journal: Journal, disk: Disk) -> None:
        self._journal = journal
        self._place = journal.place
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
        except (KeyError, ValueError, TypeError, FormatError) as error:
            raise Refused(f"{journal.path} is no journal that can be followed: {error}") from error

    def files(self) -> Iterator[str]:
        yield from (*self._grows, *self._kept, *self._created)

    def check(self) -> None:
        actual = look(self._place.directory, self._disk)
        done = self._journal.line("done")
        if self._journal.state is State.DONE and done is not None:
            expected = _seen_by_name(done["files"])
            wrong = [
                name for name in {*actual, *expected} if not is_alike(actual.get(name), expected.get(name))
            ]
        else:
            wrong = [name for name in {*actual, *self._found} if not self._may_be(name, actual.get(name))]
        if wrong:
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            raise Refused(
                f"{self._place.target(min(wrong))}{more} changed since {self._journal.command} was here; "
                f"undoing {self._journal.path} would throw that away"
            )

    def _may_be(self, name: str, seen: Seen | None) -> bool:
        """Whether a file can be what a killed command, or a killed undo, left."""
        found = self._found.get(name)
        if name in self._created or name in self._kept:
            return True
        if name in self._grows and found is not None and seen is not None:
            return seen.inode == found.inode and seen.size_bytes >= found.size_bytes
        return is_alike(seen, found)

    def hold(self) -> dict[str, int]:
        for name in self._grows:
            path = self._place.target(name)
            status = self._disk.status(path)
            if (
                status is None
                or status.st_ino != self._found[name].inode
                or has_other_names(path, (), self._disk)
            ):
                raise Refused(
                    f"cannot undo: {path} is not the file that grew, or has a second name elsewhere (a hard link); "
                    "nothing was changed"
                )
        holders = {}
        for name, crc in self._kept.items():
            path = self._fetched(name, crc)
            status = self._disk.status(path)
            if status is None or self._checksum(path, status.st_size) != crc:
                raise Refused(f"cannot undo: {path} is not what was kept there; nothing was changed")
            holders[name] = status.st_ino
        return holders

    def _fetched(self, name: str, crc: int) -> str:
        """The path beside the journal of what was kept of a file; brought there from a quarantine elsewhere."""
        disk, path = self._disk, self._place.old(name)
        if self._elsewhere is None:
            return path
        source = kept_path(self._place, self._elsewhere, name)
        with quarantine_open(self._journal, self._elsewhere) as is_there:
            if not is_there or disk.status(source) is None:
                raise Refused(f"cannot undo: {source} is gone; nothing was changed")
            if disk.status(path) is not None:  # left by an undo that was killed while it copied
                if not is_copy(path, source, 0, disk):
                    raise Refused(f"cannot undo: {path} is not what was kept there; nothing was changed")
                disk.unlink(path)
            if copy_file(disk, source, path) != crc:
                disk.unlink(path)
                raise Refused(f"cannot undo: {source} is not what was kept there; nothing was changed")
        return path

    def _checksum(self, path: str, size_bytes: int) -> int:
        descriptor = self._disk.open_to_read(path)
        try:
            return checksum(self._disk, descriptor, 0, size_bytes)
        finally:
            self._disk.close(descriptor)

    def restore(self, holders: Mapping[str, int]) -> None:
        disk, place = self._disk, self._place
        for name in self._created:
            if name not in self._found:
                remove_quietly(disk, place.target(name))
        for name in self._kept:
            status = disk.status(place.target(name))
            if status is None or status.st_ino != holders[name]:
                disk.rename(place.old(name), place.target(name))
        for name in self._grows:
            descriptor = disk.open_to_write(place.target(name))
            try:
                disk.truncate(descriptor, self._found[name].size_bytes)
                disk.change_times(place.target(name), self._found[name].mtime_ns)
                disk.sync(descriptor)
            finally:
                disk.close(descriptor)
        disk.sync_directory(place.directory)
        actual = {name: _numbers(seen)[:2] for name, seen in look(place.directory, disk).items()}
        if actual != {name: _numbers(seen)[:2] for name, seen in self._found.items()}:
            raise Refused(f"{place.directory} is not as it was found, though {place.journal} was undone")

    def clear(self) -> None:
        check_disposable(self._journal, self._disk)
        for name in self._new_partitions:  # made, and not yet written to
            remove_if_empty(self._disk, self._place.target(name))
        clear_guard(self._journal, self._disk)
        if self._journal.header.get("is_new") is True:
            with suppress(OSError):  # something else is in it by now
                self._disk.remove_directory(self._place.directory)
                return
        give_back_time(self._journal, self._disk)
