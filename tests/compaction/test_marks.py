"""Files marked for deletion: readers are not disturbed; purging, restoring, and the state after a kill."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.change.apply.executor import apply_plan
from kseg.change.apply.journal_scan import journals_in
from kseg.change.apply.lock import locked
from kseg.change.apply.undo import undo
from kseg.change.apply.unfinished import complete_unfinished
from kseg.change.plan.steps import Plan, Rename
from kseg.compaction.retention.options import Limits, RetainOptions
from kseg.compaction.retention.purge import purge
from kseg.compaction.retention.retain import prepare
from kseg.segment.errors import Refused
from kseg.segment.partition.names import Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.support.failing_disks import QuickDisk, outlives, survives
from tests.support.retain_helpers import (
    DAY_MS,
    NOW,
    Part,
    bases,
    checkpoint,
    epochs,
    give_epochs,
    lay,
    noted,
    run,
)
from tests.support.trees import differences, tree_state, unchanged

OLD = Limits(retention_ms=1000)
PURGING = RetainOptions(limits=Limits(), now_ms=NOW, apply=True, run_id="20260101T000000Z-00000009")
# after the change time of any file of a test
LATER = 4_000_000_000_000


def target(partition: Path) -> PartitionTarget:
    return PartitionTarget(str(partition), str(partition.parent))


def marked(partition: Path) -> list[str]:
    return sorted(path.name for path in partition.glob("*.deleted"))


def content(partition: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in partition.iterdir() if path.is_file())
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


# --- marking


def test_retain_plan_changes_nothing(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5)])
    with unchanged(tmp_path):
        output = run(partition, OLD, purge=True, what_if=True)
    assert output.result["applied"] is False and output.result["deleted"] == [0, 5]


def test_reader_keeps_its_mapping_of_marked_files(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5), Part(5, age_ms=0)])
    with PartitionLog(target(partition)) as log:
        first = log.segments[0]
        before = bytes(first.file.view)
        # opens the index as well
        offsets = [batch.base_offset for batch in first.reaching(0)]
        run(partition, OLD, apply=True)
        assert bases(partition) == [10]
        assert bytes(first.file.view) == before
        assert [batch.base_offset for batch in first.reaching(0)] == offsets == [0, 1, 2, 3, 4]
        run(partition, apply=True, purge=True, now_ms=LATER)
        assert marked(partition) == []
        assert bytes(first.file.view) == before


def test_marking_needs_no_space_and_undo_restores_everything(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5)])
    checkpoint(partition, Role.LOG_START_OFFSETS, 3)
    before = tree_state(partition.parent)
    output = run(partition, OLD, apply=True)
    for name in marked(partition):
        assert (partition / name).stat().st_nlink == 1
    (data,) = journals_in(str(partition.parent))
    assert data.path == output.others[0]["journal"]
    undo(data.location)
    # creating and removing the lock changes the modification time of the data directory
    assert differences(before, tree_state(partition.parent)) in ([], ["changed: . (mtime_ns)"])


def test_second_retain_run_deletes_nothing(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5), Part(2, age_ms=0)])
    run(partition, OLD, apply=True)
    with unchanged(partition.parent):
        assert run(partition, OLD, apply=True).result["deleted"] == []


@pytest.mark.evidence("lock")
def test_retain_is_refused_beside_a_running_broker(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5)])
    (is_locked, signal_locked), (may_end, signal_end) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            with locked([str(partition.parent)]):
                os.write(signal_locked, b"!")
                os.read(may_end, 1)
        finally:
            os._exit(0)
    os.read(is_locked, 1)
    try:
        # a plan does not lock
        assert run(partition, OLD).result["deleted"] == [0, 5]
        with pytest.raises(Refused):
            run(partition, OLD, apply=True)
    finally:
        os.write(signal_end, b"!")
        os.waitpid(child, 0)
        for descriptor in (is_locked, signal_locked, may_end, signal_end):
            os.close(descriptor)
    assert bases(partition) == [0, 5]


def test_killed_retain_is_completed_by_the_next_run(tmp_path: Path) -> None:
    """Killed at every change: the next run leaves the same files, and until then a broker finds a complete log."""
    limits, parts = OLD, [Part(2), Part(2), Part(2)]
    kill_at, is_killed = 0, True
    while is_killed:
        partition = lay(tmp_path / str(kill_at), parts)
        plan = plan_of(partition, limits)

        def act(disk: Any, plan: Plan = plan) -> None:
            apply_plan(plan, journal_id="20260101T000000Z-00000001", disk=disk)

        is_killed = not outlives(act, kill_at)
        live = bases(partition)
        assert live in ([0, 2, 4], [0, 2, 4, 6], [2, 4, 6], [4, 6], [6])
        run(partition, limits, apply=True)
        assert bases(partition) == [6], kill_at
        assert epochs(partition) == [(0, 6)]
        assert len(marked(partition)) == 3 * 3 + 2
        shutil.rmtree(partition.parent)
        kill_at += 1
    assert kill_at > 30


def plan_of(partition: Path, limits: Limits) -> Plan:
    work = prepare(target(partition), RetainOptions(limits=limits, now_ms=NOW))
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value.plan  # type: ignore[no-any-return]


def test_segments_are_marked_oldest_first_after_the_new_one_is_created(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(2), Part(2)])
    steps = plan_of(partition, OLD).steps
    assert [step.name for step in steps[:3]] == [f"{4:020}{s}" for s in (".log", ".index", ".timeindex")]
    renames = [step.name for step in steps if isinstance(step, Rename)]
    assert renames == sorted(renames, key=lambda name: name[:20])
    assert [name for name in renames if name.endswith(".log")] == [f"{0:020}.log", f"{2:020}.log"]
    assert steps[-1].name == "leader-epoch-checkpoint"


# --- obstacles


def test_pending_swap_file_is_refused_until_recovered(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5)])
    (partition / f"{0:020}.log.swap").write_bytes(b"")
    (failure,) = run(partition, OLD).failures
    assert failure.exit_status == 4 and "recover" in failure.sentence


def test_torn_log_end_is_refused_if_a_new_segment_is_needed(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5)])
    with (partition / f"{5:020}.log").open("ab") as file:
        file.write(b"\1" * 70)
    (failure,) = run(partition, OLD).failures
    assert failure.exit_status == 4 and "kseg recover" in failure.sentence
    assert run(partition, Limits(retention_bytes=100)).result["deleted"] == [0]


def test_log_start_beyond_the_end_is_refused(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5)])
    checkpoint(partition, Role.LOG_START_OFFSETS, 99)
    (failure,) = run(partition, OLD).failures
    assert failure.exit_status == 4


def test_unreadable_checkpoint_is_not_overwritten(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5, age_ms=0)])
    path = partition.parent / "log-start-offset-checkpoint"
    path.write_bytes(b"nonsense\n")
    output = run(partition, OLD, apply=True)
    assert [failure.exit_status for failure in output.failures] == [4]
    assert path.read_bytes() == b"nonsense\n"


@pytest.mark.parametrize(
    "name", [f"orders-0.{'0a' * 16}-delete", f"orders-0.{'0a' * 16}-stray", "__cluster_metadata-0"]
)
def test_suffixed_and_internal_logs_are_not_retained(tmp_path: Path, name: str) -> None:
    partition = lay(tmp_path, [Part(5), Part(5)])
    other = partition.rename(partition.parent / name)
    with unchanged(other.parent):
        output = run(other, OLD, apply=True)
    assert [finding.id for finding in output.findings] == ["not-retained"] and output.result == {}


def test_future_log_is_retained_like_any(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5, age_ms=0)])
    moving = partition.rename(partition.parent / f"orders-0.{'0a' * 16}-future")
    checkpoint(partition, Role.LOG_START_OFFSETS, 3)
    assert run(moving, OLD, apply=True).result["deleted"] == [0]
    assert noted(partition, Role.LOG_START_OFFSETS) is None


# --- purging


@pytest.mark.evidence("deleted-file")
def test_purge_deletes_only_marks_older_than_the_delay(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5, age_ms=0)])
    run(partition, OLD, apply=True)
    files = marked(partition)
    now_ms = int(max((partition / name).stat().st_ctime for name in files) * 1000)
    output = run(partition, apply=True, purge=True, now_ms=now_ms + 30_000)
    assert output.result["purged"] == [] and marked(partition) == files
    assert {row["verdict"] for row in output.marks} == {"wait"}
    with unchanged(partition.parent):
        output = run(partition, purge=True, now_ms=now_ms + 61_000)
    assert output.result["purged"] == files and output.result["applied"] is False
    size = sum((partition / name).stat().st_size for name in files)
    output = run(partition, apply=True, purge=True, now_ms=now_ms + 61_000)
    assert (output.result["purged"], output.result["bytes_purged"]) == (files, size)
    assert marked(partition) == []
    assert not list(partition.rglob("*.deleted")) and bases(partition) == [5]


def test_purge_without_delay_deletes_new_marks(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5, age_ms=0)])
    output = run(partition, OLD, apply=True, purge=True, file_delete_delay_ms=0)
    assert output.result["deleted"] == [0] and len(output.result["purged"]) == 3
    assert marked(partition) == []


def test_marked_metadata_snapshots_are_not_purged(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5)])
    mark = partition / f"{5:020}-{1:010}.checkpoint.deleted"
    mark.touch()
    run(partition, apply=True, purge=True, now_ms=LATER)
    assert mark.exists()


@pytest.mark.parametrize("how", [survives, outlives])
def test_killed_purge_is_completed_by_the_next_run(tmp_path: Path, how: Any) -> None:
    kill_at, is_killed = 0, True
    while is_killed:
        partition = lay(tmp_path / f"{how.__name__}{kill_at}", [Part(2), Part(2, age_ms=0)])
        run(partition, OLD, apply=True)
        names = marked(partition)

        def act(disk: Any, place: str = str(partition), names: list[str] = names) -> None:
            purge(place, names, PURGING, disk)

        is_killed = not how(act, kill_at)
        complete_unfinished(str(partition), "retain", QuickDisk())
        # a purge has no journal and deletes one file after another
        assert set(marked(partition)) <= set(names)
        run(partition, apply=True, purge=True, now_ms=LATER)
        assert not list(partition.rglob("*.deleted"))
        assert [
            journal for journal in journals_in(str(partition)) if journal.location.id.endswith("-purge")
        ] == []
        assert bases(partition) == [2]
        kill_at += 1
    # a deletion for each name, and the sync of the directory
    assert kill_at > len(names)


# --- taking back


@pytest.mark.evidence("deleted-file")
@pytest.mark.parametrize("last_age_ms", [0, DAY_MS])
def test_unmark_restores_marked_segments(tmp_path: Path, last_age_ms: int) -> None:
    partition = lay(tmp_path, [Part(5), Part(5, epoch=3), Part(5, epoch=4, age_ms=last_age_ms)])
    checkpoint(partition, Role.LOG_START_OFFSETS, 2)
    before = content(partition)
    run(partition, OLD, apply=True)
    assert marked(partition)
    with unchanged(partition.parent):
        planned = run(partition, unmark=True)
    output = run(partition, unmark=True, apply=True)
    assert (
        output.result["unmarked"]
        == planned.result["unmarked"]
        == ([0, 5] if last_age_ms == 0 else [0, 5, 10])
    )
    assert {row["verdict"] for row in output.marks} == {"unmark"}
    after = content(partition)
    epochs_file = "leader-epoch-checkpoint"
    assert after.pop(epochs_file)[0] == before.pop(epochs_file)[0]
    assert {name: file for name, file in after.items() if name in before} == before
    assert noted(partition, Role.LOG_START_OFFSETS) is None and output.result["log_start_offset"] == 0
    with PartitionLog(target(partition)) as log:
        assert (log.start_offset, log.end_offset) == (0, 15)


def test_log_start_may_be_above_the_restored_segments(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5, age_ms=0)])
    run(partition, OLD, apply=True)
    output = run(partition, unmark=True, apply=True, log_start_offset=2)
    assert output.result["log_start_offset"] == 2 and noted(partition, Role.LOG_START_OFFSETS) == 2


def test_unmark_leaves_segments_the_cleaner_replaced(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5), Part(5, age_ms=0)])
    replaced = partition / f"{5:020}.log.deleted"
    (partition / f"{5:020}.log").rename(replaced)
    with unchanged(partition):
        output = run(partition, unmark=True, apply=True)
    assert output.result["unmarked"] == [] and "so retention did not mark it" in output.marks[0]["reason"]


def test_unmark_leaves_segments_that_overlap(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5, age_ms=0)])
    run(partition, OLD, apply=True)
    for path in partition.glob(f"{5:020}.*"):
        path.rename(path.with_name(path.name.replace(f"{5:020}", f"{3:020}")))
    output = run(partition, unmark=True, apply=True)
    assert output.result["unmarked"] == []
    assert any(
        "it ends at 5, but the log already has offsets from 3" in row["reason"] for row in output.marks
    )


def test_unmark_restores_nothing_after_a_purge(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5, age_ms=0)])
    run(partition, OLD, apply=True)
    run(partition, apply=True, purge=True, now_ms=LATER)
    assert run(partition, unmark=True, apply=True).result["unmarked"] == []
    (journal, *_) = journals_in(str(partition))
    with pytest.raises(Refused):
        undo(journal.location)


def test_retain_adds_no_epochs_to_a_log_without_them(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5, age_ms=0)])
    give_epochs(partition)
    run(partition, OLD, apply=True)
    assert epochs(partition) == []
