"""Logs written by Spark are opened by a real broker, and tasks are killed on a real cluster."""

from __future__ import annotations

import datetime
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka.conftest import require_kafka
from tests.support.delivered_runs import contents_of, opens

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from kseg.spark.source.source import register
from tests.kafka.broker import Broker, Consumed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)
T0_MS = 1_700_000_000_000
CREATE_TIME = 1
Row = tuple[
    bytes | None, bytes | None, str, int, int | None, datetime.datetime, list[tuple[str, bytes | None]] | None
]


def row_of(
    number: int,
    *,
    topic: str,
    partition: int = 0,
    offset: int | None = None,
) -> Row:
    moment = datetime.datetime.fromtimestamp((T0_MS + number) / 1000, datetime.UTC)
    headers: list[tuple[str, bytes | None]] | None = (
        [("n", b"%d" % number), ("none", None)] if number % 3 else None
    )
    key = None if number % 5 == 0 else b"key-%d" % (number % 17)
    value = None if number % 11 == 0 else b"value-%d" % number
    return key, value, topic, partition, offset, moment, headers


def seen(rows: Sequence[Row], topic: str, partition: int, first: int = 0) -> list[Consumed]:
    """What a consumer receives if rows were written in this order."""
    ours = [row for row in rows if row[2:4] == (topic, partition)]
    return [
        Consumed(
            number if row[4] is None else row[4],
            CREATE_TIME,
            round(row[5].timestamp() * 1000),
            row[0],
            row[1],
            tuple(row[6] or ()),
        )
        for number, row in enumerate(ours, first)
    ]


def written(frame: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("kafka-log").mode(mode)
    for name, text in options.items():
        writer = writer.option(name.replace("_", "."), text)
    writer.save(str(path))


@pytest.fixture(scope="module")
def produced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A cleanly stopped broker with empty topics and topics with ten records."""
    require_kafka()
    broker = Broker(tmp_path_factory.mktemp("written") / "broker")
    with broker:
        for topic in ("orders", "gaps", "grown", "overwritten"):
            broker.create_topic(topic, partitions=3 if topic == "orders" else 1)
        producer = broker.producer(enable_idempotence="true")
        for number in range(10):
            for topic in ("grown", "overwritten"):
                producer.produce(topic, b"old-%d" % number, b"k", 0)
        producer.flush()
    yield broker


@pytest.mark.kafka
def test_broker_opens_and_extends_logs_written_by_spark(produced: Broker, local_spark: SparkSession) -> None:
    register(local_spark)
    path = produced.data
    orders = [row_of(n, topic="orders", partition=n % 3) for n in range(600)]
    frame = local_spark.createDataFrame(orders, SCHEMA).drop("offset").coalesce(1)
    written(frame, path, compression_type="zstd", segment_bytes="6000", index_interval_bytes="500")
    offsets = [*range(0, 300, 7), *range(300, 310), 5000]
    gaps = [row_of(offset, topic="gaps", offset=offset) for offset in offsets]
    spread = local_spark.createDataFrame(gaps, SCHEMA).repartitionByRange(3, "offset")
    written(spread.sortWithinPartitions("offset"), path, compression_type="lz4")
    grown = [row_of(n, topic="grown") for n in range(20)]
    written(
        local_spark.createDataFrame(grown, SCHEMA).drop("offset", "topic").coalesce(1), path, topic="grown"
    )
    over = [row_of(n, topic="overwritten") for n in range(30)]
    written(local_spark.createDataFrame(over, SCHEMA).drop("offset").coalesce(1), path, "overwrite")
    ends = {
        "orders-0": 200,
        "orders-1": 200,
        "orders-2": 200,
        "gaps-0": 5001,
        "grown-0": 30,
        "overwritten-0": 30,
    }
    assert {name: opens(path / name) for name in ends} == ends
    with produced as broker:
        recovered = [line for line in broker.log_text().splitlines() if "Recovering unflushed" in line]
        assert not [line for line in recovered if any(name in line for name in ends)]
        for partition in range(3):
            assert broker.consume("orders", partition) == seen(orders, "orders", partition)
        assert broker.consume("gaps") == seen(gaps, "gaps", 0)
        old, new = broker.consume("grown")[:10], broker.consume("grown")[10:]
        assert [record.value for record in old] == [b"old-%d" % number for number in range(10)]
        assert new == seen(grown, "grown", 0, first=10)
        assert broker.consume("overwritten") == seen(over, "overwritten", 0)
        producer = broker.producer()
        for topic in ("gaps", "overwritten", "grown"):
            producer.produce(topic, b"after", b"k", 0)
        producer.flush()
        assert [broker.consume(topic)[-1].offset for topic in ("gaps", "overwritten", "grown")] == [
            5001,
            30,
            30,
        ]


def test_many_tasks_write_a_new_directory(local_spark: SparkSession, tmp_path: Path) -> None:
    register(local_spark)
    frame = local_spark.range(0, 10_000, 1, 6).selectExpr(
        "cast(id % 100 as string) key", "cast(id as string) value", "'many' topic"
    )
    written(frame, tmp_path / "data", partitions="4")
    found = {name: contents_of(tmp_path / "data" / name) for name in (f"many-{n}" for n in range(4))}
    assert sorted(int(value or b"") for values in found.values() for value in values) == list(range(10_000))
    for values in found.values():
        by_key: dict[int, list[int]] = {}
        for value in values:
            by_key.setdefault(int(value or b"") % 100, []).append(int(value or b""))
        assert all(ours == sorted(ours) for ours in by_key.values()), "rows of a key keep their order"


def test_save_modes_refused_by_spark_are_reported(local_spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    register(local_spark)
    frame = local_spark.range(3).selectExpr("cast(id as string) value")
    for mode in ("errorifexists", "ignore"):
        with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            written(frame, tmp_path / "data", mode, topic="t")
    with pytest.raises(AnalysisException, match="neither a topic column nor the option topic"):
        written(frame, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def settled(log_dir: Path) -> Mapping[str, int]:
    return {path.name: len(contents_of(path)) for path in sorted(log_dir.iterdir()) if path.is_dir()}


def test_stream_is_written_once_after_a_driver_killed_before_its_checkpoint(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    """The driver is killed after a micro-batch was delivered and before that is checkpointed."""
    register(local_spark)
    source, checkpoint, data = tmp_path / "in", tmp_path / "checkpoint", tmp_path / "data"
    source.mkdir()

    def run() -> None:
        frame = local_spark.readStream.text(str(source))
        query = (
            frame.writeStream.format("kafka-log")
            .option("topic", "t")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(data))
        )
        assert query.awaitTermination(600)
        failed = query.exception()
        assert failed is None, failed

    for number in range(2):
        (source / f"{number}.txt").write_text(f"line-{number}\n")
        run()
    assert contents_of(data / "t-0") == [b"line-0", b"line-1"]
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    run()
    assert contents_of(data / "t-0") == [b"line-0", b"line-1"], "the batch came again and was left out"
    (source / "2.txt").write_text("line-2\n")
    run()
    assert contents_of(data / "t-0") == [b"line-0", b"line-1", b"line-2"]
    assert settled(data) == {"t-0": 3}


def test_tasks_killed_while_writing_lose_and_duplicate_nothing(
    cluster_spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql.functions import udf

    register(cluster_spark)
    died = str(tmp_path / "died")
    data = tmp_path / "data"

    def fragile(number: int) -> str:
        for victim, how in ((2_500, signal.SIGKILL), (7_900, 0)):
            marker = f"{died}-{victim}"
            if number == victim and not os.path.exists(marker):
                os.close(os.open(marker, os.O_CREAT))
                if how:
                    os.kill(os.getpid(), how)
                raise RuntimeError("this attempt fails")
        return str(number)

    frame = cluster_spark.range(0, 8_000, 1, 4).select(udf(fragile, "string")("id").alias("value"))
    written(frame, data, topic="t", batch_size="2000")
    assert sorted(path.name for path in tmp_path.glob("died-*")) == ["died-2500", "died-7900"]
    assert contents_of(data / "t-0") == [b"%d" % n for n in range(8_000)]
    assert not list(data.glob("kseg-staged-*"))
