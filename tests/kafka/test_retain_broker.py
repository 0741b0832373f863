"""A real broker opens the log after retention: consumers receive the rest, and producers continue at the log end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.recovering import recovered_lines
from tests.support.forked_programs import run_kseg
from tests.support.trees import copy_tree

if TYPE_CHECKING:
    from tests.kafka.scenario import Written

pytestmark = pytest.mark.kafka

BY_SIZE, BY_TIME, BY_START = "codec-none", "transactions", "codec-lz4"


def retain(data: Path, topic: str, *words: str) -> dict[str, Any]:
    """Run `kseg retain --apply` on one topic; returns its result."""
    done = run_kseg("retain", "--json", "--apply", "--topic", topic, *words, data)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    result: dict[str, Any] = next(row for row in rows if row["type"] == "result" and "partition" in row)
    return result


@pytest.mark.evidence("deleted-file")
@pytest.mark.behaviour("T20")
def test_broker_serves_and_extends_a_log_after_retention(everything: Written, tmp_path: Path) -> None:
    data = copy_tree(everything.stopped, tmp_path / "data")
    results = {
        BY_SIZE: retain(data, BY_SIZE, "--retention-bytes", "3000"),
        BY_TIME: retain(data, BY_TIME, "--retention-ms", "1", "--now", "2100-01-01"),
        BY_START: retain(data, BY_START, "--log-start-offset", "150"),
    }
    assert all(result["deleted"] for result in results.values())
    assert results[BY_TIME]["rolled"] and results[BY_START]["log_start_offset"] == 150
    with Broker(tmp_path / "broker", data) as broker:
        assert recovered_lines(broker) == []
        for topic, result in results.items():
            start = result["log_start_offset"]
            expected = [record for record in everything.uncommitted[topic, 0] if record.offset >= start]
            assert broker.consume(topic) == expected
            producer = broker.producer()
            producer.produce(topic, b"on")
            assert producer.flush(CLIENT_LIMIT_S) == 0
            given = broker.consume(topic)
            assert given[:-1] == expected and given[-1].offset >= result["log_end_offset"]
    assert not list(data.rglob("*.deleted"))


@pytest.mark.evidence("segment-age", "deleted-file")
def test_broker_serves_all_topics_after_free_and_purge(everything: Written, tmp_path: Path) -> None:
    """`--free --purge` over all topics: the broker loads and serves the rest without recovery, and no other topic has lost a record."""
    data = copy_tree(everything.stopped, tmp_path / "data")
    # files that the broker's cleaner had marked when it stopped count first, and their size differs from run to run
    marked_bytes = sum(path.stat().st_size for path in data.rglob("*.deleted"))
    done = run_kseg("retain", "--json", "--apply", "--free", marked_bytes + 20 * 1024, "--purge", data)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    (free,) = (row for row in rows if row["type"] == "free")
    assert free["reached"] and not list(data.rglob("*.deleted"))
    results = [row for row in rows if row["type"] == "result" and "partition" in row]
    starts = {row["partition"]: row["log_start_offset"] for row in results if row["deleted"]}
    assert starts and not any(name.startswith("__") for name in starts)
    with Broker(tmp_path / "broker", data) as broker:
        assert recovered_lines(broker) == []
        for (topic, partition), records in everything.uncommitted.items():
            start = starts.get(f"{topic}-{partition}", 0)
            if partition == 0:
                assert broker.consume(topic) == [record for record in records if record.offset >= start]
