"""Information from the operating system about a data directory: whether a broker uses it, whether its last shutdown was clean,
and its file system.

Read-only: the lock is queried, not taken, and the directory's own files are looked up by name only.
"""

import os
from dataclasses import replace

from kseg.change.apply.lock import KSEG, lock_holder
from kseg.change.apply.room import FEW_INODES
from kseg.segment.mounts import Mount, mount_around
from kseg.segment.partition.names import NAME_BY_ROLE, OFFSET_CHECKPOINT_ROLES, Role
from kseg.segment.storage import places
from kseg.segment.values import dataclass

_MARKER = NAME_BY_ROLE[Role.CLEAN_SHUTDOWN]
_CHECKPOINTS = tuple(NAME_BY_ROLE[role] for role in OFFSET_CHECKPOINT_ROLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirHost:
    """broker_process_id: of the broker that uses it, 0 if that process is not visible, None if there is none. is_clean: whether
    the last shutdown left the clean-shutdown marker, None if no broker has been here: a controller leaves none. mount: None if unknown.
    total_bytes, free_bytes (for an ordinary user), free_inodes (None also if the file system has no such limit): None if unknown.
    is_read_only: whether it is mounted read-only."""

    path: str
    broker_process_id: int | None
    is_clean: bool | None
    mount: Mount | None
    total_bytes: int | None = None
    free_bytes: int | None = None
    free_inodes: int | None = None
    is_read_only: bool = False

    @property
    def has_few_inodes(self) -> bool:
        return self.free_inodes is not None and self.free_inodes < FEW_INODES

    @property
    def is_running(self) -> bool:
        return self.broker_process_id is not None


def log_dir_host(path: str) -> LogDirHost:
    """The information about one data directory. Raises nothing: whatever cannot be queried is None."""
    holder = lock_holder(path)
    host = LogDirHost(
        path=path,
        broker_process_id=None if holder == KSEG else holder,
        is_clean=_is_clean(path),
        mount=mount_around(path),
    )
    try:
        status = os.statvfs(path)
    except OSError:
        return host
    return replace(
        host,
        total_bytes=status.f_blocks * status.f_frsize,
        free_bytes=status.f_bavail * status.f_frsize,
        free_inodes=status.f_favail if status.f_files else None,
        is_read_only=bool(status.f_flag & os.ST_RDONLY),
    )


def _is_clean(path: str) -> bool | None:
    if places.lexists(os.path.join(path, _MARKER)):
        return True
    # a broker creates the checkpoints when it starts: without any, none has used this log dir
    return False if any(places.lexists(os.path.join(path, name)) for name in _CHECKPOINTS) else None
