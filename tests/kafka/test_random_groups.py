"""Random histories of groups in `__consumer_offsets`, written while a real broker is stopped: what it has loaded after its start equals
what `kseg groups` reports for the same log, and for a longer one as of that time. It fails to load exactly the partitions that kseg names.

Takes half a minute: one broker with one restart.
"""

from __future__ import annotations

import functools
import json
import operator
import os
import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kseg.internal_topics.groups.coordinator_partition import partition_for
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, commit_offsets
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients
from tests.kafka.random_groups import OFFSETS, Histories, Step, batches_of
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

SEED = int(os.environ.get("KSEG_GROUP_LOADS_SEED", "15"))
GROUPS = int(os.environ.get("KSEG_GROUP_LOADS", "60"))
PARTITIONS, STEPS = 24, 60
TOPICS = ("fares", "fares-east", "rides")
GONE = "gone"
GROUP = ("group", "group_type", "state")
OFFSET = ("group", "topic", "partition", "offset", "leader_epoch", "metadata")
MEMBER = ("group", "member_id", "group_instance_id", "client_id", "client_host")
TASKS = ("active_tasks", "standby_tasks", "warmup_tasks")
Row = dict[str, Any]

# session timeouts longer than the test, for members that never connect
_LONG = {
    f"group_{kind}_{name}": "3600000"
    for kind in ("consumer", "share", "streams")
    for name in ("session_timeout_ms", "max_session_timeout_ms")
}


def _of(rows: Sequence[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["type"] == kind]


def _picked(rows: Sequence[Row], names: Sequence[str]) -> set[tuple[Any, ...]]:
    return {tuple(row[name] for name in names) for row in rows}


def _write(directory: Path, steps: Sequence[Step]) -> None:
    with PartitionLog(PartitionTarget(str(directory))) as log:
        end, path = log.end_offset, Path(log.segments[-1].path)
    with path.open("ab") as file:
        file.write(batches_of(steps, end))


def _pending_of(rows: Sequence[Row]) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, set[tuple[str, int]]] = {}
    for row in _of(rows, "pending_offset"):
        found.setdefault(row["group"], set()).add((row["topic"], row["partition"]))
    return {group: sorted(places) for group, places in found.items()}


@pytest.mark.behaviour("G08", "G09", "G10", "G14")
def test_random_groups_are_those_a_broker_has_loaded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    rng = random.Random(SEED)
    broker = Broker(tmp_path / "broker", None, offsets_topic_num_partitions=str(PARTITIONS), **_LONG)
    with broker:
        for topic in (*TOPICS, GONE):
            broker.create_topic(topic, 3)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.delete_topics([GONE])[GONE].result(CLIENT_LIMIT_S)
        consumer = broker.consumer("first")
        commit_offsets(consumer, [TopicPartition("rides", 0, 0)])
        consumer.close()
    metadata = rows_of(capfd, "metadata", broker.data)
    ids = {row["topic"]: row["topic_id"] for row in _of(metadata, "topic") if row["topic"] in TOPICS}
    (gone,) = [row["topic_id"] for row in _of(metadata, "removed_topic")]
    now = max(row["timestamp"] for row in _of(metadata, "metadata")) + 60_000
    names: dict[int, list[str]] = {}
    for number in range(GROUPS):
        name = rng.choice(("group {}", "Gruppe-ü-{}", 'g"{}\t')).format(number)
        names.setdefault(partition_for(name, PARTITIONS), []).append(name)
    longer = shutil.copytree(broker.data, tmp_path / "longer")
    at_ms = 0
    for partition, groups in names.items():
        histories = Histories(rng, ids, 3, gone)
        steps = [*histories.steps(groups, STEPS, now)]
        at_ms = now + 120
        earlier = [step for step in steps if step.at_ms <= at_ms]
        _write(broker.data / f"{OFFSETS}-{partition}", earlier)
        _write(longer / f"{OFFSETS}-{partition}", steps)
    rows = rows_of(capfd, "groups", broker.data)
    then = rows_of(capfd, "groups", "--at", at_ms, longer)
    ours = {Path(row["path"]).name for row in _of(rows, "finding") if row["id"] == "coordinator-load-fails"}

    def loads(word: str) -> set[str]:
        return set(re.findall(rf"{word} metadata from ({OFFSETS}-\d+) ", broker.log_text()))

    with broker:
        failed, finished = r"Failed to load", r"Finished loading of"
        broker.wait_for("loading", lambda: len(loads(failed) | loads(finished)) == PARTITIONS)
        theirs = loads(failed)
        with GroupClients(broker.bootstrap) as clients:
            truth = clients.ask("describe")
            pending = clients.ask(
                "unstable",
                groups=[
                    {
                        "group": group,
                        "places": [[topic, partition] for topic in TOPICS for partition in range(3)],
                    }
                    for group in {row["group"] for row in rows if row["type"] == "group"}
                    if f"{OFFSETS}-{partition_for(group, PARTITIONS)}" not in theirs
                ],
            )["groups"]
        log = broker.log_text()
    assert ours == theirs, re.findall(r"Failed to load.*\n?.*", log)
    lost = {
        name
        for name in ["first", *functools.reduce(operator.iadd, names.values(), [])]
        if f"{OFFSETS}-{partition_for(name, PARTITIONS)}" in theirs
    }
    for reported in (rows, then):
        mine = [row for row in reported if row.get("group") not in lost]
        _agree(mine, truth)
        found = _pending_of(mine)
        assert {group: found.get(group, []) for group in pending} == {
            group: sorted(map(tuple, places)) for group, places in pending.items()
        }
    assert len(truth["groups"]) > GROUPS / 4 and len(truth["members"]) > 10


def _agree(rows: Sequence[Row], truth: dict[str, Any]) -> None:
    assert _picked(_of(rows, "group"), GROUP) == _picked(truth["groups"], GROUP)
    assert _picked(_of(rows, "member"), MEMBER) == _picked(truth["members"], MEMBER)
    groups = {row["group"]: row for row in _of(rows, "group")}
    # nobody asks for a group whose own tombstone precedes those of its offsets, which no coordinator writes
    offsets = [row for row in _of(rows, "offset") if row["group"] in groups]
    assert _picked(offsets, OFFSET) == _picked(truth["offsets"], OFFSET)
    for reported in truth["groups"]:
        # Admin has none for a classic group
        for name in ("epoch", "assignment_epoch"):
            if reported.get(name) is not None:
                assert groups[reported["group"]][name] == reported[name], reported
    members = {(row["group"], row["member_id"]): row for row in _of(rows, "member")}
    for reported in truth["members"]:
        found = members[reported["group"], reported["member_id"]]
        for what in TASKS if "active_tasks" in reported else ["assignment"]:
            assert _sorted(found[what]) == _sorted(reported[what]), reported
        if reported["member_epoch"] is not None and groups[reported["group"]]["group_type"] != "classic":
            assert found["member_epoch"] == reported["member_epoch"]


def _sorted(places: Sequence[Row]) -> list[str]:
    return sorted(json.dumps(place, sort_keys=True) for place in places)
