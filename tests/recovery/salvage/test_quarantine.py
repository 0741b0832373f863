"""The quarantine on disk contains all bytes that salvage removes: bytes kept + bytes quarantined = bytes found."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.recovery.salvage.test_salvage_random import FIRST_SEED
from tests.recovery.salvage.test_salvage_random import inflict as damage
from tests.support.salvage_cases import CASES
from tests.support.salvage_helpers import logs
from tests.support.trees import differences, tree_state

NOW = ("--now", "1800000000000")
RANDOM_DAMAGES = 20


def assert_accounted_for(inflict: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = {log.name: log.read_bytes() for log in (*logs(inflict), *inflict.glob("*.log.swap"))}
    before = tree_state(inflict)
    assert run(["recover", "--apply", "--json", *NOW, str(inflict)]) in (0, 1)
    result = next(
        row for row in map(json.loads, capfd.readouterr().out.splitlines()) if row["type"] == "result"
    )
    kept = sum(log.stat().st_size for log in logs(inflict))
    removed = sum(entry["length"] for entry in result["removed"])
    assert kept + removed == sum(map(len, found.values()))
    if result["quarantine"] is None:
        # at most, files were created
        assert removed == 0
        return
    quarantine = Path(result["quarantine"])
    for name, data in found.items():
        now = (inflict / name).read_bytes() if (inflict / name).exists() else None
        tails = [(int(file.name.rpartition("-")[2]), file) for file in quarantine.glob(f"{name}.from-*")]
        # the complete file, as it was found
        if (quarantine / name).exists():
            assert (quarantine / name).read_bytes() == data
        # the rest is in the directory, under the same name or another one
        elif tails:
            ((position, tail),) = tails
            assert tail.read_bytes() == data[position:]
            assert any(log.read_bytes()[:position] == data[:position] for log in logs(inflict))
        else:
            assert now == data or any(log.read_bytes() == data for log in logs(inflict))
    for entry in filter(
        lambda each: each["length"], result["removed"]
    ):  # the quarantine has every reported removal, byte for byte
        name = Path(entry["file"]).name
        stop = entry["position"] + entry["length"]
        assert (
            found[name][entry["position"] : stop] == _quarantined(quarantine, name)[entry["position"] : stop]
        )
    assert run(["undo", result["journal"]]) == 0
    capfd.readouterr()
    assert differences(before, tree_state(inflict)) == []


def _quarantined(quarantine: Path, name: str) -> bytes:
    """The quarantined bytes of a file at their original positions, after zeros."""
    if (quarantine / name).exists():
        return (quarantine / name).read_bytes()
    (tail,) = quarantine.glob(f"{name}.from-*")
    return bytes(int(tail.name.rpartition("-")[2])) + tail.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_byte_is_kept_or_quarantined(
    partition: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    inflict = Path(shutil.copytree(partition, tmp_path / "metro-0"))
    CASES[name](inflict)
    assert_accounted_for(inflict, capfd)


def test_every_byte_of_random_damage_is_kept_or_quarantined(
    partition: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + RANDOM_DAMAGES):
        inflict = Path(shutil.copytree(partition, tmp_path / str(seed) / "metro-0"))
        done = damage(inflict, random.Random(seed))
        try:
            assert_accounted_for(inflict, capfd)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {done}") from error
