"""Groups that change while they are in use: between the classic and the consumer protocol in both directions, with static members and with
a pattern; topics that get more partitions; a streams group with several subtopologies. kseg reads a copy of the disk at each moment, and
each moment again with --at from the last copy, and reports what Admin reported at that moment.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.internal_topics.coordinator_logs import key, value
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, commit_offsets
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients
from tests.support.command_rows import rows_of
from tests.support.log_ends import append_records

pytestmark = pytest.mark.kafka

EAST, WEST, ALONE = "fares-east", "fares-west", "alone"
OFFSETS = "__consumer_offsets"
MOVING, FIXED, PATTERN, STREAMS, STATELESS = "moving", "fixed", "by-pattern", "streams", "stateless"
HOUR_MS = 3_600_000
GROUP = ("group", "group_type", "state")
MEMBER = ("group", "member_id", "group_instance_id", "client_id", "client_host")
TASKS = ("active_tasks", "standby_tasks", "warmup_tasks")
OFFSET = ("group", "topic", "partition", "offset", "leader_epoch", "metadata")
# so that no member is removed from its group
_LONG = {
    f"group_{kind}_{setting}": str(HOUR_MS)
    for kind in ("consumer", "streams")
    for setting in ("session_timeout_ms", "max_session_timeout_ms")
} | {"group_consumer_migration_policy": "bidirectional"}
REPARTITION = f"{STREAMS}-by-rider-repartition"
SUBTOPOLOGIES = [
    {
        "id": "0",
        "sources": [EAST, WEST],
        "sinks": [REPARTITION],
        "changelogs": [{"name": f"{STREAMS}-seen-changelog", "partitions": 0}],
    },
    {"id": "1", "sources": [ALONE], "repartitions": [{"name": REPARTITION, "partitions": 2}]},
    {"id": "2", "sources": [ALONE]},
]

Row = dict[str, Any]


@dataclass
class Moment:
    """A copy of the disk and its time, what Admin said before and after the copy, and the table printed by the tool."""

    copy: Path
    at_ms: int
    truth: dict[str, Any]
    listed: str


class Riders:
    """Members of groups. Every wait polls all of them, so that they take part in each rebalance."""

    def __init__(self, broker: Broker, clients: GroupClients, root: Path) -> None:
        self._broker, self._clients, self._root = broker, clients, root
        self._members: dict[str, Consumer] = {}
        self._group_of: dict[str, str] = {}
        self.moments: dict[str, Moment] = {}

    def join(self, name: str, group: str, protocol: str, *topics: str, instance: str | None = None) -> None:
        """Add a member called `name` to a group. instance: of a static member."""
        classic = {"session.timeout.ms": HOUR_MS // 2, "heartbeat.interval.ms": 500}
        times = classic if protocol == "classic" else {}
        static = {"group.instance.id": instance} if instance is not None else {}
        config = {
            "bootstrap.servers": self._broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": name,
            "enable.auto.commit": False,
            "max.poll.interval.ms": HOUR_MS,
            "log_level": 0,
        }
        self._members[name] = Consumer({**config, **times, **static})
        self._members[name].subscribe([*topics])
        self._group_of[name] = group

    def leave(self, name: str) -> None:
        self._members.pop(name).close()
        del self._group_of[name]

    def commit(self, name: str, topic: str, partition: int, offset: int) -> None:
        """Commit once the member has partitions: commits of a member that has not joined yet are rejected as those of an unknown member."""
        member = self._members[name]
        self._poll_until(f"{name} has partitions", lambda: bool(member.assignment()))
        commit_offsets(member, [TopicPartition(topic, partition, offset)])

    def moment(self, name: str, states: Mapping[str, tuple[str, str, int | None]]) -> None:
        """Record a moment as soon as each of these groups has its type, its state, its number of partitions (None for any) and all members
        that have joined here, and nothing changes any more."""
        joined = Counter(self._group_of.values())

        def is_there(truth: dict[str, Any]) -> bool:
            found = {row["group"]: (row["group_type"], row["state"]) for row in truth["groups"]}
            counts = dict.fromkeys(found, 0)
            members = Counter(row["group"] for row in truth["members"])
            for row in truth["members"]:
                counts[row["group"]] += len(row.get("active_tasks", row["assignment"]))
            return all(
                found.get(group) == (kind, state)
                and count in (None, counts[group])
                and joined[group] in (0, members[group])
                for group, (kind, state, count) in states.items()
            )

        place = self._root / name

        def has_settled() -> bool:
            truth = self._clients.ask("describe")
            if not is_there(truth):
                return False
            shutil.rmtree(place, ignore_errors=True)
            self._broker.copy_data(place)
            at_ms = time.time_ns() // 1_000_000
            if self._clients.ask("describe") != truth:
                return False
            listed = self._clients.tool("--list", "--state")
            self.moments[name] = Moment(place, at_ms, truth, listed)
            return self._clients.ask("describe") == truth

        self._poll_until(f"{name}: {states}", has_settled)
        self._poll_past(self.moments[name].at_ms)

    def _poll_until(self, what: str, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + CLIENT_LIMIT_S
        while not happened():
            for member in self._members.values():
                member.poll(0.1)
            assert time.monotonic() < deadline, f"{what}: {self._clients.ask('describe')}"

    def _poll_past(self, at_ms: int) -> None:
        """Poll until the next record has a later timestamp."""
        self._poll_until("the next millisecond", lambda: time.time_ns() // 1_000_000 > at_ms)

    def close(self) -> None:
        for name in [*self._members]:
            self.leave(name)


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Moment]]:
    require_kafka()
    root = tmp_path_factory.mktemp("changes")
    broker = Broker(root / "broker", None, **_LONG)
    with broker, GroupClients(broker.bootstrap) as clients:
        broker.create_topic(EAST, 2)
        broker.create_topic(WEST, 1)
        broker.create_topic(ALONE, 2)
        riders = Riders(broker, clients, root)
        try:
            _there_and_back(riders)
            _with_static_members(riders)
            _more_partitions(broker, clients, riders)
        finally:
            riders.close()
    yield riders.moments


def _there_and_back(riders: Riders) -> None:
    """A group migrates to the consumer protocol and back, and then completely; and an empty group changes its protocol both ways."""
    riders.join("old-1", MOVING, "classic", EAST)
    riders.join("old-2", MOVING, "classic", EAST, WEST)
    riders.moment("classic", {MOVING: ("classic", "Stable", 3)})
    riders.commit("old-1", EAST, 0, 5)
    riders.join("new-1", MOVING, "consumer", EAST, WEST)
    riders.moment("mixed", {MOVING: ("consumer", "Stable", 3)})
    riders.leave("new-1")
    riders.moment("back", {MOVING: ("classic", "Stable", 3)})
    riders.commit("old-2", EAST, 1, 7)
    riders.join("new-2", MOVING, "consumer", EAST, WEST)
    riders.moment("mixed again", {MOVING: ("consumer", "Stable", 3)})
    riders.leave("old-1")
    riders.leave("old-2")
    riders.moment("consumer", {MOVING: ("consumer", "Stable", 3)})
    riders.leave("new-2")
    riders.moment("empty", {MOVING: ("consumer", "Empty", 0)})
    riders.join("old-3", MOVING, "classic", EAST)
    riders.moment("classic after empty", {MOVING: ("classic", "Stable", 2)})
    riders.leave("old-3")
    riders.moment("classic and empty", {MOVING: ("classic", "Empty", 0)})
    riders.join("new-3", MOVING, "consumer", EAST)
    riders.moment("consumer after empty", {MOVING: ("consumer", "Stable", 2)})


def _with_static_members(riders: Riders) -> None:
    """The only member is replaced by another one of the same instance with the other protocol, twice."""
    riders.join("fixed-1", FIXED, "classic", ALONE, instance="one")
    riders.moment("static", {FIXED: ("classic", "Stable", 2)})
    riders.leave("fixed-1")
    riders.join("fixed-2", FIXED, "consumer", ALONE, instance="one")
    riders.moment("static new", {FIXED: ("consumer", "Stable", 2)})
    riders.commit("fixed-2", ALONE, 0, 3)
    riders.leave("fixed-2")
    riders.join("fixed-3", FIXED, "classic", ALONE, instance="one")
    riders.moment("static old", {FIXED: ("classic", "Stable", 2)})


def _more_partitions(broker: Broker, clients: GroupClients, riders: Riders) -> None:
    riders.join("pattern", PATTERN, "consumer", "^fares-.*")

    def beat(group: str, state: str, *members: str) -> None:
        parts = SUBTOPOLOGIES if group == STREAMS else [{"id": "0", "sources": [EAST, WEST]}]
        standbys = 1 if group == STREAMS else 0
        clients.ask(
            "streams", group=group, members=members, state=state, subtopologies=parts, standbys=standbys
        )

    beat(STREAMS, "Stable", "s1", "s2")
    beat(STATELESS, "Stable", "s3", "s4")
    states = {
        PATTERN: ("consumer", "Stable", 3),
        STREAMS: ("streams", "Stable", 2 + 2 + 2),
        STATELESS: ("streams", "Stable", 2),
    }
    riders.moment("several subtopologies", states)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for topic in (EAST, WEST):
        for future in admin.create_partitions([NewPartitions(topic, 4)]).values():
            future.result(CLIENT_LIMIT_S)
    riders.moment("grown", {PATTERN: ("consumer", "Stable", 8), MOVING: ("consumer", "Stable", 4)})
    beat(STATELESS, "Stable", "s3", "s4")
    beat(STREAMS, "NotReady", "s1", "s2")
    riders.moment(
        "a changelog too small", {STREAMS: ("streams", "NotReady", None), STATELESS: ("streams", "Stable", 4)}
    )
    clients.ask("streams_leave", group=STATELESS, member="s3")
    clients.ask("streams_leave", group=STREAMS, member="s1")
    clients.ask("streams_leave", group=STREAMS, member="s2")
    beat(STATELESS, "Stable", "s4")
    broker.create_topic("fares-north", 1)
    states = {
        PATTERN: ("consumer", "Stable", 9),
        STREAMS: ("streams", "Empty", 0),
        STATELESS: ("streams", "Stable", 4),
    }
    riders.moment("one more topic", states)


NAMES = [
    *("classic", "mixed", "back", "mixed again", "consumer", "empty"),
    *("classic after empty", "classic and empty", "consumer after empty"),
    *("static", "static new", "static old"),
    *("several subtopologies", "grown", "a changelog too small", "one more topic"),
]


@pytest.mark.behaviour("G14")
@pytest.mark.parametrize("later", [False, True], ids=["then", "later"])
@pytest.mark.parametrize("name", NAMES)
def test_groups_are_those_admin_describes_at_each_moment(
    name: str, later: bool, moments: dict[str, Moment], capfd: pytest.CaptureFixture[str]
) -> None:
    assert [*moments] == NAMES
    moment = moments[name]
    words = ["--at", str(moment.at_ms), str(moments[NAMES[-1]].copy)] if later else [str(moment.copy)]
    rows = rows_of(capfd, "groups", *words, status=0)
    _agree(rows, moment.truth)
    listed = {tuple(line.rsplit(maxsplit=1)) for line in moment.listed.splitlines()[1:] if line.strip()}
    assert {(group.strip(), state) for group, state in listed} == {
        (row["group"], row["state"]) for row in _of(rows, "group") if row["group_type"] != "streams"
    }


@pytest.mark.behaviour("G14")
@pytest.mark.parametrize("name", ["mixed again", "several subtopologies"])
def test_groups_are_those_a_broker_has_loaded(
    name: str, moments: dict[str, Moment], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A broker without clients loads a copy: a group with members of both protocols, and tasks of every kind, are as the records say."""
    data = shutil.copytree(moments[name].copy, tmp_path / "data")
    if name == "several subtopologies":
        append_records(data / f"{OFFSETS}-0", _warming_up(moments[name]))
    rows = rows_of(capfd, "groups", data, status=0)
    broker = Broker(tmp_path / "broker", data, log_dirs=str(data), **_LONG)
    with broker, GroupClients(broker.bootstrap) as clients:
        _agree(rows, clients.ask("describe"))
    if name == "several subtopologies":
        for tasks in TASKS:
            assert any(row.get(tasks) for row in rows), tasks


def _warming_up(moment: Moment) -> tuple[bytes, bytes]:
    """A member with warm-up tasks, which no assignor of 4.3.1 assigns."""
    (reported,) = [
        row for row in moment.truth["members"] if (row["group"], row["member_id"]) == (STREAMS, "s1")
    ]
    assigned = value(
        OFFSETS,
        22,
        0,
        memberEpoch=reported["member_epoch"],
        previousMemberEpoch=reported["member_epoch"],
        state=1,
        **{
            kind: [{"subtopologyId": "0", "partitions": [partition], "assignmentEpochs": None}]
            for kind, partition in (("activeTasks", 0), ("warmupTasks", 1))
        },
    )
    return key(OFFSETS, 22, groupId=STREAMS, memberId="s1"), assigned


def _agree(rows: list[Row], truth: dict[str, Any]) -> None:
    assert not _of(rows, "finding")
    assert _picked(_of(rows, "group"), GROUP) == _picked(truth["groups"], GROUP)
    assert _picked(_of(rows, "member"), MEMBER) == _picked(truth["members"], MEMBER)
    assert _picked(_of(rows, "offset"), OFFSET) == _picked(truth["offsets"], OFFSET)
    groups = {row["group"]: row for row in _of(rows, "group")}
    for reported in truth["groups"]:
        # Admin has none for a classic group
        for name in ("epoch", "assignment_epoch"):
            assert reported.get(name) is None or groups[reported["group"]][name] == reported[name]
    members = {(row["group"], row["member_id"]): row for row in _of(rows, "member")}
    for reported in truth["members"]:
        found = members[reported["group"], reported["member_id"]]
        for what in TASKS if "active_tasks" in reported else ["assignment"]:
            assert _sorted(found[what]) == _sorted(reported[what])
        if reported["member_epoch"] is not None and groups[reported["group"]]["group_type"] != "classic":
            assert found["member_epoch"] == reported["member_epoch"]


def test_tasks_are_assigned_all_source_partitions_of_their_subtopology(
    moments: dict[str, Moment], capfd: pytest.CaptureFixture[str]
) -> None:
    """A member is assigned all source topics of its task's subtopology, including repartition topics, if they have that partition."""
    rows = rows_of(capfd, "groups", "--group", STREAMS, moments["several subtopologies"].copy, status=0)
    found = {(each["topic"], each["partition"]) for row in _of(rows, "member") for each in row["assignment"]}
    counts = {EAST: 2, WEST: 1, ALONE: 2, REPARTITION: 2}
    assert found == {(topic, number) for topic, count in counts.items() for number in range(count)}


def _of(rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["type"] == kind]


def _picked(rows: list[Row], names: tuple[str, ...]) -> set[tuple[Any, ...]]:
    return {tuple(row[name] for name in names) for row in rows}


def _sorted(places: list[Row]) -> list[str]:
    return sorted(json.dumps(place, sort_keys=True) for place in places)
