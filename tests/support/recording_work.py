"""Work for the tests of the fan-out that records its calls and fails on demand."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from kseg.jobs.events import Advance, Event, Row, Text
from kseg.segment.errors import Refused, UnreadableInput
from kseg.segment.partition.targets import FileTarget
from tests.spark.standalone import executor_of


@dataclass(frozen=True, slots=True)
class Asked:
    """call_log: a directory in which every attempt creates a file. wait_s: how long each target takes. loses_executor_at: name of the
    target whose first attempt kills its executor."""

    call_log: str
    wait_s: float = 0.0
    loses_executor_at: str = ""


def shown(events: Iterable[Event]) -> list[Event]:
    """The output of events: text as one piece, without progress."""
    seen: list[Event] = []
    visible = (event for event in events if not isinstance(event, Advance))
    for is_text, run in groupby(visible, lambda event: isinstance(event, Text)):
        if is_text:
            seen.append(Text(b"".join(bytes(event.data) for event in run if isinstance(event, Text))))
        else:
            seen += run
    return seen


def attempts(call_log: Path, target: str) -> int:
    """The number of attempts at a target."""
    return len(list(call_log.glob(f"{Path(target).name}.*")))


def _begin(target: FileTarget, asked: Asked) -> int:
    """Record the attempt; returns its number, counted from 1."""
    number = attempts(Path(asked.call_log), target.path) + 1
    (Path(asked.call_log) / f"{os.path.basename(target.path)}.{number}").write_text(str(os.getpid()))
    return number


def echo(target: FileTarget, asked: Asked) -> Iterator[Event]:
    """Yield one row and one line for each target."""
    number = _begin(target, asked)
    if number == 1 and os.path.basename(target.path) == asked.loses_executor_at:
        os.kill(executor_of(os.getpid()), signal.SIGKILL)
    time.sleep(asked.wait_s)
    yield Row({"type": "echo", "path": target.path})
    yield Advance(target.path, 1)
    yield Text(f"{target.path}\n".encode())


def moody(target: FileTarget, asked: Asked) -> Iterator[Event]:
    """Behaves as the name of the target tells it to."""
    number = _begin(target, asked)
    name = os.path.basename(target.path)
    yield Text(f"{name} begins\n".encode())
    if name.startswith("refused"):
        raise Refused(f"{name} is refused")
    if name.startswith("unreadable"):
        raise UnreadableInput(f"cannot read {name}")
    if name.startswith("bug"):
        raise ValueError("nobody foresaw this")
    if name.startswith("odd"):
        yield Row({"type": "odd", "value": lambda: None})
    if name.startswith("deadly") or (name.startswith("fragile") and number == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    yield Text(f"{name} ends\n".encode())


def wordy(target: FileTarget, asked: Asked) -> Iterator[Event]:
    """Yield a thousand lines of a thousand random bytes each."""
    number = _begin(target, asked)
    for line in range(1000):
        yield Text(
            f"{os.path.basename(target.path)} {line} ".encode() + os.urandom(500).hex().encode() + b"\n"
        )
    yield Row({"type": "end", "attempt": number})
