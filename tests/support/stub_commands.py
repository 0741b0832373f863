"""Trivial work in place of the library's, to test the part that commands have in common."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kseg.cli.render import Style
from kseg.cli.request import Request
from kseg.cli.run import over_targets
from kseg.jobs.events import Advance, Event, Row, Text
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import Expansion, Target


@dataclass(frozen=True, slots=True)
class Script:
    """The events for each file, by file name."""

    events: dict[str, tuple[Event, ...]]
    unreadable: frozenset[str] = frozenset()
    buggy: frozenset[str] = frozenset()
    killed: frozenset[str] = frozenset()


def play(target: Target, script: Script) -> Iterator[Event]:
    name = Path(target.path).name
    yield from script.events.get(name, ())
    if name in script.unreadable:
        raise UnreadableInput(f"cannot read {target.path}: toy")
    if name in script.buggy:
        raise LookupError("toy bug")
    if name in script.killed:
        os.kill(os.getpid(), signal.SIGKILL)
    yield Advance(target.path, 10)


def toy_files(folder: Path, count: int) -> list[str]:
    """Empty files as targets: a.log, b.log, …"""
    paths = [folder / f"{chr(97 + number)}.log" for number in range(count)]
    for path in paths:
        path.touch()
    return [str(path) for path in paths]


def perform(script: Script, paths: list[str], style: Style, jobs: int = 1) -> int:
    return over_targets(play, script, style, expand=Expansion.FILES, request=Request(tuple(paths)), jobs=jobs)


__all__ = ["Advance", "Finding", "Row", "Script", "Style", "Text", "perform", "toy_files"]
