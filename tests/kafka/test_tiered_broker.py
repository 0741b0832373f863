"""A real broker with tiered storage: `kseg list --remote` reports what the remote store contains and a consumer receives. What `recover`
does about a lost leader-epoch checkpoint, `doctor` about a lost local log, `retain` about local segments and `append` about the leader
epochs before them keeps the broker from deleting it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from fixtures.diseases import batch_spans
from kseg.cli.main import run
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.internal_topics.metadata_logs import T0
from tests.internal_topics.remote_logs import DELETING, update
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

RECORDS = 400
APPENDED = 3
# committed offset of a group, below the local log start
COMMITTED = 50
# a record with a later timestamp than those after it
LATE, LATE_MS = 100, 600_000
STORE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


def tiered(root: Path) -> Broker:
    """A broker whose remote store is a directory."""
    properties: dict[str, Any] = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": STORE,
        "remote.log.storage.manager.impl.prefix": "rsm.",
        "rsm.dir": str(root / "store"),
        "rsm.delete.on.close": "false",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "300",
        "log.segment.delete.delay.ms": "100",
    }
    return Broker(root / "broker", **{name.replace(".", "_"): value for name, value in properties.items()})


def listed(
    data: Path, capfd: pytest.CaptureFixture[str], status: int = 0
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row of the partition, and those of its segments."""
    rows = rows_of(capfd, "list", "--remote", "--topic", "orders", data, status=status)
    (partition,) = [row for row in rows if row["type"] == "remote_partition"]
    return partition, [row for row in rows if row["type"] == "remote_segment"]


def remote_topics(data: Path, capfd: pytest.CaptureFixture[str]) -> set[str]:
    capfd.readouterr()
    run(["list", "--remote", "--json", str(data)])
    rows = map(json.loads, capfd.readouterr().out.splitlines())
    return {row["topic"] for row in rows if row["type"] == "remote_partition"}


def in_store(root: Path, topic: str) -> list[Path]:
    return [path for path in root.glob("store*/**/*.log") if f"{topic}-0-" in str(path)]


@pytest.mark.evidence("remote-epochs")
@pytest.mark.evidence("replica-missing")
def test_remote_segments_are_those_in_the_store_and_consumed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    broker = tiered(tmp_path)
    with broker:
        for topic in ("orders", "deleted", "forgotten"):
            broker.create_topic(
                topic, remote_storage_enable="true", local_retention_bytes="1", retention_ms="-1"
            )
        broker.create_topic("kept", remote_storage_enable="true", local_retention_bytes="100000000")
        producer = broker.producer(compression_type="none")
        first_ms = int(time.time() * 1000) - RECORDS * 1000
        for number in range(RECORDS):
            timestamp = first_ms + number * 1000 + (LATE_MS if number == LATE else 0)
            for topic in ("orders", "deleted", "forgotten", "kept"):
                producer.produce(topic, value=b"x" * 500, partition=0, key=str(number), timestamp=timestamp)
            if number % 10 == 9:
                producer.flush()
        producer.flush()
        local = broker.data / "orders-0"
        broker.wait_for("the local log's end", lambda: len([*local.glob("*.log")]) == 1)
        assert [record.offset for record in broker.consume("orders")] == [*range(RECORDS)]
        uploaded = [broker.data / f"{topic}-0" for topic in ("deleted", "forgotten")]
        broker.wait_for("the uploads", lambda: all(len([*each.glob("*.log")]) == 1 for each in uploaded))
        kept = sorted((broker.data / "kept-0").glob("*.log"))
        broker.wait_for("the uploads", lambda: len(in_store(tmp_path, "kept")) == len(kept) - 1)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for future in admin.delete_topics(["deleted"]).values():
            future.result(CLIENT_LIMIT_S)
        # delete each segment separately: no record says that the partition is deleted
        broker.wait_for(
            "the deletion",
            lambda: remote_topics(broker.data, capfd) == {"orders", "forgotten", "kept"},
        )
        assert not [*(tmp_path / "store").rglob("deleted-0-*/*.log")]
        times = [
            first_ms + by for by in (0, 50_000, LATE * 1000 + LATE_MS, RECORDS * 1000 - 1500, LATE_MS * 2)
        ]
        answers = _asked(broker, times)
    data = broker.data
    _assert_same_answers(data / "orders-0", times, answers, tmp_path / "copy", capfd)
    partition, segments = listed(data, capfd)
    (active,) = sorted((data / "orders-0").glob("*.log"))
    first_local = int(active.stem)
    assert partition["topic"] == "orders" and partition["log_start_offset"] == 0
    assert partition["local"] == [[first_local, RECORDS - 1]] and partition["remote"] == [
        [0, first_local - 1]
    ]
    assert partition["missing"] == [] and partition["dangling"] == 0 and first_local > 0
    # the store names its files after offset and segment id
    stored = {path.name for path in in_store(tmp_path, "orders")}
    assert {f"{row['start_offset']:020}-{row['segment_id']}.log" for row in segments} == stored
    assert sum(path.stat().st_size for path in in_store(tmp_path, "orders")) == partition["bytes"]

    for topic in ("orders", "forgotten"):
        (data / f"{topic}-0" / "leader-epoch-checkpoint").unlink()
    rows = rows_of(capfd, "verify", data, status=1)
    assert [row["id"] for row in rows if row.get("severity") == "error"] == ["remote-epochs-lost"] * 2
    ends = {row["start"]["partition"]: row["start"] for row in rows if row.get("start", {}).get("partition")}
    assert ends["orders-0"]["log_start_offset"] == 0
    assert run(["recover", "--apply", "--json", "--topic", "orders", str(data)]) == 0
    _retain_local(data, tmp_path / "local.properties", capfd)
    _append(data / "orders-0", tmp_path / "lines.jsonl")
    assert len(kept) > 2 and sorted((data / "kept-0").glob("*.log")) == kept[-1:]
    with broker:
        assert [record.offset for record in broker.consume("kept")] == [*range(RECORDS)]
        assert re.search(r"Completed load of .*topic=orders, .*logStartOffset=0,", broker.log_text())
        broker.wait_for("the deletion", lambda: not in_store(tmp_path, "forgotten"))
        assert [record.offset for record in broker.consume("orders")] == [*range(RECORDS + APPENDED)]

    # the local log is lost, and only the remote store has data
    shutil.rmtree(local)
    lost, _ = listed(data, capfd)
    assert len(in_store(tmp_path, "kept")) >= len(kept) - 1
    assert lost["directory"] is None and lost["remote"] == partition["remote"]
    _put_empty_log_there(data, capfd)
    remote_end = lost["remote"][-1][1] + 1
    with broker:
        assert [record.offset for record in broker.consume("orders")] == [*range(remote_end)]
        producer = broker.producer()
        producer.produce("orders", value=b"x", partition=0)
        producer.flush()
        assert broker.consume("orders")[-1].offset == remote_end
    assert len(in_store(tmp_path, "orders")) == len(stored)


@pytest.mark.evidence("remote-gap")
def test_offsets_whose_remote_segments_are_unknown_are_out_of_range(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A power failure cuts the end of `__remote_log_metadata`, after the local segments were deleted, and while retention deletes the first
    remote segment: the broker goes on with that, and may leave the log start there."""
    require_kafka()
    broker = tiered(tmp_path)
    with broker:
        broker.create_topic(
            "orders", remote_storage_enable="true", local_retention_bytes="1", retention_ms="-1"
        )
        producer = broker.producer(compression_type="none")
        for number in range(RECORDS // 4):
            producer.produce("orders", value=b"x" * 500, partition=0)
            if number % 10 == 9:
                producer.flush()
        local = broker.data / "orders-0"
        broker.wait_for("the local log's end", lambda: len([*local.glob("*.log")]) == 1)
    data = broker.data
    first_local = int(next(iter(local.glob("*.log"))).stem)
    assert not _gaps(data, capfd)
    log = max(data.glob("__remote_log_metadata-*/*.log"), key=lambda path: path.stat().st_size)
    spans = list(batch_spans(log))
    os.truncate(log, spans[len(spans) // 2][0])
    (data / ".kafka_cleanshutdown").unlink()
    assert run(["recover", "--apply", str(data)]) == 0
    ((first, last),) = _gaps(data, capfd)
    assert 0 < first < last == first_local - 1
    partition, segments = listed(data, capfd, status=1)
    deleting = update(("orders", partition["topic_id"], 0), segments[0]["segment_id"], DELETING)
    with log.open("ab") as file:
        record = Record(int(log.stem) + len(spans) // 2, T0, None, deleting)
        file.write(encode_batch(NewBatch(records=(record,), leader_epoch=0)))
    next_start = segments[0]["end_offset"] + 1
    assert _gaps(data, capfd) == [(0, next_start - 1), (first, last)]
    with broker:
        asked = (0, next_start - 1, next_start, first - 1, first, last, last + 1)
        served = [None, None, next_start, first - 1, None, None, last + 1]
        assert [_fetched(broker, offset) for offset in asked] == served
        # nearly always 0: the log start is raised before the deletion
        assert _asked(broker, [])[0] in (0, next_start)
    rows_of(capfd, "retain", "--apply", "--log-start-offset", next_start, local, status=0)
    assert _gaps(data, capfd) == [(first, last)]
    shutil.rmtree(log.parent)
    assert not _gaps(data, capfd)


def _gaps(data: Path, capfd: pytest.CaptureFixture[str]) -> list[tuple[int, int]]:
    rows = rows_of(capfd, "verify", data)
    return [(row["first_offset"], row["last_offset"]) for row in rows if row.get("id") == "remote-gap"]


def _fetched(broker: Broker, offset: int) -> int | None:
    """The offset of the first record that a fetch from `offset` returns; None if the broker has none there."""
    consumer = broker.consumer("fetching", auto_offset_reset="error")
    consumer.assign([TopicPartition("orders", 0, offset)])
    deadline = time.monotonic() + CLIENT_LIMIT_S
    try:
        (message,) = consumer.consume(1, CLIENT_LIMIT_S)
        error = message.error()
        # until a broker has read __remote_log_metadata, it cannot say what is in remote storage
        while error is not None and error.code() == KafkaError.UNKNOWN and time.monotonic() < deadline:
            (message,) = consumer.consume(1, CLIENT_LIMIT_S)
            error = message.error()
        assert error is None or error.code() == KafkaError._AUTO_OFFSET_RESET, error
        return None if error is not None else message.offset()
    finally:
        consumer.close()


def _asked(broker: Broker, times: list[int]) -> list[int]:
    """The earliest offset of `orders`, and offsets by time, as ListOffsets returns them; -1 for none."""
    consumer = broker.consumer("asking")
    low, high = consumer.get_watermark_offsets(TopicPartition("orders", 0), CLIENT_LIMIT_S)
    asked = [
        consumer.offsets_for_times([TopicPartition("orders", 0, time_ms)], CLIENT_LIMIT_S)[0].offset
        for time_ms in times
    ]
    consumer.commit(offsets=[TopicPartition("orders", 0, COMMITTED)], asynchronous=False)
    consumer.close()
    return [low, *(-1 if offset in (high, OFFSET_END) else offset for offset in asked)]


def _assert_same_answers(
    partition: Path, times: list[int], answers: list[int], copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`lookup` finds offsets in the local log, names the remote segment that has the others, or says that there may be one if that is
    unknown."""
    first_local = int(min(partition.glob("*.log")).stem)
    earliest, *by_time = answers
    assert earliest == 0 and -1 in by_time and any(0 <= offset < first_local for offset in by_time)
    assert _looked_up(capfd, partition, "--earliest")[-1]["offset"] == earliest
    (committed,) = [row for row in rows_of(capfd, "groups", partition.parent) if row["type"] == "offset"]
    assert (committed["offset"], committed["status"], committed["log_start_offset"]) == (COMMITTED, "ok", 0)
    for time_ms, offset in zip(times, by_time, strict=True):
        (row,) = _looked_up(capfd, partition, "--timestamp", time_ms)
        if offset >= first_local:
            assert row["offset"] == offset
        elif offset < 0:
            assert not row["found"] and "remote" not in row["reason"]
        else:
            found = re.search(
                r"in remote storage, in the segment with offsets (\d+) to (\d+) ", row["reason"]
            )
            assert not row["found"] and found and int(found[1]) <= offset <= int(found[2])
    shutil.copytree(partition, copy / partition.name)
    shutil.copy(partition.parent / "log-start-offset-checkpoint", copy)
    for question in ("--earliest", f"--timestamp={times[0]}", "--key=0"):
        ids = [row.get("id") for row in _looked_up(capfd, copy / partition.name, question)]
        assert "checkpoint-below-log" in ids
    exported = rows_of(capfd, "export", "--to", "json", "--output", copy / "exported", partition)
    assert [row["id"] for row in exported if row["type"] == "finding"] == ["checkpoint-below-log"]


def _looked_up(capfd: pytest.CaptureFixture[str], partition: Path, *question: object) -> list[dict[str, Any]]:
    return rows_of(capfd, "lookup", *question, partition)


def _put_empty_log_there(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Follow the step of `doctor` for a partition that has lost its local log: without it, the broker deletes what the remote store has."""
    rows = rows_of(capfd, "doctor", data)
    (missing,) = [row for row in rows if row["type"] == "finding" and row["id"] == "replica-missing"]
    assert "deletes the partition's segments in remote storage" in missing["message"]
    (step,) = [row["command"] for row in rows if row["type"] == "step" and "recover" in row["command"]]
    make, create, give, repair = (shlex.split(command) for command in step.split(" && "))
    for command in (make, create, give):
        subprocess.run(command, check=True)
    assert run(repair[1:]) == 0
    assert not [row for row in rows_of(capfd, "verify", data) if row.get("severity") == "error"]


def _append(partition: Path, lines: Path) -> None:
    """Append to the local log of a partition whose older records are in the remote store."""
    lines.write_text('{"value":"appended"}\n' * APPENDED)
    assert run(["append", "--apply", "--from", str(lines), str(partition)]) == 0


def _retain_local(data: Path, config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Delete all local segments of the topic `kept` that have been copied, with a smaller local.retention.bytes."""
    config.write_text("local.retention.bytes=1\n")
    capfd.readouterr()
    words = ["retain", "--apply", "--json", "--purge", "--file-delete-delay-ms", "0", "--config", str(config)]
    rows = rows_of(capfd, *words, "--topic", "kept", data, status=0)
    (result,) = [row for row in rows if row["type"] == "result" and row.get("partition") == "kept-0"]
    assert result["tiered"] and result["log_start_offset"] == 0 and not result["log_start_moved"]
    assert result["remote_end_offset"] == result["first_base_offset"]
