"""The byte ranges to read for an export: those of a partition or of one given file, with the bounds of the selection."""

import os

from kseg.inspection.arrow.log_ranges import LogPiece
from kseg.inspection.arrow.planning import ReadPlanOptions, segment_reads
from kseg.inspection.record_filter import Selection
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import Finding
from kseg.segment.layout import INT64_MAX
from kseg.segment.partition.bounds import INT64_MIN, Bounds
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import LogTarget, PartitionTarget, directory_of
from kseg.segment.storage import places

LOGS = (Role.LOG, Role.KAFKA07_LOG)
UNKNOWN_PARTITION = -1


def pieces_of(
    target: LogTarget, selection: Selection, findings: list[Finding] | None = None
) -> list[LogPiece]:
    """The pieces in offset order. findings: receives the finding about selected records that are in remote storage. Raises UnreadableInput
    for a path that cannot be listed or is not a log."""
    directory = directory_of(target)
    topic, partition = identity(directory)
    bounds = bounds_of(selection)
    if isinstance(target, PartitionTarget):
        return _planned(target, selection, findings)
    name = parse_file_name(os.path.basename(target.path))
    if name.role not in LOGS:
        raise UnreadableInput(f"{target.path} is not a log; only records can be exported")
    is_kafka07 = name.role is Role.KAFKA07_LOG
    if selection.read_committed and name.is_live and not is_kafka07:
        found = _planned(PartitionTarget(directory), selection, None)
        return [piece for piece in found if os.path.basename(piece.path) == name.name]
    return [LogPiece(target.path, topic, partition, name.base_offset or 0, bounds, is_kafka07=is_kafka07)]


def _planned(target: PartitionTarget, selection: Selection, findings: list[Finding] | None) -> list[LogPiece]:
    topic, partition = identity(target.path)
    plan_options = ReadPlanOptions(read_committed=selection.read_committed)
    with PartitionLog(target) as log:
        is_local = log.remote_start is None or bounds_of(selection).from_offset >= log.start_offset
        if findings is not None and not is_local:
            words = f"so with tiered storage records below offset {log.start_offset} are in remote storage, and are not exported"
            findings.append(log.remote_finding(words))
        return [
            each.piece for each in segment_reads(log, topic, partition, bounds_of(selection), plan_options)
        ]


def identity(path: str) -> tuple[str, int]:
    """Topic and partition from the name of a directory; else the name itself and UNKNOWN_PARTITION."""
    name = own_partition_name(path)
    if name is None:
        return os.path.basename(places.abspath(path)), UNKNOWN_PARTITION
    return name.topic, name.partition


def bounds_of(selection: Selection) -> Bounds:
    """The bounds of a selection by offset and time."""
    return Bounds(
        0 if selection.from_offset is None else selection.from_offset,
        INT64_MAX if selection.to_offset is None else selection.to_offset,
        INT64_MIN if selection.from_time_ms is None else selection.from_time_ms,
        INT64_MAX if selection.to_time_ms is None else selection.to_time_ms,
    )
