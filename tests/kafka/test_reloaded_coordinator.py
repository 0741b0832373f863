"""Transactions that a coordinator finds in its log when it starts: written while it is stopped, in every state and with both versions of
the value. A prepared one gets its markers where there is a leader to accept them; a partition of a broker that is away keeps it prepared.
`kseg transactions` reports what DescribeTransactions reports, both for the disk before the start (where a prepared transaction has all
partitions that lack the marker) and after it.

Takes some fifteen seconds: two brokers, one of them started twice.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.internal_topics.coordinator_logs import batch, data_batch, key, marker, value
from tests.internal_topics.metadata_logs import record
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.joining import JoiningBroker
from tests.kafka.transaction_clients import TransactionClients
from tests.support.command_rows import rows_of
from tests.support.log_ends import append_records

pytestmark = pytest.mark.kafka

SEED = int(os.environ.get("KSEG_RELOADS_SEED", "15"))
FARES, STATE = "fares", "__transaction_state"
HERE, THERE = (FARES, 0), (FARES, 1)  # on broker 1, on broker 2
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)


def _end(directory: Path) -> int:
    with PartitionLog(PartitionTarget(str(directory))) as log:
        return log.end_offset


def _ids(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    names = ("transactional_id", "producer_id", "producer_epoch", "state", "timeout_ms", "start_timestamp")
    found = {}
    for row in rows:
        if row["type"] == "transactional_id":
            places = sorted(f"{each['topic']}-{each['partition']}" for each in row["partitions"])
            found[row["transactional_id"]] = {name: row[name] for name in names} | {"partitions": places}
    return found


def _write(broker: Broker, rng: random.Random, now: int) -> None:
    """Write several ids in each state, with data in fares-0, with and without the marker of a former coordinator."""
    fares = broker.data / f"{FARES}-0"
    at, data, records = _end(fares), b"", []
    for number, (state, version) in enumerate(itertools.product(range(6), (0, 0, 1, 1, 1))):
        producer_id, epoch, started = 5000 + number, rng.randrange(9), now - rng.randrange(1000, 9000)
        uses_new = version == 1 and rng.random() < 0.5
        partitions = rng.choice(([HERE], [THERE], [HERE, THERE])) if state in (ONGOING, *PREPARED) else []
        fields: dict[str, Any] = {
            "producerId": producer_id,
            "producerEpoch": epoch,
            "transactionTimeoutMs": 7_000_000,
            "transactionStatus": state,
            "transactionPartitions": None if state == EMPTY else _by_topic(partitions),
            "transactionLastUpdateTimestampMs": now - 500,
            "transactionStartTimestampMs": -1 if state == EMPTY else started,
        }
        if version:
            fields |= {
                "clientTransactionVersion": 2 if uses_new else 0,
                "previousProducerId": rng.choice((-1, producer_id)),
            }
        records.append((key(STATE, 0, transactionalId=f"id {number} ü"), value(STATE, 0, version, **fields)))
        if HERE in partitions and rng.random() < 0.8:
            data_epoch = epoch - (uses_new and state in PREPARED and epoch > 0)
            data += data_batch(at, producer_id, data_epoch, count=2, at_ms=started + 1)
            at += 2
            if state in PREPARED and rng.random() < 0.5:
                data += marker(at, producer_id, epoch, is_abort=state == PREPARE_ABORT, at_ms=now - 400)
                at += 1
    with max(fares.glob("*.log")).open("ab") as file:
        file.write(data)
    append_records(broker.data / f"{STATE}-0", *records)


def _promise_a_leader(log: Path, bootstrap: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Make the controller believe that broker 2 is running and leads fares-1. A coordinator treats a partition without a leader as if it
    were deleted."""
    rows = rows_of(capfd, "metadata", log)
    (end,) = [row for row in rows if row["type"] == "metadata"]
    (fares,) = [
        row for row in rows if row["type"] == "partition" and (row["topic"], row["partition"]) == THERE
    ]
    (broker,) = [row for row in rows if row["type"] == "broker" and row["broker_id"] == 2]
    host, port = bootstrap.split(":")
    registered = record(
        "RegisterBrokerRecord",
        brokerId=2,
        incarnationId=broker["incarnation_id"],
        brokerEpoch=end["offset"] + 1,
        endPoints=[{"name": "PLAINTEXT", "host": host, "port": int(port), "securityProtocol": 0}],
        features=[
            {"name": name, "minSupportedVersion": each["min"], "maxSupportedVersion": each["max"]}
            for name, each in broker["features"].items()
        ],
        rack=None,
        fenced=False,
        logDirs=broker["log_dirs"],
    )
    leads = record("PartitionChangeRecord", 2, partitionId=1, topicId=fares["topic_id"], leader=2, isr=[2])
    with max(log.glob("*.log")).open("ab") as file:
        for at, made in enumerate((registered, leads), start=end["offset"] + 1):
            file.write(batch(at, (None, made), leader_epoch=end["epoch"]))


@contextmanager
def _killed(broker: Broker) -> Iterator[None]:
    """Kill the broker at the end, because a clean stop waits for other brokers that lead partitions."""
    try:
        yield
    finally:
        broker.crash()


def _by_topic(partitions: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"topic": FARES, "partitionIds": [number for _, number in partitions]}]


@pytest.mark.behaviour("X17")
def test_transactional_ids_are_those_a_coordinator_loads(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    rng = random.Random(SEED)
    first = Broker(tmp_path / "one", broker_session_timeout_ms="3600000")
    second = JoiningBroker(first, tmp_path / "two")
    with first:
        producer = first.producer(transactional_id="first")
        # creates the coordinator's topic while there is only one broker
        producer.init_transactions(CLIENT_LIMIT_S)
        with second:
            admin = AdminClient({"bootstrap.servers": first.bootstrap, "log_level": 0})
            for future in admin.create_topics([NewTopic(FARES, 2, replica_assignment=[[1], [2]])]).values():
                future.result(CLIENT_LIMIT_S)
            for broker, number in ((first, 0), (second, 1)):
                place = broker.data / f"{FARES}-{number}"
                first.wait_for("the partition", place.is_dir)
    now = int(max(path.stat().st_mtime for path in first.data.rglob("*.log")) * 1000)
    _write(first, rng, now)
    _promise_a_leader(first.data / "__cluster_metadata-0", second.bootstrap, capfd)
    before = _ids(rows_of(capfd, "transactions", first.data))
    first.apart().start()
    with _killed(first), TransactionClients(first.bootstrap) as clients:

        def reported() -> dict[str, dict[str, Any]]:
            return {row["transactional_id"]: row for row in clients.ask("ids")["ids"]}

        first.wait_for("loading", lambda: len(reported()) == len(before))
        loaded = reported()
        first.wait_for(
            "the markers",
            lambda: (
                not any(
                    f"{FARES}-0" in row["partitions"]
                    for row in reported().values()
                    if row["state"].startswith("Prepare")
                )
            ),
        )
        settled = reported()
        copy = first.copy_data(tmp_path / "copy")
        assert reported() == settled
    # transactions on disk are reported in the same way; a prepared one continues at once
    assert {name: row for name, row in before.items() if not row["state"].startswith("Prepare")} == {
        name: row for name, row in loaded.items() if not before[name]["state"].startswith("Prepare")
    }
    assert _ids(rows_of(capfd, "transactions", copy)) == settled
    left = [row for row in settled.values() if row["state"].startswith("Prepare")]
    assert left and all(row["partitions"] == [f"{FARES}-1"] for row in left)
    for row in left:
        assert before[row["transactional_id"]]["state"] == row["state"]
        assert set(row["partitions"]) <= set(before[row["transactional_id"]]["partitions"])
