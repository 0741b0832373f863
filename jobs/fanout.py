"""Run a command's work over many targets, in this process or in workers, and return the events in target order.

With several targets and several jobs:

1. Start the workers (`target_worker`): forks, or new processes if this one has Python threads.
2. Assign targets by number, in order. While many targets remain, the next number is already in a worker's pipe when it finishes one;
   near the end it is sent on demand, so that no worker has a queue while another is idle.
3. A worker sends its events in chunks. The parent always reads from the worker whose target is next in the output; it reads from the
   others only while less than `AHEAD_BYTES` are buffered. A worker that is not read blocks in its pipe: this is the back pressure, and
   the bound on memory.
4. If a worker dies, its target becomes a `Failure`, and a new worker takes over what was queued for it. Death by a signal (out of
   memory, an unreadable page) means that the target could not be processed.
5. Whatever ends the run (completion, Ctrl-C, the consumer closing the iterator) stops the workers. The death of the parent stops them
   immediately, because it releases the broker's lock that the parent held for them.
6. A shared target is too large for one worker. The parent works on it when its turn in the output comes, with processes that the work
   itself starts, while the workers go on with the other targets. It does the same with targets for which the system allows no further
   process.

An exception in the work on one target never stops the others: it becomes a `Failure` that names the target.
"""

import select
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import TypeVar

from kseg.jobs.events import Event, Failure, Work
from kseg.jobs.guarded import BUG_STATUS, Named, guarded
from kseg.jobs.target_worker import TargetWorker
from kseg.segment.errors import UnreadableInput

RECEIVE_SECONDS = 0.005  # how often this process reads from the workers while it works on a shared target
AHEAD_BYTES = 64 * 1024 * 1024  # how much output may wait in the parent for its turn

T = TypeVar("T", bound=Named)
O = TypeVar("O")


def run(
    work: Work[T, O],
    targets: Sequence[T],
    options: O,
    jobs: int = 1,
    finished: Callable[[T], None] | None = None,
    shared: Collection[int] = (),
    shared_options: O | None = None,
) -> Generator[Event, None, None]:
    """The events of `work` over all targets, in the order of the targets; closing the generator stops the workers.

    jobs: how many processes may work at a time; with 1, or one target, nothing is forked. finished: called after
    the last event of each target was taken. shared: the numbers of targets that this process works on in their turn, with
    `shared_options`; the work on them starts processes of its own. On KeyboardInterrupt the workers are stopped, the events of the
    targets that are already done are yielded, and the interrupt is raised again.
    """
    done = finished or _ignore
    others = len(targets) - len(shared)
    if jobs <= 1 or others <= 1:
        for number, target in enumerate(targets):
            yield from guarded(work, target, _options_for(number, options, shared, shared_options))
            done(target)
        return
    pool = _WorkerPool(work, targets, options, min(jobs, others), shared, shared_options)
    try:
        yield from pool.events(done)
    except KeyboardInterrupt:
        pool.stop()
        yield from pool.finished_events(done)
        raise
    finally:
        pool.stop()


def _ignore(_target: object) -> None:
    return None


def _options_for(number: int, options: O, shared: Collection[int], shared_options: O | None) -> O:
    return shared_options if number in shared and shared_options is not None else options


class _WorkerPool:
    """The parent's side: which worker has which target, what was received, and what to read next."""

    def __init__(
        self,
        work: Work[T, O],
        targets: Sequence[T],
        options: O,
        jobs: int,
        shared: Collection[int],
        shared_options: O | None,
    ) -> None:
        self._work = work
        self._targets = targets
        self._options = options
        self._shared = shared
        self._here = {*shared}  # numbers of the targets that this process works on itself
        self._shared_options = shared_options
        self._received_at = 0.0
        self._next = 0  # the first target not assigned yet
        self._arrived: dict[int, deque[bytes]] = {}
        self._complete: set[int] = set()
        self._failures: dict[int, Failure] = {}
        self._ahead_bytes = 0
        self._current = 0
        self._workers: list[TargetWorker] = []
        while len(self._workers) < jobs and self._start() is not None:
            pass
        for _ in range(2 if self._has_backlog() else 1):
            for worker in self._workers:
                self._assign_next(worker)

    def events(self, done: Callable[[T], None]) -> Iterator[Event]:
        while self._current < len(self._targets):
            if self._current in self._here:
                yield from self._work_here()
                self._close_current(done)
                continue
            yield from self._take()
            if self._current in self._complete:
                yield from self._take()
                self._close_current(done)
            else:
                self._receive()

    def _work_here(self) -> Iterator[Event]:
        """The events of the current target; what the workers send in the meantime is received, so that they can go on."""
        target, number = self._targets[self._current], self._current
        options = _options_for(number, self._options, self._shared, self._shared_options)
        for event in guarded(self._work, target, options):
            yield event
            if time.monotonic() - self._received_at > RECEIVE_SECONDS:
                self._receive(timeout_s=0)
                self._received_at = time.monotonic()

    def finished_events(self, done: Callable[[T], None]) -> Iterator[Event]:
        """After an interrupt: the targets that are complete, in order."""
        for number in sorted(self._complete):
            self._current = number
            yield from self._take()
            self._close_current(done)

    def stop(self) -> None:
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.end()
        self._workers = []

    def _close_current(self, done: Callable[[T], None]) -> None:
        self._complete.discard(self._current)
        done(self._targets[self._current])  # type: ignore[arg-type]  # the pool only ever holds T
        self._current += 1

    def _take(self) -> Iterator[Event]:
        """The received events of the current target."""
        import pickle

        chunks = self._arrived.get(self._current)
        while chunks:
            chunk = chunks.popleft()
            self._ahead_bytes -= len(chunk)
            yield from pickle.loads(chunk)
        if self._current in self._complete:
            self._arrived.pop(self._current, None)
            failure = self._failures.pop(self._current, None)
            if failure is not None:
                yield failure

    def _receive(self, timeout_s: float | None = None) -> None:
        """Wait until there is at least one message from a worker that may be read, or the timeout has passed."""
        may_read_ahead = self._ahead_bytes < AHEAD_BYTES
        by_descriptor = {
            worker.reads: worker
            for worker in self._workers
            if worker.numbers and (may_read_ahead or worker.numbers[0] == self._current)
        }
        ready = select.poll()
        for descriptor in by_descriptor:
            ready.register(descriptor, select.POLLIN)
        for descriptor, _ in ready.poll(None if timeout_s is None else timeout_s * 1000):
            worker = by_descriptor[descriptor]
            message = worker.receive()
            if message is None:
                self._replace_dead_worker(worker)
                continue
            number, is_last, chunk = message
            self._arrived.setdefault(number, deque()).append(chunk)
            self._ahead_bytes += len(chunk)
            if is_last:
                self._complete.add(number)
                worker.numbers.popleft()
                self._assign_next(worker)

    def _replace_dead_worker(self, worker: TargetWorker) -> None:
        """Handle a dead worker: its target fails, and a new worker takes over its queue."""
        number = worker.numbers.popleft()
        self._failures[number] = _failure_of(self._targets[number].path, worker.wait())
        self._complete.add(number)
        self._workers.remove(worker)
        replacement = self._start()
        if replacement is None:
            self._here.update(worker.numbers)
            return
        for queued in worker.numbers:
            replacement.send(queued)
        if not replacement.numbers:
            self._assign_next(replacement)

    def _has_backlog(self) -> bool:
        return len(self._targets) - self._next > 4 * len(self._workers)

    def _assign_next(self, worker: TargetWorker) -> None:
        while self._next in self._here:
            self._next += 1
        if self._next < len(self._targets) and (not worker.numbers or self._has_backlog()):
            worker.send(self._next)
            self._next += 1

    def _start(self) -> TargetWorker | None:
        """A further worker; None if the system allows no more processes. Without any, this process works on all targets that are left."""
        try:
            self._workers.append(TargetWorker(self._work, self._targets, self._options))
        except OSError:
            if not self._workers:
                self._here.update(range(self._next, len(self._targets)))
            return None
        return self._workers[-1]


def _failure_of(path: str, exitcode: int | None) -> Failure:
    """What the death of a worker means for its target. exitcode: the signal that ended it if below 0."""
    import signal

    who = f"the process working on {path}"
    if exitcode is None or exitcode >= 0:
        return Failure(path, f"{who} ended with status {exitcode}", BUG_STATUS)
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    hint = {
        "SIGBUS": ": a page of a file could not be read",
        "SIGKILL": ": perhaps the system had no memory left (fewer --jobs need less)",
        **dict.fromkeys(("SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE"), ": bad memory, or a bug in kseg"),
    }.get(name, "")
    return Failure(path, f"{who} was killed by {name}{hint}", UnreadableInput.exit_status)
