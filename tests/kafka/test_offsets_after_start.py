"""What `doctor` says about committed offsets that expire soon after a start, compared with what a real coordinator deletes then."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, commit_offsets, consumer_by_hand
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients
from tests.support.aged_groups import age
from tests.support.command_rows import Rows, of_type, rows_of

pytestmark = pytest.mark.kafka

PARTITIONS = 2
OFFSETS = "__consumer_offsets-0"
Places = set[tuple[str, str, int]]

# How many days ago the groups committed, and (EMPTY) became empty where that differs. Those in KEPT lose no offsets.
COMMITTED = {
    **dict.fromkeys(
        (
            "by-hand",
            "classic-left",
            "classic-mixed",
            "consumer-left",
            "consumer-there",
            "streams-left",
            "own-expiry",
        ),
        8,
    ),
    "classic-renewed": 6,
    "of-a-transaction": 8,
    "by-hand-young": 6,
    "classic-young": 8,
    "classic-there": 8,
    "consumer-young": 6,
    "own-expiry-later": 8,
}
EMPTY = {**COMMITTED, "classic-renewed": 8, "classic-young": 6}
KEPT = ("by-hand-young", "classic-young", "classic-there", "consumer-young", "own-expiry-later")
# two members, each with its own topic, of which one comes back
MIXED = "classic-mixed"
# their consumers come back before the coordinator checks
BACK = ("classic-left", "consumer-left")
# as with the default settings, sessions end before the coordinator checks for the first time
CHECKED_AFTER_S = 12
SOON = {
    "offsets_retention_check_interval_ms": str(CHECKED_AFTER_S * 1000),
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "1000",
    **{
        f"group_{kind}_{name}": value
        for kind in ("consumer", "streams")
        for name, value in {
            "session_timeout_ms": "1500",
            "min_session_timeout_ms": "1500",
            "heartbeat_interval_ms": "300",
            "min_heartbeat_interval_ms": "300",
        }.items()
    },
}
LATE = {"offsets_retention_check_interval_ms": "3600000"}


def _joining(broker: Broker, group: str, protocol: str = "classic", topic: str = "fares") -> Consumer:
    """A consumer that joins a group and does not wait for its partitions."""
    consumer = broker.consumer(
        group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        # the shortest that a broker accepts by default; it ends before the coordinator checks
        **({"session_timeout_ms": 6000} if group == MIXED else {}),
    )
    consumer.subscribe([topic])
    return consumer


def _joined(broker: Broker, group: str, protocol: str = "classic") -> Consumer:
    """A consumer that has joined and has its partitions."""
    consumer = _joining(broker, group, protocol)
    deadline = time.monotonic() + CLIENT_LIMIT_S
    while len(consumer.assignment()) < PARTITIONS and time.monotonic() < deadline:
        consumer.poll(0.1)
    return consumer


def _committed(broker: Broker, group: str, protocol: str = "classic") -> Consumer:
    """A consumer that has committed."""
    consumer = _joined(broker, group, protocol)
    commit_offsets(consumer, [TopicPartition("fares", number, 3) for number in range(PARTITIONS)])
    return consumer


def _mixed(broker: Broker) -> list[Consumer]:
    """Two members of a group that subscribe to different topics. Both join before either gets its partitions."""
    members = [_joined(broker, MIXED)]
    commit_offsets(members[0], [TopicPartition("fares", 0, 3)])
    members.append(_joining(broker, MIXED, topic="rides"))
    deadline = time.monotonic() + CLIENT_LIMIT_S
    while len(members[1].assignment()) < PARTITIONS and time.monotonic() < deadline:
        for each in members:
            each.poll(0.1)
    commit_offsets(members[1], [TopicPartition("rides", 0, 3)])
    return members


def _by_hand(broker: Broker, group: str, *topics: str) -> None:
    """A client without a subscription."""
    consumer = consumer_by_hand(broker, group)
    for topic in topics:
        commit_offsets(consumer, [TopicPartition(topic, 1, 5)])
    consumer.close()


def _in_transaction(broker: Broker, group: str) -> Producer:
    """An open transaction with a commit for a partition that has a committed offset already."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": "mover",
            "transaction.timeout.ms": 1000,
            "log_level": 0,
        }
    )
    producer.init_transactions(CLIENT_LIMIT_S)
    producer.begin_transaction()
    consumer = broker.consumer(group)
    places = [TopicPartition("fares", 1, 7)]
    producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), CLIENT_LIMIT_S)
    return producer


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A log dir of a broker that was stopped a week ago, while some of its consumers were running."""
    require_kafka()
    with Broker(tmp_path_factory.mktemp("before"), None, **LATE) as broker:
        for topic in ("fares", "rides"):
            broker.create_topic(topic, PARTITIONS)
            producer = broker.producer()
            for number in range(20):
                producer.produce(topic, b"v", partition=number % PARTITIONS)
            assert producer.flush(CLIENT_LIMIT_S) == 0
        for group in ("by-hand", "by-hand-young", "of-a-transaction"):
            _by_hand(broker, group, "fares", "rides")
        for group in ("classic-left", "classic-renewed", "classic-young"):
            _committed(broker, group).close()
        for group in ("consumer-left", "consumer-young"):
            _committed(broker, group, "consumer").close()
        with GroupClients(broker.bootstrap) as clients:
            place = {"topic": "fares", "partition": 0, "offset": 4}
            clients.ask("expiring_commit", group="own-expiry", retention_ms=7 * 86_400_000, **place)
            clients.ask("expiring_commit", group="own-expiry-later", retention_ms=9 * 86_400_000, **place)
            clients.ask(
                "streams",
                group="streams-left",
                members=["m"],
                state="Stable",
                subtopologies=[{"id": "0", "sources": ["fares"]}],
            )
            clients.ask("streams_leave", group="streams-left", member="m")
            clients.ask("commit", group="streams-left", **place)
            clients.ask("commit", group="classic-renewed", **place)
        staying = [_committed(broker, "classic-there"), _committed(broker, "consumer-there", "consumer")]
        staying += _mixed(broker)
        producer = _in_transaction(broker, "of-a-transaction")
        broker.stop()
        del staying, producer
    age(broker.data / OFFSETS, COMMITTED, EMPTY)
    yield broker.data


def committed(capfd: pytest.CaptureFixture[str], data: Path) -> Places:
    rows = rows_of(capfd, "groups", data, status=0)
    return {(row["group"], row["topic"], row["partition"]) for row in of_type(rows, "offset")}


def told(rows: Rows) -> Places:
    return {
        (row["group"], each["topic"], each["partition"])
        for row in of_type(rows, "expiring_offsets")
        for each in row["partitions"]
    }


def live(clients: GroupClients) -> Places:
    return {(row["group"], row["topic"], row["partition"]) for row in clients.ask("describe")["offsets"]}


def deleted_once(broker: Broker) -> bool:
    return "tombstone records while cleaning up group metadata" in broker.log_text()


@pytest.mark.evidence("due-offsets")
def test_coordinator_deletes_the_offsets_that_doctor_predicts(
    stopped: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The coordinator deletes what doctor predicts, and for groups whose consumers are not back by then kafka-consumer-groups.sh restores
    the saved offsets."""
    data = Path(shutil.copytree(stopped, tmp_path / "data"))
    before = committed(capfd, data)
    forecast = told(rows_of(capfd, "doctor", data, status=0))
    assert {group for group, *_ in before - forecast} == {*KEPT}
    assert before - forecast == {place for place in before if place[0] in KEPT}
    assert {place for place in before if place[0] == MIXED} == {(MIXED, "fares", 0), (MIXED, "rides", 0)}
    gone = {place for place in forecast if place[0] not in BACK} - {(MIXED, "fares", 0)}
    saved = tmp_path / "offsets.csv"
    words = [word for group in sorted({group for group, *_ in gone}) for word in ("--group", group)]
    assert run(["groups", *words, "--reset-csv", str(saved), str(data)]) == 0
    advice = capfd.readouterr().err.split("kafka-consumer-groups.sh --bootstrap-server HOST:PORT ")[1]
    with Broker(tmp_path / "broker", data, **SOON) as broker:
        consumers = [_joined(broker, "classic-left"), _joined(broker, "consumer-left", "consumer")]
        consumers.append(_joining(broker, MIXED))
        assert not deleted_once(broker), "the consumers were late"
        with GroupClients(broker.bootstrap) as clients:
            broker.wait_for("expiry", lambda: deleted_once(broker))
            broker.wait_for("the tombstones", lambda: live(clients) == before - gone)
            # the tool resets only groups without members
            consumers.pop().close()
            clients.tool(*shlex.split(advice))
            assert live(clients) == before
        del consumers
    assert committed(capfd, data) == before


def test_offsets_retention_of_the_step_prevents_the_deletion(
    stopped: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except for offsets with an expiry of their own, as the step says."""
    data = Path(shutil.copytree(stopped, tmp_path / "data"))
    before = committed(capfd, data)
    monkeypatch.chdir(tmp_path)
    save, keep = of_type(rows_of(capfd, "doctor", data, status=0), "step")
    assert (
        not save["due"]
        and not keep["due"]
        and "(which does not keep 1 offset with an expiry of their own" in keep["why"]
    )
    assert run(shlex.split(save["command"])[1:]) == 0
    subprocess.run(["sh", "-c", keep["command"]], check=True)
    properties = dict(line.split("=") for line in Path("server.properties").read_text().split())
    with Broker(tmp_path / "broker", data, **SOON, **properties) as broker:
        broker.wait_for("expiry", lambda: deleted_once(broker))
        with GroupClients(broker.bootstrap) as clients:
            broker.wait_for("the tombstone", lambda: live(clients) == before - {("own-expiry", "fares", 0)})
