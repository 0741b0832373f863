"""Path resolution inside a changed directory: by descriptors, and without following links.

Anyone who can create files in a data directory can also create links, and can replace a directory by a link while kseg is
working. So a path is never passed to the system as a whole:

    an anchored directory     (`anchored`, while a change works on it) is open, and every path below it is resolved from
                              its descriptor, wherever its name leads now
    below `.kseg`             no link is followed, anchored or not: kseg creates none there
    the last name of a path   is never followed

The path above the directory is the one that the user entered, and may contain links.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kseg.segment.errors import Refused
from kseg.segment.partition.names import KSEG_DIRECTORY

_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_anchors: dict[str, int] = {}  # path as given -> descriptor
os.register_at_fork(after_in_child=_anchors.clear)


@contextmanager
def anchored(path: str, descriptor: int) -> Iterator[None]:
    """While open, resolve every path below `path` from this open directory, in the whole process."""
    key = _key(path)
    before = _anchors.get(key)
    _anchors[key] = descriptor
    try:
        yield
    finally:
        if before is None:
            del _anchors[key]
        else:
            _anchors[key] = before


def open_directory(path: str, *, follow_link: bool) -> int:
    """A descriptor of a directory. follow_link: whether its name itself may be a link. Raises OSError (ELOOP: it is one)."""
    name = _key(path)
    if follow_link:
        return os.open(name, _OPEN)
    try:
        return os.open(name, _OPEN | os.O_NOFOLLOW)
    except NotADirectoryError:
        if os.path.islink(name):
            raise OSError(errno.ELOOP, "it is a link", path) from None
        raise


def open_without_links(path: str) -> int:
    """A descriptor of the directory at an absolute path in which no name is a link. Raises OSError, ValueError."""
    steps = path.split(os.sep)
    if steps[0] or any(step in ("", os.curdir, os.pardir) or "\0" in step for step in steps[1:]):
        raise ValueError(f"{path} is not an absolute path without `.` and `..`")
    descriptor = os.open(os.sep, _WALK)
    for number, step in enumerate(steps[1:], 2):
        try:
            inner = os.open(step, _WALK if number < len(steps) else _OPEN | os.O_NOFOLLOW, dir_fd=descriptor)
        except OSError as error:
            raise OSError(error.errno, _reason(error), os.sep.join(steps[:number])) from None
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


def _reason(error: OSError) -> str:
    is_link = error.errno in (errno.ELOOP, errno.ENOTDIR)
    return "it is a link, or no directory" if is_link else os.strerror(error.errno or 0)


@contextmanager
def parent_of(path: str, *, as_entry: bool = False) -> Iterator[tuple[int | None, str]]:
    """(descriptor of the directory that contains a name, the name to pass to the system with it); a descriptor of None
    means the path as it is. Raises OSError.

    An anchored directory is `.` relative to itself, unless its entry in the parent directory is meant (as_entry)."""
    head, descriptor, steps = _route(path, as_entry)
    if descriptor is None:
        yield None, path
        return
    is_owned = False
    try:
        if descriptor < 0:
            descriptor, is_owned = os.open(head, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), True
        for step in steps[:-1]:
            inner = os.open(step, _WALK, dir_fd=descriptor)
            if is_owned:
                os.close(descriptor)
            descriptor, is_owned = inner, True
        yield descriptor, steps[-1] if steps else os.curdir
    except OSError as error:
        if error.filename is None or not os.path.isabs(str(error.filename)):
            error.filename = path
        raise
    finally:
        if is_owned:
            os.close(descriptor)


def _route(path: str, as_entry: bool) -> tuple[str, int | None, list[str]]:
    """(directory to begin at, its descriptor, the remaining names). -1: it has to be opened; None: the path stays
    as it is, since it is not below a known directory."""
    head, steps = _key(path), list[str]()
    around_ours, below_ours = "", 0
    while True:
        descriptor = _anchors.get(head)
        if descriptor is not None and (steps or not as_entry):
            return head, descriptor, steps[::-1]
        # as os.path.split, which takes several times as long
        around, slash, name = head.rpartition(os.sep)
        if not name or head == os.curdir:
            break
        steps.append(name)
        head = (around.rstrip(os.sep) or os.sep) if slash else os.curdir
        if name == KSEG_DIRECTORY:
            around_ours, below_ours = head, len(steps)
    if below_ours:
        return around_ours, -1, steps[:below_ours][::-1]
    return "", None, []


def _key(path: str) -> str:
    return path.rstrip(os.sep) or path


def refused_link(path: str) -> Refused:
    """The error for a directory that is a link."""
    what = "its target is changed only with --follow-links"
    with suppress(OSError):
        what = f"{what} ({os.readlink(_key(path))})"
    return Refused(f"{path} is a link to a directory elsewhere: {what}")


def open_file(path: str, flags: int) -> int:
    """A descriptor of a regular file. Raises OSError for anything else and for links, without opening them: opening a pipe
    blocks, and a device may do anything."""
    with parent_of(path) as (folder, name):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        _check_is_file(status, path)
        descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        _check_is_file(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_is_file(status: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it is a link", path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", path)
