"""Processes that hold the lock of a run, or one of its seats, until they are told to exit or are killed."""

from __future__ import annotations

import fcntl
import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kseg.change.apply.lock import lock_path, locked_files
from kseg.change.run.partition_lock import partition_locked
from kseg.segment.errors import Refused

RUN, OTHER = "20260101T000000Z-00000001", "20260101T000000Z-00000002"


class Child:
    """A process that runs until it is told to exit. `output` is its result."""

    def __init__(self, action: Callable[[Callable[[str], None]], None]) -> None:
        self._read, write = os.pipe()
        self._stop, self._end = os.pipe()
        self._is_gone = False
        self.pid = os.fork()
        if self.pid:
            os.close(write)
            os.close(self._stop)
            return
        try:
            os.close(self._end)

            def say(word: str) -> None:
                os.write(write, word.encode() + b"\n")
                if word == "in":
                    os.read(self._stop, 1)

            try:
                action(say)
                say("out")
            except Refused as refused:
                say(str(refused))
        finally:
            os._exit(0)

    def output(self) -> str:
        word = b""
        while not word.endswith(b"\n"):
            word += os.read(self._read, 1) or b"\n"
        return word.decode().strip()

    def is_silent(self, seconds: float = 0.2) -> bool:
        return not select.select([self._read], [], [], seconds)[0]

    def leave(self) -> None:
        os.write(self._end, b"!")

    def kill(self) -> None:
        if not self._is_gone:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._is_gone = True


@contextmanager
def child(action: Callable[[Callable[[str], None]], None]) -> Iterator[Child]:
    made = Child(action)
    try:
        yield made
    finally:
        made.kill()


def running_broker(log_dir: Path) -> Callable[[Callable[[str], None]], None]:
    """Holds the lock that FileChannel.tryLock of a Java broker takes."""

    def action(say: Callable[[str], None]) -> None:
        with (log_dir / ".lock").open("a") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("refused")
            else:
                say("in")

    return action


def attempt(
    log_dir: Path, run_id: str = RUN, name: str = "orders-0"
) -> Callable[[Callable[[str], None]], None]:
    def action(say: Callable[[str], None]) -> None:
        with partition_locked(lock_path(str(log_dir)), run_id, name):
            say("in")

    return action


def run(log_dir: Path, run_id: str = RUN) -> Callable[[Callable[[str], None]], None]:
    def action(say: Callable[[str], None]) -> None:
        with locked_files([lock_path(str(log_dir))], part_for=run_id):
            say("in")

    return action
