"""Once a change is decided, Ctrl-C and a polite kill wait until it is done: that takes moments, and leaves nothing half done."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_POLITE = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that ask this thread to end are delivered when the body is left."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _POLITE)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
