"""Salvage of base offsets that were overwritten with those of another batch: no record is moved, and no valid batch is removed for it."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from fixtures.diseases import put
from kseg.recovery.policy import BrokerState
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.support.salvage_helpers import batches, logs, plan, salvaged, write_repaired

pytestmark = pytest.mark.slow


class Place(NamedTuple):
    """The position of a batch, and its offsets."""

    log: Path
    position: int
    first: int
    last: int


def places(partition: Path) -> list[Place]:
    found = []
    for log in logs(partition):
        for position, batch in batches(log):
            first, delta = struct.unpack_from(">q", batch)[0], struct.unpack_from(">i", batch, 23)[0]
            found.append(Place(log, position, first, first + delta))
    return found


def tight(partition: Path) -> list[tuple[Place, Place, Place]]:
    """Batches without a free offset before or after them, each between its neighbours."""
    found = places(partition)
    return [
        (before, place, behind)
        for before, place, behind in zip(found, found[1:], found[2:], strict=False)
        if before.last + 1 == place.first and place.last + 1 == behind.first
    ]


def contents(partition: Path) -> dict[str, bytes]:
    return {log.name: log.read_bytes() for log in logs(partition)}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda before, place, behind: 0,
        lambda before, place, behind: before.first,
        lambda before, place, behind: max(0, place.first - 40),
        lambda before, place, behind: behind.first,
        lambda before, place, behind: behind.last + 1000,
    ],
    ids=["zero", "the one before", "far before", "the one behind", "further behind"],
)
def test_base_offset_overwritten_with_another_batchs_is_corrected(
    partition: Path, tmp_path: Path, wrong: Callable[[Place, Place, Place], int]
) -> None:
    original = contents(partition)
    found = tight(partition)
    assert len(found) > 20
    for number, (before, place, behind) in enumerate(found):
        damaged = Path(shutil.copytree(partition, tmp_path / str(number) / "metro-0"))
        put(damaged / place.log.name, place.position, struct.pack(">q", wrong(before, place, behind)))
        repair = plan(damaged)
        assert repair.removed == (), (place, repair.removed)
        assert contents(write_repaired(repair, damaged, tmp_path / str(number) / "result")) == original, place


def test_later_leaders_batch_with_base_offset_zero_is_corrected(partition: Path, tmp_path: Path) -> None:
    """Because of its higher leader epoch, it used to win against the batch that really has the offset."""
    _, place, _ = tight(partition)[-1]
    damaged = Path(shutil.copytree(partition, tmp_path / "metro-0"))
    put(damaged / place.log.name, place.position, bytes(8))
    repair, _ = salvaged(damaged, tmp_path / "result")
    assert contents(tmp_path / "result" / "metro-0") == contents(partition)
    assert [finding.id for finding in repair.findings if finding.severity == "error"] == [
        "altered-base-offset"
    ]


def test_two_old_format_logs_that_seem_to_begin_at_one_offset_are_kept(tmp_path: Path) -> None:
    """The wrapper of an old format contains only its last offset. If another log precedes it, both may seem to start at the same offset."""
    partition = tmp_path / "metro-0"
    partition.mkdir()
    records = [Record(offset, -1, None, b"%d" % offset) for offset in range(48)]
    wrapper = encode_batch(NewBatch(records=tuple(records[:24]), magic=0, codec=L.GZIP))
    wrapper += encode_batch(NewBatch(records=tuple(records[24:]), magic=0, codec=L.GZIP))
    plain = encode_batch(NewBatch(records=tuple(records[:10]), magic=0))
    (partition / f"{0:020}.log").write_bytes(wrapper)
    # misplaced, or from another partition
    (partition / f"{48:020}.log").write_bytes(plain)
    repair, _ = salvaged(partition, tmp_path / "result")
    assert repair.removed == ()
    assert sorted(contents(tmp_path / "result" / "metro-0").values()) == sorted((wrapper, plain))


def test_leader_epochs_of_a_log_without_its_start_begin_at_its_end(partition: Path, tmp_path: Path) -> None:
    """Everything before the checkpointed log start is lost, so the log and its epochs start at its present end."""
    damaged = Path(shutil.copytree(partition, tmp_path / "metro-0"))
    for log in logs(damaged)[1:]:
        log.unlink()
    (damaged / "leader-epoch-checkpoint").unlink()
    around = BrokerState(is_clean=True, log_start_offset=places(partition)[-1].first)
    repair, verdict = salvaged(damaged, tmp_path / "result", broker_state=around)
    assert repair.log_start_offset == repair.log_end_offset < around.log_start_offset
    assert not verdict.ids("error")
