"""A forked process that works on the memory of this process, with one pipe in each direction.

A fork takes less than a millisecond and copies only what changes, in particular no mapped files. So it pays off even for a share of one
large file, where a new process (`spawned_worker`) or a thread (the interpreter runs one at a time) would not.

- SIGINT and SIGHUP, which a terminal sends to all its processes, stay blocked in the worker: the parent handles them. SIGTERM ends it.
- A worker that ends for any reason closes its pipe, which is how the parent notices. A worker whose parent is gone ends at its next
  read or write.
- A worker frees nothing that it inherits: closing the client of a broker, say, would wait for threads that a fork does not copy.
- `kill` ends a worker at any time, so it must not hold anything that needs cleaning up.
"""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

# Pipe ends whose closing tells other processes that this one has died. A forked process closes its copies.
signs_of_life: set[int] = set()

# pauses between checks whether a process has ended
_FIRST_PAUSE_SECONDS = 0.0005
_LONGEST_PAUSE_SECONDS = 0.02


def can_fork() -> bool:
    """Whether a fork is possible, and safe: it copies only the thread that calls it.

    Python threads may hold locks that a child needs. Those of libraries do not count: Arrow has some from its import on, but a child
    that frees nothing of what it inherited does not need them."""
    threading = sys.modules.get("threading")
    return hasattr(os, "fork") and (threading is None or threading.active_count() == 1)


def waiting_for_processors() -> int:
    """The number of other tasks that run or wait for a processor now; 0 if the system does not report it."""
    try:
        with open("/proc/loadavg") as file:
            return max(0, int(file.read().split()[3].partition("/")[0]) - 1)
    except (OSError, ValueError, IndexError):
        return 0


def has_free_processor() -> bool:
    """Whether other work leaves a processor for a second process or thread. If not, the second one would share the time that the system
    gives to this program, and waste some of it."""
    return waiting_for_processors() < (os.cpu_count() or 1)


class ForkedWorker:
    """main: the main function of the process, which gets the descriptors to read from and write to. others: existing workers.

    reads, writes: this side's ends of the pipes. Raises OSError if the system allows no more processes.
    """

    def __init__(self, main: Callable[[int, int], None], others: "Sequence[ForkedWorker]" = ()) -> None:
        self.reads, child_writes = os.pipe()
        try:
            child_reads, self.writes = os.pipe()
        except OSError:
            _close(self.reads, child_writes)
            raise
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP, signal.SIGTERM})
        collects = gc.isenabled()
        gc.disable()  # until the worker has frozen what it inherits
        try:
            self._pid = os.fork()
            if not self._pid:
                gc.freeze()  # a collection would touch, and so copy, all inherited memory
                if collects:
                    gc.enable()
                # if left open here they would hide the death of the parent
                _close(*(end for worker in (self, *others) for end in (worker.reads, worker.writes)))
                _close(*signs_of_life)
                signs_of_life.clear()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
                _run_child(main, child_reads, child_writes)
        except OSError:
            _close(self.reads, self.writes)
            raise
        finally:
            if collects:
                gc.enable()
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            _close(child_reads, child_writes)

    def close(self) -> None:
        """Close this side's ends of the pipes; call it once."""
        _close(self.reads, self.writes)

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, number)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the end of the process; returns its exit status (below 0: the signal that killed it), None if it still runs after the
        timeout. Call it again only after None."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pause = _FIRST_PAUSE_SECONDS
        while True:
            pid, status = os.waitpid(self._pid, 0 if deadline is None else os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if deadline is not None and time.monotonic() > deadline:
                return None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        self.close()
        self.send_signal(signal.SIGKILL)
        with suppress(ChildProcessError):
            self.wait()


def _run_child(main: Callable[[int, int], None], reads: int, writes: int) -> NoReturn:
    status = 1
    try:
        main(reads, writes)
        status = 0
    finally:
        os._exit(status)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
