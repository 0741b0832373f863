"""Which records fail the load of a share coordinator: one of each kind, between the states of two other groups, in a partition of its own
of a real broker's `__share_group_state`, written while the broker is stopped. When it starts, it fails to load exactly the partitions that
`kseg verify` names, and has the states that `kseg groups` shows in the others. Once the records are left out, it has those of all.

Takes half a minute: a broker with two restarts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kseg.internal_topics.groups.coordinator_partition import partition_for
from tests.internal_topics.coordinator_logs import key, value
from tests.kafka.broker import Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients, share_broker
from tests.support.command_rows import rows_of
from tests.support.log_ends import append_records
from tests.support.rewritten import rewrite_without_failing

pytestmark = pytest.mark.kafka

STATE, FARES = "__share_group_state", "fares"
STATES = {0: "AVAILABLE", 1: "ACQUIRED", 2: "ACKNOWLEDGED", 3: "ARCHIVING", 4: "ARCHIVED"}
UNAVAILABLE, UNINITIALIZED = 16, 42  # NOT_COORDINATOR, INVALID_REQUEST
Record = tuple[bytes | None, bytes | None]
Row = dict[str, Any]


def _batches(*batches: tuple[int, int, int, int]) -> list[Row]:
    names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
    return [dict(zip(names, each, strict=True)) for each in batches]


def _record(
    group: str, topic_id: str, type_id: int, /, *batches: tuple[int, int, int, int], **fields: Any
) -> Record:
    values: Row = {"snapshotEpoch": 1, "leaderEpoch": 0, "startOffset": 3, "deliveryCompleteCount": 1}
    times = {"stateEpoch": 1, "createTimestamp": 5, "writeTimestamp": 6} if type_id == 0 else {}
    values |= {"stateBatches": _batches(*(batches or ((3, 5, 2, 1),)))} | times | fields
    return key(STATE, type_id, groupId=group, topicId=topic_id, partition=0), value(
        STATE, type_id, 0, **values
    )


def _cases(group: str, topic_id: str) -> dict[str, Sequence[Record]]:
    """The records of a group, by the name of the case."""

    def snapshot(*batches: tuple[int, int, int, int], **fields: Any) -> Record:
        return _record(group, topic_id, 0, *batches, **fields)

    def update(*batches: tuple[int, int, int, int], **fields: Any) -> Record:
        return _record(group, topic_id, 1, *batches, **fields)

    (name, whole), (update_name, update_whole) = snapshot(), update()
    assert name is not None and whole is not None and update_name is not None and update_whole is not None
    return {
        "as it should be": [snapshot(), update()],
        "tombstone": [snapshot(), (name, None)],
        "tombstone of nothing": [(name, None)],
        "update without a value": [snapshot(), (update_name, None)],
        "no key": [(None, whole)],
        "empty key": [(b"", whole)],
        "key too short": [(b"\0", whole)],
        "key cut": [(name[:-1], whole)],
        "bytes behind the key": [(name + b"more", whole)],
        "unknown type": [(b"\0\2" + name[2:], whole)],
        "unknown type of a tombstone": [(b"\0\2" + name[2:], None)],
        "negative type": [(b"\xff\xff" + name[2:], whole)],
        "bytes behind the value": [(name, whole + b"more")],
        "value cut": [(name, whole[:-1])],
        "empty value": [(name, b"")],
        "value of one byte": [(name, b"\0")],
        "unknown version": [(name, b"\0\1" + whole[2:])],
        "negative version": [(name, b"\xff\xff" + whole[2:])],
        "unknown version of an update": [snapshot(), (update_name, b"\0\1" + update_whole[2:])],
        "acquired": [snapshot((3, 5, 1, 1))],
        "unknown state": [snapshot((3, 5, 9, 1))],
        "negative state in an update": [snapshot(), update((3, 5, -1, 2))],
        "batch reversed": [snapshot((5, 3, 2, 1))],
        "batch reversed in an update alone": [update((5, 3, 2, 1))],
        "batch reversed in an update": [snapshot(), update((5, 3, 2, 1))],
        "batch reversed before the start": [snapshot(), update((2, 1, 2, 1))],
        "batch reversed, then another": [snapshot((8, 6, 2, 1)), update((7, 9, 2, 1))],
        "batch reversed inside another": [snapshot((3, 9, 0, 1)), update((5, 4, 2, 2))],
        "negative offsets": [snapshot((-5, -3, 2, 1), startOffset=-7)],
        "overlap in a snapshot": [snapshot((3, 5, 2, 1), (4, 6, 0, 1))],
        "start going back": [snapshot(), update(startOffset=1)],
        "negative counts": [snapshot((3, 5, 2, -1), deliveryCompleteCount=-9)],
        "epochs going back": [snapshot(), snapshot(stateEpoch=0, leaderEpoch=-1)],
        "largest offset": [snapshot((3, 2**63 - 1, 2, 1)), update((4, 9, 2, 3))],
    }  # fmt: skip


COUNT = len(_cases("g", "AAECAwQFBgcICQoLDA0ODw"))


def _group_in(number: int, word: str, topic_id: str) -> str:
    """A group whose state of the first partition belongs to this partition of the topic."""
    names = map(f"{word} {{}}".format, count())
    return next(name for name in names if partition_for(f"{name}:{topic_id}:0", COUNT) == number)


def _shown(capfd: pytest.CaptureFixture[str], data: Path) -> dict[str, Row]:
    rows = rows_of(capfd, "groups", data)
    return {row["group"]: row for row in rows if row["type"] == "share_offset" and row["partition"] == 0}


def _as_asked(row: Row | None) -> Row | None:
    """A row of `groups` as the share coordinator answers; None for one without a state."""
    if row is None or row["start_offset"] is None:
        return None
    names = ("state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
    return {name: -1 if row[name] is None else row[name] for name in names} | {"batches": row["batches"]}


def _states(broker: Broker, groups: Sequence[str], topic_id: str) -> dict[str, Row | int | None]:
    """What the coordinator answers for each group, None for one without a state, or an error."""
    keys = [{"group": group, "topic_id": topic_id, "partition": 0} for group in groups]
    with GroupClients(broker.bootstrap) as clients:
        answers = clients.ask("share_states", keys=keys)["states"]
    found: dict[str, Row | int | None] = {}
    for group, answer in zip(groups, answers, strict=True):
        error = answer.pop("error")
        for batch in answer["batches"]:
            number = batch["delivery_state"]
            batch["delivery_state"] = STATES.get(number, f"UNKNOWN({number})")
        found[group] = {0: answer, UNINITIALIZED: None}.get(error, error)
    return found


@pytest.mark.behaviour("G12")
def test_records_that_fail_a_share_load_are_those_of_the_broker(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    broker = share_broker(tmp_path)
    broker.properties["share.coordinator.state.topic.num.partitions"] = str(COUNT)
    with broker:
        broker.create_topic(FARES)
        producer = broker.producer()
        producer.produce(FARES, b"value")
        producer.flush()
        with GroupClients(broker.bootstrap, is_apart=True) as clients:
            clients.ask("share", group="real", topic=FARES, records=1, rejected=[])
    topic_id = _shown(capfd, broker.data)["real"]["topic_id"]
    names = [*_cases("g", topic_id)]
    groups = {
        (name, word): _group_in(at, word, topic_id)
        for at, name in enumerate(names)
        for word in ("before", "case", "behind")
    }
    for at, name in enumerate(names):
        cases = _cases(groups[name, "case"], topic_id)
        around = (_record(groups[name, word], topic_id, 0) for word in ("before", "behind"))
        before, behind = around
        append_records(broker.data / f"{STATE}-{at}", before, *cases[name], behind)
    rows = rows_of(capfd, "verify", broker.data)
    ours = {Path(row["path"]).name for row in rows if row.get("id") == "coordinator-load-fails"}
    shown = _shown(capfd, broker.data)

    def loads(word: str) -> set[str]:
        return set(re.findall(rf"{word} metadata from ({STATE}-\d+) ", broker.log_text()))

    def are_loaded() -> bool:
        return len(loads("Failed to load") | loads("Finished loading of")) == COUNT

    with broker:
        broker.wait_for("loading", are_loaded)
        theirs = loads("Failed to load")
        states = _states(broker, [*groups.values()], topic_id)
    by_name = {f"{STATE}-{at}": name for at, name in enumerate(names)}
    assert {by_name[each] for each in ours} == {by_name[each] for each in theirs}
    assert 5 < len(ours) < COUNT - 5
    fails = {by_name[each] for each in theirs}
    for (name, word), group in groups.items():
        expected = UNAVAILABLE if name in fails else _as_asked(shown.get(group))
        assert (name, word, states[group]) == (name, word, expected)
    for each in ours:
        rewrite_without_failing(broker.data / each, tmp_path, capfd)
    shown = _shown(capfd, broker.data)
    with broker:
        broker.wait_for("loading", are_loaded)
        assert loads("Failed to load") == set()
        states = _states(broker, [*groups.values()], topic_id)
    for (name, word), group in groups.items():
        assert (name, word, states[group]) == (name, word, _as_asked(shown.get(group)))
        assert word == "case" or states[group] is not None
