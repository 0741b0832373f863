"""Segments of `__consumer_offsets` that were swapped, or copied over others, as a coordinator loads them: the offsets that a broker has
after its start are those that `kseg groups` shows, and what it passed over is reported, unless it has read the same offsets elsewhere.

Takes ten seconds: a broker with one restart.
"""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path
from typing import Any

import pytest

# where CI is set, the imports below fail instead of skipping the tests
if "CI" not in os.environ:
    pytest.importorskip("confluent_kafka", reason="no broker is started: confluent-kafka is not installed")

from confluent_kafka import Consumer, TopicPartition

from kseg.cli.main import run
from kseg.internal_topics.groups.coordinator_partition import partition_for
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
from kseg.internal_topics.load_findings import SKIPPED
from tests.internal_topics.coordinator_logs import batch, key, value
from tests.kafka.broker import Broker, commit_offsets
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients

pytestmark = pytest.mark.kafka

BASES = (0, 10, 20, 30)
EACH = 10
# by segment, the one whose batches it has; and the segments whose batches are reported as passed over
CASES = {
    (0, 1, 2, 3): set(),
    (1, 0, 2, 3): {1},
    (0, 2, 1, 3): {2},
    (2, 1, 0, 3): {1, 2},
    (1, 1, 2, 3): set(),
    (0, 0, 2, 3): set(),
    (2, 1, 2, 3): {1},
    (0, 1, 0, 3): set(),
    (0, 3, 2, 3): {2},
    (0, 1, 2, 1): set(),
    (3, 2, 1, 3): {1, 2},
}


def _group(partition: int, word: str) -> str:
    names = map(f"{word} {{}}".format, count())
    return next(name for name in names if partition_for(name, len(CASES)) == partition)


def _segment(partition: int, number: int) -> bytes:
    """Commits of one group that is in all segments, and of one that is only in this segment. The offset of a commit tells its record."""
    groups = [_group(partition, "all")] * (EACH - 1) + [_group(partition, f"only {number}")]
    offsets = range(BASES[number], BASES[number] + EACH)
    return b"".join(
        batch(
            offset,
            (
                key(CONSUMER_OFFSETS, 1, group=group, topic="fares", partition=0),
                value(CONSUMER_OFFSETS, 1, 3, offset=offset, commitTimestamp=2**42),
            ),
        )
        for offset, group in zip(offsets, groups, strict=True)
    )


def _write(directory: Path, partition: int, contents: tuple[int, ...]) -> None:
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for base, number in zip(BASES, contents, strict=True):
        path = directory / f"{base:020}.log"
        path.write_bytes(_segment(partition, number))
        # without indexes a broker would recover the segment, and not start
        for suffix in (".index", ".timeindex"):
            path.with_suffix(suffix).touch()


def test_misplaced_segments_are_loaded_as_a_broker_does(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    # a cleaner would write the segments again before they are loaded
    properties = {"offsets_topic_num_partitions": str(len(CASES)), "log_cleaner_enable": "false"}
    broker = Broker(tmp_path / "broker", None, **properties)
    with broker:
        broker.create_topic("fares")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "first", "log_level": 0})
        commit_offsets(consumer, [TopicPartition("fares", 0, 0)])
        consumer.close()
    for partition, contents in enumerate(CASES):
        _write(broker.data / f"{CONSUMER_OFFSETS}-{partition}", partition, contents)
    capfd.readouterr()
    run(["groups", "--json", str(broker.data)])
    rows: list[dict[str, Any]] = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    skipped = {
        (int(path.parent.name.rpartition("-")[2]), BASES.index(int(path.stem)))
        for path in (Path(row["path"]) for row in rows if row.get("id") == SKIPPED)
    }
    assert skipped == {
        (partition, segment) for partition, passed in enumerate(CASES.values()) for segment in passed
    }
    with broker:
        finished = "Finished loading of metadata from"
        broker.wait_for("loading", lambda: broker.log_text().count(finished) == len(CASES))
        with GroupClients(broker.bootstrap) as clients:
            truth = clients.ask("describe")["offsets"]
    shown = {row["group"]: row["offset"] for row in rows if row["type"] == "offset"}
    assert shown == {row["group"]: row["offset"] for row in truth}
    assert len(shown) > 3 * len(CASES)
