"""Build a sequence of group coordinator records and the state that a load of them must produce."""

from __future__ import annotations

from typing import Any

from kseg.internal_topics.coordinator_log import CoordinatorRecord, TransactionMarker
from kseg.internal_topics.groups.committed_offsets import committed_offset
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS, OffsetKey
from kseg.internal_topics.groups.group_replay import LoadedGroups, load_groups
from tests.internal_topics.coordinator_logs import key, value

TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


class Log:
    """A sequence of records, each with the next offset and a timestamp one second after that of the previous one."""

    def __init__(self) -> None:
        self.entries: list[CoordinatorRecord | TransactionMarker] = []

    def put(self, key_bytes: bytes | None, value_bytes: bytes | None, producer_id: int = -1) -> None:
        at = len(self.entries)
        epoch = -1 if producer_id == -1 else 0
        self.entries.append(
            CoordinatorRecord(at, at * 1000, key_bytes, value_bytes, producer_id, epoch, producer_id != -1)
        )

    def commit(self, offset: int | None, producer_id: int = -1, group: str = "g", topic: str = "t") -> None:
        """A commit of partition 0; None is a tombstone."""
        commit = None if offset is None else value(CONSUMER_OFFSETS, 1, 3, offset=offset, commitTimestamp=5)
        self.put(key(CONSUMER_OFFSETS, 1, group=group, topic=topic, partition=0), commit, producer_id)

    def end(self, producer_id: int, *, is_commit: bool = True) -> None:
        at = len(self.entries)
        self.entries.append(TransactionMarker(at, at * 1000, producer_id, 0, is_commit, 0))

    def group(self, type_id: int, *, member: str | None = None, deleted: bool = False, **fields: Any) -> None:
        names = {"group": "g"} if type_id == 2 else {"groupId": "g"}
        if member is not None:
            names["regularExpression" if type_id == 16 else "memberId"] = member
        version = 3 if type_id == 2 else 0
        content = None if deleted else value(CONSUMER_OFFSETS, type_id, version, **fields)
        self.put(key(CONSUMER_OFFSETS, type_id, **names), content)

    def loaded(self, **how: Any) -> LoadedGroups:
        return load_groups(self.entries, **how)


def offset(loaded: LoadedGroups, group: str = "g") -> int | None:
    found = loaded.offsets.offsets.get(OffsetKey(group, "t", 0))
    return None if found is None else committed_offset(found)


def waiting(loaded: LoadedGroups) -> list[int]:
    transactions = (*loaded.offsets.pending.values(), *loaded.offsets.still_open)
    return [committed_offset(commit) for each in transactions for commit in each.values()]


def state(loaded: LoadedGroups) -> tuple[str, str]:
    group = loaded.metadata.groups["g"]
    return group.type, group.state


def member(name: str, **more: Any) -> dict[str, Any]:
    fields = {
        "memberId": name,
        "clientId": "c",
        "clientHost": "/h",
        "sessionTimeout": 1,
        "rebalanceTimeout": 1,
    }
    return fields | {"groupInstanceId": None, "subscription": b"", "assignment": b""} | more


def classic(log: Log, *members: dict[str, Any], protocol_type: str = "consumer") -> None:
    log.group(2, protocolType=protocol_type, generation=3, protocol="range", leader=None, members=members)


def consumer(
    log: Log, epoch: int, member_epoch: int, state: int = 0, partitions: tuple[int, ...] = (0,)
) -> None:
    log.group(3, epoch=epoch)
    log.group(
        5, member="m", clientId="c", clientHost="/h", subscribedTopicNames=["t"], classicMemberMetadata=None
    )
    log.group(7, member="m", topicPartitions=[{"topicId": TOPIC_ID, "partitions": partitions}])
    log.group(
        8,
        member="m",
        memberEpoch=member_epoch,
        previousMemberEpoch=member_epoch - 1,
        state=state,
        assignedPartitions=[{"topicId": TOPIC_ID, "partitions": partitions, "assignmentEpochs": None}],
        partitionsPendingRevocation=[],
    )


def consumer_is_gone(log: Log) -> None:
    for type_id, name in ((8, "m"), (7, "m"), (6, None), (5, "m"), (4, None), (3, None)):
        log.group(type_id, member=name, deleted=True)
