"""A whole run of `kseg recover --apply` that is killed anywhere: again it reaches the planned end, undone the start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.cli.killed_runs import goes_on_and_goes_back

FIRST = "00000000000000000000.log"
HURT = ("metro-none-0", "metro-zstd-0")


@pytest.fixture
def original(capture_small: Path, tmp_path: Path) -> Path:
    """A data directory that was marked clean, with two hurt partitions and a checkpoint beyond its log."""
    made = tmp_path / "original" / "data"
    made.mkdir(parents=True)
    for name in ("fares-0", *HURT):
        shutil.copytree(capture_small / "data" / name, made / name)
    shutil.copy2(capture_small / "data" / "meta.properties", made)
    for name in HURT:
        data = bytearray((made / name / FIRST).read_bytes())
        data[600] ^= 0x55
        (made / name / FIRST).write_bytes(data)
    (made / "recovery-point-offset-checkpoint").write_text("0\n1\nmetro-zstd 0 9000\n")
    (made / ".lock").touch()  # as every broker leaves it; one that a killed run made would stay, too
    (made / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    return made


def recover(log_dir: Path) -> int:
    return run(["recover", "--apply", "--jobs", "1", "--quiet", str(log_dir)])


def test_a_killed_run_goes_on_and_goes_back(original: Path, tmp_path: Path) -> None:
    assert goes_on_and_goes_back(recover, original, tmp_path / "data") >= 60
