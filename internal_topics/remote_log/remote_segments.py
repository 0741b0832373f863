"""Replay the records of `__remote_log_metadata` into the segments of each partition (Kafka: RemotePartitionMetadataStore,
RemoteLogMetadataCache, RemoteLogLeaderEpochState of 4.3.1).

1. A segment begins with COPY_SEGMENT_STARTED and continues to COPY_SEGMENT_FINISHED, DELETE_SEGMENT_STARTED, DELETE_SEGMENT_FINISHED; an
   upload may go straight to its deletion. Other transitions are ignored, and so are updates of unknown segments.
2. Only a finished copy can be read. Its leader epochs have the offset at which each begins in it; an epoch ends before the next one, the
   last one with the segment. For each epoch a map from those start offsets to segments decides: an offset is served from the segment with
   the greatest start offset at or below it, and from no other.
3. A leader may upload again what its predecessor had uploaded. A copy that begins before others of the epoch, and ends at or after all of
   them, takes their place; they remain in the store, unused.
4. A partition whose deletion is finished is gone, with all of its segments. Uploads that are recorded after that are ignored, and their
   objects stay in the store: each is reported as a problem.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kseg.internal_topics.decoding import decode_framed
from kseg.internal_topics.remote_log_text import PARTITION_STATES, SEGMENT_STATES
from kseg.segment.errors import FormatError
from kseg.segment.offset_ranges import OffsetRange, union
from kseg.segment.partition.remote_span import RemoteSpan
from kseg.segment.values import dataclass

REMOTE_LOG_METADATA = "__remote_log_metadata"

_COPY_STARTED, _COPY_FINISHED, _DELETE_STARTED, _DELETE_FINISHED = range(4)
_NEXT = {
    None: {_COPY_STARTED},
    _COPY_STARTED: {_COPY_STARTED, _COPY_FINISHED, _DELETE_STARTED},
    _COPY_FINISHED: {_COPY_FINISHED, _DELETE_STARTED},
    _DELETE_STARTED: {_DELETE_STARTED, _DELETE_FINISHED},
}
_PARTITION_DELETED = 2

PartitionKey = tuple[str, int]  # topic id and partition
Lineage = Sequence[tuple[int, int]]  # leader epochs with their start offsets, in order


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """start, end: offsets, both inclusive. leader_epochs: with their start offsets. event_timestamp_ms, broker_id: of the last
    record about it."""

    id: str
    start: int
    end: int
    state: int
    size_bytes: int
    leader_epochs: tuple[tuple[int, int], ...]
    max_timestamp_ms: int
    event_timestamp_ms: int
    broker_id: int

    @property
    def state_name(self) -> str:
        return SEGMENT_STATES[self.state]

    @property
    def is_dangling(self) -> bool:
        """Whether an upload or a deletion was not finished: the store may have an object that nothing refers to."""
        return self.state in (_COPY_STARTED, _DELETE_STARTED)

    @property
    def is_finished(self) -> bool:
        """Whether it was copied completely, and its deletion has not begun."""
        return self.state == _COPY_FINISHED

    def last_of(self, epoch: int) -> int:
        """The last offset of a leader epoch in this segment."""
        later = [begin for other, begin in self.leader_epochs if other > epoch]
        return later[0] - 1 if later else self.end


class RemotePartition:
    """The remote segments of one partition. name: of the topic, from the last record. delete_state: None unless the partition is
    being deleted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.delete_state: str | None = None
        self.segments: dict[str, RemoteSegment] = {}
        self._epochs: dict[int, dict[int, str]] = {}  # segment ids by epoch and start offset
        self._replaced: dict[int, set[str]] = {}  # by epoch, those that a later copy has replaced
        self._highest: dict[int, int] = {}

    def step(self, segment: RemoteSegment) -> bool:
        """Move a segment to its next state; returns whether the transition is allowed."""
        old = self.segments.get(segment.id)
        if segment.state not in _NEXT.get(None if old is None else old.state, ()):
            return False
        if segment.state == _COPY_FINISHED:
            for epoch, begin in segment.leader_epochs:
                self._refer(epoch, begin, segment)
        elif segment.state == _DELETE_STARTED:
            for epoch, begin in segment.leader_epochs:
                begins = self._epochs.get(epoch, {})
                if begins.get(begin) == segment.id:
                    del begins[begin]
        if segment.state == _DELETE_FINISHED:
            del self.segments[segment.id]
        else:
            self.segments[segment.id] = segment
        return True

    def _refer(self, epoch: int, begin: int, segment: RemoteSegment) -> None:
        begins = self._epochs.setdefault(epoch, {})
        replaced = self._replaced.setdefault(epoch, set())
        last = segment.last_of(epoch)
        while begins and max(begins) >= begin and self._highest[epoch] <= last:
            replaced.add(begins.pop(max(begins)))
        begins[begin] = segment.id
        replaced.discard(segment.id)
        self._highest[epoch] = max(last, self._highest.get(epoch, last))

    def readable(self, lineage: Lineage | None) -> list[OffsetRange]:
        """The offsets that a fetch can read from the remote store. lineage: the partition's leader epochs; without it any epoch counts at
        any offset."""
        return union([(span.first_offset, span.last_offset) for span in self.spans(lineage)])

    def spans(self, lineage: Lineage | None) -> list[RemoteSpan]:
        """The same by epoch and segment, in the order of a search for a time (Kafka: RemoteLogManager.findOffsetByTimestamp)."""
        found = []
        for epoch, begins in sorted(self._epochs.items()):
            first, last = _extent(lineage, epoch)
            order = sorted(begins)
            for at, begin in enumerate(order):
                segment = self.segments[begins[begin]]
                end = segment.last_of(epoch)
                if at + 1 < len(order):
                    end = min(end, order[at + 1] - 1)
                end = end if last is None else min(end, last)
                found.append(RemoteSpan(max(begin, first), end, segment.max_timestamp_ms))
        return found

    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """The leader epochs of the segments that were copied completely, with their start offsets."""
        begins: dict[int, int] = {}
        for segment in self.segments.values():
            for epoch, begin in segment.leader_epochs if segment.is_finished else ():
                begins[epoch] = min(begin, begins.get(epoch, begin))
        return tuple(sorted(begins.items()))

    def listed_start(self, lineage: Lineage) -> int | None:
        """The offset to which a broker that becomes leader raises the log start, unless it is higher already: also that of a segment whose
        upload or deletion was not finished, which nothing serves (Kafka: RemoteLogManager.findLogStartOffset). None if there are none."""
        for epoch, _ in lineage:
            starts = [each.start for each in self.segments.values() if epoch in dict(each.leader_epochs)]
            if starts:
                return min(starts)
        return None

    def is_read(self, segment_id: str) -> bool:
        """Whether any offset is served from a segment."""
        return any(segment_id in begins.values() for begins in self._epochs.values())

    def copies_of(self, epoch: int) -> list[RemoteSegment]:
        """The copies that a broker has of a leader epoch by start offset, also those that were replaced. One is not among them if it was
        followed by a copy with the same start offset that ends before it (Kafka: RemoteLogMetadataCache.listRemoteLogSegments)."""
        ids = {*self._replaced.get(epoch, ()), *self._epochs.get(epoch, {}).values()}
        found = [self.segments[each] for each in ids if each in self.segments]
        return sorted((each for each in found if each.is_finished), key=lambda each: (each.start, each.end))


def _extent(lineage: Lineage | None, epoch: int) -> tuple[int, int | None]:
    """The offsets of a leader epoch in the log; none for an epoch that the log does not have."""
    if lineage is None:
        return 0, None
    for at, (known, begin) in enumerate(lineage):
        if known == epoch:
            return begin, lineage[at + 1][1] - 1 if at + 1 < len(lineage) else None
    return 0, -1


class RemoteLogState:
    """The state during a replay. problems: (the caller's name of the record, the reason) for ignored records."""

    def __init__(self) -> None:
        self.partitions: dict[PartitionKey, RemotePartition] = {}
        self._gone: set[PartitionKey] = set()
        self.problems: list[tuple[int, str]] = []

    def take(self, offset: int, value: bytes | None) -> None:
        """One record, in the order of its partition of the topic."""
        try:
            decoded = decode_framed(value, REMOTE_LOG_METADATA)
            self._apply(decoded.message.type, decoded.values)
        except FormatError as error:
            self.problems.append((offset, str(error)))

    def _apply(self, type_id: int | None, values: Mapping[str, Any]) -> None:
        match type_id:
            case 0:
                self._segment(values)
            case 1:
                self._update(values)
            case 2:
                self._delete(values)
            case _:
                raise FormatError("a segment snapshot does not belong in this topic")

    def _segment(self, values: Mapping[str, Any]) -> None:
        key, name, segment_id = _place(values["remoteLogSegmentId"])
        epochs = {each["leaderEpoch"]: each["offset"] for each in values["segmentLeaderEpochs"]}
        start, end = values["startOffset"], values["endOffset"]
        if values["remoteLogSegmentState"] != _COPY_STARTED:
            raise FormatError(f"segment {segment_id} begins in state {values['remoteLogSegmentState']}")
        if not epochs or start < 0 or end < start:
            raise FormatError(
                f"segment {segment_id} has offsets {start} to {end} of {len(epochs)} leader epochs"
            )
        if key in self._gone:
            raise FormatError(
                f"segment {segment_id} of {name}-{key[1]} was uploaded after the deletion of this partition was finished; brokers ignore it"
            )
        self._partition(key, name).step(
            RemoteSegment(
                segment_id,
                start,
                end,
                _COPY_STARTED,
                values["segmentSizeInBytes"],
                tuple(sorted(epochs.items())),
                values["maxTimestampMs"],
                values["eventTimestampMs"],
                values["brokerId"],
            )
        )

    def _update(self, values: Mapping[str, Any]) -> None:
        key, name, segment_id = _place(values["remoteLogSegmentId"])
        state = values["remoteLogSegmentState"]
        if not 0 < state < len(SEGMENT_STATES):
            raise FormatError(f"segment {segment_id} is updated to state {state}")
        partition = self.partitions.get(key)
        old = None if partition is None else partition.segments.get(segment_id)
        if partition is None or old is None:
            return  # the segment was deleted, and the topic's retention has removed the record that created it
        partition.name = name
        event_ms, broker_id = values["eventTimestampMs"], values["brokerId"]
        partition.step(replace(old, state=state, event_timestamp_ms=event_ms, broker_id=broker_id))

    def _delete(self, values: Mapping[str, Any]) -> None:
        place = values["topicIdPartition"]
        key, state = (place["id"], place["partition"]), values["remotePartitionDeleteState"]
        if not 0 <= state < len(PARTITION_STATES):
            raise FormatError(f"{place['name']}-{place['partition']} is deleted in state {state}")
        if state == _PARTITION_DELETED:
            self.partitions.pop(key, None)
            self._gone.add(key)
        else:
            self._partition(key, place["name"]).delete_state = PARTITION_STATES[state]

    def _partition(self, key: PartitionKey, name: str) -> RemotePartition:
        found = self.partitions.setdefault(key, RemotePartition(name))
        found.name = name
        return found


def _place(segment: Mapping[str, Any]) -> tuple[PartitionKey, str, str]:
    place = segment["topicIdPartition"]
    return (place["id"], place["partition"]), place["name"], segment["id"]


def sorted_partitions(state: RemoteLogState) -> Iterator[tuple[PartitionKey, RemotePartition]]:
    """By name and number."""
    yield from sorted(state.partitions.items(), key=lambda each: (each[1].name, each[0][1], each[0][0]))
