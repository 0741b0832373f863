"""The broker's lock for one run in many processes: attempts at the same work, on machines that share the disk.

A POSIX lock covers a range of bytes, which need not exist, and a broker locks all of them. So one lock file serves both:

      0                      part_of(run)                    + PART_BYTES
      ├────── the run ───────┼──── the attempts of the run ──┼────── the run ───────►
             exclusive         one byte per directory in work  exclusive

1. The driver holds everything except its run's part, from before the work until after it (`lock`). It held all of it at first:
   no broker was running, no other kseg, and no attempt of an earlier run.
2. An attempt locks the byte of its directory before it reads it, and keeps it until the directory is as planned.
   If the byte is locked it waits: two attempts at the same work run one after the other, wherever they are.
3. A process that holds a byte checks that the rest of the file is locked. If it is not, the run is over, or the file system does not share
   locks between machines; either way something else may be running, and nothing may be changed.
4. A process releases its byte when it dies, and not before: as long as anything can still change, a
   broker is refused on every machine that sees the lock, even after the driver has died.

Closing any descriptor of the file loses all locks (see `lock`), so a process has one descriptor for all its bytes.
"""

import fcntl
import os
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kseg.change.apply.lock import PART_BYTES, TAKEN, in_use_words, is_held, part_of
from kseg.segment.errors import Refused

# the last byte of a part belongs to no partition: a process that has locked it holds a longer range
_LOCK_BYTES = PART_BYTES - 1
_FIRST_WAIT_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 0.5


_Key = tuple[int, int]  # device and inode of a lock file


class _LockFile:
    """What this process holds of one lock file: the descriptor (None if the process holds the whole lock anyway) and the locked bytes."""

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor
        self.taken: set[int] = set()


_lock_files: dict[_Key, _LockFile] = {}
_guard = threading.Lock()
os.register_at_fork(after_in_child=_lock_files.clear)


@contextmanager
def partition_locked(path: str, run_id: str, name: str) -> Iterator[None]:
    """Hold the byte of `name` in the lock file at `path`; waits for another attempt that holds it.

    name: of the target; the same for every attempt, whatever the path to it. Raises Refused if the run of the
    attempt is over, or another process holds the lock.
    """
    lock_byte = part_of(run_id) + zlib.crc32(name.encode()) % _LOCK_BYTES
    wait_seconds = _FIRST_WAIT_SECONDS
    while (key := _taken(path, run_id, lock_byte)) is None:
        time.sleep(wait_seconds)
        wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)
    try:
        yield
    finally:
        _unlock(key, lock_byte)


def _taken(path: str, run_id: str, lock_byte: int) -> _Key | None:
    """The position of the byte that was locked, None if another attempt holds it."""
    folder = os.path.dirname(path)
    try:
        with _guard:
            status = os.stat(path)
            key = (status.st_dev, status.st_ino)
            lock_file = _lock_files.get(key)
            if lock_file is None:
                # if this process holds the lock, it must not open the file again, and no other process can have locked a byte
                is_ours = is_held(path)
                lock_file = _lock_files[key] = _LockFile(
                    None if is_ours else os.open(path, os.O_RDWR | os.O_CLOEXEC)
                )
            try:
                if lock_byte in lock_file.taken or not _is_free(
                    lock_file.descriptor, folder, part_of(run_id), lock_byte
                ):
                    return None
                lock_file.taken.add(lock_byte)
                return key
            finally:
                _close_unused(key, lock_file)
    except FileNotFoundError:
        raise Refused(f"{folder} is not locked: the run this belongs to is over") from None
    except OSError as error:
        raise Refused(f"cannot lock {folder}: {error.strerror}") from error


def _is_free(descriptor: int | None, folder: str, part: int, lock_byte: int) -> bool:
    """Lock the byte if it is free; returns whether that worked. Raises Refused if the run is over, and OSError."""
    if descriptor is None:
        return True
    is_ours = _lock(descriptor, fcntl.LOCK_EX, lock_byte)
    if not is_ours and _is_taken(descriptor, part + _LOCK_BYTES):
        raise Refused(f"{in_use_words(folder, None)}: the run this belongs to is over")
    if not _is_taken(descriptor, 0):
        if is_ours:
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, lock_byte)
        raise Refused(
            f"{folder} is not locked by the run of this task: the run is over, or the file system does not share locks between "
            "machines, so a broker may be running; nothing was changed"
        )
    return is_ours


def _is_taken(descriptor: int, byte: int) -> bool:
    """Whether another process has locked a byte. Queries with a shared lock, so that concurrent queries do not disturb each other."""
    if _lock(descriptor, fcntl.LOCK_SH, byte):
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, byte)
        return False
    return True


def _lock(descriptor: int, how: int, byte: int) -> bool:
    try:
        fcntl.lockf(descriptor, how | fcntl.LOCK_NB, 1, byte)
    except OSError as error:
        if error.errno in TAKEN:
            return False
        raise
    return True


def _unlock(key: _Key, lock_byte: int) -> None:
    with _guard:
        lock_file = _lock_files[key]
        lock_file.taken.discard(lock_byte)
        if lock_file.descriptor is not None:
            with suppress(OSError):
                fcntl.lockf(lock_file.descriptor, fcntl.LOCK_UN, 1, lock_byte)
        _close_unused(key, lock_file)


def _close_unused(key: _Key, lock_file: _LockFile) -> None:
    if not lock_file.taken:
        del _lock_files[key]
        if lock_file.descriptor is not None:
            os.close(lock_file.descriptor)
