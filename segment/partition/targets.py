"""Turn PATH arguments into targets: picklable values, one worker call each.

A PATH is a file, a partition directory, a data directory, or a parent of several. The `Expansion` of a command determines
into which targets a directory is divided:

    FILES        every dumpable file, one target each      dump
    PARTITIONS   the partition directories                 lookup, read, export
    VERIFY       partitions, and each data directory       verify, recover, compact, retain
    INVENTORY    the same                                  list

A partition directory that is marked for deletion (`…-delete`) is no longer a log: a broker removes it at its next start. Below a data
directory it is a target only of `list`; given as a PATH it is a partition like any other.
With each of them, a PATH that is a file remains one FileTarget. Output shows the given path joined with names. A
directory counts once, however many paths and links lead to it; a path without a link is preferred.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from kseg.segment.errors import FormatError, UnreadableInput, UsageError, cannot_read
from kseg.segment.partition.directory import (
    Entry,
    LogDirectory,
    OtherDirectory,
    ParentDirectory,
    PartitionDirectory,
    own_partition_name,
    partition_files,
    segment_order,
)
from kseg.segment.partition.names import (
    SEGMENT_ROLES,
    FileName,
    PartitionName,
    PartitionState,
    Role,
    parse_file_name,
    parse_partition_directory,
)
from kseg.segment.partition.recognition import is_log_directory, is_surely_partition, list_directory
from kseg.segment.storage import places
from kseg.segment.storage.attached import ARCHIVE_SUFFIXES
from kseg.segment.values import dataclass

# of archives and compressed files that kseg does not read
_PACKED_SUFFIXES = (".zip", ".7z", ".rar", ".cpio", ".gz", ".bz2", ".xz", ".zst", ".lz4")


@dataclass(frozen=True, slots=True)
class FileTarget:
    """One file. path: as shown to the user (given path, or directory as given joined with the name)."""

    path: str


@dataclass(frozen=True, slots=True)
class PartitionTarget:
    """One partition directory. log_dir: its data directory (with the checkpoints), None if unknown."""

    path: str
    log_dir: str | None = None

    @property
    def shown_name(self) -> str:
        """`topic-partition`, or the path of a directory with any other name."""
        name = own_partition_name(self.path)
        return self.path if name is None else name.text


@dataclass(frozen=True, slots=True)
class LogDirTarget:
    """One data directory as a whole: its own files and the values on which its partitions must agree. before: the data directories
    given before it in the same run, with which it is compared. nested: the names of its subdirectories that are or contain data
    directories, None if they were not searched."""

    path: str
    before: tuple[str, ...] = field(default=(), compare=False)
    nested: tuple[str, ...] | None = field(default=None, compare=False)


LogTarget = FileTarget | PartitionTarget
Target = LogTarget | LogDirTarget


def only_one_file(target: FileTarget, purpose: str) -> UsageError:
    """The exception for a file given in place of a partition. purpose: what needs the whole partition, as in "to compact it"."""
    return UsageError(f"{target.path} is one file of a log; name its partition directory {purpose}")


def log_dir_of(target: Target) -> str:
    """The log dir around a target, even if only a partition or a file in one was named; for a log dir, the log dir itself."""
    match target:
        case LogDirTarget():
            return target.path
        case PartitionTarget():
            return target.log_dir or os.path.dirname(places.abspath(target.path))
        case FileTarget():
            return os.path.dirname(os.path.dirname(places.abspath(target.path)))


def log_dirs_around(target: Target) -> list[str]:
    """The log dirs whose broker may use a target: the one around its path and, for a directory named through a link, the one that
    really contains it."""
    found, directory = [log_dir_of(target)], directory_of(target)
    if places.islink(directory) and not isinstance(target, LogDirTarget):
        found.append(os.path.dirname(places.realpath(directory)))
    return found


def directory_of(target: Target) -> str:
    """The directory of a target, or the target itself if it is one."""
    return target.path if not isinstance(target, FileTarget) else os.path.dirname(target.path) or os.curdir


class Expansion(StrEnum):
    """The targets of a directory (see the module's table)."""

    FILES = "files"
    PARTITIONS = "partitions"
    VERIFY = "verify"
    INVENTORY = "inventory"


ListFiles = Callable[[Sequence[str]], Iterable[Sequence[FileTarget]]]
DUMPED_ROLES = frozenset((*SEGMENT_ROLES, Role.KAFKA07_LOG, Role.METADATA_SNAPSHOT, Role.BOOTSTRAP_SNAPSHOT))


@dataclass(frozen=True, slots=True)
class _Wish:
    topics: tuple[str, ...]
    partition: int | None
    expansion: Expansion
    passed_over: list[str]
    links: list[str]

    @property
    def is_narrowed(self) -> bool:
        return bool(self.topics) or self.partition is not None

    def accepts(self, name: PartitionName | None) -> bool:
        """Whether --topic and --partition select this partition."""
        return is_selected(name, self.topics, self.partition)


def is_selected(name: PartitionName | None, topics: Sequence[str], partition: int | None) -> bool:
    """Whether --topic (globs, any of which may match) and --partition select a partition; one with an unreadable name only if
    neither is given."""
    if name is None:
        return not topics and partition is None
    is_wanted = partition is None or name.partition == partition
    return is_wanted and (not topics or any(fnmatchcase(name.topic, glob) for glob in topics))


def resolve_targets(
    paths: Sequence[str],
    *,
    topics: Sequence[str] = (),
    partition: int | None = None,
    expand: Expansion = Expansion.PARTITIONS,
    list_files: ListFiles | None = None,
    passed_over: list[str] | None = None,
) -> list[Target]:
    """The targets of PATH arguments, in the order given; directories sorted by name, files by offset.

    topics: globs over topic names, any of which may match. partition: the number, None for all. A partition directory with an unreadable
    name is left out if either is given; so are data directories as a whole. A file given by the user is left out only if its directory has
    the name of another partition. Equal targets are returned once, and so are directories to which several paths lead. list_files:
    `files_of`, or a faster equivalent for many directories. passed_over: receives the paths of directories that are not targets because
    they are marked for deletion. Raises UnreadableInput for a path that is missing, cannot be listed, or contains nothing of Kafka.
    """
    wish = _Wish(tuple(topics), partition, expand, [] if passed_over is None else passed_over, [])
    targets = [target for path in paths for target in _resolve(path, wish)]
    # without links, a single path leads to each directory only once
    if len(paths) > 1 or wish.links:
        targets = each_directory_once(targets)
    if expand is not Expansion.FILES:
        once = _each_file_once(targets) if len(paths) > 1 else targets
        return list(_side_by_side(dict.fromkeys(once)))
    directories = [target.path for target in targets if isinstance(target, PartitionTarget)]
    listed = iter((list_files or files_of)(directories))
    return [
        file
        for target in targets
        for file in (next(listed) if isinstance(target, PartitionTarget) else (target,))
    ]


def each_directory_once(targets: Sequence[Target]) -> list[Target]:
    """The targets without further paths to the same directory; a path without links is kept if there is one."""
    by_identity: dict[tuple[int, int, type[Target]], list[Target]] = {}
    for target in targets:
        if not isinstance(target, FileTarget):
            with suppress(OSError):  # processing it later reports why it cannot be examined
                status = places.stat(target.path)
                by_identity.setdefault((status.st_dev, status.st_ino, type(target)), []).append(target)
    further: set[str] = set()
    for same in by_identity.values():
        paths = list(dict.fromkeys(target.path for target in same))
        if len(paths) > 1:
            shown = min(paths, key=_leads_through_link)
            further.update(path for path in paths if path != shown)
    return [target for target in targets if isinstance(target, FileTarget) or target.path not in further]


def _each_file_once(targets: Sequence[Target]) -> list[Target]:
    """The targets without further paths to the same file, and without files that the work on their directory covers."""
    folders = {os.path.dirname(target.path) for target in targets if isinstance(target, FileTarget)}
    if not folders:
        return [*targets]
    identity = {folder: _identity(folder or os.curdir) for folder in folders}
    whole = {_identity(target.path) for target in targets if not isinstance(target, FileTarget)}
    seen: set[tuple[object, str]] = set()
    found: list[Target] = []
    for target in targets:
        if isinstance(target, FileTarget):
            folder, name = os.path.split(target.path)
            file = identity[folder], name
            if file in seen or (identity[folder] in whole and _is_covered(name)):
                continue
            seen.add(file)
        found.append(target)
    return found


def _is_covered(name: str) -> bool:
    """Whether the work on a directory covers its file of this name."""
    file = parse_file_name(name)
    return file.is_live and file.role is not Role.UNKNOWN


def _identity(directory: str) -> object:
    """What is equal for all paths to a directory on disk."""
    with suppress(OSError):
        if not places.is_elsewhere(directory):
            status = places.stat(directory)
            return status.st_dev, status.st_ino
    return directory


def _leads_through_link(path: str) -> bool:
    return places.realpath(path) != places.abspath(path)


def _side_by_side(targets: Iterable[Target]) -> Iterator[Target]:
    """The same targets, each data directory with those before it."""
    before: list[str] = []
    for target in targets:
        if not isinstance(target, LogDirTarget):
            yield target
            continue
        yield replace(target, before=tuple(before))
        before.append(target.path)


def files_of(directories: Sequence[str]) -> list[list[FileTarget]]:
    """The files of each of these partition directories that can be dumped. A directory that cannot be listed is returned itself:
    opening it reports the reason."""
    return [_files(path) for path in directories]


def is_directory(given: str, path: str) -> bool:
    """Whether the `path` that was given as `given` is a directory; a dangling link is not one. Raises UnreadableInput if there is
    nothing, or that cannot be determined."""
    try:
        return stat.S_ISDIR(places.stat(path).st_mode)
    except OSError as error:
        if places.islink(path):
            return False
        raise cannot_read(given, error) from error


def _resolve(given: str, wish: _Wish) -> Iterator[Target]:
    path = places.given(given)
    path = path.rstrip(os.sep) or path
    if not is_directory(given, path):
        if path.endswith(_PACKED_SUFFIXES):
            readable = ", ".join(ARCHIVE_SUFFIXES)
            raise UnreadableInput(
                f"cannot read {given}: unpack it first (archives that need not be: {readable})"
            )
        name = _directory_name(os.path.dirname(path))
        if name is None or wish.accepts(name):
            yield FileTarget(path)
        return
    if wish.expansion is not Expansion.FILES and is_surely_partition(path):
        # the names of its files suffice here: processing the partition lists it anyway
        if wish.accepts(own_partition_name(path)):
            yield PartitionTarget(path, _recognized_log_dir(path))
        return
    directory = list_directory(path)
    match directory:
        case PartitionDirectory():
            if wish.accepts(directory.name):
                yield from _of_partition(directory, wish, _recognized_log_dir(path))
        case LogDirectory():
            yield from _of_log_directory(directory, wish)
        case ParentDirectory():
            for child in directory.log_directories:
                yield from _of_log_directory(child, wish)
            for hidden in directory.unreadable:
                if wish.accepts(hidden.partition):
                    yield PartitionTarget(hidden.path)  # processing it reports why it cannot be listed
        case OtherDirectory():
            raise UnreadableInput(f"{given} contains no Kafka partition, segment or checkpoint")


def _directory_name(path: str) -> PartitionName | None:
    try:
        return parse_partition_directory(os.path.basename(places.abspath(path)))
    except FormatError:
        return None


def _recognized_log_dir(partition_path: str) -> str | None:
    """The data directory around a partition directory that was given alone, None if its parent is not one. A link elsewhere to a partition
    of the same name stands for that partition: its checkpoints are where it leads."""
    head, tail = os.path.split(partition_path)
    parent = (
        os.path.join(partition_path, os.pardir) if tail in ("", os.curdir, os.pardir) else head or os.curdir
    )
    if is_log_directory(parent):
        return parent
    behind, name = os.path.split(places.realpath(partition_path))
    return behind if places.islink(partition_path) and name == tail and is_log_directory(behind) else None


def _of_log_directory(directory: LogDirectory, wish: _Wish) -> Iterator[Target]:
    if wish.expansion in (Expansion.VERIFY, Expansion.INVENTORY) and not wish.is_narrowed:
        yield LogDirTarget(directory.path, nested=tuple(child.name for child in directory.nested))
    if wish.expansion is Expansion.FILES and not wish.is_narrowed:
        yield from _dumpable(_named(directory.entries))
    for child in directory.partitions:
        if not wish.accepts(child.partition):
            continue
        is_marked = child.partition is not None and child.partition.state is PartitionState.DELETE
        if is_marked and wish.expansion is not Expansion.INVENTORY:
            wish.passed_over.append(child.path)
        else:
            if child.is_link:
                wish.links.append(child.path)
            yield PartitionTarget(child.path, directory.path)


def _of_partition(directory: PartitionDirectory, wish: _Wish, log_dir: str | None) -> Iterator[Target]:
    if wish.expansion is Expansion.FILES:
        yield from _dumpable(_named(directory.entries))
    else:
        yield PartitionTarget(directory.path, log_dir)


def _files(partition_path: str) -> list[FileTarget]:
    try:
        return list(_dumpable(partition_files(partition_path)))
    except UnreadableInput:
        return [FileTarget(partition_path)]


def _named(entries: Sequence[Entry]) -> list[tuple[str, FileName]]:
    return [(entry.path, entry.name) for entry in entries]


def _dumpable(files: Sequence[tuple[str, FileName]]) -> Iterator[FileTarget]:
    wanted = [
        (segment_order(name), path) for path, name in files if name.is_live and name.role in DUMPED_ROLES
    ]
    return (FileTarget(path) for _, path in sorted(wanted))
