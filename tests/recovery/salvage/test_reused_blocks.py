"""Salvage of logs in which a block of the file system has valid batches of another log, or of a former log of the same partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.salvage_helpers import all_batches, salvaged
from tests.support.scan_helpers import batch, file_of


@pytest.mark.parametrize("shift", [-20, 0, 20])
@pytest.mark.parametrize("first", [8, 9, 10, 11, 15, 25, 27])
def test_batches_of_a_reused_block_do_not_displace_those_of_the_log(
    tmp_path: Path, shift: int, first: int
) -> None:
    """The block has offsets that are ahead of its place, and that batches after it have as well: more of them than it has batches, or as
    many."""
    own = [batch(number, 1, b"own") for number in range(30)]
    data, positions = file_of(own)
    others, _ = file_of([batch(number, 1, b"the other log") for number in range(first, first + 3)])
    start = positions[6] + shift
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(data[:start] + others + data[start + len(others) :])
    undamaged = [
        each
        for each, position in zip(own, positions, strict=True)
        if position + len(each) <= start or position >= start + len(others)
    ]
    repair, _ = salvaged(partition, tmp_path / "result")
    assert len(undamaged) >= 25
    assert {*undamaged} <= {*all_batches(tmp_path / "result" / "orders-0")}
    assert repair.log_end_offset == 30


@pytest.mark.parametrize("width", [3, 6, 9])
def test_a_wide_batch_of_a_reused_block_displaces_no_batch_of_the_log(tmp_path: Path, width: int) -> None:
    """Its offsets are those of several batches of two segments before it."""
    own = [[batch(number, 1, b"own") for number in range(start, start + 6)] for start in (0, 6, 12)]
    partition = tmp_path / "orders-0"
    partition.mkdir()
    logs = [file_of(each)[0] for each in own]
    foreign = bytes(20) + batch(3, width, b"the other log" * 9)
    logs[2] = foreign + logs[2][len(foreign) :]
    for number, data in enumerate(logs):
        (partition / f"{6 * number:020d}.log").write_bytes(data)
    salvaged(partition, tmp_path / "result")
    assert {*own[0], *own[1]} <= {*all_batches(tmp_path / "result" / "orders-0")}
