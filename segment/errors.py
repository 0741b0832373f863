"""What can go wrong outside the data.

Damage inside a file is never an exception: it is a `Finding`. Exceptions are for the caller's mistakes and
the machine's failures, and each class knows the exit status of the command it ends (design, command contract):

    KsegError
    ├── UsageError          2   the request makes no sense
    ├── UnreadableInput     3   an input cannot be opened or read
    ├── OutOfResources      3   this process may open no more files, or gets no memory or room for a local copy: that says nothing about an input
    ├── OutOfReach          3   an object store does not answer, or refuses: neither does that
    ├── Refused             4   we could, but must not
    ├── CodecError          3   a compressed block cannot be decoded (callers turn it into a finding)
    └── FormatError         3   bytes do not follow their format (callers turn it into a finding)
"""

import errno

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT)
OUT_OF_REACH = errno.EHOSTUNREACH


class KsegError(Exception):
    """Base of all errors that end a command with one sentence; `str(error)` is that sentence."""

    exit_status = 70


class UsageError(KsegError):
    """The caller asked for something that has no meaning."""

    exit_status = 2


class UnreadableInput(KsegError):
    """An input cannot be opened or read; the sentence names the path."""

    exit_status = 3


class OutOfResources(KsegError):
    """An input was not read because the process has used up its file descriptors, its memory or the room for local copies. Never caught
    as damage: a repair that took it for an unreadable file would rebuild what is sound."""

    exit_status = 3


class OutOfReach(KsegError):
    """An input in an object store was not read: the network, credentials, a key for decryption, or the object itself meanwhile, were not
    there. Never caught as damage: the object may be sound."""

    exit_status = 3


class Refused(KsegError):
    """The request is understood and would be unsafe: a broker is running, an output exists, …"""

    exit_status = 4


class FormatError(KsegError):
    """Bytes that do not follow their format; parsers of single structures raise it, walkers report a finding."""

    exit_status = 3


class CodecError(FormatError):
    """A compressed block that cannot be decoded, or would grow beyond the caller's limit.

    content: what Java's reader has already delivered when it meets the fault, as far as that is known. java_class: what it throws, if
    that is no IOException.
    """

    content: bytes = b""
    java_class: str = ""


def cannot_read(path: str, error: OSError) -> KsegError:
    """What to raise when the system refuses to open, list or read `path`."""
    from kseg.segment.terminal import shown_path

    kind: type[KsegError] = UnreadableInput
    if error.errno in _EXHAUSTED:
        kind = OutOfResources
    elif error.errno == OUT_OF_REACH:
        kind = OutOfReach
    return kind(f"cannot read {shown_path(path)}: {error.strerror}")
