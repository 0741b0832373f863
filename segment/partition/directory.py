"""The listing of a directory: its files and partitions, without opening any of them.

`recognition` decides whether a directory is a partition, a data directory or a parent of several. Listing costs one
`scandir` per directory and one `stat` per file. An unreadable file or directory becomes an entry with a `problem`.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from functools import lru_cache

from kseg.segment.errors import FormatError, cannot_read
from kseg.segment.layout import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kseg.segment.partition.names import (
    KSEG_DIRECTORY,
    NUMBERED_ROLES,
    REMOTE_INDEX_CACHE,
    SEGMENT_ROLES,
    FileName,
    PartitionName,
    Role,
    is_of_partition,
    parse_file_name,
    parse_partition_directory,
)
from kseg.segment.storage import places
from kseg.segment.storage.attached import is_tiered
from kseg.segment.values import dataclass

_OFFSET_DIGITS = 20
_OF_ANOTHER_NAME = ("", os.curdir, os.pardir)  # last parts of a path that do not name its target
_ROLE_RANK = {role: rank for rank, role in enumerate((Role.KAFKA07_LOG, *SEGMENT_ROLES))}


@dataclass(frozen=True, slots=True)
class Entry:
    """One file. path: the given directory, joined with the name. problem: why it cannot be used (stat failed,
    or it is not a regular file); size and mtime are then 0."""

    path: str
    size_bytes: int
    mtime_ms: int
    name: FileName
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class SubDirectory:
    """One directory inside another. partition: parsed from its name, None if that is not a partition's; then `problem`
    says how a broker treats it, unless it is a directory that brokers know. is_link: it is a symbolic link to a
    directory."""

    path: str
    name: str
    partition: PartitionName | None = None
    problem: str | None = None
    is_link: bool = False


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The live files of one segment; None for a missing file. snapshot: the one named by the base offset."""

    base_offset: int
    log: Entry
    offset_index: Entry | None = None
    time_index: Entry | None = None
    txn_index: Entry | None = None
    snapshot: Entry | None = None

    @property
    def files(self) -> tuple[Entry, ...]:
        """The files that exist, in Kafka's order."""
        candidates = (self.log, self.offset_index, self.time_index, self.txn_index, self.snapshot)
        return tuple(entry for entry in candidates if entry is not None)


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """One partition directory.

    name: None if the directory is not named like a partition. entries: every file, sorted by name. segments:
    those with a live `.log`, by base offset. kafka07_files: live `.kafka` files (0.7) by number. snapshots: every
    live producer snapshot by offset (also those where no segment starts). orphans: live numbered files that are neither
    part of a segment nor a snapshot. problem: why the directory could not be listed.
    """

    path: str
    name: PartitionName | None
    entries: tuple[Entry, ...] = ()
    segments: tuple[SegmentFiles, ...] = ()
    kafka07_files: tuple[Entry, ...] = ()
    snapshots: tuple[Entry, ...] = ()
    orphans: tuple[Entry, ...] = ()
    directories: tuple[SubDirectory, ...] = ()
    problem: str | None = None

    def entry(self, role: Role) -> Entry | None:
        """The live file of a role that occurs only once (partition.metadata, leader-epoch-checkpoint, …)."""
        return _live_entry(self.entries, role)

    def lacks(self, role: Role) -> bool:
        """Whether a file of this role, which a broker would have here, is missing. Uploads of a tiered-storage plugin have none."""
        return self.entry(role) is None and not is_tiered(self.path)


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """One data directory: its own files, its partitions by name (list each with `list_partition`), and the rest.

    nested: subdirectories that are or contain data directories, also links to data directories that were walked before."""

    path: str
    entries: tuple[Entry, ...] = ()
    partitions: tuple[SubDirectory, ...] = ()
    other_directories: tuple[SubDirectory, ...] = ()
    nested: tuple[SubDirectory, ...] = ()

    def entry(self, role: Role) -> Entry | None:
        return _live_entry(self.entries, role)

    def lacks(self, role: Role) -> bool:
        """See `PartitionDirectory`."""
        return self.entry(role) is None and not is_tiered(self.path)


@dataclass(frozen=True, slots=True)
class ParentDirectory:
    """A directory with log dirs somewhere below it; if it is one itself, it is the first of them. unreadable: directories that
    could not be listed, so their content is unknown."""

    path: str
    log_directories: tuple[LogDirectory, ...] = ()
    unreadable: tuple[SubDirectory, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherDirectory:
    """A directory without anything that belongs to Kafka."""

    path: str
    entries: tuple[Entry, ...] = ()
    directories: tuple[SubDirectory, ...] = ()


Directory = PartitionDirectory | LogDirectory | ParentDirectory | OtherDirectory


@dataclass(slots=True)
class _Content:
    files: list[tuple[places.DirEntry, FileName]] = field(default_factory=list)
    directories: list[places.DirEntry] = field(default_factory=list)


def list_as_log_directory(path: str, nested: Collection[str]) -> LogDirectory:
    """The inventory of a known data directory. nested: names of subdirectories that are not its partitions,
    whatever their names. Raises OSError if it cannot be listed."""
    content = _scan(path)
    directories = [_sub_directory(entry) for entry in content.directories]
    own = [directory for directory in directories if directory.name not in nested]
    return LogDirectory(
        path,
        tuple(_entries(content.files)),
        tuple(directory for directory in own if directory.partition),
        tuple(directory for directory in own if not directory.partition),
        tuple(directory for directory in directories if directory.name in nested),
    )


def list_as_other(path: str) -> OtherDirectory:
    """The inventory of a directory that does not belong to Kafka. Raises OSError if it cannot be listed."""
    content = _scan(path)
    return OtherDirectory(
        path, tuple(_entries(content.files)), tuple(map(_sub_directory, content.directories))
    )


def list_partition(path: str) -> PartitionDirectory:
    """The inventory of a known partition directory; a failure becomes its `problem`."""
    try:
        return _partition_directory(path, _scan(path))
    except OSError as error:
        return PartitionDirectory(path, own_partition_name(path), problem=str(cannot_read(path, error)))


def partitions_in(log_dir: str) -> list[tuple[str, PartitionName]]:
    """(directory, parsed name) of every partition in a data directory, ordered by name. Raises UnreadableInput."""
    found = []
    try:
        with places.scandir(log_dir) as entries:
            for entry in entries:
                name = partition_name(entry.name)
                if name is not None and is_directory_entry(entry):
                    found.append((entry.name, name))
    except OSError as error:
        raise cannot_read(log_dir, error) from error
    return sorted(found, key=lambda partition: partition[0])


def bytes_in(path: str) -> int:
    """The sizes of the regular files in a directory, without those that cannot be examined; empty if it cannot be listed."""
    size_bytes = 0
    with suppress(OSError), places.scandir(path) as found:
        for entry in found:
            with suppress(OSError):
                size_bytes += entry.stat().st_size if entry.is_file() else 0
    return size_bytes


def plain_last_segment(path: str) -> SegmentFiles | None:
    """The last segment of a partition whose logs all have Kafka's plain names, with its two indexes, by names only: no file is examined, so
    sizes and times are 0. None if there are other names, or one of the three files is missing; then use `list_partition`."""
    try:
        with places.scandir(path) as found:
            entries = {entry.name: entry for entry in found}
    except OSError:
        return None
    logs = [name for name in entries if name.endswith(LOG_SUFFIX)]
    stems = [name.removesuffix(LOG_SUFFIX) for name in logs]
    if not logs or not all(
        len(stem) == _OFFSET_DIGITS and stem.isascii() and stem.isdecimal() for stem in stems
    ):
        return None
    stem = max(stems)
    files = [entries.get(stem + suffix) for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
    named = [
        Entry(file.path, 0, 0, parse_file_name(file.name))
        for file in files
        if file and file.is_file(follow_symlinks=False)
    ]
    base_offset = named[0].name.base_offset if len(named) == len(files) else None
    return None if base_offset is None else SegmentFiles(base_offset, *named)


def partition_files(path: str) -> list[tuple[str, FileName]]:
    """(path, name) of everything except directories in a known partition directory, by name.

    For callers that open the files anyway: no file is examined. Raises UnreadableInput if it cannot be listed.
    """
    try:
        return [(entry.path, name) for entry, name in _scan(path).files]
    except OSError as error:
        raise cannot_read(path, error) from error


def partition_of(path: str, entries: Iterable[Entry]) -> PartitionDirectory:
    """The inventory of a partition directory with these files, wherever they are stored."""
    return _partition_of(path, tuple(sorted(entries, key=lambda entry: entry.name.name)), ())


def _scan(path: str) -> _Content:
    content = _Content()
    with places.scandir(path) as found:
        for entry in sorted(found, key=lambda entry: entry.name):
            name = parse_file_name(entry.name)
            if is_directory_entry(entry) and not (name.is_live and is_of_partition(name)):
                content.directories.append(entry)
            else:  # or a directory in the place of a partition file
                content.files.append((entry, name))
    return content


def is_directory_entry(entry: places.DirEntry) -> bool:
    """Whether it is a directory or a link to one; False if that cannot be determined."""
    try:
        return entry.is_dir()
    except OSError:
        return False


@lru_cache(maxsize=1 << 15)  # called again by each step that works on a partition
def partition_name(name: str) -> PartitionName | None:
    """The name of a directory, parsed; None if it is not that of a partition."""
    try:
        return parse_partition_directory(name)
    except FormatError:
        return None


def own_partition_name(path: str) -> PartitionName | None:
    """The name of the directory itself, parsed; None if it is not that of a partition."""
    name = path.rpartition(os.sep)[2]
    if name in _OF_ANOTHER_NAME:
        name = os.path.basename(places.abspath(path))
    return partition_name(name)


def sub_directory_of(entry: places.DirEntry, problem: str) -> SubDirectory:
    """Describe a directory that could not be listed, with the reason."""
    return SubDirectory(entry.path, entry.name, partition_name(entry.name), problem)


def _sub_directory(entry: places.DirEntry) -> SubDirectory:
    if entry.name in (REMOTE_INDEX_CACHE, KSEG_DIRECTORY):
        return SubDirectory(entry.path, entry.name)
    name = partition_name(entry.name)
    if name is not None:
        return SubDirectory(entry.path, entry.name, name, is_link=entry.is_symlink())
    try:
        return SubDirectory(entry.path, entry.name, parse_partition_directory(entry.name))
    except FormatError as error:
        return SubDirectory(entry.path, entry.name, None, str(error))


def _entries(files: Iterable[tuple[places.DirEntry, FileName]]) -> Iterator[Entry]:
    """Raises PermissionError for files of a directory that may be listed, but not entered."""
    for file, name in files:
        try:
            status = file.stat()
            if not file.is_file():
                yield Entry(file.path, 0, 0, name, f"cannot read {file.path}: not a regular file")
                continue
        except OSError as error:
            if isinstance(error, PermissionError) and not file.is_symlink():
                raise
            yield Entry(file.path, 0, 0, name, f"cannot read {file.path}: {error.strerror}")
            continue
        yield Entry(file.path, status.st_size, status.st_mtime_ns // 1_000_000, name)


def _live_entry(entries: Iterable[Entry], role: Role) -> Entry | None:
    return next((entry for entry in entries if entry.name.role is role and entry.name.is_live), None)


def segment_order(name: FileName) -> tuple[int, int, str]:
    """Sorts the numbered files of a partition in Kafka's order: by offset, log before indexes."""
    return (name.base_offset or 0, _ROLE_RANK.get(name.role, len(_ROLE_RANK)), name.name)


def _entry_order(entry: Entry) -> tuple[int, int, str]:
    return segment_order(entry.name)


def _partition_directory(path: str, content: _Content) -> PartitionDirectory:
    directories = tuple(map(_sub_directory, content.directories))
    return _partition_of(path, tuple(_entries(content.files)), directories)


def _partition_of(
    path: str, entries: tuple[Entry, ...], directories: tuple[SubDirectory, ...]
) -> PartitionDirectory:
    # a broker ignores anything that is not a regular file (a dangling link, a pipe)
    numbered = sorted(
        (
            entry
            for entry in entries
            if entry.problem is None
            and entry.name.is_live
            and entry.name.role in NUMBERED_ROLES
            and not entry.name.remote_segment_id
        ),
        key=_entry_order,
    )
    by_slot: dict[tuple[int, Role], Entry] = {}
    orphans = []
    for entry in sorted(numbered, key=lambda entry: not entry.name.is_well_formed):
        offset = entry.name.base_offset
        if offset is None or by_slot.setdefault((offset, entry.name.role), entry) is not entry:
            orphans.append(entry)  # no number, or another spelling of a number that is taken
    segments = tuple(_segments(by_slot))
    bases = {segment.base_offset for segment in segments}
    for (offset, role), entry in by_slot.items():
        if role in SEGMENT_ROLES and role is not Role.PRODUCER_SNAPSHOT and offset not in bases:
            orphans.append(entry)
    return PartitionDirectory(
        path,
        own_partition_name(path),
        entries,
        segments,
        tuple(_of_role(by_slot, Role.KAFKA07_LOG)),
        tuple(_of_role(by_slot, Role.PRODUCER_SNAPSHOT)),
        tuple(sorted(orphans, key=_entry_order)),
        directories,
    )


def _of_role(by_slot: dict[tuple[int, Role], Entry], role: Role) -> Iterator[Entry]:
    return (by_slot[slot] for slot in sorted(by_slot) if slot[1] is role)


def _segments(by_slot: dict[tuple[int, Role], Entry]) -> Iterator[SegmentFiles]:
    for log in _of_role(by_slot, Role.LOG):
        base = log.name.base_offset
        assert base is not None
        yield SegmentFiles(
            base,
            log,
            by_slot.get((base, Role.OFFSET_INDEX)),
            by_slot.get((base, Role.TIME_INDEX)),
            by_slot.get((base, Role.TXN_INDEX)),
            by_slot.get((base, Role.PRODUCER_SNAPSHOT)),
        )
