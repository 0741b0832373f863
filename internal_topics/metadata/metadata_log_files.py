"""The files of a metadata log by name: segments, snapshots, and other files that show how far the log reached."""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from kseg.segment.errors import KsegError
from kseg.segment.files import read_small
from kseg.segment.partition.names import NAME_BY_ROLE, FileName, FileState, Role
from kseg.segment.partition.partition_epochs import partition_epochs
from kseg.segment.sidecar.metadata_files import decode_meta_properties


class SnapshotFile(NamedTuple):
    """A snapshot, in the order in which a node prefers them: by epoch and end offset. is_live: not marked as deleted."""

    epoch: int
    end_offset: int
    is_live: bool
    path: str


class LogFiles(NamedTuple):
    """segments: base offset and path, in order. snapshots: newest first. known_offsets: offsets in the names of other files, and
    these names."""

    segments: list[tuple[int, str]]
    snapshots: list[SnapshotFile]
    known_offsets: list[tuple[int, str]]


def log_files(directory: str, names: Sequence[FileName], *, is_alone: bool, with_deleted: bool) -> LogFiles:
    """is_alone: the single name was given by the user, and counts whatever its suffix. with_deleted: snapshots that are marked as
    deleted count too, since their state is still valid."""
    formed = [name for name in names if name.is_well_formed or is_alone]
    live = [name for name in formed if name.is_live or is_alone]
    snapshots = [
        SnapshotFile(name.epoch or 0, name.base_offset or 0, name.is_live, os.path.join(directory, name.name))
        for name in formed
        if (name in live and name.role is Role.METADATA_SNAPSHOT)
        or (is_alone and name.role is Role.BOOTSTRAP_SNAPSHOT)
        or (with_deleted and name.role is Role.METADATA_SNAPSHOT and name.state is FileState.DELETED)
    ]
    return LogFiles(
        sorted(
            (name.base_offset or 0, os.path.join(directory, name.name))
            for name in live
            if name.role is Role.LOG
        ),
        sorted(snapshots, reverse=True),
        [
            (name.base_offset, name.name)
            for name in live
            if name.role is Role.PRODUCER_SNAPSHOT and name.base_offset is not None
        ],
    )


def furthest_known(directory: str, files: LogFiles) -> tuple[int, str]:
    """The greatest offset that a file beside the segments refers to, and its name; (0, "") without any."""
    known = list(files.known_offsets)
    with suppress(KsegError):
        known += [
            (entry.start_offset, NAME_BY_ROLE[Role.LEADER_EPOCHS]) for entry in partition_epochs(directory)
        ]
    return max(known, default=(0, ""))


def cluster_id_around(directory: str) -> str | None:
    """The cluster id of the log dir around a metadata log."""
    path = os.path.join(directory, os.pardir, NAME_BY_ROLE[Role.META_PROPERTIES])
    try:
        return decode_meta_properties(read_small(path)).cluster_id
    except KsegError:
        return None
