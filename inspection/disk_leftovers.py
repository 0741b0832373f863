"""Unused files in a data directory: files that a broker has marked and not yet deleted, leftovers of a killed cleaner,
stray partitions, and what kseg keeps for `undo`.

    deleted files         segments and side files with `.deleted`: a broker deletes them at its next start
    unfinished cleaning   `.cleaned`, `.swap`: a broker removes them, or completes the cleaning, at its next start
    temporary files       `.tmp`, `.part`
    deleted partitions    directories `…-delete`: a broker deletes them at its next start
    stray partitions      directories `…-stray`: a broker keeps them
    moving partitions     directories `…-future`: copies that a broker is making for another of its directories
"""

from collections.abc import Iterator
from enum import StrEnum

from kseg.segment.errors import KsegError
from kseg.segment.partition.directory import bytes_in, list_partition
from kseg.segment.partition.names import FileState, PartitionState
from kseg.segment.partition.recognition import list_log_directory
from kseg.segment.partition.targets import LogDirTarget
from kseg.segment.values import dataclass


class LeftoverKind(StrEnum):
    """The values are the printed names, in the plural."""

    DELETED_FILES = "deleted files"
    UNFINISHED_CLEANING = "unfinished cleaning"
    TEMPORARY_FILES = "temporary files"
    DELETED_PARTITIONS = "deleted partitions"
    STRAY_PARTITIONS = "stray partitions"
    MOVING_PARTITIONS = "moving partitions"


_OF_FILES = {
    FileState.DELETED: LeftoverKind.DELETED_FILES,
    FileState.CLEANED: LeftoverKind.UNFINISHED_CLEANING,
    FileState.SWAP: LeftoverKind.UNFINISHED_CLEANING,
    FileState.TMP: LeftoverKind.TEMPORARY_FILES,
    FileState.PART: LeftoverKind.TEMPORARY_FILES,
}
_OF_PARTITIONS = {
    PartitionState.DELETE: LeftoverKind.DELETED_PARTITIONS,
    PartitionState.STRAY: LeftoverKind.STRAY_PARTITIONS,
    PartitionState.FUTURE: LeftoverKind.MOVING_PARTITIONS,
}


@dataclass(frozen=True, slots=True)
class Leftover:
    """One file or partition directory."""

    kind: LeftoverKind
    path: str
    size_bytes: int


def leftovers(target: LogDirTarget) -> Iterator[Leftover]:
    """The leftovers of a data directory, by path. A directory that cannot be listed has none: `verify` reports it."""
    try:
        directory = list_log_directory(target.path, target.nested)
    except KsegError:
        return
    for child in directory.partitions:
        kind = None if child.partition is None else _OF_PARTITIONS.get(child.partition.state)
        if kind is not None:
            yield Leftover(kind, child.path, bytes_in(child.path))
            continue
        for entry in list_partition(child.path).entries:
            kind = _OF_FILES.get(entry.name.state)
            if kind is not None:
                yield Leftover(kind, entry.path, entry.size_bytes)
