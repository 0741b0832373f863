"""`kseg transactions` on producers whose epochs are exhausted: the coordinator assigns a new producer id, with the second protocol
(KIP-890) while they continue with transactions, with the first when they start again. Admin is asked at the same moments.

Takes a quarter of a minute: a broker is restarted on records planted in `__transaction_state`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.internal_topics.groups.coordinator_partition import partition_for
from tests.internal_topics.coordinator_logs import batch, key, value
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.transaction_clients import INTERNAL, TransactionClients, produce_raw
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

FARES, STATE = "fares", "__transaction_state"
PARTITIONS = 2
NEW, OLD = "new-protocol", "old-protocol"
PLANTED_IDS = {NEW: 900, OLD: 901}
LAST_EPOCH = 32_767
ROUNDS = 6
Moments = list[tuple[Path, dict[str, Any]]]


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moments]:
    """A copy of the disk after each round, and what Admin said at that time."""
    require_kafka()
    root = tmp_path_factory.mktemp("epochs")
    data = root / "data"
    broker = Broker(
        root / "broker", data, log_dirs=str(data), transaction_state_log_num_partitions=str(PARTITIONS)
    )
    with broker:
        broker.create_topic(FARES, 2)
        with TransactionClients(
            broker.bootstrap
            # so that the coordinators' topic exists
        ) as clients:
            clients.ask("begin", "first")
            clients.ask("send", "first", FARES, 0, 1)
            clients.ask("commit", "first")
        for name, producer_id in PLANTED_IDS.items():
            _plant(broker, name, producer_id)
        broker.stop()
        broker.start()
        with TransactionClients(broker.bootstrap) as clients:
            yield [_round(broker, clients, root / f"copy-{number}", number) for number in range(ROUNDS)]


def _plant(broker: Broker, name: str, producer_id: int) -> None:
    """Plant a transactional id whose producer has used almost all of its epochs."""
    now = time.time_ns() // 1_000_000
    state = value(
        STATE,
        0,
        1,
        producerId=producer_id,
        producerEpoch=LAST_EPOCH - 4,
        transactionTimeoutMs=7_200_000,
        transactionStatus=0,
        transactionPartitions=None,
        transactionLastUpdateTimestampMs=now,
        transactionStartTimestampMs=-1,
    )
    record = batch(0, (key(STATE, 0, transactionalId=name), state), at_ms=now)
    produce_raw(broker.bootstrap, STATE, partition_for(name, PARTITIONS), record, INTERNAL)


def _round(
    broker: Broker, clients: TransactionClients, copy: Path, number: int
) -> tuple[Path, dict[str, Any]]:
    """One transaction with each protocol, alternately committed and aborted. The one that librdkafka leaves open is aborted when its
    producer starts again."""
    clients.ask("begin", NEW)
    clients.ask("send", NEW, FARES, 0, 1)
    clients.ask("commit" if number % 2 else "abort", NEW)
    producer = broker.producer(transactional_id=OLD, transaction_timeout_ms=7_200_000)
    producer.init_transactions(CLIENT_LIMIT_S)
    producer.begin_transaction()
    producer.produce(FARES, b"v", partition=1)
    producer.flush(CLIENT_LIMIT_S)
    if number % 2:
        producer.commit_transaction(CLIENT_LIMIT_S)
    before = clients.ask("describe")
    # until nothing changed during the copy, because markers may still be under way
    for attempt in range(100):
        place = broker.copy_data(copy / str(attempt))
        truth = clients.ask("describe")
        if truth == before:
            return place, truth
        before = truth
    raise AssertionError("the coordinator does not come to rest")


IDS = ("transactional_id", "producer_id", "producer_epoch", "state", "timeout_ms", "start_timestamp")
PRODUCERS = (
    *("topic", "partition", "producer_id", "producer_epoch", "last_sequence", "last_timestamp"),
    *("coordinator_epoch", "transaction_start_offset"),
)


@pytest.mark.behaviour("X17")
@pytest.mark.parametrize("number", range(ROUNDS))
def test_transactional_ids_and_producers_are_those_admin_describes(
    moments: Moments, number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    copy, truth = moments[number]
    found = rows_of(capfd, "transactions", copy, status=0)
    ids = [
        {each: row[each] for each in IDS}
        | {"partitions": sorted(f"{each['topic']}-{each['partition']}" for each in row["partitions"])}
        for row in found
        if row["type"] == "transactional_id"
    ]
    assert ids == truth["ids"]

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["topic"], row["partition"], row["producer_id"]

    producers = [{each: row[each] for each in PRODUCERS} for row in found if row["type"] == "producer"]
    assert sorted(producers, key=order) == sorted(truth["producers"], key=order)


def test_scenario_gets_a_new_producer_id_in_both_protocols(
    moments: Moments, capfd: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the rounds prove nothing. A transaction that began under the former producer id ended under it."""
    found = rows_of(capfd, "transactions", moments[-1][0], status=0)
    ids = {row["transactional_id"]: row["producer_id"] for row in found if row["type"] == "transactional_id"}
    for name, partition in ((NEW, 0), (OLD, 1)):
        assert ids[name] not in (PLANTED_IDS[name], -1)
        status = [
            (row["producer_id"] == PLANTED_IDS[name], row["status"])
            for row in found
            if row["type"] == "transaction" and row["partition"] == partition and row["topic"] == FARES
        ]
        ended = [each for is_planted, each in status if is_planted]
        assert ended and set(ended) <= {"committed", "aborted"}
