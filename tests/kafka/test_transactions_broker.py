"""`kseg transactions` compared with a real broker with two log dirs: transactions of both protocols, committed, aborted and open, and some
that hang for four different reasons. kseg reads copies of the disk; Admin and `kafka-transactions.sh` are asked at the same moment, and
hanging transactions are aborted with the line that kseg printed.

Takes about a minute: one broker goes through all of it, with one restart.
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
from confluent_kafka import Producer

from kseg.cli.main import run
from tests.internal_topics.coordinator_logs import batch, data_batch, key, value
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.transaction_clients import INTERNAL, TransactionClients, produce_raw, tool, words_of

pytestmark = pytest.mark.kafka

FARES, OFFSETS, STATE = "fares", "__consumer_offsets", "__transaction_state"
# producer ids that no coordinator has assigned
STRANGER, COMMITTER = 4242, 4243


@dataclass
class Moment:
    """A copy of the disk, and what Admin and find-hanging said at that time."""

    copy: Path
    at_ms: int
    truth: dict[str, Any]
    hanging: set[tuple[str, int, int, int, int]]


@dataclass
class Lived:
    """The history of a broker. moments: in order."""

    moments: dict[str, Moment] = field(default_factory=dict)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    require_kafka()
    root = tmp_path_factory.mktemp("transactions")
    data = root / "data"
    broker = Broker(
        root / "broker",
        data / "d1",
        log_dirs=f"{data / 'd1'},{data / 'd2'}",
        transaction_state_log_num_partitions="3",
        # as for clients before KIP-890
        transaction_partition_verification_enable="false",
    )
    with broker:
        yield _live(broker, root)


def _live(broker: Broker, root: Path) -> Lived:
    lived = Lived()
    broker.create_topic(FARES, 4)
    old_clients = [_old_client(broker, name) for name in ("old-done", "old-open")]
    with TransactionClients(broker.bootstrap) as clients:
        _ordinary(clients, old_clients)
        _moment(lived, "open", broker, clients, root)
        _make_hanging(broker, clients, lived.moments["open"].truth)
        _moment(lived, "hanging", broker, clients, root)
    del old_clients
    broker.stop()
    broker.start()
    with TransactionClients(broker.bootstrap) as clients:
        _moment(lived, "restarted", broker, clients, root)
        for row in _transactions(lived.moments["restarted"]):
            if row["abort_command"] is not None:
                tool(broker.bootstrap, *words_of(row["abort_command"]))
        _moment(lived, "ended", broker, clients, root)
    return lived


def _old_client(broker: Broker, name: str) -> Producer:
    """A client of librdkafka, which supports only the first protocol."""
    producer = broker.producer(transactional_id=name, transaction_timeout_ms=7_200_000)
    producer.init_transactions(CLIENT_LIMIT_S)
    return producer


def _ordinary(clients: TransactionClients, old_clients: list[Producer]) -> None:
    """Transactions of both protocols: committed, aborted, open; and offsets in a transaction."""
    for how in ("commit", "abort", "commit"):
        clients.ask("begin", "new-done")
        clients.ask("send", "new-done", FARES, 0, 3)
        clients.ask("send", "new-done", FARES, 1, 1)
        clients.ask(how, "new-done")
    for name in ("new-open", "victim"):
        clients.ask("begin", name)
        clients.ask("send", name, FARES, 2, 2)
    clients.ask("begin", "new-offsets")
    clients.ask("offsets", "new-offsets", "group", FARES, 0, 5)
    done, is_open = old_clients
    for producer, finishes in ((done, (True, False)), (is_open, (True, None))):
        for commits in finishes:
            producer.begin_transaction()
            for number in range(4):
                producer.produce(FARES, b"v", partition=number % 2)
            producer.flush(CLIENT_LIMIT_S)
            if commits is not None:
                (producer.commit_transaction if commits else producer.abort_transaction)(CLIENT_LIMIT_S)


def _make_hanging(broker: Broker, clients: TransactionClients, truth: dict[str, Any]) -> None:
    """Make transactions hang: 1. A late batch of a producer whose transaction is complete. 2. A producer that no coordinator knows. 3. The
    same in __consumer_offsets. 4. The id of an open transaction is deleted from the coordinator's log, which the coordinator notices when
    it loads the log again."""
    ids = {row["transactional_id"]: row for row in truth["ids"]}
    done = ids["old-done"]
    (last,) = [
        row["last_sequence"]
        for row in truth["producers"]
        if (row["topic"], row["partition"], row["producer_id"]) == (FARES, 0, done["producer_id"])
    ]
    now = time.time_ns() // 1_000_000
    late = data_batch(0, done["producer_id"], done["producer_epoch"], count=2, sequence=last + 1, at_ms=now)
    produce_raw(broker.bootstrap, FARES, 0, late)
    produce_raw(broker.bootstrap, FARES, 3, data_batch(0, STRANGER, 0, at_ms=now))
    commit = value(OFFSETS, 1, 3, offset=7, leaderEpoch=-1, metadata="", commitTimestamp=now)
    pending = batch(
        0,
        (key(OFFSETS, 1, group="stuck", topic=FARES, partition=0), commit),
        at_ms=now,
        transactional=True,
        producer_id=COMMITTER,
        producer_epoch=0,
        base_sequence=0,
    )
    produce_raw(broker.bootstrap, OFFSETS, 0, pending, INTERNAL)
    victim = key(STATE, 0, transactionalId="victim")
    # in every partition, one of which the id is hashed to
    for number in range(3):
        produce_raw(broker.bootstrap, STATE, number, batch(0, (victim, None), at_ms=now), INTERNAL)


def _moment(lived: Lived, name: str, broker: Broker, clients: TransactionClients, root: Path) -> None:
    # find-hanging has a resolution of one millisecond
    time.sleep(0.05)
    truth = clients.ask("describe")
    rows = tool(broker.bootstrap, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
    hanging = {(row[0], int(row[1]), int(row[2]), int(row[3]), int(row[5])) for row in rows}
    at_ms = time.time_ns() // 1_000_000
    copy = root / name
    for disk in ("d1", "d2"):
        held = broker.data
        broker.data = root / "data" / disk
        broker.copy_data(copy / disk)
        broker.data = held
    assert clients.ask("describe") == truth
    lived.moments[name] = Moment(copy, at_ms, truth, hanging)


def _rows(moment: Moment, kind: str) -> list[dict[str, Any]]:
    path = moment.copy.with_suffix(".jsonl")
    if not path.exists():
        held = os.dup(1)
        try:
            with path.open("wb") as out:
                os.dup2(out.fileno(), 1)
                run(
                    [
                        "transactions",
                        "--json",
                        "--now",
                        str(moment.at_ms),
                        "--max-transaction-timeout-ms",
                        "0",
                        str(moment.copy),
                    ]
                )
        finally:
            os.dup2(held, 1)
            os.close(held)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if row["type"] == kind]


def _transactions(moment: Moment) -> list[dict[str, Any]]:
    return _rows(moment, "transaction")


MOMENTS = ["open", "hanging", "restarted", "ended"]


@pytest.mark.behaviour("X17")
@pytest.mark.parametrize("name", MOMENTS)
def test_transactional_ids_are_those_the_coordinators_describe(lived: Lived, name: str) -> None:
    moment = lived.moments[name]
    names = ("transactional_id", "producer_id", "producer_epoch", "state", "timeout_ms", "start_timestamp")
    found = [
        {each: row[each] for each in names}
        | {"partitions": sorted(f"{each['topic']}-{each['partition']}" for each in row["partitions"])}
        for row in _rows(moment, "transactional_id")
    ]
    expected = moment.truth["ids"]
    # the coordinator has not loaded its log again since the id was deleted from it
    if name == "hanging":
        expected = [row for row in expected if row["transactional_id"] != "victim"]
    assert found == expected
    assert {row["state"] for row in found} >= {"Ongoing"}


@pytest.mark.behaviour("X21")
@pytest.mark.parametrize("name", MOMENTS)
def test_producers_are_those_the_broker_describes(lived: Lived, name: str) -> None:
    moment = lived.moments[name]
    names = ("topic", "partition", "producer_id", "producer_epoch", "last_sequence", "last_timestamp")
    more = ("coordinator_epoch", "transaction_start_offset")
    found = [{each: row[each] for each in (*names, *more)} for row in _rows(moment, "producer")]

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["topic"], row["partition"], row["producer_id"]

    assert sorted(found, key=order) == sorted(moment.truth["producers"], key=order)
    assert len(found) >= 8


@pytest.mark.behaviour("X19")
@pytest.mark.parametrize("name", ["open", "restarted", "ended"])
def test_hanging_transactions_are_those_kafkas_tool_finds(lived: Lived, name: str) -> None:
    moment = lived.moments[name]
    names = ("topic", "partition", "producer_id", "producer_epoch", "start_offset")
    found = {
        tuple(row[each] for each in names) for row in _transactions(moment) if row["status"] == "hanging"
    }
    assert found == moment.hanging
    ids = {row["transactional_id"]: row for row in lived.moments["open"].truth["ids"]}
    expected = {
        (FARES, 0, ids["old-done"]["producer_id"]),
        (FARES, 2, ids["victim"]["producer_id"]),
        (FARES, 3, STRANGER),
        (OFFSETS, 0, COMMITTER),
    }
    assert {each[:3] for each in found} == (expected if name == "restarted" else set())


def test_hanging_transactions_beside_a_coordinator_with_stale_state(lived: Lived) -> None:
    moment = lived.moments["hanging"]
    names = ("topic", "partition", "producer_id", "producer_epoch", "start_offset")
    found = {
        tuple(row[each] for each in names) for row in _transactions(moment) if row["status"] == "hanging"
    }
    (victim,) = found - moment.hanging
    assert victim[:2] == (FARES, 2) and moment.hanging < found


@pytest.mark.behaviour("X20")
def test_open_transactions_have_verdict_ongoing_and_their_id(lived: Lived) -> None:
    for name in ("open", "restarted"):
        found = [row for row in _transactions(lived.moments[name]) if row["status"] == "open"]
        assert {row["verdict"] for row in found} == {"ongoing"}
        assert {row["transactional_id"] for row in found} >= {"old-open", "new-open", "new-offsets"}


def test_ended_transactions_are_committed_and_aborted_as_sent(lived: Lived) -> None:
    found = [
        (row["partition"], row["status"], row["last_offset"] - row["start_offset"] + 1)
        for row in _transactions(lived.moments["open"])
        if row["topic"] == FARES
        and row["transactional_id"] in ("new-done", "old-done")
        and row["marker_offset"]
    ]
    assert sorted(found) == sorted(
        [(0, how, 3) for how in ("committed", "aborted", "committed")]
        + [(1, how, 1) for how in ("committed", "aborted", "committed")]
        + [(partition, how, 2) for partition in (0, 1) for how in ("committed", "aborted")]
    )


@pytest.mark.behaviour("X22")
def test_printed_abort_command_advances_the_last_stable_offset(lived: Lived) -> None:
    def stable(name: str) -> dict[tuple[str, int], tuple[int, int]]:
        return {
            (row["topic"], row["partition"]): (row["last_stable_offset"], row["log_end_offset"])
            for row in _rows(lived.moments[name], "partition")
        }

    before, behind = stable("restarted"), stable("ended")
    assert before[FARES, 3] == (0, 1) and behind[FARES, 3] == (2, 2)
    # transactions in progress hold the others as well
    assert behind[FARES, 0][0] >= before[FARES, 0][0] and behind[OFFSETS, 0][0] >= before[OFFSETS, 0][0]
    ended = [
        row for row in _transactions(lived.moments["ended"]) if row["producer_id"] in (STRANGER, COMMITTER)
    ]
    assert [row["status"] for row in ended] == ["aborted", "aborted"]
