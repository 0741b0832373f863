"""A helper: a forked process that works on what this one has in memory, with a pipe each way.

A fork costs a few milliseconds and copies nothing that stays unchanged, maps of files least of all; so it pays for a
share of one large file, where a fresh process (`fanout`) or a thread (the interpreter runs one at a time) would not.

- SIGINT stays blocked in a helper: Ctrl-C is its parent's to handle.
- A helper ends without a word, whatever happens: the parent notices that the pipe has ended. Likewise a helper whose
  parent is gone ends at its next read or write.
- `dismiss` ends it at any time; it must not hold anything that would have to be tidied up.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn


def may_fork() -> bool:
    """Whether a fork is possible, and safe: it copies only the thread that calls it."""
    threading = sys.modules.get("threading")
    return hasattr(os, "fork") and (threading is None or threading.active_count() == 1)


class ForkedWorker:
    """life: what the process does, given the descriptors it reads from and writes to; others: helpers that live already.

    reads, writes: this side's ends of the pipes. Raises OSError when the system allows no more processes or pipes.
    """

    def __init__(self, life: Callable[[int, int], None], others: "Sequence[ForkedWorker]" = ()) -> None:
        self.reads, theirs_to_write = os.pipe()
        try:
            theirs_to_read, self.writes = os.pipe()
        except OSError:
            _close(self.reads, theirs_to_write)
            raise
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._pid = os.fork()
            if not self._pid:
                # left open here they would hide that the parent has gone
                _close(*(end for helper in (self, *others) for end in (helper.reads, helper.writes)))
                _live(life, theirs_to_read, theirs_to_write)
        except OSError:
            _close(self.reads, self.writes)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            _close(theirs_to_read, theirs_to_write)

    def dismiss(self) -> None:
        """End it, whatever it is doing; this returns when it is gone."""
        _close(self.reads, self.writes)
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _live(life: Callable[[int, int], None], reads: int, writes: int) -> NoReturn:
    status = 1
    try:
        gc.freeze()  # a collection would touch, and so copy, everything that was there before
        life(reads, writes)
        status = 0
    finally:
        os._exit(status)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
