"""Committed offsets that their coordinator deletes as expired once it has loaded them.

    group                                the time that counts for an offset
    classic without a protocol type      its commit (a simple group, which only commits)
    classic, empty                       when the group became empty; its commit if the group's record does not say when
    classic, with members                none if no member comes back, since the group then becomes empty; its commit if some do
    consumer, streams                    its commit, whether it has members or not
    share                                none: it commits no offsets

An offset expires once that time is offsets.retention.minutes ago, or if it has an expire timestamp of its own (value version 1) that has
passed. It is kept while the group subscribes to its topic, and while a transaction with another commit of the same key is open. A
coordinator looks for expired offsets offsets.retention.check.interval.ms (10 minutes) after it has loaded the partition, and at the same
interval from then on. By then the sessions of members that have not come back have timed out (45 seconds), so the members in the log alone
preserve no offset. A classic consumer group with members may therefore lose its offsets of topics to which only some of them subscribe: it
does if only the others come back.

(Kafka: GroupCoordinatorShard.onLoaded and cleanupGroupMetadata, OffsetMetadataManager.cleanupExpiredOffsets, OffsetExpirationConditionImpl,
ClassicGroup, ConsumerGroup and StreamsGroup.offsetExpirationCondition.)
"""

from collections.abc import Callable, Container, Iterator, Sequence

from kseg.internal_topics.groups.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from kseg.internal_topics.groups.group_records import OffsetCommit, OffsetKey
from kseg.internal_topics.groups.group_replay import LoadedGroups
from kseg.internal_topics.groups.group_results import AboutGroup, RowValues
from kseg.internal_topics.groups.group_rows import TopicNames, offset_commit
from kseg.internal_topics.groups.group_states import ClassicGroup, Group, GroupType
from kseg.internal_topics.groups.partition_ends import PartitionEnds
from kseg.jobs.events import Row
from kseg.segment.errors import FormatError
from kseg.segment.values import dataclass

_NO_TIME = -1


@dataclass(frozen=True, slots=True)
class ExpiryCheck:
    """now_ms: when a coordinator checks. retention_ms: its offsets.retention.minutes; is_default: Kafka's default, since the broker's is
    not known. directories: the partitions that it loads. after_ms: how long after loading them it checks."""

    now_ms: int
    retention_ms: int
    is_default: bool
    directories: frozenset[str]
    after_ms: int


@dataclass(frozen=True, slots=True)
class ExpiringOffsets(AboutGroup):
    """The result of an expiring_offsets row. oldest_ms: the earliest time that counts for one of the offsets, None if all of them have an
    expiry of their own. of_own_expiry: how many do. is_of_topics: whether any of their topics may still exist. needs_return: they expire
    only if members come back, but none that subscribes to their topic."""

    offsets: int
    oldest_ms: int | None
    of_own_expiry: int
    is_of_topics: bool
    needs_return: bool


@dataclass(frozen=True, slots=True)
class _Due:
    """An offset that expires. since_ms: the time that counts, or its own expiry."""

    key: OffsetKey
    commit: OffsetCommit
    since_ms: int
    has_own_expiry: bool


def time_that_counts(group: Group, commit: OffsetCommit) -> int | None:
    """The time in ms from which the retention of an offset is counted; None if the group's state keeps it. For a classic group with
    members, the time if some of them come back."""
    if isinstance(group, ClassicGroup) and group.protocol_type:
        if group.members:
            return commit.commit_timestamp_ms if group.protocol_type == PROTOCOL_TYPE else None
        changed_ms = (
            _NO_TIME if group.metadata is None else group.metadata.get("currentStateTimestamp", _NO_TIME)
        )
        return commit.commit_timestamp_ms if changed_ms == _NO_TIME else changed_ms
    return None if group.type is GroupType.SHARE else commit.commit_timestamp_ms


def expiring_offsets(
    loaded: LoadedGroups,
    check: ExpiryCheck,
    wants: Callable[[OffsetKey], bool],
    names: TopicNames,
    ends: PartitionEnds | None,
) -> Iterator[Row]:
    """A row for each group that loses offsets to expiry. wants: whether a key was requested."""
    by_group: dict[str, list[_Due]] = {}
    of_all_members = _TopicsOfAllMembers()
    for key, record in sorted(loaded.offsets.offsets.items()):
        group = loaded.metadata.groups.get(key.group)
        due = None if group is None else _due(group, key, offset_commit(record), check)
        if due is not None and group is not None and wants(key) and key.topic not in of_all_members(group):
            by_group.setdefault(key.group, []).append(due)
    pending = {key for each in loaded.offsets.pending.values() for key in each}
    for name, found in by_group.items():
        row = _row(loaded.metadata.groups[name], found, ends)
        row["in_transactions"] = sum(due.key in pending for due in found)
        row["assumes_default"] = check.is_default and not all(due.has_own_expiry for due in found)
        row["needs_return"] = _has_consumers(loaded.metadata.groups[name])
        yield Row(row, _result(name, found, names, needs_return=bool(row["needs_return"])))


def _has_consumers(group: Group) -> bool:
    return isinstance(group, ClassicGroup) and group.protocol_type == PROTOCOL_TYPE and bool(group.members)


class _TopicsOfAllMembers:
    """The topics to which each member of a classic group of consumers subscribes: whoever comes back keeps their offsets. Every topic if a
    subscription cannot be decoded (Kafka: ClassicGroup.computeSubscribedTopics)."""

    def __init__(self) -> None:
        self._known: dict[str, Container[str]] = {}

    def __call__(self, group: Group) -> Container[str]:
        """None for other groups."""
        if not _has_consumers(group):
            return ()
        if group.name not in self._known:
            self._known[group.name] = self._of(group)
        return self._known[group.name]

    @staticmethod
    def _of(group: Group) -> Container[str]:
        try:
            each = [subscribed_topics(member.details["subscription"]) for member in group.members.values()]
        except FormatError:
            return _Everything()
        return frozenset.intersection(*each)


class _Everything:
    def __contains__(self, _topic: object) -> bool:
        return True


def _due(group: Group, key: OffsetKey, commit: OffsetCommit, check: ExpiryCheck) -> _Due | None:
    since_ms = time_that_counts(group, commit)
    if since_ms is None:
        return None
    if commit.expire_timestamp_ms != _NO_TIME:
        is_over = check.now_ms >= commit.expire_timestamp_ms
        return _Due(key, commit, commit.expire_timestamp_ms, True) if is_over else None
    return _Due(key, commit, since_ms, False) if check.now_ms - since_ms >= check.retention_ms else None


def _row(group: Group, found: Sequence[_Due], ends: PartitionEnds | None) -> RowValues:
    partitions = [_partition_row(due, ends) for due in found]
    lags = [lag for each in partitions if isinstance(lag := each["lag"], int)]
    return {
        "type": "expiring_offsets",
        "group": group.name,
        "group_type": str(group.type),
        "state": group.state,
        "members": len(group.members),
        "topics": list(dict.fromkeys(due.key.topic for due in found)),
        "offsets": len(found),
        "lag": sum(lags) if lags else None,
        "unused_since": max(due.since_ms for due in found),
        "of_own_expiry": sum(due.has_own_expiry for due in found),
        "partitions": partitions,
    }


def _partition_row(due: _Due, ends: PartitionEnds | None) -> RowValues:
    known = None if ends is None else ends.of(due.key.topic, due.key.partition)
    return {
        "topic": due.key.topic,
        "partition": due.key.partition,
        "offset": due.commit.offset,
        "lag": None if known is None else known.end_offset - due.commit.offset,
        "since": due.since_ms,
    }


def _result(group: str, found: Sequence[_Due], names: TopicNames, *, needs_return: bool) -> ExpiringOffsets:
    return ExpiringOffsets(
        group,
        len(found),
        min((due.since_ms for due in found if not due.has_own_expiry), default=None),
        sum(due.has_own_expiry for due in found),
        not names.ids or any(due.key.topic in names.ids for due in found),
        needs_return,
    )
