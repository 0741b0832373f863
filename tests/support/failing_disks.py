"""Disks that stop or fail at the n-th operation, and what must hold for a directory afterwards."""

from __future__ import annotations

import itertools
import os
import signal
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kseg.change.apply.disk import Disk

# 1: a kill at every change
STRIDE = int(os.environ.get("KSEG_KILL_STRIDE", "7"))

CHANGES = (
    "create",
    "write",
    "copy_range",
    "truncate",
    "change_owner",
    "change_mode",
    "change_times",
    "link",
    "give_name",
    "rename",
    "unlink",
    "make_directory",
    "remove_directory",
)
LOOKS = ("status", "names", "open_to_read", "open_to_write", "read", "clone", "sync", "sync_directory")


def rounds(name: str) -> Iterator[int]:
    """Yield the numbers of the changes at which a test kills its command: every STRIDE-th, from a start that depends on the name."""
    return itertools.count(zlib.crc32(name.encode()) % STRIDE, STRIDE)


class QuickDisk(Disk):
    """A disk that does not sync: SIGKILL of a process loses nothing that it has written."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass

    def start_writeback(self, descriptor: int) -> None:
        pass


def die_at(number: int, *further: tuple[type, tuple[str, ...]]) -> None:
    """Kill this process at its n-th change of the file system from now on. further: methods of other classes that count as a change."""
    left = itertools.count(number, -1)

    def deadly(change: Any) -> Any:
        def method(self: Any, *arguments: Any) -> Any:
            if next(left) <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(self, *arguments)

        return method

    for owner, names in ((Disk, CHANGES), *further):
        for name in names:
            setattr(owner, name, deadly(getattr(owner, name)))
    for name in ("sync", "sync_directory", "start_writeback"):
        setattr(Disk, name, getattr(QuickDisk, name))


class CountingDisk(QuickDisk):
    """Calls `at_step` when the `left`-th operation is due. Copies and writes count as two operations, because they can stop half way."""

    watched: tuple[str, ...] = CHANGES

    def __init__(self, left: int) -> None:
        self.left = left

    def step(self, name: str, path: str) -> None:
        self.left -= 1
        if self.left < 0:
            self.left = 1 << 60
            self.at_step(name, path)

    def at_step(self, name: str, path: str) -> None:
        raise NotImplementedError


def _watch(name: str) -> Callable[..., Any]:
    def method(self: CountingDisk, *arguments: Any) -> Any:
        if name in self.watched:
            self.step(name, str(arguments[0]))
            if name == "write" and len(arguments[1]) > 1:
                half = len(arguments[1]) // 2
                QuickDisk.write(self, arguments[0], arguments[1][:half], arguments[2])
                self.step(name, str(arguments[0]))
            if name == "copy_range" and arguments[2] > 1:
                source, position, count, *rest = arguments
                QuickDisk.copy_range(self, source, position, count // 2, *rest)
                self.step(name, str(arguments[0]))
        return getattr(QuickDisk, name)(self, *arguments)

    return method


for _name in (*CHANGES, *LOOKS):
    setattr(CountingDisk, _name, _watch(_name))


class Stopped(BaseException):
    """Simulates a kill in tests where one process per kill would take too long."""


class StoppingDisk(CountingDisk):
    """From the n-th change on, no operation has any effect, not even in cleanup code, as after SIGKILL."""

    is_stopped = False

    def step(self, name: str, path: str) -> None:
        if self.is_stopped:
            raise Stopped
        super().step(name, path)

    def at_step(self, name: str, path: str) -> None:
        self.is_stopped = True
        raise Stopped


class DeadlyDisk(CountingDisk):
    """SIGKILL at the n-th change."""

    def at_step(self, name: str, path: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class FailingDisk(CountingDisk):
    """The n-th operation of any kind fails once with an OSError."""

    watched = (*CHANGES, *LOOKS)

    def __init__(self, left: int, number: int) -> None:
        super().__init__(left)
        self.number = number
        self.failed = ""

    def at_step(self, name: str, path: str) -> None:
        self.failed = f"{name} {path}"
        raise OSError(self.number, os.strerror(self.number), path)


def survives(action: Callable[[Disk], object], kill_at: int) -> bool:
    """Run in a child that is killed at its n-th change; True if the child ended by itself without an error."""
    child = os.fork()
    if not child:
        status = 1
        try:
            action(DeadlyDisk(kill_at))
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child raised"
    return not os.WIFSIGNALED(status)


def outlives(action: Callable[[Disk], object], stop_at: int) -> bool:
    """The same within this process, stopped at the n-th change; True if the call ended by itself."""
    try:
        action(StoppingDisk(stop_at))
    except Stopped:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Held:
    """The expected state of a file: content, modification time, permissions."""

    content: bytes
    mtime_ns: int
    mode: int


def held(directory: Path) -> dict[str, Held]:
    """The files of a directory except kseg's own."""
    return {
        path.name: Held(path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode & 0o7777)
        for path in sorted(directory.iterdir())
        if path.is_file() and not path.name.startswith("kseg-journal-")
    }


def assert_no_byte_is_lost(start: dict[str, Held], *places: Path) -> None:
    """Every original file still exists somewhere, either complete or as its beginning and the end that was cut off."""
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    contents = {path: path.read_bytes() for path in files}
    for name, file in start.items():
        if file.content in contents.values():
            continue
        cut = sorted(
            (int(path.name.removesuffix(".kept").rpartition("-")[2]), content)
            for path, content in contents.items()
            if f"{name}.from-" in path.name
        )
        assert cut, f"{name} is nowhere"
        position, end = cut[0][0], b"".join(content for _, content in cut)
        begins = [content for content in contents.values() if content[:position] == file.content[:position]]
        assert begins and file.content[position:] == end, f"{name} is not whole"
