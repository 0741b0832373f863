"""Reading commands on a file system that disappears: a network mount with stale handles, or a FUSE daemon that died.

One file system call, or all from one on, return ESTALE or ENOTCONN. The command ends according to its contract and reports either the error
or the same result as without it, because a directory that cannot be listed is not an empty one. All calls of the process count (shim.c).
Without a C compiler the tests are skipped.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.faults import shim
from tests.faults.shim import Fault, Kind, Machine, Mode
from tests.support.doctor_helpers import NOW

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shim.compiler() is None, reason="faults of a file system need a C compiler"),
]

STRIDE = int(os.environ.get("KSEG_FAULT_STRIDE", "0"))
TRIES = 7
OTHER_CAUSES = (errno.EISDIR,)  # a directory that cannot be listed is treated as a file
COMMANDS = {
    "verify": ("verify", "--json", "--jobs", "1"),
    "list": ("list", "--json", "--jobs", "1"),
    "dump": ("dump", "--json", "--jobs", "1"),
    "lookup": ("lookup", "--json", "--latest", "--jobs", "1"),
    "recover": ("recover", "--json", "--jobs", "1"),
    "retain": ("retain", "--json", "--retention-ms", "1d", "--now", "1700000000000", "--jobs", "1"),
    "transactions": ("transactions", "--json", *NOW, "--jobs", "1"),
    "metadata": ("metadata", "--json"),
    "groups": ("groups", "--json", "--jobs", "1"),
    "list --groups": ("list", "--json", "--groups", *NOW, "--jobs", "1"),
    "what-if": ("what-if", "--json", *NOW, "--jobs", "1"),
}
MOVING = ("mv", "rm", "rmdir", "sed")
_BYTES = re.compile(r'"bytes":[0-9]+')
_TIMES = re.compile(r'"(estimated_s|estimated_at_bytes_per_s|bytes_free|cpu_s_per_gib)":[^,}]*')


@pytest.fixture(scope="module")
def data(capture_small: Path, place: Path, machine: Machine) -> Path:
    """A data directory. The server of the tests has run each command once, on a copy: what it caches about a path must not save a call."""
    data = place / "mount" / "data"
    data.mkdir(parents=True)
    for name in (
        "fares-0",
        "stations-0",
        "__cluster_metadata-0",
        "__transaction_state-0",
        "__consumer_offsets-0",
    ):
        shutil.copytree(capture_small / "data" / name, data / name)
    for path in (capture_small / "data").iterdir():
        if path.is_file():
            shutil.copy2(path, data)
    copy = shutil.copytree(data, place / "warm" / "data")
    for words in COMMANDS.values():
        machine.warm_up([*words, str(copy)])
    return data


def reported(output: str) -> list[str]:
    """The rows, without the sum of a data directory, which leaves out what cannot be examined. The row of the partition reports it."""
    lines = [_TIMES.sub("", line) for line in output.splitlines() if line.startswith("{")]
    return [_BYTES.sub("", line) if '"type":"log-dir"' in line else line for line in lines]


def failures_in(output: str) -> list[str]:
    """What is said of each target that failed: the message of its error, and those of the findings about it."""
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    found = [row for row in rows if row["type"] == "finding"]
    return [
        "\n".join([row["message"], *(each["message"] for each in found if each["path"] == row["path"])])
        for row in rows
        if row["type"] == "error"
    ]


@pytest.mark.parametrize("error", [errno.ESTALE, errno.ENOTCONN], ids=["stale", "not connected"])
@pytest.mark.parametrize("lasts", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("command", COMMANDS)
def test_reading_commands_report_errors_of_a_lost_mount(
    machine: Machine, data: Path, command: str, lasts: bool, error: int
) -> None:
    words = [*COMMANDS[command], str(data)]
    root = data.parent
    sound = machine.run(words, root, Fault())
    assert sound.status in (0, 1), sound.output
    calls = sound.calls(Kind.LOOK)
    stride = STRIDE or max(1, calls // TRIES)
    wrong = []
    for at in range(error % stride, calls, stride):
        struck = machine.run(words, root, Fault(Mode.FAIL, Kind.LOOK, at, error, lasts))
        reasons = [os.strerror(cause) for cause in (error, *OTHER_CAUSES)]
        is_reported = any(reason in struck.output for reason in reasons)
        unexplained = [
            each for each in failures_in(struck.output) if not any(map(each.__contains__, reasons))
        ]
        if struck.status not in (0, 1, 3, 4, 5) or "Traceback" in struck.output:
            wrong.append(f"{at} {struck.struck}: ends with {struck.status}: {struck.output[-600:]}")
        elif unexplained or (struck.status > 1 and not is_reported):
            wrong.append(f"{at} {struck.struck}: ends with {struck.status} without the reason: {unexplained}")
        elif not is_reported and (struck.status, reported(struck.output)) != (
            sound.status,
            reported(sound.output),
        ):
            wrong.append(
                f"{at} {struck.struck}: says something else and no error: {_first(struck.output, sound.output)}"
            )
    assert not wrong, "\n".join(wrong)


def test_doctor_moves_nothing_out_because_of_a_lost_mount(
    machine: Machine, data: Path, tmp_path: Path
) -> None:
    """One of two data directories disappears while both are examined. Told: to move the other one out, with all its partitions, because it
    is no file."""
    second = tmp_path / "mount" / "second"
    shutil.copytree(data / "stations-0", second / "stations-0")
    for path in data.iterdir():
        # a broker fails on a bootstrap.checkpoint that cannot be read, and does not need it
        if path.is_file() and path.name != "bootstrap.checkpoint":
            shutil.copy2(path, second)
    meta = second / "meta.properties"
    meta.write_text(re.sub("directory.id=.*", "directory.id=AsCu_Qd6HlJL_AROE7wUxg", meta.read_text()))
    first = shutil.copytree(data, tmp_path / "first", ignore=shutil.ignore_patterns("stations-0"))
    words = ["doctor", "--json", "--jobs", "1", *NOW, str(first), str(second)]
    sound = machine.run(words, second, Fault())
    assert sound.status in (0, 1), sound.output
    wrong, calls = [], sound.calls(Kind.LOOK)
    for at in range(3, calls, STRIDE or calls // 40):
        struck = machine.run(words, second, Fault(Mode.FAIL, Kind.LOOK, at, errno.ESTALE))
        rows = [json.loads(line) for line in struck.output.splitlines() if line.startswith("{")]
        moving = [
            row["command"] for row in rows if row["type"] == "step" and row["command"].split()[0] in MOVING
        ]
        if struck.status not in (0, 1, 3, 4, 5) or moving:
            wrong.append(f"{at} {struck.struck}: ends with {struck.status}: {moving}")
    assert not wrong, "\n".join(wrong)


def _first(output: str, sound: str) -> str:
    """The first line that differs."""
    pairs = itertools.zip_longest(reported(output), reported(sound))
    return next((f"{one} instead of {other}" for one, other in pairs if one != other), "the status")
