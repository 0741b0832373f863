"""Kill runs of a command that changes a data directory at any of its changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from kseg.cli.main import run
from tests.support.failing_disks import Held, assert_no_byte_is_lost, die_at, held, rounds

Command = Callable[[Path], int]


def state(log_dir: Path) -> dict[str, dict[str, Held]]:
    directories = [log_dir, *(child for child in sorted(log_dir.iterdir()) if child.is_dir())]
    return {directory.name: held(directory) for directory in directories}


def contents(found: dict[str, dict[str, Held]]) -> dict[str, dict[str, bytes]]:
    return {name: {file: each.content for file, each in files.items()} for name, files in found.items()}


def killed_at(number: int, command: Command, log_dir: Path) -> bool:
    """Run the command in a child that is killed at its n-th change; returns whether it was killed."""
    child = os.fork()
    if not child:
        die_at(number)
        try:
            command(log_dir)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def undo_all(log_dir: Path) -> None:
    journals = [*log_dir.glob("kseg-journal-*.jsonl"), *log_dir.glob("*/.kseg/*/journal.jsonl")]

    for journal in sorted(journals, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        # undoing the journal of a data directory undoes the other journals of its run
        if journal.exists():
            # newest first, as a user would
            assert run(["undo", "--quiet", str(journal)]) == 0


def goes_on_and_goes_back(command: Command, original: Path, data: Path) -> int:
    """Kill the command at each of `rounds`. Repeating it must produce the planned result, undoing it the original, and no byte may be lost
    in between. data: where a copy of `original` is made. Returns the number of changes."""
    found = state(original)
    shutil.copytree(original, data)
    assert command(data) == 0
    planned = contents(state(data))
    assert planned != contents(found)
    assert run(["verify", "--quiet", str(data)]) == 0

    for round_number in rounds(getattr(command, "__name__", "")):
        shutil.rmtree(data)
        shutil.copytree(original, data)
        was_killed = killed_at(round_number, command, data)
        for name, files in found.items():
            assert_no_byte_is_lost(files, data / name if name != data.name else data)
        assert command(data) == 0
        assert contents(state(data)) == planned
        undo_all(data)
        assert state(data) == found
        if not was_killed:
            break
    return round_number
