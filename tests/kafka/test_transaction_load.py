"""Which records a transaction coordinator cannot load: one of each kind, between two transactional ids, in a partition of its own of a real
broker's `__transaction_state`, and damaged bytes in further partitions, all written while the broker is stopped. When it starts, it stops
loading exactly the partitions for which `kseg verify` has an error, and knows the ids after the other records. `kseg transactions` reports
the same, also for a transaction that stays open because its id's record is not loaded, and for two committed transactions that lost a
marker: one whose producer continued, and one whose decision was lost with the end of the coordinator's log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kseg.internal_topics.groups.coordinator_partition import partition_for
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.sidecar.snapshot import encode_snapshot
from tests.internal_topics.coordinator_logs import batch, key, value
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, watermarks
from tests.kafka.conftest import require_kafka
from tests.kafka.transaction_clients import TransactionClients, tool, words_of
from tests.support.command_rows import rows_of
from tests.support.log_ends import append_records
from tests.support.rewritten import rewrite_without_failing

pytestmark = pytest.mark.kafka

STATE = "__transaction_state"
TIMEOUTS_CHECKED_EVERY_MS = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
Record = tuple[bytes | None, bytes | None]


def _id(name: str, version: int = 1, **fields: Any) -> Record:
    """A record of an id, complete by default."""
    values = {"producerId": 7, "transactionStatus": 4, "transactionPartitions": [], **fields}
    return key(STATE, 0, transactionalId=name), value(STATE, 0, version, **values)


_KEY, _VALUE = _id("id")
assert _KEY is not None and _VALUE is not None
_PARTS = [{"topic": "fares", "partitionIds": [0]}]

# the record in a partition, by the name of the case
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


def flipped(data: bytes, at: int, bits: int = 1) -> bytes:
    return bytes([*data[:at], data[at] ^ bits, *data[at + 1 :]])


# the damage to a batch between the two ids
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "timeout flipped": lambda data: flipped(data, 61 + 40),
    "length of the key flipped": lambda data: flipped(data, 61 + 4),
    "record zeroed": lambda data: data[:61] + bytes(len(data) - 61),
    "zeroed": lambda data: bytes(len(data)),
    "magic flipped": lambda data: flipped(data, 16),
    "length too large": lambda data: flipped(data, 9),
    "offset flipped": lambda data: flipped(data, 5),
    "removed": lambda data: b"",
    "doubled": lambda data: data + data,
}
# a flipped bit in the header or the record, which the checksum would reveal
DAMAGES |= {
    f"bit of byte {at}": partial(flipped, at=at, bits=1 << at % 8)
    for at in range(12, len(batch(0, (_KEY, _VALUE))), 5)
}
# the result depends on how much of the log a coordinator reads at once
_OPEN = ("length too large", "offset flipped")
_OF_HEADER = {f"bit of byte {at}" for at in range(61)}
# a partition for each, one for an id whose end is torn off, and one for an open transaction
COUNT = len(CASES) + len(DAMAGES) + 2


def _name_in(number: int, word: str = "id") -> str:
    """A transactional id that is hashed to this partition."""
    return next(name for name in map(f"{word} {{}}".format, count()) if partition_for(name, COUNT) == number)


def _damage(directory: Path, number: int, how: Callable[[bytes], bytes]) -> None:
    """Write two segments, because a broker reads the last one when it starts, and a producer snapshot at the end."""
    with PartitionLog(PartitionTarget(str(directory))) as log:
        end, path = log.end_offset, Path(log.segments[-1].path)
    between = how(batch(end + 1, (_KEY, _VALUE)))
    with path.open("ab") as file:
        file.write(
            batch(end, _id(_name_in(number, "before")))
            + between
            + batch(end + 2, _id(_name_in(number, "same")))
        )
    (directory / f"{end + 3:020}.log").write_bytes(batch(end + 3, _id(_name_in(number, "behind"))))
    for suffix in (".index", ".timeindex"):
        (directory / f"{end + 3:020}{suffix}").write_bytes(b"")
    for snapshot in directory.glob("*.snapshot"):
        snapshot.unlink()
    (directory / f"{end + 4:020}.snapshot").write_bytes(encode_snapshot(()))


@pytest.mark.behaviour("X17")
def test_records_that_fail_a_transaction_load_are_those_of_the_broker(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    open_id, torn_id = (_name_in(number) for number in (COUNT - 1, COUNT - 2))
    broker = Broker(tmp_path, transaction_state_log_num_partitions=str(COUNT))
    broker.properties[TIMEOUTS_CHECKED_EVERY_MS] = (
        "3600000"  # the transaction stays open even if the test takes longer than this timeout
    )
    with broker:
        broker.create_topic("fares", 4)
        producer = broker.producer(transactional_id=open_id, transaction_timeout_ms=2000)
        producer.init_transactions(CLIENT_LIMIT_S)
        producer.begin_transaction()
        producer.produce("fares", b"one", partition=0)
        producer.flush()
        with TransactionClients(broker.bootstrap) as clients:
            for name, partitions in (("paid", (1,)), ("paid", (3,)), (torn_id, (2, 3))):
                clients.ask("begin", name)
                for partition in partitions:
                    clients.ask("send", name, "fares", partition, 2)
                clients.ask("commit", name)
        ends = {1: 3, 2: 3, 3: 6}
        broker.wait_for(
            "markers", lambda: ends == {each: watermarks(broker.bootstrap, "fares", each)[1] for each in ends}
        )
    del broker.properties[TIMEOUTS_CHECKED_EVERY_MS]
    # remove the marker of the first transaction of `paid`, and one of the torn id
    for partition in (1, 3):
        _cut_the_last_batch(broker.data / f"fares-{partition}" / f"{0:020}.log")
    directories = [broker.data / f"{STATE}-{number}" for number in range(COUNT)]
    for number, record in enumerate(CASES.values()):
        append_records(
            directories[number], _id(_name_in(number, "before")), record, _id(_name_in(number, "behind"))
        )
    for number, how in enumerate(DAMAGES.values(), len(CASES)):
        _damage(directories[number], number, how)
    _put_before_the_last_batch(directories[-1] / f"{0:020}.log", (None, _VALUE))
    for _ in ("PrepareCommit", "CompleteCommit"):
        _cut_the_last_batch(directories[-2] / f"{0:020}.log")
    rows = rows_of(capfd, "verify", broker.data)
    found = {
        kind: {Path(row["path"]).name for row in rows if row.get("id") == kind}
        for kind in ("coordinator-load-fails", "coordinator-record-unknown")
    }
    # the producer's timeout would have passed if its coordinator knew the transaction
    now_ms = str(int(time.time() * 1000) + 10_000)
    options = ["--json", "--now", now_ms, "--max-transaction-timeout-ms", "2000"]
    shown = rows_of(capfd, "transactions", *options, broker.data)
    ids = {row["transactional_id"]: row["loaded"] for row in shown if row["type"] == "transactional_id"}
    of_each = {
        row["partition"]: row for row in shown if row["type"] == "transaction" and not row["marker_offset"]
    }
    assert {
        partition: (row["transactional_id"], row["verdict"], row["status"])
        for partition, row in of_each.items()
    } == {
        0: (open_id, "unloaded", "hanging"),
        1: ("paid", "unmarked", "hanging"),
        3: (torn_id, "unmarked", "open"),
    }

    def loads(pattern: str) -> set[str]:
        return set(re.findall(pattern, broker.log_text()))

    with broker, TransactionClients(broker.bootstrap) as clients:
        finished = rf"Completed loading transaction metadata from ({STATE}-\d+) "
        broker.wait_for("loading", lambda: len(loads(finished)) == COUNT)
        failed = loads(rf"Error loading transactions from transaction log ({STATE}-\d+)")
        states = clients.ask("listed")["states"]
        listed = set(states)
        # so the coordinator does not abort the transaction after its timeout
        assert states[open_id] == "Empty"
        assert broker.consume("fares", committed=True) == []
        tool(broker.bootstrap, *words_of(of_each[0]["abort_command"]))
        assert watermarks(broker.bootstrap, "fares", 0)[1] == 2
        assert broker.consume("fares", 1, committed=True) == [] and len(broker.consume("fares", 1)) == 2
        assert (states["paid"], states[torn_id]) == ("CompleteCommit", "Ongoing")
        assert len(broker.consume("fares", 2, committed=True)) == 2
        assert [each.offset for each in broker.consume("fares", 3, committed=True)] == [0, 1]
    _check_loads_without(broker, found["coordinator-load-fails"], failed, tmp_path, capfd)
    by_case = {f"{STATE}-{number}": name for number, name in enumerate([*CASES, *DAMAGES, "torn", "open"])}
    fails = {by_case[each] for each in failed}
    assert {by_case[each] for each in found["coordinator-load-fails"]} == fails - set(DAMAGES)
    for number, name in enumerate([*CASES, *DAMAGES]):
        before, behind = (_name_in(number, word) for word in ("before", "behind"))
        assert before in listed
        assert ids.get(before) is True, name
        assert (behind in listed) == (name not in fails), name
        expected = name not in fails if name not in _OPEN else None
        if name not in _OF_HEADER or ids[behind] is not None:
            assert ids[behind] is expected, name
    assert {"length of the key flipped", "zeroed", "magic flipped"} < fails & set(DAMAGES) < set(DAMAGES)
    assert found["coordinator-record-unknown"].isdisjoint(failed)
    assert 5 < len(failed) < len(CASES) - 5
    assert {name for name, is_loaded in ids.items() if is_loaded} <= listed <= set(ids)


def _check_loads_without(
    broker: Broker, ours: set[str], theirs: set[str], root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once the records that it cannot load are left out, the coordinator loads what is after them."""
    for name in ours:
        rewrite_without_failing(broker.data / name, root, capfd)
    ended = rf"(Error loading transactions from transaction log|Completed loading transaction metadata from) ({STATE}-\d+)"
    with broker, TransactionClients(broker.bootstrap) as clients:

        def loads(word: str) -> set[str]:
            return {name for how, name in re.findall(ended, broker.log_text()) if how.startswith(word)}

        broker.wait_for("loading", lambda: len(loads("Completed")) == COUNT)
        assert loads("Error") == theirs - ours
        numbers = {int(name.rpartition("-")[2]) for name in ours} & {*range(len(CASES))}
        assert {_name_in(number, "behind") for number in numbers} <= {*clients.ask("listed")["states"]}


def _put_before_the_last_batch(log: Path, record: Record) -> None:
    data, position = log.read_bytes(), _last_batch(log)
    offset = int.from_bytes(data[position : position + 8], "big")
    moved = (offset + 1).to_bytes(8, "big") + data[position + 8 :]
    log.write_bytes(data[:position] + batch(offset, record) + moved)


def _cut_the_last_batch(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: _last_batch(log)])


def _last_batch(log: Path) -> int:
    """The position of the last batch."""
    data, position, following = log.read_bytes(), 0, 0
    while following < len(data):
        position = following
        following += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return position
