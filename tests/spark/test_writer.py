"""Writing with `kafka-log`: rows in tasks and in the driver, attempts that fail, run twice or are killed, and save modes."""

from __future__ import annotations

import datetime
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kseg.cli.main import run
from kseg.segment.encoding.partitioner import partition_for_key
from kseg.segment.errors import Refused, UsageError
from kseg.segment.model import Record
from kseg.spark.source.source_schema import HEADERS_TYPE
from kseg.spark.source.write.writer import KafkaLogStreamWriter, KafkaLogWriter, Written
from tests.spark.test_commit import visible
from tests.support import trees
from tests.support.delivered_runs import contents_of, opens, records_of

if TYPE_CHECKING:
    from pyarrow import RecordBatch

COLUMNS = {
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "offset": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), pa.timestamp("us", "UTC")),
    "timestampType": (IntegerType(), pa.int32()),
    "headers": (HEADERS_TYPE, pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}.items()))),
}


def batch_of(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> RecordBatch:
    return pa.record_batch(
        [pa.array([row.get(name) for row in rows], COLUMNS[name][1]) for name in names], names=list(names)
    )


def schema_of(names: Sequence[str]) -> StructType:
    return StructType([StructField(name, COLUMNS[name][0]) for name in names])


def writer_of(log_dir: Path, names: Sequence[str], replaces: bool = False, **options: str) -> KafkaLogWriter:
    given = {"path": str(log_dir)} | {name.replace("_", "."): text for name, text in options.items()}
    return KafkaLogWriter(schema_of(names), given, replaces)


def attempt(writer: KafkaLogWriter, task: int, *batches: RecordBatch) -> Written:
    """The message that a task attempt sends to the driver."""
    done = writer.write(iter(batches))
    return Written(task, done.run_id, done.runs)


def values_of(count: int, name: str, **more: Any) -> list[dict[str, Any]]:
    return [{"value": b"%s-%d" % (name.encode(), n), **more} for n in range(count)]


def staged(log_dir: Path) -> list[str]:
    return [path.name for path in log_dir.iterdir() if path.name.startswith("kseg-staged-")]


# --- rows


def test_rows_become_records_with_all_their_fields(tmp_path: Path) -> None:
    log_dir = tmp_path / "not" / "there" / "yet"
    moment = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456, datetime.UTC)
    rows: list[dict[str, Any]] = [
        {"key": b"a", "value": b"1", "partition": 1, "timestamp": moment},
        {
            "key": None,
            "value": None,
            "partition": 1,
            "timestamp": datetime.datetime.fromtimestamp(0, datetime.UTC),
        },
        {
            "key": b"",
            "value": b"",
            "partition": 1,
            "headers": [{"key": "h", "value": b"\xff"}, {"key": "", "value": None}],
        },
    ]
    names = ("headers", "value", "timestamp", "key", "partition")
    writer = writer_of(log_dir, names, topic="t", compression_type="zstd")
    writer.commit([attempt(writer, 0, batch_of(rows, names))])
    first, second, third = records_of(log_dir / "t-1")
    stamp_ms = int(moment.timestamp() * 1000)
    assert first == Record(0, stamp_ms, b"a", b"1")
    assert second == Record(1, 0, None, None)
    assert (third.offset, third.key, third.value) == (2, b"", b"")
    assert third.headers == ((b"h", b"\xff"), (b"", None))
    assert third.timestamp_ms > stamp_ms, "without a timestamp it is now"
    assert not (log_dir / "t-0").exists(), "a partition that no row names is not made"
    assert not staged(log_dir)


def test_rows_with_log_append_time_keep_it(tmp_path: Path) -> None:
    times = [datetime.datetime.fromtimestamp(n, datetime.UTC) for n in (5, 5, 7)]
    names = ("value", "timestamp", "timestampType")
    rows = [{"value": b"v", "timestamp": time, "timestampType": 1} for time in times]
    writer = writer_of(tmp_path / "data", names, topic="t")
    writer.commit([attempt(writer, 0, batch_of(rows, names))])
    data = next((tmp_path / "data" / "t-0").glob("*.log")).read_bytes()
    assert data[22] == 0x08, "attributes of the first batch: LogAppendTime"
    assert [record.timestamp_ms for record in records_of(tmp_path / "data" / "t-0")] == [5000, 5000, 7000]


def test_keys_choose_the_partition_and_keyless_rows_go_round_robin(tmp_path: Path) -> None:
    names = ("key", "value")
    keyed = [{"key": b"key-%d" % n, "value": b"%d" % n} for n in range(200)]
    bare = values_of(200, "bare" * 10)
    writer = writer_of(tmp_path / "data", names, topic="t", partitions="5", batch_size="500")
    writer.commit([attempt(writer, 0, batch_of(keyed, names)), attempt(writer, 1, batch_of(bare, names))])
    shares = []
    for partition in range(5):
        found = records_of(tmp_path / "data" / f"t-{partition}")
        ours = [row["value"] for row in keyed if partition_for_key(row["key"], 5) == partition]
        assert [record.value for record in found if record.key is not None] == ours
        shares.append(sum(record.key is None for record in found))
    assert sum(shares) == 200 and min(shares) > 20
    assert run(["verify", "--deep", "--quiet", str(tmp_path / "data")]) == 0


def test_row_offsets_are_kept_or_renumbered(tmp_path: Path) -> None:
    names = ("value", "offset")
    rows = [{"value": b"v", "offset": offset} for offset in (10, 12, 40)]
    for keeps, offsets in (("true", [10, 12, 40]), ("false", [0, 1, 2])):
        writer = writer_of(tmp_path / keeps, names, topic="t", keepOffsets=keeps)
        writer.commit([attempt(writer, 0, batch_of(rows, names))])
        assert [record.offset for record in records_of(tmp_path / keeps / "t-0")] == offsets
        assert opens(tmp_path / keeps / "t-0") == offsets[-1] + 1


@pytest.mark.parametrize(
    ("names", "row", "output"),
    [
        (("value", "topic"), {"topic": None}, "no topic"),
        (("value", "topic"), {"topic": "../../etc"}, "not a valid topic name"),
        (("value", "topic"), {"topic": "__cluster_metadata"}, "cluster metadata log"),
        (("value", "topic", "partition"), {"topic": "t", "partition": -1}, "not a valid partition"),
        (("value", "topic", "offset"), {"topic": "t", "offset": -1}, "is not an offset"),
        (("value", "topic", "headers"), {"topic": "t", "headers": [{"key": None, "value": b""}]}, "no name"),
    ],
)
def test_invalid_row_fails_the_attempt(
    tmp_path: Path, names: tuple[str, ...], row: dict[str, Any], output: str
) -> None:
    log_dir = tmp_path / "data"
    log_dir.mkdir()
    writer = writer_of(log_dir, names)
    with pytest.raises(UsageError, match=output):
        writer.commit([attempt(writer, 0, batch_of([{"value": b"", **row}], names))])
    writer.abort([])
    assert not list(log_dir.iterdir())


@pytest.mark.parametrize(
    ("schema", "options", "output"),
    [
        ({"key": BinaryType()}, {"topic": "t"}, "the column value is missing"),
        ({"value": LongType()}, {"topic": "t"}, "string or binary, not bigint"),
        ({"value": StringType()}, {}, "neither a topic column"),
        ({"value": StringType(), "headers": ArrayType(StringType())}, {"topic": "t"}, "the column headers"),
        ({"value": StringType()}, {"topic": "a/b"}, "not a valid topic name"),
        ({"value": StringType()}, {"topic": "t", "compression.type": "zip"}, "compression.type"),
        ({"value": StringType()}, {"topic": "t", "topicId": "short"}, "not a valid id"),
        ({"value": StringType()}, {"topic": "t", "retention": "1"}, "no option retention"),
        ({"value": StringType()}, {"topic": "t", "segment.bytes": "0"}, "segment.bytes"),
    ],
)
def test_driver_refuses_invalid_schemas_and_options_at_once(
    tmp_path: Path, schema: dict[str, Any], options: dict[str, str], output: str
) -> None:
    fields = StructType([StructField(name, kind) for name, kind in schema.items()])
    with pytest.raises(UsageError, match=output):
        KafkaLogWriter(fields, {"path": str(tmp_path / "data"), **options}, False)
    assert not (tmp_path / "data").exists()


def logs_of(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def headers_of(directory: Path) -> list[tuple[int, int, int]]:
    """(leader epoch, attributes, records) of each batch, read at their positions in the format."""
    found = []
    for path in logs_of(directory):
        data, at = path.read_bytes(), 0
        while at < len(data):
            epoch, _, _, attributes = struct.unpack_from(">ibIh", data, at + 12)
            found.append((epoch, attributes, *struct.unpack_from(">i", data, at + 57)))
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return found


def test_batch_options_apply_to_written_batches(tmp_path: Path) -> None:
    names = ("value", "timestamp")
    rows = values_of(7, "v", timestamp=datetime.datetime.fromtimestamp(5, datetime.UTC))
    given: dict[str, Any] = {
        "kafka.compression.type": "gzip",
        "batchRecords": "3",
        "leaderEpoch": "7",
        "message.timestamp.type": "LogAppendTime",
    }
    writer = writer_of(tmp_path / "data", names, topic="t", **given)
    writer.commit([attempt(writer, 0, batch_of(rows, names))])
    partition = tmp_path / "data" / "t-0"
    assert headers_of(partition) == [(7, 0x09, 3), (7, 0x09, 3), (7, 0x09, 1)], "gzip is 1, LogAppendTime 8"
    assert {record.timestamp_ms for record in records_of(partition)} == {5000}
    assert (partition / "leader-epoch-checkpoint").read_text() == "0\n1\n7 0\n"
    writer = writer_of(tmp_path / "data", names, topic="t")
    writer.commit([attempt(writer, 0, batch_of(rows[:1], names))])
    assert headers_of(partition)[-1] == (7, 0, 1), "the epoch goes on"


@pytest.mark.parametrize(
    ("given", "bases"),
    [
        ({}, [0]),
        ({"segment.ms": "3000"}, [0, 4, 8]),  # rolls when a record is more than this after the first
        ({"segment.bytes": "300"}, [0, 3, 6, 9]),  # a batch of one such record has 88 bytes
        ({"segment.index.bytes": "32", "index.interval.bytes": "0"}, None),
    ],
)
def test_written_segments_roll_by_size_and_time(
    tmp_path: Path, given: dict[str, Any], bases: list[int] | None
) -> None:
    names = ("value", "timestamp")
    times = [datetime.datetime.fromtimestamp(n, datetime.UTC) for n in range(10)]
    rows = [{"value": b"v" * 20, "timestamp": time} for time in times]
    writer = writer_of(tmp_path / "data", names, topic="t", batchRecords="1", **given)
    writer.commit([attempt(writer, 0, batch_of(rows, names))])
    partition = tmp_path / "data" / "t-0"
    found = [int(path.stem) for path in logs_of(partition)]
    if bases is None:
        assert len(found) > 2
        assert all(path.stat().st_size <= 32 for path in partition.glob("*.index"))
    else:
        assert found == bases
    assert len(records_of(partition)) == 10
    assert run(["verify", "--deep", "--quiet", str(tmp_path / "data")]) == 0


def test_topic_id_option_is_written(tmp_path: Path) -> None:
    identity, names = "AAECAwQFBgcICQoLDA0ODw", ("value", "topic")
    rows = [{"value": b"v", "topic": "a"}, {"value": b"v", "topic": "b"}]
    writer = writer_of(tmp_path / "data", names, topicId=json.dumps({"a": identity}))
    writer.commit([attempt(writer, 0, batch_of(rows, names))])
    reported = (tmp_path / "data" / "a-0" / "partition.metadata").read_text()
    assert reported == f"version: 0\ntopic_id: {identity}"
    assert not (tmp_path / "data" / "b-0" / "partition.metadata").exists()
    with pytest.raises(UsageError, match="needs the option topic"):
        writer_of(tmp_path / "data", names, topicId=identity)
    with pytest.raises(UsageError, match="topicId must be JSON such as"):
        writer_of(tmp_path / "data", names, topicId="{" + identity)


# --- attempts


def broken(rows: RecordBatch) -> Iterator[RecordBatch]:
    yield rows
    raise RuntimeError("the task dies")


def test_failed_or_duplicate_attempts_leave_nothing(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    writer = writer_of(log_dir, ("value",), topic="t")
    batches = [batch_of(values_of(500, f"task{task}"), ("value",)) for task in range(3)]
    with pytest.raises(RuntimeError):
        writer.write(broken(batches[0]))
    assert not staged(log_dir), "an attempt that fails takes its file along"
    attempts = [[attempt(writer, task, batches[task]) for _ in range(2)] for task in range(3)]
    assert len(staged(log_dir)) == 6
    (log_dir / attempts[1][0].runs[0].file).write_bytes(b"cut by a kill")
    writer.commit([attempts[2][1], attempts[0][0], attempts[1][1]])
    assert contents_of(log_dir / "t-0") == [b"task%d-%d" % (task, n) for task in range(3) for n in range(500)]
    assert not staged(log_dir)


def test_aborted_job_leaves_nothing(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    writer = writer_of(log_dir, ("value",), topic="t")
    done = attempt(writer, 0, batch_of(values_of(5, "v"), ("value",)))
    writer.abort([done, None])
    assert not list(log_dir.iterdir())


def test_only_old_files_of_killed_jobs_are_removed(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    names = []
    for days in (0, 2):
        killed = writer_of(log_dir, ("value",), topic="t")
        done = attempt(killed, 0, batch_of(values_of(5, "v"), ("value",)))
        names.append(done.runs[0].file)
        before_s = (log_dir / names[-1]).stat().st_mtime - days * 86_400
        os.utime(log_dir / names[-1], (before_s, before_s))
    writer = writer_of(log_dir, ("value",), topic="t")
    writer.commit([attempt(writer, 0, batch_of(values_of(5, "v"), ("value",)))])
    assert staged(log_dir) == names[:1]
    assert len(records_of(log_dir / "t-0")) == 5


# --- save modes


def save(log_dir: Path, name: str, replaces: bool = False, **options: str) -> None:
    writer = writer_of(log_dir, ("value",), replaces, **{"topic": "t", **options})
    writer.commit([attempt(writer, 0, batch_of(values_of(2, name), ("value",)))])


def test_writer_save_modes(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    save(log_dir, "other", topic="other")
    save(log_dir, "first", ifExists="error")
    save(log_dir, "second")
    assert contents_of(log_dir / "t-0") == [b"first-0", b"first-1", b"second-0", b"second-1"]
    before = trees.tree_state(log_dir)
    with pytest.raises(Refused, match="holds partitions of t already"):
        save(log_dir, "third", ifExists="error")
    save(log_dir, "fourth", ifExists="ignore")
    assert trees.tree_state(log_dir) == before
    save(log_dir, "fifth", replaces=True)
    assert visible(log_dir) == {"other-0": [b"other-0", b"other-1"], "t-0": [b"fifth-0", b"fifth-1"]}


def test_partitions_of_an_existing_topic_elsewhere_are_not_created(tmp_path: Path) -> None:
    """If the topic exists, its other partitions may be on another disk or broker."""
    log_dir = tmp_path / "data"
    names = ("value", "partition")
    for replaces in (False, False, True):
        writer = writer_of(log_dir, names, replaces, topic="t")
        writer.commit([attempt(writer, 0, batch_of(values_of(1, "v", partition=4), names))])
    writer = writer_of(log_dir, names, topic="t", partitions="6")
    writer.commit([attempt(writer, 0, batch_of(values_of(1, "v", partition=2), names))])
    assert {name: len(values) for name, values in visible(log_dir).items()} == {"t-2": 1, "t-4": 1}


def test_overwrite_with_no_rows_empties_the_topic(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    save(log_dir, "first", partitions="2")
    writer = writer_of(log_dir, ("value",), True, topic="t")
    writer.commit([attempt(writer, 0)])
    assert visible(log_dir) == {"t-0": [], "t-1": []}
    nothing = writer_of(tmp_path / "new", ("value",), topic="t")
    nothing.commit([attempt(nothing, 0)])
    assert not (tmp_path / "new").exists()


# --- micro-batches


def test_repeated_micro_batch_is_written_once(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"48475f56-16cb-4a57-b4ea-c912db390c6c"}')
    given = {"path": str(log_dir), "topic": "t", "checkpointLocation": str(checkpoint)}
    for number in (0, 1, 1, 0, 2):
        writer = KafkaLogStreamWriter(schema_of(("value",)), given, False)
        done = writer.write(iter([batch_of(values_of(1, f"batch{number}"), ("value",))]))
        writer.commit([done], number)
        assert not staged(log_dir)
    assert contents_of(log_dir / "t-0") == [b"batch%d-0" % number for number in range(3)]
    assert not list(log_dir.rglob("*journal*")), "nobody undoes a micro-batch"
    (checkpoint / "metadata").write_text('{"id":"another"}')
    writer = KafkaLogStreamWriter(schema_of(("value",)), given, False)
    writer.commit([writer.write(iter([batch_of(values_of(1, "new"), ("value",))]))], 0)
    assert len(contents_of(log_dir / "t-0")) == 4, "another query counts for itself"
    own = {"path": str(log_dir), "topic": "t", "sinkId": "nightly"}
    for number in (5, 5):
        writer = KafkaLogStreamWriter(schema_of(("value",)), own, False)
        writer.commit([writer.write(iter([batch_of(values_of(1, "own"), ("value",))]))], number)
    assert len(contents_of(log_dir / "t-0")) == 5
    assert json.loads((log_dir / "kseg-stream-nightly.json").read_text())["batch"] == 5
    with pytest.raises(UsageError, match=r"'\.\./x' cannot be part of a file name"):
        KafkaLogStreamWriter(schema_of(("value",)), {**own, "sinkId": "../x"}, False)
    with pytest.raises(UsageError, match="sinkId"):
        KafkaLogStreamWriter(schema_of(("value",)), {"path": str(log_dir), "topic": "t"}, False)
