"""A newly started process with one pipe in each direction, where a fork is not safe (`forked_worker.can_fork`).

It takes a tenth of a second to start, and gets its main function and arguments pickled.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class SpawnedWorker:
    """Like a `ForkedWorker`. main: can be pickled. Raises OSError if the system allows no more processes."""

    def __init__(self, main: Callable[[int, int], None]) -> None:
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        self._from_child, child_writes = context.Pipe(duplex=False)
        child_reads, self._to_child = context.Pipe(duplex=False)
        self.reads, self.writes = self._from_child.fileno(), self._to_child.fileno()
        self._process = context.Process(target=_run, args=(main, child_reads, child_writes), daemon=True)
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
        try:
            self._process.start()
        except OSError:
            self.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            child_reads.close()
            child_writes.close()

    def close(self) -> None:
        """Close this side's ends of the pipes; call it once."""
        self._from_child.close()
        self._to_child.close()

    def send_signal(self, number: int) -> None:
        if self._process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the end of the process; returns its exit status (below 0: the signal that killed it), None if it still runs after the
        timeout."""
        self._process.join(timeout_s)
        return self._process.exitcode


def _run(main: Callable[[int, int], None], reads: "Connection", writes: "Connection") -> None:
    main(reads.fileno(), writes.fileno())
