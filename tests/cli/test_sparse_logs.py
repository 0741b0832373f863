"""Logs with holes of many GiB, in the middle and at the end: every command that reads skips them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures import healthy

LAST = "00000000000000000297.log"
HOLE_BYTES = 32 << 30
# The work itself takes about half a second, reading the hole tens of seconds.
MOST_CPU_SECONDS = 6


@pytest.fixture(params=["middle", "end"])
def partition(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = healthy.partition(tmp_path / "metro-0")
    log = made / LAST
    data = log.read_bytes()
    before = len(data) if request.param == "end" else len(data) // 2
    with log.open("r+b") as file:
        file.truncate(before)
        file.truncate(before + HOLE_BYTES)
        file.seek(before + HOLE_BYTES)
        file.write(data[before:])
    if log.stat().st_blocks * 512 > HOLE_BYTES:
        pytest.skip("this file system knows no holes")
    return made


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("dump LOG", 1),
        ("dump --json --deep-iteration LOG", 1),
        ("list DIR", 1),
        ("lookup --offset 300 DIR", 0),
        ("lookup --timestamp 9999999999999 DIR", 1),
        ("read --offset 297 DIR", 1),
        ("read --raw --offset 297 DIR", 1),
        ("export --to csv --output OUT DIR", 1),
        ("compact --cleanup-policy compact DIR", 1),
        ("compact --cleanup-policy compact --damaged skip --output OUT DIR", 0),
    ],
)
def test_a_hole_costs_no_time(partition: Path, tmp_path: Path, words: str, status: int) -> None:
    places = {"LOG": str(partition / LAST), "DIR": str(partition), "OUT": str(tmp_path / "out")}
    command = [places.get(word, word) for word in shlex.split(words)]
    before = os.times()
    done = subprocess.run([sys.executable, "-P", "-m", "kseg", *command], capture_output=True, check=False)
    after = os.times()
    assert done.returncode == status, (done.returncode, done.stdout[-500:], done.stderr)
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert used < MOST_CPU_SECONDS
    assert len(done.stdout) < 1 << 20
    copied = sum(file.stat().st_blocks * 512 for file in tmp_path.glob("out/**/*"))
    assert copied < 8 << 20
