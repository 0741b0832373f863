"""Which records a transaction coordinator cannot load: one of each kind in a partition of its own of a real broker's `__transaction_state`,
while the broker is stopped, between two transactional ids. When it starts, the partitions whose load it breaks off are those for which
`kseg verify` has an error, and it knows the ids after the others."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

if "CI" not in os.environ:  # there its absence is an error
    pytest.importorskip("confluent_kafka", reason="no broker is started: confluent-kafka is not installed")

from kseg.cli.main import run
from tests.internal_topics.coordinator_logs import key, value
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.transaction_clients import TransactionClients
from tests.support.log_ends import append_records

pytestmark = pytest.mark.kafka

STATE = "__transaction_state"
Record = tuple[bytes | None, bytes | None]


def _id(name: str, version: int = 1, **fields: Any) -> Record:
    """A record of an id that is complete unless told otherwise."""
    values = {"producerId": 7, "transactionStatus": 4, "transactionPartitions": [], **fields}
    return key(STATE, 0, transactionalId=name), value(STATE, 0, version, **values)


_KEY, _VALUE = _id("id")
assert _KEY is not None and _VALUE is not None
_PARTS = [{"topic": "fares", "partitionIds": [0]}]

# what is in a partition, by what it is
CASES: dict[str, Record] = {
    "as it should be": (_KEY, _VALUE),
    "tombstone": (_KEY, None),
    "no key": (None, _VALUE),
    "key too short": (b"\0", _VALUE),
    "key cut": (_KEY[:-1], _VALUE),
    "empty key": (b"", _VALUE),
    "unknown type": (b"\0\1" + _KEY[2:], _VALUE),
    "negative type": (b"\xff\xff" + _KEY[2:], _VALUE),
    "unknown type of a tombstone": (b"\0\1" + _KEY[2:], None),
    "bytes behind the key": (_KEY + b"more", _VALUE),
    "bytes behind the value": (_KEY, _VALUE + b"more"),
    "value cut": (_KEY, _VALUE[:-9]),
    "empty value": (_KEY, b""),
    "value of one byte": (_KEY, b"\0"),
    "unknown version": (_KEY, b"\0\2" + _VALUE[2:]),
    "negative version": (_KEY, b"\xff\xff" + _VALUE[2:]),
    "unknown state": _id("id", transactionStatus=9),
    "negative state": _id("id", transactionStatus=-1),
    "dead": _id("id", transactionStatus=6),
    "fencing": _id("id", transactionStatus=7),
    "empty without partitions": _id("id", transactionStatus=0, transactionPartitions=None),
    "empty with partitions": _id("id", transactionStatus=0, transactionPartitions=_PARTS),
    "complete without partitions": _id("id", transactionPartitions=None),
    "ongoing without partitions": _id("id", 0, transactionStatus=1, transactionPartitions=None),
    "unknown client version": _id("id", clientTransactionVersion=9),
    "another epoch": _id("id", nextProducerEpoch=3, previousProducerId=8, nextProducerId=9),
    "negative producer id": _id("id", producerId=-1, producerEpoch=-1),
}


@pytest.mark.behaviour("X17")
def test_what_a_broker_cannot_load(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    require_kafka()
    broker = Broker(tmp_path, transaction_state_log_num_partitions=str(len(CASES)))
    with broker:
        producer = broker.producer(transactional_id="first")
        producer.init_transactions(CLIENT_LIMIT_S)
    for number, record in enumerate(CASES.values()):
        append_records(
            broker.data / f"{STATE}-{number}", _id(f"before {number}"), record, _id(f"behind {number}")
        )
    capfd.readouterr()
    run(["verify", "--json", str(broker.data)])
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    found = {
        kind: {Path(row["path"]).name for row in rows if row.get("id") == kind}
        for kind in ("coordinator-load-fails", "coordinator-record-unknown")
    }

    def loads(pattern: str) -> set[str]:
        return set(re.findall(pattern, broker.log_text()))

    with broker, TransactionClients(broker.bootstrap) as clients:
        finished = rf"Completed loading transaction metadata from ({STATE}-\d+) "
        broker.wait_for("loading", lambda: len(loads(finished)) == len(CASES))
        failed = loads(rf"Error loading transactions from transaction log ({STATE}-\d+)")
        listed = set(clients.ask("listed")["ids"])
    names = {f"{STATE}-{number}": name for number, name in enumerate(CASES)}
    assert {names[each] for each in found["coordinator-load-fails"]} == {names[each] for each in failed}
    for number, name in enumerate(CASES):
        assert (f"behind {number}" in listed) == (f"{STATE}-{number}" not in failed), name
        assert f"before {number}" in listed
    assert found["coordinator-record-unknown"].isdisjoint(failed)
    assert 5 < len(failed) < len(CASES) - 5
    capfd.readouterr()
    run(["transactions", "--json", str(broker.data)])
    shown = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    ids = {row["transactional_id"] for row in shown if row["type"] == "transactional_id"}
    assert listed <= ids and {each.split()[0] for each in ids - listed} <= {"behind"}
