"""Random histories of producers, written to partitions while a real broker is stopped: interleaved transactions of several producers,
epochs that increase with or without a marker, markers without data, several batches per segment, a log start within a transaction. The
producers and last stable offsets that the started broker reports are those that `kseg transactions` reports for the disk before the start.

Takes some fifteen seconds: one broker with one restart.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.internal_topics.coordinator_logs import data_batch, marker
from tests.kafka.broker import Broker, delete_records
from tests.kafka.conftest import require_kafka
from tests.kafka.transaction_clients import TransactionClients
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

SEED = int(os.environ.get("KSEG_PRODUCERS_SEED", "15"))
FARES, PARTITIONS, EVENTS = "fares", 24, 30
Row = dict[str, Any]


class Producer:
    """One producer of a partition, independent of the others. made: the transactions with data, as rows."""

    def __init__(self, rng: random.Random, producer_id: int) -> None:
        self.made: list[Row] = []
        self._rng = rng
        self._id = producer_id
        self._epoch, self._sequence = rng.randrange(3), 0
        self._coordinator_epoch = rng.randrange(3)
        self._is_transactional = rng.random() < 0.85

    @property
    def _is_open(self) -> bool:
        return bool(self.made) and self.made[-1]["marker_offset"] is None

    def next(self, offset: int, at_ms: int) -> tuple[bytes, int]:
        """Returns a batch and the offset after it."""
        rng = self._rng
        if self._is_transactional and rng.random() < (0.4 if self._is_open else 0.1):
            self._epoch += rng.choice((0, 0, 1))
            self._coordinator_epoch += rng.choice((0, 0, 0, 1))
            is_abort = rng.random() < 0.5
            if self._is_open:
                self.made[-1] |= {"status": "aborted" if is_abort else "committed", "marker_offset": offset}
            made = marker(
                offset,
                self._id,
                self._epoch,
                is_abort=is_abort,
                coordinator_epoch=self._coordinator_epoch,
                at_ms=at_ms,
            )
            if rng.random() < 0.5:
                self._sequence = 0
                self._epoch += rng.choice((0, 1))
            return made, offset + 1
        if rng.random() < 0.1 and not self._is_open:
            self._epoch, self._sequence = self._epoch + 1, 0
        count = rng.randrange(1, 4)
        if self._is_transactional:
            if not self._is_open:
                self.made.append(
                    {"status": "open", "producer_id": self._id, "start_offset": offset, "marker_offset": None}
                )
            self.made[-1] |= {
                "producer_epoch": self._epoch,
                "last_offset": offset + count - 1,
                "last_timestamp": at_ms + count - 1,
            }
        made = data_batch(
            offset,
            self._id,
            self._epoch,
            count=count,
            sequence=self._sequence,
            at_ms=at_ms,
            transactional=self._is_transactional,
        )
        self._sequence += count
        return made, offset + count


def _write(directory: Path, rng: random.Random, now: int) -> list[Row]:
    """Write the histories; returns the transactions."""
    with PartitionLog(PartitionTarget(str(directory))) as log:
        offset, path = log.end_offset, Path(log.segments[-1].path)
    producers = [Producer(rng, 5000 + number) for number in range(rng.randrange(1, 5))]
    data = b""
    for at in range(rng.randrange(EVENTS)):
        made, offset = rng.choice(producers).next(offset, now + at)
        data += made
    with path.open("ab") as file:
        file.write(data)
    return [row for producer in producers for row in producer.made]


def _move_log_starts(data: Path, rng: random.Random) -> dict[int, int]:
    """Move log starts as DeleteRecords does: some partitions begin at an arbitrary offset, or at the log end."""
    starts: dict[int, int] = {}
    for number in range(0, PARTITIONS, 3):
        with PartitionLog(PartitionTarget(str(data / f"{FARES}-{number}"))) as log:
            starts[number] = rng.randrange(log.end_offset + 1)
    lines = "".join(f"{FARES} {number} {start}\n" for number, start in starts.items())
    (data / "log-start-offset-checkpoint").write_text(f"0\n{len(starts)}\n{lines}")
    return starts


@pytest.mark.behaviour("X21")
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crashed"])
def test_random_producers_are_those_a_broker_has_loaded(
    is_clean: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    rng = random.Random(SEED + is_clean)
    broker = Broker(tmp_path / "broker")
    with broker:
        broker.create_topic(FARES, PARTITIONS)
        producer = broker.producer(enable_idempotence=True)
        for number in range(PARTITIONS):
            producer.produce(FARES, b"first", partition=number)
        producer.flush()
    now = int(max(path.stat().st_mtime for path in broker.data.rglob("*.log")) * 1000)
    made = [
        {**row, "partition": number}
        for number in range(PARTITIONS)
        for row in _write(broker.data / f"{FARES}-{number}", rng, now)
    ]
    starts = _move_log_starts(broker.data, rng)
    if not is_clean:
        (broker.data / ".kafka_cleanshutdown").unlink()
    before = shutil.copytree(broker.data, tmp_path / "before")
    with broker, TransactionClients(broker.bootstrap) as clients:
        truth = clients.ask("describe")["producers"]
        ends = clients.ask("ends", FARES)["ends"]
        copy = broker.copy_data(tmp_path / "copy")
    for path in (before, copy):
        rows = rows_of(capfd, "transactions", path)
        names = ("topic", "partition", "producer_id", "producer_epoch", "last_sequence", "last_timestamp")
        found = [
            {name: row[name] for name in (*names, "coordinator_epoch", "transaction_start_offset")}
            for row in rows
            if row["type"] == "producer"
        ]
        assert _sorted(found) == _sorted(truth), path
        places = ("partition", "log_start_offset", "log_end_offset", "last_stable_offset")
        partitions = [row for row in rows if row["type"] == "partition" and row["topic"] == FARES]
        assert _sorted([{name: row[name] for name in places} for row in partitions]) == _sorted(ends), path
        transactions = [{name: row[name] for name in made[0]} for row in rows if row["type"] == "transaction"]
        whole = [row for row in made if row["start_offset"] >= starts.get(row["partition"], 0)]
        cut = [row for row in made if row not in whole]
        found = [row for row in transactions if row not in whole]
        assert _sorted([row for row in transactions if row in whole]) == _sorted(whole), path
        # of a transaction across the log start, the part after it
        for row in found:
            assert any(row["last_offset"] == each["last_offset"] for each in cut), row
    assert any(row["transaction_start_offset"] is not None for row in truth)


def _sorted(rows: list[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.behaviour("X21")
def test_running_broker_knows_producers_of_deleted_records(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A running broker that has deleted all records still knows their producers, and forgets them when it is restarted."""
    require_kafka()
    broker = Broker(tmp_path / "broker", log_flush_start_offset_checkpoint_interval_ms="500")
    checkpoint = broker.data / "log-start-offset-checkpoint"
    for is_loaded in (False, True):
        with broker, TransactionClients(broker.bootstrap) as clients:
            if not is_loaded:
                broker.create_topic(FARES)
                producer = broker.producer(enable_idempotence=True)
                producer.produce(FARES, b"first")
                producer.flush()
                delete_records(broker.bootstrap, FARES, 0, 1)
            broker.wait_for("the log start", lambda: f"{FARES} 0 1\n" in checkpoint.read_text())
            truth = clients.ask("describe")["producers"]
            shown = [
                row["producer_id"]
                for row in rows_of(capfd, "transactions", broker.data)
                if row["type"] == "producer"
            ]
            assert shown == [row["producer_id"] for row in truth]
            assert len(truth) == (0 if is_loaded else 1)
            if not is_loaded:
                broker.crash()
