"""The price of policy kafka, end to end: a real broker starts on a damaged data directory, a real consumer reads all that is
left, and the records that are missing are those that `recover` has counted before (`costs.kafka.records`).

One start serves every kind of damage: the directory has no clean-shutdown marker, so the broker recovers each log from its
recovery point, and believes what lies below.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if "CI" not in os.environ:  # there its absence is an error
    pytest.importorskip("confluent_kafka", reason="no broker is started: confluent-kafka is not installed")

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from fixtures.diseases import batch_spans, put
from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka

pytestmark = pytest.mark.kafka

STALLED_S = 1.5
ROUNDS = 30
DAY_MS = 86_400_000


def _flip(log: Path, batch: int, at: int, mask: int) -> None:
    data = log.read_bytes()
    position, size = batch_spans(log)[batch]
    place = position + at % size
    put(log, place, bytes([data[place] ^ mask]))


def _oldest(directory: Path, suffix: str = ".log") -> Path:
    return min(directory.glob(f"*{suffix}"))


def _records(directory: Path) -> None:
    _flip(_oldest(directory), 2, -1, 1)


def _length(directory: Path) -> None:
    _flip(_oldest(directory), 2, 10, 4)


def _zeros(directory: Path) -> None:
    position, size = batch_spans(_oldest(directory))[2]
    put(_oldest(directory), position, bytes(size))


def _later_records(directory: Path) -> None:
    _flip(sorted(directory.glob("*.log"))[1], 1, -1, 1)


def _cut_short(directory: Path) -> None:
    position, size = batch_spans(_oldest(directory))[-1]
    os.truncate(_oldest(directory), position + size // 2)


def _no_index(directory: Path) -> None:
    _records(directory)
    _oldest(directory, ".index").unlink()


def _zeroed_times(directory: Path) -> None:
    """Of all closed segments: a full and an empty time index are both possible after a power cut."""
    for index in sorted(directory.glob("*.timeindex"))[:-1]:
        put(index, 0, bytes(index.stat().st_size))


def _zeroed_first_times(directory: Path) -> None:
    index = _oldest(directory, ".timeindex")
    put(index, 0, bytes(index.stat().st_size))


def _empty_times(directory: Path) -> None:
    _oldest(directory, ".timeindex").write_bytes(b"")


Damage = Callable[[Path], None]
# Below the recovery point a broker looks into no segment. (Zeros there end the consumer's process: librdkafka 2.16 asserts.)
BELIEVED: tuple[Damage, ...] = (_records, _length, _cut_short, _no_index, _zeroed_times)
RECOVERED: tuple[Damage, ...] = (_records, _length, _zeros, _later_records, _cut_short, _no_index)
TIMED: tuple[Damage, ...] = (_zeroed_times, _zeroed_first_times, _empty_times)
DAMAGES = {"believed": BELIEVED, "recovered": RECOVERED, "timed": TIMED}


def _fill(broker: Broker) -> None:
    """The value of each record is its offset and some filling."""
    for topic, damages in DAMAGES.items():
        limit = f"{DAY_MS}" if topic == "timed" else "-1"
        broker.create_topic(topic, len(damages), internal_segment_bytes="3000", retention_ms=limit)
    producer = broker.producer()
    offset = 0
    for number in range(ROUNDS):
        for each in range(offset, offset + 1 + number % 4):
            for topic, damages in DAMAGES.items():
                for partition in range(len(damages)):
                    producer.produce(topic, _value(each), b"key", partition)
        offset += 1 + number % 4
        producer.flush(CLIENT_LIMIT_S)


def _value(offset: int) -> bytes:
    return b"%d " % offset * (30 - len(str(offset)))


def _batches(directory: Path) -> dict[int, int]:
    """First offset → records, of each batch of a sound partition."""
    found = {}
    for log in sorted(directory.glob("*.log")):
        data = log.read_bytes()
        for position, _ in batch_spans(log):
            header = data[position : position + 61]
            found[int.from_bytes(header[:8], "big")] = int.from_bytes(header[57:61], "big")
    return found


def _recovered_from_the_start(data: Path) -> None:
    points = data / "recovery-point-offset-checkpoint"
    lines = points.read_text().splitlines()
    zeroed = [f"recovered {line.split()[1]} 0" if line.startswith("recovered ") else line for line in lines]
    points.write_text("\n".join(zeroed) + "\n")


class _Reader:
    """A consumer that asks for every batch by itself when it was not given it with the one before."""

    def __init__(self, broker: Broker) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "check.crcs": True,
                "isolation.level": "read_uncommitted",
                "fetch.wait.max.ms": 20,
                "fetch.error.backoff.ms": 20,
                "log_level": 0,
            }
        )

    def close(self) -> None:
        self._consumer.close()

    def offsets(self, topic: str, partition: int, batches: dict[int, int]) -> set[int]:
        """Of the records that it is given with their own values."""
        start, end = self._bounds(TopicPartition(topic, partition))
        found = self._read(topic, partition, OFFSET_BEGINNING)
        for first in batches:
            if start <= first < end and first not in found:
                found |= self._read(topic, partition, first)
        return found

    def _bounds(self, place: TopicPartition) -> tuple[int, int]:
        """Waits for the broker to lead the partition."""
        deadline = time.monotonic() + CLIENT_LIMIT_S
        while True:
            try:
                return self._consumer.get_watermark_offsets(place, CLIENT_LIMIT_S)
            except KafkaException:
                assert time.monotonic() < deadline, place
                time.sleep(0.1)

    def _read(self, topic: str, partition: int, offset: int) -> set[int]:
        self._consumer.assign([TopicPartition(topic, partition, offset)])
        found: set[int] = set()
        deadline = time.monotonic() + STALLED_S
        while time.monotonic() < deadline:
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() in (KafkaError._PARTITION_EOF, KafkaError._BAD_MSG), error
                break
            at = message.offset()
            assert at is not None
            if message.value() == _value(at):
                found.add(at)
            deadline = time.monotonic() + STALLED_S
        return found


def _prices(data: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capfd.readouterr()
    assert run(["recover", "--json", str(data)]) == 1
    rows = map(json.loads, capfd.readouterr().out.splitlines())
    return {row["partition"]: row["costs"]["kafka"] for row in rows if "costs" in row}


def _changed_with_journals_elsewhere(data: Path, journals: Path) -> list[Path]:
    """The pointers to the journal of a repair, in its partition and as one that is not done in the data directory."""
    assert run(["recover", "--apply", "--journal", str(journals), str(data / "timed-2")]) == 0
    (pointer,) = (data / "timed-2").glob("kseg-journal-*-at-*.done")
    is_open = data / pointer.with_suffix(".open").name
    is_open.touch()
    return [pointer, is_open]


@pytest.mark.evidence(
    "batch-invalid",
    "damage-believed",
    "missing-index-cut",
    "damage-offsets",
    "time-index",
    "kseg-journal-elsewhere",
)
def test_consumers_miss_what_the_price_says(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    require_kafka()
    with Broker(tmp_path / "sound") as broker:
        _fill(broker)
    data = broker.data
    (data / ".kafka_cleanshutdown").unlink()
    _recovered_from_the_start(data)
    wanted = {}
    for topic, damages in DAMAGES.items():
        for partition, damage in enumerate(damages):
            directory = data / f"{topic}-{partition}"
            wanted[topic, partition] = _batches(directory)
            damage(directory)
    prices = _prices(data, capfd)
    pointers = _changed_with_journals_elsewhere(data, tmp_path / "journals")
    with Broker(tmp_path / "start", data) as started:
        started.wait_for("retention", lambda: len(list((data / "timed-0").glob("*.log"))) == 1)
        reader = _Reader(started)
        try:
            missing = {
                f"{topic}-{partition}": sum(batches.values()) - len(reader.offsets(topic, partition, batches))
                for (topic, partition), batches in wanted.items()
            }
        finally:
            reader.close()
    assert all(pointer.exists() for pointer in pointers)
    assert prices["recovered-2"]["records"] is None  # no header tells; in this topic each offset is a record
    told = {name: prices[name] for name in missing}
    assert {
        name: (cost["offsets"] if cost["records"] is None else cost["records"]) for name, cost in told.items()
    } == missing
    lost_in = {f"{topic}-{partition}" for (topic, partition) in wanted if missing[f"{topic}-{partition}"]}
    assert lost_in == missing.keys() - {"believed-4", "timed-2"}
