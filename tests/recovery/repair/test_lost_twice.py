"""Offsets that two parts of damage may have held are lost once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_rows import rows_of
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
    rows = rows_of(capfd, "recover", partition, status=1)
    (result,) = [row for row in rows if row["type"] == "result"]
    # batches 8 to 13
    cost = result["costs"]["salvage"]
    assert len([each for each in result["removed"] if each["first_offset"] is not None]) == 2
    assert (cost["records"], cost["offsets"]) == (18, 18)


@pytest.mark.parametrize("page", [400, 700, 1000, 2000])
def test_records_of_swapped_pages_that_stay_are_not_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], page: int
) -> None:
    """Two neighbouring pages have changed places: damage ends before the offsets that the next batch in the file has, and the batches with
    the offsets in between are after it."""
    own = [batch(number * 3, 3, b"%d " % number * 9) for number in range(30)]
    data, _ = file_of(own)
    swapped = data[:page] + data[2 * page : 3 * page] + data[page : 2 * page] + data[3 * page :]
    lost = [each for each in own if each not in swapped]
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(swapped)
    rows = rows_of(capfd, "recover", partition, status=1)
    (result,) = [row for row in rows if row["type"] == "result"]
    cost = result["costs"]["salvage"]
    assert (cost["records"], cost["offsets"]) == (3 * len(lost), 3 * len(lost))


@pytest.mark.parametrize("page", [250, 400, 1024])
def test_records_overwritten_by_batches_of_the_next_segment_are_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], page: int
) -> None:
    """The first page of a segment has the content of the next one: valid copies, and parts of two batches at its end."""
    logs = [
        file_of([batch(number * 3, 3, b"%d " % number * 9) for number in range(start, start + 20)])[0]
        for start in (0, 20)
    ]
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(logs[1][:page] + logs[0][page:])
    (partition / f"{60:020d}.log").write_bytes(logs[1])
    rows = rows_of(capfd, "recover", partition, status=1)
    (result,) = [row for row in rows if row["type"] == "result"]
    kept = file_of([batch(number * 3, 3, b"%d " % number * 9) for number in range(20)])[1]
    lost = 3 * sum(position < page for position in kept)
    assert result["costs"]["salvage"]["records"] == lost


def test_damage_before_batches_of_another_log_ends_before_the_next_segment(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A block with batches of a longer log, between two damaged parts: its offsets are far above the next segment."""
    logs = [
        file_of([batch(number * 3, 3, b"%d " % number * 9) for number in range(start, start + 20)])[0]
        for start in (0, 20)
    ]
    others, _ = file_of([batch(number * 3, 3, b"the other log") for number in (60, 61, 62)])
    block = bytes([255] * 40) + others + bytes([255] * 40)
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(block + logs[0][len(block) :])
    (partition / f"{60:020d}.log").write_bytes(logs[1])
    rows = rows_of(capfd, "recover", partition, status=1)
    (result,) = [row for row in rows if row["type"] == "result"]
    positions = file_of([batch(number * 3, 3, b"%d " % number * 9) for number in range(20)])[1]
    assert result["costs"]["salvage"]["records"] == 3 * sum(position < len(block) for position in positions)
