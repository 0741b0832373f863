"""The steps of `doctor` for records on which coordinators fail, one in each of their topics: the brokers then serve all that was there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from tests.internal_topics.coordinator_logs import key, value
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, commit_offsets, consumer_by_hand
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients, share_broker
from tests.kafka.test_doctor import Doctor, doctor, follow
from tests.kafka.transaction_clients import TransactionClients
from tests.support.log_ends import append_records

__all__ = ["doctor"]

pytestmark = pytest.mark.kafka

FARES = "fares"
OFFSETS, SHARES, IDS = "__consumer_offsets", "__share_group_state", "__transaction_state"
FAILED = "coordinator-load-fails"


def _produce(broker: Broker, count: int, transactional_id: str) -> None:
    producer = broker.producer(transactional_id=transactional_id)
    producer.init_transactions(CLIENT_LIMIT_S)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(FARES, b"value %d" % number, partition=0)
    producer.commit_transaction(CLIENT_LIMIT_S)


def _commit(broker: Broker, group: str, offset: int) -> None:
    consumer = consumer_by_hand(broker, group)
    commit_offsets(consumer, [TopicPartition(FARES, 0, offset)])
    consumer.close()


def _served(broker: Broker) -> tuple[Any, ...]:
    with GroupClients(broker.bootstrap) as clients, TransactionClients(broker.bootstrap) as producers:
        found = clients.ask("describe")
        offsets = sorted((row["group"], row["offset"]) for row in found["offsets"])
        shares = [(row["group"], row["start_offset"], row["lag"]) for row in found["share_offsets"]]
        return offsets, shares, producers.ask("listed")["states"]


def test_coordinators_serve_everything_after_the_steps_of_doctor(tmp_path: Path, doctor: Doctor) -> None:
    require_kafka()
    broker = share_broker(tmp_path)
    with broker:
        broker.create_topic(FARES)
        _produce(broker, 4, "first")
        _commit(broker, "before", 1)
        with GroupClients(broker.bootstrap, is_apart=True) as clients:
            clients.ask("share", group="share", topic=FARES, records=4, rejected=[1])
        offsets, shares, ids = _served(broker)
    data = broker.data
    alone = key(OFFSETS, 3, groupId="simple"), None
    append_records(data / f"{OFFSETS}-0", *_commits("simple", 2), alone, *_commits("behind", 3))
    append_records(
        data / f"{SHARES}-0", (key(SHARES, 1, groupId="share", topicId="A" * 22, partition=0), None)
    )
    unknown = value(IDS, 0, 1, producerId=7, transactionStatus=9, transactionPartitions=[])
    append_records(data / f"{IDS}-0", (key(IDS, 0, transactionalId="odd"), unknown), _complete("behind"))
    with broker:
        failures = [f"Failed to load metadata from {topic}" for topic in (OFFSETS, SHARES)]
        failures.append(f"Error loading transactions from transaction log {IDS}")
        broker.wait_for("failures", lambda: all(each in broker.log_text() for each in failures))
    typed, _ = follow([data], tmp_path, {}, doctor)
    assert sum("--leave-out" in each for each in typed) == 3, typed
    assert not [row for row in doctor([data]) if row.get("id") == FAILED]
    with broker:
        broker.wait_for("loading", lambda: all(_served(broker)))
        assert _served(broker) == (
            [*offsets, ("behind", 3), ("simple", 2)],
            shares,
            ids | {"behind": "CompleteCommit"},
        )
        _produce(broker, 2, "behind")
        with GroupClients(broker.bootstrap, is_apart=True) as clients:
            read = clients.ask("share", group="share", topic=FARES, records=2, rejected=[])["read"]
    # the last record was released, since the member did not finish it
    assert {*read} - {3} == {5, 6}


def _commits(group: str, offset: int) -> list[tuple[bytes, bytes]]:
    content = value(OFFSETS, 1, 3, offset=offset, leaderEpoch=0, metadata="", commitTimestamp=1)
    return [(key(OFFSETS, 1, group=group, topic=FARES, partition=0), content)]


def _complete(name: str) -> tuple[bytes, bytes]:
    content = value(IDS, 0, 1, producerId=9, transactionStatus=4, transactionPartitions=[])
    return key(IDS, 0, transactionalId=name), content
