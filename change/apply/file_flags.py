"""The flags with which nobody, not even root, can change a file or the names of a directory: `chattr +i` and `+a`, ioctl_iflags(2)."""

import fcntl
import struct
from contextlib import suppress
from enum import StrEnum

from kseg.change.apply.disk import DISK, Disk
from kseg.segment.terminal import shell_quoted

_GET_FLAGS, _FLAGS = 0x80086601, struct.Struct("=L4x")  # FS_IOC_GETFLAGS


class FileFlag(StrEnum):
    """The value is the word for it."""

    IMMUTABLE = "immutable"
    APPEND_ONLY = "append-only"

    def lift_command(self, path: str) -> str:
        return f"chattr -{self[0]} {shell_quoted(path)}"


_BITS = {FileFlag.IMMUTABLE: 0x10, FileFlag.APPEND_ONLY: 0x20}


def flag_of(path: str, disk: Disk = DISK) -> FileFlag | None:
    """None also for a path that cannot be opened, and on a file system without such flags."""
    with suppress(OSError):
        descriptor = disk.open_for_attributes(path)
        try:
            (flags,) = _FLAGS.unpack_from(fcntl.ioctl(descriptor, _GET_FLAGS, bytes(_FLAGS.size)))
        finally:
            disk.close(descriptor)
        return next((flag for flag, bit in _BITS.items() if flags & bit), None)
    return None
