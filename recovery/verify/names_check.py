"""Check names and sizes: leftovers of interrupted work, unknown files, files without a segment, impossible sizes."""

import os
from collections.abc import Iterator

from kseg.segment import layout as L
from kseg.segment.counted import counted
from kseg.segment.findings import Finding, deleted_directory, linked_directory
from kseg.segment.partition.directory import Entry, LogDirectory, PartitionDirectory, SubDirectory
from kseg.segment.partition.names import (
    INDEX_ROLES,
    KSEG_DIRECTORY,
    NAME_BY_ROLE,
    REMOTE_INDEX_CACHE,
    FileState,
    PartitionState,
    Role,
)
from kseg.segment.storage import places
from kseg.segment.terminal import shown_path

_LEFTOVERS = {
    FileState.DELETED: "leftover-deleted",
    FileState.CLEANED: "leftover-cleaned",
    FileState.SWAP: "leftover-swap",
    FileState.TMP: "leftover-tmp",
    FileState.PART: "leftover-tmp",
}
_LOG_DIR_ROLES = (
    Role.RECOVERY_POINTS,
    Role.HIGH_WATERMARKS,
    Role.LOG_START_OFFSETS,
    Role.CLEANER_OFFSETS,
    Role.META_PROPERTIES,
    Role.CLEAN_SHUTDOWN,
    Role.LOCK,
    Role.KSEG_JOURNAL,
    Role.KSEG_STREAM,
    Role.BOOTSTRAP_SNAPSHOT,
)
_BEGUN_SUFFIX = ".jsonl"  # of a journal beside the files of a partition, where it stays until .kseg exists
SLOT_BYTES = {
    Role.OFFSET_INDEX: L.OFFSET_INDEX_ENTRY,
    Role.TIME_INDEX: L.TIME_INDEX_ENTRY,
    Role.TXN_INDEX: L.TXN_INDEX_ENTRY,
}
_SMALLEST_BATCH_BYTES = L.ENTRY_OVERHEAD + L.MIN_LEGACY_SIZE_FIELD


def partition_names(directory: PartitionDirectory, *, is_in_use: bool = False) -> Iterator[Finding]:
    """Findings from the names in a partition directory. is_in_use: by a broker, whose cleaner may be at work."""
    orphans = {entry.path for entry in directory.orphans}
    for entry in directory.entries:
        if is_in_use and entry.name.state in (FileState.CLEANED, FileState.SWAP):
            continue
        yield from file_name(entry, in_log_dir=False, is_orphan=entry.path in orphans)
    for child in directory.directories:
        if child.name not in (KSEG_DIRECTORY, REMOTE_INDEX_CACHE):
            message = "a directory inside a partition directory; brokers and kseg ignore it"
            yield Finding("unknown-file", child.path, message)
    if not directory.segments and not directory.kafka07_files:
        yield Finding("no-segments", directory.path, "the directory has no segment")


def log_dir_names(entries: tuple[Entry, ...]) -> Iterator[Finding]:
    """Findings from the names of the files of a data directory."""
    for entry in entries:
        yield from file_name(entry, in_log_dir=True, is_orphan=False)


def file_name(entry: Entry, in_log_dir: bool, is_orphan: bool) -> Iterator[Finding]:
    name, path, length = entry.name, entry.path, entry.size_bytes
    if entry.problem is not None:
        yield Finding("unreadable-file", path, entry.problem)
    elif name.role is Role.KSEG_JOURNAL and not in_log_dir:
        if name.name.endswith(_BEGUN_SUFFIX):  # other files point to a journal elsewhere
            message = "left by a change of kseg that was killed before it changed anything; the next change removes it"
            yield Finding("leftover-tmp", path, message, 0, length)
    elif name.role is Role.UNKNOWN or (name.role in _LOG_DIR_ROLES) != in_log_dir:
        yield Finding("unknown-file", path, f"{shown_path(name.name)} is not a Kafka file", 0, length)
    elif not name.is_live:
        kind = _LEFTOVERS[name.state]
        yield Finding(kind, path, f"{name.name} is marked as {name.state}", 0, length, name.base_offset)
    elif not name.is_well_formed:
        yield Finding("bad-file-name", path, f"{name.name} is not a file name that Kafka writes", 0, length)
    elif is_orphan and name.role in INDEX_ROLES:
        yield Finding("orphan-index", path, f"{name.name} has no matching .log", 0, length, name.base_offset)


def index_size(entry: Entry, log_bytes: int | None = None) -> Iterator[Finding]:
    """Check the length of an index against its segment. log_bytes: size of the segment; None = anything may be preallocated."""
    width = SLOT_BYTES.get(entry.name.role)
    if width is None:
        return
    trailing = entry.size_bytes % width
    if trailing:
        kind = "txn-index-bad-size" if entry.name.role is Role.TXN_INDEX else "index-bad-size"
        message = f"the size of {counted(entry.size_bytes, 'byte')} is not a multiple of {width}, the size of an entry"
        yield Finding(kind, entry.path, message, entry.size_bytes - trailing, trailing)
    elif log_bytes is not None and entry.size_bytes // width > log_bytes // _SMALLEST_BATCH_BYTES + 1:
        message = (
            f"{counted(entry.size_bytes // width, 'entry')} "
            f"{'is' if entry.size_bytes < 2 * width else 'are'} too many for a segment of "
            f"{counted(log_bytes, 'byte')}"
        )
        yield Finding("index-oversized", entry.path, message, 0, entry.size_bytes)


def sub_directory(directory: SubDirectory) -> Iterator[Finding]:
    """The verdict on the name of a directory inside a data directory."""
    if places.islink(directory.path):
        yield linked_directory(directory.path)
    partition = directory.partition
    if partition is None:
        if directory.name == NAME_BY_ROLE[Role.CLEAN_SHUTDOWN] and not places.listdir(directory.path):
            message = "it is an empty directory, which a broker accepts as the marker"
            yield Finding("clean-shutdown-corrupt", directory.path, message)
        elif directory.name not in (REMOTE_INDEX_CACHE, KSEG_DIRECTORY):
            yield Finding(
                "bad-directory-name", directory.path, directory.problem or "this is not a partition"
            )
        elif directory.name == KSEG_DIRECTORY:
            message = "a broker refuses to start with this directory in a data directory"
            yield Finding("bad-directory-name", directory.path, message)
        return
    match partition.state:
        case PartitionState.STRAY:
            yield Finding("stray-directory", directory.path, f"{partition.text} was renamed as stray")
        case PartitionState.DELETE:
            yield deleted_directory(directory.path, partition.text)
        case PartitionState.FUTURE:
            yield Finding(
                "future-directory", directory.path, f"{partition.text} is being moved to this directory"
            )


def nested_directories(directory: LogDirectory) -> Iterator[Finding]:
    """Report data directories nested in a broker's own; a mere collection of partitions may contain some."""
    if not any(entry.name.role in _LOG_DIR_ROLES for entry in directory.entries):
        return
    for child in directory.nested:
        consequence = (
            "does not start because of its name"
            if child.partition is None
            else f"loads it as the partition {child.partition.text} and renames it, with everything in it, as stray"
        )
        message = f"this is a data directory inside {directory.path}; a broker that has the latter in log.dirs {consequence}"
        yield Finding("nested-log-dir", child.path, message)


def sibling_path(path: str, suffix: str) -> str:
    """The path of another file of the same segment."""
    return os.path.splitext(path)[0] + suffix
