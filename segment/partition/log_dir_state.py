"""The state of a partition in its data directory: clean shutdown or not, checkpoints, meta.properties, logs marked for deletion.

Every partition of a data directory needs the same few files, so they are cached per process while their identity (modification time,
size, inode) is unchanged.
"""

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache

from kseg.segment.errors import FormatError, NotPermitted, UnreadableInput, cannot_read
from kseg.segment.files import read_small
from kseg.segment.partition.directory import partitions_in
from kseg.segment.partition.names import (
    METADATA_DIRECTORY,
    NAME_BY_ROLE,
    OFFSET_CHECKPOINT_ROLES,
    PartitionName,
    PartitionState,
    Role,
)
from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint, offsets_by_partition
from kseg.segment.sidecar.metadata_files import decode_meta_properties
from kseg.segment.storage import places
from kseg.segment.values import dataclass

_WATCHED = (*OFFSET_CHECKPOINT_ROLES, Role.META_PROPERTIES, Role.CLEAN_SHUTDOWN)

# The files that a clean shutdown leaves with content. The cleaner's is not among them: it is created empty, and written only after the
# first cleaning.
_WRITTEN_AT_SHUTDOWN = (Role.RECOVERY_POINTS, Role.HIGH_WATERMARKS, Role.LOG_START_OFFSETS)
_MOUNT_IS_LOST = (errno.ESTALE, errno.ENOTCONN, errno.ENODEV, errno.EIO)
KRAFT_VERSION = 1  # version of meta.properties since KRaft; older brokers may not have the file

Offsets = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class LogDirState:
    """path: of the data directory. is_clean: the clean-shutdown marker exists. meta_version: of meta.properties,
    None if it is missing, unreadable or without a node id. checkpoints: by role, only readable ones. lost: the roles of checkpoints
    that a broker must have written but that are unreadable or completely empty."""

    path: str
    is_clean: bool
    meta_version: int | None
    checkpoints: Mapping[Role, Offsets] = field(default_factory=dict)
    lost: frozenset[Role] = frozenset()

    def offset(self, role: Role, topic: str, partition: int) -> int | None:
        return self.checkpoints.get(role, {}).get((topic, partition))

    def lost_among(self, partitions: Iterable[PartitionName]) -> frozenset[Role]:
        """`lost`, in a data directory with these partitions. A broker writes high watermarks only where it has a
        replica (ReplicaManager.checkpointHighWatermarks); elsewhere the file stays empty, as created."""
        if any(name.state is PartitionState.LIVE and not name.is_metadata_log for name in partitions):
            return self.lost
        return self.lost - {Role.HIGH_WATERMARKS}


def read_log_dir_state(log_dir: str) -> LogDirState:
    """The files beside the partitions of `log_dir`; unreadable ones count as missing. Raises UnreadableInput if their mount is lost."""
    return _read(log_dir, tuple(map(_identity, _paths(log_dir))))


@lru_cache(maxsize=4)
def _paths(log_dir: str) -> tuple[str, ...]:
    return tuple(os.path.join(log_dir, NAME_BY_ROLE[role]) for role in _WATCHED)


def checkpointed_offsets(path: str) -> tuple[Offsets, int]:
    """The content of an offset checkpoint, and its size in bytes. Raises UnreadableInput, FormatError."""
    return _decoded(path, _identity(path))


@lru_cache(maxsize=4 * len(OFFSET_CHECKPOINT_ROLES))
def _decoded(path: str, identity: tuple[int, ...] | None) -> tuple[Offsets, int]:
    data = read_small(path)
    return offsets_by_partition(decode_offset_checkpoint(data)), len(data)


def has_metadata_log(log_dir: str) -> bool:
    """Whether a KRaft node keeps its metadata log in this data directory."""
    return places.isdir(os.path.join(log_dir, METADATA_DIRECTORY))


def deleted_logs(log_dir: str) -> Mapping[str, Sequence[str]]:
    """The paths of the logs that are marked for deletion, by the name of their partition. Raises UnreadableInput."""
    return _deleted_logs(log_dir, _identity(log_dir))


@lru_cache(maxsize=4)
def _deleted_logs(log_dir: str, _: tuple[int, ...] | None) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for directory, name in partitions_in(log_dir):
        if name.state is PartitionState.DELETE:
            found.setdefault(name.text, []).append(os.path.join(log_dir, directory))
    return found


def _identity(path: str) -> tuple[int, ...] | None:
    """None for a missing file, or without permission to examine it. Raises UnreadableInput if its mount is lost."""
    try:
        status = places.stat(path)
    except OSError as error:
        if error.errno in _MOUNT_IS_LOST:
            raise cannot_read(path, error) from error
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=4)
def _read(log_dir: str, identities: tuple[tuple[int, ...] | None, ...]) -> LogDirState:
    present = {role for role, known in zip(_WATCHED, identities, strict=True) if known is not None}
    checkpoints, lost = {}, set[Role]()
    for role in OFFSET_CHECKPOINT_ROLES:
        if role in present:
            try:
                checkpoints[role], size_bytes = checkpointed_offsets(
                    os.path.join(log_dir, NAME_BY_ROLE[role])
                )
                if not size_bytes and role in _WRITTEN_AT_SHUTDOWN:
                    lost.add(role)
            except FormatError:
                lost.add(role)
            except UnreadableInput as error:
                # a lack of permission or a lost mount says nothing about the content of the file
                if isinstance(error, NotPermitted) or (
                    isinstance(error.__cause__, OSError) and error.__cause__.errno in _MOUNT_IS_LOST
                ):
                    raise
                lost.add(role)
    version = node_id = None
    if Role.META_PROPERTIES in present:
        try:
            data = read_small(os.path.join(log_dir, NAME_BY_ROLE[Role.META_PROPERTIES]))
            identity = decode_meta_properties(data)
            node_id = identity.node_id
            version = None if node_id is None else identity.version
        except (FormatError, UnreadableInput):
            version = None
    # if meta.properties cannot be read, expect what a KRaft node has
    is_unknown = Role.META_PROPERTIES in present and node_id is None
    if version == KRAFT_VERSION or is_unknown:
        lost |= {role for role in _WRITTEN_AT_SHUTDOWN if role not in present}
    return LogDirState(log_dir, Role.CLEAN_SHUTDOWN in present, version, checkpoints, frozenset(lost))
