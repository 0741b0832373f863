"""Progress of share groups, as the share coordinator has it after loading `__share_group_state`.

For each (group, topic id, partition) a snapshot replaces everything, and an update is merged: the start offset unless -1, the leader
epoch unless -1, the number of completed deliveries always; its batches are combined with the existing ones. The tombstone of a
snapshot removes the partition. (Kafka: ShareCoordinatorShard.replay, PersisterStateBatchCombiner.)
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

from kseg.internal_topics.coordinator_log import CoordinatorEntry, CoordinatorRecord, LogProblem
from kseg.internal_topics.decoding import UnknownType, decode_key, decode_value
from kseg.internal_topics.load_findings import CoordinatorLoad, FailedRecord
from kseg.segment.errors import FormatError
from kseg.segment.values import dataclass

SHARE_GROUP_STATE = "__share_group_state"

_SNAPSHOT = 0
_MOST_STEPS = 8  # for each pair of batches that are combined


class SharePartitionKey(NamedTuple):
    """The key of a share partition's state."""

    group: str
    topic_id: str
    partition: int


class StateBatch(NamedTuple):
    """Offsets that share a delivery state. The fields are in sort order (Kafka: PersisterStateBatch)."""

    first_offset: int
    last_offset: int
    delivery_count: int
    delivery_state: int

    @property
    def records(self) -> int:
        return max(0, self.last_offset - self.first_offset + 1)


class DeliveryState:
    """Kafka: RecordState. ACQUIRED is never stored."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


@dataclass(frozen=True, slots=True)
class ShareState:
    """start_offset: -1 if not known yet. delivery_complete_count: records from the start offset on whose delivery is finished, -1
    for unknown. write_ms: of the last snapshot, None without one. timestamp_ms: of the last record."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    write_ms: int | None
    timestamp_ms: int

    @property
    def finished_end(self) -> int:
        """The offset after the last record that is not delivered again: the start offset, or one after it."""
        ends = (
            each.last_offset + 1 for each in self.batches if each.delivery_state != DeliveryState.AVAILABLE
        )
        return max(ends, default=self.start_offset)


@dataclass(slots=True)
class LoadedShareState(CoordinatorLoad):
    """The state of a partition of the topic."""

    states: dict[SharePartitionKey, ShareState] = field(default_factory=dict)


def load_share_state(entries: Iterable[CoordinatorEntry]) -> LoadedShareState:
    """Replay a partition's log. Raises UnreadableInput when it cannot be listed."""
    loaded = LoadedShareState()
    for entry in entries:
        if isinstance(entry, LogProblem):
            loaded.meet(entry, load_share_state)
        elif isinstance(entry, CoordinatorRecord):
            loaded.records += 1
            try:
                _take(loaded, entry)
            except FormatError as error:
                loaded.failures.append(FailedRecord(entry.offset, str(error)))
    return loaded


def _take(loaded: LoadedShareState, record: CoordinatorRecord) -> None:
    if record.key is None:
        raise FormatError("the record has no key")
    try:
        decoded = decode_key(SHARE_GROUP_STATE, record.key)
    except UnknownType as unknown:
        loaded.skip(unknown.type_id)
        return
    key = SharePartitionKey(decoded.values["groupId"], decoded.values["topicId"], decoded.values["partition"])
    is_snapshot = decoded.message.type == _SNAPSHOT
    if record.value is None:
        if not is_snapshot:
            raise FormatError("an update has no value")
        loaded.states.pop(key, None)
        return
    assert decoded.message.type is not None
    value = decode_value(SHARE_GROUP_STATE, decoded.message.type, record.value)
    if value.is_newer:
        loaded.failures.append(
            FailedRecord(record.offset, f"unknown version {value.version} of {value.message.name}")
        )
    former = None if is_snapshot else loaded.states.get(key)
    if former is None:
        loaded.states[key] = _fresh(value.values, record.timestamp_ms, is_snapshot=is_snapshot)
    else:
        loaded.states[key] = _merged(former, value.values, record.timestamp_ms)


def _fresh(values: Mapping[str, Any], timestamp_ms: int, *, is_snapshot: bool) -> ShareState:
    return ShareState(
        snapshot_epoch=values["snapshotEpoch"],
        state_epoch=values["stateEpoch"] if is_snapshot else 0,
        leader_epoch=values["leaderEpoch"],
        start_offset=values["startOffset"],
        delivery_complete_count=values["deliveryCompleteCount"],
        batches=_batches(values),
        write_ms=values["writeTimestamp"] if is_snapshot else None,
        timestamp_ms=timestamp_ms,
    )


def _merged(former: ShareState, values: Mapping[str, Any], timestamp_ms: int) -> ShareState:
    start = former.start_offset if values["startOffset"] == -1 else values["startOffset"]
    return replace(
        former,
        leader_epoch=former.leader_epoch if values["leaderEpoch"] == -1 else values["leaderEpoch"],
        start_offset=start,
        delivery_complete_count=values["deliveryCompleteCount"],
        batches=combined_batches(former.batches, _batches(values), start),
        timestamp_ms=timestamp_ms,
    )


def _batches(values: Mapping[str, Any]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(each["firstOffset"], each["lastOffset"], each["deliveryCount"], each["deliveryState"])
        for each in values["stateBatches"]
    )


def combined_batches(
    former: Sequence[StateBatch], added: Sequence[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """The batches of a state after an update: none below the start offset (-1 for none), sorted. If two overlap, the one with
    more deliveries or the later delivery state wins. Raises FormatError where Kafka does not come to an end, which happens if a batch that
    ends before it begins wins over one around it (observed with 4.3.1)."""
    pruned = [
        batch
        if start_offset == -1 or batch.first_offset >= start_offset
        else batch._replace(first_offset=start_offset)
        for batch in (*former, *added)
        if start_offset == -1 or batch.last_offset >= start_offset
    ]
    if len(pruned) < 2:
        return tuple(pruned)
    waiting = list(set(pruned))
    heapq.heapify(waiting)
    settled: list[StateBatch] = []
    is_any_reversed = any(each.last_offset < each.first_offset for each in waiting)
    steps = _MOST_STEPS * len(waiting) ** 2 if is_any_reversed else math.inf
    first = heapq.heappop(waiting)
    while waiting:
        steps -= 1
        if steps < 0:
            raise FormatError("a state batch ends before it begins, and is combined with others without end")
        second = heapq.heappop(waiting)
        if not _touch(first, second):
            settled.append(first)
            first = second
            continue
        for part in _resolved(first, second):
            heapq.heappush(waiting, part)
        first = heapq.heappop(waiting)
        while waiting and waiting[0] == first:
            heapq.heappop(waiting)
    return (*settled, first)


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state


def _touch(first: StateBatch, second: StateBatch) -> bool:
    return second.first_offset <= first.last_offset or (
        second.first_offset == first.last_offset + 1 and _rank(first) == _rank(second)
    )


def _resolved(first: StateBatch, second: StateBatch) -> list[StateBatch]:
    """Two overlapping batches as disjoint ones."""
    if _rank(first) == _rank(second):
        return [first._replace(last_offset=max(first.last_offset, second.last_offset))]
    if _rank(second) < _rank(first):
        kept = [first]
        if second.last_offset > first.last_offset:
            kept.append(second._replace(first_offset=first.last_offset + 1))
        return kept
    kept = [second]
    if first.first_offset < second.first_offset:
        kept.append(first._replace(last_offset=second.first_offset - 1))
    if first.last_offset > second.last_offset:
        kept.append(first._replace(first_offset=second.last_offset + 1))
    return kept
