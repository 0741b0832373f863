"""`kseg metadata` as of an earlier offset or time, and the history of the cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.internal_topics.metadata_logs import T0, config, record, topic, topic_id, write_log, write_snapshot
from tests.support.command_lines import Capfd
from tests.support.metadata_rows import LOG, of, one, rows


def test_metadata_at_every_offset_of_a_brokers_log(capture_small: Path, capfd: Capfd) -> None:
    """At the snapshot's end offset the snapshot gives the same image. An unfinished transaction is not visible (fact sheet §12.3)."""
    log = capture_small / "data" / LOG
    assert of(rows(capfd, "--offset", 5, log), "feature") == []
    assert len(of(rows(capfd, "--offset", 10, log), "feature")) > 3
    (snapshot,) = log.glob("*.checkpoint")
    alone = rows(capfd, snapshot)
    at_68 = rows(capfd, "--offset", 68, log)
    assert one(alone, "metadata")["offset"] == one(at_68, "metadata")["offset"] == 68
    assert one(at_68, "metadata")["snapshot"] == str(snapshot)
    kinds = ("topic", "partition", "config", "broker", "feature")
    for kind in kinds:
        assert of(alone, kind) == of(at_68, kind)
    topics = [len(of(rows(capfd, "--offset", offset, log), "topic")) for offset in range(60, 140, 7)]
    assert topics == sorted(topics) and topics[-1] > topics[0]


def test_metadata_before_the_oldest_snapshot_is_refused(tmp_path: Path, capfd: Capfd) -> None:
    """The log starts at 4, so the state before the oldest snapshot is unknown, and the message names the first offset that can be shown."""
    log = tmp_path / LOG
    write_log(log, topic("later", topic_id(3)), topic("last", topic_id(4)), base_offset=4)
    write_snapshot(log, 4, topic("first", topic_id(1)))
    write_snapshot(log, 6, [*topic("first", topic_id(1)), *topic("later", topic_id(3))])
    assert [row["topic"] for row in of(rows(capfd, "--offset", 3, log), "topic")] == ["first"]
    assert [row["topic"] for row in of(rows(capfd, "--offset", 5, log), "topic")] == ["first", "later"]
    assert one(rows(capfd, "--offset", 99, log), "metadata")["offset"] == 7
    assert run(["metadata", "--offset", "2", str(log)]) == 3
    assert "from offset 3 on" in capfd.readouterr().err
    assert run(["metadata", "--at", str(T0 - 1), str(log)]) == 3
    assert f"from offset 3 on, time {T0}" in capfd.readouterr().err
    old = next(log.glob("*4-*.checkpoint"))
    old.rename(old.with_name(old.name + ".deleted"))
    assert [row["topic"] for row in of(rows(capfd, "--offset", 3, log), "topic")] == ["first"]


@pytest.mark.parametrize("place", [("--offset", "139"), ("--offset", "9999"), ("--at", "2100-01-01")])
def test_metadata_at_the_log_end_is_not_an_earlier_state(
    place: tuple[str, str], capture_small: Path, capfd: Capfd
) -> None:
    def shown(*words: str) -> str:
        assert run(["metadata", *words, str(capture_small / "data")]) == 0
        return capfd.readouterr().out

    def state(*words: str) -> list[str]:
        return [line for line in shown("--json", *words).splitlines() if is_state(line)]

    def is_state(line: str) -> bool:
        return json.loads(line)["type"] not in ("finding", "summary")

    assert state(*place) == state()
    notes = [line for line in shown(*place).splitlines() if line not in shown().splitlines()]
    if place == ("--offset", "139"):
        assert notes == []
    else:
        (note,) = notes
        assert "the log ends at offset 139" in note and "not known here" in note
    assert shown("--json", "--offset", "138").count('"earlier":true') == 1


def test_metadata_at_a_time_before_the_last_record_is_the_log_end(capture_small: Path, capfd: Capfd) -> None:
    """An idle controller writes twice a second. A time between its last two records means the end of the log."""
    log = capture_small / "data" / LOG
    end_ms = one(rows(capfd, log), "metadata")["timestamp"]
    assert of(rows(capfd, "--at", end_ms + 400, log), "finding") == []
    (note,) = of(rows(capfd, "--at", end_ms + 60_000, log), "finding")
    assert (note["id"], note["severity"], note["first_offset"]) == ("metadata-log-note", "info", 139)


def test_metadata_before_the_first_record_is_empty(tmp_path: Path, capfd: Capfd) -> None:
    write_log(tmp_path / LOG, topic("orders", topic_id(1)))
    found = rows(capfd, "--at", T0 - 1, tmp_path / LOG)
    reported = one(found, "metadata")
    assert (
        reported["offset"] is reported["epoch"] is reported["timestamp"] is None and of(found, "topic") == []
    )
    assert len(of(rows(capfd, "--at", T0, tmp_path / LOG), "topic")) == 1


@pytest.mark.parametrize("with_snapshots", [False, True])
def test_metadata_at_a_time_when_the_clock_went_back(
    with_snapshots: bool, tmp_path: Path, capfd: Capfd
) -> None:
    """All batches of that time or earlier count, in whatever order they are, and no others. A snapshot that contains a later batch is not
    used, even if its last record is early enough."""
    log, names = tmp_path / LOG, ["first", "ahead", "back", "later"]
    made = [topic(name, topic_id(number)) for number, name in enumerate(names, 1)]
    write_log(log, *made, times_ms=[T0, T0 + 900, T0 + 100, T0 + 901])
    if with_snapshots:
        write_snapshot(log, 2, made[0], time_ms=T0)
        write_snapshot(log, 6, [*made[0], *made[1], *made[2]], time_ms=T0 + 100)

    def at(time_ms: int) -> tuple[list[str], Any, Any]:
        found = rows(capfd, "--at", time_ms, log)
        state = one(found, "metadata")
        return [row["topic"] for row in of(found, "topic")], state["offset"], state["timestamp"]

    assert at(T0 + 99) == (["first"], 1, T0)
    assert at(T0 + 100) == (["back", "first"], 5, T0 + 100)
    assert at(T0 + 899) == (["back", "first"], 5, T0 + 100)
    assert at(T0 + 900) == (["ahead", "back", "first"], 5, T0 + 100)
    assert at(T0 + 901) == (["ahead", "back", "first", "later"], 7, T0 + 901)
    assert run(["metadata", "--at", str(T0 + 100), str(log)]) == 0
    reported = capfd.readouterr()
    assert "the clock went back: offsets 2 to 3" in reported.out + reported.err


def test_metadata_at_a_time_refuses_a_snapshot_with_later_batches(tmp_path: Path, capfd: Capfd) -> None:
    """The later batch cannot be removed from the snapshot, and nothing else contains the state."""
    log = tmp_path / LOG
    made = [topic(name, topic_id(number)) for number, name in enumerate(["ahead", "back", "more"], 1)]
    write_log(log, *made, base_offset=2, times_ms=[T0 + 900, T0 + 100, T0 + 200])
    write_snapshot(log, 6, [*made[0], *made[1]], time_ms=T0 + 100)
    assert run(["metadata", "--at", str(T0 + 200), str(log)]) == 3
    capfd.readouterr()
    assert len(of(rows(capfd, "--at", T0 + 900, log), "topic")) == 3


@pytest.mark.parametrize(
    ("times", "first_seen"),
    [
        ([0, 1, 2, 3], 3),
        ([0, 3, 2, 1], 3),  # the topic is the latest of all
        ([3, 2, 1, 0], 2),  # it counts with its End, although Begin is later
        ([2, 0, 1, 3], 3),  # the transaction is unfinished, although Begin is later
    ],
)
def test_metadata_transaction_takes_effect_at_its_end(
    times: list[int], first_seen: int, tmp_path: Path, capfd: Capfd
) -> None:
    """Begin, a topic, another record, End: the topic exists at times that include both its own record and the End."""
    log = tmp_path / LOG
    begin = record("BeginTransactionRecord", name="x")
    no_op, end = record("NoOpRecord"), record("EndTransactionRecord")
    write_log(
        log, [begin], topic("orders", topic_id(1), 0), [no_op], [end], times_ms=[T0 + at for at in times]
    )
    seen = [bool(of(rows(capfd, "--at", T0 + time, log), "topic")) for time in range(4)]
    assert seen == [time >= first_seen for time in range(4)]


def test_history_of_a_brokers_metadata_log(capture_small: Path, capfd: Capfd) -> None:
    """Each event names the controller that wrote it: the leader of its epoch."""
    events = of(rows(capfd, "--history", capture_small / "data" / LOG), "event")
    assert {event["epoch"] for event in events} == {1, 2}
    assert {event["controller_id"] for event in events} == {1}


def test_history_names_author_change_and_previous_value(tmp_path: Path, capfd: Capfd) -> None:
    """Who created, changed and deleted what, with the previous values. Records of an aborted transaction have no author."""
    write_log(
        tmp_path / LOG,
        [*topic("orders", topic_id(1), 2), config("orders", "retention.ms", "5")],
        [config("orders", "retention.ms", "6"), config("orders", "retention.ms", None)],
        [record("PartitionChangeRecord", partitionId=1, topicId=topic_id(1), leader=2, isr=[2])],
        [record("BeginTransactionRecord"), *topic("never", topic_id(5)), record("AbortTransactionRecord")],
        [record("RemoveTopicRecord", topicId=topic_id(1))],
    )
    events = of(rows(capfd, "--history", tmp_path / LOG), "event")
    assert [(event["offset"], event["event"]) for event in events] == [
        (0, "topic-created"),
        (3, "config-set"),
        (4, "config-set"),
        (5, "config-removed"),
        (6, "leader-changed"),
        (11, "topic-deleted"),
    ]
    assert {event["topic"] for event in events} == {"orders"}
    assert events[0]["details"] == events[-1]["details"] == {"partitions": 2}
    assert [event["details"]["former_value"] for event in events[1:4]] == [None, "5", "6"]
    assert events[4]["details"]["before"]["leader"] == 1 and events[4]["nodes"] == [1, 2]
    assert len(of(rows(capfd, "--history", "--node", 2, tmp_path / LOG), "event")) == 1
    assert len(of(rows(capfd, "--history", "--offset", 4, tmp_path / LOG), "event")) == 3


def test_long_history_of_a_renamed_copy_is_complete_and_in_order(tmp_path: Path, capfd: Capfd) -> None:
    """More events than are buffered, each once and in order. The directory is a copy of a metadata log."""
    copy = tmp_path / "copied"
    settings = [config("orders", "retention.ms", str(number)) for number in range(1200)]
    write_log(copy, topic("orders", topic_id(1), 3), *(settings[at : at + 50] for at in range(0, 1200, 50)))
    events = of(rows(capfd, "--history", copy), "event")
    assert [event["offset"] for event in events] == [0, *range(4, 1204)]
    assert events[0]["details"] == {"partitions": 3}
    assert [event["details"]["former_value"] for event in events[2:4]] == ["0", "1"]
    capfd.readouterr()
    assert run(["metadata", "--history", str(copy)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[1] == "1,201 events: 1,200 config-set, 1 topic-created" and len(lines) == 43
    assert lines[2] == "  the last 40; 1,161 earlier ones: --verbose shows all"
