"""A data directory without meta.properties: files of newer brokers prove that it must have had one, and verify and recover agree on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run

KIND = "meta-properties-missing"
POINTS = "recovery-point-offset-checkpoint"
META = "meta.properties"


@pytest.fixture
def bare(capture_small: Path, tmp_path: Path) -> Path:
    """One log in a data directory, and nothing that says which broker wrote it."""
    data = tmp_path / "disks" / "a"
    log = data / "metro-none-0" / f"{0:020}.log"
    log.parent.mkdir(parents=True)
    shutil.copy2(capture_small / "data" / "metro-none-0" / log.name, log)
    return data


def output(capfd: pytest.CaptureFixture[str], *words: str | Path) -> list[dict[str, Any]]:
    capfd.readouterr()
    run([str(words[0]), "--json", *map(str, words[1:])])
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def messages(capfd: pytest.CaptureFixture[str], data: Path) -> list[str]:
    found = [
        [row["message"] for row in output(capfd, command, data) if row.get("id") == KIND]
        for command in ("verify", "recover")
    ]
    assert found[0] == found[1], "verify and recover agree"
    return found[0]


def test_a_folder_of_copied_logs_needs_none(bare: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert messages(capfd, bare) == []


@pytest.mark.evidence("meta-properties")
def test_batches_beside_a_checkpoint(bare: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (bare / POINTS).write_text("0\n1\nmetro-none 0 160\n")
    (message,) = messages(capfd, bare)
    assert "metro-none-0 has batches of magic 2" in message


@pytest.mark.evidence("meta-properties")
@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint"])
def test_files_of_a_partition(
    bare: Path, capture_small: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copy2(capture_small / "data" / "metro-none-0" / name, bare / "metro-none-0")
    (message,) = messages(capfd, bare)
    assert f"metro-none-0 has a {name}" in message


@pytest.mark.evidence("meta-properties")
def test_a_metadata_log(bare: Path, capture_small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = "__cluster_metadata-0"
    (bare / name).mkdir()
    log = f"{0:020}.log"
    shutil.copy2(capture_small / "data" / name / log, bare / name / log)
    (message,) = messages(capfd, bare)
    assert "metadata log" in message


@pytest.mark.evidence("meta-properties")
def test_a_data_directory_beside_it(
    bare: Path, capture_small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = bare.parent / "b"
    other.mkdir()
    shutil.copy2(capture_small / "data" / META, other / META)
    assert messages(capfd, bare) == [], "a folder of copied logs beside it"
    (bare / POINTS).write_text("0\n0\n")
    (message,) = messages(capfd, bare)
    assert f"{other} next to it has one" in message


def test_logs_of_old_brokers_say_nothing(bare: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """0.8 wrote batches of magic 0 and no meta.properties."""
    (bare / POINTS).write_text("0\n0\n")
    log = bare / "metro-none-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[16] = 0
    log.write_bytes(data)
    assert messages(capfd, bare) == []
