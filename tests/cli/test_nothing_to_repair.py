"""`recover` never says 'nothing to repair' with exit status 0 if `verify` reports an error: it has a plan, a refusal or a message."""

from __future__ import annotations

import os
import random
import shutil
import struct
from pathlib import Path

import pytest

from fixtures import healthy
from fixtures.diseases import batch_spans
from kseg.cli.main import run
from kseg.segment.crc import crc32c
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.kafka.start_cases import CASES as CASES_OF_STARTS
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.salvage_cases import log

OWN_FILES = (
    "lost_and_found",
    "marker_is_a_directory_with_a_file",
    "moving_within",
    "number_with_a_zero",
    "bootstrap.checkpoint-foreign",
)
CASES = int(os.environ.get("KSEG_NOTHING_TO_REPAIR", "40"))
SEED = int(os.environ.get("KSEG_NOTHING_TO_REPAIR_SEED", "20261122"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return healthy.log_dir(tmp_path_factory.mktemp("healthy") / "data")


@pytest.fixture
def partition(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "data")) / "metro-0"


def damage_anything(rng: random.Random, partition: Path) -> None:
    file = rng.choice(sorted(path for path in partition.iterdir() if path.is_file()))
    data = bytearray(file.read_bytes())
    match rng.randrange(7):
        case 0 | 1 if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 2:
            del data[rng.randrange(len(data) + 1) :]
        case 3:
            data += bytes(rng.randrange(1, 100))
        case 4:
            file.unlink()
            file.mkdir()
            return
        case 5:
            other = rng.choice(sorted(path for path in partition.glob(f"*{file.suffix}") if path.is_file()))
            data = bytearray(other.read_bytes())
        case _:
            (partition / f"{rng.randrange(400):020}.kafka").write_bytes(rng.randbytes(100))
    file.write_bytes(bytes(data))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["salvage", "kafka"])
@pytest.mark.parametrize("case", range(CASES))
def test_recover_never_finds_nothing_to_repair_if_verify_has_errors(
    partition: Path, case: int, policy: str
) -> None:
    rng = random.Random(f"{SEED}-{case}")
    for _ in range(rng.randint(1, 2)):
        damage_anything(rng, partition)
    verified = run(["verify", str(partition)])
    planned = run(["recover", "--policy", policy, str(partition)])
    # nothing is planned if a directory is in place of a log
    unreadable = {3} if any(path.is_dir() for path in partition.glob("*.log")) else set[int]()
    assert {verified, planned} <= {0, 1, 4, 5} | unreadable
    if verified:
        assert planned


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["salvage", "kafka"])
@pytest.mark.parametrize("case", range(CASES // 4))
def test_repair_exits_like_a_repeat_of_the_same_command(partition: Path, case: int, policy: str) -> None:
    """The run that leaves damage reports it, and the next one does not. With policy kafka, the clean-shutdown marker decides what a broker
    does, and a broker removes it when it starts loading. So after a run that removes it, the log is loaded as after a crash."""
    rng = random.Random(f"{SEED}-again-{case}")
    log_dir = partition.parent
    for other in log_dir.iterdir():
        if other.is_dir() and other.name not in ("metro-0", "metro-1"):
            shutil.rmtree(other)
    if rng.randrange(2):
        (log_dir / ".kafka_cleanshutdown").write_bytes(b"")
    for _ in range(rng.randint(1, 4)):
        damage_anything(rng, log_dir / rng.choice(("metro-0", "metro-1")))
    words = ["recover", "--quiet", "--policy", policy, "--now", "2030-01-01", str(log_dir)]
    marker = log_dir / ".kafka_cleanshutdown"
    was_clean = marker.exists()
    first = run([*words, "--apply"])
    if policy == "kafka" and was_clean and not marker.exists():
        first = run([*words, "--apply"])
    assert first == run([*words, "--apply"])
    assert first in (4, 5) or first == run(words)


def test_0_7_files_beside_segments_are_reported(partition: Path, capfd: Capfd) -> None:
    """A broker ignores these files. recover says so, and reports what is wrong with them."""
    (partition / f"{0:020}.kafka").write_bytes(b"\xff" * 100)
    assert run(["verify", str(partition)]) == 1
    capfd.readouterr()
    assert run(["recover", str(partition)]) == 1
    assert "still not sound: 00000000000000000000.kafka" in capfd.readouterr().out


@pytest.mark.evidence("directory-in-place")
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_directory_in_place_of_a_side_file_is_refused(partition: Path, capfd: Capfd, suffix: str) -> None:
    file = log(partition).with_suffix(suffix)
    file.unlink()
    file.mkdir()
    assert run(["recover", "--apply", str(partition)]) == 4
    assert f"{file} is not a regular file" in capfd.readouterr().err


@pytest.mark.evidence("directory-in-place")
def test_directory_named_like_an_unneeded_side_file_is_reported(partition: Path, capfd: Capfd) -> None:
    (partition / f"{400:020}.txnindex").mkdir()
    assert run(["recover", str(partition)]) == 1
    assert "is not a regular file, but a broker needs one with that name" in capfd.readouterr().out


@pytest.mark.evidence("directory-in-place")
def test_directory_named_like_a_log_of_kafka_07_beside_later_logs_is_reported(
    partition: Path, capfd: Capfd
) -> None:
    other = partition / f"{177:020}.kafka"
    other.mkdir()
    with PartitionLog(PartitionTarget(str(partition))) as sound:
        log_end_offset = sound.end_offset
    log(partition).with_suffix(".index").unlink()
    assert run(["recover", "--apply", str(partition)]) == 1
    doubt = f"still not sound: {other.name} is not a regular file, but has the name of a log of Kafka 0.7"
    assert doubt in capfd.readouterr().out
    assert log(partition).with_suffix(".index").exists() and other.is_dir()
    for words in (
        ["compact", "--cleanup-policy", "compact"],
        ["retain", "--cleanup-policy", "delete", "--unmark"],
    ):
        rows = rows_of(capfd, *words, partition)
        (result,) = [
            row for row in rows if row["type"] == "result" and row.get("partition") == partition.name
        ]
        assert result["log_end_offset"] == log_end_offset
        assert not [row for row in rows if row.get("id") == "not-compacted"]


@pytest.mark.evidence("directory-in-place")
def test_nothing_is_repaired_beside_a_log_that_is_not_a_file(partition: Path, capfd: Capfd) -> None:
    """The plan used to remove the indexes of the missing log."""
    file = log(partition)
    content = file.read_bytes()
    for make in (Path.mkdir, os.mkfifo):
        file.unlink()
        make(file)
        for words in ([], ["--apply"]):
            assert run(["recover", *words, str(partition)]) == 3
            assert f"cannot read {file}: not a regular file" in capfd.readouterr().err
        (file.rmdir if file.is_dir() else file.unlink)()
        file.write_bytes(content)


# --- which batch is valid


def with_header(file: Path, number: int, position: int, value: int) -> None:
    """Replace a 32-bit number in the header of a batch, with a valid checksum."""
    data = bytearray(file.read_bytes())
    at, size = batch_spans(file)[number]
    struct.pack_into(">i", data, at + position, value)
    struct.pack_into(">I", data, at + 17, crc32c(bytes(data[at + 21 : at + size])))
    file.write_bytes(bytes(data))


@pytest.mark.parametrize(("position", "value"), [(57, 1000), (57, -5)])
def test_batch_with_an_impossible_record_count_is_kept_and_named(
    partition: Path, capfd: Capfd, position: int, value: int
) -> None:
    """The offsets may be right. A broker loads the batch, consumers stop at it, and it cannot be repaired."""
    with_header(log(partition), 3, position, value)
    assert run(["recover", str(partition)]) == 1
    assert "still not sound" in capfd.readouterr().out


def test_batch_with_last_offset_below_its_first_is_quarantined(partition: Path, capfd: Capfd) -> None:
    """No log can contain such a batch, so it is moved to the quarantine although its checksum is valid."""
    with_header(log(partition), 3, 23, -1)
    assert run(["verify", str(partition)]) == 1
    assert run(["recover", str(partition)]) == 1
    assert "policy salvage removes" in capfd.readouterr().out


@pytest.mark.parametrize("case", OWN_FILES)
def test_error_that_no_repair_changes_is_not_reported_as_sound(case: str, data: Path) -> None:
    """The data directory itself has the error, and a broker does not start with it."""
    CASES_OF_STARTS[case](data)
    for words in (["verify"], ["recover"], ["recover", "--apply"]):
        assert run([*words, "--quiet", str(data)]) == 1
