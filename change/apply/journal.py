"""The journal of a change: where it lies, what it says, and how far the change has come.

Place (a broker dies of unknown directories in a data directory, but leaves sub-directories of a partition and unknown
regular files alone):

    a partition       <partition>/.kseg/<id>/journal.jsonl        new files before their time in new/, what the change
                                                                  takes out of the partition in old/, both beside it
    a data directory  <log dir>/kseg-journal-<id>.jsonl           the same as kseg-journal-<id>-new-… and -old-…

Journal and quarantine can lie elsewhere (module elsewhere).

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
from dataclasses import replace
from enum import StrEnum

from kseg.change.apply import elsewhere
from kseg.change.apply.anchors import open_without_links
from kseg.change.apply.disk import (
    DISK,
    Disk,
    give_owner,
    make_directories,
    remove_if_empty,
    remove_quietly,
    write_all,
)
from kseg.change.apply.elsewhere import DONE, OPEN, PREFIX
from kseg.change.apply.journal_lines import (
    LIMIT_BYTES,
    PLAN,
    VERSION,
    Line,
    decoded,
    encoded,
    is_id,
    is_too_large,
)
from kseg.segment.errors import FormatError, Refused, cannot_read
from kseg.segment.partition.directory import PartitionDirectory, is_log_directory, is_partition_directory
from kseg.segment.partition.names import KSEG_DIRECTORY
from kseg.segment.partition.recognition import list_directory
from kseg.segment.values import dataclass

_FILE = elsewhere.JOURNAL
SUFFIX = ".jsonl"
_KEPT = ".kept"  # a broker takes no file of this name for one of a log
NOT_OURS = (errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.EISDIR)  # a link, or no directory, or no file


def new_run_id(now_ms: int) -> str:
    """An id that sorts by time and that nobody else has: one for all directories that a run of a command changes."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ms // 1000))
    return f"{moment}-{os.urandom(4).hex()}"


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """Where the journal of one directory lies. directory: as shown to the user. in_log_dir: it is a data directory. home: the
    directory elsewhere that the journal lies in (module elsewhere); None: it lies here."""

    directory: str
    id: str
    in_log_dir: bool
    home: str | None = None

    @property
    def is_flat(self) -> bool:
        """Whether everything that lies here are regular files of the directory."""
        return self.in_log_dir or self.home is not None

    @property
    def _base(self) -> str:
        if self.is_flat:
            return os.path.join(self.directory, f"{PREFIX}{self.id}")
        return os.path.join(self.directory, KSEG_DIRECTORY, self.id)

    @property
    def journal(self) -> str:
        if self.home is not None:
            return os.path.join(self.home, _FILE)
        return f"{self._base}{SUFFIX}" if self.in_log_dir else os.path.join(self._base, _FILE)

    @property
    def quarantine(self) -> str:
        """As told to the user: the directory, or how the names of its files begin."""
        return f"{self._base}-old-" if self.is_flat else os.path.join(self._base, "old")

    @property
    def pointers(self) -> tuple[str, str]:
        """What says in the directory that its journal lies elsewhere: before the change is done, and behind that."""
        assert self.home is not None
        path = self.target(elsewhere.pointer_name(self.home, self.id))
        return f"{path}{OPEN}", f"{path}{DONE}"

    @property
    def beginnings(self) -> tuple[str, str]:
        """How the paths of new files and of those taken out begin."""
        if self.is_flat:
            return f"{self._base}-new-", f"{self._base}-old-"
        return self._part("new", ""), self._part("old", "")

    def new(self, number: int) -> str:
        return self._part("new", str(number))

    def old(self, name: str) -> str:
        return self._part("old", name)

    def _part(self, kind: str, name: str) -> str:
        if self.is_flat:
            return f"{self._base}-{kind}-{name}{'' if self.home is None else _KEPT}"
        return os.path.join(self._base, kind, name)

    def kept_name(self, path: str) -> str:
        """Of which file of the directory what lies at `path` is kept, when `path` is one that `old` gives."""
        name = os.path.basename(path)
        if self.is_flat:
            name = name.removeprefix(os.path.basename(self.beginnings[1]))
        return name if self.home is None else name.removesuffix(_KEPT)

    def target(self, name: str) -> str:
        """A file of the directory itself."""
        return os.path.join(self.directory, name)

    @property
    def directories(self) -> tuple[str, ...]:
        """Those here that belong to the journal, outermost first; none in a data directory."""
        if self.is_flat:
            return ()
        parts = (os.path.join(self._base, part) for part in ("new", "old"))
        return (os.path.dirname(self._base), self._base, *parts)

    @property
    def directories_elsewhere(self) -> tuple[str, ...]:
        """The same of a journal that lies elsewhere."""
        return () if self.home is None else (os.path.dirname(self.home), self.home)

    def elsewhere(self, around: str, disk: Disk) -> str:
        """The directory below one elsewhere that is for this one."""
        return elsewhere.home(around, self.id, self.directory, self.inode(disk))

    def pointer(self, disk: Disk) -> str | None:
        """The pointer that lies in the directory, when one does."""
        there = () if self.home is None else self.pointers
        return next((path for path in there if disk.status(path) is not None), None)

    def inode(self, disk: Disk) -> int:
        """Of the directory."""
        status = disk.status(self.directory)
        if status is not None and stat.S_ISLNK(status.st_mode):
            status = disk.status(os.path.realpath(self.directory))
        return 0 if status is None else status.st_ino

    def files(self, disk: Disk) -> Iterator[str]:
        """All files that belong to the journal, the journal itself last; not its pointer."""
        if self.is_flat:
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


def place_for(
    directory: str, journal_id: str, journal_dir: str | None = None, disk: Disk = DISK
) -> JournalPlace:
    """Where the journal of a change to `directory` belongs. journal_dir: the directory elsewhere that was asked for. Raises
    Refused when it may not lie there."""
    is_partition = is_partition_directory(directory) or (
        not is_log_directory(directory) and isinstance(list_directory(directory), PartitionDirectory)
    )
    return put_elsewhere(JournalPlace(directory, journal_id, in_log_dir=not is_partition), journal_dir, disk)


def put_elsewhere(place: JournalPlace, journal_dir: str | None, disk: Disk) -> JournalPlace:
    """The place with its journal below `journal_dir`, when there is one. Raises Refused when it may not lie there."""
    if journal_dir is None:
        return place
    elsewhere.check_place(journal_dir, place.directory, "journal")
    try:
        home = place.elsewhere(journal_dir, disk)
    except OSError as error:
        raise cannot_read(place.directory, error) from error
    elsewhere.check_pointer(home, place.id)
    return replace(place, home=home)


def as_pointed(place: JournalPlace, disk: Disk) -> JournalPlace:
    """The place, with its journal elsewhere where a pointer says so. Raises UnreadableInput."""
    try:
        for found in filter(None, map(elsewhere.read_pointer, disk.names(place.directory))):
            if found[0] == place.id:
                return replace(place, home=place.elsewhere(found[1], disk))
    except OSError as error:
        if not isinstance(error, NotADirectoryError):
            raise cannot_read(place.directory, error) from error
    return place


def place_of(path: str) -> JournalPlace | None:
    """The place that the path of a journal, or of the directory around it, means; None when it means none. Raises Refused for
    a journal elsewhere whose directory is not there."""
    around = os.path.dirname(path) if os.path.basename(path) == _FILE else path
    if os.path.basename(os.path.dirname(os.path.abspath(around))).startswith("kseg-"):
        return _place_elsewhere(os.path.realpath(around))
    head, tail = os.path.split(path.rstrip(os.sep) or path)
    if tail == _FILE and os.path.basename(os.path.dirname(head or os.curdir)) == KSEG_DIRECTORY:
        head, tail = os.path.split(head)
    if os.path.basename(head) == KSEG_DIRECTORY and is_id(tail):
        return JournalPlace(os.path.dirname(head) or os.curdir, tail, in_log_dir=False)
    name = tail.removeprefix(PREFIX).removesuffix(SUFFIX)
    if tail == f"{PREFIX}{name}{SUFFIX}" and is_id(name):
        return JournalPlace(head or os.curdir, name, in_log_dir=True)
    return None


def _place_elsewhere(home: str, disk: Disk = DISK) -> JournalPlace:
    """Of the journal that lies there: it names the directory. Raises Refused."""
    journal_id = os.path.basename(os.path.dirname(home)).removeprefix("kseg-")
    try:
        lines = decoded(_content(disk, os.path.join(home, _FILE)), journal_id)
        directory = str(lines[0]["directory"])
    except (OSError, ValueError, IndexError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Refused(f"{home} holds no journal that can be followed: {reason}") from None
    place = place_for(directory, journal_id)
    if as_pointed(place, disk).home != home:
        raise Refused(
            f"{os.path.join(home, _FILE)} is the journal of {directory}, which does not point to it"
        )
    return replace(place, home=home)


class JournalState(StrEnum):
    """How far a change has come."""

    ABANDONED = "abandoned"  # nothing has happened yet, the staging is waste
    APPLYING = "applying"  # decided and not done
    DONE = "done"
    UNDOING = "undoing"
    UNDONE = "undone"  # but for the journal and the quarantine
    UNREADABLE = "unreadable"
    OUT_OF_REACH = "out-of-reach"  # it lies elsewhere, and nothing is there


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal as it lies there. header: its first line; lines: the others. fault: why it cannot be followed."""

    place: JournalPlace
    state: JournalState
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
        return self.state in (
            JournalState.APPLYING,
            JournalState.UNDOING,
            JournalState.UNDONE,
            JournalState.UNREADABLE,
            JournalState.OUT_OF_REACH,
        )

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
        if not elsewhere.is_home(str(path), self.place.id, self.place.inode(disk)):
            raise FormatError(f"it names {path} as its quarantine, which was not made for this directory")
        return str(path)


def read_journal(place: JournalPlace, disk: Disk = DISK) -> Journal:
    """A journal from the disk; one that is not there is like one that was not begun. Raises UnreadableInput."""
    try:
        try:
            if place.home is not None:
                os.close(open_without_links(place.home))
            data = _content(disk, place.journal)
        except FileNotFoundError:
            if place.pointer(disk) is not None:
                return Journal(place, JournalState.OUT_OF_REACH, {}, fault="it is not there")
            data = b""
        has_files = any(path != place.journal for path in place.files(disk))
        lines = decoded(data, place.id)
    except ValueError as error:
        return Journal(place, JournalState.UNREADABLE, {}, fault=str(error))
    except OSError as error:
        if error.errno in NOT_OURS:
            where = "" if error.filename in (None, place.journal) else f"{error.filename}: "
            return Journal(place, JournalState.UNREADABLE, {}, fault=f"{where}{error.strerror}")
        raise cannot_read(place.journal, error) from error
    if not lines:
        fault = "it says nothing, but files that belong to it lie there" if has_files else ""
        return Journal(
            place, JournalState.UNREADABLE if has_files else JournalState.ABANDONED, {}, fault=fault
        )
    return Journal(place, _state(lines), lines[0], tuple(lines[1:]))


_STATES = (
    ("undone", JournalState.UNDONE),
    ("undoing", JournalState.UNDOING),
    ("done", JournalState.DONE),
    ("staged", JournalState.APPLYING),
)


def former_place(journal: Journal, disk: Disk = DISK) -> JournalPlace | None:
    """Where the earlier journal of the same run lies that is undone behind this one, if there is one."""
    former = journal.header.get("after")
    if not isinstance(former, str) or not is_id(former) or former == journal.place.id:
        return None
    return as_pointed(
        JournalPlace(journal.place.directory, former, in_log_dir=journal.place.in_log_dir), disk
    )


def partition_places(journal: Journal, disk: Disk = DISK) -> list[JournalPlace]:
    """Where the journals of the partitions lie that the same run changed, for the journal of a data directory."""
    names = [str(name) for name in journal.header.get("partitions", ())]
    return [
        as_pointed(JournalPlace(journal.place.target(name), journal.place.id, in_log_dir=False), disk)
        for name in names
        if journal.place.in_log_dir and name not in ("", ".", "..") and "/" not in name
    ]


def _state(lines: Iterable[Line]) -> JournalState:
    kinds = {line["type"] for line in lines}
    return next((state for kind, state in _STATES if kind in kinds), JournalState.ABANDONED)


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


def begin(place: JournalPlace, header: Line, disk: Disk) -> Journal:
    """Write a journal's first line, durably, with the directories that belong to it (whose names the caller syncs
    before he decides: losing them sooner loses nothing). Raises OSError, and then nothing of it is left.

    The first name that comes into the directory is that of a whole first line, which tells the directory's time as it
    was found: killed at any moment, `abandon` knows what to give back. So where `.kseg` is yet to be made, the journal
    lies beside the files of the partition until it is.
    """
    status = disk.status(place.directory)
    data = _first_line(header, place.journal)
    if place.home is not None:
        _begin_elsewhere(place, place.home, data, status, disk)
        return Journal(place, JournalState.ABANDONED, header)
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
    return Journal(place, JournalState.ABANDONED, header)


def _begin_elsewhere(
    place: JournalPlace, home: str, data: bytes, like: os.stat_result | None, disk: Disk
) -> None:
    try:
        make_directories(home, disk)
        write_at_once(place.journal, data, None, disk)
        disk.sync_directory(home)
        pointer = place.pointers[0]
        disk.close(disk.create(pointer))
        if like is not None:
            give_owner(disk, pointer, like)
    except BaseException:
        with suppress(OSError):
            _withdraw(place, place, like, disk)
        raise


def _withdraw(place: JournalPlace, first: JournalPlace, status: os.stat_result | None, disk: Disk) -> None:
    if place.home is not None:
        remove_quietly(disk, place.pointers[0])
    for each in (place, first):
        remove_quietly(disk, each.journal)
    for path in reversed((*place.directories, *place.directories_elsewhere)):
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


def sync_names(place: JournalPlace, disk: Disk) -> None:
    """Return when all names around a journal are on the disk. Raises OSError."""
    for path in (*reversed(place.directories), place.directory):
        disk.sync_directory(path)


def append(journal: Journal, line: Line, disk: Disk) -> Journal:
    """Add a line, durably; the journal with it. Raises OSError; the line is taken back then, if that is possible."""
    if line["type"] != "done":
        _point(journal.place, OPEN, disk)
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
    if line["type"] == "done":
        with suppress(OSError):  # the journal says so, as long as it is in reach
            _point(journal.place, DONE, disk)
    lines = (*journal.lines, line)
    return replace(journal, lines=lines, state=_state(lines))


def _point(place: JournalPlace, how: str, disk: Disk) -> None:
    """Let the pointer of a journal elsewhere say whether its change is done. Raises OSError."""
    if place.home is not None:
        before, now = place.pointers if how == DONE else place.pointers[::-1]
        if disk.status(before) is not None:
            disk.rename(before, now)
            disk.sync_directory(place.directory)


def discard(place: JournalPlace, disk: Disk) -> None:
    """Remove a journal and all that belongs to it, the journal last. Raises OSError."""
    pointer = place.pointer(disk)
    for path in place.files(disk):
        if path == place.journal and pointer is not None:
            disk.unlink(pointer)  # a pointer without a journal would be one out of reach
            disk.sync_directory(place.directory)
        with suppress(FileNotFoundError):
            disk.unlink(path)
    for path in reversed((*place.directories, *place.directories_elsewhere)):
        remove_if_empty(disk, path)
    disk.sync_directory(place.directory)


def is_there(place: JournalPlace, disk: Disk) -> bool:
    """Whether there is a journal at its place. Raises UnreadableInput when nobody can tell."""
    try:
        return disk.status(place.journal) is not None
    except OSError as error:
        raise cannot_read(place.journal, error) from error


def has_traces(place: JournalPlace, disk: Disk) -> bool:
    """Whether there is a journal, or what a kill left of its removal. Raises UnreadableInput when nobody can tell."""
    try:
        if any(disk.status(path) is not None for path in (place.journal, *place.directories[1:])):
            return True
        if place.pointer(disk) is not None:
            return True
        around = place.directories[:1]
        return any(disk.status(path) is not None and not disk.names(path) for path in around)
    except OSError as error:
        raise cannot_read(place.journal, error) from error
