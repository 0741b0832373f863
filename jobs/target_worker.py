"""A process that works on numbered targets for `fanout`, and the pipes between the two.

    orders   pipe to the worker: the number of a target, 8 bytes
    events   pipe from it: messages, each a header (number of the target, whether it is finished, bytes that follow) and pickled events

A worker sends the events of a target in chunks, so that progress is seen and memory stays bounded. It is forked, or started anew where
a fork is not safe.
"""

import os
import signal
import struct
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn, TypeVar

from kseg.jobs.events import Event, Text, Work
from kseg.jobs.forked_worker import ForkedWorker, can_fork, signs_of_life
from kseg.jobs.guarded import Named, bug, guarded
from kseg.jobs.pipes import read_exactly, write_all
from kseg.jobs.spawned_worker import SpawnedWorker
from kseg.segment.storage.attached import attach_all, attached_paths

CHUNK_BYTES = 256 * 1024  # what a worker collects before it sends: large enough to hide the cost of a message
CHUNK_SECONDS = 0.1  # … or this long, so that progress is seen
ROW_WEIGHT = 512  # a guess at the pickled size of an event that is not text
TERM_SECONDS = 2  # how long a worker may take to leave a change in a safe state

_ORDER = struct.Struct("<Q")
_HEAD = struct.Struct("<QBQ")

T = TypeVar("T", bound=Named)
O = TypeVar("O")


class TargetWorker:
    """The worker as seen by the process that started it. numbers: the targets that it was given and has not finished, in order.

    Raises OSError if the system allows no more processes.
    """

    __slots__ = ("_process", "numbers", "reads")

    def __init__(self, work: Work[T, O], targets: Sequence[T], options: O) -> None:
        main = partial(_serve, work, targets, options, attached_paths())
        self._process: ForkedWorker | SpawnedWorker = (
            ForkedWorker(main) if can_fork() else SpawnedWorker(main)
        )
        self.reads = self._process.reads
        self.numbers: deque[int] = deque()
        signs_of_life.update((self._process.reads, self._process.writes))

    def send(self, number: int) -> None:
        """Give it the next target."""
        self.numbers.append(number)
        try:
            os.write(self._process.writes, _ORDER.pack(number))
        except OSError:
            return  # it is dead, which the next read detects

    def receive(self) -> tuple[int, bool, bytes] | None:
        """The next message: the number of the target, whether that is finished, and pickled events. None if the worker is dead."""
        head = read_exactly(self.reads, _HEAD.size)
        if head is None:
            return None
        number, is_last, size_bytes = _HEAD.unpack(head)
        body = read_exactly(self.reads, size_bytes)
        return None if body is None else (number, bool(is_last), body)

    def wait(self) -> int | None:
        """The exit status of a worker that is dead, below 0 for the signal that killed it."""
        self._close()
        return self._process.wait()

    def terminate(self) -> None:
        """Tell the worker to end; follow with `end`."""
        self._close()
        self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Wait until the worker has ended, and kill it if it does not."""
        if self._process.wait(TERM_SECONDS) is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def _close(self) -> None:
        signs_of_life.difference_update((self._process.reads, self._process.writes))
        self._process.close()


def _serve(
    work: Work[T, O], targets: Sequence[T], options: O, attached: Sequence[str], orders: int, events: int
) -> NoReturn:
    """A worker's main loop: take a number, send the events of that target, until the parent closes the pipes. attached: archives and
    object stores that the parent reads."""
    try:
        _end_with_the_parent(orders)
        attach_all(attached)
        while order := os.read(orders, _ORDER.size):
            (number,) = _ORDER.unpack(order)
            _send_events(events, number, targets[number], work, options)
    except BrokenPipeError:
        pass  # the parent is gone or has stopped
    except Exception:  # noqa: BLE001  (nothing else would report it)
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # nothing here needs an orderly exit


def _end_with_the_parent(orders: int) -> None:
    """As soon as the other end of its pipe is closed, make this process end in the way that `terminate` would end it."""
    import select
    import threading

    from kseg.jobs.new_thread import start

    if not hasattr(select, "poll"):
        return
    hang_up = select.poll()
    hang_up.register(orders, 0)  # requests no event: only the end of the connection wakes it

    def wait() -> None:
        while not hang_up.poll():
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    # if no thread can be started, this process ends at its next read or write
    with suppress(RuntimeError):
        start(threading.Thread(target=wait, daemon=True))


def _send_events(events: int, number: int, target: T, work: Work[T, O], options: O) -> None:
    pending: list[Event] = []
    weight = 0
    sent_at = time.monotonic()
    for event in guarded(work, target, options):
        pending.append(event)
        weight += len(event.data) if isinstance(event, Text) else ROW_WEIGHT
        if weight >= CHUNK_BYTES or time.monotonic() - sent_at > CHUNK_SECONDS:
            write_all(events, _message(number, False, pending, target.path))
            pending, weight, sent_at = [], 0, time.monotonic()
    write_all(events, _message(number, True, pending, target.path))


def _message(number: int, is_last: bool, pending: list[Event], path: str) -> bytes:
    import pickle

    try:
        body = pickle.dumps(pending, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001  (an event that cannot travel is the bug of the work)
        body = pickle.dumps([bug(path, error)], pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(number, is_last, len(body)) + body
