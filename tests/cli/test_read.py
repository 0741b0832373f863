"""`kseg read` end to end: the bytes of the segment, the frames of 0.7, exit statuses. The input never changes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of

Unchanged = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def metro(capture_small: Path) -> Path:
    return capture_small / "data" / "metro-none-0"


def test_read_raw_writes_complete_batches_of_the_segment(
    metro: Path, unchanged: Unchanged, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    data = (metro / "00000000000000000000.log").read_bytes()
    first = 12 + struct.unpack_from(">i", data, 8)[0]
    with unchanged(metro):
        assert run(["read", "--offset", "0", "--max-bytes", str(first + 5), "--raw", str(metro)]) == 0
    assert capfdbinary.readouterr().out == data[:first]

    assert run(["read", "--offset", "0", "--max-bytes", "10", "--raw", str(metro)]) == 0
    # the limit is doubled until the batch fits
    assert capfdbinary.readouterr().out == data[:first]

    assert run(["read", "--offset", "0", "--max-bytes", "100", "--no-grow", "--raw", str(metro)]) == 0
    assert capfdbinary.readouterr().out == data[:100]


def test_read_does_not_grow_beyond_the_maximum_message_size(metro: Path, capfd: Capfd) -> None:
    words = ["read", "--offset", "0", "--max-bytes", "100", "--quiet", "--raw", str(metro)]
    assert run([*words, "--max-message-bytes", "800"]) == 1  # the first batch has 874 bytes
    assert run([*words, "--max-message-bytes", "874"]) == 0
    capfd.readouterr()


def test_read_shows_records_as_text_and_json(metro: Path, capfd: Capfd) -> None:
    assert run(["read", "--offset", "3", "--max-bytes", "900", str(metro)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("metro-none-0 from offset 3: 874 bytes at byte 0 of ")
    assert len(lines) == 2 + 12 and "key null" in lines[2 + 7] and "value null" in lines[2 + 11]

    rows = rows_of(capfd, "read", "--offset", "3", "--max-bytes", "900", metro, status=0)
    assert [row["type"] for row in rows] == ["read", "batch"] + 12 * ["record"]


def test_read_out_of_range_exits_with_1_and_one_sentence(metro: Path, capfd: Capfd) -> None:
    assert run(["read", "--offset", "161", str(metro)]) == 1
    out, err = capfd.readouterr()
    assert out == "" and err == f"kseg: {metro}: offset 161 is out of range: the log has 0 to 160\n"
    assert run(["read", "--offset", "160", str(metro)]) == 0


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_read_writes_the_frames_of_0_7(
    legacy_small: Path, unchanged: Unchanged, jobs: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    state = legacy_small / "data" / "0.7" / "1-written"
    partitions = [state / "lamp.none-0", state / "lamp.gzip-0"]

    def read(*words: str, paths: list[Path]) -> bytes:
        with unchanged(*paths):
            assert run(["read", "--jobs", jobs, "--offset", "0", *words, *map(str, paths)]) == 0
        return capfdbinary.readouterr().out

    sets = [read("--raw", paths=[path]) for path in partitions]
    framed = [read("--framing", "message-set", paths=[path]) for path in partitions]
    multi = read("--framing", "multi", paths=partitions)

    assert framed == [struct.pack(">ih", len(data) + 2, 0) + data for data in sets]
    content = b"".join(framed)
    assert multi == struct.pack(">ih", len(content) + 2, 0) + content
