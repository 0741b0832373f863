"""Commands on random partition directories and data directories, valid, damaged and odd: none ends as a bug in kseg.

`KSEG_COMMANDED` is the number of directories (default 40), `KSEG_COMMANDED_SEED` the first seed; three commands run on each.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.segment.errors import KsegError
from tests.kafka.disk_directories import disk_case
from tests.kafka.edge_directories import edge_case
from tests.kafka.odd_directories import odd_case
from tests.kafka.odd_log_dirs import random_log_dirs
from tests.kafka.random_directories import random_case
from tests.support.command_lines import Capfd

COUNT = int(os.environ.get("KSEG_COMMANDED", "40"))
FIRST_SEED = int(os.environ.get("KSEG_COMMANDED_SEED", "1"))
BUG = 70
COMMANDS = (
    "verify",
    "verify --deep",
    "verify --quick",
    "list",
    "list --count",
    "dump --json",
    "dump --deep-iteration",
    "dump --print-data-log",
    "dump --format table",
    "lookup --offset 5",
    "lookup --timestamp 1700000000000",
    "lookup --key key-1",
    "recover --apply",
    "recover --policy kafka --apply",
    "recover --rebuild",
    "compact --apply",
    "compact --damaged skip --apply",
    "retain --retention-ms 1000",
    "retain --retention-bytes 1 --apply",
    "transactions",
    "doctor",
    "export --to json --output",
    "export --to csv --isolation read_committed --output",
)


def _odd(seed: int, place: Path) -> list[Path]:
    return [odd_case(seed, place).directory]


def _random(seed: int, place: Path) -> list[Path]:
    return [random_case(seed, place).directory]


def _edge(seed: int, place: Path) -> list[Path]:
    return [edge_case(seed, place).directory]


def _disk(seed: int, place: Path) -> list[Path]:
    return [disk_case(seed, place).directory]


def assert_no_bug(command: str, targets: list[Path], place: Path, capfd: Capfd) -> None:
    words = [*command.split(), *([str(place / "out")] if command.startswith("export") else [])]
    status = run([*words, *map(str, targets)])
    reported = capfd.readouterr().err
    assert status != BUG and "bug in kseg" not in reported, (command, reported)


@pytest.mark.parametrize("make", [_odd, _random, _edge, _disk, random_log_dirs])
def test_no_command_on_a_random_directory_is_a_bug(
    make: Callable[[int, Path], list[Path]], tmp_path: Path, capfd: Capfd
) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + COUNT // 5 + 1):
        place = tmp_path / str(seed)
        place.mkdir()
        try:
            targets = make(seed, place)
        except (KsegError, OSError):
            # such a directory cannot be created
            continue
        for command in random.Random(seed).sample(COMMANDS, 3):
            assert_no_bug(command, targets, place, capfd)


@pytest.mark.parametrize(("command", "make", "seed"), [("dump --json", _random, 1827), ("list", _odd, 2746)])
def test_commands_that_once_ended_as_a_bug_do_not(
    command: str, make: Callable[[int, Path], list[Path]], seed: int, tmp_path: Path, capfd: Capfd
) -> None:
    """Seeds with an entry with a negative position in a damaged index, and a missing index of a segment with a short name."""
    assert_no_bug(command, make(seed, tmp_path), tmp_path, capfd)
