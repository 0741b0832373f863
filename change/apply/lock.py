"""Mutual exclusion: the broker's lock on a data directory, and kseg's own lock on a directory that it changes.

A broker takes `.lock` of each of its data directories (Kafka: FileLock; Java's FileChannel.tryLock is the POSIX record lock over the whole
file). `locked` takes a lock that conflicts with it: kseg refuses while a broker runs, and a broker refuses to start while kseg holds the
lock. A `.lock` that did not exist is removed again.

A POSIX record lock would end with the process that took it, while a worker that it forked is still in the middle of a change: a broker
could start then, and write to a log that the worker replaces. So the lock belongs to the open file (fcntl(2): open file description
lock), which workers inherit: it ends with the last of them. Systems without such locks get the POSIX lock, which is released as soon as
the process closes *any* descriptor of the file, so no other module of kseg opens a `.lock`.

A KRaft node with its metadata log in a data directory opens and writes `__cluster_metadata-0` before it takes the lock of
that directory (observed with 4.3.1): a node that is started while kseg works there refuses to start, but has appended to
that log. So a change of that partition relies on the check of its files just before the commit.

A run with attempts in other processes (on a cluster) leaves a part of the lock to them, see `partition_lock`.

`claimed` excludes a second process of kseg from a directory: a BSD lock on the directory itself, which needs
no file and ends with the process that holds it. It does not extend beyond the machine.
"""

import errno
import fcntl
import os
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

from kseg.change.apply.anchors import anchored, open_directory, open_file, refused_link
from kseg.segment.errors import Refused, disk_words
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.recognition import is_log_directory, is_partition_directory
from kseg.segment.partition.targets import PartitionTarget, Target, log_dirs_around
from kseg.segment.terminal import shell_quoted

TAKEN = (errno.EAGAIN, errno.EACCES)

_FLOCK = struct.Struct("hhqqi4x")  # struct flock on Linux: type, whence, start, length, process
# the process id that F_GETLK reports for an open file description lock; no broker takes such a lock
KSEG = -1

_Key = tuple[int, int]  # device and inode

# locks that this process holds: a second POSIX lock would be granted, and its release would end both
_held: set[_Key] = set()
os.register_at_fork(after_in_child=_held.clear)


# each run has a range of bytes of a lock, at a position derived from its id
SHARED_LOCK = ".kseg.lock"  # for a run on a cluster, where no broker looks for a lock
PART_BYTES = 1 << 31


def part_of(run_id: str) -> int:
    """The first byte of a run's part of a lock; never byte 0, which the run's own process keeps."""
    return (1 + zlib.crc32(run_id.encode()) % (1 << 30)) * PART_BYTES


def lock_path(log_dir: str) -> str:
    """The file that a broker locks in a data directory."""
    return os.path.join(log_dir, NAME_BY_ROLE[Role.LOCK])


def log_dirs_behind(targets: Sequence[Target]) -> Iterator[str]:
    """The data directories that contain the partitions named through links: these are the ones that their broker locks."""
    for target in targets:
        if isinstance(target, PartitionTarget):
            yield from filter(is_log_directory, log_dirs_around(target)[1:])


def locked(log_dirs: Iterable[str]) -> AbstractContextManager[None]:
    """Hold the locks of several data directories, all or none; those this process holds already stay as they are.

    Raises Refused with the directory if a broker is running on one of them or its lock cannot be created.
    """
    return locked_files(map(lock_path, log_dirs))


@contextmanager
def locked_files(paths: Iterable[str], part_for: str = "") -> Iterator[None]:
    """Like `locked`, for lock files at any path. part_for: the id of a run whose part of each lock is released again, after
    the whole lock was held."""
    with ExitStack() as stack:
        for path in sorted(set(paths)):
            stack.enter_context(_locked(path, part_for))
        yield


@contextmanager
def _locked(path: str, part_for: str) -> Iterator[None]:
    if is_held(path):
        yield
        return
    folder = os.path.dirname(path) or os.curdir
    before = _mtime_ns(folder)
    descriptor, key, is_new = _taken(path, folder)
    if is_new:
        _set_mtime(folder, before)  # restored, because journals record it
    _held.add(key)
    try:
        if part_for:
            _set_lock(descriptor, fcntl.LOCK_UN, part_of(part_for), PART_BYTES)
        yield
    finally:
        _held.discard(key)
        if is_new:
            now = _mtime_ns(folder)
            with suppress(OSError):
                os.unlink(path)
                _set_mtime(folder, now)
        os.close(descriptor)


def _mtime_ns(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def _set_mtime(path: str, mtime_ns: int | None) -> None:
    if mtime_ns is not None:
        with suppress(OSError):
            os.utime(path, ns=(mtime_ns, mtime_ns))


def is_locked(log_dir: str) -> bool:
    """Whether another process holds the broker's lock on a data directory at this moment; False where that cannot be determined."""
    return lock_holder(log_dir) is not None


def lock_holder(log_dir: str) -> int | None:
    """The process that holds the broker's lock on a data directory now, 0 if it is not visible from here (in another container), KSEG for
    any kseg; None if no process does, or if that cannot be determined. Only queries (F_GETLK), so that a broker that starts at the same
    moment is not disturbed."""
    path = lock_path(log_dir)
    # if this process holds the lock, closing another descriptor of the file would release it
    if sys.platform != "linux" or is_held(path):
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, process_id = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else int(process_id)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def in_use_words(log_dir: str, process_id: int | None) -> str:
    """What holds the lock of a data directory, as a clause. process_id: as `lock_holder` returns it; None if it has ended in the
    meantime."""
    if process_id == KSEG:
        return f"{log_dir} is in use by another kseg (`fuser -v {shell_quoted(lock_path(log_dir))}` names the process)"
    return (
        f"{log_dir} is in use by a broker or another kseg{f' (process {process_id})' if process_id else ''}"
    )


def is_held(path: str) -> bool:
    """Whether this process holds the lock."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) in _held


def _taken(path: str, log_dir: str) -> tuple[int, _Key, bool]:
    """(descriptor that holds the lock, device and inode, whether the file was created). Retries if the file was removed in the meantime."""
    while True:
        try:
            descriptor, is_new = _opened(path)
        except FileNotFoundError:
            if not os.path.isdir(log_dir):
                raise Refused(f"cannot lock {log_dir}: No such file or directory") from None
            continue
        except OSError as error:
            hint = disk_words(error)
            nothing = "; nothing was changed" if hint else ""
            raise Refused(f"cannot lock {log_dir}: {path}: {error.strerror}{nothing}{hint}") from error
        try:
            _lock(descriptor, log_dir)
            status = os.fstat(descriptor)
            if _is_still(path, status):
                return descriptor, (status.st_dev, status.st_ino), is_new
        except OSError as error:
            os.close(descriptor)
            raise Refused(f"cannot lock {log_dir}: {path}: {error.strerror}") from error
        except Refused:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int, log_dir: str) -> None:
    """Raises Refused if another process has the lock, OSError if it cannot be taken at all."""
    try:
        _set_lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in TAKEN:
            raise
        raise Refused(in_use_words(log_dir, lock_holder(log_dir))) from None


def _set_lock(descriptor: int, how: int, start: int = 0, length: int = 0) -> None:
    """Take (LOCK_EX | LOCK_NB) or release (LOCK_UN) the lock of a range of bytes; length 0: to the end. Raises OSError."""
    kind = fcntl.F_UNLCK if how == fcntl.LOCK_UN else fcntl.F_WRLCK
    if sys.platform == "linux":
        try:
            wanted = _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
            return
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    fcntl.lockf(descriptor, how, length, start)


def _opened(path: str) -> tuple[int, bool]:
    """Open the file, or create it. Raises OSError (ELOOP) for a link, which would lead to a file elsewhere."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return open_file(path, os.O_RDWR), False
    with suppress(OSError):  # in case it remains, the broker's user must be able to lock it
        status = os.stat(os.path.dirname(path) or os.curdir)
        os.fchown(descriptor, status.st_uid, status.st_gid)
    return descriptor, True


def _is_still(path: str, locked_file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.lstat(path), locked_file)
    except FileNotFoundError:
        return False


def claimed_by_command(directory: str, follow_links: bool) -> AbstractContextManager[None]:
    """`claimed` for the directory that a command changes. follow_links: the option --follow-links."""
    return claimed(directory, follow_link=follow_links or _may_be_link(directory))


@contextmanager
def claimed(directory: str, *, follow_link: bool = False) -> Iterator[None]:
    """Exclude other processes of kseg from changing `directory`, and resolve every path below it from the directory that is open now.

    follow_link: whether its name may be a link. Raises Refused if another kseg has claimed it, or it cannot be opened.
    """
    try:
        descriptor = open_directory(directory, follow_link=follow_link)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise refused_link(directory) from error
        raise Refused(f"cannot change {directory}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in TAKEN:
                raise Refused(f"cannot change {directory}: {error.strerror}") from error
            raise Refused(f"another kseg is changing {directory} ({error.strerror})") from None
        with anchored(directory, descriptor):
            yield
    finally:
        os.close(descriptor)


def _may_be_link(directory: str) -> bool:
    """Whether the directory may be a link: the user named the data directory, but the source of a partition in it is unknown."""
    return own_partition_name(directory) is None and not is_partition_directory(directory)


def is_claimed(directory: str) -> bool:
    """Whether a kseg is changing `directory` now; False if that cannot be determined."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
