"""Defer termination signals for the moments in which an operation must not be interrupted.

Masking them in this thread is not enough: if the process has another one (of a library or a test runner), the system delivers the signal
there, and Python still runs the handler in this thread. So the handlers are replaced, once for callers that need it often
(`handling_signals`). Other threads have nothing to defer: no handler ever runs there.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_Former = Callable[[int, FrameType | None], object] | int


class _DeferredSignals:
    """former: the replaced handlers. depth: number of nested bodies. came: the signals received in the meantime."""

    def __init__(self) -> None:
        self.former: dict[int, _Former] = {}
        self.depth = 0
        self.came: set[int] = set()

    def begin(self) -> None:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if handler is not None and handler is not signal.SIG_IGN:
                self.former[number] = handler
                signal.signal(number, self._hear)

    def end(self) -> None:
        for number, handler in self.former.items():
            signal.signal(number, handler)
        self.former = {}

    def deliver(self) -> None:
        if self.came and not self.depth:
            try:
                self._pass_on(self.came.pop(), None)
            finally:
                self.deliver()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.depth:
            self.came.add(number)
        else:
            self._pass_on(number, frame)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        former = self.former[number]
        if callable(former):
            former(number, frame)
        else:
            signal.signal(number, former)
            signal.raise_signal(number)


_DEFERRED = _DeferredSignals()


@contextmanager
def handling_signals() -> Iterator[None]:
    """Install the handlers once around many deferring bodies; between the bodies signals act as usual."""
    if _DEFERRED.former or not _is_main_thread():
        yield
        return
    try:
        _DEFERRED.begin()
        yield
    finally:
        _DEFERRED.end()


@contextmanager
def deferring_signals() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP take effect when the body is left. May be nested."""
    if not _is_main_thread():
        yield
        return
    with handling_signals():
        _DEFERRED.depth += 1
        try:
            yield
        finally:
            _DEFERRED.depth -= 1
            _DEFERRED.deliver()


def _is_main_thread() -> bool:
    threading = sys.modules.get("threading")
    return threading is None or threading.current_thread() is threading.main_thread()
