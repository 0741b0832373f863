"""Threads for work that waits for the disk, as many of them as the system allows.

A limit of tasks (RLIMIT_NPROC, the pids limit of a container) or of memory may leave some of them, or none.
`concurrent.futures.ThreadPoolExecutor` raises RuntimeError then, with the work left in its queue. Here the threads that did start do it,
and without any the caller does.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar

from kseg.jobs.new_thread import start

P = ParamSpec("P")
R = TypeVar("R")


class WorkerThreads:
    """Use as a context manager. It waits for all that was submitted and not cancelled; after an exception, such as Ctrl-C, for what has
    begun. most: number of threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._threads: list[threading.Thread] = []
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()

    def submit(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """Call `work` in a thread. Without threads it is done when this returns, and its exception is raised here."""
        future: Future[R] = Future()
        self._waiting.put((future, partial(work, *args, **kwargs)))
        if len(self._threads) < self._most:
            thread = threading.Thread(target=self._serve)
            # added before it starts, because Ctrl-C may come in between
            self._threads.append(thread)
            try:
                start(thread)
            except RuntimeError:
                self._threads.remove(thread)
                self._most = len(self._threads)
        if not self._threads:
            self._waiting.get()
            future.set_result(work(*args, **kwargs))
        return future

    def close(self) -> None:
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            with suppress(RuntimeError):  # the thread was never started
                thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            with suppress(queue.Empty):
                while (waiting := self._waiting.get_nowait()) is not None:
                    waiting[0].cancel()
        self.close()

    def _serve(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            future, work = waiting
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # noqa: BLE001  (raised by the one who asks for the result)
                    future.set_exception(error)
