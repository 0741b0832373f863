"""Random histories of groups as records of `__consumer_offsets`: groups of all protocols, commits in transactions, tombstones in every
order, old and new versions of values. Occasionally there is a record that no coordinator writes and that fails the load of its
partition."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.internal_topics.coordinator_logs import batch, key, marker, value

OFFSETS = "__consumer_offsets"
# share of the steps of a history that are an arbitrary record of its protocol
STRANGE = 0.02
_PRODUCERS = range(900, 904)
_CLIENT = {"clientId": "client", "clientHost": "/127.0.0.1"}
_TASKS = ("activeTasks", "standbyTasks", "warmupTasks")

Pair = tuple[bytes, bytes | None]


class Step(NamedTuple):
    """What a coordinator writes at once. producer_id: of a transaction, or None. ends: the step is a marker of that producer and has no
    records; True commits."""

    at_ms: int
    records: Sequence[Pair]
    producer_id: int | None = None
    ends: bool | None = None


class Histories:
    """Makes the steps of one partition. topics: ids of real topics by name, each with `partitions` partitions. gone: the id of a deleted
    topic that members still refer to."""

    def __init__(self, rng: random.Random, topics: Mapping[str, str], partitions: int, gone: str) -> None:
        self._rng = rng
        self.topics = topics
        self.ids = [*topics.values(), gone]
        self._partitions = partitions

    def steps(self, groups: Sequence[str], count: int, from_ms: int) -> Iterator[Step]:
        """Yield `count` steps over all groups in random order. The clock sometimes stands still."""
        rng, at_ms = self._rng, from_ms
        kinds = {
            group: rng.choice([_Simple, _Classic, _Consumer, _Share, _Streams])(rng, self) for group in groups
        }
        for _ in range(count):
            at_ms += rng.choice((0, 0, 1, 7))
            group = rng.choice(groups)
            chance = rng.random()
            if chance < 0.12:
                yield Step(at_ms, (), rng.choice(_PRODUCERS), rng.random() < 0.6)
            elif chance < 0.3 and not isinstance(kinds[group], _Share):
                commits = [self._commit(group, at_ms) for _ in range(rng.randrange(1, 4))]
                yield Step(at_ms, commits, rng.choice(_PRODUCERS))
            elif chance < 0.5 and not isinstance(kinds[group], _Share):
                yield Step(at_ms, [self._commit(group, at_ms) for _ in range(rng.randrange(1, 4))])
            elif chance < 0.52:
                yield Step(at_ms, [(bytes([0, rng.choice((9, 18, 99))]) + b"x", rng.choice((None, b"\0\0")))])
            else:
                records = kinds[group].next(group, at_ms)
                if records:
                    yield Step(at_ms, records)

    def _commit(self, group: str, at_ms: int) -> Pair:
        rng = self._rng
        topic = rng.choice([*self.topics])
        type_id = 1 if rng.random() < 0.95 else 0
        name = key(OFFSETS, type_id, group=group, topic=topic, partition=rng.randrange(self._partitions))
        if rng.random() < 0.15:
            return name, None
        version = rng.randrange(5) if type_id else 0
        fields: dict[str, Any] = {
            "offset": rng.choice((0, rng.randrange(50), rng.randrange(1 << 40))),
            "leaderEpoch": rng.choice((-1, rng.randrange(9))),
            "metadata": rng.choice(("", "m", 'sagt "ü"\t', "x" * 130)),
            "commitTimestamp": at_ms,
            "expireTimestamp": rng.choice((-1, at_ms + 86_400_000)),
        }
        if version == 4 and rng.random() < 0.7:
            fields["topicId"] = self.topics[topic]
        return name, value(OFFSETS, type_id, version, **fields)

    def assigned(self, **more: Any) -> list[dict[str, Any]]:
        """Partitions by topic id."""
        rng = self._rng
        some = rng.sample(self.ids, rng.randrange(3))
        numbers = [sorted(rng.sample(range(self._partitions), rng.randrange(1, 3))) for _ in some]
        return [
            {"topicId": topic, "partitions": part, **more} for topic, part in zip(some, numbers, strict=True)
        ]

    @property
    def names(self) -> list[str]:
        return [*self.topics]


class _Kind:
    """One group. Its state is tracked as far as the order of its tombstones requires."""

    def __init__(self, rng: random.Random, histories: Histories) -> None:
        self.rng, self.histories = rng, histories
        self.is_there = False
        self.members: set[str] = set()
        self.epoch = 0

    def next(self, group: str, at_ms: int) -> list[Pair]:
        raise NotImplementedError


class _Simple(_Kind):
    """Only commits, and occasionally the tombstone of a group."""

    def next(self, group: str, at_ms: int) -> list[Pair]:
        return [(key(OFFSETS, 2, group=group), None)] if self.rng.random() < 0.3 else []


class _Classic(_Kind):
    def next(self, group: str, at_ms: int) -> list[Pair]:
        rng, name = self.rng, key(OFFSETS, 2, group=group)
        if rng.random() < 0.15:
            return [(name, None)]
        self.epoch += 1
        version = rng.randrange(5)
        is_consumer = rng.random() < 0.8
        members = [self._member(number) for number in range(rng.randrange(4))]
        fields: dict[str, Any] = {
            "protocolType": "consumer" if is_consumer or not members else "connect",
            "generation": self.epoch,
            "protocol": "range" if members else None,
            "leader": members[0]["memberId"] if members else None,
            "currentStateTimestamp": rng.choice((-1, at_ms)),
            "members": members,
        }
        return [(name, value(OFFSETS, 2, version, **fields))]

    def _member(self, number: int) -> dict[str, Any]:
        rng = self.rng
        names = self.histories.names
        topics = rng.sample(names, rng.randrange(1, len(names) + 1))
        assignment = b"\0\3" + len(topics).to_bytes(4, "big")
        for topic in topics:
            raw = topic.encode()
            assignment += len(raw).to_bytes(2, "big") + raw + b"\0\0\0\1" + number.to_bytes(4, "big")
        subscription = b"\0\0" + len(topics).to_bytes(4, "big")
        for topic in topics:
            subscription += len(topic.encode()).to_bytes(2, "big") + topic.encode()
        return {
            "memberId": f"member {number}",
            "groupInstanceId": rng.choice((None, f"instance-{number}")),
            "clientId": rng.choice(("client", "Übung")),
            "clientHost": "/127.0.0.1",
            "rebalanceTimeout": 1_800_000,
            "sessionTimeout": 1_800_000,
            "subscription": subscription + b"\xff\xff\xff\xff",
            "assignment": rng.choice((b"", assignment + b"\xff\xff\xff\xff")),
        }


class _Modern(_Kind):
    """types: of the records for epoch, member, assignment epoch, target, and current assignment."""

    types: tuple[int, int, int, int, int]
    others: tuple[int, ...] = ()

    def next(self, group: str, at_ms: int) -> list[Pair]:
        rng = self.rng
        if rng.random() < STRANGE:
            return [self._strange(group)]
        if not self.is_there:
            self.is_there = True
            self.epoch += 1
            return [self._epoch(group), self._assignment_epoch(group, at_ms), *self._first(group, at_ms)]
        chance = rng.random()
        if chance < 0.08:
            return self._deletion(group)
        if chance < 0.3 or not self.members:
            member = rng.choice(("a", "b", "Zoë"))
            is_new = member not in self.members
            self.members.add(member)
            joined = [self._current(group, member)] if is_new else []
            return [self._member(group, member), self._bumped(group), *joined]
        member = rng.choice(sorted(self.members))
        if chance < 0.45:
            return self._leaving(group, member)
        if chance < 0.6:
            return [self._target(group, member)]
        if chance < 0.7:
            return [self._assignment_epoch(group, at_ms)]
        if chance < 0.78 and self.others:
            return [self._other(group, at_ms)]
        return [self._current(group, member)]

    def _first(self, group: str, at_ms: int) -> list[Pair]:
        """Further records with which a group begins."""
        return []

    def key(self, at: int, group: str, member: str | None = None) -> bytes:
        more = {} if member is None else {"memberId": member}
        return key(OFFSETS, self.types[at], groupId=group, **more)

    def pair(self, at: int, group: str, member: str | None = None, **fields: Any) -> Pair:
        return self.key(at, group, member), value(OFFSETS, self.types[at], 0, **fields)

    def _strange(self, group: str) -> Pair:
        at = self.rng.randrange(5)
        return self.key(at, group, self.rng.choice(("a", "b")) if at in (1, 3, 4) else None), None

    def _bumped(self, group: str) -> Pair:
        self.epoch += 1
        return self._epoch(group)

    def _epoch(self, group: str) -> Pair:
        return self.pair(0, group, epoch=self.epoch, metadataHash=5)

    def _assignment_epoch(self, group: str, at_ms: int) -> Pair:
        epoch = self.epoch - self.rng.choice((0, 0, 1)) if self.epoch else 0
        return self.pair(2, group, assignmentEpoch=epoch, assignmentTimestamp=at_ms)

    def _member(self, group: str, member: str) -> Pair:
        raise NotImplementedError

    def _target(self, group: str, member: str) -> Pair:
        return self.pair(3, group, member, topicPartitions=self.histories.assigned())

    def _current(self, group: str, member: str) -> Pair:
        raise NotImplementedError

    def _other(self, group: str, at_ms: int) -> Pair:
        raise NotImplementedError

    def _leaving(self, group: str, member: str) -> list[Pair]:
        self.members.remove(member)
        return [(self.key(at, group, member), None) for at in (4, 3, 1)]

    def _deletion(self, group: str) -> list[Pair]:
        gone = [(self.key(at, group, member), None) for at in (4, 3, 1) for member in sorted(self.members)]
        self.members.clear()
        self.is_there = False
        return [*gone, (self.key(2, group), None), (self.key(0, group), None)]


class _Consumer(_Modern):
    types = (3, 5, 6, 7, 8)
    others = (4, 16)

    def _member(self, group: str, member: str) -> Pair:
        rng = self.rng
        classic = {
            "sessionTimeoutMs": 1_800_000,
            "supportedProtocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0\xff\xff\xff\xff"}],
        }
        fields: dict[str, Any] = {
            "instanceId": rng.choice((None, f"instance of {member}")),
            "rackId": rng.choice((None, "r1")),
            **_CLIENT,
            "subscribedTopicNames": rng.sample(self.histories.names, 1),
            "subscribedTopicRegex": rng.choice((None, "fares.*")),
            "rebalanceTimeoutMs": 1_800_000,
            "serverAssignor": rng.choice((None, "range")),
            "classicMemberMetadata": rng.choice((None, None, classic)),
        }
        return self.pair(1, group, member, **fields)

    def _current(self, group: str, member: str) -> Pair:
        rng = self.rng
        # most of the time each member has its own partitions: a partition that two members own fails the load
        own = {"a": 0, "b": 1}.get(member, 2) if rng.random() < 0.97 else 0
        topics = self.histories.ids
        assigned = [
            {"topicId": topic, "partitions": [own], "assignmentEpochs": rng.choice((None, [1]))}
            for topic in rng.sample(topics, rng.randrange(len(topics) + 1))
        ]
        left = [topic for topic in topics if topic not in {each["topicId"] for each in assigned}]
        revoking = [
            {"topicId": topic, "partitions": [own], "assignmentEpochs": None}
            for topic in rng.sample(left, rng.randrange(len(left) + 1))
        ]
        fields = {
            "memberEpoch": rng.randrange(max(1, self.epoch)) if rng.random() < 0.3 else self.epoch,
            "previousMemberEpoch": 0,
            "state": rng.choice((0, 0, 1, 2)),
            "assignedPartitions": assigned,
            "partitionsPendingRevocation": revoking,
        }
        return self.pair(4, group, member, **fields)

    def _other(self, group: str, at_ms: int) -> Pair:
        rng = self.rng
        if rng.random() < 0.3:
            return key(OFFSETS, 4, groupId=group), None
        name = key(OFFSETS, 16, groupId=group, regularExpression="fares.*")
        fields = {"topics": self.histories.names, "version": 3, "timestamp": at_ms}
        return name, rng.choice((None, value(OFFSETS, 16, 0, **fields)))


class _Share(_Modern):
    types = (11, 10, 12, 13, 14)
    others = (15,)

    def _member(self, group: str, member: str) -> Pair:
        names = self.histories.names
        return self.pair(1, group, member, rackId=None, subscribedTopicNames=names, **_CLIENT)

    def _current(self, group: str, member: str) -> Pair:
        epochs = {"memberEpoch": self.epoch, "previousMemberEpoch": 0}
        return self.pair(4, group, member, state=0, assignedPartitions=self.histories.assigned(), **epochs)

    def _other(self, group: str, at_ms: int) -> Pair:
        topics = [
            {"topicId": topic_id, "topicName": name, "partitions": [0]}
            for name, topic_id in self.histories.topics.items()
        ]
        fields = {"initializingTopics": topics[:1], "initializedTopics": topics[1:], "deletingTopics": []}
        return key(OFFSETS, 15, groupId=group), value(OFFSETS, 15, 0, **fields)


class _Streams(_Modern):
    types = (17, 19, 20, 21, 22)
    others = (23,)

    def _epoch(self, group: str) -> Pair:
        validated = self.rng.choice((-1, 0, 1, 1, 1))
        return self.pair(0, group, epoch=self.epoch, metadataHash=5, validatedTopologyEpoch=validated)

    def _member(self, group: str, member: str) -> Pair:
        fields = {
            "instanceId": None,
            "rackId": None,
            **_CLIENT,
            "rebalanceTimeoutMs": 1_800_000,
            "topologyEpoch": 1,
            "processId": f"process of {member}",
            "userEndpoint": self.rng.choice((None, {"host": "h", "port": 65_535})),
            "clientTags": [{"key": "k", "value": "v"}],
        }
        return self.pair(1, group, member, **fields)

    def _tasks(self, **more: Any) -> list[dict[str, Any]]:
        numbers = sorted(self.rng.sample(range(3), self.rng.randrange(3)))
        return [{"subtopologyId": "0", "partitions": numbers, **more}] if numbers else []

    def _target(self, group: str, member: str) -> Pair:
        return self.pair(3, group, member, **{kind: self._tasks() for kind in _TASKS})

    def _current(self, group: str, member: str) -> Pair:
        revoked = (f"{kind}PendingRevocation" for kind in _TASKS)
        fields = {kind: self._tasks(assignmentEpochs=None) for kind in (*_TASKS, *revoked)}
        epochs = {"memberEpoch": self.epoch, "previousMemberEpoch": 0}
        return self.pair(4, group, member, state=self.rng.choice((1, 1, 1, 2, 3)), **epochs, **fields)

    def _first(self, group: str, at_ms: int) -> list[Pair]:
        return [self._other(group, at_ms)]

    def _deletion(self, group: str) -> list[Pair]:
        return [
            *super()._deletion(group)[:-1],
            (key(OFFSETS, 23, groupId=group), None),
            (self.key(0, group), None),
        ]

    def _other(self, group: str, at_ms: int) -> Pair:
        part = {
            "subtopologyId": "0",
            "sourceTopics": self.histories.names[:1],
            "sourceTopicRegex": [],
            "stateChangelogTopics": [],
            "repartitionSinkTopics": [],
            "repartitionSourceTopics": [],
            "copartitionGroups": [],
        }
        return key(OFFSETS, 23, groupId=group), value(
            OFFSETS, 23, 0, epoch=self.rng.choice((1, 1, 2)), subtopologies=[part]
        )


def batches_of(steps: Sequence[Step], from_offset: int) -> bytes:
    """One batch for each record, because all records of a batch have the same timestamp. Offsets start at `from_offset`; a producer's
    sequence numbers are in order."""
    data, offset, sequences = b"", from_offset, dict.fromkeys(_PRODUCERS, 0)
    for step in steps:
        producer_id, more = step.producer_id, dict[str, Any]()
        if step.ends is not None:
            assert producer_id is not None
            data += marker(offset, producer_id, 0, is_abort=not step.ends, at_ms=step.at_ms)
            offset += 1
        for pair in step.records:
            if producer_id is not None:
                more = {"transactional": True, "producer_id": producer_id, "producer_epoch": 0}
                more["base_sequence"] = sequences[producer_id]
                sequences[producer_id] += 1
            data += batch(offset, pair, at_ms=step.at_ms, **more)
            offset += 1
    return data
