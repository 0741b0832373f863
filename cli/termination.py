"""SIGTERM and SIGHUP end a command as Ctrl-C does: workers are stopped, locks are released, and the output says what was done and how to
continue. Afterwards the process ends by the signal, which is the status that shells and supervisors expect; Ctrl-C has a status of its own.

A signal that is ignored, as under nohup, stays ignored. A second one changes nothing: a closed terminal may send several, people press
Ctrl-C again, and what the first one has begun would be cut short, without a word on how to continue.
"""

import os
import signal
from types import FrameType

_USUAL = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
_received: list[int] = []


class Terminated(KeyboardInterrupt):
    """Raised where the signal arrives; its text is the name of the signal."""


def handle_termination() -> None:
    """Called once, by the main thread of the program."""
    for number, usual in _USUAL.items():
        if signal.getsignal(number) is usual:
            signal.signal(number, _raise)


def end_by_received_signal() -> None:
    """End this process by the signal that it received; return if there was none, or only Ctrl-C. Whatever comes later ends it silently."""
    for number in _USUAL:
        if signal.getsignal(number) is _raise:
            signal.signal(number, signal.SIG_DFL)
    for received in _received:
        if received != signal.SIGINT:
            os.kill(os.getpid(), received)


def was_interrupted() -> bool:
    """Whether one of the signals has come."""
    return bool(_received)


def interrupted_words(interrupt: KeyboardInterrupt) -> str:
    """What ended the command, for people."""
    return f"interrupted by {interrupt}" if isinstance(interrupt, Terminated) else "interrupted"


def _raise(number: int, _frame: FrameType | None) -> None:
    if not _received:
        _received.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated(signal.Signals(number).name)
