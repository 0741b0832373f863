"""The metadata log: a node recovers it at every start, also after a clean stop, and reads all of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.support.trees import copy_tree

LOG = f"{0:020}.log"
SNAPSHOT_END = 69


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    return copy_tree(capture_small / "data", tmp_path / "data")


def batch_at(log: bytes, offset: int) -> int:
    """The position of the batch that begins at an offset, or of the first one after it."""
    position = 0
    while int.from_bytes(log[position : position + 8], "big") < offset:
        position += 12 + int.from_bytes(log[position + 8 : position + 12], "big")
    return position


def flip(data: Path, offset: int) -> int:
    """Damage the batch at an offset; where it begins."""
    path = data / "__cluster_metadata-0" / LOG
    log = bytearray(path.read_bytes())
    position = batch_at(bytes(log), offset)
    log[position + 70] ^= 1
    path.write_bytes(log)
    return position


def reported(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    """The exit status, and the result for the metadata log."""
    status = run([*map(str, words), "--json"])
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    (result,) = (
        row for row in rows if row["type"] == "result" and row.get("partition") == "__cluster_metadata-0"
    )
    return status, result


def test_a_clean_stop_does_not_spare_it(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As `verify` forecasts, and as a real node does (tests/kafka/test_metadata_log_repair.py)."""
    assert (data / ".kafka_cleanshutdown").exists()
    position = flip(data, 100)
    log = data / "__cluster_metadata-0" / LOG
    kept = log.read_bytes()[:position]
    _, result = reported(capfd, "recover", "--policy", "kafka", "--apply", data)
    assert log.read_bytes() == kept and result["log_end_offset"] < 140
    assert run(["verify", "--quiet", str(log.parent)]) == 0


@pytest.mark.parametrize(("offset", "is_covered"), [(SNAPSHOT_END - 20, True), (100, False)])
def test_a_gap_is_no_repair(
    data: Path, capfd: pytest.CaptureFixture[str], offset: int, is_covered: bool
) -> None:
    """Records that no snapshot covers are missing for whatever refers to them; a second run reports the same."""
    flip(data, offset)
    partition = data / "__cluster_metadata-0"
    doubts = []
    for words in (["recover"], ["recover", "--apply"], ["recover"]):
        status, result = reported(capfd, *words, partition)
        assert is_covered or status == 1
        doubts.append(result["doubt"])
    assert len(set(doubts)) == 1 and (doubts[0] is None) == is_covered
    assert is_covered or "the metadata log lacks offset" in doubts[0]


def test_a_torn_end_is_no_gap(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = data / "__cluster_metadata-0" / LOG
    log.write_bytes(log.read_bytes()[:-5])
    status, result = reported(capfd, "recover", "--apply", log.parent)
    assert (status, result["doubt"]) == (0, None)
