"""`kseg dump` prints what the real DumpLogSegments 4.3.1 prints, for every captured file with every flag. For damaged files, the real
tool's output is kseg's, or a prefix of it if the tool fails or stops early."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.healthy import T0
from kseg.cli.main import run
from kseg.inspection.dump.options import DumpOptions
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.findings import Finding
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import FileTarget
from tests.kafka.disk_directories import disk_case
from tests.kafka.dump_cases import LOG_FLAGS, compare, damaged_copies, dumpable, flags_for, our_text
from tests.kafka.edge_directories import edge_case
from tests.kafka.odd_directories import foreign_case, odd_case
from tests.kafka.oracle import Oracle
from tests.kafka.random_directories import Case, random_case
from tests.support.one_target import dump
from tests.support.trees import unchanged

pytestmark = pytest.mark.kafka

DAMAGED_FILES = int(os.environ.get("KSEG_DAMAGED_FILES", "150"))
FLAGS = (
    ("--deep-iteration",),
    ("--print-data-log",),
    ("--skip-record-metadata",),
    ("--verify-index-only",),
    ("--index-sanity-check",),
    ("--max-bytes", "1500"),
    ("--max-message-size", "2000"),
)


@pytest.mark.behaviour("D01", "D02", "D03", "D04", "D05", "D06", "D07", "D08", "D11", "F42")
def test_dump_equals_the_real_tool_for_every_file_and_flag(oracle: Oracle, capture_small: Path) -> None:
    files = dumpable(capture_small / "data")
    with unchanged(capture_small / "data"):
        compared = sum(compare(oracle, path) for path in files)

    assert len(files) > 90 and compared > 300


@pytest.mark.parametrize("stem", ["-0000000000000000005", "-5", "+5", "5", "٥", "-", "x", "9" * 20])
def test_numbers_in_names_are_those_that_the_real_tool_reads(
    oracle: Oracle, capture_small: Path, tmp_path: Path, stem: str
) -> None:
    """A log cannot begin below 0, but the tool reads the number. kseg used to call such a name one that ends the tool."""
    for source in (capture_small / "data" / "metro-none-0").glob(f"{72:020d}.*"):
        shutil.copy(source, tmp_path / f"{stem}{source.suffix}")
    (tmp_path / f"{stem}.txnindex").touch()
    for path in sorted(tmp_path.iterdir()):
        answer = oracle.dump_in_place(["--files", str(path)])
        assert our_text(path, DumpOptions()).startswith(answer.stdout)
        is_unnumbered = any(
            isinstance(event, Finding) and event.id == "bad-file-name"
            for event in dump(FileTarget(str(path)), DumpOptions())
        )
        fails = answer.exception is not None and "NumberFormatException" in answer.exception
        assert is_unnumbered is fails, (path, answer.exception)
        assert fails or our_text(path, DumpOptions()) == answer.stdout


def test_dump_equals_the_real_tool_for_files_of_old_brokers(oracle: Oracle, legacy_small: Path) -> None:
    states = [path for path in (legacy_small / "data").glob("*/*") if path.parent.name != "0.7"]
    files = [path for state in states for path in dumpable(state)]
    chosen = random.Random(5).sample(files, 120)

    compared = sum(compare(oracle, path) for path in chosen)

    assert compared > 300


@pytest.mark.parametrize("seed", [1, 2])
def test_dump_of_damaged_files_continues_where_the_real_tool_ends(
    oracle: Oracle, capture_small: Path, legacy_small: Path, tmp_path: Path, seed: int
) -> None:
    files = [path for path in capture_small.glob("data/*/*.log") if path.stat().st_size > 100]
    if seed == 2:
        files = [path for path in legacy_small.glob("data/[01].*/*/*/*.log") if path.stat().st_size > 100]
    died = survived = 0
    for case, path in damaged_copies(sorted(files), tmp_path, seed, DAMAGED_FILES):
        for flags, options in LOG_FLAGS[:4]:
            answer = oracle.dump([*flags, "--files", path])
            ours = our_text(path, options)
            if answer.exception is None and ours == answer.stdout:
                survived += 1
            else:
                # the tool failed, or stopped silently before batches with which kseg continues
                died += 1
                quiet_end = b"invalid bytes at the end of" in answer.stdout
                assert answer.exception is not None or quiet_end, (seed, case, flags)
                assert ours.startswith(answer.stdout), (seed, case, flags, answer.exception)

    assert died > DAMAGED_FILES // 4 and survived > DAMAGED_FILES // 4


def test_dump_equals_the_real_tool_for_combined_flags(
    oracle: Oracle, capture_small: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Any combination of flags, including flags that have no effect on a file, and several files in one run."""
    chance = random.Random(11)
    files = dumpable(capture_small / "data")
    for _ in range(60):
        words = [word for flag in FLAGS if chance.random() < 0.33 for word in flag]
        some = map(str, chance.sample(files, chance.choice((1, 1, 2))))
        words += ["--files", ",".join(some) + chance.choice(("", ","))]
        answer = oracle.dump(words)
        assert answer.exception is None, words
        assert run(["dump", *words]) == 0
        assert capfdbinary.readouterr().out == answer.stdout, words


# the tool prints an empty line for each record, even after a broken message in an old compressed set, where kseg ends the set
BLANK = ("--deep-iteration", "--skip-record-metadata")


def assert_same_text(
    oracle: Oracle,
    seed: int,
    place: Path,
    make: Callable[[int, Path], Case] | None = None,
    *,
    is_exact: bool = False,
) -> None:
    """Compare some files of a random directory, each with some flags."""
    chance = random.Random(seed)
    case = (make or (odd_case if seed % 2 else random_case))(seed, place)
    for path in chance.sample(files := dumpable(case.directory), min(4, len(files))):
        # not a segment name; Kafka's tool prints the number
        if not path.name.startswith("-"):
            flags, options = chance.choice(flags_for(path))
            answer = oracle.dump([*flags, "--files", path])
            ours = our_text(path, options)
            if flags == BLANK and not is_exact:
                continue
            # the tool stops here silently; kseg continues
            is_cut = "--max-bytes" in flags or b"invalid bytes at the end of" in answer.stdout
            is_same = ours == answer.stdout if answer.exception is None and not is_cut else True
            assert is_same and ours.startswith(answer.stdout), (seed, case.done, path.name, flags)


@pytest.mark.parametrize("make", [None, foreign_case, edge_case, disk_case])
def test_dump_equals_the_real_tool_for_random_directories(
    oracle: Oracle, tmp_path: Path, make: Callable[[int, Path], Case] | None
) -> None:
    """Logs and side files in all states. KSEG_DUMPED_DIRECTORIES is the number of directories, KSEG_DUMPED_DIRECTORIES_SEED the first
    seed."""
    first = int(os.environ.get("KSEG_DUMPED_DIRECTORIES_SEED", "1"))
    for seed in range(first, first + int(os.environ.get("KSEG_DUMPED_DIRECTORIES", "60"))):
        (tmp_path / str(seed)).mkdir()
        assert_same_text(oracle, seed, tmp_path / str(seed), make)


@pytest.mark.parametrize("seed", [8350, 12186, 850977])
def test_dump_equals_the_real_tool_for_directories_that_once_differed(
    oracle: Oracle, tmp_path: Path, seed: int
) -> None:
    """Seeds that once failed: a message whose fields exceed it may be an empty line, and a message set may have messages with the append
    time -2."""
    assert_same_text(oracle, seed, tmp_path, is_exact=True)


@pytest.mark.parametrize("key_length", [-1, -718078464, 0, 3, 90])
@pytest.mark.parametrize("value_length", [-1, 4, 268435456])
def test_dump_prints_old_messages_with_oversized_fields_like_the_real_tool(
    oracle: Oracle, tmp_path: Path, key_length: int, value_length: int
) -> None:
    """Kafka prints one line for such a message, which is empty if none of its fields can be printed."""
    key = b"key"[: max(0, key_length)]
    fields = struct.pack(">i", key_length) + key + struct.pack(">i", value_length) + b"value"
    message = struct.pack(">IBB", 0, 0, 0) + fields
    after = encode_batch(NewBatch(records=(Record(6, T0, None, b"after"),), leader_epoch=0))
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(struct.pack(">qi", 5, len(message)) + message + after)
    for flags, options in LOG_FLAGS:
        answer = oracle.dump([*flags, "--files", log])
        ours = our_text(log, options)
        assert ours == answer.stdout if answer.exception is None else ours.startswith(answer.stdout), flags
