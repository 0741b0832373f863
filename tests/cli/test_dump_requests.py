"""Requests that dump cannot satisfy: no path, a missing file, a file without read permission."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support import trees


@pytest.fixture
def metro(capture_small: Path) -> Path:
    return capture_small / "data" / "metro-none-0" / "00000000000000000000.log"


@pytest.mark.behaviour("D09")
def test_dump_without_a_path_is_wrong_usage(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["dump"]) == 2
    output = capfdbinary.readouterr()
    assert output.out == b""
    assert b"needs at least one PATH" in output.err


@pytest.mark.parametrize("flags", [[], ["--format", "table"], ["--json", "--value-format", "string"]])
def test_trailing_comma_in_files_is_ignored(
    metro: Path, flags: list[str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The output of `ls *.log | tr '\\n' ,` ends with such a comma."""
    assert run(["dump", *flags, str(metro)]) == 0
    by_path = capfdbinary.readouterr().out
    assert run(["dump", *flags, "--files", f"{metro},"]) == 0
    assert capfdbinary.readouterr().out == by_path != b""


@pytest.mark.behaviour("D09")
def test_dump_names_an_unreadable_path_and_dumps_the_rest(
    tmp_path: Path, metro: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    missing = tmp_path / "00000000000000000000.log"
    assert run(["dump", str(missing)]) == 3
    assert str(missing).encode() in capfdbinary.readouterr().err
    # if there are other files, they are dumped
    with trees.unchanged(metro.parent):
        assert run(["dump", "--no-progress", "--jobs", "1", str(missing), str(metro)]) == 5
    output = capfdbinary.readouterr()
    assert str(missing).encode() in output.err
    assert b"baseOffset: 0 " in output.out


@pytest.mark.behaviour("D09")
def test_directory_named_like_a_log_cannot_be_dumped(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "00000000000000000000.log").mkdir()
    assert run(["dump", str(tmp_path / "00000000000000000000.log")]) == 3
    assert b"00000000000000000000.log" in capfdbinary.readouterr().err


@pytest.mark.behaviour("D10")
def test_internal_topic_without_a_decoder_is_dumped_like_any_other(
    capture_small: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = capture_small / "data" / "__consumer_offsets-0" / "00000000000000000000.log"
    assert run(["dump", "--no-progress", "--deep-iteration", str(log)]) == 0
    out = capfdbinary.readouterr().out
    assert out.count(b"| offset: ") > 10
    assert b"payload:" not in out
