"""Measure how long a program runs and how much private memory it uses."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

MIB = 1 << 20
SAMPLE_SECONDS = 0.002


class Failed(Exception):
    """A program in the race failed; the message has its name and the end of its output."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One turn of a contestant. seconds: the time that counts. figures: other figures that it printed, by name."""

    seconds: float
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished program. output: its stdout if it was kept."""

    seconds: float
    output: bytes
    peak_private_bytes: int


def run(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    into: Path | None = None,
    keep: bool = False,
    watch_memory: bool = False,
    statuses: Sequence[int] = (0,),
) -> Run:
    """Run a command with its stdout discarded, written to a new file, or kept.

    statuses: exit statuses that do not count as failure. watch_memory: sample its anonymous memory (without the pages that it shares with
    the page cache). Raises Failed.
    """
    if into is not None:
        into.unlink(missing_ok=True)
    with Path(os.devnull if into is None else into).open("wb") as sink:
        stdout: int | IO[bytes] = subprocess.PIPE if keep else sink
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=environment)
        memory = _Memory(process.pid) if watch_memory else None
        output, printed = process.communicate()
        seconds = time.perf_counter() - start
    peak = memory.stop() if memory else 0
    if process.returncode not in statuses:
        last = printed.decode(errors="replace").strip().splitlines()[-1:]
        raise Failed(f"{' '.join(map(str, command))} ended with {process.returncode}: {''.join(last)}")
    return Run(seconds, output or b"", peak)


class _Memory:
    """Watches a process for the largest amount of memory that belongs to it alone (`RssAnon`)."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._peak_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self._peak_bytes

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            try:
                status = self._status.read_text()
            except OSError:
                return
            self._peak_bytes = max(self._peak_bytes, anonymous_bytes(status))


def anonymous_bytes(status: str) -> int:
    """`RssAnon` in the text of /proc/PID/status, in bytes; 0 if it is missing."""
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine on which the figures were measured."""

    cores: int
    memory_bytes: int
    model: str
    system: str

    def __str__(self) -> str:
        return f"{self.cores} cores ({self.model}), {self.memory_bytes / 2**30:.0f} GiB, {self.system}"


def machine() -> Machine:
    """This machine."""
    model = "unknown processor"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.partition(":")[2].strip()
            for line in cpuinfo.read_text().splitlines()
            if "model name" in line
        ]
        model = names[0] if names else model
    name = os.uname()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    return Machine(cores, memory, model, f"{name.sysname} {name.release.split('-')[0]} {name.machine}")


def warm(*paths: Path) -> None:
    """Bring files into the page cache."""
    buffer = bytearray(MIB)
    for path in paths:
        with path.open("rb", buffering=0) as stream:
            while stream.readinto(buffer):
                pass
