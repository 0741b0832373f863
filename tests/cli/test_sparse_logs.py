"""Logs with holes of many GiB, in the middle and at the end, which every reading command skips."""

from __future__ import annotations

import mmap
import os
import shlex
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.cli.main import run
from tests.support.encoders import encode_set

LAST = "00000000000000000297.log"
HOLE_BYTES = 32 << 30
INDEX, TIME_INDEX = f"{297:020}.index", f"{297:020}.timeindex"
PREALLOCATED = {INDEX: 10 << 20, TIME_INDEX: (10 << 20) - 4}
# The work itself takes about half a second; reading the hole would take tens of seconds.
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
def test_holes_in_a_log_take_no_reading_time(
    partition: Path, tmp_path: Path, words: str, status: int, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    places = {"LOG": str(partition / LAST), "DIR": str(partition), "OUT": str(tmp_path / "out")}
    command = [places.get(word, word) for word in shlex.split(words)]
    run_within_limits(command, status, tmp_path, capfdbinary)


@pytest.fixture(params=["middle", "end"])
def partition07(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two files of Kafka 0.7. The last one has a hole between its messages or after them."""
    made = tmp_path / "metro-0"
    made.mkdir()
    messages = encode_set(b"message %d" % number for number in range(1000))
    (made / f"{0:020d}.kafka").write_bytes(messages)
    with (made / f"{len(messages):020d}.kafka").open("wb") as file:
        file.write(messages)
        file.truncate(HOLE_BYTES)
        if request.param == "middle":
            file.seek(HOLE_BYTES)
            file.write(messages)
        if os.fstat(file.fileno()).st_blocks * 512 > HOLE_BYTES:
            pytest.skip("this file system knows no holes")
    return made


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("dump LOG", 1),
        ("verify DIR", 1),
        ("recover DIR", 1),
        ("recover --policy kafka DIR", 1),
        ("recover --output OUT DIR", None),
        ("lookup --offset BEHIND DIR", 1),
        ("read --offset HOLE DIR", 1),
        ("export --to csv --output OUT DIR", 1),
    ],
)
def test_holes_in_a_0_7_log_take_no_reading_time(
    partition07: Path,
    tmp_path: Path,
    words: str,
    status: int | None,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """status: None if it depends on the position: a hole at the end is cut off, one in the middle is too large to fill."""
    log = max(partition07.iterdir())
    start = int(log.stem)
    places = {"LOG": str(log), "DIR": str(partition07), "OUT": str(tmp_path / "out")}
    places |= {"HOLE": str(start + HOLE_BYTES // 2), "BEHIND": str(2 * start + 1)}
    if status is None:
        status = 0 if log.stat().st_size == HOLE_BYTES else 1
    run_within_limits([places.get(word, word) for word in words.split()], status, tmp_path, capfdbinary)


def run_within_limits(
    command: list[str], status: int, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    before = sum(os.times()[:4])
    assert run(command) == status, capfdbinary.readouterr()
    assert sum(os.times()[:4]) - before < MOST_CPU_SECONDS
    assert len(capfdbinary.readouterr().out) < 1 << 20
    copied = sum(file.stat().st_blocks * 512 for file in tmp_path.glob("out/**/*"))
    assert copied < 8 << 20


@pytest.mark.parametrize(
    "words",
    [
        ["lookup", "--key", "key-5", "."],
        ["read", "--offset", "0", "--max-bytes", "1KiB", "."],
        ["recover", "."],
        ["verify", INDEX],
        ["verify", TIME_INDEX],
    ],
    ids=" ".join,
)
def test_hole_of_a_preallocated_index_is_not_read(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are 10 MiB for each index of an active segment. On tmpfs, a hole that is read is filled."""
    partition = healthy.partition(tmp_path / "metro-0")
    monkeypatch.chdir(partition)
    for name, size_bytes in PREALLOCATED.items():
        os.truncate(name, size_bytes)
    _skip_unless_filled_by_reading(tmp_path / "probe")
    before = sum(os.stat(name).st_blocks for name in PREALLOCATED)
    run(words)
    after = sum(os.stat(name).st_blocks for name in PREALLOCATED)
    # the pages that a binary search touches
    assert 512 * (after - before) <= 256 << 10


def _skip_unless_filled_by_reading(file: Path) -> None:
    file.touch()
    os.truncate(file, 1 << 20)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as view:
        view[0]
    if not file.stat().st_blocks:
        pytest.skip("a hole that is read stays a hole on this file system")
