"""`kseg recover --repair-bits` on data directories of real brokers: every log gets the bytes back that the broker wrote."""

from __future__ import annotations

import random
import shlex
from pathlib import Path

import pytest

from fixtures.diseases import bad_crc, batch_spans, flipped_bit
from kseg.cli.main import run
from tests.support.command_lines import Capfd, json_run
from tests.support.doctor_helpers import NOW, commands, doctor
from tests.support.trees import copy_tree


def logs_in(directory: Path) -> dict[str, bytes]:
    """The logs without those in the quarantine."""
    files = (file for file in sorted(directory.rglob("*.log")) if ".kseg" not in file.parts)
    return {str(file.relative_to(directory)): file.read_bytes() for file in files}


def invert_a_bit_of_each(directory: Path, seed: int) -> int:
    """Flip a bit in one batch of each log; returns the number of bits."""
    chance, count = random.Random(seed), 0
    for file in sorted(directory.rglob("*.log")):
        spans = batch_spans(file)
        if not spans:
            continue
        position, length = chance.choice(spans)
        data = bytearray(file.read_bytes())
        checked = (
            17 if data[position + 16] == 2 else 17 + 1
        )  # from the checksum on; in old formats, from after the magic byte
        at = position + chance.randrange(checked, length)
        data[at] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        count += 1
    return count


@pytest.mark.parametrize("seed", [0])
def test_repair_bits_restores_a_data_directory_of_kafka_4(
    capture_small: Path, data: Path, capfd: Capfd, seed: int
) -> None:
    """Undo restores the damaged bytes."""
    count = invert_a_bit_of_each(data, seed)
    damaged = logs_in(data)
    assert count > 10
    status, rows = json_run("recover", "--repair-bits", "--apply", data, capfd=capfd)
    assert status == 0
    assert logs_in(data) == logs_in(capture_small / "data")
    assert [row["id"] for row in rows if row["type"] == "finding"].count("batch-restored") == count
    assert sum(row["bytes_lost"] for row in rows if row["type"] == "result" and "bytes_lost" in row) == 0
    assert run(["verify", str(data)]) == run(["verify", str(capture_small / "data")])
    assert run(["undo", str(data)]) == 0
    assert logs_in(data) == damaged


@pytest.mark.parametrize("seed", [0])
def test_repair_bits_restores_data_directories_of_old_brokers(
    legacy_small: Path, tmp_path: Path, seed: int
) -> None:
    """Formats 0 and 1, including messages inside compressed ones."""
    data = copy_tree(legacy_small, tmp_path / "data")
    assert invert_a_bit_of_each(data, seed) > 5
    for directory in sorted({file.parent for file in data.rglob("*.log")}):
        run(["recover", "--json", "--repair-bits", "--apply", str(directory)])
    assert logs_in(data) == logs_in(legacy_small)


def test_repair_bits_requires_policy_salvage(capture_small: Path, capfd: Capfd) -> None:
    arguments = ["recover", "--repair-bits", "--policy", "kafka", str(capture_small / "data")]
    assert run(arguments) == 2
    assert "--repair-bits needs --policy salvage" in capfd.readouterr().err


def test_doctor_repairs_bits_of_a_metadata_log_instead_of_replacing_it(
    capture_small: Path, data: Path, capfd: Capfd
) -> None:
    """A bit of a batch that no snapshot contains is flipped in the log of the only controller, and without the batch the node does not
    start. The steps used to end with a new metadata log without any configuration. Now they lead to every byte that the broker wrote."""
    log = data / "__cluster_metadata-0" / f"{0:020d}.log"
    for snapshot in log.parent.glob("*.checkpoint"):
        snapshot.unlink()
    flipped_bit(log, 14)
    rows = doctor(capfd, data, status=1)
    assert commands(rows) == [
        f"kseg recover --repair-bits {data}",
        f"kseg recover --apply --repair-bits {data}",
        f"kseg doctor {data}",
    ]
    (damage,) = (row for row in rows if row["type"] == "damage")
    assert damage["repair_bits"] and damage["costs"]["salvage"]["records"] == 0
    assert run(["recover", str(data)]) == 1
    # without the option the log stays as it is
    out = capfd.readouterr().out
    assert "so the log is left as it is: try --repair-bits, or take this directory from another node" in out
    assert f"next: kseg doctor {data}" in out
    assert run(["recover", "--repair-bits", str(data)]) == 1
    assert f"next: kseg recover --apply --repair-bits {data}" in capfd.readouterr().out
    assert run(["recover", "--apply", "--repair-bits", str(data)]) == 0
    assert "next:" not in capfd.readouterr().out
    assert logs_in(data) == logs_in(capture_small / "data")
    bad_crc(log, 14)
    steps = commands(doctor(capfd, data, status=1))
    assert any(command.startswith("kafka-storage.sh format") for command in steps)


def test_doctor_names_what_repair_bits_restores(data: Path, capfd: Capfd) -> None:
    """Beside a batch with more damage, which is removed in either case."""
    flipped_bit(data / "metro-none-0" / f"{0:020d}.log", 1)
    bad_crc(data / "metro-zstd-0" / f"{0:020d}.log", 1)
    assert run(["doctor", *NOW, str(data)]) == 1
    out = capfd.readouterr().out
    assert "metro-none-0: `recover --repair-bits` loses nothing; a broker loses" in out
    assert "metro-zstd-0: `recover --repair-bits` loses 12 records; a broker loses" in out
    assert (
        "Repair (--repair-bits restores 1 damaged batch, in which one bit is inverted, instead of removing the records)"
        in out
    )


@pytest.mark.parametrize("state", ["legacy", "new"])
def test_commands_that_follow_the_plans_lose_nothing(
    state: str, capture_small: Path, legacy_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """Each printed command is copied into the shell as it is. The plan without --repair-bits removes the batches."""
    source = capture_small / "data" if state == "new" else legacy_small / "data/0.9.0.1/2-compacted"
    name = "metro-zstd-0" if state == "new" else "swarm-0"
    data = copy_tree(source, tmp_path / "data")
    before = logs_in(data)
    flipped_bit(data / name / f"{0:020d}.log", 2)
    command = ["recover", str(data)]
    followed = []
    while run(command) == 1:
        command = shlex.split(capfd.readouterr().out.splitlines()[-1].removeprefix("next: kseg "))
        followed.append(command[:-1])
    assert followed == [["recover", "--repair-bits"], ["recover", "--apply", "--repair-bits"]]
    assert logs_in(data) == before


def test_command_that_follows_a_plan_of_policy_kafka_has_that_policy(
    capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    partition = copy_tree(capture_small / "data" / "metro-zstd-0", tmp_path / "metro-zstd-0")
    flipped_bit(partition / f"{0:020d}.log", 2)
    assert run(["recover", "--policy", "kafka", str(partition)]) == 1
    assert f"next: kseg recover --apply --policy kafka {partition}\n" in capfd.readouterr().out
