"""Retention of logs with tiered storage: only segments that have been copied are deleted, by the limits of local.retention, and the log
start stays, because with a higher one a broker would delete the segments in remote storage. The rules are compared with UnifiedLog in
`tests/kafka/test_retain_differential.py`, and a broker continues after a retention in `tests/kafka/test_tiered_broker.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kseg.compaction.retention.options import Limits, RetainOptions
from kseg.compaction.retention.run import RetainRun
from kseg.segment.partition.names import Role
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.partition.topic_settings import Setting, Source, TopicSettings
from tests.internal_topics.metadata_logs import topic_id
from tests.internal_topics.remote_logs import FINISHED, update, upload, write_remote_log
from tests.support.command_lines import Capfd, json_run
from tests.support.retain_helpers import (
    DAY_MS,
    NOW,
    Part,
    RetainOutcome,
    bases,
    checkpoint,
    epochs,
    give_epochs,
    lay,
    noted,
    run,
)

TIERED = {"cleanup.policy": "delete", "remote.storage.enable": "true", "local.retention.ms": str(DAY_MS)}
EPOCHS = ((0, 0), (1, 12), (3, 24))


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Offsets 20 to 39 in four segments, the last one of today. The log start is 3."""
    partition = lay(
        tmp_path, [Part(5, 3 * DAY_MS), Part(5, 3 * DAY_MS), Part(5, 3 * DAY_MS), Part(5, 0)], start=20
    )
    checkpoint(partition, Role.LOG_START_OFFSETS, 3)
    give_epochs(partition, *EPOCHS)
    return partition


def retained(
    partition: Path, remote_end: int | None, changed: dict[str, str] | None = None, **options: Any
) -> RetainOutcome:
    settings = {name: Setting(value, Source.TOPIC) for name, value in {**TIERED, **(changed or {})}.items()}
    topics = {str(partition): TopicSettings(settings, remote_end_offset=remote_end)}
    return run(partition, topics=topics, **options)


def state(partition: Path) -> tuple[list[int], list[tuple[int, int]], int | None]:
    return bases(partition), epochs(partition), noted(partition, Role.LOG_START_OFFSETS)


@pytest.mark.evidence("remote-end")
def test_copied_segments_are_deleted_and_the_log_start_stays(partition: Path) -> None:
    outcome = retained(partition, 30, apply=True)
    assert state(partition) == ([30, 35], list(EPOCHS), 3)
    assert (outcome.result["deleted"], outcome.result["log_start_offset"]) == ([20, 25], 3)
    assert (outcome.result["tiered"], outcome.result["remote_end_offset"]) == (True, 30)
    assert outcome.verdicts[2:] == [(30, "keep", "not-copied"), (35, "keep", "retention.ms")]
    assert "up to 30, and the segment ends at 35" in outcome.segments[2]["reason"]


@pytest.mark.evidence("remote-end")
@pytest.mark.parametrize("remote_end", [None, 0, 24])
def test_segments_not_known_to_be_copied_are_kept(partition: Path, remote_end: int | None) -> None:
    outcome = retained(partition, remote_end, apply=True)
    assert state(partition) == ([20, 25, 30, 35], list(EPOCHS), 3)
    assert outcome.verdicts[0] == (20, "keep", "not-copied") and outcome.verdicts[1][2] == "order"
    assert ("nothing here says" in outcome.segments[0]["reason"]) is (not remote_end)


@pytest.mark.parametrize("said", [{}, {"remote.storage.enable": "false"}, {"retention.ms": "-1"}])
def test_log_that_may_have_older_records_in_remote_storage_needs_a_word_about_that(
    partition: Path, said: dict[str, str]
) -> None:
    """Without the metadata log, a policy from the command line does not say whether the topic has tiered storage. A checkpointed log start
    and leader epochs below the first segment say that it may."""
    given = {"cleanup.policy": "delete", "retention.ms": str(DAY_MS), **said}
    topics = {str(partition): TopicSettings({k: Setting(v, Source.OPTION) for k, v in given.items()})}
    before = state(partition)
    outcome = run(partition, topics=topics, apply=True)
    if said.get("remote.storage.enable") == "false":
        assert bases(partition) == [35]
        return
    assert state(partition) == before
    # nothing is due without a limit
    assert bool(outcome.failures) is (not said)


def test_older_records_in_remote_storage_are_no_question_where_the_topic_is_known(partition: Path) -> None:
    given = {name: Setting("delete", Source.OPTION) for name in ("cleanup.policy",)}
    given["retention.ms"] = Setting(str(DAY_MS), Source.TOPIC)
    outcome = run(partition, topics={str(partition): TopicSettings(given, has_configs=True)}, apply=True)
    assert not outcome.failures and bases(partition) == [35]


def test_segments_below_a_raised_log_start_need_no_copy(partition: Path) -> None:
    """As after DeleteRecords. The broker deletes the remote segments below the log start."""
    outcome = retained(partition, None, {"local.retention.ms": "-1"}, apply=True, log_start_offset=27)
    assert outcome.result["deleted"] == [20] and outcome.result["log_start_offset"] == 27
    assert state(partition) == ([25, 30, 35], [(3, 27)], 27)
    retained(partition, None, {"local.retention.ms": "-1"}, apply=True, log_start_offset=9)
    assert noted(partition, Role.LOG_START_OFFSETS) == 27


def test_log_start_below_the_local_segments_can_be_raised(partition: Path) -> None:
    retained(partition, None, {"local.retention.ms": "-1"}, apply=True, log_start_offset=14)
    assert state(partition) == ([20, 25, 30, 35], [(1, 14), (3, 24)], 14)


def test_unmark_of_a_tiered_log_keeps_the_log_start(partition: Path) -> None:
    retained(partition, 40, apply=True)
    assert bases(partition) == [35]
    outcome = retained(partition, 40, apply=True, unmark=True)
    assert outcome.result["log_start_offset"] == 3
    assert state(partition) == ([20, 25, 30, 35], list(EPOCHS), 3)


@pytest.mark.parametrize(
    ("changed", "deleted"),
    [
        ({"local.retention.ms": "-2", "retention.ms": str(DAY_MS)}, [20, 25]),
        ({"local.retention.ms": "-2", "retention.ms": str(9 * DAY_MS)}, []),
        ({"local.retention.ms": "-1", "retention.ms": "1"}, []),
        ({"local.retention.ms": "-1", "local.retention.bytes": "1"}, [20, 25]),
        ({"local.retention.ms": "-1", "local.retention.bytes": "-2", "retention.bytes": "1"}, [20, 25]),
        ({"cleanup.policy": ""}, [20, 25]),
        ({"local.retention.ms": "-2", "retention.ms": "1", "remote.storage.enable": "false"}, [20, 25, 30]),
        ({"retention.ms": str(DAY_MS), "remote.log.copy.disable": "true"}, [20, 25, 30]),
        ({"cleanup.policy": "compact"}, []),
        ({"cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)}, [20, 25, 30]),
    ],
)
def test_local_retention_limits_of_a_tiered_topic(
    partition: Path, changed: dict[str, str], deleted: list[int]
) -> None:
    """Kafka: LogConfig.localRetentionMs, UnifiedLog.isRemoteLogEnabled, KIP-950 for remote.log.copy.disable. The active segment stays,
    because it is of today and not copied."""
    if changed.get("retention.ms") == "1":
        changed = {**changed, "retention.ms": str(DAY_MS)}
    assert retained(partition, 30, changed).result["deleted"] == deleted


def test_free_chooses_only_copied_segments_of_a_tiered_log(partition: Path) -> None:
    settings = {name: Setting(value, Source.TOPIC) for name, value in TIERED.items()}
    topics = {str(partition): TopicSettings(settings, remote_end_offset=27)}
    limits = RetainOptions(limits=Limits(), now_ms=NOW, topics=topics, free_bytes=1 << 40)
    whole = RetainRun(limits)
    whole.begin([PartitionTarget(str(partition), str(partition.parent))])
    assert whole.choice is not None and whole.choice.cuts == {str(partition): 25}
    (file_system,) = whole.choice.file_systems
    assert set(file_system.held) == {"not-copied", "active"}


@pytest.mark.evidence("remote-end")
def test_copied_segments_are_those_of_the_logs_own_epochs(
    partition: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """Only copies of the log's own leader epochs count, not a segment of another history."""
    place = ("orders", topic_id(1), 0)
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {place[1]}")
    records = []
    for number, start, end, of_epochs in (
        (1, 3, 24, {0: 3, 1: 12, 3: 24}),
        (2, 25, 29, {3: 25}),
        (3, 30, 34, {2: 30}),
    ):
        segment = topic_id(100 + number)
        records += [upload(place, segment, start, end, of_epochs), update(place, segment, FINISHED)]
    write_remote_log(partition.parent / "__remote_log_metadata-5", records)
    config = tmp_path / "topic.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in TIERED.items()))
    words = (
        "retain",
        "--config",
        config,
        "--now",
        "2023-11-14T22:13:20Z",
        "--topic",
        "orders",
        partition.parent,
    )
    _, rows = json_run(*words, capfd=capfd)
    (result,) = [row for row in rows if row["type"] == "result" and "partition" in row]
    assert (result["remote_end_offset"], result["deleted"]) == (30, [20, 25])
