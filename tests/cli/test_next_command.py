"""The next command to type: the catalogue's hint, with real paths, and only commands that exist."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kseg.cli.next_command import next_command
from kseg.cli.option_schema import parameters, quick_read
from kseg.cli.registry import COMMANDS, function_of
from kseg.segment.findings import CATALOGUE, Finding


@pytest.mark.parametrize("kind", CATALOGUE)
@pytest.mark.parametrize("running", COMMANDS)
def test_the_advice_for_every_finding_is_a_command_line_of_this_version(kind: str, running: str) -> None:
    advice = next_command(Finding(kind, "data dir/orders-0/00000000000000000000.log", ""), running)
    if advice:
        program, name, *words = shlex.split(advice)
        assert program == "kseg" and name in COMMANDS
        assert quick_read(parameters(function_of(name)), words) is not None


def test_places_come_from_the_path_of_the_finding(tmp_path: Path) -> None:
    partition = tmp_path / "log dir" / "orders-0"
    partition.mkdir(parents=True)
    segment = partition / "00000000000000000000.log"
    quoted = shlex.quote(str(segment))

    for running in ("verify", "dump"):
        assert next_command(Finding("bad-crc", str(segment), ""), running) == (
            f"kseg recover {shlex.quote(str(partition))}"
        )
    assert next_command(Finding("undecodable-batch", str(segment), ""), "verify") == f"kseg dump {quoted}"
    assert next_command(Finding("unknown-file", str(segment), ""), "verify") == (
        f"kseg list {shlex.quote(str(partition))}"
    )
    for path in (partition, partition.parent / "meta.properties", partition.parent):
        assert next_command(Finding("meta-properties-missing", str(path), ""), "verify") == (
            f"kseg list {shlex.quote(str(partition.parent))}"
        )


def test_a_file_that_lies_in_no_partition_is_named_itself(tmp_path: Path) -> None:
    lone = tmp_path / "x.log"
    assert next_command(Finding("bad-crc", str(lone), ""), "dump") == f"kseg verify --deep {lone}"
