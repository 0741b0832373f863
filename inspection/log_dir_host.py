"""What the machine says about a data directory: whether a broker holds it, how its last run ended, and the file system that it is on.

Only asks: the lock is queried, not taken, and of the directory's own files the clean-shutdown marker is looked for.
"""

import os
from dataclasses import replace

from kseg.change.apply.lock import lock_holder
from kseg.segment.mounts import Mount, mount_around
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.storage import places
from kseg.segment.values import dataclass

_MARKER = NAME_BY_ROLE[Role.CLEAN_SHUTDOWN]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirHost:
    """broker_process_id: of the broker that runs on it, 0 when it is out of sight, None when none does. is_clean: whether its last stop
    left the clean-shutdown marker. mount: None where nobody knows. total_bytes, free_bytes (for an ordinary user), free_inodes (None also
    where the file system has no such limit): None where the file system says nothing."""

    path: str
    broker_process_id: int | None
    is_clean: bool
    mount: Mount | None
    total_bytes: int | None = None
    free_bytes: int | None = None
    free_inodes: int | None = None

    @property
    def is_running(self) -> bool:
        return self.broker_process_id is not None


def log_dir_host(path: str) -> LogDirHost:
    """What is known of one data directory. Raises nothing: what cannot be asked is not known."""
    host = LogDirHost(
        path=path,
        broker_process_id=lock_holder(path),
        is_clean=places.lexists(os.path.join(path, _MARKER)),
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
    )
