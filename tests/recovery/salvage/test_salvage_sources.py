"""Salvage restores damaged batches from leftover files, unless the records were deleted on purpose."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from fixtures.diseases import batch_spans
from kseg.recovery.policy import BrokerState, Repair
from kseg.segment import layout as L
from tests.support.compact_helpers import T0, Topic, clean
from tests.support.salvage_helpers import all_batches, plan, salvaged

pytestmark = pytest.mark.evidence("leftover-source")


def plain(root: Path) -> Path:
    """Segments at 0, 40 and 80 with ten batches each, without gaps, in leader epochs 0, 1 and 2."""
    topic = Topic(root, name="metro-0")
    for segment in range(3):
        for number in range(10):
            topic.send(*[(f"{segment}-{number}-{at}", f"v{at}") for at in range(4)], leader_epoch=segment)
        if segment < 2:
            topic.roll()
    return topic.close()


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return plain(tmp_path / "sound")


def log(partition: Path, base: int = 40) -> Path:
    return partition / f"{base:020}.log"


def set_aside(partition: Path, state: str, base: int = 40) -> Path:
    """A copy of a valid log with the suffix of a leftover; for `.swap`, also the file that shows that the swap was not completed."""
    target = partition / f"{base:020}.log.{state}"
    shutil.copy2(log(partition, base), target)
    if state == "swap":
        (partition / f"{0:020}.timeindex.cleaned").write_bytes(b"")
    return target


def damage(file: Path, batches: Sequence[int], at: int = 70) -> None:
    data, spans = bytearray(file.read_bytes()), batch_spans(file)
    for number in batches:
        data[spans[number][0] + at] ^= 0x10
    file.write_bytes(bytes(data))


def lost(repair: Repair) -> int:
    return sum(removed.records or 0 for removed in repair.removed if removed.first_offset is not None)


@pytest.mark.parametrize("state", ["deleted", "cleaned", "swap"])
@pytest.mark.parametrize("batches", [[0], [4], [9], [3, 4, 5], [1, 8], [*range(10)]], ids=str)
def test_lost_batches_are_taken_from_a_leftover(
    partition: Path, tmp_path: Path, state: str, batches: list[int]
) -> None:
    before = all_batches(partition)
    source = set_aside(partition, state)
    damage(log(partition), batches)
    repair, _ = salvaged(partition, tmp_path / "result")
    result = tmp_path / "result" / "metro-0"
    assert all_batches(result) == before
    assert [path.name for path in sorted(result.glob("*.log"))] == [f"{base:020}.log" for base in (0, 40, 80)]
    assert repair.log_end_offset == 120
    assert lost(repair) == 0
    if state == "swap" and len(batches) == 10:
        # there is no live batch in its range, so the complete replacement takes the segment's place
        return
    restored = [finding for finding in repair.findings if finding.id == "lost-records-restored"]
    assert [finding.first_offset for finding in restored] == [40 + 4 * number for number in batches]
    assert {Path(finding.path) for finding in restored} == {source}
    assert source.name in repair.why[log(partition).name]
    assert (source.name in repair.image) == (state == "deleted")


@pytest.mark.parametrize("at", [3, 9, 18, 30, 58])
def test_lost_batch_with_a_damaged_header_is_taken_from_a_leftover(
    partition: Path, tmp_path: Path, at: int
) -> None:
    before = all_batches(partition)
    set_aside(partition, "deleted")
    damage(log(partition), [4], at)
    salvaged(partition, tmp_path / "result")
    assert all_batches(tmp_path / "result" / "metro-0") == before


@pytest.mark.parametrize("state", ["deleted", "cleaned"])
def test_zeros_in_an_uncleaned_log_are_restored_from_a_leftover(
    partition: Path, tmp_path: Path, state: str
) -> None:
    before = all_batches(partition)
    set_aside(partition, state)
    file = log(partition)
    data, spans = bytearray(file.read_bytes()), batch_spans(file)
    data[spans[2][0] : spans[5][0]] = bytes(spans[5][0] - spans[2][0])
    file.write_bytes(bytes(data))
    salvaged(partition, tmp_path / "result")
    assert all_batches(tmp_path / "result" / "metro-0") == before


# --- what does not come back


def stays_lost(partition: Path, tmp_path: Path, records: int = 4) -> Repair:
    repair, _ = salvaged(partition, tmp_path / "result")
    assert not [finding for finding in repair.findings if finding.id == "lost-records-restored"]
    assert lost(repair) == records
    return repair


def test_damaged_leftover_is_not_a_source(partition: Path, tmp_path: Path) -> None:
    source = set_aside(partition, "deleted")
    damage(source, [4])
    damage(log(partition), [4])
    stays_lost(partition, tmp_path)


def test_leftover_batch_of_another_leader_epoch_is_not_used(partition: Path, tmp_path: Path) -> None:
    source = set_aside(partition, "deleted")
    damage(source, [4], at=15)
    damage(log(partition), [4])
    stays_lost(partition, tmp_path)


def test_records_below_the_log_start_are_not_restored(partition: Path, tmp_path: Path) -> None:
    set_aside(partition, "deleted", 0)
    damage(log(partition, 0), [1])
    repair = plan(partition, broker_state=BrokerState(log_start_offset=20))
    assert not [finding for finding in repair.findings if finding.id == "lost-records-restored"]


def test_records_deleted_by_retention_are_not_restored(partition: Path, tmp_path: Path) -> None:
    for path in partition.glob(f"{0:020}.*"):
        path.rename(path.with_name(path.name + L.DELETED_SUFFIX))
    damage(log(partition), [4])
    repair = stays_lost(partition, tmp_path)
    assert repair.log_start_offset == 40


def test_records_removed_by_compaction_are_not_restored(tmp_path: Path) -> None:
    """The cleaner leaves the original segments as `.deleted`. They contain more of the damaged batch than was lost."""
    topic = Topic(tmp_path / "sound", name="metro-0")
    for number in range(20):
        topic.send(*[(f"k{at}", f"v{number}") for at in range(3)], (f"once-{number}", "v"))
        if number == 9:
            topic.roll()
    topic.roll()
    topic.send(("z", 1))
    partition = topic.close()
    clean(partition, now_ms=T0)
    shutil.rmtree(partition / ".kseg")
    assert list(partition.glob("*.log.deleted"))
    file = log(partition, 0)
    assert [int.from_bytes(file.read_bytes()[at + 57 : at + 61], "big") for at, _ in batch_spans(file)][
        3
    ] == 1
    damage(file, [3])
    stays_lost(partition, tmp_path, 1)


def test_leftovers_beside_an_undamaged_log_restore_nothing(partition: Path) -> None:
    set_aside(partition, "deleted")
    repair = plan(partition)
    assert repair.image.content(log(partition).name) and not repair.removed
    assert not [finding for finding in repair.findings if finding.id == "lost-records-restored"]
