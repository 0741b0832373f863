"""Segments of the coordinators' topics that were swapped, or copied over others, as a coordinator loads them: the offsets, share states and
transactional ids that a broker has after its start are those that `kseg groups` and `kseg transactions` show, and what it passed over is
reported, by `verify` too, unless it has read the same offsets elsewhere.

Takes fifteen seconds: a broker with one restart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from kseg.internal_topics.groups.coordinator_partition import partition_for
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
from kseg.internal_topics.groups.share_state import SHARE_GROUP_STATE
from kseg.internal_topics.load_findings import SKIPPED
from kseg.internal_topics.transactions.transaction_log import TRANSACTION_STATE
from tests.internal_topics.coordinator_logs import batch, key, value
from tests.kafka.broker import Broker, commit_offsets
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients
from tests.kafka.transaction_clients import TransactionClients
from tests.support.command_rows import Rows, rows_of

pytestmark = pytest.mark.kafka

BASES = (0, 10, 20, 30)
EACH = 10
UNINITIALIZED = 42  # INVALID_REQUEST
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
# a segment ends beyond the log end, and with it the load; coordinators of groups do not answer any more then
BEYOND_THE_END = {(0, 1, 3, 2): {3}, (3, 1, 2, 0): {1, 2, 3}}
PARTITIONS = len(CASES) + len(BEYOND_THE_END)
Record = tuple[bytes, bytes]


def _name(partition: int, word: str, suffix: str = "") -> str:
    names = map(f"{word} {{}}".format, count())
    return next(name for name in names if partition_for(name + suffix, PARTITIONS) == partition)


def _commit(partition: int, word: str, offset: int, _: str) -> Record:
    group = _name(partition, word)
    return (
        key(CONSUMER_OFFSETS, 1, group=group, topic="fares", partition=0),
        value(CONSUMER_OFFSETS, 1, 3, offset=offset, commitTimestamp=2**42),
    )


def _share_state(partition: int, word: str, offset: int, topic_id: str) -> Record:
    group = _name(partition, word, f":{topic_id}:0")
    fields = {"snapshotEpoch": 1, "stateEpoch": 1, "startOffset": offset, "stateBatches": []}
    times = {"createTimestamp": 2**42, "writeTimestamp": 2**42}
    return key(SHARE_GROUP_STATE, 0, groupId=group, topicId=topic_id, partition=0), value(
        SHARE_GROUP_STATE, 0, 0, **fields, **times
    )


def _transaction(partition: int, word: str, offset: int, _: str) -> Record:
    fields = {"producerId": offset, "transactionStatus": 4, "transactionPartitions": []}
    name = _name(partition, word)
    return key(TRANSACTION_STATE, 0, transactionalId=name), value(
        TRANSACTION_STATE, 0, 1, transactionLastUpdateTimestampMs=2**42, **fields
    )


RECORDS: dict[str, Callable[[int, str, int, str], Record]] = {
    CONSUMER_OFFSETS: _commit,
    SHARE_GROUP_STATE: _share_state,
    TRANSACTION_STATE: _transaction,
}


def _segment(topic: str, partition: int, number: int, topic_id: str) -> bytes:
    """Records of one group that is in all segments, and of one that is only in this segment. The offset in a record tells which it is."""
    words = ["all"] * (EACH - 1) + [f"only {number}"]
    offsets = range(BASES[number], BASES[number] + EACH)
    return b"".join(
        batch(offset, RECORDS[topic](partition, word, offset, topic_id))
        for offset, word in zip(offsets, words, strict=True)
    )


def _write(data: Path, topic: str, partition: int, contents: tuple[int, ...], topic_id: str) -> None:
    directory = data / f"{topic}-{partition}"
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for base, number in zip(BASES, contents, strict=True):
        path = directory / f"{base:020}.log"
        path.write_bytes(_segment(topic, partition, number, topic_id))
        # without indexes a broker would recover the segment, and not start
        for suffix in (".index", ".timeindex"):
            path.with_suffix(suffix).touch()


def _skipped(rows: Rows) -> set[tuple[str, int]]:
    """The partitions and segments that are reported as passed over."""
    paths = [Path(row["path"]) for row in rows if row.get("id") == SKIPPED]
    return {(path.parent.name, BASES.index(int(path.stem))) for path in paths}


def _share_starts(clients: GroupClients, topic_id: str) -> dict[str, int]:
    """The start offsets of the share coordinator."""
    words = ["all", *(f"only {number}" for number in range(len(BASES)))]
    groups = [_name(partition, word, f":{topic_id}:0") for partition in range(len(CASES)) for word in words]
    keys = [{"group": group, "topic_id": topic_id, "partition": 0} for group in groups]
    states = clients.ask("share_states", keys=keys)["states"]
    assert {state["error"] for state in states} == {0, UNINITIALIZED}
    return {
        group: state["start_offset"]
        for group, state in zip(groups, states, strict=True)
        if not state["error"]
    }


def test_misplaced_segments_are_loaded_as_a_broker_does(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    topics = ("offsets.topic", "share.coordinator.state.topic", "transaction.state.log")
    # a cleaner would write the segments again before they are loaded
    properties = {f"{topic}.num.partitions": str(PARTITIONS) for topic in topics} | {
        "log.cleaner.enable": "false"
    }
    broker = Broker(tmp_path / "broker", None, **properties)
    with broker:
        broker.create_topic("fares")
        consumer = broker.consumer("first")
        commit_offsets(consumer, [TopicPartition("fares", 0, 0)])
        consumer.close()
        broker.create_topic(SHARE_GROUP_STATE, PARTITIONS)
        broker.create_topic(TRANSACTION_STATE, PARTITIONS)
    metadata = (broker.data / "fares-0" / "partition.metadata").read_text()
    topic_id = metadata.rpartition("topic_id: ")[2].strip()
    cases = dict.fromkeys(RECORDS, CASES) | {TRANSACTION_STATE: CASES | BEYOND_THE_END}
    for topic, contents_of in cases.items():
        for partition, contents in enumerate(contents_of):
            _write(broker.data, topic, partition, contents, topic_id)
    groups, transactions, verified = (
        rows_of(capfd, command, broker.data) for command in ("groups", "transactions", "verify")
    )
    expected = {
        (f"{topic}-{partition}", segment)
        for topic, passed_of in cases.items()
        for partition, passed in enumerate(passed_of.values())
        for segment in passed
    }
    assert _skipped([*groups, *transactions]) == expected == _skipped(verified)
    with broker:
        loaded = r"(?:Finished loading of|Completed loading transaction) metadata from (__\w+-\d+) "
        count_of_all = len(RECORDS) * PARTITIONS
        broker.wait_for("loading", lambda: len({*re.findall(loaded, broker.log_text())}) == count_of_all)
        with GroupClients(broker.bootstrap) as clients:
            offsets = clients.ask("describe")["offsets"]
            starts = _share_starts(clients, topic_id)
        with TransactionClients(broker.bootstrap) as producers:
            ids = producers.ask("listed")["ids"]
    shown = {row["group"]: row["offset"] for row in groups if row["type"] == "offset"}
    assert shown == {row["group"]: row["offset"] for row in offsets}
    states = {row["group"]: row["start_offset"] for row in groups if row["type"] == "share_offset"}
    assert starts.items() <= states.items()
    assert {row["transactional_id"] for row in transactions if row.get("loaded")} == {*ids}
    assert min(len(shown), len(starts), len(ids)) > 3 * len(CASES)
