"""The effect of retention on the epochs, snapshots and other files of the segments that it deletes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.compaction.retention.options import Limits
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.support.retain_helpers import Part, bases, epochs, give_epochs, lay, run


@pytest.mark.behaviour("T14")
def test_complete_deletion_leaves_the_last_epoch_at_the_log_end(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(100)])
    give_epochs(partition, (0, 40), (1, 90))
    run(partition, Limits(retention_ms=1000), apply=True)
    assert epochs(partition) == [(1, 100)]


@pytest.mark.behaviour("T15")
@pytest.mark.behaviour("T16")
@pytest.mark.parametrize(
    ("before", "after"),
    [([(0, 0), (1, 5), (2, 10)], [(1, 5), (2, 10)]), ([(0, 0), (1, 7), (2, 10)], [(0, 5), (1, 7), (2, 10)])],
)
def test_epochs_are_truncated_to_the_new_log_start(
    tmp_path: Path, before: list[tuple[int, int]], after: list[tuple[int, int]]
) -> None:
    partition = lay(tmp_path, [Part(5), Part(5, age_ms=0), Part(5, age_ms=0)])
    give_epochs(partition, *before)
    run(partition, Limits(retention_ms=1000), apply=True)
    assert epochs(partition) == after


@pytest.mark.behaviour("T17")
@pytest.mark.parametrize(
    ("start", "after"),
    [
        (1, [(2, 6), (3, 8), (4, 11)]),
        (6, [(2, 6), (3, 8), (4, 11)]),
        (8, [(3, 8), (4, 11)]),
        (9, [(3, 9), (4, 11)]),
        (11, [(4, 11)]),
        (15, [(4, 15)]),
    ],
)
def test_raised_log_start_truncates_the_epochs(
    tmp_path: Path, start: int, after: list[tuple[int, int]]
) -> None:
    partition = lay(tmp_path, [Part(20)])
    give_epochs(partition, (2, 6), (3, 8), (4, 11))
    run(partition, log_start_offset=start, apply=True)
    assert epochs(partition) == after


@pytest.mark.behaviour("T18")
@pytest.mark.parametrize("parts", [[Part(1)] * 3, [*[Part(1)] * 3, Part(0)]])
@pytest.mark.parametrize("limits", [Limits(retention_ms=1000), Limits(retention_bytes=0)])
def test_snapshots_of_deleted_segments_are_deleted(tmp_path: Path, parts: list[Part], limits: Limits) -> None:
    partition = lay(tmp_path, parts)
    run(partition, limits, apply=True)
    assert [path.name for path in partition.glob("*.snapshot")] == [f"{3:020}.snapshot"]
    assert bases(partition) == [3]


@pytest.mark.behaviour("T18")
def test_raised_log_start_deletes_snapshots_with_their_segments(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(1)] * 3)
    run(partition, log_start_offset=2, apply=True)
    assert sorted(path.name for path in partition.glob("*.snapshot")) == [
        f"{2:020}.snapshot",
        f"{3:020}.snapshot",
    ]


@pytest.mark.behaviour("T20")
def test_retained_log_keeps_its_end_and_opens_again(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5, age_ms=0)])
    run(partition, Limits(retention_ms=1000), apply=True)
    with PartitionLog(PartitionTarget(str(partition), str(partition.parent))) as log:
        assert (log.start_offset, log.end_offset) == (5, 10)


@pytest.mark.behaviour("T21")
def test_all_files_of_a_segment_are_marked_together(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5), Part(5, age_ms=0)])
    (partition / f"{5:020}.txnindex").write_bytes(b"")
    found = {path.name for path in partition.iterdir() if path.is_file()}
    run(partition, Limits(retention_ms=1000), apply=True)
    left = {path.name for path in partition.iterdir() if path.is_file()}
    marked = {name for name in found if int(name[:20] if name[0] == "0" else 99) < 10}
    assert left == (found - marked) | {f"{name}.deleted" for name in marked}
    assert f"{5:020}.snapshot.deleted" in left and f"{5:020}.txnindex.deleted" in left
