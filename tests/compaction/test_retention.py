"""The rules of retention on constructed directories (rows T of the acceptance list)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.compaction.retention.options import Limits, RetentionPolicy
from kseg.compaction.retention.rules import Candidate, LogToRetain, Rule, decide, thresholds, what_if
from kseg.segment.partition.names import Role
from tests.support.retain_helpers import DAY_MS, NOW, Part, bases, checkpoint, give_mtime, lay, noted, run
from tests.support.trees import unchanged

DELETE_AND_COMPACT = frozenset((RetentionPolicy.DELETE, RetentionPolicy.COMPACT))
COMPACT = frozenset((RetentionPolicy.COMPACT,))


def log_to_retain(
    *sizes_and_ages: tuple[int, int], start: int = 0, high_watermark: int | None = None
) -> LogToRetain:
    """Segments of ten offsets each, with these sizes and ages."""
    candidates = tuple(
        Candidate(10 * number, size, NOW - age) for number, (size, age) in enumerate(sizes_and_ages)
    )
    end = 10 * len(candidates)
    return LogToRetain(candidates, start, end, end if high_watermark is None else high_watermark, NOW)


def gone(log_to_retain: LogToRetain, limits: Limits) -> int:
    return len(decide(log_to_retain, limits).rules)


# --- size


@pytest.mark.evidence("segment-sizes")
@pytest.mark.behaviour("T01")
def test_retention_by_size_deletes_the_oldest_down_to_the_limit(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5), Part(5)])
    size = (partition / f"{0:020}.log").stat().st_size
    output = run(partition, Limits(retention_bytes=2 * size), apply=True)
    assert output.result["deleted"] == [0] and bases(partition) == [5, 10]
    assert output.result["bytes_freed"] == size
    assert output.verdicts[0] == (0, "delete", "retention.bytes")


@pytest.mark.behaviour("T02")
def test_log_of_exactly_the_size_limit_is_kept(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5), Part(5)])
    size = sum(path.stat().st_size for path in partition.glob("*.log"))
    with unchanged(partition.parent):
        assert run(partition, Limits(retention_bytes=size), apply=True).result["deleted"] == []


@pytest.mark.behaviour("T03")
def test_segment_is_deleted_only_if_the_rest_reaches_the_size_limit() -> None:
    twenty = log_to_retain(*[(100, 0)] * 20)
    assert 20 - gone(twenty, Limits(retention_bytes=510)) == 6
    assert 20 - gone(twenty, Limits(retention_bytes=500)) == 5
    assert 20 - gone(twenty, Limits(retention_bytes=-1)) == 20


# --- time


@pytest.mark.behaviour("T04")
def test_deleting_all_expired_segments_leaves_a_new_empty_one(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5), Part(5)])
    assert run(partition, Limits(retention_ms=DAY_MS), apply=True).result["deleted"] == []
    output = run(partition, Limits(retention_ms=DAY_MS - 1), apply=True)
    assert output.result["deleted"] == [0, 5, 10] and output.result["rolled"] is True
    live = {path.name for path in partition.iterdir() if path.is_file() and path.suffix != ".deleted"}
    new = {f"{15:020}{suffix}" for suffix in (".log", ".index", ".timeindex", ".snapshot")}
    assert live == new | {"leader-epoch-checkpoint"}
    assert all((partition / name).stat().st_size == 0 for name in new if not name.endswith(".snapshot"))
    assert (output.result["log_start_offset"], output.result["log_end_offset"]) == (15, 15)


@pytest.mark.behaviour("T04")
def test_log_without_expired_segments_is_unchanged(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5, age_ms=0), Part(5, age_ms=0)])
    with unchanged(partition.parent):
        output = run(partition, Limits(retention_ms=10_000), apply=True)
    assert output.result["deleted"] == []


def test_retention_by_time_deletes_only_strictly_older_segments() -> None:
    assert gone(log_to_retain((9, 1000), (9, 0)), Limits(retention_ms=1000)) == 0
    assert gone(log_to_retain((9, 1001), (9, 0)), Limits(retention_ms=1000)) == 1
    assert gone(log_to_retain((9, 1), (9, 1)), Limits(retention_ms=0)) == 2
    assert gone(log_to_retain((9, 10**15), (9, 0)), Limits(retention_ms=-1)) == 0


@pytest.mark.behaviour("T11")
def test_younger_segment_protects_the_older_one_after_it(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5, age_ms=0), Part(5, age_ms=9 * DAY_MS), Part(5, age_ms=0)])
    output = run(partition, Limits(retention_ms=DAY_MS))
    assert output.verdicts == [
        (0, "keep", "retention.ms"),
        (5, "keep", "order"),
        (10, "keep", "retention.ms"),
    ]
    assert output.segments[1]["reason"] == "it would be deleted, but segment 0 before it is kept"
    assert output.segments[0]["held_by"] == {"kind": "record", "offset": 0, "timestamp": NOW}
    assert output.segments[1]["held_by"] == output.segments[0]["held_by"]


@pytest.mark.behaviour("T11")
@pytest.mark.behaviour("T12")
def test_log_start_makes_way_for_the_time_limit_in_the_same_run(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5, age_ms=0), Part(5, age_ms=9 * DAY_MS), Part(5, age_ms=0)])
    limits = Limits(retention_ms=DAY_MS)
    output = run(partition, limits, log_start_offset=5, apply=True)
    assert [rule for _, verdict, rule in output.verdicts if verdict == "delete"] == [
        "log-start-offset",
        "retention.ms",
    ]
    assert bases(partition) == [10]
    with unchanged(partition):
        assert run(partition, limits, apply=True).result["deleted"] == []


@pytest.mark.evidence("record-times")
def test_record_with_a_future_timestamp_protects_the_log(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(3, age_ms=DAY_MS), Part(5, age_ms=-DAY_MS), Part(5)])
    output = run(partition, Limits(retention_ms=1000))
    assert output.verdicts == [
        (0, "delete", "retention.ms"),
        (3, "keep", "future-timestamp"),
        (8, "keep", "order"),
    ]
    assert output.segments[1]["held_by"] == {"kind": "record", "offset": 3, "timestamp": NOW + DAY_MS}
    assert "1 d in the future" in output.segments[1]["reason"]


@pytest.mark.evidence("record-times")
@pytest.mark.behaviour("T19")
@pytest.mark.parametrize("part", [Part(3, age_ms=None), Part(3, age_ms=None, magic=0, epoch=-1)])
def test_file_mtime_decides_for_segments_without_timestamps(tmp_path: Path, part: Part) -> None:
    partition = lay(tmp_path, [part, part])
    for path, age_ms in zip(sorted(partition.glob("*.log")), (5 * DAY_MS, 0), strict=True):
        give_mtime(path, age_ms)
    output = run(partition, Limits(retention_ms=DAY_MS))
    assert output.result["deleted"] == [0]
    assert output.segments[0]["largest_timestamp"] == -1
    assert output.segments[1]["held_by"] == {"kind": "file-time", "offset": None, "timestamp": NOW}


# --- policy and log start


@pytest.mark.behaviour("T05")
def test_policy_compact_deletes_neither_by_time_nor_by_size(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5)])
    output = run(partition, Limits(retention_ms=0, retention_bytes=0, policies=COMPACT))
    assert output.result["deleted"] == []
    assert {rule for _, _, rule in output.verdicts} == {"cleanup.policy"}
    assert run(partition, Limits(retention_ms=0, policies=frozenset())).result["deleted"] == []


@pytest.mark.parametrize(
    ("topic", "by_time", "by_size"),
    [
        ("__consumer_offsets", [], []),
        ("__transaction_state", [], []),
        ("__share_group_state", [], [0, 5]),
        ("__of_somebody", [0, 5], [0, 5]),
    ],
)
def test_internal_topics_have_their_own_policy(
    topic: str, by_time: list[int], by_size: list[int], tmp_path: Path
) -> None:
    """A 4.3.1 broker with log.retention.ms=1 and log.retention.bytes=0 does not delete from the first two."""
    partition = lay(tmp_path, [Part(5), Part(5)])
    partition = partition.rename(partition.with_name(f"{topic}-0"))
    assert run(partition, Limits(retention_ms=1), apply=False).result["deleted"] == by_time
    assert run(partition, Limits(retention_bytes=0), apply=False).result["deleted"] == by_size
    output = run(partition, Limits(retention_ms=1), apply=False, is_policy_given=True)
    assert output.result["deleted"] == [0, 5]


@pytest.mark.behaviour("T06")
def test_policy_compact_delete_deletes(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5)])
    limits = Limits(retention_ms=10_000, policies=DELETE_AND_COMPACT)
    assert run(partition, limits).result["deleted"] == [0, 5]


@pytest.mark.behaviour("T07")
def test_policy_compact_deletes_below_the_log_start(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5), Part(5)])
    checkpoint(partition, Role.LOG_START_OFFSETS, 7)
    output = run(partition, Limits(retention_ms=0, policies=COMPACT), apply=True)
    assert output.result["deleted"] == [0] and output.result["log_start_offset"] == 7
    assert noted(partition, Role.LOG_START_OFFSETS) == 7


@pytest.mark.behaviour("T08")
@pytest.mark.parametrize(("start", "left"), [(1, 3), (6, 2), (15, 1)])
def test_segment_containing_the_log_start_is_kept(tmp_path: Path, start: int, left: int) -> None:
    partition = lay(tmp_path, [Part(5), Part(5), Part(5)])
    output = run(partition, log_start_offset=start, apply=True)
    assert len(bases(partition)) == left == output.result["segments"]
    assert output.result["log_start_offset"] == start
    assert noted(partition, Role.LOG_START_OFFSETS) == start


def test_log_start_entry_below_the_first_segment_is_removed(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5, age_ms=0)])
    checkpoint(partition, Role.LOG_START_OFFSETS, 3)
    run(partition, Limits(retention_ms=1000), apply=True)
    assert noted(partition, Role.LOG_START_OFFSETS) is None
    assert b"other 1 5" in (partition.parent / "log-start-offset-checkpoint").read_bytes()


def test_log_start_is_never_lowered_nor_above_the_high_watermark(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5)])
    checkpoint(partition, Role.LOG_START_OFFSETS, 7)
    assert run(partition, log_start_offset=2).result["log_start_offset"] == 7
    (failure,) = run(partition, log_start_offset=9, high_watermark=8).failures
    assert failure.exit_status == 2 and "above its high watermark 8" in failure.sentence


# --- order and the ends


@pytest.mark.behaviour("T09")
def test_only_the_oldest_segments_and_no_empty_last_one_are_deleted() -> None:
    ten = [(9, 100)] * 6 + [(9, 0)] * 4
    assert gone(log_to_retain(*ten), Limits(retention_ms=10)) == 6
    assert gone(log_to_retain(*[(9, 100)] * 10), Limits(retention_ms=10)) == 10
    assert gone(log_to_retain(*[(9, 100)] * 9, (0, 100)), Limits(retention_ms=10)) == 9
    assert gone(log_to_retain((0, 100)), Limits(retention_ms=10, retention_bytes=0)) == 0
    assert gone(log_to_retain((0, 100), (0, 100), (9, 0)), Limits(retention_ms=10)) == 2


@pytest.mark.behaviour("T10")
def test_deletion_stops_at_the_first_kept_segment() -> None:
    ages = log_to_retain((9, 100), (9, 100), (9, 0), (9, 100), (9, 100))
    decision = decide(ages, Limits(retention_ms=10))
    assert decision.rules == (Rule.TIME, Rule.TIME)
    assert (decision.log_start_offset, decision.rolls) == (20, False)


@pytest.mark.behaviour("T13")
@pytest.mark.parametrize(("high_watermark", "left"), [(25, 8), (29, 8), (30, 7), (100, 0)])
def test_segments_above_the_high_watermark_are_kept(high_watermark: int, left: int) -> None:
    hundred = log_to_retain(*[(9, 100)] * 10, high_watermark=high_watermark)
    decision = decide(hundred, Limits(retention_ms=10))
    assert 10 - len(decision.rules) == left
    assert decision.log_start_offset <= high_watermark


@pytest.mark.evidence("high-watermark")
@pytest.mark.behaviour("T13")
def test_high_watermark_comes_from_the_checkpoint(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5), Part(5), Part(5)])
    checkpoint(partition, Role.HIGH_WATERMARKS, 9)
    output = run(partition, Limits(retention_ms=1000))
    assert output.result["deleted"] == [0] and output.result["high_watermark"] == 9
    assert output.segments[1]["rule"] == "high-watermark"
    assert output.segments[1]["held_by"] == {"kind": "high-watermark", "offset": 9, "timestamp": None}
    assert run(partition, Limits(retention_ms=1000), high_watermark=15).result["deleted"] == [0, 5, 10]


# --- epochs and snapshots


# --- what is believed


def test_time_index_is_trusted_after_a_clean_stop(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5, age_ms=0), Part(5, age_ms=0)])
    (partition / f"{0:020}.timeindex").write_bytes(bytes(24))
    output = run(partition, Limits(retention_ms=DAY_MS))
    assert output.result["deleted"] == [0]
    assert [finding.id for finding in output.findings] == ["time-index-zeros-believed"]


def test_timestamps_come_from_the_batches_after_an_unclean_stop(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5, age_ms=0), Part(5, age_ms=0)])
    (partition.parent / ".kafka_cleanshutdown").unlink()
    for base in (0, 5):
        (partition / f"{base:020}.timeindex").write_bytes(bytes(12_000))
    output = run(partition, Limits(retention_ms=DAY_MS))
    assert output.result["deleted"] == [] and output.segments[0]["largest_timestamp"] == NOW
    checkpoint(partition, Role.RECOVERY_POINTS, 5)
    assert run(partition, Limits(retention_ms=DAY_MS)).result["deleted"] == [0]


def test_missing_limit_deletes_nothing(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5, age_ms=9999 * DAY_MS), Part(5)])
    output = run(partition)
    assert output.result["deleted"] == []
    assert {rule for _, _, rule in output.verdicts} == {"no-limit"}


# --- other limits


def test_thresholds_are_the_greatest_limits_that_delete_a_segment() -> None:
    log = log_to_retain((10, 500), (20, 100), (30, 300), high_watermark=25)
    for index, threshold in enumerate(thresholds(log)):
        for name in ("retention_ms", "retention_bytes"):
            value = getattr(threshold, name)
            if value is None:
                continue
            assert gone(log, Limits(**{name: value})) > index
            assert gone(log, Limits(**{name: value + 1})) <= index
    assert [threshold.retention_ms for threshold in thresholds(log)] == [499, 99, None]
    assert [threshold.retention_bytes for threshold in thresholds(log)] == [50, 30, None]


def test_what_if_names_the_bytes_each_limit_alone_frees(tmp_path: Path) -> None:
    partition = lay(tmp_path, [Part(5, age_ms=3 * DAY_MS), Part(5, age_ms=DAY_MS // 2)])
    with unchanged(partition.parent):
        rows = run(partition, what_if=True).others
    by_time = {row["value"]: row["segments"] for row in rows if row["rule"] == "retention.ms"}
    assert by_time[3_600_000] == 2 and by_time[DAY_MS] == 1 and by_time[7 * DAY_MS] == 0
    by_size = [(row["value"], row["bytes_freed"]) for row in rows if row["rule"] == "retention.bytes"]
    size = sum(path.stat().st_size for path in partition.glob("*.log"))
    assert by_size[0] == (0, size) and by_size[-1][1] == 0
    assert what_if(log_to_retain((9, 9)), Limits(policies=COMPACT))[0].segments == 0
