"""Groups in a coordinator's memory, and the state in which it lists them after loading.

    classic    Stable with members, else Empty
    consumer   Empty, Assigning (its epoch is above the assignment's), Reconciling (a member has not caught up yet), Stable
    share      Empty, Stable
    streams    like consumer, and NotReady while its topology is not validated

(Kafka: ClassicGroup, ConsumerGroup, ShareGroup and StreamsGroup.maybeUpdateGroupState.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any

from kseg.segment.values import dataclass

LEFT_GROUP_EPOCH = -1
DELETED_ASSIGNMENT_EPOCH = -1
_INITIAL_ASSIGNMENT_EPOCH = 1  # before the first record (Kafka: TargetAssignmentMetadata.INITIAL)
_STABLE, _STREAMS_STABLE = 0, 1  # Kafka: MemberState.STABLE of modern and of streams groups
STREAMS_UNREVOKED = 2  # Kafka: streams.MemberState.UNREVOKED_TASKS


class GroupType(StrEnum):
    """Kafka's names of the protocols."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


# partitions by topic id; in a streams group by subtopology
Assigned = Mapping[str, Sequence[int]]


@dataclass(slots=True)
class GroupMember:
    """A member of any group.

    details: its metadata record, or in a classic group its entry in the group's record. epoch, state: of its newest assignment. has_epoch:
    whether it has had one. assigned, revoking: its partitions, and those that it still has to revoke. standby, warmup: other tasks of a
    streams group's member.
    """

    member_id: str
    details: Mapping[str, Any] = field(default_factory=dict)
    epoch: int = 0
    has_epoch: bool = False
    state: int = _STABLE
    assigned: Assigned = field(default_factory=dict)
    revoking: Assigned = field(default_factory=dict)
    standby: Assigned = field(default_factory=dict)
    warmup: Assigned = field(default_factory=dict)


@dataclass(slots=True)
class ClassicGroup:
    """A group of the join and sync protocol. metadata: its newest record; None for a simple group, which only commits."""

    name: str
    metadata: Mapping[str, Any] | None = None
    members: dict[str, GroupMember] = field(default_factory=dict)
    type = GroupType.CLASSIC

    @property
    def protocol_type(self) -> str:
        return "" if self.metadata is None else self.metadata["protocolType"]

    @property
    def is_simple(self) -> bool:
        """Whether a group of another type can replace it, since it has nothing but offsets."""
        return not self.protocol_type and not self.members

    @property
    def epoch(self) -> int | None:
        return None if self.metadata is None else self.metadata["generation"]

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"


@dataclass(slots=True)
class ModernGroup:
    """A consumer, share or streams group.

    epoch: None until a record sets it. targets: the members in the target assignment. topology, validated_topology_epoch: of a
    streams group. share_topics: the topic metadata of a share group. owned: the member epoch at which each partition (topic id,
    number) of a consumer group is owned.
    """

    name: str
    type: GroupType
    epoch: int | None = None
    assignment_epoch: int = _INITIAL_ASSIGNMENT_EPOCH
    members: dict[str, GroupMember] = field(default_factory=dict)
    targets: set[str] = field(default_factory=set)
    topology: Mapping[str, Any] | None = None
    validated_topology_epoch: int = 0
    share_topics: Mapping[str, Any] | None = None
    owned: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.type is GroupType.SHARE:
            return "Stable"
        if self.type is GroupType.STREAMS and not self._is_topology_valid():
            return "NotReady"
        if (self.epoch or 0) > self.assignment_epoch:
            return "Assigning"
        stable = _STREAMS_STABLE if self.type is GroupType.STREAMS else _STABLE
        is_reconciled = all(
            member.state == stable and member.epoch == self.assignment_epoch
            for member in self.members.values()
        )
        return "Stable" if is_reconciled else "Reconciling"

    @property
    def undescribed(self) -> str | None:
        """Why a coordinator fails to describe a streams group (UNKNOWN_SERVER_ERROR, observed with 4.3.1), None if it does not."""
        if self.type is not GroupType.STREAMS:
            return None
        if self.topology is None:
            return "it has no topology"
        for _, member in sorted(self.members.items()):
            if not member.details or not member.has_epoch:
                return f"member {member.member_id} has no {'current assignment' if member.details else 'record of its own'}"
        return None

    def _is_topology_valid(self) -> bool:
        return self.topology is not None and self.topology["epoch"] == self.validated_topology_epoch


Group = ClassicGroup | ModernGroup
