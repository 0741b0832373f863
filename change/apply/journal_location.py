"""The location of a directory's journal and of the files that belong to it.

A broker fails on unknown directories in a data directory, but leaves sub-directories of a partition and unknown regular files alone:

    a partition       <partition>/.kseg/<id>/journal.jsonl        new files before they are renamed into the partition in new/,
                                                                  files that the change removes from the partition in old/
    a data directory  <log dir>/kseg-journal-<id>.jsonl           likewise as kseg-journal-<id>-new-... and -old-...

Journal and quarantine can be in another directory (module elsewhere).
"""

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import replace

from kseg.change.apply import elsewhere
from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.elsewhere import DONE, OPEN, PREFIX
from kseg.segment.errors import cannot_read
from kseg.segment.partition.directory import PartitionDirectory
from kseg.segment.partition.names import KSEG_DIRECTORY
from kseg.segment.partition.recognition import is_log_directory, is_partition_directory, list_directory
from kseg.segment.values import dataclass

JOURNAL_FILE = elsewhere.JOURNAL
SUFFIX = ".jsonl"
ID_TIME = len("20260101T120000Z")  # the part of a run's id by which ids sort
_TIME = "%Y%m%dT%H%M%SZ"
_KEPT = ".kept"  # a broker does not treat a file of this name as part of a log


def new_run_id(now_ms: int) -> str:
    """A unique id that sorts by time: one for all directories that a run changes (see `journal_scan.id_after`)."""
    moment = time.strftime(_TIME, time.gmtime(now_ms // 1000))
    return f"{moment}-{os.urandom(4).hex()}"


def next_id_time(before: str) -> str:
    """The time of an id one second after that of another. Raises ValueError for anything that is not such a time."""
    from calendar import timegm  # needed only where the clock has been set back

    return time.strftime(_TIME, time.gmtime(timegm(time.strptime(before, _TIME)) + 1))


@dataclass(frozen=True, slots=True)
class JournalLocation:
    """The location of one directory's journal. directory: as shown to the user. in_log_dir: it is a data directory. home: the
    directory elsewhere that holds the journal (module elsewhere); None if it is in the directory itself."""

    directory: str
    id: str
    in_log_dir: bool
    home: str | None = None

    @property
    def is_flat(self) -> bool:
        """Whether journal and quarantine are regular files of the directory itself."""
        return self.in_log_dir or self.home is not None

    @property
    def _base(self) -> str:
        if self.is_flat:
            return os.path.join(self.directory, f"{PREFIX}{self.id}")
        return os.path.join(self.directory, KSEG_DIRECTORY, self.id)

    @property
    def journal(self) -> str:
        if self.home is not None:
            return os.path.join(self.home, JOURNAL_FILE)
        return f"{self._base}{SUFFIX}" if self.in_log_dir else os.path.join(self._base, JOURNAL_FILE)

    @property
    def quarantine(self) -> str:
        """As shown to the user: the directory, or the prefix of its files."""
        return f"{self._base}-old-" if self.is_flat else os.path.join(self._base, "old")

    @property
    def pointers(self) -> tuple[str, str]:
        """The pointers in the directory to a journal elsewhere: before the change is done, and after."""
        assert self.home is not None
        path = self.target(elsewhere.pointer_name(self.home, self.id))
        return f"{path}{OPEN}", f"{path}{DONE}"

    @property
    def beginnings(self) -> tuple[str, str]:
        """The prefixes of the paths of new files and of removed ones."""
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
        """The name of the file that is kept at `path`, if `old` returns that path for one."""
        name = os.path.basename(path)
        if self.is_flat:
            name = name.removeprefix(os.path.basename(self.beginnings[1]))
        return name if self.home is None else name.removesuffix(_KEPT)

    def target(self, name: str) -> str:
        """A file of the directory itself."""
        return os.path.join(self.directory, name)

    @property
    def directories(self) -> tuple[str, ...]:
        """The journal's directories in this directory, outermost first; none in a data directory."""
        if self.is_flat:
            return ()
        parts = (os.path.join(self._base, part) for part in ("new", "old"))
        return (os.path.dirname(self._base), self._base, *parts)

    @property
    def directories_elsewhere(self) -> tuple[str, ...]:
        """Like `directories`, for a journal elsewhere."""
        return () if self.home is None else (os.path.dirname(self.home), self.home)

    def elsewhere(self, around: str, disk: Disk) -> str:
        """This directory's home below another directory."""
        return elsewhere.home(around, self.id, self.directory, self.inode(disk))

    def pointer(self, disk: Disk) -> str | None:
        """The pointer in the directory, if there is one."""
        there = () if self.home is None else self.pointers
        return next((path for path in there if disk.status(path) is not None), None)

    def inode(self, disk: Disk) -> int:
        """The inode of the directory."""
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


def location_for(
    directory: str, journal_id: str, journal_dir: str | None = None, disk: Disk = DISK
) -> JournalLocation:
    """The location of the journal of a change to `directory`. journal_dir: the value of --journal. Raises
    Refused when a journal is not allowed there."""
    is_partition = is_partition_directory(directory) or (
        not is_log_directory(directory) and isinstance(list_directory(directory), PartitionDirectory)
    )
    return put_elsewhere(
        JournalLocation(directory, journal_id, in_log_dir=not is_partition), journal_dir, disk
    )


def put_elsewhere(location: JournalLocation, journal_dir: str | None, disk: Disk) -> JournalLocation:
    """The location with the journal below `journal_dir`, if that is given. Raises Refused when a journal is not allowed there."""
    if journal_dir is None:
        return location
    elsewhere.check_place(journal_dir, location.directory, "journal")
    try:
        home = location.elsewhere(journal_dir, disk)
    except OSError as error:
        raise cannot_read(location.directory, error) from error
    elsewhere.check_pointer(home, location.id)
    return replace(location, home=home)


def as_pointed(location: JournalLocation, disk: Disk) -> JournalLocation:
    """The location, with the journal elsewhere if there is a pointer. Raises UnreadableInput."""
    try:
        for found in filter(None, map(elsewhere.read_pointer, disk.names(location.directory))):
            if found[0] == location.id:
                return replace(location, home=location.elsewhere(found[1], disk))
    except OSError as error:
        if not isinstance(error, NotADirectoryError):
            raise cannot_read(location.directory, error) from error
    return location
