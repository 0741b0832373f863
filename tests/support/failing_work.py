"""Work for the tests of executors whose first attempt at each target fails in the middle of its change, in one of several ways."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from kseg.change.run.pipeline import TargetGroup
from kseg.jobs.events import Event
from tests.support.failing_disks import Stopped
from tests.support.retried_changes import GroupWork, die, ending

_PATIENCE_SECONDS = 600


class End(StrEnum):
    """How the attempt fails: the process is killed; an error ends the task; the executor is killed while the process continues; the process
    waits until another attempt is running and then continues."""

    KILLED = "killed"
    FAILS = "fails"
    LOST = "lost"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class FailsOnce:
    """notes: a directory in which attempts are counted. at: the change of the file system before which the attempt fails."""

    work: GroupWork
    end: End
    at: int
    notes: str

    def __call__(self, group: TargetGroup, options: Any) -> Iterator[Event]:
        if self._attempt(group) > 1:
            yield from self.work(group, options)
            return
        with ending(self.at, lambda: self._happen(group)):
            yield from self.work(group, options)

    def _attempt(self, group: TargetGroup) -> int:
        for number in range(1, 100):
            try:
                os.close(os.open(self._note(group, number), os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return number
        raise AssertionError("it is tried for ever")

    def _is_first_of_all(self) -> bool:
        try:
            os.close(os.open(os.path.join(self.notes, "slow"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _note(self, group: TargetGroup, number: int) -> str:
        return os.path.join(self.notes, f"{os.path.basename(group.path)}.{number}")

    def _happen(self, group: TargetGroup) -> None:
        if self.end is End.SLOW and not self._is_first_of_all():
            # a second slow attempt would occupy the core that the other attempt needs
            return
        os.close(os.open(self._note(group, 0), os.O_CREAT))
        match self.end:
            case End.KILLED:
                die()
            case End.FAILS:
                raise Stopped
            case End.LOST:
                _kill_executor()
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while not os.path.exists(self._note(group, 2)) and time.monotonic() < give_up:
            time.sleep(0.02)


def _kill_executor() -> None:
    """Kill the executor JVM that started this Python worker."""
    pid = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pid = int(fields[1])
        assert pid > 1, "there is no executor around this process"
    os.kill(pid, signal.SIGKILL)
