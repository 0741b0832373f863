"""Power failures that truncate `__transaction_state` and partitions at different points: what `kseg doctor` reports about open
transactions, and, after its steps were typed in, what happens to records and transactional ids on a real broker.

Takes twenty seconds: one broker with one restart.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.internal_topics.groups.coordinator_partition import partition_for
from tests.kafka.broker import Broker
from tests.kafka.command_line_tools import type_in
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients
from tests.kafka.test_doctor import Doctor, doctor, follow
from tests.kafka.transaction_clients import TransactionClients
from tests.support.command_rows import rows_of
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

__all__ = ["doctor"]  # a fixture

FARES, STATE, STATE_PARTITIONS = "fares", "__transaction_state", 6
# each is in another partition of STATE
BEHIND, LATER, OWNER, IDLE, UNDECIDED, UNKNOWN = "till-0", "till-1", "till-2", "till-3", "till-4", "till-5"
# the partitions that only this id writes to
OWN = {BEHIND: (0, 1), LATER: (2,), OWNER: (3,), IDLE: (4,), UNDECIDED: (5, 6), UNKNOWN: (7, 8)}
# loses the whole of its last transaction; in the partition of OWNER, which keeps its end
LOSER = next(
    name
    for name in map("loser-{}".format, range(99))
    if partition_for(name, STATE_PARTITIONS) == partition_for(OWNER, STATE_PARTITIONS)
)
OWN[LOSER] = (9, 10)
# has transactions in one partition, and then in another one; in the partition of OWNER, which keeps its end
ROVER, ROVED = (
    next(
        name
        for name in map("rover-{}".format, range(99))
        if partition_for(name, STATE_PARTITIONS) == partition_for(OWNER, STATE_PARTITIONS)
    ),
    (11, 11, 12, 12, 12, 12, 12, 12),
)
OFFSETS, GROUP = "__consumer_offsets", "riders"
# commits offsets only; in the partition of OWNER, which keeps its end
OF_GROUP = next(
    name
    for name in map("app-{}".format, range(99))
    if partition_for(name, STATE_PARTITIONS) == partition_for(OWNER, STATE_PARTITIONS)
)


def _batches(log: Path) -> Iterator[tuple[int, int, bool]]:
    """The batches of a log as (position, producer epoch, whether it is a control batch)."""
    data, at = log.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        (attributes,) = struct.unpack_from(">h", data, at + 21)
        (epoch,) = struct.unpack_from(">h", data, at + 51)
        yield at, epoch, bool(attributes & 0x20)
        at += 12 + length


def _log(data: Path, topic: str, number: int) -> Path:
    (log,) = (data / f"{topic}-{number}").glob("*.log")
    return log


def _lose_markers(data: Path, number: int, last_epoch: int) -> None:
    """Truncate the partition after the records with this epoch."""
    log = _log(data, FARES, number)
    kept = [each for each in _batches(log) if each[1] <= last_epoch and not each[2]]
    follows = (each for each in _batches(log) if each[0] > kept[-1][0])
    os.truncate(log, next(follows)[0])


def _lose_transactions(data: Path, number: int, epoch: int) -> None:
    """Truncate the partition before the records with this epoch."""
    log = _log(data, FARES, number)
    os.truncate(log, next(at for at, found, is_marker in _batches(log) if found == epoch and not is_marker))


def _lose_records(data: Path, transactional_id: str, kept: int) -> None:
    """Truncate the coordinator's log after this number of records."""
    log = _log(data, STATE, partition_for(transactional_id, STATE_PARTITIONS))
    os.truncate(log, [*_batches(log)][kept][0])


def _lose_power(data: Path) -> None:
    """Truncate the logs. The coordinator's log of an id has one record for Empty, and then for each transaction: Ongoing once per
    partition, PrepareCommit, CompleteCommit."""
    _lose_records(data, BEHIND, 1 + 4 + 2)
    _lose_markers(data, 1, 2)
    _lose_records(data, LATER, 1 + 3 * 2 + 2)
    _lose_markers(data, 2, 0)
    _lose_markers(data, 3, 2)
    _lose_records(data, IDLE, 1 + 3)
    _lose_records(data, UNDECIDED, 1 + 4 * 2 + 2)
    _lose_markers(data, 6, 2)
    _lose_records(data, UNKNOWN, 1 + 4 * 2)
    _lose_markers(data, 8, 2)
    _lose_transactions(data, 9, 2)
    _lose_transactions(data, 11, 1)
    offsets = _log(data, OFFSETS, 0)
    os.truncate(offsets, [*_batches(offsets)][-1][0])
    for path in (data / ".kafka_cleanshutdown", *data.glob("*/*.snapshot")):
        if path.name != ".kafka_cleanshutdown" and path.parent.name.startswith("__cluster"):
            continue
        path.unlink()


def _seen(rows: list[dict[str, Any]]) -> dict[int, tuple[str, str]]:
    return {
        row["partition"]: (row["status"], row["verdict"])
        for row in rows
        if row["type"] == "transaction" and row["topic"] == FARES
    }


def _continue(directory: Path, lines: Path) -> None:
    """Append a record two minutes after the present, as if a broker had started and run."""
    lines.write_text(json.dumps({"value": "later", "timestamp": int(time.time() * 1000) + 120_000}) + "\n")
    assert run(["recover", "--apply", str(directory)]) == 0
    assert run(["append", "--apply", "--from", str(lines), str(directory)]) == 0


def _lost(rows: list[dict[str, Any]]) -> dict[str, int]:
    found = [row for row in rows if row.get("id") == "commit-lost"]
    return {Path(row["path"]).name: row["lost_transactions"] for row in found}


def _committed(broker: Broker, number: int) -> list[int]:
    return [record.offset for record in broker.consume(FARES, number, committed=True)]


def _of_the_group(broker: Broker) -> tuple[int, list[Any]]:
    """The committed offset of the group, and the partitions for which its consumers would have to wait."""
    with GroupClients(broker.bootstrap) as clients:
        unstable = clients.ask("unstable", groups=[{"group": GROUP, "places": [[FARES, 0]]}])
        (row,) = clients.ask("describe")["offsets"]
        return row["offset"], unstable["groups"][GROUP]


@pytest.mark.evidence("coordinator-behind", "commit-lost")
@pytest.mark.behaviour("X20")
def test_steps_after_coordinator_logs_lost_their_ends_keep_transactions_correct(
    tmp_path: Path, doctor: Doctor, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    broker = Broker(tmp_path / "broker", transaction_state_log_num_partitions=str(STATE_PARTITIONS))
    with broker:
        broker.create_topic(FARES, 13)
        with TransactionClients(broker.bootstrap) as clients:
            for _ in range(3):
                for name, partitions in OWN.items():
                    clients.ask("begin", name)
                    for number in partitions:
                        clients.ask("send", name, FARES, number, 2)
                    clients.ask("commit", name)
            for number in ROVED:
                clients.ask("begin", ROVER)
                clients.ask("send", ROVER, FARES, number, 1)
                clients.ask("commit", ROVER)
            for offset in (3, 5):
                clients.ask("begin", OF_GROUP)
                clients.ask("offsets", OF_GROUP, GROUP, FARES, 0, offset)
                clients.ask("commit", OF_GROUP)
    data = broker.data
    _lose_power(data)
    rows = doctor([data])
    assert _seen(rows) == {
        1: ("hanging", "refused"),
        3: ("hanging", "unmarked"),
        6: ("open", "unmarked"),
        8: ("hanging", "unmarked"),
    }
    ahead = {Path(row["path"]).name for row in rows if row.get("id") == "transactional-id-behind"}
    assert ahead == {f"{FARES}-{number}" for number in (0, 4)}
    # partition 2 has nothing of the second transaction of LATER, which is completed
    lost = {f"{FARES}-2": 1, f"{FARES}-9": 1, f"{FARES}-11": 1}
    assert _lost(rows) == lost
    # where the cleaner has been, it may have removed the marker
    checkpoint = data / "cleaner-offset-checkpoint"
    kept = checkpoint.read_bytes()
    checkpoint.write_text(f"0\n3\n{FARES} 2 1\n{FARES} 9 7\n{FARES} 11 3\n")
    assert _lost(rows_of(capfd, "transactions", data, status=1)) == {f"{FARES}-2": 1}
    checkpoint.write_bytes(kept)
    continued = copy_tree(data, tmp_path / "continued")
    _continue(continued / f"{FARES}-9", tmp_path / "later.jsonl")
    rows = [
        row for row in rows_of(capfd, "transactions", continued, status=1) if row.get("id") == "commit-lost"
    ]
    # `doctor` leaves out those that were continued
    assert {Path(row["path"]).name: row["continued"] for row in rows} == {
        f"{FARES}-2": 0,
        f"{FARES}-9": 1,
        f"{FARES}-11": 0,
    }
    # copies that somebody made, under other names
    backups = [tmp_path / "elsewhere" / f"{FARES}-{name}" for name in ("9.bak", "2.copy", "90")]
    for backup in backups:
        copy_tree(data / f"{FARES}-0", backup)
    typed, _ = follow([data], tmp_path, {}, doctor)
    rows = doctor([data])
    assert "transactional-id-behind" not in {row.get("id") for row in rows}, typed
    assert _seen(rows) == {}, typed
    # nothing here has its records
    assert _lost(rows) == lost
    searches = {step for step in typed if step.startswith("find ")}
    found = {line for step in searches for line in type_in(step, tmp_path).stdout.split()}
    copies = (root / f"{FARES}-{number}" for root in (data, continued) for number in (2, 9, 11))
    assert found == {str(path) for path in (*backups[:2], *copies)}
    with broker, TransactionClients(broker.bootstrap) as clients:
        broker.wait_for(
            "the marker of the later transaction",
            lambda: clients.ask("ends", FARES)["ends"][2]["last_stable_offset"] > 2,
        )
        # the marker of a later transaction committed them
        assert _committed(broker, 2) == [0, 1]
        # the markers that kseg wrote committed these
        assert [_committed(broker, number) for number in (1, 3, 6, 8)] == [[0, 1, 3, 4, 6, 7]] * 4
        assert _of_the_group(broker) == (5, [])
        # of this transaction only the other partition has its records
        assert (_committed(broker, 9), _committed(broker, 10)) == ([0, 1, 3, 4], [0, 1, 3, 4, 6, 7])
        for name, partitions in OWN.items():
            clients.ask("begin", name)
            for number in partitions:
                clients.ask("send", name, FARES, number, 1)
            clients.ask("commit", name)
        broker.wait_for(
            "the last markers",
            lambda: all(
                each["last_stable_offset"] == each["log_end_offset"]
                for each in clients.ask("ends", FARES)["ends"]
            ),
        )
        assert [_committed(broker, number) for number in (1, 3, 8)] == [[0, 1, 3, 4, 6, 7, 9]] * 3
        # its coordinator first aborted the transaction that it took for undecided: markers that end nothing, at offset 9
        assert _committed(broker, 5) == _committed(broker, 6) == [0, 1, 3, 4, 6, 7, 10]


@pytest.mark.evidence("coordinator-behind")
def test_steps_after_a_crash_can_be_typed_in_as_they_are(tmp_path: Path, doctor: Doctor) -> None:
    """The indexes of a broker that was killed are preallocated, and nothing is appended to such a log."""
    require_kafka()
    broker = Broker(tmp_path / "broker")
    with broker:
        broker.create_topic(FARES)
        with TransactionClients(broker.bootstrap) as clients:
            for _ in range(3):
                clients.ask("begin", "killed")
                clients.ask("send", "killed", FARES, 0, 1)
                clients.ask("commit", "killed")
            # the coordinator answers before it writes the marker, without which the last transaction would hang
            broker.wait_for("the markers", lambda: len(_committed(broker, 0)) == 3)
            broker.crash()
    data = broker.data
    log = data / "__transaction_state-0" / f"{0:020}.log"
    # what is left is from before the last transactions
    os.truncate(log, [start for start, *_ in _batches(log)][2])
    assert "transactional-id-behind" in {row.get("id") for row in doctor([data])}
    typed, _ = follow([data], tmp_path, {}, doctor)
    (appended,) = (step for step in typed if "kseg append" in step)
    assert appended.startswith("kseg recover --apply "), typed
    assert "transactional-id-behind" not in {row.get("id") for row in doctor([data])}
    with broker, TransactionClients(broker.bootstrap) as clients:
        clients.ask("begin", "killed")
        clients.ask("send", "killed", FARES, 0, 1)
        clients.ask("commit", "killed")
        # the high watermark rises from its checkpoint, and the coordinator answers before it writes the marker
        broker.wait_for("the fourth record", lambda: len(_committed(broker, 0)) == 4)
