"""The flags with which nobody, not even root, can change a file or the names of a directory: `chattr +i` and `+a`, ioctl_iflags(2)."""

import fcntl
import os
import struct
from collections.abc import Callable
from enum import StrEnum

from kseg.segment.errors import UnreadableInput
from kseg.segment.opening import opened_at_once
from kseg.segment.terminal import shell_quoted

_GET_FLAGS, _FLAGS = 0x80086601, struct.Struct("=L4x")  # FS_IOC_GETFLAGS
_NO_FLAGS = bytes(_FLAGS.size)


class FileFlag(StrEnum):
    """A flag; the value is the word for it."""

    IMMUTABLE = "immutable"
    APPEND_ONLY = "append-only"

    def lift_command(self, path: str) -> str:
        """The command that removes the flag; for a directory, also from everything in it."""
        return f"chattr {'-R ' if os.path.isdir(path) else ''}-{self[0]} {shell_quoted(path)}"


_BITS = {FileFlag.IMMUTABLE: 0x10, FileFlag.APPEND_ONLY: 0x20}
_ANY = 0x30


def flag_of(path: str, opened: Callable[[str], int] = opened_at_once) -> FileFlag | None:
    """The flag of a path; None if it has none, cannot be opened, or is on a file system without such flags. opened: returns a descriptor of
    it."""
    try:
        descriptor = opened(path)
    except (OSError, UnreadableInput):
        return None
    try:
        (flags,) = _FLAGS.unpack(fcntl.ioctl(descriptor, _GET_FLAGS, _NO_FLAGS))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return next((flag for flag, bit in _BITS.items() if flags & bit), None) if flags & _ANY else None
