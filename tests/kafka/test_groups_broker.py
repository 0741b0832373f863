"""`kseg groups` compared with a real broker with two log dirs: groups of all four protocols, offsets in transactions, deleted and expired
offsets, and a compacted `__consumer_offsets`. kseg reads copies of the disk; Admin and `kafka-consumer-groups.sh` are asked at the same
moment.

Takes about a minute and a half: one broker goes through all of it, is stopped, and loads what it wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.lived_groups import FARES, ODD_GROUP, PARTITIONS, RIDES, Lived, live
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    require_kafka()
    root = tmp_path_factory.mktemp("groups")
    data = root / "data"
    broker = Broker(
        root / "broker",
        data / "d1",
        log_dirs=f"{data / 'd1'},{data / 'd2'}",
        offsets_topic_num_partitions="5",
        share_coordinator_state_topic_num_partitions="2",
        offsets_retention_check_interval_ms="1000",
        group_share_record_lock_duration_ms="15000",
        log_cleaner_min_compaction_lag_ms="0",
    )
    with broker:
        yield live(broker, root)


# --- comparisons


def shown(capfd: pytest.CaptureFixture[str], *words: object) -> list[dict[str, Any]]:
    return rows_of(capfd, "groups", *words, status=0)


def _picked(rows: list[dict[str, Any]], kind: str, *names: str) -> set[tuple[Any, ...]]:
    return {tuple(row[name] for name in names) for row in rows if row["type"] == kind}


def _truth(rows: list[dict[str, Any]], *names: str) -> set[tuple[Any, ...]]:
    return {tuple(row[name] for name in names) for row in rows}


def _places(row: dict[str, Any]) -> tuple[tuple[Any, ...], ...]:
    return tuple(sorted((place["topic"], place["partition"]) for place in row["assignment"]))


GROUP = ("group", "group_type", "state")
OFFSET = ("group", "topic", "partition", "offset", "leader_epoch", "metadata")
MEMBER = ("group", "member_id", "group_instance_id", "client_id", "client_host")
SHARE = ("group", "topic", "partition", "start_offset")


def _agree(rows: list[dict[str, Any]], truth: dict[str, Any]) -> None:
    assert not [row for row in rows if row["type"] == "finding" and row["severity"] == "error"]
    assert _picked(rows, "group", *GROUP) == _truth(truth["groups"], *GROUP)
    assert _picked(rows, "offset", *OFFSET) == _truth(truth["offsets"], *OFFSET)
    assert _picked(rows, "member", *MEMBER) == _truth(truth["members"], *MEMBER)
    members = {row["member_id"]: row for row in rows if row["type"] == "member"}
    for reported in truth["members"]:
        found = members[reported["member_id"]]
        if "active_tasks" in reported:
            tasks = [(task["subtopology"], task["partition"]) for task in reported["active_tasks"]]
            assert sorted(
                (task["subtopology"], task["partition"]) for task in found["active_tasks"]
            ) == sorted(tasks)
            assert _places(found) == tuple(sorted((RIDES, partition) for _, partition in tasks))
        else:
            assert _places(found) == _places(reported)
    assert _picked(rows, "share_offset", *SHARE) == _truth(truth["share_offsets"], *SHARE)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.behaviour("G14")
def test_groups_are_those_admin_describes_at_each_moment(
    lived: Lived, number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    moment = lived.moments[number]
    _agree(shown(capfd, moment.copy), moment.truth)


def test_scenario_has_groups_of_all_four_protocols(lived: Lived) -> None:
    types = {row["group"]: (row["group_type"], row["state"]) for row in lived.moments[0].truth["groups"]}
    assert types["classic-group"] == ("classic", "Stable")
    assert types["consumer-group"] == ("consumer", "Stable")
    assert types["share-group"] == ("share", "Stable")
    assert types["streams-group"] == ("streams", "Stable")


@pytest.mark.behaviour("G14")
def test_later_copy_gives_the_groups_of_an_earlier_moment(
    lived: Lived, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = lived.moments[:2]
    assert first.truth != second.truth
    _agree(shown(capfd, "--at", first.at_ms, second.copy), first.truth)


@pytest.mark.behaviour("G14")
def test_groups_are_those_a_restarted_broker_has_loaded(
    lived: Lived, capfd: pytest.CaptureFixture[str]
) -> None:
    """The last copy is compared with the broker, which was stopped at that moment and started again."""
    rows = shown(capfd, lived.moments[2].copy)
    names = GROUP[:2]
    assert _picked(rows, "group", *names) == _truth(lived.loaded["groups"], *names)
    assert _picked(rows, "offset", *OFFSET) == _truth(lived.loaded["offsets"], *OFFSET)
    assert _picked(rows, "share_offset", *SHARE) == _truth(lived.loaded["share_offsets"], *SHARE)


def test_pending_and_deleted_offsets_are_shown(lived: Lived, capfd: pytest.CaptureFixture[str]) -> None:
    rows = shown(capfd, lived.moments[0].copy)
    assert _picked(rows, "pending_offset", "group", "topic", "partition", "offset") == {
        ("tx-group", FARES, 0, 7),
        ("tx-group", RIDES, 2, 7),
    }
    tombstones = _picked(rows, "tombstone", "group", "topic", "partition")
    assert {
        ("gone", None, None),
        ("gone", RIDES, 1),
        ("gone", FARES, 1),
        ("offset-gone", RIDES, 1),
    } <= tombstones
    assert {("expired", None, None), ("expired", RIDES, 0)} <= tombstones
    (later,) = [row for row in rows if row["type"] == "offset" and row["group"] == "expires-later"]
    assert later["expire_timestamp"] - later["commit_timestamp"] == 86_400_000
    assert not _picked(shown(capfd, lived.moments[1].copy), "pending_offset", "group")


def test_history_shows_offsets_that_were_reset_backwards(
    lived: Lived, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = shown(capfd, "--history", lived.moments[1].copy)
    went = _picked(rows, "rewind", "group", "topic", "partition", "from_offset", "to_offset")
    assert {
        (ODD_GROUP, RIDES, 1, 8, 5),
        ("reset-me", RIDES, 1, 9, 1),
        ("classic-group", FARES, 0, 10, 2),
    } == went


def test_groups_equal_the_tables_of_kafka_consumer_groups(
    lived: Lived, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = shown(capfd, lived.moments[1].copy)
    listed = {tuple(line.rsplit(maxsplit=1)) for line in lived.listed.splitlines()[1:] if line.strip()}
    ours = {
        (row["group"], row["state"])
        for row in rows
        if row["type"] == "group" and row["group_type"] in ("classic", "consumer")
    }
    assert {(name.strip(), state) for name, state in listed} == ours
    table = [line.split() for line in lived.described.splitlines() if line.startswith("classic-group")]
    lags = {(cells[1], int(cells[2]), int(cells[3]), int(cells[4]), int(cells[5])) for cells in table}
    fields = ("topic", "partition", "offset", "log_end_offset", "lag")
    offsets = [row for row in rows if row["type"] == "offset" and row["group"] == "classic-group"]
    assert lags == {tuple(row[name] for name in fields) for row in offsets}


@pytest.mark.behaviour("G13")
def test_reset_file_is_accepted_by_kafka_consumer_groups(lived: Lived) -> None:
    assert ["reset-me", RIDES, "1", "9"] in [line.split() for line in lived.dry_run.splitlines()]
    assert [RIDES, "1", "5"] in [line.split()[-3:] for line in lived.several.splitlines()]
    offsets = {
        (row["group"], row["topic"], row["partition"]): row["offset"] for row in lived.after_reset["offsets"]
    }
    assert offsets[("reset-me", RIDES, 1)] == 9
    assert offsets[(ODD_GROUP, RIDES, 1)] == 5


def test_share_group_state_has_the_rejected_and_released_records(
    lived: Lived, capfd: pytest.CaptureFixture[str]
) -> None:
    reported = shown(capfd, lived.moments[0].copy)
    (topic,) = [row for row in reported if row["type"] == "share_topic"]
    assert (topic["topic"], topic["partitions"], topic["status"]) == (FARES, [0, 1, 2], "initialized")
    rows = [row for row in reported if row["type"] == "share_offset"]
    assert {row["topic_id"] for row in rows} == {topic["topic_id"]}
    assert len(rows) == PARTITIONS
    assert all(row["log_end_offset"] == 10 for row in rows)
    finished = sum(row["archived"] + row["acknowledged"] + (row["start_offset"] or 0) for row in rows)
    assert finished > 0
