"""Read the journal of a change, and the state of the change from it.

Lines, each one JSON object, in this order:

    journal   version, id, kind, command, directory; the files as found, the steps, the findings that led here
              (of an attempt on a cluster also the events emitted so far: module attempts); a nonce (module journal_signature)
    staged    the new files (inode, size, time, CRC-32C) and the content of the quarantine: the change is committed from here on
    done      all steps are done and checked
    undoing   the undo is committed
    undone    everything is restored; only journal and quarantine have to be removed

A journal ends with a complete line: the rest of a torn one is ignored, and truncated by the next write. Without `staged` nothing
has changed yet. `append` writes another kind of journal (module append_journal), and `--output` a third (copy_journal), with the
same first and last lines. Module journal_lines defines valid lines; a journal with any other is not followed.
"""

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum

from kseg.change.apply import elsewhere
from kseg.change.apply.anchors import open_without_links
from kseg.change.apply.disk import DISK, Disk, closing
from kseg.change.apply.journal_lines import LIMIT_BYTES, PLAN, Line, decoded, is_id
from kseg.change.apply.journal_location import JournalLocation, as_pointed
from kseg.change.apply.journal_signature import is_signed, spend
from kseg.segment.errors import FormatError, cannot_read
from kseg.segment.values import dataclass

# a symbolic link, or not a directory, or not a file
NOT_OURS = (errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.EISDIR)


class JournalState(StrEnum):
    """The state of a change."""

    ABANDONED = "abandoned"  # nothing has changed yet, the staged files are unused
    APPLYING = "applying"  # committed and not done
    DONE = "done"
    UNDOING = "undoing"
    UNDONE = "undone"  # only the journal and the quarantine are left
    UNREADABLE = "unreadable"
    OUT_OF_REACH = "out-of-reach"  # kept elsewhere, where nothing was found


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal as read. header: its first line; lines: the others. fault: why it cannot be used. is_signed: whether this user
    wrote all of it on this machine (module journal_signature)."""

    location: JournalLocation
    state: JournalState
    header: Line
    lines: tuple[Line, ...] = ()
    fault: str = ""
    is_signed: bool = False

    @property
    def path(self) -> str:
        return self.location.journal

    @property
    def kind(self) -> str:
        return str(self.header.get("kind", PLAN))

    @property
    def command(self) -> str:
        return str(self.header.get("command", "?"))

    @property
    def is_half_done(self) -> bool:
        return self.state in (
            JournalState.APPLYING,
            JournalState.UNDOING,
            JournalState.UNDONE,
            JournalState.UNREADABLE,
            JournalState.OUT_OF_REACH,
        )

    def line(self, kind: str) -> Line | None:
        """The last line of a kind."""
        return next((line for line in reversed(self.lines) if line["type"] == kind), None)

    @property
    def holders(self) -> dict[str, int]:
        """By name as found, the inode that an undo restores; empty before the undo is committed."""
        line = self.line("undoing") or {}
        return {str(name): int(inode) for name, inode in line.get("holders", {}).items()}

    def elsewhere(self, disk: Disk) -> str | None:
        """The quarantine in another directory. Raises FormatError for a directory that kseg would not create for this one."""
        path = self.header.get("quarantine")
        if path is None:
            return None
        if not elsewhere.is_home(str(path), self.location.id, self.location.inode(disk)):
            raise FormatError(f"it names {path} as its quarantine, which was not made for this directory")
        return str(path)


def read_journal(location: JournalLocation, disk: Disk = DISK) -> Journal:
    """Read a journal; a missing one counts as not begun. Raises UnreadableInput."""
    try:
        try:
            if location.home is not None:
                os.close(open_without_links(location.home))
            data = whole_lines(disk, location.journal)
        except FileNotFoundError:
            if location.pointer(disk) is not None:
                return Journal(location, JournalState.OUT_OF_REACH, {}, fault="it is not there")
            data = b""
        has_files = any(path != location.journal for path in location.files(disk))
        lines = decoded(data, location.id)
    except ValueError as error:
        return Journal(location, JournalState.UNREADABLE, {}, fault=str(error))
    except OSError as error:
        if error.errno in NOT_OURS:
            where = "" if error.filename in (None, location.journal) else f"{error.filename}: "
            return Journal(location, JournalState.UNREADABLE, {}, fault=f"{where}{error.strerror}")
        raise cannot_read(location.journal, error) from error
    if not lines:
        fault = "it says nothing, but files that belong to it lie there" if has_files else ""
        return Journal(
            location, JournalState.UNREADABLE if has_files else JournalState.ABANDONED, {}, fault=fault
        )
    return Journal(location, state_of(lines), lines[0], tuple(lines[1:]), is_signed=is_signed(data))


_STATES = (
    ("undone", JournalState.UNDONE),
    ("undoing", JournalState.UNDOING),
    ("done", JournalState.DONE),
    ("staged", JournalState.APPLYING),
)


def former_location(journal: Journal, disk: Disk = DISK) -> JournalLocation | None:
    """The location of the earlier journal of the same run, which is undone after this one, if there is one."""
    former = journal.header.get("after")
    if not isinstance(former, str) or not is_id(former) or former == journal.location.id:
        return None
    return as_pointed(
        JournalLocation(journal.location.directory, former, in_log_dir=journal.location.in_log_dir), disk
    )


def partition_locations(journal: Journal, disk: Disk = DISK) -> list[JournalLocation]:
    """For the journal of a data directory: the locations of the journals of partitions that the same run changed."""
    names = [str(name) for name in journal.header.get("partitions", ())]
    return [
        as_pointed(
            JournalLocation(journal.location.target(name), journal.location.id, in_log_dir=False), disk
        )
        for name in names
        if journal.location.in_log_dir and name not in ("", ".", "..") and "/" not in name
    ]


def partition_journals(journal: Journal, disk: Disk = DISK) -> list[JournalLocation]:
    """Those of the partitions' journals that exist, including one that a kill left beside the files of its partition before the journal's
    directory was created."""
    inside = partition_locations(journal, disk)
    begun = [replace(each, in_log_dir=True) for each in inside if each.home is None]
    return [each for each in inside if has_traces(each, disk)] + [
        each for each in begun if is_there(each, disk)
    ]


def spend_journals(journals: Iterable[Journal], disk: Disk = DISK) -> None:
    """Record that journals are spent, before they are removed: a restored copy of one is no longer trusted."""
    found = []
    for journal in journals:
        with suppress(OSError, ValueError):
            found.append(whole_lines(disk, journal.path))
    spend(found)


def state_of(lines: Iterable[Line]) -> JournalState:
    kinds = {line["type"] for line in lines}
    return next((state for kind, state in _STATES if kind in kinds), JournalState.ABANDONED)


def whole_lines(disk: Disk, path: str) -> bytes:
    """The complete lines of a journal. Raises ValueError when it is larger than kseg writes."""
    with closing(disk, disk.open_to_read(path)) as descriptor:
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes > LIMIT_BYTES:
            raise ValueError(f"it has {size_bytes} bytes, more than any journal")
        data = disk.read(descriptor, size_bytes, 0)
    return data[: data.rfind(b"\n") + 1]


def is_there(location: JournalLocation, disk: Disk) -> bool:
    """Whether the journal exists. Raises UnreadableInput when that cannot be determined."""
    try:
        return disk.status(location.journal) is not None
    except OSError as error:
        raise cannot_read(location.journal, error) from error


def last_change_ns(journal: Journal) -> int:
    """When its last line was written. Raises UnreadableInput when that cannot be determined."""
    try:
        status = DISK.status(journal.path)
    except OSError as error:
        raise cannot_read(journal.path, error) from error
    return 0 if status is None else status.st_mtime_ns


def has_traces(location: JournalLocation, disk: Disk) -> bool:
    """Whether there is a journal, or the rest of an interrupted removal. Raises UnreadableInput when that cannot be determined."""
    try:
        if any(disk.status(path) is not None for path in (location.journal, *location.directories[1:])):
            return True
        if location.pointer(disk) is not None:
            return True
        around = location.directories[:1]
        return any(disk.status(path) is not None and not disk.names(path) for path in around)
    except OSError as error:
        raise cannot_read(location.journal, error) from error
