"""`__share_group_state` as a share coordinator loads it: deliveries in every state, from a real member and from random records written
while the broker is stopped. The broker is asked with the requests with which a partition's leader reads its state.

Takes some forty seconds: two brokers with restarts.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures.diseases import batch_spans
from kseg.cli.main import run
from tests.internal_topics.coordinator_logs import key, value
from tests.kafka.broker import Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients, share_broker
from tests.support.command_rows import of_type, rows_of
from tests.support.log_ends import append_records

pytestmark = pytest.mark.kafka

FARES, QUIET, STATE, GROUPS = "fares", "quiet", "__share_group_state", "__consumer_offsets"
PARTITIONS, RECORDS = 2, 20
SEED = int(os.environ.get("KSEG_SHARE_SEED", "15"))
STATES = ("AVAILABLE", "ACQUIRED", "ACKNOWLEDGED", "ARCHIVING", "ARCHIVED")
UNINITIALIZED = 42  # INVALID_REQUEST
Row = dict[str, Any]


def _shown(capfd: pytest.CaptureFixture[str], path: Path) -> dict[tuple[str, int], Row]:
    rows = rows_of(capfd, "groups", path, status=0)
    assert not [row for row in rows if row["type"] == "finding"]
    return {(row["group"], row["partition"]): row for row in rows if row["type"] == "share_offset"}


def _step_of_doctor(capfd: pytest.CaptureFixture[str], data: Path, group: str, status: str) -> list[str]:
    """The words of the step for a group with a state of that status in one partition, after those for the server."""
    rows = rows_of(capfd, "doctor", data, status=1)
    (place,) = (
        (row["group"], row["partition"])
        for row in of_type(rows, "share_offset")
        if row["status"] == status and row["group"] == group
    )
    assert place == (group, 0)
    (step,) = (row for row in of_type(rows, "step") if row["due"] and f"--group {group} " in row["command"])
    tool, _, _, *words = shlex.split(step["command"])
    assert tool == "kafka-share-groups.sh"
    return words


def _reset(broker: Broker, clients: GroupClients, words: list[str]) -> None:
    """Follow the step, once the members are gone."""
    group = words[words.index("--group") + 1]
    broker.wait_for("the members to be gone", lambda: not clients.ask("describe")["members"])
    assert group in clients.ask("share_tool", words=words)["printed"]
    words[words.index("--dry-run")] = "--execute"
    assert group in clients.ask("share_tool", words=words)["printed"]


def _reset_and_read(broker: Broker, clients: GroupClients, words: list[str]) -> None:
    """A member of the group gets records again after the step; before it, it had got none for a minute (observed with 4.3.1)."""
    _reset(broker, clients, words)
    assert clients.ask("share", group="half", topic=QUIET, records=4, rejected=[])["read"] == [0, 1, 2, 3]


def _random_records(chance: random.Random, topic_id: str) -> Iterator[tuple[bytes, bytes | None]]:
    """A history for each of many keys: snapshots, updates after them, occasional tombstones, and occasionally no snapshot at the
    beginning."""
    for number in range(60):
        group = {"groupId": f"g{number}", "topicId": topic_id, "partition": number % PARTITIONS}
        for at in range(chance.randrange(1, 9)):
            is_snapshot = chance.random() < (0.9 if at == 0 else 0.15)
            name = key(STATE, 0 if is_snapshot else 1, **group)
            if at and is_snapshot and chance.random() < 0.3:
                yield name, None
                continue
            start = chance.choice((-1, chance.randrange(60))) if not is_snapshot else chance.randrange(10)
            values: Row = {
                "snapshotEpoch": at,
                "leaderEpoch": chance.choice((-1, at)) if not is_snapshot else at,
                "startOffset": start,
                "deliveryCompleteCount": chance.randrange(-1, 9),
                "stateBatches": [*_batches(chance, 0 if is_snapshot else chance.randrange(60))],
            }
            if is_snapshot:
                values |= {"stateEpoch": at + 3, "createTimestamp": 5, "writeTimestamp": 6}
            yield name, value(STATE, 0 if is_snapshot else 1, 0, **values)


def _batches(chance: random.Random, first: int) -> Iterator[Row]:
    """One batch after the other, some of them after a gap in the offsets."""
    for _ in range(chance.randrange(5)):
        last = first + chance.randrange(9)
        yield {
            "firstOffset": first,
            "lastOffset": last,
            "deliveryState": chance.choice((0, 2, 3, 4)),
            "deliveryCount": chance.randrange(1, 4),
        }
        first = last + 1 + chance.choice((0, 0, 3))


@pytest.mark.evidence("share-state")
@pytest.mark.behaviour("G12")
def test_share_states_are_those_a_share_coordinator_has_loaded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    broker = share_broker(tmp_path)
    with broker:
        broker.create_topic(FARES, PARTITIONS)
        producer = broker.producer()
        for number in range(RECORDS):
            producer.produce(FARES, b"value %d" % number, partition=number % PARTITIONS)
        broker.create_topic(
            QUIET, PARTITIONS
        )  # only one partition has records, so nothing is acknowledged in the other
        for _ in range(4):
            producer.produce(QUIET, b"value", partition=0)
        producer.flush()
        with GroupClients(broker.bootstrap, is_apart=True) as clients:
            clients.ask("share", group="real", topic=FARES, records=RECORDS, rejected=[2, 3])
            clients.ask("share", group="half", topic=QUIET, records=4, rejected=[])
    before = _shown(capfd, broker.data)
    topic_id = before["real", 0]["topic_id"]
    assert {each["delivery_state"] for row in before.values() for each in row["batches"]} >= {"ARCHIVED"}
    append_records(broker.data / f"{STATE}-0", *_random_records(random.Random(SEED), topic_id))
    gone = key(STATE, 0, groupId="half", topicId=before["half", 0]["topic_id"], partition=0)
    # the group still has the partition as initialized
    append_records(broker.data / f"{STATE}-0", (gone, None))
    found = _shown(capfd, broker.data)
    reset = _step_of_doctor(capfd, broker.data, "half", "no-state")
    keys = [
        {"group": f"g{number}", "topic_id": topic_id, "partition": number % PARTITIONS}
        for number in range(60)
    ]
    keys += [{"group": "real", "topic_id": topic_id, "partition": number} for number in range(PARTITIONS)]
    with broker, GroupClients(broker.bootstrap, is_apart=True) as clients:
        theirs = clients.ask("share_states", keys=keys)["states"]
        listed = {
            (row["group"], row["partition"]): row
            for row in clients.ask("describe")["share_offsets"]
            if row["group"] in ("real", "half")
        }
        _reset_and_read(broker, clients, reset)
    states = dict.fromkeys(STATES, 0)
    for asked, reported in zip(keys, theirs, strict=True):
        ours = found.get((asked["group"], asked["partition"]))
        if (
            reported.pop("error") == UNINITIALIZED
        ):  # its last record is a tombstone, or no record has a start offset
            assert (None if ours is None else ours["start_offset"]) is None and reported[
                "start_offset"
            ] == -1, asked
            continue
        assert ours is not None, asked
        for batch in reported["batches"]:
            batch["delivery_state"] = STATES[batch["delivery_state"]]
            states[batch["delivery_state"]] += 1
        assert {name: _number(ours[name]) for name in reported} == reported, asked
    assert (
        all(states[name] > 5 for name in STATES if name != "ACQUIRED") and len(found) < len(keys) + PARTITIONS
    )
    assert len(listed) == 2 * PARTITIONS and listed["half", 1]["start_offset"] is None
    assert before["half", 0]["start_offset"] is not None and listed["half", 0]["start_offset"] is None
    for place, row in listed.items():
        assert (found[place]["start_offset"], found[place]["lag"]) == (row["start_offset"], row["lag"])


@pytest.mark.evidence("share-state")
def test_records_appended_where_a_share_group_is_ahead_of_the_log_are_not_delivered(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The log loses its end in a power failure, but the state of the group does not. After the step of `doctor` it gets new records."""
    require_kafka()
    broker = share_broker(tmp_path)
    with broker:
        broker.create_topic(FARES)
        _append(broker, RECORDS)
        with GroupClients(broker.bootstrap, is_apart=True) as clients:
            odd = [*range(1, RECORDS, 2)]
            assert (
                len(clients.ask("share", group="real", topic=FARES, records=RECORDS, rejected=odd)["read"])
                == RECORDS
            )
    data = broker.data
    assert _shown(capfd, data)["real", 0]["status"] is None
    (log,) = (data / f"{FARES}-0").glob("*.log")
    spans = list(batch_spans(log))
    os.truncate(log, spans[len(spans) // 2][0])
    (data / ".kafka_cleanshutdown").unlink()
    assert run(["recover", "--apply", str(data)]) == 0
    state = _shown(capfd, data)["real", 0]
    end = state["log_end_offset"]
    assert 0 < end < state["finished_end_offset"] == RECORDS and state["status"] == "beyond-log-end"
    words = _step_of_doctor(capfd, data, "real", "beyond-log-end")
    copy = share_broker(tmp_path / "other", Path(shutil.copytree(data, tmp_path / "copy")))
    with copy, GroupClients(copy.bootstrap, is_apart=True) as clients:
        _append(copy, RECORDS + 2 - end)
        read = clients.ask("share", group="real", topic=FARES, records=2, rejected=[])["read"]
        assert read == [RECORDS, RECORDS + 1]
    with broker, GroupClients(broker.bootstrap, is_apart=True) as clients:
        _reset(broker, clients, words)
        _append(broker, 2)
        assert clients.ask("share", group="real", topic=FARES, records=2, rejected=[])["read"] == [
            end,
            end + 1,
        ]


def _append(broker: Broker, count: int) -> None:
    """A batch for every two records."""
    producer = broker.producer()
    for number in range(count):
        producer.produce(FARES, b"value %d" % number, partition=0)
        if number % 2:
            producer.flush()
    producer.flush()


def _number(shown: object) -> object:
    """The number, or -1 for an unknown one."""
    return -1 if shown is None else shown
