"""Following a growing directory without a session: the driver's offsets, and what tasks read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from fixtures import healthy
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.change.append.reopen import take_up
from kseg.segment.errors import UnreadableInput, UsageError
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from kseg.spark.source import stream
from kseg.spark.source.options import read_options
from kseg.spark.source.source_schema import default_schema
from kseg.spark.source.splits import DataLoss
from kseg.spark.source.stream import KafkaLogStreamReader, OffsetRange, Triggers
from tests.support.scan_helpers import batch

RULES = RollRules(segment_bytes=1500, index_interval_bytes=100)
ALL = ReadAllAvailable()


def grow(log_dir: Path, partition: str, values: Sequence[str], *, per_batch: int = 5, **batch: Any) -> None:
    """Append records as a broker does, creating the partition if necessary."""
    directory = log_dir / partition
    log_dir.mkdir(exist_ok=True)
    if directory.exists():
        taken = take_up(PartitionTarget(str(directory), str(log_dir)), RULES, 0, healthy.T0)
        writer = PartitionWriter(directory, partition=taken.partition, existing=taken.existing)
    else:
        writer = PartitionWriter(directory, rules=RULES)
    with writer:
        for begin in range(0, len(values), per_batch):
            first = writer.next_offset
            records = tuple(
                Record(first + n, healthy.T0 + first + n, b"k", value.encode())
                for n, value in enumerate(values[begin : begin + per_batch])
            )
            writer.append(NewBatch(records=records, leader_epoch=0, **batch))


def end_transaction(log_dir: Path, partition: str, producer_id: int, *, aborts: bool) -> None:
    directory = log_dir / partition
    taken = take_up(PartitionTarget(str(directory), str(log_dir)), RULES, 0, healthy.T0)
    with PartitionWriter(directory, partition=taken.partition, existing=taken.existing) as writer:
        marker = EndTransactionMarker(aborts, 0, healthy.T0)
        writer.append(end_transaction_batch(marker, writer.next_offset, producer_id, 0, 0))


def reader_of(*paths: Path, **options: str) -> KafkaLogStreamReader:
    given = {"paths": json.dumps([str(path) for path in paths]), "includeMeta": "false"}
    given |= {name.replace("_", "."): text for name, text in options.items()}
    return KafkaLogStreamReader(default_schema(read_options(given, streaming=True)), given)


def rows_between(reader: KafkaLogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    found = []
    for work in reader.partitions(start, end):
        for found_batch in reader.read(work):
            for row in found_batch.to_pylist():
                found.append(f"{row['topic']}-{row['partition']}@{row['offset']}={row['value'].decode()}")
    return sorted(found)


def named(partition: str, values: Sequence[str], first: int = 0) -> list[str]:
    return sorted(f"{partition}@{offset}={value}" for offset, value in enumerate(values, first))


def words(name: str, count: int, first: int = 0) -> list[str]:
    return [f"{name}-{n}" for n in range(first, first + count)]


# --- growing


def test_records_come_once_across_rolls_and_new_partitions(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    grow(log_dir, "t-0", words("a", 30))
    reader = reader_of(log_dir, startingOffsets="earliest")
    start = reader.initialOffset()
    assert start == {"t": {"0": 0}}
    first = reader.latestOffset(start, ALL)
    assert first == {"t": {"0": 30}}
    assert reader.latestOffset(first, ALL) == first
    grow(log_dir, "t-0", words("a", 90, 30))
    grow(log_dir, "u-3", words("b", 7))
    second = reader.latestOffset(first, ALL)
    assert second == {"t": {"0": 120}, "u": {"3": 7}}
    assert len(list((log_dir / "t-0").glob("*.log"))) > 1, "it has rolled"
    assert rows_between(reader, start, first) == named("t-0", words("a", 30))
    assert rows_between(reader, first, second) == [
        *named("t-0", words("a", 90, 30), 30),
        *named("u-3", words("b", 7)),
    ]
    again = reader_of(log_dir, minPartitions="7", maxRecordsPerPartition="10")
    assert len(again.partitions(start, second)) > 12
    assert len(rows_between(again, start, second)) == 127


def test_stream_over_an_empty_directory_starts_with_its_first_records(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    reader = reader_of(tmp_path / "data")
    start = reader.initialOffset()
    assert start == {} and reader.latestOffset(start, ALL) == {}
    grow(tmp_path / "data", "t-0", ["x"])
    end = reader.latestOffset(start, ALL)
    assert rows_between(reader, start, end) == ["t-0@0=x"]


def test_stream_paths_equal_those_of_a_batch_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = tmp_path / "data"
    grow(log_dir, "t-0", ["x"])
    start, end = {"t": {"0": 0}}, {"t": {"0": 1}}
    readers = [reader_of(log_dir, log_dir / "t-0"), reader_of(tmp_path / "d*")]
    monkeypatch.chdir(log_dir / "t-0")
    readers.append(reader_of(Path(".")))
    for reader in readers:
        assert reader.latestOffset(start, ALL) == end
        (work,) = reader.partitions(start, end)
        assert isinstance(work, OffsetRange) and work.target.path == str(log_dir / "t-0")
    with pytest.raises(UnreadableInput, match="no files match"):
        reader_of(tmp_path / "e*").initialOffset()
    grow(tmp_path / "other", "t-0", ["x"])
    with pytest.raises(UsageError, match=r"t-0 exists both in .*data/t-0 and in .*other/t-0"):
        reader_of(log_dir, tmp_path / "other").initialOffset()


def test_torn_tail_counts_as_not_written_yet(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    grow(log_dir, "t-0", words("a", 10))
    log = max((log_dir / "t-0").glob("*.log"))
    whole = log.read_bytes()
    grown = tmp_path / "grown"
    shutil.copytree(log_dir, grown)
    grow(grown, "t-0", words("a", 5, 10))
    more = max((grown / "t-0").glob("*.log")).read_bytes()[len(whole) :]
    reader = reader_of(log_dir, startingOffsets="earliest")
    start = reader.initialOffset()
    for torn in (more[:5], more[:60], more[:-1], bytes(len(more)), more[:-3] + b"xyz"):
        log.write_bytes(whole + torn)
        end = reader.latestOffset(start, ALL)
        assert end == {"t": {"0": 10}}, torn
        assert rows_between(reader, start, end) == named("t-0", words("a", 10))
    log.write_bytes(whole + more)
    assert reader.latestOffset(start, ALL) == {"t": {"0": 15}}


# --- where to begin, and how far


def test_stream_starting_offsets(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    grow(log_dir, "t-0", words("a", 10))
    grow(log_dir, "t-1", words("a", 4))
    assert reader_of(log_dir).initialOffset() == {"t": {"0": 10, "1": 4}}
    given = '{"t":{"0":3,"1":-2}}'
    assert reader_of(log_dir, startingOffsets=given).initialOffset() == {"t": {"0": 3, "1": 0}}
    assert reader_of(log_dir, startingTimestamp=str(healthy.T0 + 4), assign='{"t":[0]}').initialOffset() == {
        "t": {"0": 4}
    }
    for options, output in (
        ({"startingOffsets": '{"t":{"0":3}}'}, "t-1 is not named"),
        ({"startingOffsets": '{"t":{"0":3,"1":0,"2":0}}'}, "t-2 is not there"),
        ({"startingTimestamp": str(healthy.T0 + 5)}, "no record at or after"),
    ):
        with pytest.raises(UsageError, match=output):
            reader_of(log_dir, **options).initialOffset()
    ends = reader_of(log_dir, startingOffsets='{"t":{"0":-1,"1":-2}}')
    assert ends.initialOffset() == {"t": {"0": 10, "1": 0}}
    times = json.dumps({"t": {"0": healthy.T0 + 7, "1": healthy.T0 + 2}})
    assert reader_of(log_dir, startingOffsetsByTimestamp=times).initialOffset() == {"t": {"0": 7, "1": 2}}
    after = str(healthy.T0 + 5)
    late = reader_of(log_dir, startingTimestamp=after, startingOffsetsByTimestampStrategy="latest")
    assert late.initialOffset() == {"t": {"0": 5, "1": 4}}


def test_max_offsets_per_trigger_limits_a_micro_batch(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    grow(log_dir, "t-0", words("a", 90))
    grow(log_dir, "t-1", words("a", 10))
    reader = reader_of(log_dir, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit)
    assert end == {"t": {"0": 18, "1": 2}}
    assert reader.reportLatestOffset() == {"t": {"0": 90, "1": 10}}
    found, steps = rows_between(reader, start, end), 1
    while (following := reader.latestOffset(end, limit)) != end:
        found += rows_between(reader, end, following)
        end, steps = following, steps + 1
    assert sorted(found) == [*named("t-0", words("a", 90)), *named("t-1", words("a", 10))]
    assert steps == 5
    patient = reader_of(log_dir, startingOffsets="earliest", minOffsetsPerTrigger="101", maxTriggerDelay="1h")
    assert patient.latestOffset(start, ALL) == start
    patient.prepareForTriggerAvailableNow()
    grow(log_dir, "t-0", words("a", 5))
    assert patient.latestOffset(start, ALL) == {"t": {"0": 90, "1": 10}}, "what is there now, and no more"


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("15m", 900_000),
        ("2min", 120_000),
        (" 90S ", 90_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
        ("5", 5),
        ("5ms", 5),
        ("2500us", 2),
    ],
)
def test_max_trigger_delay_durations_are_parsed(text: str, delay_ms: int) -> None:
    """Durations as Spark reads them (org.apache.spark.network.util.JavaUtils.timeStringAs)."""
    assert Triggers.of({"maxTriggerDelay": text}).delay_ms == delay_ms


@pytest.mark.parametrize("text", ["", "m", "1.5h", "-5s", "1hm", "\u00b2m", "5 weeks"])
def test_invalid_max_trigger_delay_is_refused(text: str) -> None:
    refusal = "the option maxTriggerDelay must be a duration such as 15m or 900s, not"
    with pytest.raises(UsageError, match=refusal):
        Triggers.of({"maxTriggerDelay": text})


def test_micro_batch_comes_after_the_maximum_trigger_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(stream, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    grow(tmp_path / "data", "t-0", words("a", 10))
    reader = reader_of(
        tmp_path / "data", startingOffsets="earliest", minOffsetsPerTrigger="11", maxTriggerDelay="30ms"
    )
    start, end = {"t": {"0": 0}}, {"t": {"0": 10}}
    now_s[0] += 0.029
    assert reader.latestOffset(start, ALL) == start
    now_s[0] += 0.002
    assert reader.latestOffset(start, ALL) == end


# --- committed data


def test_committed_stream_ends_at_the_last_stable_offset(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    open_one = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    grow(log_dir, "t-0", ["plain"])
    grow(log_dir, "t-0", ["gone-0", "gone-1"], base_sequence=0, **open_one)
    grow(log_dir, "t-0", ["behind"])
    reader = reader_of(log_dir, startingOffsets="earliest", isolation_level="read_committed")
    every = reader_of(log_dir, startingOffsets="earliest")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    assert first == {"t": {"0": 1}}
    assert every.latestOffset(start, ALL) == {"t": {"0": 4}}
    end_transaction(log_dir, "t-0", 7, aborts=True)
    grow(log_dir, "t-0", ["kept"], base_sequence=2, **open_one)
    second = reader.latestOffset(first, ALL)
    assert second == {"t": {"0": 5}}
    end_transaction(log_dir, "t-0", 7, aborts=False)
    third = reader.latestOffset(second, ALL)
    assert [rows_between(reader, *step) for step in ((start, first), (first, second), (second, third))] == [
        ["t-0@0=plain"],
        ["t-0@3=behind"],
        ["t-0@5=kept"],
    ]
    assert len(rows_between(every, start, every.latestOffset(start, ALL))) == 5


def test_starting_timestamp_reached_only_by_undecided_records_has_no_match(tmp_path: Path) -> None:
    """In this case a broker returns no offset to a reader of committed data (Kafka: Partition.fetchOffsetForTimestamp), so Spark's own
    source finds no match."""
    log_dir = tmp_path / "data"
    open_one = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    grow(log_dir, "t-0", ["plain"])
    grow(log_dir, "t-0", ["undecided-0", "undecided-1"], base_sequence=0, **open_one)
    late = {"startingTimestamp": str(healthy.T0 + 2)}
    assert reader_of(log_dir, **late).initialOffset() == {"t": {"0": 2}}
    committed = late | {"isolation_level": "read_committed"}
    with pytest.raises(UsageError, match="no record at or after"):
        reader_of(log_dir, **committed).initialOffset()
    passing = committed | {"startingOffsetsByTimestampStrategy": "latest"}
    assert reader_of(log_dir, **passing).initialOffset() == {"t": {"0": 1}}


# --- losses


def lose_first_segments(directory: Path) -> int:
    """Delete the first segments as retention does; returns the new log start offset."""
    logs = sorted(directory.glob("*.log"))
    for log in logs[:-1]:
        for path in directory.glob(f"{log.stem}.*"):
            path.unlink()
    return int(logs[-1].stem)


def test_deleted_records_fail_the_query_or_are_skipped(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    grow(log_dir, "t-0", words("a", 100))
    start = {"t": {"0": 10}}
    strict, lenient = reader_of(log_dir), reader_of(log_dir, failOnDataLoss="false")
    end = strict.latestOffset(start, ALL)
    left = lose_first_segments(log_dir / "t-0")
    with pytest.raises(DataLoss, match=f"t-0 starts at offset {left}, and 10 is next"):
        strict.latestOffset(start, ALL)
    with pytest.raises(DataLoss, match="starts at offset"):
        rows_between(strict, start, end)
    assert rows_between(lenient, start, end) == named("t-0", words("a", 100 - left, left), left)
    with pytest.raises(DataLoss, match="ends at offset 100, and 200 is next"):
        strict.latestOffset({"t": {"0": 200}}, ALL)
    assert lenient.latestOffset({"t": {"0": 200}}, ALL) == {"t": {"0": 100}}
    with pytest.raises(DataLoss, match="u-0 is gone"):
        strict.latestOffset({"t": {"0": 100}, "u": {"0": 5}}, ALL)
    with pytest.raises(DataLoss, match="is new and starts at offset"):
        strict.latestOffset({}, ALL)
    kept = rows_between(lenient, {"t": {"0": 95}, "u": {"0": 5}}, {"t": {"0": 100}, "u": {"0": 9}})
    assert kept == named("t-0", words("a", 5, 95), 95)


def test_tasks_cover_only_offsets_that_still_exist(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    (log_dir / "t-0").mkdir(parents=True)
    first = 10**18
    (log_dir / "t-0" / f"{first:020d}.log").write_bytes(batch(first, 5))
    start, end = {"t": {"0": 3}}, {"t": {"0": first + 5}}
    for options, count in ({"maxRecordsPerPartition": "2"}, 3), ({"minPartitions": "5"}, 5):
        lenient = reader_of(log_dir, failOnDataLoss="false", **options)
        assert len(lenient.partitions(start, end)) == count
        assert len(rows_between(lenient, start, end)) == 5
    with pytest.raises(DataLoss, match=f"t-0 starts at offset {first}, and 3 is next"):
        reader_of(log_dir).partitions(start, end)
    (log_dir / "t-0" / f"{0:020d}.log").write_bytes(batch(0, 5))
    refusal = "minPartitions 2147483647 would split the offsets into more than 1000000 tasks"
    with pytest.raises(UsageError, match=refusal):
        reader_of(log_dir, minPartitions=str(2**31 - 1)).partitions(start, end)


def test_damage_in_the_middle_of_the_log_is_data_loss(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    grow(log_dir, "t-0", words("a", 15))
    log = log_dir / "t-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)
    start, end = {"t": {"0": 0}}, {"t": {"0": 15}}
    with pytest.raises(DataLoss, match="is damaged"):
        rows_between(reader_of(log_dir), start, end)
    kept = rows_between(reader_of(log_dir, failOnDataLoss="false"), start, end)
    assert kept == named("t-0", words("a", 10, 5), 5)
    assert rows_between(reader_of(log_dir), {"t": {"0": 5}}, end) == kept, "what lies before is not asked for"


def test_segment_replaced_by_the_cleaner_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions found in the previous file are useless in its replacement."""
    from kseg.inspection.arrow import planning

    log_dir = tmp_path / "data"
    grow(log_dir, "t-0", words("a", 400), per_batch=1)
    first = log_dir / "t-0" / f"{0:020d}.log"
    cleaned = tmp_path / "cleaned"
    data = first.read_bytes()
    second = 12 + int.from_bytes(data[8:12], "big")
    cleaned.write_bytes(data[second:])
    plan = stream._RangeReader._pieces
    plans = 0

    def planned(self: Any) -> Any:
        nonlocal plans
        found = plan(self)
        plans += 1
        if plans == 1:
            assert found[0][0].start > 0
            os.replace(cleaned, first)
        return found

    monkeypatch.setattr(planning, "SMALLEST_PART_BYTES", 0)
    monkeypatch.setattr(stream._RangeReader, "_pieces", planned)
    wanted = named("t-0", words("a", 380, 10), 10)
    assert rows_between(reader_of(log_dir), {"t": {"0": 10}}, {"t": {"0": 390}}) == wanted
    assert plans == 2
