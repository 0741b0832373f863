"""The range of a log that is cleaned, the resulting segments, and their side files: rows C40 … C58."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kseg.compaction.cleaner.cleanable import LogToClean, cleanable, is_overdue
from kseg.compaction.cleaner.options import CleanSettings, CompactOptions, Damaged
from kseg.compaction.cleaner.run import CompactRun
from kseg.compaction.cleaner.segment_groups import groups
from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment import layout as L
from kseg.segment.errors import UsageError
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.targets import FileTarget, PartitionTarget
from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint, offsets_by_partition
from tests.support.compact_helpers import DAY_MS, SETTINGS, T0, Topic, batches, clean, kept, log, touch
from tests.support.one_target import compact
from tests.support.trees import unchanged

CHECKPOINT = NAME_BY_ROLE[Role.CLEANER_OFFSETS]


def segment(base: int, size: int = 100, index: int = 8, times: int = 12, largest: int = T0) -> CleanerSegment:
    return CleanerSegment(
        base_offset=base,
        path=f"{base}.log",
        size_bytes=size,
        mtime_ms=T0,
        index_bytes=index,
        time_index_bytes=times,
        largest_timestamp_ms=largest,
        origins=(),
    )


def grouped(segments: list[CleanerSegment], upper: int = 1000, **settings: int) -> list[list[int]]:
    found = groups(segments, CleanSettings(now_ms=T0, **settings), upper)
    return [[each.base_offset for each in group] for group in found]


@pytest.mark.behaviour("C40")
def test_segment_groups_stay_within_all_three_size_limits() -> None:
    segments = [segment(10 * n) for n in range(6)]
    assert grouped(segments) == [[0, 10, 20, 30, 40, 50]]
    assert grouped(segments, segment_bytes=1) == [[0], [10], [20], [30], [40], [50]]
    assert grouped(segments, segment_bytes=300) == [[0, 10, 20], [30, 40, 50]]
    assert grouped(segments, segment_bytes=299) == [[0, 10], [20, 30], [40, 50]]
    assert grouped([segment(n, times=0) for n in range(6)], segment_index_bytes=24) == [[0, 1, 2], [3, 4, 5]]
    assert grouped([segment(n, index=0) for n in range(6)], segment_index_bytes=24) == [
        [0, 1],
        [2, 3],
        [4, 5],
    ]


@pytest.mark.behaviour("C41")
@pytest.mark.behaviour("C43")
def test_segment_group_spans_no_more_offsets_than_an_index_holds() -> None:
    most = L.INT32_MAX
    segments = [segment(0), segment(most - 1), segment(most + 1), segment(most + 2)]
    # the base offset of the next segment bounds the second one, whatever its index says
    assert grouped(segments, upper=most + 9) == [[0, most - 1], [most + 1, most + 2]]
    assert grouped([segment(0), segment(most)], upper=most + 1) == [[0, most]]
    assert grouped([segment(0), segment(most)], upper=most + 2) == [[0], [most]]


@pytest.mark.behaviour("C42")
def test_empty_segments_do_not_separate_groups() -> None:
    most = L.INT32_MAX
    segments = [segment(0), segment(5, size=0), segment(most + 2, size=0), segment(most + 9)]
    assert grouped(segments, upper=most + 20) == [[0, 5, most + 2], [most + 9]]


@pytest.mark.behaviour("C44")
def test_segment_with_an_offset_overflow_is_split_first(tmp_path: Path) -> None:
    far = L.INT32_MAX + 100
    first, second = Topic(tmp_path / "one"), Topic(tmp_path / "two", start=far)
    first.send(("a", 1), ("b", 2))
    first.roll()
    second.send(("a", 3), ("c", 4))
    second.roll()
    one, two = first.close(), second.close()
    data = log(one, 0).read_bytes() + log(two, far).read_bytes()
    both = Topic(tmp_path / "both", start=far + 2)
    directory = both.close()
    log(directory, 0).write_bytes(data)
    for suffix in (".index", ".timeindex"):
        (directory / f"{0:020}{suffix}").write_bytes(b"")
    with unchanged(directory):
        plan = clean(directory, apply=False)
    outcome = clean(directory)
    assert "offset-overflow" in outcome.kinds
    assert outcome.bases == [0, far, far + 2]
    assert kept(directory) == [(1, "b", "2"), (far, "a", "3"), (far + 1, "c", "4")]
    assert plan.result["bytes_after"] == outcome.result["bytes_after"]


@pytest.mark.parametrize("damaged", list(Damaged))
def test_offsets_below_the_segment_are_damage_and_cause_no_endless_split(
    tmp_path: Path, damaged: Damaged
) -> None:
    early, late = Topic(tmp_path / "early"), Topic(tmp_path / "late", start=10)
    early.send(("a", 1), ("b", 2))
    late.send(("c", 3), ("d", 4))
    early.roll()
    late.roll()
    one, two = early.close(), late.close()
    data = log(two, 10).read_bytes() + log(one, 0).read_bytes()
    log(two, 10).write_bytes(data)
    outcome = clean(two, damaged=damaged)
    assert "offset-not-monotonic" in outcome.kinds
    assert log(two, 10).read_bytes() == data
    assert bool(outcome.failures) is (damaged is Damaged.REFUSE)


@pytest.mark.behaviour("C45")
@pytest.mark.behaviour("C47")
def test_offset_map_covers_gaps_between_segments(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send(*[(n, n) for n in range(10)])
    topic.roll(skip=1)
    directory = topic.close()
    assert clean(directory).result["next_dirty_offset"] == 11
    sparse = Topic(tmp_path / "sparse")
    sparse.send(("a", 1))
    sparse.roll(skip=7_206_177)
    sparse.send(("a", 2))
    sparse.roll(skip=5)
    directory = sparse.close()
    assert clean(directory).result["next_dirty_offset"] == 7_206_184
    assert kept(directory) == [(7_206_178, "a", "2")]


@pytest.mark.behaviour("C50")
def test_active_segment_is_not_cleaned(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send(("a", 1), ("a", 2))
    directory = topic.close()
    with unchanged(directory):
        outcome = clean(directory)
    assert (outcome.result["passes"], outcome.result["held_by"]) == (0, "active segment")


def test_include_active_rolls_and_cleans_the_active_segment(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send(("a", 1), ("a", 2), producer=5)
    directory = topic.close()
    outcome = clean(directory, include_active=True, now_ms=T0)
    assert outcome.result["rolled"]
    assert outcome.bases == [0, 2]
    assert kept(directory) == [(1, "a", "2")]
    assert log(directory, 2).stat().st_size == 0
    assert (directory / f"{2:020}.snapshot").stat().st_size == 56
    with unchanged(directory):
        assert clean(directory, include_active=True, now_ms=T0).result["steps"] == 0


def log_to_retain(
    segments: list[CleanerSegment], *, stable: int | None = None, noted: int | None = None, start: int = 0
) -> LogToClean:
    end = segments[-1].base_offset + 5
    return LogToClean(segments, start, end, end if stable is None else stable, noted)


@pytest.mark.behaviour("C51")
def test_compaction_lag_limits_the_cleanable_range() -> None:
    segments = [segment(10 * n, largest=T0 + n) for n in range(4)]
    settings = CleanSettings(now_ms=T0 + 101, min_compaction_lag_ms=100)
    found = cleanable(log_to_retain(segments), settings)
    assert (found.first_uncleanable_offset, found.bound) == (20, "min.compaction.lag.ms")
    late = CleanSettings(now_ms=T0 + 1000, min_compaction_lag_ms=100)
    assert cleanable(log_to_retain(segments), late).first_uncleanable_offset == 30
    young = CleanSettings(now_ms=T0, min_compaction_lag_ms=100)
    found = cleanable(log_to_retain(segments), young)
    assert (found.first_uncleanable_offset, found.dirty_bytes) == (0, 0)


@pytest.mark.behaviour("C52")
def test_overdue_records_are_cleaned_at_any_dirty_ratio() -> None:
    settings = CleanSettings(now_ms=T0, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=0.9)
    assert is_overdue([T0 - 5000, T0], settings)
    assert not is_overdue([T0 - 1000, T0], settings)
    assert not is_overdue([0, -1], settings)
    segments = [segment(10 * n) for n in range(4)]
    found = cleanable(log_to_retain(segments, noted=20), settings)
    assert (found.clean_bytes, found.dirty_bytes) == (200, 100)
    assert not found.is_due(settings, is_overdue=False)
    assert found.is_due(settings, is_overdue=True)


@pytest.mark.behaviour("C48")
def test_dirty_ratio_is_computed_like_the_cleaner() -> None:
    segments = [segment(10 * n, size=50) for n in range(4)]
    found = cleanable(log_to_retain(segments, noted=15), SETTINGS)
    # the segment with the first dirty offset counts on both sides
    assert (found.clean_bytes, found.dirty_bytes, found.dirty_ratio) == (100, 100, 0.5)
    held = cleanable(log_to_retain(segments, noted=10, stable=20), SETTINGS)
    assert (held.clean_bytes, held.dirty_bytes, held.bound) == (50, 50, "last stable offset")


@pytest.mark.behaviour("C53")
@pytest.mark.parametrize(("noted", "start", "first"), [(99, 0, 0), (5, 10, 10), (35, 0, 35), (None, 10, 10)])
def test_first_dirty_offset_outside_the_log_is_reset(noted: int | None, start: int, first: int) -> None:
    segments = [segment(10 * n) for n in range(4)]
    found = cleanable(log_to_retain(segments, noted=noted, start=start), SETTINGS)
    assert found.first_dirty_offset == first
    assert found.is_reset is (noted in (99, 5))
    # in the active segment, so there is nothing to clean
    if noted == 35:
        assert found.dirty_bytes == 0


@pytest.mark.behaviour("C57")
def test_merged_segment_has_the_mtime_of_its_last_source(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    for n in range(3):
        topic.send((n, n), ("all", n))
        topic.roll()
    directory = topic.close()
    for n, base in enumerate((0, 2, 4)):
        touch(directory, base, T0 + 1000 * n)
        os.chmod(log(directory, base), 0o640)
    clean(directory)
    names = [f"{0:020}{suffix}" for suffix in (".log", ".index", ".timeindex")]
    found = [(directory / name).stat() for name in names]
    assert {status.st_mtime_ns // 1_000_000 for status in found} == {T0 + 2000}
    assert {status.st_mode & 0o777 for status in found} == {0o640}


@pytest.mark.behaviour("C58")
def test_snapshots_of_merged_segments_are_marked_deleted(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    for n in range(3):
        topic.send(("a", n), producer=1)
        topic.roll()
    directory = topic.close()
    clean(directory, now_ms=T0)
    snapshots = sorted(int(path.name[:20]) for path in directory.glob("*.snapshot"))
    assert snapshots == [3]
    assert sorted(path.name[-18:] for path in directory.glob("*.snapshot.deleted")) == [
        "1.snapshot.deleted",
        "2.snapshot.deleted",
    ]
    assert {path.name for path in directory.glob("*.log.deleted")} == {
        f"{n:020}.log.deleted" for n in range(3)
    }


@pytest.mark.behaviour("C54")
def test_second_cleaning_changes_nothing(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    for n in range(30):
        topic.send((n % 7, n), codec=n % 5)
        if n % 8 == 0:
            topic.roll()
    directory = topic.roll_and_close()
    clean(directory)
    assert [key for _, key, _ in kept(directory)] == [str(n % 7) for n in range(23, 30)]
    with unchanged(directory):
        again = clean(directory, apply=True)
    assert again.result["steps"] == 0


# --- around the partition


def data_directory(tmp_path: Path) -> Path:
    topic = Topic(tmp_path)
    topic.send(("a", 1), ("a", 2))
    topic.roll_and_close()
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    (tmp_path / CHECKPOINT).write_bytes(b"0\n1\nother 3 17\n")
    return topic.directory


def run(directory: Path, **options: object) -> None:
    chosen = {"settings": SETTINGS, "apply": True, "run_id": "a-run", **options}
    target = PartitionTarget(str(directory), str(directory.parent))
    whole = CompactRun(CompactOptions(**chosen))  # type: ignore[arg-type]
    with whole.held([target]):
        list(whole.through(compact(target, CompactOptions(**chosen))))  # type: ignore[arg-type]


def test_compact_updates_the_cleaner_checkpoint(tmp_path: Path) -> None:
    directory = data_directory(tmp_path)
    run(directory)
    found = offsets_by_partition(decode_offset_checkpoint((tmp_path / CHECKPOINT).read_bytes()))
    assert found == {("other", 3): 17, ("accounts", 0): 2}
    with unchanged(tmp_path):
        run(directory, first_dirty_offset=None, from_checkpoint=True, run_id="b-run")


def test_compact_plan_and_copy_leave_the_log_unchanged(tmp_path: Path) -> None:
    directory = data_directory(tmp_path)
    with unchanged(tmp_path):
        run(directory, apply=False)
    copies = tmp_path / "copies"
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    run(directory, apply=False, output=str(copies))
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert kept(copies / directory.name) == [(1, "a", "2")]
    assert not list((copies / directory.name).glob("*.deleted"))


def test_undo_restores_a_compacted_log(tmp_path: Path) -> None:
    from kseg.change.apply.undo_command import UndoOptions, undo_journal

    directory = data_directory(tmp_path)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}
    clean(directory)
    list(undo_journal(str(directory), UndoOptions()))
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()} == before


def test_planning_several_rounds_leaves_no_files(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    for n in range(40):
        topic.send((n % 9, n))
        if n % 10 == 9:
            topic.roll()
    directory = topic.close()
    with unchanged(tmp_path):
        plan = clean(directory, map_bytes=24 * 5, apply=False).result
    assert plan["passes"] > 1
    done = clean(directory, map_bytes=24 * 5).result
    assert (done["passes"], done["bytes_after"]) == (plan["passes"], plan["bytes_after"])
    assert [key for _, key, _ in kept(directory)] == [str(n % 9) for n in range(31, 40)]
    assert all(batch.crc_valid for batch in batches(directory))


def test_directory_marked_for_deletion_is_not_compacted(tmp_path: Path) -> None:
    topic = Topic(tmp_path, name=f"accounts-0.{'0a' * 16}-delete")
    topic.send(("a", 1), ("a", 2))
    topic.roll()
    assert clean(topic.close()).kinds == {"not-compacted"}
    with pytest.raises(UsageError):
        list(compact(FileTarget(str(log(topic.directory, 0))), CompactOptions(settings=SETTINGS)))


def test_leftover_files_of_a_brokers_cleaning_are_removed_first(tmp_path: Path) -> None:
    directory = data_directory(tmp_path)
    stale = directory / f"{0:020}.index.cleaned"
    stale.write_bytes(b"stale")
    clean(directory)
    assert not list(directory.glob("*.cleaned"))
    assert kept(directory) == [(1, "a", "2")]


def test_offset_map_too_small_for_a_key_is_refused() -> None:
    for size in (0, 24, 47):
        with pytest.raises(UsageError):
            CleanSettings(now_ms=0, map_bytes=size).check()
    CleanSettings(now_ms=0, map_bytes=48).check()
    with pytest.raises(UsageError):
        CleanSettings(now_ms=0, map_bytes=1 << 60).check()


@pytest.mark.behaviour("C56")
def test_retention_and_compaction_apply_to_one_topic(tmp_path: Path) -> None:
    from kseg.compaction.retention.options import Limits, RetainOptions, policies_of
    from tests.support.one_target import retain

    topic = Topic(tmp_path)
    topic.send(("only old", 1), ("a", 1))
    topic.roll()
    topic.time_ms = T0 + 9 * DAY_MS
    topic.send(("a", 2), ("b", 2))
    topic.roll()
    topic.send(("a", 3))
    directory = topic.roll_and_close()
    limits = Limits(retention_ms=5 * DAY_MS, policies=policies_of(("compact", "delete")))
    chosen = RetainOptions(limits=limits, now_ms=SETTINGS.now_ms, apply=True, run_id="retain")
    list(retain(PartitionTarget(str(directory)), chosen))
    clean(directory)
    assert kept(directory) == [(3, "b", "2"), (4, "a", "3")]
