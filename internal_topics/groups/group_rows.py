"""The rows of `kseg groups` (docs/json.md): group, member, offset, pending_offset, tombstone, rewind. Those of share groups alone:
`share_rows`."""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from kseg.internal_topics.coordinator_log import CoordinatorRecord
from kseg.internal_topics.groups.committed_offsets import Rewind, committed_offset
from kseg.internal_topics.groups.consumer_protocol import PROTOCOL_TYPE, assigned_partitions
from kseg.internal_topics.groups.group_records import OffsetCommit, OffsetKey, parse_commit
from kseg.internal_topics.groups.group_results import (
    BELOW_LOG_START,
    BEYOND_LOG_END,
    TOPIC_DELETED,
    TOPIC_RECREATED,
    UNREACHABLE,
    RowValues,
)
from kseg.internal_topics.groups.group_states import (
    Assigned,
    ClassicGroup,
    Group,
    GroupMember,
    GroupType,
    ModernGroup,
)
from kseg.internal_topics.groups.partition_ends import LogEnds, PartitionEnds
from kseg.segment.errors import FormatError
from kseg.segment.json_line import compact_json
from kseg.segment.values import dataclass

_SEQUENCE_END = 1 << 31  # of partition numbers


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Topics from the metadata log: names by id, including deleted topics, and numbers of partitions. ids: of the existing
    topics, by name. deleted: ids of those that no longer existed at the requested time. are_complete: whether there is no other topic; a
    damaged metadata log may lack some."""

    by_id: Mapping[str, str]
    partitions: Mapping[str, int]
    ids: Mapping[str, str]
    deleted: frozenset[str] = frozenset()
    are_complete: bool = True

    def is_gone(self, topic_id: str, name: str) -> bool:
        """Whether the topic of this id, which had this name, exists no more."""
        return topic_id != self.ids.get(name) and (self.are_complete or topic_id in self.deleted)


def group_row(group: Group) -> RowValues:
    row: RowValues = {
        "type": "group",
        "group": group.name,
        "group_type": str(group.type),
        "state": group.state,
        "epoch": group.epoch,
        "members": len(group.members),
    }
    if isinstance(group, ClassicGroup):
        metadata = group.metadata or {}
        changed_ms = metadata.get("currentStateTimestamp", -1)
        row |= {
            "protocol_type": group.protocol_type,
            "protocol": metadata.get("protocol"),
            "leader": metadata.get("leader"),
            "state_timestamp": None if changed_ms == -1 else changed_ms,
        }
    else:
        row["assignment_epoch"] = group.assignment_epoch
    if isinstance(group, ModernGroup) and group.type is GroupType.STREAMS:
        row["undescribed"] = group.undescribed
    return row


# --- members


def member_rows(group: Group, names: TopicNames) -> Iterator[RowValues]:
    """The members of a group, by their ids."""
    # of a member without a record of its own; a coordinator does not describe such a member of a streams group
    unknown = None if group.type is GroupType.STREAMS else ""
    for _, member in sorted(group.members.items()):
        details = member.details
        row: RowValues = {
            "type": "member",
            "group": group.name,
            "member_id": member.member_id,
            "group_instance_id": details.get("groupInstanceId", details.get("instanceId")),
            "client_id": details.get("clientId", unknown),
            "client_host": details.get("clientHost", unknown),
        }
        if isinstance(group, ClassicGroup):
            row["assignment"], row["assignment_problem"] = _classic_assignment(group, member)
        else:
            row["member_epoch"] = member.epoch
            if group.type is GroupType.STREAMS:
                row["assignment"] = _streams_assignment(group, member.assigned, names)
                row |= {
                    "active_tasks": _task_rows(member.assigned),
                    "standby_tasks": _task_rows(member.standby),
                    "warmup_tasks": _task_rows(member.warmup),
                }
            else:
                row["assignment"] = _named(_held(member), names)
        yield row


def _classic_assignment(group: ClassicGroup, member: GroupMember) -> tuple[list[RowValues], str | None]:
    if group.protocol_type != PROTOCOL_TYPE:
        return [], None  # only the clients understand the assignments of other protocols
    try:
        return [
            {"topic": topic, "partition": partition}
            for topic, partition in sorted(assigned_partitions(member.details["assignment"]))
        ], None
    except FormatError as error:
        return [], str(error)


def _held(member: GroupMember) -> Assigned:
    """The partitions of a member, and those that it still has to revoke (Kafka:
    ConsumerGroupMember.asConsumerGroupDescribeMember; a member of a share group revokes nothing)."""
    if not member.revoking:
        return member.assigned
    return {
        topic_id: [*member.assigned.get(topic_id, ()), *member.revoking.get(topic_id, ())]
        for topic_id in {**member.assigned, **member.revoking}
    }


def _named(assigned: Assigned, names: TopicNames) -> list[RowValues]:
    """Topic fields of a row; a topic whose name is unknown has a null name and its id. A coordinator returns no deleted topics."""
    rows: list[RowValues] = []
    for topic_id, partitions in assigned.items():
        if topic_id in names.deleted:
            continue
        topic = names.by_id.get(topic_id)
        extra: RowValues = {} if topic is not None else {"topic_id": topic_id}
        rows += [{"topic": topic, "partition": partition, **extra} for partition in sorted(set(partitions))]
    return sorted(rows, key=lambda row: (str(row["topic"] or ""), row["partition"]))


def _streams_assignment(group: ModernGroup, tasks: Assigned, names: TopicNames) -> list[RowValues]:
    """The partitions that active tasks read: those with the tasks' numbers, in each source topic of the subtopology that has that many."""
    topics = {
        each["subtopologyId"]: [
            *each["sourceTopics"],
            *(source["name"] for source in each["repartitionSourceTopics"]),
        ]
        for each in (group.topology or {}).get("subtopologies", ())
    }
    found = {
        (topic, partition)
        for subtopology, partitions in tasks.items()
        for topic in topics.get(subtopology, ())
        for partition in partitions
        if partition < names.partitions.get(topic, _SEQUENCE_END)
    }
    return [{"topic": topic, "partition": partition} for topic, partition in sorted(found)]


def _task_rows(tasks: Assigned) -> list[RowValues]:
    return [
        {"subtopology": subtopology, "partition": partition}
        for subtopology, partitions in sorted(tasks.items())
        for partition in sorted(set(partitions))
    ]


# --- offsets


def offset_row(
    key: OffsetKey,
    record: CoordinatorRecord,
    names: TopicNames,
    ends: PartitionEnds | None,
    *,
    is_reachable: bool = True,
) -> RowValues:
    """A committed offset. ends: None for an earlier offset, to which the current log end does not apply. is_reachable: whether the group's
    coordinator has loaded it."""
    commit = offset_commit(record)
    known = None if ends is None else ends.of(key.topic, key.partition)
    return {
        "type": "offset",
        **key._asdict(),
        **_commit_fields(commit),
        "expire_timestamp": None if commit.expire_timestamp_ms == -1 else commit.expire_timestamp_ms,
        "log_end_offset": None if known is None else known.end_offset,
        "lag": None if known is None else known.end_offset - commit.offset,
        "log_start_offset": None if known is None else known.start_offset,
        "high_watermark": None if known is None else known.high_watermark,
        "status": _status(commit, key.topic, names, known) if is_reachable else UNREACHABLE,
        "topic_id": commit.topic_id,
        "record_offset": record.offset,
    }


def offset_line(
    key: OffsetKey,
    record: CoordinatorRecord,
    names: TopicNames,
    ends: PartitionEnds | None,
    *,
    is_reachable: bool = True,
) -> bytes:
    """The same text as `json_line` of `offset_row`, several times as fast."""
    commit = offset_commit(record)
    known = None if ends is None else ends.of(key.topic, key.partition)
    epoch = "null" if commit.leader_epoch == -1 else commit.leader_epoch
    expires = "null" if commit.expire_timestamp_ms == -1 else commit.expire_timestamp_ms
    if known is None:
        log = '"log_end_offset":null,"lag":null,"log_start_offset":null,"high_watermark":null'
    else:
        log = (
            f'"log_end_offset":{known.end_offset},"lag":{known.end_offset - commit.offset},'
            f'"log_start_offset":{known.start_offset},"high_watermark":{known.high_watermark}'
        )
    status = _status(commit, key.topic, names, known) if is_reachable else UNREACHABLE
    return (
        f'{{"type":"offset","group":{_text(key.group)},"topic":{_text(key.topic)},"partition":{key.partition},"offset":{commit.offset},'
        f'"leader_epoch":{epoch},"metadata":{_text(commit.metadata)},"commit_timestamp":{commit.commit_timestamp_ms},'
        f'"expire_timestamp":{expires},{log},"status":{_text(status)},"topic_id":{_text(commit.topic_id)},"record_offset":{record.offset}}}\n'
    ).encode()


@lru_cache(maxsize=1 << 12)
def _text(text: str | None) -> str:
    return compact_json(text)


def offset_commit(record: CoordinatorRecord) -> OffsetCommit:
    assert record.key is not None
    assert record.value is not None
    return parse_commit(int.from_bytes(record.key[:2], "big"), record.value)[0]


def _commit_fields(commit: OffsetCommit) -> RowValues:
    return {
        "offset": commit.offset,
        "leader_epoch": None if commit.leader_epoch == -1 else commit.leader_epoch,
        "metadata": commit.metadata,
        "commit_timestamp": commit.commit_timestamp_ms,
    }


def _status(commit: OffsetCommit, topic: str, names: TopicNames, ends: LogEnds | None) -> str | None:
    """What happens to a consumer that starts here; None if it is unknown."""
    if commit.topic_id is not None and names.ids and names.is_gone(commit.topic_id, topic):
        return TOPIC_RECREATED if topic in names.ids else TOPIC_DELETED
    if ends is None:
        return None
    if commit.offset > ends.end_offset:
        return BEYOND_LOG_END
    return BELOW_LOG_START if commit.offset < ends.start_offset else "ok"


def pending_row(key: OffsetKey, record: CoordinatorRecord, committed: CoordinatorRecord | None) -> RowValues:
    """An offset in an open transaction. committed: the committed offset of the key; if it is newer, a COMMIT does not replace it (Kafka:
    OffsetMetadataManager.replayEndTransactionMarker)."""
    commit = offset_commit(record)
    return {
        "type": "pending_offset",
        **key._asdict(),
        **_commit_fields(commit),
        "producer_id": record.producer_id,
        "producer_epoch": record.producer_epoch,
        "record_offset": record.offset,
        "takes_effect": committed is None or record.offset > committed.offset,
    }


def tombstone_row(
    group: str, timestamp_ms: int, key: OffsetKey | None = None, former_offset: int | None = None
) -> RowValues:
    """A deleted offset, or without a key a deleted group."""
    return {
        "type": "tombstone",
        "group": group,
        "topic": None if key is None else key.topic,
        "partition": None if key is None else key.partition,
        "timestamp": timestamp_ms,
        "former_offset": former_offset,
    }


def unknown_offset_row(key: OffsetKey, first_timestamp_ms: int) -> RowValues:
    """A key for which compaction has left no record up to the requested time."""
    return {"type": "unknown_offset", **key._asdict(), "first_timestamp": first_timestamp_ms}


def rewind_row(rewind: Rewind) -> RowValues:
    """An offset that went back."""
    return {
        "type": "rewind",
        **rewind.key._asdict(),
        "from_offset": committed_offset(rewind.former),
        "to_offset": committed_offset(rewind.commit),
        "from_timestamp": rewind.former.timestamp_ms,
        "timestamp": rewind.timestamp_ms,
        "deleted_timestamp": rewind.deleted_ms,
        "from_record_offset": rewind.former.offset,
        "record_offset": rewind.record_offset,
    }
