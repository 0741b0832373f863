"""`list`: an inventory of files by name and of partitions by their batch headers.

    a file                  one row
    a partition             one row for each file, including unknown ones, then one for the partition
    a data directory        one row for each of its own files and each directory that is not a partition, then one for the
                            whole; its partitions are separate targets

The fields of a partition's row that describe its log come from `log_summary`. Checksums are not verified; `verify` does that.
"""

import os
from collections.abc import Iterator, Mapping, Sequence

from kseg.inspection.log_summary import counted_summary, estimated_summary
from kseg.inspection.query import ListOptions
from kseg.inspection.quick_listing import quick_row
from kseg.jobs.events import Event, Row
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, UnreadableInput, cannot_read
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.kafka07.log07 import Log07
from kseg.segment.partition.directory import (
    Entry,
    LogDirectory,
    PartitionDirectory,
    SegmentFiles,
    SubDirectory,
    bytes_in,
    list_partition,
    own_partition_name,
    segment_order,
)
from kseg.segment.partition.log_shape import ShapeTaker
from kseg.segment.partition.names import (
    OFFSET_CHECKPOINT_ROLES,
    FileName,
    PartitionName,
    PartitionState,
    Role,
    parse_file_name,
)
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.recognition import list_log_directory
from kseg.segment.partition.targets import (
    FileTarget,
    LogDirTarget,
    PartitionTarget,
    Target,
    each_directory_once,
)
from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint
from kseg.segment.sidecar.metadata_files import decode_meta_properties, decode_partition_metadata
from kseg.segment.storage import places
from kseg.segment.storage.attached import is_tiered

KINDS = {
    Role.LOG: "segment",
    Role.OFFSET_INDEX: "offset index",
    Role.TIME_INDEX: "time index",
    Role.TXN_INDEX: "transaction index",
    Role.PRODUCER_SNAPSHOT: "producer snapshot",
    Role.KAFKA07_LOG: "segment of Kafka 0.7",
    Role.METADATA_SNAPSHOT: "metadata snapshot",
    Role.BOOTSTRAP_SNAPSHOT: "bootstrap metadata",
    Role.LEADER_EPOCHS: "leader epochs",
    Role.PARTITION_METADATA: "partition metadata",
    Role.QUORUM_STATE: "quorum state",
    Role.RECOVERY_POINTS: "recovery point checkpoint",
    Role.HIGH_WATERMARKS: "high watermark checkpoint",
    Role.LOG_START_OFFSETS: "log start offset checkpoint",
    Role.CLEANER_OFFSETS: "cleaner checkpoint",
    Role.META_PROPERTIES: "data directory identity",
    Role.CLEAN_SHUTDOWN: "clean shutdown marker",
    Role.LOCK: "lock of a broker",
    Role.KSEG_JOURNAL: "journal of kseg",
    Role.KSEG_STREAM: "progress of a stream of kseg's",
    Role.UNKNOWN: "unknown",
}
_REQUIRED = (("offset_index", L.OFFSET_INDEX_SUFFIX), ("time_index", L.TIME_INDEX_SUFFIX))


def list_target(target: Target, options: ListOptions) -> Iterator[Event]:
    """The rows of one target. Raises UnreadableInput if it cannot be listed."""
    match target:
        case FileTarget():
            yield _file_row(_single(target.path), None)
        case PartitionTarget():
            yield from _partition(target, options)
        case LogDirTarget():
            yield from _log_dir(target, options)


# --- files


def _single(path: str) -> Entry:
    try:
        status = places.stat(path)
    except OSError as error:
        raise cannot_read(path, error) from error
    name = parse_file_name(os.path.basename(path))
    return Entry(path, status.st_size, status.st_mtime_ns // 1_000_000, name)


def _file_row(entry: Entry, partition: str | None) -> Row:
    return Row(
        {
            "type": "file",
            "partition": partition,
            "file": entry.path,
            "kind": kind_of(entry.name),
            "state": str(entry.name.state),
            "size": entry.size_bytes,
            "mtime": entry.mtime_ms,
            "base_offset": entry.name.base_offset,
            "problem": entry.problem or _name_problem(entry.name),
        }
    )


def kind_of(name: FileName) -> str:
    """What a file is, in plain words."""
    if name.remote_segment_id is not None:
        return f"cached {KINDS[name.role]} of a tiered segment"
    return KINDS[name.role]


def _name_problem(name: FileName) -> str | None:
    if name.is_well_formed:
        return None
    return "none of Kafka's files" if name.role is Role.UNKNOWN else "not named the way Kafka does"


def _directory_row(directory: SubDirectory, inside: str | None) -> Row:
    name = directory.partition
    return Row(
        {
            "type": "directory",
            "partition": inside,
            "file": directory.path,
            "kind": "directory" if name is None else f"partition ({name.state})",
            "problem": directory.problem,
        }
    )


# --- a partition


def _partition(target: PartitionTarget, options: ListOptions) -> Iterator[Event]:
    values = quick_row(target) if options.is_brief else None
    if values is not None:
        if options.groups is not None:
            values["groups"] = _groups(
                own_partition_name(target.path), values["log_end_offset"], options.groups
            )
        yield Row(values)
        return
    directory = list_partition(target.path)
    if directory.problem is not None:
        raise UnreadableInput(directory.problem)
    name = target.path if directory.name is None else directory.name.text
    if options.files:
        for entry in sorted(directory.entries, key=_listing_order):
            yield _file_row(entry, name)
        for child in directory.directories:
            yield _directory_row(child, name)
    if directory.kafka07_files and not directory.segments:
        yield from _kafka07_row(target, directory, name)
        return
    with PartitionLog(target) as log:
        taker = ShapeTaker(directory.path) if options.shapes and options.count else None
        summary = (
            counted_summary(log, options.now_ms, taker)
            if options.count
            else estimated_summary(log, options.now_ms)
        )
        values = _head(directory, name) | summary
        values["preallocated_bytes"] = log.unwritten_bytes
        if options.groups is not None:
            end_offset = log.end_offset if log.segments else None
            values["groups"] = _groups(directory.name, end_offset, options.groups)
        yield from log.findings
        yield Row(values, None if taker is None else taker.shape)


def _groups(
    name: PartitionName | None,
    end_offset: int | None,
    committed: Mapping[tuple[str, int], Sequence[tuple[str, int]]],
) -> list[dict[str, object]]:
    """The lag of each group behind the log end, the largest first. end_offset: None for a partition without segments."""
    if name is None or name.state is not PartitionState.LIVE or end_offset is None:
        return []
    offsets = sorted(committed.get((name.topic, name.partition), ()), key=lambda each: (each[1], each[0]))
    return [{"group": group, "offset": offset, "lag": end_offset - offset} for group, offset in offsets]


def _listing_order(entry: Entry) -> tuple[bool, tuple[int, int, str]]:
    """Segment files by offset, the others before them by name."""
    return entry.name.base_offset is not None, segment_order(entry.name)


def _head(directory: PartitionDirectory, name: str) -> dict[str, object]:
    topic_id, missing = None, [path for segment in directory.segments for path in _missing(segment)]
    metadata = directory.entry(Role.PARTITION_METADATA)
    if metadata is not None:
        try:
            topic_id = decode_partition_metadata(read_small(metadata.path)).topic_id
        except FormatError:
            missing.append(f"a readable {metadata.name.name}")
    elif directory.segments and directory.name is not None and not directory.name.is_metadata_log:
        missing += ("partition.metadata",) if directory.lacks(Role.PARTITION_METADATA) else ()
    if directory.segments and directory.entry(Role.LEADER_EPOCHS) is None:
        missing.append("leader-epoch-checkpoint")
    return {
        "type": "partition",
        "partition": name,
        "directory": directory.path,
        "state": "unnamed" if directory.name is None else str(directory.name.state),
        "topic_id": topic_id,
        "topic_name": None,
        "segments": len(directory.segments),
        "files": len(directory.entries),
        "bytes": sum(entry.size_bytes for entry in directory.entries),
        "log_bytes": sum(segment.log.size_bytes for segment in directory.segments),
        "missing": missing,
        "unknown_files": [e.name.name for e in directory.entries if e.name.role is Role.UNKNOWN],
    }


def _missing(segment: SegmentFiles) -> Iterator[str]:
    stem = os.path.basename(segment.log.path).removesuffix(L.LOG_SUFFIX)
    for attribute, suffix in _REQUIRED:
        if getattr(segment, attribute) is None:
            yield f"{stem}{suffix}"


def _kafka07_row(target: PartitionTarget, directory: PartitionDirectory, name: str) -> Iterator[Event]:
    with Log07(target) as log:
        for before, after in zip(log.files, log.files[1:], strict=False):
            if before.end_offset != after.base_offset:
                sentence = (
                    f"{before.path} ends at {before.end_offset}, the next file begins at {after.base_offset}"
                )
                yield Finding("ancient-gap", after.path, sentence)
        yield Row(
            _head(directory, name)
            | {
                "segments": len(log.files),
                "log_bytes": sum(file.size_bytes for file in log.files),
                "log_start_offset": log.start_offset,
                "log_end_offset": log.end_offset,
                "earliest_mtime": min(entry.mtime_ms for entry in directory.kafka07_files),
                "latest_mtime": max(entry.mtime_ms for entry in directory.kafka07_files),
            }
        )


# --- a data directory


def _log_dir(target: LogDirTarget, options: ListOptions) -> Iterator[Event]:
    directory = list_log_directory(target.path, target.nested)
    for entry in directory.entries:
        yield _file_row(entry, None)
    for child in (*directory.other_directories, *directory.nested):
        yield _directory_row(child, None)
    yield Row(_log_dir_values(directory, is_brief=options.is_brief))


def _log_dir_values(directory: LogDirectory, *, is_brief: bool) -> dict[str, object]:
    once = each_directory_once(
        [PartitionTarget(child.path, directory.path) for child in directory.partitions]
    )
    named = {target.path for target in once}
    partitions = [child for child in directory.partitions if child.path in named]
    values: dict[str, object] = {
        "type": "log-dir",
        "directory": directory.path,
        "version": None,
        "node_id": None,
        "cluster_id": None,
        "directory_id": None,
        "clean_shutdown": None
        if is_tiered(directory.path)
        else directory.entry(Role.CLEAN_SHUTDOWN) is not None,
        "partitions": len(partitions),
        "topics": len({child.partition.topic for child in partitions if child.partition}),
        "bytes": None
        if is_brief
        # errors are reported where the partition is listed
        else sum(entry.size_bytes for entry in directory.entries)
        + sum(bytes_in(child.path) for child in partitions),
        "missing": [],
        "checkpoints": _checkpoints(directory),
        "unknown_files": [e.name.name for e in directory.entries if e.name.role is Role.UNKNOWN],
    }
    identity = directory.entry(Role.META_PROPERTIES)
    if identity is None:
        return values | {"missing": ["meta.properties"] if directory.lacks(Role.META_PROPERTIES) else []}
    try:
        found = decode_meta_properties(read_small(identity.path))
    except FormatError:
        return values | {"missing": ["a readable meta.properties"]}
    return values | {
        "version": found.version,
        "node_id": found.node_id,
        "cluster_id": found.cluster_id,
        "directory_id": found.directory_id,
    }


def _checkpoints(directory: LogDirectory) -> dict[str, int | None]:
    """The number of partitions in each checkpoint file, None if it cannot be read."""
    counts: dict[str, int | None] = {}
    for role in OFFSET_CHECKPOINT_ROLES:
        entry = directory.entry(role)
        if entry is None:
            continue
        try:
            counts[entry.name.name] = len(decode_offset_checkpoint(read_small(entry.path)))
        except FormatError:
            counts[entry.name.name] = None
    return counts
