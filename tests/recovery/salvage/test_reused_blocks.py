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


def test_batches_of_a_reused_block_at_the_start_do_not_move_the_log_end(tmp_path: Path) -> None:
    """The only segment begins with damage, so that none of its batches follows another one of the log."""
    own = [batch(number, 1, b"own") for number in range(40)]
    data, positions = file_of(own)
    others, _ = file_of([batch(number, 1, b"the other log") for number in (377, 378, 379)])
    block = bytes([255] * 30) + others + bytes([255] * 30)
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(block + data[len(block) :])
    repair, _ = salvaged(partition, tmp_path / "result")
    assert repair.log_end_offset == 40
    whole = [each for each, position in zip(own, positions, strict=True) if position >= len(block)]
    assert all_batches(tmp_path / "result" / "orders-0") == whole


def test_batches_of_a_reused_block_do_not_raise_the_leader_epochs_of_the_log(tmp_path: Path) -> None:
    """The log was compacted, so the offsets of the block are free, and the other log had a later leader."""
    own = [[batch(number, 1, b"own") for number in range(start, start + 40, 2)] for start in (0, 40, 80)]
    foreign = b"".join(_with_epoch(batch(number, 1, b"the other log"), 1) for number in (1, 3, 5))
    partition = tmp_path / "orders-0"
    partition.mkdir()
    logs = [b"".join(_with_epoch(each, 0) for each in part) for part in own]
    logs[0] = foreign + logs[0][len(foreign) :]
    for number, data in enumerate(logs):
        (partition / f"{40 * number:020d}.log").write_bytes(data)
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    salvaged(partition, tmp_path / "result")
    result = tmp_path / "result" / "orders-0"
    assert {each[12:16] for each in all_batches(result)} == {bytes(4)}
    assert (result / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def _with_epoch(data: bytes, epoch: int) -> bytes:
    """The checksum does not cover the leader epoch."""
    return data[:12] + epoch.to_bytes(4, "big") + data[16:]
