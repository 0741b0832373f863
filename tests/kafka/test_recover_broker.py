"""The data directory of a broker that was killed in the middle of transactions, repaired by kseg, and recovered by the broker from a copy.

Policy kafka equals the broker's own recovery, file by file. After either policy with --mark-clean the broker starts without recovery, and
consumers receive every acknowledged record.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fixtures.diseases import batch_spans
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.snapshot import decode_snapshot
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.killed import TOPICS, Killed
from tests.kafka.recovering import damage, recover, recovered_lines
from tests.support.trees import copy_tree, files_in

pytestmark = pytest.mark.kafka


def partitions(data: Path) -> list[str]:
    return sorted(
        p.name for p in data.iterdir() if p.is_dir() and not p.name.startswith("__cluster_metadata")
    )


@pytest.mark.evidence("no-clean-marker", "batch-invalid", "torn-tail", "zero-tail", "index-preallocated")
@pytest.mark.parametrize("is_damaged", [False, True], ids=["killed", "damage"])
def test_policy_kafka_leaves_the_directory_like_a_broker(
    killed: Killed, tmp_path: Path, is_damaged: bool
) -> None:
    ours, theirs = copy_tree(killed.data, tmp_path / "ours"), copy_tree(killed.data, tmp_path / "theirs")
    for data in (ours, theirs) if is_damaged else ():
        damage(data)
    recover("--policy", "kafka", "--apply", ours)
    with Broker(tmp_path / "broker", theirs) as broker:
        assert recovered_lines(broker)
        if is_damaged:
            assert "Corruption found" in broker.log_text()
    for name in partitions(killed.data):
        _assert_same(files_in(ours / name), files_in(theirs / name), name)


def _assert_same(ours: Mapping[str, bytes], theirs: Mapping[str, bytes], name: str) -> None:
    """Compare file by file. A start adds a leader epoch at the log end and nothing else."""
    assert ours.keys() == theirs.keys(), name
    for file, data in ours.items():
        if file == "leader-epoch-checkpoint":
            own, other = decode_leader_epochs(data), decode_leader_epochs(theirs[file])
            assert other[: len(own)] == own and len(other) - len(own) <= 1, (name, own, other)
        # its entries are in the order of a hash map
        elif file.endswith(".snapshot"):
            assert sorted(decode_snapshot(data)) == sorted(decode_snapshot(theirs[file])), (name, file)
        else:
            assert data == theirs[file], (name, file, len(data), len(theirs[file]))


@pytest.mark.parametrize(
    ("policy", "is_damaged"),
    [
        ("kafka", False),
        ("kafka", True),
        ("salvage", True),
    ],  # test_mark_clean has salvage after a kill without damage
    ids=["kafka-killed", "kafka-damaged", "salvage-damaged"],
)
def test_broker_skips_recovery_of_a_recovered_directory(
    killed: Killed, tmp_path: Path, policy: str, is_damaged: bool
) -> None:
    data = copy_tree(killed.data, tmp_path / "data")
    if is_damaged:
        damage(data)
    recover("--policy", policy, "--apply", "--mark-clean", data)
    ends = {
        row["partition"]: row["log_end_offset"]
        for row in recover("--policy", policy, data)
        if "partition" in row and row["type"] == "result"
    }
    with Broker(tmp_path / "broker", data) as broker:
        assert f"Skipping recovery of {len(ends) - 1} logs" in broker.log_text()
        assert recovered_lines(broker) == []
        for topic in TOPICS:
            _assert_consumed(broker, killed, topic, ends[f"{topic}-0"], is_damaged)
        _go_on(broker)


def _assert_consumed(broker: Broker, killed: Killed, topic: str, end: int, is_damaged: bool) -> None:
    """Consumers receive everything acknowledged before the last durable record, and all of it where nothing was truncated."""
    given = {record.offset: record.value for record in broker.consume(topic)}
    acknowledged = killed.acknowledged[topic]
    if not is_damaged or topic == TOPICS[0]:
        assert max(acknowledged) < end
    expected = {offset: value for offset, value in acknowledged.items() if offset < end}
    # at most the last batch was damaged
    assert end >= _last_batch_offset(killed, topic)
    assert expected.items() <= given.items() and max(given) < end
    committed = [record.value for record in broker.consume(topic, committed=True)]
    assert set(committed) == killed.committed[topic] and len(committed) == len(killed.committed[topic])


def _last_batch_offset(killed: Killed, topic: str) -> int:
    """The base offset of the last batch that the killed broker wrote, from the first field of its header."""
    log = max(log for log in (killed.data / f"{topic}-0").glob("*.log") if log.stat().st_size)
    position, _ = batch_spans(log)[-1]
    return int.from_bytes(log.read_bytes()[position : position + 8], "big")


def _go_on(broker: Broker) -> None:
    """Producers come back: their open transactions are aborted, and new ones are written and read."""
    for topic in TOPICS[:2]:
        producer = broker.producer(transactional_id=topic)
        producer.init_transactions(CLIENT_LIMIT_S)
        producer.begin_transaction()
        producer.produce(topic, b"after", b"key", 0)
        producer.flush(CLIENT_LIMIT_S)
        producer.commit_transaction(CLIENT_LIMIT_S)
        assert broker.consume(topic, committed=True)[-1].value == b"after"
