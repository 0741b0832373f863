"""Errors outside the data: the caller's mistakes and the machine's failures.

Damage inside a file is never an exception: it is a `Finding`. Each exception class has the exit status of the
command that it ends (design, command contract):

    KsegError
    ├── UsageError          2   the request makes no sense
    ├── UnreadableInput     3   an input cannot be opened or read
    │   ├── VanishedInput   3   … because it does not exist
    │   └── NotPermitted    3   … by this user, who is not the owner of its directory; it says nothing about what a broker reads there
    ├── OutOfResources      3   this process has no descriptors, memory or disk space left; it says nothing about an input
    ├── OutOfReach          3   an object store does not answer, or rejects the request; it says nothing about an input either
    ├── Refused             4   the request is possible but unsafe
    ├── CodecError          3   a compressed block cannot be decoded (callers turn it into a finding)
    └── FormatError         3   bytes do not follow their format (callers turn it into a finding)
"""

import errno
import os

_OF_A_FAILING_DISK = (errno.EIO, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOTCONN)
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT)
OUT_OF_REACH = errno.EHOSTUNREACH


class KsegError(Exception):
    """Base of all errors that end a command with one sentence; `str(error)` is that sentence."""

    exit_status = 70


class UsageError(KsegError):
    """The request makes no sense."""

    exit_status = 2


class UnreadableInput(KsegError):
    """An input cannot be opened or read; the sentence names the path."""

    exit_status = 3


class VanishedInput(UnreadableInput):
    """An input does not exist: it never did, or it was deleted or truncated after it was listed."""


class NotPermitted(UnreadableInput):
    """An input in another user's directory that the user who runs kseg may not read. A broker that runs as that other user can read it, so
    for a forecast or a repair it is neither damaged nor missing."""


class OutOfResources(KsegError):
    """An input was not read because the process has used up its file descriptors, its memory or the space for local copies. Never treated
    as damage: a repair that did so would rebuild valid files."""

    exit_status = 3


class OutOfReach(KsegError):
    """An input in an object store was not read: the network, credentials or a decryption key were missing, or the object was replaced
    in the meantime. Never treated as damage: the object may be valid."""

    exit_status = 3


class Refused(KsegError):
    """The request is valid but unsafe: a broker is running, an output exists, …"""

    exit_status = 4


class FormatError(KsegError):
    """Bytes that do not follow their format; parsers of single structures raise it, walkers report a finding."""

    exit_status = 3


class CodecError(FormatError):
    """A compressed block that cannot be decoded, or would exceed the caller's limit.

    content: what Java's reader has delivered before it detects the error, as far as known. java_class: the exception that it throws
    if that is not an IOException.
    """

    content: bytes = b""
    java_class: str = ""


def cannot_read(path: str, error: OSError) -> KsegError:
    """The exception to raise when the system fails to open, list or read `path`."""
    from kseg.segment.terminal import shown_path

    kind: type[KsegError] = UnreadableInput
    if error.errno in _EXHAUSTED:
        kind = OutOfResources
    elif error.errno == OUT_OF_REACH:
        kind = OutOfReach
    elif error.errno == errno.ENOENT:
        kind = VanishedInput
    elif isinstance(error, PermissionError) and _is_of_another_user(os.path.dirname(os.path.abspath(path))):
        kind = NotPermitted
    reason = "not a regular file" if error.errno == errno.ESPIPE else error.strerror
    hint = ""
    if kind is NotPermitted:
        hint = " (run kseg as the owner of the data directory, or as root)"
    elif kind is VanishedInput and any(sign in path for sign in "*?["):
        hint = " (the shell expands a pattern only if it is not quoted and something matches)"
    return kind(f"cannot read {shown_path(path)}: {reason}{hint}")


def _is_of_another_user(directory: str) -> bool:
    try:
        return os.stat(directory).st_uid != os.geteuid()
    except OSError:  # not even its owner can be seen from here
        return True


def disk_words(error: OSError) -> str:
    """A clause for the end of a sentence about a failed change, if the file system is read-only, or its device fails or is gone; else
    empty."""
    if error.errno == errno.EROFS:
        return "; the file system is mounted read-only, as a kernel does after an I/O error (`kseg doctor` says what to do)"
    if error.errno in _OF_A_FAILING_DISK:
        return "; the disk fails or is gone: look at the kernel log (`dmesg`) before anything else is written to it"
    return ""
