"""A streaming query over the directory of a broker that is writing returns each record once, across restarts of query and broker."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.conftest import require_kafka

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from kseg.cli.main import run
from kseg.spark.source.source import register
from tests.kafka.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

TOPICS = {"orders": 2, "late": 1}
LIMIT_S = 600.0
# between transactions, so that the queries keep up: a micro-batch takes half a second of processor time
PAUSE_S = 0.25
TRIGGER = "1 second"
Seen = list[tuple[str, int, int, bytes | None, bytes | None]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    require_kafka()
    with Broker(tmp_path / "broker") as broker:
        broker.create_topic("orders", TOPICS["orders"])
        yield broker


class Writing(threading.Thread):
    """Writes transactions to a broker until it is stopped. Every third one is aborted."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._producer = broker.producer(transactional_id="stream-test", linger_ms=5)
        self._enough = threading.Event()
        self.written = 0

    def run(self) -> None:
        self._producer.init_transactions(LIMIT_S)
        number = 0
        while not self._enough.is_set():
            self._producer.begin_transaction()
            for n in range(20):
                self._producer.produce("orders", b"%d-%d" % (number, n), b"key-%d" % n, n % 2)
            if number % 3 == 2:
                self._producer.flush()
                self._producer.abort_transaction(LIMIT_S)
            else:
                self._producer.commit_transaction(LIMIT_S)
            number += 1
            self.written = number
            time.sleep(PAUSE_S)

    def stop(self) -> None:
        self._enough.set()
        self.join(LIMIT_S)


class Followed:
    """One streaming query and its result table, across several restarts."""

    def __init__(self, spark: SparkSession, data: Path, place: Path, **options: str) -> None:
        self._spark, self._data, self._place, self._options = spark, data, place, options
        self.query: StreamingQuery | None = None
        self._trigger: dict[str, Any] = {}

    def start(self, **trigger: Any) -> None:
        self._trigger = trigger
        reader = self._spark.readStream.format("kafka-log").option("startingOffsets", "earliest")
        for name, text in self._options.items():
            reader = reader.option(name.replace("_", "."), text)
        frame = reader.load(str(self._data)).select("topic", "partition", "offset", "key", "value")
        writer = frame.writeStream.format("parquet").option(
            "checkpointLocation", str(self._place / "checkpoint")
        )
        self.query = writer.trigger(**trigger).start(str(self._place / "out"))

    def stop(self) -> None:
        assert self.query is not None
        self.query.stop()

    def wait(self, happened: Any) -> None:
        assert self.query is not None
        deadline = time.monotonic() + LIMIT_S
        while not happened():
            if not self.query.isActive:
                self._start_again()
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def finish(self) -> None:
        """Run the query a last time, up to what is there now."""
        self.start(availableNow=True)
        assert self.query is not None and self.query.awaitTermination(int(LIMIT_S))
        while self.query.exception() is not None:
            self._start_again()
            assert self.query.awaitTermination(int(LIMIT_S))

    def _start_again(self) -> None:
        """On a busy machine, a Python worker sometimes does not start within the ten seconds that Spark allows. Then the query continues
        from its checkpoint, as it would anywhere."""
        assert self.query is not None
        failed = str(self.query.exception())
        assert "failed to connect back" in failed, failed[-3000:]
        self.start(**self._trigger)

    def offset_of(self, topic: str, partition: int) -> int:
        assert self.query is not None
        progress = self.query.lastProgress
        if progress is None:
            return 0
        text = progress["sources"][0]["endOffset"]
        offsets = json.loads(text) if isinstance(text, str) else text
        found: int = (offsets or {}).get(topic, {}).get(str(partition), 0)
        return found

    def rows(self) -> Seen:
        table = self._spark.read.parquet(str(self._place / "out"))
        return sorted(
            (row.topic, row.partition, row.offset, _bytes(row.key), _bytes(row.value))
            for row in table.collect()
        )


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def consumed(broker: Broker, topics: dict[str, int], *, committed: bool) -> Seen:
    return sorted(
        (topic, partition, record.offset, record.key, record.value)
        for topic, count in topics.items()
        for partition in range(count)
        for record in broker.consume(topic, partition, committed=committed)
    )


def test_stream_equals_the_consumer_across_restarts(
    broker: Broker, local_spark: SparkSession, tmp_path: Path
) -> None:
    register(local_spark)
    topics = "orders,late"
    every = Followed(local_spark, broker.data, tmp_path / "every", subscribe=topics, includeMeta="false")
    committed = Followed(
        local_spark,
        broker.data,
        tmp_path / "committed",
        subscribe=topics,
        includeMeta="false",
        isolation_level="read_committed",
        maxOffsetsPerTrigger="500",
    )
    writing = Writing(broker)
    writing.start()
    try:
        for each in (every, committed):
            each.start(processingTime=TRIGGER)
        for each in (every, committed):
            each.wait(lambda: each.offset_of("orders", 0) > 100)  # noqa: B023
            each.stop()
        seen = writing.written
        broker.create_topic("late", 1)
        committed.start(processingTime=TRIGGER)
        producer = broker.producer()
        for n in range(50):
            producer.produce("late", b"late-%d" % n, b"k", 0)
        producer.flush()
        committed.wait(lambda: committed.offset_of("late", 0) == 50)
        committed.stop()
        assert writing.written > seen
    finally:
        writing.stop()
    end = [consumed(broker, TOPICS, committed=False), consumed(broker, TOPICS, committed=True)]
    broker.stop()
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(f'{{"key":"k","value":"appended-{n}"}}\n' for n in range(30)))
    assert run(["append", "--apply", str(broker.data / "late-0"), "--from", str(lines), "--quiet"]) == 0
    for each, expected in zip((every, committed), end, strict=True):
        each.finish()
        appended = [("late", 0, 50 + n, b"k", b"appended-%d" % n) for n in range(30)]
        assert each.rows() == sorted([*expected, *appended])
    committed.finish()
    assert len(committed.rows()) == len(end[1]) + 30, "nothing comes twice"
