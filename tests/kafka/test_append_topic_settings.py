"""`append` to topics with settings of their own: what a broker makes of the same records, kseg does as well."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.kafka.broker import Broker

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


def _batches(partition: Path, capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert run(["dump", "--json", *map(str, sorted(partition.glob("*.log")))]) == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return [row for row in rows if row["type"] == "batch"]
