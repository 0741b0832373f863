"""Run a command's work over many targets, in this process or in workers, and return the events in target order.

With several targets and several jobs:

1. Fork the workers (spawn them if this process has threads of Python). SIGINT stays blocked in them: the parent handles Ctrl-C. Threads of
   libraries, such as Arrow's or librdkafka's, do not survive the fork. That is harmless as long as a worker frees nothing that it
   inherited (closing a Kafka client would wait for its threads forever), so inherited objects are hidden from its collector.
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
   itself starts, while the workers go on with the other targets.

An exception in the work on one target never stops the others: it becomes a `Failure` that names the target.
"""

import gc
import os
import struct
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from kseg.jobs.events import Event, Failure, Text, Work
from kseg.jobs.forked_worker import can_fork, signs_of_life
from kseg.jobs.guarded import BUG_STATUS, Named, bug, guarded
from kseg.segment.errors import UnreadableInput
from kseg.segment.storage.attached import attach_all, attached_paths

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

CHUNK_BYTES = 256 * 1024  # what a worker collects before it sends: large enough to hide the cost of a message
CHUNK_SECONDS = 0.1  # … or this long, so that progress is seen
RECEIVE_SECONDS = 0.005  # how often this process reads from the workers while it works on a shared target
AHEAD_BYTES = 64 * 1024 * 1024  # what may wait in the parent for its turn
ROW_WEIGHT = 512  # a guess at the pickled size of an event that is not text

_HEAD = struct.Struct("<QB")  # number of the target, 1 if it is finished


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


class _Worker:
    """A process, the parent's end of its pipe, and the assigned numbers that it has not finished."""

    __slots__ = ("connection", "numbers", "process")

    def __init__(self, process: "BaseProcess", connection: "Connection") -> None:
        self.process = process
        self.connection = connection
        self.numbers: deque[int] = deque()
        signs_of_life.add(connection.fileno())

    def close(self) -> None:
        signs_of_life.discard(self.connection.fileno())
        self.connection.close()


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
        self._shared_options = shared_options
        self._received_at = 0.0
        self._next = 0  # the first number nobody was given
        self._arrived: dict[int, deque[bytes]] = {}
        self._complete: set[int] = set()
        self._failures: dict[int, Failure] = {}
        self._ahead_bytes = 0
        self._current = 0
        self._workers: list[_Worker] = []
        self._start_workers(jobs)
        for _ in range(2 if self._has_backlog() else 1):
            for worker in self._workers:
                self._assign_next(worker)

    def events(self, done: Callable[[T], None]) -> Iterator[Event]:
        while self._current < len(self._targets):
            if self._current in self._shared:
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
        """The events of a shared target; what the workers send meanwhile is received, so that they go on."""
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
            worker.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(2)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers = []

    def _close_current(self, done: Callable[[T], None]) -> None:
        self._complete.discard(self._current)
        done(self._targets[self._current])  # type: ignore[arg-type]  # the crew only ever holds T
        self._current += 1

    def _take(self) -> Iterator[Event]:
        """The received events of the current target."""
        import pickle

        chunks = self._arrived.get(self._current)
        while chunks:
            chunk = chunks.popleft()
            self._ahead_bytes -= len(chunk)
            yield from pickle.loads(memoryview(chunk)[_HEAD.size :])
        if self._current in self._complete:
            self._arrived.pop(self._current, None)
            failure = self._failures.pop(self._current, None)
            if failure is not None:
                yield failure

    def _receive(self, timeout_s: float | None = None) -> None:
        """Wait for at least one message of a worker that may be read, or as long as this."""
        from multiprocessing.connection import wait

        may_read_ahead = self._ahead_bytes < AHEAD_BYTES
        by_connection = {
            worker.connection: worker
            for worker in self._workers
            if worker.numbers and (may_read_ahead or worker.numbers[0] == self._current)
        }
        for connection in wait(list(by_connection), timeout_s):
            worker = by_connection[connection]  # type: ignore[index]  # wait gives back what it was given
            try:
                chunk = worker.connection.recv_bytes()
            except (EOFError, OSError):
                self._replace_dead_worker(worker)
                continue
            number, last = _HEAD.unpack_from(chunk)
            self._arrived.setdefault(number, deque()).append(chunk)
            self._ahead_bytes += len(chunk)
            if last:
                self._complete.add(number)
                worker.numbers.popleft()
                self._assign_next(worker)

    def _replace_dead_worker(self, worker: _Worker) -> None:
        """Handle a dead worker: its target fails, and a new worker takes over its queue."""
        worker.close()
        worker.process.join()
        number = worker.numbers.popleft()
        self._failures[number] = _failure_of(self._targets[number].path, worker.process.exitcode)
        self._complete.add(number)
        self._workers.remove(worker)
        replacement = self._start()
        self._workers.append(replacement)
        for queued in worker.numbers:
            self._send(replacement, queued)
        if not replacement.numbers:
            self._assign_next(replacement)

    def _start_workers(self, jobs: int) -> None:
        """As many workers as the machine allows; one is enough."""
        for _ in range(jobs):
            try:
                self._workers.append(self._start())
            except OSError as error:
                if not self._workers:
                    raise UnreadableInput(f"cannot start a worker process: {error.strerror}") from error
                return

    def _has_backlog(self) -> bool:
        return len(self._targets) - self._next > 4 * len(self._workers)

    def _assign_next(self, worker: _Worker) -> None:
        while self._next in self._shared:
            self._next += 1
        if self._next < len(self._targets) and (not worker.numbers or self._has_backlog()):
            self._send(worker, self._next)
            self._next += 1

    def _send(self, worker: _Worker, number: int) -> None:
        worker.numbers.append(number)
        try:
            worker.connection.send_bytes(number.to_bytes(8, "little"))
        except OSError:
            return  # it is dead, which the next read detects

    def _start(self) -> _Worker:
        import multiprocessing
        import signal

        forks = can_fork()
        context = multiprocessing.get_context("fork" if forks else "spawn")
        parent_end, child_end = context.Pipe()
        others = [worker.connection for worker in self._workers] + [parent_end] if forks else []
        arguments = (child_end, others, self._work, self._targets, self._options, attached_paths())
        process = context.Process(target=_serve, args=arguments, daemon=True)  # type: ignore[attr-defined]
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        collects = gc.isenabled()
        gc.disable()  # until the worker has frozen what it inherits
        try:
            process.start()
        finally:
            if collects:
                gc.enable()
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        child_end.close()
        return _Worker(process, parent_end)


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


def _serve(
    connection: "Connection",
    inherited: Sequence["Connection"],
    work: Work[T, O],
    targets: Sequence[T],
    options: O,
    attached: Sequence[str],
) -> None:
    """A worker's main loop: take a number, send the events of that target, until the parent closes the pipe. inherited: the
    parent's ends of pipes that a fork copied here; left open, they would hide the parent's death. attached:
    archives and object stores that the parent reads.
    """
    gc.freeze()
    gc.enable()
    for other in inherited:
        other.close()
    _end_with_the_parent(connection)
    try:
        attach_all(attached)
        while True:
            number = int.from_bytes(connection.recv_bytes(), "little")
            _send_events(connection, number, targets[number], work, options)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the parent is gone or has stopped; nothing here needs an orderly exit


def _end_with_the_parent(connection: "Connection") -> None:
    """Make this process end as `stop` would end it as soon as the other end of its pipe is closed."""
    import select
    import signal
    import threading

    if not hasattr(select, "poll"):
        return
    hang_up = select.poll()
    hang_up.register(connection.fileno(), 0)  # requests no event: only the end of the connection wakes it

    def wait() -> None:
        while not hang_up.poll():
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def _send_events(connection: "Connection", number: int, target: T, work: Work[T, O], options: O) -> None:
    pending: list[Event] = []
    weight = 0
    sent_at = time.monotonic()
    for event in guarded(work, target, options):
        pending.append(event)
        weight += len(event.data) if isinstance(event, Text) else ROW_WEIGHT
        if weight >= CHUNK_BYTES or time.monotonic() - sent_at > CHUNK_SECONDS:
            connection.send_bytes(_packed(number, False, pending, target.path))
            pending, weight, sent_at = [], 0, time.monotonic()
    connection.send_bytes(_packed(number, True, pending, target.path))


def _packed(number: int, last: bool, events: list[Event], path: str) -> bytes:
    import pickle

    try:
        body = pickle.dumps(events, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001  (an event that cannot travel is the bug of the work)
        body = pickle.dumps([bug(path, error)], pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(number, last) + body
