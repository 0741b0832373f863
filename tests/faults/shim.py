"""kseg in processes with a failing file system: the library from shim.c, and a server that runs command lines with it.

Starting Python for every fault would take most of the time. So one process is started with the library, imports all of kseg with pyspark
and Arrow, and forks a child for each command line. The fault is armed in the child only.
"""

from __future__ import annotations

import gc
import importlib
import json
import mmap
import os
import pkgutil
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path

from tests.support.paths import ROOT

SOURCE = Path(__file__).with_name("shim.c")
# struct control in shim.c
_HEAD = struct.Struct("<iiiiqqii512s1024s512s")
_TOP = ROOT


class Mode(IntEnum):
    """What happens at the call."""

    OFF, COUNT, KILL, FAIL, SHORT = range(5)


class Kind(IntFlag):
    """Which calls are counted. GROW: calls that may need space. UPDATE: opening an existing file for writing."""

    LOOK = 1
    CHANGE = 2
    GROW = 4
    SYNC = 8
    BYTES = 16
    UPDATE = 32
    ALL = LOOK | CHANGE | GROW | SYNC | UPDATE
    WRITING = CHANGE | SYNC | UPDATE


@dataclass(frozen=True, slots=True)
class Fault:
    """mode happens at call number `at` of those of `kinds`. error: an errno. lasts: all later calls fail too, as on a disk that is full and
    stays full."""

    mode: Mode = Mode.COUNT
    kinds: Kind = Kind.ALL
    at: int = 0
    error: int = 0
    lasts: bool = False

    def __str__(self) -> str:
        what = os.strerror(self.error) if self.mode is Mode.FAIL else self.mode.name.lower()
        return f"{what} {'from' if self.lasts else 'at'} call {self.at} of {self.kinds!r}"


NO_FAULT = Fault(Mode.OFF)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a command line. status: its exit status, -9 if it was killed. output: stdout and stderr. by_kinds: the number of calls of
    each combination of kinds. struck: the first call that the fault hit, or empty."""

    status: int
    output: str
    by_kinds: tuple[int, ...]
    struck: str

    def calls(self, kinds: Kind) -> int:
        """The number of calls of any of these kinds."""
        return sum(count for number, count in enumerate(self.by_kinds) if number & kinds)


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path) -> Path:
    """Build the library."""
    library = folder / "shim.so"
    words = [str(compiler()), "-shared", "-fPIC", "-O1", "-w", str(SOURCE), "-o", str(library), "-ldl"]
    subprocess.run(words, check=True)
    return library


class Machine:
    """The server as a test uses it."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._folder = folder
        self._control = folder / "control"
        self._control.write_bytes(bytes(_HEAD.size))
        self._map = mmap.mmap(os.open(self._control, os.O_RDWR), _HEAD.size)
        self.environment = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "KSEG_FAULTS": str(self._control),
            # a process that forks has no other thread; this one would be started by the import of Arrow
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
            "PYTHONPATH": os.pathsep.join([str(_TOP), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        self._server: subprocess.Popen[str] | None = None

    def arm(self, fault: Fault, root: Path) -> None:
        """Arm the fault, for calls below `root`, in every process that has the library."""
        packed = _HEAD.pack(
            fault.mode, fault.error, fault.kinds, fault.lasts, fault.at, 0, 0, 0, os.fsencode(root), b"", b""
        )
        self._map[:] = packed

    def disarm(self) -> tuple[tuple[int, ...], str]:
        """Disarm the fault; returns (the number of calls of each combination of kinds, the first call that was hit)."""
        values = _HEAD.unpack(self._map[:])
        self.arm(NO_FAULT, Path("/"))
        return struct.unpack("<64q", values[10]), values[9].rstrip(b"\0").decode(errors="replace") if values[
            6
        ] else ""

    def run(self, words: Sequence[str], root: Path, fault: Fault = NO_FAULT) -> Outcome:
        """Run a command line of kseg in a separate process. root: the fault affects calls below it."""
        self.arm(Fault(Mode.OFF, fault.kinds, fault.at, fault.error, fault.lasts), root)  # the child arms it
        status = self._answer({"words": list(words), "mode": int(fault.mode)})
        by_kinds, struck = self.disarm()
        output = (self._folder / "said").read_text(errors="replace")
        return Outcome(status, output, by_kinds, struck)

    def warm_up(self, words: Sequence[str]) -> None:
        """Run a command line in the server itself, without a fault. What a command compiles, imports and caches at its first run takes a
        third of the time of a run, and later children have it already. Not for commands that start threads or processes."""
        assert self._answer({"words": list(words)}) in (0, 1), (self._folder / "said").read_text()

    def _answer(self, request: dict[str, object]) -> int:
        """The status with which the server answers a request."""
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.faults.shim", str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self.environment,
                text=True,
                cwd=_TOP,
            )
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def close(self) -> None:
        if self._server is not None:
            assert self._server.stdin is not None
            self._server.stdin.close()
            self._server.wait(600)
        self._map.close()


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    one = Machine(build(folder), folder)
    try:
        yield one
    finally:
        one.close()


# --- the server


def serve(folder: Path) -> None:
    """Run a command line for each line on stdin, and write its status."""
    import kseg

    for module in pkgutil.walk_packages(kseg.__path__, "kseg."):
        # __main__ runs a command; some of the others need pyspark or Arrow, and so do their commands
        if not module.name.endswith(".__main__"):
            with suppress(ImportError):
                importlib.import_module(module.name)
    with suppress(ImportError):
        importlib.import_module("pyarrow.parquet")
    assert len(os.listdir("/proc/self/task")) == 1
    # otherwise each child would traverse and copy these objects
    gc.freeze()
    control = os.open(os.environ["KSEG_FAULTS"], os.O_RDWR)
    for line in sys.stdin:
        request = json.loads(line)
        if "mode" in request:
            status = _in_a_child(request["words"], request["mode"], folder, control)
        else:
            status = _here(request["words"], folder)
        print(status, flush=True)


def _here(words: Sequence[str], folder: Path) -> int:
    from kseg.cli.main import run

    before = [os.dup(number) for number in (1, 2)]
    _redirect(folder)
    try:
        status = run(words)
    finally:
        sys.stdout.flush()
        for number, descriptor in enumerate(before, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
    assert len(os.listdir("/proc/self/task")) == 1
    gc.collect()
    gc.freeze()
    return status


def _redirect(folder: Path) -> None:
    """Let what this process writes go to the file of the outputs."""
    output = os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def _in_a_child(words: Sequence[str], mode: int, folder: Path, control: int) -> int:
    child = os.fork()
    if not child:
        _become(words, mode, folder, control)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _become(words: Sequence[str], mode: int, folder: Path, control: int) -> None:
    from kseg.cli.main import run

    if "--spark" in words:
        from kseg.spark import cluster_fanout
        from tests.support.fake_spark import Pretended

        cluster_fanout.ready = lambda *_: Pretended()  # type: ignore[assignment]  # tasks run in this process
    signal.alarm(300)
    status = 70
    try:
        _redirect(folder)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.pwrite(control, struct.pack("<i", mode), 0)
        status = run(words)
        os.pwrite(control, struct.pack("<i", Mode.OFF), 0)
        sys.stdout.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
