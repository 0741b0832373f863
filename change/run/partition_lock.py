"""The broker's lock for one run in many processes: attempts at the same work, on machines that share the disk.

A POSIX lock is on bytes of a file, which need not exist, and a broker wants all of them. So one lock file tells apart
who else is there:

      0                      part_of(run)                    + PART_BYTES
      ├────── the run ───────┼──── the attempts of the run ──┼────── the run ───────►
             exclusive         one byte, a seat, for each      exclusive
                               directory that is worked on

1. The process that was called holds everything but its run's part, from before the work until after it (`lock`). It
   had all of it first: no broker, no other kseg, and no attempt of an earlier run was there.
2. An attempt takes the seat of its directory before it looks at it, and keeps it until the directory is as planned.
   Whoever finds the seat taken waits: two attempts at the same work come one after the other, wherever they run.
3. Whoever has a seat looks whether the rest of the lock is taken. When it is not, the run is over, or the file system
   keeps locks from other machines; either way nobody knows what else is at work, and nothing may be changed.
4. A process that dies leaves its seat with all else, and not before: as long as anything can still be changed, a
   broker is refused on every machine where the lock of that file means something, also when the run itself is gone.

What is lost with any descriptor of the file that is closed (see `lock`) makes one descriptor for all seats of a process
necessary.
"""

import fcntl
import os
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kseg.change.apply.lock import PART_BYTES, TAKEN, is_held, part_of
from kseg.segment.errors import Refused

_SEATS = PART_BYTES - 1  # the last byte of a part is nobody's: whoever locks it locks more than a seat
_FIRST_WAIT_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 0.5


_Key = tuple[int, int]  # device and inode of a lock file


class _Bench:
    """What this process has of one lock file: the descriptor, None where the process holds the whole lock anyway, and
    the bytes that are taken."""

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor
        self.taken: set[int] = set()


_benches: dict[_Key, _Bench] = {}
_guard = threading.Lock()
os.register_at_fork(after_in_child=_benches.clear)


@contextmanager
def seated(path: str, run_id: str, name: str) -> Iterator[None]:
    """Have the seat of `name` in the lock file at `path`; waits for another attempt that has it.

    name: what is worked on; the same for every attempt, whatever the path to it. Raises Refused when the run that the
    attempt belongs to is not there, or somebody else is.
    """
    seat = part_of(run_id) + zlib.crc32(name.encode()) % _SEATS
    wait_seconds = _FIRST_WAIT_SECONDS
    while (key := _taken(path, run_id, seat)) is None:
        time.sleep(wait_seconds)
        wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)
    try:
        yield
    finally:
        _leave(key, seat)


def _taken(path: str, run_id: str, seat: int) -> _Key | None:
    """Where the seat was taken, None when somebody has it."""
    folder = os.path.dirname(path)
    try:
        with _guard:
            status = os.stat(path)
            key = (status.st_dev, status.st_ino)
            bench = _benches.get(key)
            if bench is None:
                is_ours = is_held(path)  # then nothing may open the file, and nobody else can be there
                bench = _benches[key] = _Bench(None if is_ours else os.open(path, os.O_RDWR | os.O_CLOEXEC))
            try:
                if seat in bench.taken or not _is_free(bench.descriptor, folder, part_of(run_id), seat):
                    return None
                bench.taken.add(seat)
                return key
            finally:
                _tidy(key, bench)
    except FileNotFoundError:
        raise Refused(f"{folder} is not locked: the run this belongs to is over") from None
    except OSError as error:
        raise Refused(f"cannot lock {folder}: {error.strerror}") from error


def _is_free(descriptor: int | None, folder: str, part: int, seat: int) -> bool:
    """Whether the seat was free and is ours now. Raises Refused when there is no run to be part of, OSError."""
    if descriptor is None:
        return True
    is_ours = _lock(descriptor, fcntl.LOCK_EX, seat)
    if not is_ours and _is_taken(descriptor, part + _SEATS):
        raise Refused(f"{folder} is in use by a broker or another kseg: the run this belongs to is over")
    if not _is_taken(descriptor, 0):
        if is_ours:
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, seat)
        raise Refused(
            f"{folder} is not locked by the run this belongs to: it is over, or the file system keeps locks from other "
            "machines, so that nobody can tell whether a broker is running; nothing was changed"
        )
    return is_ours


def _is_taken(descriptor: int, byte: int) -> bool:
    """Whether another process has locked a byte. Asks for a shared lock, so that asking many times at once is no harm."""
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


def _leave(key: _Key, seat: int) -> None:
    with _guard:
        bench = _benches[key]
        bench.taken.discard(seat)
        if bench.descriptor is not None:
            with suppress(OSError):
                fcntl.lockf(bench.descriptor, fcntl.LOCK_UN, 1, seat)
        _tidy(key, bench)


def _tidy(key: _Key, bench: _Bench) -> None:
    if not bench.taken:
        del _benches[key]
        if bench.descriptor is not None:
            os.close(bench.descriptor)
