"""Recognise a directory by its contents, not by its name: a data directory may well be called `data-1`.

    1. segment files (a numbered `.log`, `.index`, `.kafka`, …) → a partition, unless partitions or data directories are
       below it and a data directory's own files (meta.properties, an offset checkpoint, …) beside them
    2. other files of a partition (partition.metadata, …) and nothing of Kafka below → a partition
    3. a data directory's own files, or partitions directly below → a log dir
    4. log dirs somewhere below, at any depth → a parent of these (a log dir may itself have others below)
    5. empty directories named like partitions → a log dir
    6. the name of a partition → an empty partition
    7. otherwise → not a directory of Kafka

An empty directory with the name of a partition is one only inside a log dir, not next to log dirs: the mount point of
a missing disk may be called `data-2`. Directories below a partition are not searched; `verify` reports them.

Each directory is walked once, however many links lead to it, so cyclic links do no harm; a path without
links is preferred for output. A directory that cannot be listed is reported, never skipped silently.
"""

import os
from collections.abc import Sequence
from dataclasses import field

from kseg.segment.errors import UnreadableInput, cannot_read
from kseg.segment.partition.directory import (
    Directory,
    LogDirectory,
    ParentDirectory,
    SubDirectory,
    is_directory_entry,
    list_as_log_directory,
    list_as_other,
    list_partition,
    partition_name,
    sub_directory_of,
)
from kseg.segment.partition.names import (
    KSEG_DIRECTORY,
    LOST_AND_FOUND,
    NAME_BY_ROLE,
    NUMBERED_ROLES,
    REMOTE_INDEX_CACHE,
    Role,
    is_of_log_directory,
    is_of_partition,
    parse_file_name,
)
from kseg.segment.storage import places
from kseg.segment.values import dataclass

# deeper than any data directory; a path of a few KiB can have two thousand levels
MAX_LEVELS = 100
_NEVER_BELOW = (KSEG_DIRECTORY, REMOTE_INDEX_CACHE)


@dataclass(slots=True)
class _Glance:
    """The evidence of the names in one directory. is_numbered: some are those of segments."""

    is_numbered: bool = False
    has_partition_files: bool = False
    has_log_dir_files: bool = False
    directories: list[places.DirEntry] = field(default_factory=list)

    @property
    def is_surely_partition(self) -> bool:
        is_plain = self.is_numbered or (self.has_partition_files and not self.directories)
        return is_plain and not (self.has_log_dir_files and self.directories)


@dataclass(slots=True)
class _Found:
    """The result for one directory. is_partition: by its files. log_directories: itself first, if it is one.
    unreadable: directories in it or below that could not be listed. is_seen: it was walked before."""

    is_partition: bool = False
    log_directories: list[LogDirectory] = field(default_factory=list)
    unreadable: list[SubDirectory] = field(default_factory=list)
    is_seen: bool = False


def list_directory(path: str) -> Directory:
    """The kind and content of `path`, which is used as given. Raises UnreadableInput if it cannot be listed, or has
    too many levels below it."""
    try:
        found = _Walk().walk(path, 0)
        if found.is_partition:
            return list_partition(path)
        if [each.path for each in found.log_directories] == [path] and not found.unreadable:
            return found.log_directories[0]
        if found.log_directories or found.unreadable:
            return ParentDirectory(path, tuple(found.log_directories), tuple(found.unreadable))
        other = list_as_other(path)
    except OSError as error:
        raise cannot_read(path, error) from error
    return list_partition(path) if partition_name(os.path.basename(places.abspath(path))) else other


def list_log_directory(path: str, nested: Sequence[str] | None = None) -> LogDirectory:
    """The inventory of a data directory, also of one with nested ones. nested: names of subdirectories that are or contain data
    directories, so that they need not be searched again; None: unknown. Raises UnreadableInput if it is not a data directory."""
    if nested is not None:
        try:
            return list_as_log_directory(path, nested)
        except OSError as error:
            raise cannot_read(path, error) from error
    directory = list_directory(path)
    around = directory.log_directories if isinstance(directory, ParentDirectory) else (directory,)
    for found in around:
        if isinstance(found, LogDirectory) and found.path == path:
            return found
    raise UnreadableInput(f"{path} is not a Kafka data directory")


def is_surely_partition(path: str) -> bool:
    """Whether the names in `path` alone identify it as a partition; no file is examined."""
    try:
        return _glance(path).is_surely_partition
    except OSError:
        return False


def _glance(path: str) -> _Glance:
    """Examine only names, and of the many names in a partition no more than necessary."""
    seen = _Glance()
    with places.scandir(path) as found:
        for entry in found:
            if is_directory_entry(entry):
                if entry.name not in _NEVER_BELOW:
                    seen.directories.append(entry)
            elif is_of_log_directory(entry.name):
                seen.has_log_dir_files = True
            elif not seen.is_numbered:
                name = parse_file_name(entry.name)
                if is_of_partition(name):
                    seen.has_partition_files = True
                    seen.is_numbered = name.role in NUMBERED_ROLES
    return seen


class _Walk:
    """One search below a directory. Each directory, identified by device and inode, is walked once."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()

    def walk(self, path: str, level: int) -> _Found:
        """Raises OSError if `path` itself cannot be listed."""
        glance = _glance(path)
        if glance.is_surely_partition:
            return _Found(is_partition=True)
        status = places.stat(path)
        identity = status.st_dev, status.st_ino
        if identity in self._seen:
            return _Found(is_seen=True)
        self._seen.add(identity)
        found = _Found()
        partitions, others, nested = list[str](), list[str](), list[str]()
        for child in sorted(glance.directories, key=lambda entry: (entry.is_symlink(), entry.name)):
            below = self._child(child, level + 1, found.unreadable)
            if below.is_partition and partition_name(child.name):
                partitions.append(child.name)
            elif below.log_directories or below.is_seen:
                nested.append(child.name)
                found.log_directories += below.log_directories
            else:
                others.append(child.name)
        found.log_directories.sort(key=lambda each: each.path)
        is_crowded = bool(partitions or found.log_directories)
        if glance.has_partition_files and not is_crowded:
            return _Found(is_partition=True)
        is_named = not found.log_directories and any(map(partition_name, others))
        if glance.has_log_dir_files or glance.has_partition_files or partitions or is_named:
            own = list_as_log_directory(path, nested)
            found.log_directories.insert(0, own)
            # listing the partition itself reports what cannot be listed, and directories that do not belong there
            theirs = {each.path for each in (*own.partitions, *own.other_directories)}
            found.unreadable = [each for each in found.unreadable if each.path not in theirs]
        return found

    def _child(self, child: places.DirEntry, level: int, unreadable: list[SubDirectory]) -> _Found:
        """Classify a directory, and record what cannot be listed. Raises UnreadableInput for one that is too deep."""
        if level > MAX_LEVELS:
            raise UnreadableInput(
                f"{child.path} is more than {MAX_LEVELS} directories deep; name the data directories directly"
            )
        try:
            if child.is_symlink() and not self._leads_to_kafka(child.path):
                return _Found()
            found = self.walk(child.path, level)
        except OSError as error:
            if not (child.name == LOST_AND_FOUND and isinstance(error, PermissionError)):
                problem = f"cannot read {child.path}: {error.strerror}"
                unreadable.append(sub_directory_of(child, problem))
            return _Found()
        unreadable += found.unreadable
        return found

    def _leads_to_kafka(self, link: str) -> bool:
        """Whether a link leads to a partition, a data directory, or a directory that was walked before; other links are not followed,
        since they can lead anywhere. Raises OSError."""
        glance = _glance(link)
        status = places.stat(link)
        is_seen = (status.st_dev, status.st_ino) in self._seen
        return is_seen or glance.has_partition_files or glance.has_log_dir_files


def is_partition_directory(path: str) -> bool:
    """Whether `path` has a file that only a partition has; stops at the first one, so it is cheap for any size."""
    try:
        with places.scandir(path) as found:
            return any(is_of_partition(parse_file_name(entry.name)) for entry in found)
    except OSError:
        return False


def is_log_directory(path: str) -> bool:
    """Whether `path` has a file that only a data directory has (so that a partition's parent can be trusted).

    Raises UnreadableInput when that cannot be determined: a partition would then be changed without the broker's lock."""
    try:
        with places.scandir(path) as found:
            return any(is_of_log_directory(entry.name) for entry in found)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:  # without permission to list a directory, single names can still be looked up
        named = (NAME_BY_ROLE[Role.LOCK], NAME_BY_ROLE[Role.META_PROPERTIES])
        return any(places.lexists(os.path.join(path, name)) for name in named)
    except OSError as error:
        raise cannot_read(path, error) from error
