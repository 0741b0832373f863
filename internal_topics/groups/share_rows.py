"""The rows of `kseg groups` that only share groups have (docs/json.md): share_topic, share_offset."""

from collections.abc import Iterator

from kseg.internal_topics.groups.group_results import BEYOND_LOG_END, RowValues
from kseg.internal_topics.groups.group_rows import TopicNames
from kseg.internal_topics.groups.group_states import ModernGroup
from kseg.internal_topics.groups.partition_ends import PartitionEnds
from kseg.internal_topics.groups.share_state import DeliveryState, SharePartitionKey, ShareState, StateBatch

NO_STATE = "no-state"
FORGOTTEN = "forgotten"  # by the group's coordinator (`share_group_records`)
_SHARE_TOPICS = {
    "initializingTopics": "initializing",
    "initializedTopics": "initialized",
    "deletingTopics": "deleting",
}


def share_topic_rows(group: ModernGroup) -> Iterator[RowValues]:
    """The topics for which a share group has state, or is about to create or delete state."""
    for name, status in _SHARE_TOPICS.items():
        for each in (group.share_topics or {}).get(name, ()):
            yield {
                "type": "share_topic",
                "group": group.name,
                "topic": each["topicName"],
                "topic_id": each["topicId"],
                "partitions": sorted(each.get("partitions", ())),
                "status": status,
            }


def share_offset_row(
    key: SharePartitionKey,
    state: ShareState,
    names: TopicNames,
    ends: PartitionEnds | None,
    status: str | None = None,
) -> RowValues:
    """The progress of a share group in a partition. status: NO_STATE; UNREACHABLE for a state in another partition than the one where the
    share coordinator looks for it, which the broker does not use (observed with 4.3.1). None for all others: BEYOND_LOG_END if records have
    been delivered that the log has lost. What is appended at their offsets is not delivered (observed with 4.3.1)."""
    topic = names.by_id.get(key.topic_id)
    known = None if ends is None or topic is None else ends.of(topic, key.partition)
    start: int | None = None if state.start_offset == -1 else state.start_offset
    counts = dict.fromkeys((DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED), 0)
    for batch in state.batches:
        counts[batch.delivery_state] = counts.get(batch.delivery_state, 0) + batch.records
    lag: int | None = None
    if known is not None and start is not None and state.delivery_complete_count >= 0:
        lag = known.end_offset - start - state.delivery_complete_count
    complete = state.delivery_complete_count
    if status is None and known is not None and state.finished_end > known.end_offset:
        status = BEYOND_LOG_END
    return {
        "type": "share_offset",
        "group": key.group,
        "topic": topic,
        "topic_id": key.topic_id,
        "partition": key.partition,
        "start_offset": start,
        "log_end_offset": None if known is None else known.end_offset,
        "lag": lag,
        "in_flight": counts[DeliveryState.AVAILABLE] + counts.get(DeliveryState.ARCHIVING, 0),
        "acknowledged": counts[DeliveryState.ACKNOWLEDGED],
        "archived": counts[DeliveryState.ARCHIVED],
        "delivery_complete_count": None if complete == -1 else complete,
        "finished_end_offset": None if state.finished_end == -1 else state.finished_end,
        "leader_epoch": state.leader_epoch,
        "state_epoch": state.state_epoch,
        "snapshot_epoch": state.snapshot_epoch,
        "write_timestamp": state.write_ms,
        "timestamp": state.timestamp_ms,
        "status": status,
        "batches": [_batch_row(batch) for batch in state.batches],
    }


def stateless_row(key: SharePartitionKey, topic: str, ends: PartitionEnds | None) -> RowValues:
    """A partition that a share group has initialized, but for which the share coordinator has no state: shown like one without a start
    offset. Its leader cannot read the state (INVALID_REQUEST), and gives the group's members no record (observed with 4.3.1)."""
    nothing = ShareState(0, 0, 0, -1, -1, (), None, -1)
    row = share_offset_row(key, nothing, TopicNames({key.topic_id: topic}, {}, {}), ends, NO_STATE)
    return row | dict.fromkeys(("leader_epoch", "state_epoch", "snapshot_epoch", "timestamp"))


def _batch_row(batch: StateBatch) -> RowValues:
    return {
        "first_offset": batch.first_offset,
        "last_offset": batch.last_offset,
        "delivery_state": _DELIVERY_STATES.get(batch.delivery_state, f"UNKNOWN({batch.delivery_state})"),
        "delivery_count": batch.delivery_count,
    }


_DELIVERY_STATES = {0: "AVAILABLE", 1: "ACQUIRED", 2: "ACKNOWLEDGED", 3: "ARCHIVING", 4: "ARCHIVED"}
