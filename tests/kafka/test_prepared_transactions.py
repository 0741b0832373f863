"""Transactions that a real cluster holds in PrepareCommit and PrepareAbort: the coordinator on broker 1 has decided, but the marker cannot
be written to the partition on broker 2, which is frozen. `kseg transactions` names the same partitions as `kafka-transactions.sh describe`.

Finally broker 2 is thawed and the markers are written. Then the coordinator loads two states that no coordinator writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.internal_topics.coordinator_logs import key, value
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.joining import JoiningBroker
from tests.kafka.transaction_clients import TransactionClients
from tests.support.command_rows import rows_of
from tests.support.log_ends import append_records

pytestmark = pytest.mark.kafka

FARES, STATE = "fares", "__transaction_state"
HERE, THERE = f"{FARES}-0", f"{FARES}-1"  # on broker 1, on broker 2
DECISIONS = {"new-commit": "commit", "new-abort": "abort", "old-commit": "commit", "old-abort": "abort"}
STATES = {"commit": "PrepareCommit", "abort": "PrepareAbort"}


@dataclass
class Moment:
    """Copies of both data directories, and what Admin said about the transactional ids at that time."""

    copies: tuple[Path, Path]
    ids: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Moment]]:
    require_kafka()
    root = tmp_path_factory.mktemp("prepared")
    first = Broker(root / "one", broker_session_timeout_ms="3600000")
    second = JoiningBroker(first, root / "two").apart()
    found = {}
    with first:
        # creates the coordinator's topic while there is only one broker to place it on
        _old_client(first, "dead")
        with second, TransactionClients(first.bootstrap) as clients:
            try:
                _decide(first, second, clients)
                found["decided"] = _settled(first, second, clients, root / "decided")
            finally:
                second.thaw()
            first.wait_for("the markers", lambda: not _prepared(_ids(clients)))
            found["ended"] = _moment(first, second, clients, root / "ended")
    _append_strange_states(first)
    with first, TransactionClients(first.bootstrap) as clients:
        first.wait_for("its coordinator", lambda: "fencing" in _ids(clients))
        found["strange"] = _moment(first, second, clients, root / "strange")
    yield found


def _append_strange_states(broker: Broker) -> None:
    """Append the states Dead and PrepareEpochFence, which no coordinator writes."""
    for number, name in enumerate(("dead", "fencing")):
        states = value(
            STATE, 0, 0, producerId=900 + number, transactionStatus=6 + number, transactionPartitions=[]
        )
        append_records(broker.data / f"{STATE}-0", (key(STATE, 0, transactionalId=name), states))


def _old_client(broker: Broker, name: str) -> Producer:
    """A client of librdkafka, which supports only the first protocol."""
    producer = broker.producer(transactional_id=name, transaction_timeout_ms=7_200_000)
    producer.init_transactions(CLIENT_LIMIT_S)
    return producer


def _decide(first: Broker, second: JoiningBroker, clients: TransactionClients) -> None:
    """Complete one transaction of each client, and decide the next one while the second broker accepts no markers."""
    admin = AdminClient({"bootstrap.servers": first.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(FARES, 2, replica_assignment=[[1], [2]])]).values():
        future.result(CLIENT_LIMIT_S)
    old = {name: _old_client(first, name) for name in DECISIONS if name.startswith("old")}
    _begin(clients, old)
    _end(clients, old)
    first.wait_for("the first transactions", lambda: not _prepared(_ids(clients)))
    _begin(clients, old)
    second.freeze()
    _end(clients, old)


def _begin(clients: TransactionClients, old: dict[str, Producer]) -> None:
    for name in DECISIONS:
        if name in old:
            old[name].begin_transaction()
            for partition in (0, 1):
                old[name].produce(FARES, b"v", partition=partition)
            old[name].flush(CLIENT_LIMIT_S)
        else:
            clients.ask("begin", name)
            for partition in (0, 1):
                clients.ask("send", name, FARES, partition, 2)


def _end(clients: TransactionClients, old: dict[str, Producer]) -> None:
    for name, how in DECISIONS.items():
        if name in old:
            getattr(old[name], f"{how}_transaction")(CLIENT_LIMIT_S)
        else:
            clients.ask(how, name)


def _ids(clients: TransactionClients) -> dict[str, dict[str, Any]]:
    return {row["transactional_id"]: row for row in clients.ask("ids")["ids"]}


def _prepared(ids: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in ids.values() if row["state"].startswith("Prepare")]


def _settled(first: Broker, second: Broker, clients: TransactionClients, place: Path) -> Moment:
    """The moment at which the coordinator has done all it can alone: broker 1 has its markers."""
    first.wait_for(
        "the markers on broker 1",
        lambda: [row["partitions"] for row in _prepared(_ids(clients))] == [[THERE]] * len(DECISIONS),
    )
    return _moment(first, second, clients, place)


def _moment(first: Broker, second: Broker, clients: TransactionClients, place: Path) -> Moment:
    ids = _ids(clients)
    copies = first.copy_data(place / "one"), second.copy_data(place / "two")
    assert _ids(clients) == ids
    return Moment(copies, ids)


def _rows(capfd: pytest.CaptureFixture[str], kind: str, *words: object) -> list[dict[str, Any]]:
    rows = rows_of(capfd, "transactions", "--max-transaction-timeout-ms", "0", *words)
    return [row for row in rows if row["type"] == kind]


def _described(row: dict[str, Any]) -> dict[str, Any]:
    names = ("transactional_id", "producer_id", "producer_epoch", "state", "timeout_ms", "start_timestamp")
    places = sorted(f"{each['topic']}-{each['partition']}" for each in row["partitions"])
    return {name: row[name] for name in names} | {"partitions": places}


@pytest.mark.behaviour("X17")
@pytest.mark.parametrize("name", ["decided", "ended", "strange"])
def test_prepared_transaction_names_the_partitions_that_lack_its_marker(
    moments: dict[str, Moment], name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    moment = moments[name]
    states = {each: row["state"] for each, row in moment.ids.items() if each in DECISIONS}
    expected = {each: STATES[how] for each, how in DECISIONS.items()}
    if name != "decided":
        expected = {each: state.replace("Prepare", "Complete") for each, state in expected.items()}
    assert states == expected
    # with the disks of both brokers, and with the coordinator's only
    for copies in (moment.copies, moment.copies[:1]):
        found = [_described(row) for row in _rows(capfd, "transactional_id", *copies)]
        assert {row["transactional_id"]: row for row in found} == moment.ids


@pytest.mark.behaviour("X20")
def test_transaction_waiting_for_its_marker_is_not_hanging(
    moments: dict[str, Moment], capfd: pytest.CaptureFixture[str]
) -> None:
    found = _undecided(capfd, *moments["decided"].copies)
    assert [(row["status"], row["verdict"], row["partition"]) for row in found] == [
        ("open", "ending", 1)
    ] * len(DECISIONS)
    assert {row["transactional_id"] for row in found} == set(DECISIONS)
    assert _undecided(capfd, *moments["ended"].copies) == []


def _undecided(capfd: pytest.CaptureFixture[str], *copies: Path) -> list[dict[str, Any]]:
    return [row for row in _rows(capfd, "transaction", *copies) if row["marker_offset"] is None]


def test_transaction_without_its_coordinators_disk_is_open_not_hanging(
    moments: dict[str, Moment], capfd: pytest.CaptureFixture[str]
) -> None:
    found = _undecided(capfd, moments["decided"].copies[1])
    assert [(row["status"], row["verdict"]) for row in found] == [("open", "unknown")] * len(DECISIONS)


def test_dead_transactional_id_is_not_described(
    moments: dict[str, Moment], capfd: pytest.CaptureFixture[str]
) -> None:
    """No coordinator writes these two states. One that loads them lists only the second."""
    assert "dead" in moments["decided"].ids and "dead" not in moments["strange"].ids
    found = {
        row["transactional_id"]: row["state"]
        for row in _rows(capfd, "transactional_id", moments["strange"].copies[0])
    }
    assert "dead" not in found
    assert found["fencing"] == moments["strange"].ids["fencing"]["state"]
