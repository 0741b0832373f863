"""Groups of every protocol on a real broker, and what its Admin client said about them at each moment."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, commit_offsets, consumer_by_hand
from tests.kafka.group_clients import GroupClients

FARES, RIDES = "fares", "rides"
OFFSETS = "__consumer_offsets"
PARTITIONS = 3
ODD_GROUP = 'by hand, "today"'


@dataclass
class Moment:
    """A copy of the disk, the time of the copy, and what Admin said at that time."""

    copy: Path
    at_ms: int
    truth: dict[str, Any]


@dataclass
class Lived:
    """The history of a broker. moments: in order. loaded: what Admin said after a restart from the last of them."""

    moments: list[Moment] = field(default_factory=list)
    loaded: dict[str, Any] = field(default_factory=dict)
    dry_run: str = ""
    reset_plan: list[list[str]] = field(default_factory=list)
    after_reset: dict[str, Any] = field(default_factory=dict)
    listed: str = ""
    described: str = ""
    expected_lags: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    several: str = ""


def live(broker: Broker, root: Path) -> Lived:
    lived = Lived()
    for topic in (FARES, RIDES):
        broker.create_topic(topic, PARTITIONS)
        producer = broker.producer()
        for number in range(30):
            producer.produce(topic, b"value %d" % number, partition=number % PARTITIONS)
        producer.flush()
    with GroupClients(broker.bootstrap, is_apart=True) as clients:
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
        lived.listed = clients.tool("--list", "--state")
        lived.described = clients.tool("--describe", "--offsets", "--group", "classic-group")
        _reset(lived, clients, first, root)
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
    """A member that has read all of its partitions and committed."""
    static = {"group_instance_id": f"instance of {group}"} if protocol == "consumer" else {}
    consumer = broker.consumer(
        group,
        group_protocol=protocol,
        client_id=f"client of {group}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **static,
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
    consumer = consumer_by_hand(broker, group)
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
    consumer = broker.consumer(group)
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
    """Copy while nobody commits, so that the copy and Admin agree."""
    time.sleep(0.1)
    truth = clients.ask("describe")
    place = root / f"copy-{len(lived.moments)}"
    at_ms = time.time_ns() // 1_000_000
    for name in ("d1", "d2"):
        source = Broker(root / "unused", broker.data.parent / name)
        source.copy_data(place / name)
    lived.moments.append(Moment(place, at_ms, truth))
    time.sleep(0.1)


def _reset(lived: Lived, clients: GroupClients, first: Moment, root: Path) -> None:
    """Reset the group to the offsets of the first moment with Kafka's own tool."""
    newest = lived.moments[-1].copy
    one, several = root / "one.csv", root / "several.csv"
    at = str(first.at_ms)
    assert (
        run(["groups", "--quiet", "--group", "reset-me", "--at", at, "--reset-csv", str(one), str(newest)])
        == 0
    )
    words = ["--reset-offsets", "--group", "reset-me", "--from-file", str(one)]
    lived.dry_run = clients.tool(*words, "--dry-run")
    clients.tool(*words, "--execute")
    both = ["--group", "reset-me", "--group", ODD_GROUP]
    assert run(["groups", "--quiet", *both, "--at", at, "--reset-csv", str(several), str(newest)]) == 0
    lived.several = clients.tool("--reset-offsets", *both, "--from-file", str(several), "--execute")
    lived.after_reset = clients.ask("describe")


def _compact(broker: Broker, clients: GroupClients) -> None:
    """Fill small segments with commits until the cleaner has compacted. Keep committing until then, because the first commits may arrive
    before the broker knows the small segment size."""
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
    checkpoints = [broker.data.parent / name / "cleaner-offset-checkpoint" for name in ("d1", "d2")]

    def is_cleaned() -> bool:
        for group in groups:
            clients.ask("commit", group=group, topic=RIDES, partition=0, offset=1)
        text = "".join(path.read_text() for path in checkpoints if path.exists())
        return sum(line.startswith(OFFSETS) for line in text.splitlines()) >= 3

    broker.wait_for("cleaning", is_cleaned)
    clients.ask("commit", group="reset-me", topic=RIDES, partition=1, offset=4)
