"""`append` to topics with settings of their own: what a broker makes of the same records, kseg does as well."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kseg.cli.main import run
from tests.kafka.broker import Broker
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

T0 = int(time.time() * 1000) - 60_000  # a week between two records would end a segment
SETTINGS: dict[str, str] = {
    "message_timestamp_type": "LogAppendTime",
    "compression_type": "lz4",
    "internal_segment_bytes": "3000",
    "index_interval_bytes": "200",
}
VALUES = [hashlib.sha256(bytes([at])).hexdigest() for at in range(24)]


def test_appended_batches_are_those_of_a_broker(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One transaction in each topic, once by a producer, and once by `append`. The records of a LogAppendTime topic have the time of the
    append, whatever the client has set, the marker as well; batches are compressed as the topic says."""
    topics: dict[str, dict[str, str]] = {"plain": {"internal_segment_bytes": ""}, "stamped": SETTINGS}
    with Broker(tmp_path / "broker") as broker:
        for topic, config in topics.items():
            broker.create_topic(topic, 1, **config)
        producer = broker.producer(**{"transactional.id": "t", "linger.ms": 500})
        producer.init_transactions()
        for topic in topics:
            producer.begin_transaction()
            for at, value in enumerate(VALUES):
                producer.produce(topic, value, b"k", partition=0, timestamp=T0 + at)
            producer.commit_transaction()
    lines = tmp_path / "lines.jsonl"
    rows = [{"key": "k", "value": value, "timestamp": T0 + at} for at, value in enumerate(VALUES)]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    now_ms = T0 + 120_000
    for topic in topics:
        partition = broker.data / f"{topic}-0"
        (theirs, marker) = _batches(partition, capfd)
        asked = ["--producer-id", "4711", "--transactional", "--now", str(now_ms), "--apply"]
        assert run(["append", "--from", str(lines), *asked, str(partition)]) == 0
        printed = capfd.readouterr().out
        (_, _, ours, our_marker) = _batches(partition, capfd)
        alike = ("compression", "timestamp_type", "count", "transactional")
        assert [ours[name] for name in alike] == [theirs[name] for name in alike]
        assert our_marker["timestamp_type"] == marker["timestamp_type"]
        is_stamped = topic == "stamped"
        assert ours["timestamp_type"] == ("LogAppendTime" if is_stamped else "CreateTime")
        assert ours["max_timestamp"] == (now_ms if is_stamped else T0 + len(VALUES) - 1)
        assert ("24 timestamps became" in printed) is is_stamped
        assert len([*partition.glob("*.log")]) == (2 if is_stamped else 1)
    with broker:
        for topic in topics:
            assert [record.value for record in broker.consume(topic)] == 2 * [*map(str.encode, VALUES)]


def test_what_a_broker_rejects_or_deletes_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Records of two hours ago in a topic that keeps one hour are deleted by the broker; others are kept, and one of the day after tomorrow
    is rejected, whoever sends it."""
    hour_ms = 3_600_000
    ages_ms = {"kept": [2 * hour_ms, 60_000], "expired": [3 * hour_ms, 2 * hour_ms], "ahead": [-48 * hour_ms]}
    with Broker(tmp_path / "broker") as broker:
        for topic in ages_ms:
            broker.create_topic(topic, retention_ms=str(hour_ms))
        refused: list[KafkaError | None] = []
        producer = broker.producer()
        producer.produce(
            "ahead", b"v", timestamp=T0 + 48 * hour_ms, callback=lambda error, _: refused.append(error)
        )
        producer.flush()
        assert [error and error.name() for error in refused] == ["INVALID_TIMESTAMP"]
    found = {}
    for topic, ages in ages_ms.items():
        lines = tmp_path / "lines.jsonl"
        rows = [{"key": "k", "value": f"{age_ms}", "timestamp": T0 - age_ms} for age_ms in ages]
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
        answers = rows_of(capfd, "append", "--apply", "--from", lines, broker.data / f"{topic}-0", status=0)
        found[topic] = {answer["id"] for answer in answers if answer["type"] == "finding"}
    assert found == {"kept": set(), "expired": {"appended-expired"}, "ahead": {"future-timestamp"}}
    with broker:
        log = broker.data / "expired-0" / f"{0:020}.log"
        broker.wait_for("retention", lambda: not log.exists())
        assert broker.consume("expired") == []
        assert [len(broker.consume(topic)) for topic in ("kept", "ahead")] == [2, 1]


def test_batches_of_more_than_max_message_bytes_are_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A broker rejects the batch that the same producer settings make, and serves the one that is there. The compressed size counts."""
    value = "v" * 1500
    lines = tmp_path / "lines.jsonl"
    lines.write_text(json.dumps({"value": value, "timestamp": T0}) + "\n")
    codecs = {"plain": "uncompressed", "packed": "lz4"}
    with Broker(tmp_path / "broker") as broker:
        for topic, codec in codecs.items():
            broker.create_topic(topic, max_message_bytes="1000", compression_type=codec)
        errors: list[KafkaError | None] = []
        for topic, codec in codecs.items():
            producer = broker.producer(**{"compression.type": codec.replace("uncompressed", "none")})
            producer.produce(topic, value, timestamp=T0, callback=lambda error, _: errors.append(error))
            producer.flush()
    assert [error and error.name() for error in errors] == ["MSG_SIZE_TOO_LARGE", None]
    for topic in codecs:
        partition = str(broker.data / f"{topic}-0")
        answers = rows_of(capfd, "append", "--apply", "--from", lines, partition, status=0)
        found = [answer for answer in answers if answer["type"] == "finding"]
        expected = [("batch-too-large", 1000)] if topic == "plain" else []
        assert [(row["id"], row["limit"]) for row in found] == expected
    with broker:
        assert [len(broker.consume(topic)) for topic in codecs] == [1, 2]


def _batches(partition: Path, capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    rows = rows_of(capfd, "dump", *sorted(partition.glob("*.log")), status=0)
    return [row for row in rows if row["type"] == "batch"]
