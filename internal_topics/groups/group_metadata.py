"""Records about groups and members, replayed as a coordinator does when it loads (Kafka: GroupMetadataManager.replay).

    2           classic: the whole group each time
    3-8, 16     consumer: epoch, member, target assignment, current assignment, resolved regular expression
    10-15       share        17, 19-23   streams

A record creates the group that it needs. A simple classic group, one that only commits, is replaced by a consumer or streams group; any
other group of another type fails the load. Tombstones of missing groups and members are ignored; tombstones in an order that no
coordinator writes fail the load.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kseg.internal_topics.groups.group_states import (
    DELETED_ASSIGNMENT_EPOCH,
    LEFT_GROUP_EPOCH,
    Assigned,
    ClassicGroup,
    Group,
    GroupMember,
    GroupType,
    ModernGroup,
)
from kseg.segment.values import dataclass

Values = Mapping[str, Any]


class LoadFailed(Exception):
    """The exception with which a coordinator fails to load a record; the message is Kafka's, or equivalent."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """The type of group that a record type belongs to."""

    type: GroupType
    apply: "Callable[[GroupMetadata, ModernGroup, str, Values | None], None]"


class GroupMetadata:
    """groups: by name. Call `take` in log order."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}

    def has_offset(self, name: str) -> None:
        """An offset was committed, which needs a group, at least a simple one."""
        if name not in self.groups:
            self.groups[name] = ClassicGroup(name)

    def take(self, type_id: int, name: str, subject: str, value: Values | None) -> None:
        """A record; value: None for a tombstone. subject: the member id or regular expression of its key. Raises LoadFailed."""
        if type_id == 2:
            self._classic(name, value)
            return
        kind = _KINDS[type_id]
        group = self._modern(name, kind.type, is_made=value is not None)
        if group is not None:
            kind.apply(self, group, subject, value)

    def _classic(self, name: str, value: Values | None) -> None:
        if value is None:
            self.groups.pop(name, None)
            return
        group = ClassicGroup(name, value)
        instances: set[str] = set()
        for details in value["members"]:
            instance = details.get("groupInstanceId")
            if instance is not None and instance in instances:
                raise LoadFailed(
                    f"Static member with groupInstanceId={instance} cannot be added to group {name} since it is already a member."
                )
            if instance is not None:
                instances.add(instance)
            group.members[details["memberId"]] = GroupMember(details["memberId"], details)
        self.groups[name] = group

    def _modern(self, name: str, wanted: GroupType, *, is_made: bool) -> ModernGroup | None:
        """The group of a record; None when a tombstone has none. Raises LoadFailed for one of another type."""
        group = self.groups.get(name)
        if group is None and not is_made:
            return None
        if isinstance(group, ModernGroup) and group.type is wanted:
            return group
        gives_way = isinstance(group, ClassicGroup) and group.is_simple and wanted is not GroupType.SHARE
        if group is not None and not gives_way:
            raise LoadFailed(f"Group {name} is not a {wanted} group")
        made = self.groups[name] = ModernGroup(name, wanted)
        return made

    # --- the record types

    def _epoch(self, group: ModernGroup, _subject: str, value: Values | None) -> None:
        """3, 11, 17."""
        if value is None:
            self._delete(group)
            return
        group.epoch = value["epoch"]
        if group.type is GroupType.STREAMS:
            group.validated_topology_epoch = value["validatedTopologyEpoch"]

    def _delete(self, group: ModernGroup) -> None:
        head = f"Received a tombstone record to delete group {group.name}"
        if group.members:
            raise LoadFailed(f"{head} but the group still has {len(group.members)} members.")
        if group.targets and group.type is not GroupType.STREAMS:
            raise LoadFailed(f"{head} but the target assignment still has {len(group.targets)} members.")
        if group.assignment_epoch != DELETED_ASSIGNMENT_EPOCH:
            raise LoadFailed(f"{head} but did not receive the tombstone of its target assignment.")
        del self.groups[group.name]

    def _member(self, group: ModernGroup, member_id: str, value: Values | None) -> None:
        """5, 10, 19."""
        member = group.members.get(member_id)
        if value is not None:
            if member is None:
                member = group.members[member_id] = GroupMember(member_id)
            member.details = value
            _disown(group, member)
            _own(group, member)
            return
        if member is None:
            return
        head = f"Received a tombstone record to delete member {member_id}"
        if member.epoch != LEFT_GROUP_EPOCH:
            raise LoadFailed(f"{head} but did not receive the tombstone of its current assignment.")
        if member_id in group.targets:
            raise LoadFailed(f"{head} but did not receive the tombstone of its target assignment.")
        _disown(group, member)
        del group.members[member_id]

    def _assignment_epoch(self, group: ModernGroup, _subject: str, value: Values | None) -> None:
        """6, 12, 20."""
        if value is None:
            if group.targets:
                raise LoadFailed(
                    f"Received a tombstone record to delete target assignment of {group.name} but the assignment still has "
                    f"{len(group.targets)} members."
                )
            group.assignment_epoch = DELETED_ASSIGNMENT_EPOCH
            return
        if value["assignmentEpoch"] < DELETED_ASSIGNMENT_EPOCH:
            raise LoadFailed("The assignment epoch must be non-negative or -1.")
        if value["assignmentTimestamp"] < 0:
            raise LoadFailed("The assignment timestamp must be non-negative.")
        group.assignment_epoch = value["assignmentEpoch"]

    def _target(self, group: ModernGroup, member_id: str, value: Values | None) -> None:
        """7, 13, 21."""
        if value is None:
            group.targets.discard(member_id)
            return
        if group.type is not GroupType.STREAMS:
            _check_unique(value["topicPartitions"])
        group.targets.add(member_id)

    def _current(self, group: ModernGroup, member_id: str, value: Values | None) -> None:
        """8, 14, 22."""
        member = group.members.get(member_id)
        if member is None:
            if value is None:
                return
            member = GroupMember(member_id)
        if value is None:
            assigned: Assigned = {}
            revoking: Assigned = {}
            member.standby, member.warmup = {}, {}
            epoch = LEFT_GROUP_EPOCH
        elif group.type is GroupType.STREAMS:
            assigned, revoking = _tasks(value["activeTasks"]), _tasks(value["activeTasksPendingRevocation"])
            member.standby, member.warmup = _tasks(value["standbyTasks"]), _tasks(value["warmupTasks"])
            epoch = value["memberEpoch"]
        else:
            if group.type is GroupType.SHARE:
                _check_unique(value["assignedPartitions"])
            assigned = _partitions(value["assignedPartitions"])
            revoking = _partitions(value.get("partitionsPendingRevocation", ()))
            epoch = value["memberEpoch"]
        group.members[member_id] = member
        _disown(group, member)
        member.epoch, member.assigned, member.revoking = epoch, assigned, revoking
        member.has_epoch = True
        if value is not None:
            member.state = value["state"]
        _own(group, member)

    def _topology(self, group: ModernGroup, _subject: str, value: Values | None) -> None:
        """23."""
        group.topology = value

    def _share_topics(self, group: ModernGroup, _subject: str, value: Values | None) -> None:
        """15."""
        group.share_topics = value

    def _nothing(self, group: ModernGroup, _subject: str, value: Values | None) -> None:
        """Records of types 4 and 16 create the group; they contain nothing else that is needed here."""


def _partitions(entries: Sequence[Values]) -> Assigned:
    return {entry["topicId"]: entry["partitions"] for entry in entries}


def _tasks(entries: Sequence[Values]) -> Assigned:
    return {entry["subtopologyId"]: entry["partitions"] for entry in entries}


def _check_unique(entries: Sequence[Values]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry["topicId"] in seen:
            raise LoadFailed(f"Duplicate key {entry['topicId']}")
        seen.add(entry["topicId"])


def _owned(member: GroupMember) -> list[tuple[str, int]]:
    return [
        (topic_id, number)
        for part in (member.assigned, member.revoking)
        for topic_id, numbers in part.items()
        for number in dict.fromkeys(numbers)
    ]


def _disown(group: ModernGroup, member: GroupMember) -> None:
    """Release a member's partitions (Kafka: ConsumerGroup.removePartitionEpochs)."""
    if group.type is GroupType.CONSUMER:
        for place in _owned(member):
            if group.owned.get(place) == member.epoch:
                del group.owned[place]


def _own(group: ModernGroup, member: GroupMember) -> None:
    """Raises LoadFailed for a partition that another member owns at the same epoch or a later one."""
    if group.type is not GroupType.CONSUMER:
        return
    for place in _owned(member):
        epoch = group.owned.get(place)
        if epoch is not None and epoch >= member.epoch:
            raise LoadFailed(
                f"Cannot set the epoch of {place[0]}-{place[1]} to {member.epoch} because the partition is still owned at epoch {epoch}"
            )
        group.owned[place] = member.epoch


def _kinds(type: GroupType, **types: int) -> dict[int, _Kind]:
    return {type_id: _Kind(type, getattr(GroupMetadata, f"_{name}")) for name, type_id in types.items()}


_KINDS: Mapping[int, _Kind] = {
    **_kinds(GroupType.CONSUMER, epoch=3, member=5, assignment_epoch=6, target=7, current=8),
    4: _Kind(GroupType.CONSUMER, GroupMetadata._nothing),
    16: _Kind(GroupType.CONSUMER, GroupMetadata._nothing),
    **_kinds(
        GroupType.SHARE, member=10, epoch=11, assignment_epoch=12, target=13, current=14, share_topics=15
    ),
    **_kinds(GroupType.STREAMS, epoch=17, member=19, assignment_epoch=20, target=21, current=22, topology=23),
}
