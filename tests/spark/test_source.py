"""`spark.read.format("kafka-log")`: what real brokers left on disk, as DataFrames."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kseg.spark.source import register
from tests.support.scan_helpers import batch, plain_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

RECORD = ("offset", "unix_millis(timestamp)", "timestampType", "key", "value")


@pytest.fixture
def spark(local_spark: SparkSession) -> SparkSession:
    register(local_spark)
    return local_spark


def load(spark: SparkSession, path: Path | str, **given: str) -> DataFrame:
    return spark.read.format("kafka-log").options(**given).load(str(path))


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Rows in the order of the log, with bytes as bytes."""
    return [
        tuple(bytes(value) if isinstance(value, bytearray) else value for value in row)
        for row in frame.selectExpr(*columns).collect()
    ]


# --- what the old brokers' own iterators returned


def recorded(path: Path) -> Iterator[tuple[Any, ...]]:
    kinds = {None: -1, "NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
    for line in path.read_text().splitlines():
        each = json.loads(line)
        time = -1 if each["timestamp"] is None else each["timestamp"]
        key, value = (None if each[name] is None else b64decode(each[name]) for name in ("key", "value"))
        yield each["offset"], time, kinds[each["timestampType"]], key, value


@pytest.mark.parametrize("state", ["0.9.0.1/2-compacted", "0.10.2.2/3-compacted", "1.1.1/4-compacted"])
def test_source_reads_directories_of_old_brokers(spark: SparkSession, legacy_small: Path, state: str) -> None:
    frame = load(spark, legacy_small / "data" / state)
    by_partition: dict[str, list[tuple[Any, ...]]] = {}
    for topic, partition, *record in rows(frame, "topic", "partition", *RECORD):
        by_partition.setdefault(f"{topic}-{partition}", []).append(tuple(record))
    files = sorted((legacy_small / "records" / state).glob("*.jsonl"))
    assert len(files) >= 4
    for file in files:
        assert by_partition.get(file.stem, []) == list(recorded(file)), file.stem


def test_source_reads_a_kafka_0_7_directory(spark: SparkSession, legacy_small: Path) -> None:
    """Messages as consumers saw them. Offsets are byte positions, and the messages of a set have the offset of their entry."""
    directory = legacy_small / "data" / "0.7" / "1-written"
    compared = 0
    for file in sorted((legacy_small / "records" / "0.7" / "1-written").glob("*.jsonl")):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        consumed = [line for line in lines if line["view"] == "deep"]
        if not (directory / file.stem).is_dir() or not consumed:
            continue
        found = rows(load(spark, directory / file.stem), "value", "key", "timestampType", "_meta.valid")
        expected = [(b64decode(line["payload"]), None, -1, line["valid"]) for line in consumed]
        assert found == expected, file.stem
        compared += len(found)
    assert compared > 100


# --- what Kafka 4.3.1's own tool printed


def dumped(expected: Path) -> list[tuple[int, int, int]]:
    """(offset, timestamp, sequence) of each record in the tool's text."""
    pattern = re.compile(
        r"^\| offset: (\d+) (?:CreateTime|LogAppendTime): (-?\d+) .*? sequence: (-?\d+) ", re.MULTILINE
    )
    return [(int(a), int(b), int(c)) for a, b, c in pattern.findall(expected.read_text(errors="replace"))]


def test_source_reads_a_capture_of_kafka_4(spark: SparkSession, capture_small: Path) -> None:
    frame = load(spark, capture_small / "data", includeControl="true", subscribePattern="[a-z-]+")
    found: dict[str, list[tuple[int, ...]]] = {}
    for name, *record in rows(frame, "_meta.file", "offset", "unix_millis(timestamp)", "_meta.sequence"):
        found.setdefault(str(Path(name).relative_to(capture_small / "data")), []).append(tuple(record))
    assert len(found) >= 15
    for name, records in found.items():
        assert records == dumped(capture_small / "expected" / f"{name}.txt"), name


def test_source_reads_record_headers(spark: SparkSession, capture_small: Path) -> None:
    frame = load(spark, capture_small / "data" / "metro-zstd-0", includeHeaders="true")
    assert frame.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    found = [each for (each,) in rows(frame, "headers") if each is not None]
    names = {header.key for each in found for header in each}
    assert names == {"seen", "none"}
    assert {header.value for each in found for header in each if header.key == "none"} == {None}
    assert any(len([1 for header in each if header.key == "seen"]) > 1 for each in found)
    # null rather than an empty list for records without headers
    assert len(found) < frame.count()


# --- columns


def test_read_with_a_user_schema_returns_only_its_columns(spark: SparkSession, capture_small: Path) -> None:
    path = str(capture_small / "data" / "metro-none-0")
    whole = load(spark, path)
    named = spark.read.format("kafka-log").schema("_meta STRUCT<crc: BIGINT>, offset BIGINT").load(path)
    assert named.columns == ["_meta", "offset"]
    assert rows(named, "_meta.crc", "offset") == rows(whole, "_meta.crc", "offset")
    bare = load(spark, path, includeKey="false", includeValue="false", includeMeta="false")
    assert bare.columns == ["topic", "partition", "offset", "timestamp", "timestampType"]
    assert bare.count() == whole.count() > 0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"startingOffset": "earliest"}, "kafka-log has no option startingoffset"),
        (
            {"isolation.level": "strict"},
            "the option isolation.level must be read_uncommitted or read_committed",
        ),
        ({"startingOffsets": "first"}, "the option startingOffsets must be JSON such as"),
    ],
)
def test_bad_options_are_refused_at_load(
    spark: SparkSession, capture_small: Path, given: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence):
        load(spark, capture_small / "data", **given)


def test_invalid_read_is_refused_at_the_first_action(spark: SparkSession, capture_small: Path) -> None:
    path = str(capture_small / "data")
    with pytest.raises(Exception, match="there is no nothing in"):
        load(spark, path, subscribe="nothing").count()
    with pytest.raises(Exception, match="cannot be latest"):
        load(spark, path, startingOffsets="latest").count()
    with pytest.raises(Exception, match="the column offset is bigint, not string"):
        spark.read.format("kafka-log").schema("offset STRING").load(path).count()


# --- bounds and filters


def offsets(frame: DataFrame) -> list[int]:
    return [offset for (offset,) in rows(frame, "offset")]


def test_source_limits_a_read_by_offsets_and_times(spark: SparkSession, capture_small: Path) -> None:
    path = capture_small / "data" / "metro-gzip-0"
    whole = rows(load(spark, path), "offset", "unix_millis(timestamp)")
    part = load(
        spark,
        path,
        startingOffsets='{"metro-gzip":{"0":13}}',
        endingOffsets='{"metro-gzip":{"0":29}}',
    )
    assert offsets(part) == list(range(13, 29))
    time = whole[len(whole) // 2][1]
    late = load(spark, path, startingTimestamp=str(time))
    assert offsets(late) == [
        offset for offset, _ in whole if offset >= next(o for o, t in whole if t >= time)
    ]
    assert load(spark, path, minPartitions="3", maxRecordsPerBatch="5").count() == len(whole)


# --- damage


@pytest.fixture
def damaged_dir(tmp_path: Path) -> Path:
    """Two partitions, one of which has a batch that does not match its checksum: offsets 4 and 5 of 12."""
    data, positions = plain_file(6)
    damaged = bytearray(data)
    damaged[positions[2] + 70] ^= 1
    for name, content in (("damaged-0", bytes(damaged)), ("sound-0", batch(0, 3))):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(content)
    return tmp_path


def test_damage_fails_the_query_naming_file_and_bytes(spark: SparkSession, damaged_dir: Path) -> None:
    with pytest.raises(
        Exception,
        match=r"data may be lost in .*damaged-0/0{20}\.log: no valid batch in the \d+ bytes at position \d+",
    ):
        load(spark, damaged_dir).count()
    # what the options exclude is not read
    assert load(spark, damaged_dir, subscribe="sound").count() == 3
    assert load(spark, damaged_dir, subscribe="damaged", toOffset="4").count() == 4


def test_read_continues_after_damage_without_fail_on_data_loss(
    spark: SparkSession, damaged_dir: Path
) -> None:
    frame = load(spark, damaged_dir, failOnDataLoss="false")
    assert offsets(frame.where("topic = 'damaged'")) == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]


def test_findings_table_has_a_row_for_each_finding(spark: SparkSession, damaged_dir: Path) -> None:
    frame = load(spark, damaged_dir, table="findings")
    (found,) = frame.collect()
    assert (found.id, found.severity, found.topic, found.partition) == ("bad-crc", "error", "damaged", 0)
    assert (found.first_offset, found.last_offset) == (4, 5)
    assert found.path == str(damaged_dir / "damaged-0" / f"{0:020d}.log") and found.length > 0
    assert json.loads(found.numbers)["resumed_offset"] == 6
    assert load(spark, damaged_dir / "sound-0", table="findings").count() == 0


def test_include_invalid_returns_records_of_invalid_batches(spark: SparkSession, damaged_dir: Path) -> None:
    frame = load(spark, damaged_dir / "damaged-0", failOnDataLoss="false", includeInvalid="true")
    assert rows(frame, "offset", "_meta.valid") == [(n, n not in (4, 5)) for n in range(12)]


def test_file_deleted_after_planning_is_an_error_or_finding(spark: SparkSession, damaged_dir: Path) -> None:
    """A file that is deleted after planning is reported as an error or as a finding."""
    gone = load(spark, damaged_dir / "sound-0")
    assert gone.count() == 3
    planned = gone.select("offset")
    planned._jdf.queryExecution().executedPlan()
    (damaged_dir / "sound-0" / f"{0:020d}.log").unlink()
    with pytest.raises(Exception, match=r"cannot read .*sound-0"):
        planned.collect()


def test_source_reads_on_a_cluster(cluster_spark: SparkSession, capture_small: Path) -> None:
    register(cluster_spark)
    frame = load(cluster_spark, capture_small / "data", subscribePattern="metro-.*", minPartitions="8")
    found = {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}
    for topic in ("metro-none", "metro-gzip", "metro-snappy", "metro-lz4", "metro-zstd"):
        printed = (capture_small / "expected" / f"{topic}-0").glob("*.log.txt")
        assert found[topic] == sum(len(dumped(each)) for each in printed) > 100
