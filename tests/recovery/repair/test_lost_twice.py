"""Offsets that two parts of damage may have held are lost once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.scan_helpers import batch, file_of


def test_records_on_both_sides_of_a_misplaced_block_are_counted_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A block with batches of the end of the log, in the middle of it: damage before and after it may have had the offsets in between."""
    data, positions = file_of([batch(number * 3, 3, b"%d " % number * 9) for number in range(30)])
    start, length = positions[8] + 50, 5 * (positions[21] - positions[20])
    block = data[positions[20] + 50 :][:length]
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(data[:start] + block + data[start + length :])
    assert run(["recover", "--json", str(partition)]) == 1
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    (result,) = [row for row in rows if row["type"] == "result"]
    # batches 8 to 13
    cost = result["costs"]["salvage"]
    assert len([each for each in result["removed"] if each["first_offset"] is not None]) == 2
    assert (cost["records"], cost["offsets"]) == (18, 18)
