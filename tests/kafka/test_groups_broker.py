"""`kseg groups` against a real broker with two log dirs: groups of all four protocols, offsets in transactions, deleted and expired
ones, a compacted `__consumer_offsets`. kseg reads copies of the disk, Admin and `kafka-consumer-groups.sh` are asked at the same moment.

About a minute and a half: one broker lives through all of it, is stopped, and loads what it wrote.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

if "CI" not in os.environ:  # there its absence is an error
    pytest.importorskip("confluent_kafka", reason="no broker is started: confluent-kafka is not installed")

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, commit_offsets
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients, tool

pytestmark = pytest.mark.kafka

FARES, RIDES = "fares", "rides"
OFFSETS = "__consumer_offsets"
PARTITIONS = 3
ODD_GROUP = 'by hand, "today"'


@dataclass
class Moment:
    """A copy of the disk, when it was made, and what Admin said then."""

    copy: Path
    at_ms: int
    truth: dict[str, Any]


@dataclass
class Lived:
    """What a broker went through. moments: in order; loaded: what Admin said after a restart on the last of them."""

    moments: list[Moment] = field(default_factory=list)
    loaded: dict[str, Any] = field(default_factory=dict)
    dry_run: str = ""
    reset_plan: list[list[str]] = field(default_factory=list)
    after_reset: dict[str, Any] = field(default_factory=dict)
    listed: str = ""
    described: str = ""
    expected_lags: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    several: str = ""


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
        yield _live(broker, root)


def _live(broker: Broker, root: Path) -> Lived:
    lived = Lived()
    for topic in (FARES, RIDES):
        broker.create_topic(topic, PARTITIONS)
        producer = broker.producer()
        for number in range(30):
            producer.produce(topic, b"value %d" % number, partition=number % PARTITIONS)
        producer.flush()
    with GroupClients(broker.bootstrap) as clients:
        consumers = [
            _member(broker, "classic-group", "classic"),
            _member(broker, "consumer-group", "consumer"),
        ]
        pending = _commits(broker, clients)
        _share_and_streams(clients)
        _expire(clients)
        _moment(lived, broker, clients, root)
        first = lived.moments[0]
        _later_commits(broker, clients, consumers, pending)
        _moment(lived, broker, clients, root)
        lived.listed = tool(broker.bootstrap, "--list", "--state")
        lived.described = tool(broker.bootstrap, "--describe", "--offsets", "--group", "classic-group")
        _reset(lived, broker, clients, first, root)
        _compact(broker, clients)
        _moment(lived, broker, clients, root)
        del pending
        consumers.clear()
    broker.stop()
    broker.start()
    with GroupClients(broker.bootstrap) as clients:
        lived.loaded = clients.ask("describe")
    return lived


def _member(broker: Broker, group: str, protocol: str) -> Consumer:
    """A member that has read everything of its partitions, and committed."""
    static = {"group.instance.id": f"instance of {group}"} if protocol == "consumer" else {}
    consumer = Consumer(
        {
            **static,
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": f"client of {group}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([FARES])
    read, deadline = 0, time.monotonic() + CLIENT_LIMIT_S
    while read < 30 and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            read += 1
    assert read == 30
    commit_offsets(consumer)
    return consumer


def _by_hand(broker: Broker, group: str, *offsets: int, topic: str = RIDES) -> None:
    """Commits of a client without a subscription, one after the other."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    for offset in offsets:
        at = TopicPartition(topic, 1, offset, f"the {offset}th")
        commit_offsets(consumer, [at])
    consumer.close()


def _in_transaction(broker: Broker, name: str, group: str, offset: int, end: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 3_600_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(CLIENT_LIMIT_S)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    places = [TopicPartition(FARES, 0, offset), TopicPartition(RIDES, 2, offset)]
    producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), CLIENT_LIMIT_S)
    if end == "commit":
        producer.commit_transaction(CLIENT_LIMIT_S)
    elif end == "abort":
        producer.abort_transaction(CLIENT_LIMIT_S)
    return producer


def _commits(broker: Broker, clients: GroupClients) -> Producer:
    _by_hand(broker, ODD_GROUP, 3, 8, 5)
    _by_hand(broker, "reset-me", 2, 9)
    _in_transaction(broker, "tx-1", "tx-group", 4, "commit")
    _in_transaction(broker, "tx-2", "tx-group", 6, "abort")
    pending = _in_transaction(broker, "tx-3", "tx-group", 7, "open")
    _in_transaction(broker, "tx-4", "aborted-only", 6, "abort")
    for group in ("gone", "offset-gone"):
        _by_hand(broker, group, 1)
        _by_hand(broker, group, 1, topic=FARES)
    clients.ask("delete_groups", groups=["gone"])
    clients.ask("delete_offsets", group="offset-gone", topic=RIDES, partition=1)
    return pending


def _share_and_streams(clients: GroupClients) -> None:
    clients.ask("share", group="share-group", topic=FARES, records=40, rejected=[2])
    subtopologies = [{"id": "0", "sources": [RIDES]}]
    clients.ask(
        "streams",
        group="streams-group",
        members=["streams-member"],
        state="Stable",
        subtopologies=subtopologies,
    )


def _expire(clients: GroupClients) -> None:
    clients.ask("expiring_commit", group="expired", topic=RIDES, partition=0, offset=3, retention_ms=1)
    clients.ask(
        "expiring_commit", group="expires-later", topic=RIDES, partition=0, offset=3, retention_ms=86_400_000
    )
    deadline = time.monotonic() + CLIENT_LIMIT_S
    while any(row["group"] == "expired" for row in clients.ask("describe")["groups"]):
        assert time.monotonic() < deadline, "the group did not expire"
        time.sleep(0.5)


def _later_commits(
    broker: Broker, clients: GroupClients, consumers: list[Consumer], pending: Producer
) -> None:
    _by_hand(broker, "reset-me", 1)
    pending.commit_transaction(CLIENT_LIMIT_S)
    consumers.pop(0).close()
    clients.ask("commit", group="classic-group", topic=FARES, partition=0, offset=2)
    clients.ask("delete_groups", groups=["offset-gone"])


def _moment(lived: Lived, broker: Broker, clients: GroupClients, root: Path) -> None:
    """Nobody commits meanwhile, so the copy and Admin agree."""
    time.sleep(0.1)
    truth = clients.ask("describe")
    place = root / f"copy-{len(lived.moments)}"
    at_ms = time.time_ns() // 1_000_000
    for name in ("d1", "d2"):
        source = Broker(root / "unused", broker.data.parent / name)
        source.copy_data(place / name)
    lived.moments.append(Moment(place, at_ms, truth))
    time.sleep(0.1)


def _reset(lived: Lived, broker: Broker, clients: GroupClients, first: Moment, root: Path) -> None:
    """The group as of the first moment, through Kafka's own tool."""
    newest = lived.moments[-1].copy
    one, several = root / "one.csv", root / "several.csv"
    at = str(first.at_ms)
    assert (
        run(["groups", "--quiet", "--group", "reset-me", "--at", at, "--reset-csv", str(one), str(newest)])
        == 0
    )
    words = ["--reset-offsets", "--group", "reset-me", "--from-file", str(one)]
    lived.dry_run = tool(broker.bootstrap, *words, "--dry-run")
    tool(broker.bootstrap, *words, "--execute")
    both = ["--group", "reset-me", "--group", ODD_GROUP]
    assert run(["groups", "--quiet", *both, "--at", at, "--reset-csv", str(several), str(newest)]) == 0
    lived.several = tool(broker.bootstrap, "--reset-offsets", *both, "--from-file", str(several), "--execute")
    lived.after_reset = clients.ask("describe")


def _compact(broker: Broker, clients: GroupClients) -> None:
    """Small segments, commits that fill them, and a cleaner that has been there."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    settings = {"internal.segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}
    resource = ConfigResource(
        ResourceType.TOPIC,
        OFFSETS,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ],
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(CLIENT_LIMIT_S)
    groups = [f"filler-{number}" for number in range(10)]
    for _ in range(8):
        for group in groups:
            clients.ask("commit", group=group, topic=RIDES, partition=0, offset=1)
    checkpoints = [broker.data.parent / name / "cleaner-offset-checkpoint" for name in ("d1", "d2")]

    def is_cleaned() -> bool:
        text = "".join(path.read_text() for path in checkpoints if path.exists())
        return sum(line.startswith(OFFSETS) for line in text.splitlines()) >= 3

    broker.wait_for("cleaning", is_cleaned)
    clients.ask("commit", group="reset-me", topic=RIDES, partition=1, offset=4)


# --- comparisons


def shown(capfd: pytest.CaptureFixture[str], *words: object) -> list[dict[str, Any]]:
    assert run(["groups", "--json", *map(str, words)]) == 0
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


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
def test_what_admin_says_at_each_moment(lived: Lived, number: int, capfd: pytest.CaptureFixture[str]) -> None:
    moment = lived.moments[number]
    _agree(shown(capfd, moment.copy), moment.truth)


def test_all_four_protocols_are_there(lived: Lived) -> None:
    types = {row["group"]: (row["group_type"], row["state"]) for row in lived.moments[0].truth["groups"]}
    assert types["classic-group"] == ("classic", "Stable")
    assert types["consumer-group"] == ("consumer", "Stable")
    assert types["share-group"] == ("share", "Stable")
    assert types["streams-group"] == ("streams", "Stable")


@pytest.mark.behaviour("G14")
def test_the_first_moment_from_the_second_copy(lived: Lived, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = lived.moments[:2]
    assert first.truth != second.truth
    _agree(shown(capfd, "--at", first.at_ms, second.copy), first.truth)


@pytest.mark.behaviour("G14")
def test_what_a_broker_has_after_loading(lived: Lived, capfd: pytest.CaptureFixture[str]) -> None:
    """The last copy, and the broker that was stopped then and started."""
    rows = shown(capfd, lived.moments[2].copy)
    names = GROUP[:2]
    assert _picked(rows, "group", *names) == _truth(lived.loaded["groups"], *names)
    assert _picked(rows, "offset", *OFFSET) == _truth(lived.loaded["offsets"], *OFFSET)
    assert _picked(rows, "share_offset", *SHARE) == _truth(lived.loaded["share_offsets"], *SHARE)


def test_pending_and_deleted_offsets(lived: Lived, capfd: pytest.CaptureFixture[str]) -> None:
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


def test_what_went_back(lived: Lived, capfd: pytest.CaptureFixture[str]) -> None:
    rows = shown(capfd, "--history", lived.moments[1].copy)
    went = _picked(rows, "rewind", "group", "topic", "partition", "from_offset", "to_offset")
    assert {
        (ODD_GROUP, RIDES, 1, 8, 5),
        ("reset-me", RIDES, 1, 9, 1),
        ("classic-group", FARES, 0, 10, 2),
    } == went


def test_the_tables_of_the_tool(lived: Lived, capfd: pytest.CaptureFixture[str]) -> None:
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
def test_the_reset_file_is_taken_by_the_tool(lived: Lived) -> None:
    assert ["reset-me", RIDES, "1", "9"] in [line.split() for line in lived.dry_run.splitlines()]
    assert [RIDES, "1", "5"] in [line.split()[-3:] for line in lived.several.splitlines()]
    offsets = {
        (row["group"], row["topic"], row["partition"]): row["offset"] for row in lived.after_reset["offsets"]
    }
    assert offsets[("reset-me", RIDES, 1)] == 9
    assert offsets[(ODD_GROUP, RIDES, 1)] == 5


def test_share_groups_hold_what_was_given_up(lived: Lived, capfd: pytest.CaptureFixture[str]) -> None:
    reported = shown(capfd, lived.moments[0].copy)
    (topic,) = [row for row in reported if row["type"] == "share_topic"]
    assert (topic["topic"], topic["partitions"], topic["status"]) == (FARES, [0, 1, 2], "initialized")
    rows = [row for row in reported if row["type"] == "share_offset"]
    assert {row["topic_id"] for row in rows} == {topic["topic_id"]}
    assert len(rows) == PARTITIONS
    assert all(row["log_end_offset"] == 10 for row in rows)
    finished = sum(row["archived"] + row["acknowledged"] + (row["start_offset"] or 0) for row in rows)
    assert finished > 0
