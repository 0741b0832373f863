"""SIGTERM and SIGHUP end a command as Ctrl-C does: workers are stopped, locks are released, and the output says what was done and how to go
on. Afterwards the process ends by the signal, which is the status that shells and supervisors expect.

A signal that is ignored, as under nohup, stays ignored. A second one changes nothing: a closed terminal may send several.
"""

import os
import signal
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_received: list[int] = []


class Terminated(KeyboardInterrupt):
    """Raised where the signal arrives; its text is the name of the signal."""


def handle_termination() -> None:
    """Called once, by the main thread of the program."""
    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise)


def end_by_received_signal() -> None:
    """End this process by the signal that it received; return if there was none."""
    for number in _received:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def interrupted_words(interrupt: KeyboardInterrupt) -> str:
    """What ended the command, for people."""
    return f"interrupted by {interrupt}" if isinstance(interrupt, Terminated) else "interrupted"


def _raise(number: int, _frame: FrameType | None) -> None:
    if not _received:
        _received.append(number)
        raise Terminated(signal.Signals(number).name)
