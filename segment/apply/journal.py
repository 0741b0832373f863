"""The journal of a change: where it lies, what it says, and how far the change has come.

Place (a broker dies of unknown directories in a data directory, but leaves sub-directories of a partition and unknown
regular files alone):

    a partition       <partition>/.kseg/<id>/journal.jsonl        new files before their time in new/, what the change
                                                                  takes out of the partition in old/, both beside it
    a data directory  <log dir>/kseg-journal-<id>.jsonl           the same as kseg-journal-<id>-new-… and -old-…

With a quarantine elsewhere, what is taken out lies in <quarantine>/kseg-<id>/<directory name>.<inode>/.

Lines, each one JSON object, in this order:

    journal   version, id, kind, command, directory; the files as found, the steps, the findings that led here
              (of an attempt on a cluster also what was said so far: module attempts)
    staged    the new files (inode, size, time, CRC-32C) and what is in quarantine: the change is decided from here on
    done      all steps are done and checked
    undoing   the way back is decided
    undone    everything is back; what is left to do is to remove journal and quarantine

A journal ends with a whole line: what a kill left of another is cut off. Without `staged` nothing has happened yet.
An `append` writes another kind of journal (module guard) with the same first and last lines. What a line must be like
is in module journal_lines; a journal with another is not followed.
"""

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from kseg.segment.apply.disk import DISK, Disk, give_owner, remove_if_empty, remove_quietly, write_all
from kseg.segment.apply.journal_lines import (
    LIMIT_BYTES,
    PLAN,
    VERSION,
    Line,
    decoded,
    encoded,
    is_id,
    is_too_large,
)
from kseg.segment.errors import FormatError, cannot_read
from kseg.segment.partition.directory import (
    PartitionDirectory,
    is_log_directory,
    is_partition_directory,
)
from kseg.segment.partition.names import KSEG_DIRECTORY
from kseg.segment.partition.recognition import list_directory

_FILE = "journal.jsonl"
PREFIX = "kseg-journal-"  # of the names in a data directory
SUFFIX = ".jsonl"
NOT_OURS = (errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.EISDIR)  # a link, or no directory, or no file


def new_run_id(now_ms: int) -> str:
    """An id that sorts by time and that nobody else has: one for all directories that a run of a command changes."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ms // 1000))
    return f"{moment}-{os.urandom(4).hex()}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the journal of one directory lies. directory: as shown to the user. in_log_dir: all in regular files."""

    directory: str
    id: str
    in_log_dir: bool

    @property
    def _base(self) -> str:
        if self.in_log_dir:
            return os.path.join(self.directory, f"{PREFIX}{self.id}")
        return os.path.join(self.directory, KSEG_DIRECTORY, self.id)

    @property
    def journal(self) -> str:
        return f"{self._base}{SUFFIX}" if self.in_log_dir else os.path.join(self._base, _FILE)

    @property
    def quarantine(self) -> str:
        """As told to the user: the directory, or how the names of its files begin."""
        return f"{self._base}-old-" if self.in_log_dir else os.path.join(self._base, "old")

    @property
    def beginnings(self) -> tuple[str, str]:
        """How the paths of new files and of those taken out begin."""
        return self._part("new", ""), self._part("old", "")

    def new(self, number: int) -> str:
        return self._part("new", str(number))

    def old(self, name: str) -> str:
        return self._part("old", name)

    def _part(self, kind: str, name: str) -> str:
        return f"{self._base}-{kind}-{name}" if self.in_log_dir else os.path.join(self._base, kind, name)

    def target(self, name: str) -> str:
        """A file of the directory itself."""
        return os.path.join(self.directory, name)

    @property
    def directories(self) -> tuple[str, ...]:
        """Those that belong to the journal, outermost first; none in a data directory."""
        if self.in_log_dir:
            return ()
        parts = (os.path.join(self._base, part) for part in ("new", "old"))
        return (os.path.dirname(self._base), self._base, *parts)

    def elsewhere(self, quarantine: str, disk: Disk) -> str:
        """The directory below a quarantine elsewhere that is for this one, however many have its name."""
        name = f"{os.path.basename(os.path.abspath(self.directory))}.{self.inode(disk):x}"
        return os.path.join(os.path.realpath(quarantine), f"kseg-{self.id}", name)

    def inode(self, disk: Disk) -> int:
        """Of the directory."""
        status = disk.status(self.directory)
        if status is not None and stat.S_ISLNK(status.st_mode):
            status = disk.status(os.path.realpath(self.directory))
        return 0 if status is None else status.st_ino

    def files(self, disk: Disk) -> Iterator[str]:
        """All files that belong to the journal, the journal itself last."""
        if self.in_log_dir:
            begin = f"{PREFIX}{self.id}-"
            for name in disk.names(self.directory):
                if name.startswith((f"{begin}new-", f"{begin}old-")):
                    yield self.target(name)
        else:
            for part in ("new", "old"):
                folder = os.path.join(self._base, part)
                yield from (os.path.join(folder, name) for name in disk.names(folder))
        if disk.status(self.journal) is not None:
            yield self.journal


def place_for(directory: str, journal_id: str) -> Place:
    """Where the journal of a change to `directory` belongs."""
    is_partition = is_partition_directory(directory) or (
        not is_log_directory(directory) and isinstance(list_directory(directory), PartitionDirectory)
    )
    return Place(directory, journal_id, in_log_dir=not is_partition)


def place_of(path: str) -> Place | None:
    """The place that the path of a journal, or of the directory around it, means; None when it means none."""
    head, tail = os.path.split(path.rstrip(os.sep) or path)
    if tail == _FILE and os.path.basename(os.path.dirname(head or os.curdir)) == KSEG_DIRECTORY:
        head, tail = os.path.split(head)
    if os.path.basename(head) == KSEG_DIRECTORY and is_id(tail):
        return Place(os.path.dirname(head) or os.curdir, tail, in_log_dir=False)
    name = tail.removeprefix(PREFIX).removesuffix(SUFFIX)
    if tail == f"{PREFIX}{name}{SUFFIX}" and is_id(name):
        return Place(head or os.curdir, name, in_log_dir=True)
    return None


class State(StrEnum):
    """How far a change has come."""

    ABANDONED = "abandoned"  # nothing has happened yet, the staging is waste
    APPLYING = "applying"  # decided and not done
    DONE = "done"
    UNDOING = "undoing"
    UNDONE = "undone"  # but for the journal and the quarantine
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal as it lies there. header: its first line; lines: the others. fault: why it cannot be followed."""

    place: Place
    state: State
    header: Line
    lines: tuple[Line, ...] = ()
    fault: str = ""

    @property
    def path(self) -> str:
        return self.place.journal

    @property
    def kind(self) -> str:
        return str(self.header.get("kind", PLAN))

    @property
    def command(self) -> str:
        return str(self.header.get("command", "?"))

    @property
    def is_half_done(self) -> bool:
        return self.state in (State.APPLYING, State.UNDOING, State.UNDONE, State.UNREADABLE)

    def line(self, kind: str) -> Line | None:
        """The last line of a type."""
        return next((line for line in reversed(self.lines) if line["type"] == kind), None)

    @property
    def holders(self) -> dict[str, int]:
        """By name as found, the inode that an undo gives it; empty before that is decided."""
        line = self.line("undoing") or {}
        return {str(name): int(inode) for name, inode in line.get("holders", {}).items()}

    def elsewhere(self, disk: Disk) -> str | None:
        """Where a quarantine elsewhere lies. Raises FormatError for a directory that kseg has not made for this one."""
        path = self.header.get("quarantine")
        if path is None:
            return None
        head, tail = os.path.split(str(path))
        is_ours = (
            os.path.basename(head) == f"kseg-{self.place.id}"
            and tail.rpartition(".")[2] == f"{self.place.inode(disk):x}"
        )
        if not is_ours or os.path.normpath(str(path)) != path or not os.path.isabs(str(path)):
            raise FormatError(f"it names {path} as its quarantine, which was not made for this directory")
        return str(path)


def read_journal(place: Place, disk: Disk = DISK) -> Journal:
    """A journal from the disk; one that is not there is like one that was not begun. Raises UnreadableInput."""
    try:
        try:
            data = _content(disk, place.journal)
        except FileNotFoundError:
            data = b""
        has_files = any(path != place.journal for path in place.files(disk))
        lines = decoded(data, place.id)
    except ValueError as error:
        return Journal(place, State.UNREADABLE, {}, fault=str(error))
    except OSError as error:
        if error.errno in NOT_OURS:
            where = "" if error.filename in (None, place.journal) else f"{error.filename}: "
            return Journal(place, State.UNREADABLE, {}, fault=f"{where}{error.strerror}")
        raise cannot_read(place.journal, error) from error
    if not lines:
        fault = "it says nothing, but files that belong to it lie there" if has_files else ""
        return Journal(place, State.UNREADABLE if has_files else State.ABANDONED, {}, fault=fault)
    return Journal(place, _state(lines), lines[0], tuple(lines[1:]))


_STATES = (
    ("undone", State.UNDONE),
    ("undoing", State.UNDOING),
    ("done", State.DONE),
    ("staged", State.APPLYING),
)


def former_place(journal: Journal) -> Place | None:
    """Where the earlier journal of the same run lies that is undone behind this one, if there is one."""
    former = journal.header.get("after")
    if not isinstance(former, str) or not is_id(former) or former == journal.place.id:
        return None
    return replace(journal.place, id=former)


def partition_places(journal: Journal) -> list[Place]:
    """Where the journals of the partitions lie that the same run changed, for the journal of a data directory."""
    names = [str(name) for name in journal.header.get("partitions", ())]
    return [
        Place(journal.place.target(name), journal.place.id, in_log_dir=False)
        for name in names
        if journal.place.in_log_dir and name not in ("", ".", "..") and "/" not in name
    ]


def _state(lines: Iterable[Line]) -> State:
    kinds = {line["type"] for line in lines}
    return next((state for kind, state in _STATES if kind in kinds), State.ABANDONED)


def _content(disk: Disk, path: str) -> bytes:
    """The whole lines of a journal. Raises ValueError when it is larger than any."""
    descriptor = disk.open_to_read(path)
    try:
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes > LIMIT_BYTES:
            raise ValueError(f"it has {size_bytes} bytes, more than any journal")
        data = disk.read(descriptor, size_bytes, 0)
    finally:
        disk.close(descriptor)
    return data[: data.rfind(b"\n") + 1]


def begin(place: Place, header: Line, disk: Disk) -> Journal:
    """Write a journal's first line, durably, with the directories that belong to it (whose names the caller syncs
    before he decides: losing them sooner loses nothing). Raises OSError, and then nothing of it is left.

    The first name that comes into the directory is that of a whole first line, which tells the directory's time as it
    was found: killed at any moment, `abandon` knows what to give back. So where `.kseg` is yet to be made, the journal
    lies beside the files of the partition until it is.
    """
    status = disk.status(place.directory)
    data = _first_line(header, place.journal)
    first = place
    if place.directories and disk.status(place.directories[0]) is None:
        first = replace(place, in_log_dir=True)
    try:
        if first is not place:
            write_at_once(first.journal, data, status, disk)
        for path in place.directories:
            with suppress(FileExistsError):
                disk.make_directory(path)
                if status is not None:
                    give_owner(disk, path, status)
        if first is not place:
            disk.rename(first.journal, place.journal)
        else:
            write_at_once(place.journal, data, status, disk)
    except BaseException:
        with suppress(OSError):
            _withdraw(place, first, status, disk)
        raise
    return Journal(place, State.ABANDONED, header)


def _withdraw(place: Place, first: Place, status: os.stat_result | None, disk: Disk) -> None:
    for each in (place, first):
        remove_quietly(disk, each.journal)
    for path in reversed(place.directories):
        remove_if_empty(disk, path)
    if status is not None:
        disk.change_times(place.directory, status.st_mtime_ns)


def write_at_once(path: str, data: bytes, like: os.stat_result | None, disk: Disk) -> None:
    """Make a file that has all its bytes from the moment it has its name, where the file system can do that."""
    descriptor = disk.create_nameless(os.path.dirname(path) or os.curdir)
    is_named = descriptor is None
    if descriptor is None:
        descriptor = disk.create(path)
    try:
        write_all(disk, descriptor, data, 0)
        disk.sync(descriptor)
        if not is_named and not disk.give_name(descriptor, path):
            disk.close(descriptor)
            descriptor = disk.create(path)
            write_all(disk, descriptor, data, 0)
            disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    if like is not None:
        give_owner(disk, path, like)


def _first_line(header: Line, path: str) -> bytes:
    """Without the reasons where they are too many. Raises OSError (EFBIG)."""
    header = {"type": "journal", "version": VERSION, **header}
    line = encoded(header, b"")
    if is_too_large(line, 0.5):
        line = encoded({**header, "reasons": []}, b"")
    if is_too_large(line, 0.5):
        raise OSError(errno.EFBIG, "the journal of so large a change could not be read again", path)
    return line


def sync_names(place: Place, disk: Disk) -> None:
    """Return when all names around a journal are on the disk. Raises OSError."""
    for path in (*reversed(place.directories), place.directory):
        disk.sync_directory(path)


def append(journal: Journal, line: Line, disk: Disk) -> Journal:
    """Add a line, durably; the journal with it. Raises OSError; the line is taken back then, if that is possible."""
    try:
        before = _content(disk, journal.path)
    except ValueError as error:
        raise OSError(errno.EFBIG, str(error), journal.path) from error
    end, added = len(before), encoded(line, before)
    if end + len(added) > LIMIT_BYTES:
        raise OSError(errno.EFBIG, "the journal of so large a change could not be read again", journal.path)
    descriptor = disk.open_to_write(journal.path)
    try:
        if os.fstat(descriptor).st_nlink != 1:
            raise OSError(errno.EMLINK, "it has a second name elsewhere (a hard link)", journal.path)
        disk.truncate(descriptor, end)
        try:
            write_all(disk, descriptor, added, end)
            disk.sync(descriptor)
        except OSError:
            disk.truncate(descriptor, end)
            raise
    finally:
        disk.close(descriptor)
    lines = (*journal.lines, line)
    return replace(journal, lines=lines, state=_state(lines))


def discard(place: Place, disk: Disk) -> None:
    """Remove a journal and all that belongs to it, the journal last. Raises OSError."""
    for path in place.files(disk):
        with suppress(FileNotFoundError):
            disk.unlink(path)
    for path in reversed(place.directories):
        remove_if_empty(disk, path)
    disk.sync_directory(place.directory)


def is_there(place: Place, disk: Disk) -> bool:
    """Whether there is a journal at its place. Raises UnreadableInput when nobody can tell."""
    try:
        return disk.status(place.journal) is not None
    except OSError as error:
        raise cannot_read(place.journal, error) from error


def has_traces(place: Place, disk: Disk) -> bool:
    """Whether there is a journal, or what a kill left of its removal. Raises UnreadableInput when nobody can tell."""
    try:
        if any(disk.status(path) is not None for path in (place.journal, *place.directories[1:])):
            return True
        around = place.directories[:1]
        return any(disk.status(path) is not None and not disk.names(path) for path in around)
    except OSError as error:
        raise cannot_read(place.journal, error) from error
