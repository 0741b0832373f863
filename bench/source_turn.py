"""A duel between the data source `kafka-log` and the other way to read the same records, for the race; prints the figures as JSON.

    python -m bench.source_turn SEGMENT_DIRECTORY SCRATCH

1. A real broker gets a topic of PARTITIONS partitions, stops, and finds the segment in each of them when it starts again.
2. One session on two cores reads the topic into nothing, RUNS times in turns: by Spark's own Kafka source from the broker,
   by `kafka-log` from the directory, by `kafka-log` with the columns of Spark's source only, and by a source that does nothing but return
   one batch of `kafka-log` again and again: no source in Python can be faster than that one.
3. The second run counts: in the first one Spark compiles, and the broker warms up.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kseg.spark import session
from kseg.spark.options import ClusterOptions
from kseg.spark.source import register
from tests.kafka import jars
from tests.kafka.broker import Broker

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

POM = Path(__file__).resolve().parent / "connector" / "pom.xml"
TOPIC, PARTITIONS, RUNS = "bench", 4, 3
OWN, ALIKE, RIVAL, PREPARED = "kafka-log", "same columns", "kafka", "prepared"
PREPARED_ROWS = 4096


def connector_jars(directory: Path) -> tuple[str, ...]:
    """Spark's Kafka source, fetched with Maven unless it is in `directory`."""
    if not any(directory.glob("*.jar")):
        command = [jars.tool("mvn"), "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={directory}"], check=True, stdout=sys.stderr)
    return tuple(map(str, sorted(directory.glob("*.jar"))))


def broker_over(segment_directory: Path, scratch: Path) -> Broker:
    """A running broker whose topic has the segment, as a linked file, in each partition."""
    # without rolling and retention, because the timestamps of the records are long past
    broker = Broker(scratch / "broker", log_index_size_max_bytes="10485760", log_retention_ms="-1")
    broker.start()
    broker.create_topic(
        TOPIC, PARTITIONS, internal_segment_bytes=str(2**30), segment_ms=str(2**63 - 1), retention_ms="-1"
    )
    broker.stop()
    for partition in range(PARTITIONS):
        directory = broker.data / f"{TOPIC}-{partition}"
        for old in directory.glob("0*"):
            old.unlink()
        for file in segment_directory.glob("0*"):
            take = os.link if file.suffix == ".log" else shutil.copy
            take(file, directory / file.name)
    broker.start()
    return broker


class PreparedSource(DataSource):
    """A source without any work of its own: each of `partitions` tasks returns the batch in the file `path`, `times` times."""

    @classmethod
    def name(cls) -> str:
        return PREPARED

    def reader(self, schema: StructType) -> DataSourceReader:
        return PreparedReader(self.options)


class PreparedReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._path, self._times, self._partitions = (
            options[name] for name in ("path", "times", "partitions")
        )

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(int(self._partitions))]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        import pyarrow as pa

        with pa.OSFile(self._path) as file:
            (batch,) = pa.ipc.open_stream(file)
        for _ in range(int(self._times)):
            yield batch


def prepare_batch(spark: SparkSession, broker: Broker, path: Path) -> tuple[StructType, dict[str, str]]:
    """Write the first records of the topic to the file as one batch; returns (schema, options) for `PreparedSource`."""
    import pyarrow as pa

    frame = spark.read.format(OWN).load(str(broker.data / f"{TOPIC}-*"))
    tasks = frame.rdd.getNumPartitions()
    (batch,) = frame.limit(PREPARED_ROWS).toArrow().combine_chunks().to_batches()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, batch.schema) as writer:
        writer.write_batch(batch)
    times = round(frame.count() / tasks / PREPARED_ROWS)
    return frame.schema, {"path": str(path), "times": str(times), "partitions": str(tasks)}


def cpu_seconds() -> float:
    """CPU time of this process and all its descendants (Spark, its Python workers, the broker) so far."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(status.parent.name)
        parents[number] = int(fields[1])
        spent[number] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    below = {os.getpid()}
    while more := {each for each, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(spent.get(each, 0.0) for each in below)


def read(
    spark: SparkSession, contestant: str, broker: Broker, prepared: tuple[StructType, dict[str, str]]
) -> tuple[float, float]:
    """(seconds, CPU seconds) of one read whose rows are discarded."""
    reader = spark.read.format(OWN if contestant == ALIKE else contestant)
    start, computed = time.perf_counter(), cpu_seconds()
    if contestant == PREPARED:
        schema, options = prepared
        frame = reader.schema(schema).options(**options).load()
    elif contestant == RIVAL:
        frame = reader.option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", TOPIC).load()
    else:
        includes = {"subscribe": TOPIC, "includeMeta": str(contestant == OWN).lower()}
        frame = reader.options(**includes).load(str(broker.data))
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start, cpu_seconds() - computed


def main() -> None:
    """The command line."""
    segment_directory, scratch = (Path(word).resolve() for word in sys.argv[1:3])
    broker = broker_over(segment_directory, scratch)
    try:
        spark = session.get(
            ClusterOptions(master="local[2]", jars=connector_jars(scratch.parent / "connector"))
        )
        register(spark)
        spark.dataSource.register(PreparedSource)
        prepared = prepare_batch(spark, broker, scratch / "batch")
        runs: dict[str, list[tuple[float, float]]] = {RIVAL: [], OWN: [], ALIKE: [], PREPARED: []}
        for _ in range(RUNS):
            for contestant, taken in runs.items():
                taken.append(read(spark, contestant, broker, prepared))
        counts = spark.read.format("kafka-log").schema("offset BIGINT").load(str(broker.data / f"{TOPIC}-*"))
        reported = {"records": counts.count(), "runs": runs}
    finally:
        broker.stop()
    os.write(1, json.dumps(reported).encode() + b"\n")


if __name__ == "__main__":
    main()
