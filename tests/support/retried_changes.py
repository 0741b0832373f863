"""Attempt the work of a run in separate processes, some of which are killed, as a cluster does."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kseg.change.apply.disk import Disk
from kseg.change.run.pipeline import TargetGroup
from kseg.jobs.events import Event
from tests.support.failing_disks import CHANGES, QuickDisk

_WAITS = ("sync", "sync_directory", "start_writeback")
GroupWork = Callable[[TargetGroup, Any], Iterator[Event]]


@contextmanager
def ending(number: int, end: Callable[[], None]) -> Iterator[None]:
    """Call `end` before the n-th change of the file system. Nothing is synced."""
    left = itertools.count(number, -1)

    def deadly(change: Any) -> Any:
        def method(self: Disk, *arguments: Any) -> Any:
            if next(left) == 0:
                end()
            return change(self, *arguments)

        return method

    names = (*CHANGES, "give_name", *_WAITS)
    before = {name: getattr(Disk, name) for name in names}
    for name, change in before.items():
        setattr(Disk, name, getattr(QuickDisk, name) if name in _WAITS else deadly(change))
    try:
        yield
    finally:
        for name, change in before.items():
            setattr(Disk, name, change)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Attempt:
    """One process that works on a group."""

    def __init__(self, work: GroupWork, group: TargetGroup, options: Any, kill_at: int = 1 << 60) -> None:
        self._read, write = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(write)
            return
        try:
            os.close(self._read)
            with ending(kill_at, die), os.fdopen(write, "wb") as pipe:
                pipe.write(pickle.dumps(list(work(group, options))))
        finally:
            os._exit(0)

    def events(self) -> list[Event] | None:
        """The events when it has ended; None if it was killed."""
        with os.fdopen(self._read, "rb") as pipe:
            output = pipe.read()
        _, status = os.waitpid(self._pid, 0)
        assert os.WIFSIGNALED(status) or output, "the attempt raised"
        return None if os.WIFSIGNALED(status) else pickle.loads(output)


def killed_first(
    work: GroupWork, groups: Sequence[TargetGroup], options: Any, kill_at: int, was_killed: list[bool]
) -> Iterator[Event]:
    """Attempt each group in a process that is killed at its n-th change, and then in another one."""
    for group in groups:
        events = Attempt(work, group, options, kill_at).events()
        was_killed.append(events is None)
        if events is None:
            events = Attempt(work, group, options).events()
        assert events is not None
        yield from events


def both_at_once(work: GroupWork, groups: Sequence[TargetGroup], options: Any) -> Iterator[Event]:
    """Attempt each group in two processes at the same time, which must produce the same events."""
    for group in groups:
        attempts = [Attempt(work, group, options) for _ in range(2)]
        first, second = [attempt.events() for attempt in attempts]
        assert first == second
        assert first is not None
        yield from first
