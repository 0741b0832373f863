"""What the rows about groups say, for other code: the result of each row (`Row.result`), and which of two committed offsets counts."""

from typing import Generic, TypeVar

from kseg.segment.values import dataclass

RowValues = dict[str, object]
T = TypeVar("T")

BEYOND_LOG_END, BELOW_LOG_START = "beyond-log-end", "below-log-start"
TOPIC_DELETED, TOPIC_RECREATED = "topic-deleted", "topic-recreated"
UNREACHABLE = "unreachable"  # the group's coordinator is that of another partition (`coordinator_partition`)


@dataclass(frozen=True, slots=True)
class AboutGroup:
    """The result of a row about this group."""

    group: str


@dataclass(frozen=True, slots=True)
class OffsetOfGroup(AboutGroup):
    """The result of an offset row. status: what happens to a consumer that starts there, as in the row; None when unknown, for example
    because the log end is."""

    topic: str
    partition: int
    offset: int
    status: str | None = None
    log_end_offset: int | None = None

    @property
    def is_reachable(self) -> bool:
        return self.status != UNREACHABLE

    @property
    def is_of_former_topic(self) -> bool:
        """Whether it was committed in a deleted topic of the same name. A coordinator loads it, and compares topic ids only for consumers
        of the consumer protocol: others continue at this offset in the topic of today (observed with 4.3.1)."""
        return self.status == TOPIC_RECREATED

    @property
    def is_of_deleted_topic(self) -> bool:
        """Whether its topic was deleted, and there is none of this name. A coordinator loads it and gives it to consumers, but deletes it
        on request only once there is a topic of this name again (UNKNOWN_TOPIC_OR_PARTITION; observed with 4.3.1)."""
        return self.status == TOPIC_DELETED

    @property
    def is_outside_log(self) -> bool:
        return self.status in (BEYOND_LOG_END, BELOW_LOG_START)


class CoordinatorsOffsets(Generic[T]):
    """A value for each offset that a coordinator gives its group. Two partitions of `__consumer_offsets` may have one of the same key: the
    one that the group's coordinator has loaded counts. by_key: the values by group, topic and partition, in the order of the first ones."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str, int], T] = {}

    def add(self, offset: OffsetOfGroup, value: T) -> None:
        key = offset.group, offset.topic, offset.partition
        if offset.is_reachable or key not in self.by_key:
            self.by_key[key] = value


@dataclass(frozen=True, slots=True)
class PendingOffset(AboutGroup):
    """The result of a pending_offset row. takes_effect: as in the row."""

    topic: str
    partition: int
    offset: int
    producer_id: int
    takes_effect: bool


@dataclass(frozen=True, slots=True)
class ListedGroup(AboutGroup):
    """The result of a group row. epoch: None if no record has set it."""

    group_type: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class DeletedGroup(AboutGroup):
    """The result of the tombstone row of a group."""


@dataclass(frozen=True, slots=True)
class ShareTopicOfGroup(AboutGroup):
    """The result of a share_topic row. status: as in the row. partitions: none of a topic that is being deleted."""

    topic: str
    topic_id: str
    partitions: tuple[int, ...]
    status: str


@dataclass(frozen=True, slots=True)
class ShareStateOfGroup(AboutGroup):
    """The result of a share_offset row of a state that the share coordinator uses. finished_end: the offset after the last record that is
    not delivered again, if that is beyond the log end. has_start: whether it has a start offset, and something would be lost with it."""

    topic: str
    topic_id: str
    partition: int
    state_epoch: int
    has_start: bool
    finished_end: int | None = None


@dataclass(frozen=True, slots=True)
class ForgottenState(AboutGroup):
    """The result of a share_offset row of a state of which the group's coordinator knows nothing (`share_group_records`). log: the
    directory of the partition of `__consumer_offsets` to which records of the group can be appended; None if it has other replicas, or a
    group of another type has this name. group_epoch: None if there is no group. group_topics: those of the group."""

    topic: str
    topic_id: str
    partition: int
    state_epoch: int
    log: str | None
    group_epoch: int | None
    group_topics: tuple[ShareTopicOfGroup, ...]


@dataclass(frozen=True, slots=True)
class StatelessPartition(AboutGroup):
    """The result of a share_offset row of a partition that a share group has initialized, but of which the share coordinator has no state:
    its members get no record until the state is created again (observed with 4.3.1)."""

    topic: str
    partition: int


def result_of(row: RowValues) -> AboutGroup:
    group, topic = str(row.get("group")), str(row.get("topic"))
    match row:
        case {
            "type": "offset",
            "partition": int(partition),
            "offset": int(offset),
            "status": str() | None as status,
            "log_end_offset": int() | None as end_offset,
        }:
            return OffsetOfGroup(group, topic, partition, offset, status, end_offset)
        case {
            "type": "pending_offset",
            "partition": int(partition),
            "offset": int(offset),
            "producer_id": int(producer_id),
            "takes_effect": takes_effect,
        }:
            return PendingOffset(group, topic, partition, offset, producer_id, bool(takes_effect))
        case {"type": "share_topic", "topic_id": topic_id, "partitions": list(partitions), "status": status}:
            return ShareTopicOfGroup(group, topic, str(topic_id), tuple(partitions), str(status))
        case {"type": "group", "group_type": group_type, "epoch": int() | None as epoch}:
            return ListedGroup(group, str(group_type), epoch)
        case {"type": "tombstone", "topic": None}:
            return DeletedGroup(group)
        case {
            "type": "share_offset",
            "topic_id": topic_id,
            "partition": int(partition),
            "state_epoch": int(state_epoch),
            "start_offset": start,
            "finished_end_offset": int() | None as finished,
            "status": status,
        } if status in (None, BEYOND_LOG_END):
            end = finished if status == BEYOND_LOG_END else None
            has_start = start is not None
            return ShareStateOfGroup(group, topic, str(topic_id), partition, state_epoch, has_start, end)
    return AboutGroup(group)
