"""No command forks while its process has another thread, from Python or from a library.

A fork copies only the calling thread: locks that another one holds at that moment stay locked in the child. Python 3.12 and later warn
about it.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads in /proc")

PROGRAM = """
import json, os, sys
from kseg.cli.main import run

def threads():
    return [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]

seen = []
os.register_at_fork(before=lambda: seen.append(threads()))
for words in json.loads(sys.argv[1]):
    seen.clear()
    status = run(words)
    with open(sys.argv[2], "a") as file:
        print(json.dumps([status, seen]), file=file)
"""


@pytest.mark.slow
def test_commands_fork_only_with_a_single_thread(capture_small: Path, tmp_path: Path) -> None:
    data, notes = tmp_path / "data", tmp_path / "forks"
    shutil.copytree(capture_small / "data", data)
    commands = [
        ["dump", "--print-data-log", data],
        ["verify", "--deep", data],
        ["doctor", data],
        # without --verbose, one process would be faster
        ["list", "--verbose", data],
        ["transactions", data],
        ["what-if", data],
        ["lookup", "--latest", data],
        ["diff", data, capture_small / "data"],
        ["compact", "--cleanup-policy", "compact", data],
        ["retain", "--cleanup-policy", "delete", "--retention-ms", "7d", data],
        ["recover", "--rebuild", "--apply", data],
        # last, because it imports Arrow
        ["export", "--to", "json", "--output", tmp_path / "json", data],
    ]
    if importlib.util.find_spec("pyarrow") is None:
        commands.pop()
    words = [[*map(str, each), "--jobs", "2"] for each in commands]
    own = {name: value for name, value in os.environ.items() if name != "JE_ARROW_MALLOC_CONF"}
    arguments = [sys.executable, "-c", PROGRAM, json.dumps(words), str(notes)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=600, check=False, env=own)
    assert done.returncode == 0, done.stderr[-2000:]
    results = [json.loads(line) for line in notes.read_text().splitlines()]
    assert len(results) == len(commands)
    for command, (status, forks) in zip(commands, results, strict=True):
        assert status in (0, 1) and len(forks) >= 2, command
        assert all(len(threads) == 1 for threads in forks), (command, forks)
