"""Handmade records of `__remote_log_metadata`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.internal_topics.metadata_logs import T0, record

STARTED, FINISHED, DELETING, DELETED = range(4)


def _place(topic: str, topic_id: str, partition: int) -> dict[str, object]:
    return {"name": topic, "id": topic_id, "partition": partition}


def upload(
    place: tuple[str, str, int], segment_id: str, start: int, end: int, epochs: Mapping[int, int]
) -> bytes:
    """The copying of a segment begins. epochs: the start offset of each leader epoch in it."""
    return record(
        "RemoteLogSegmentMetadataRecord",
        remoteLogSegmentId={"topicIdPartition": _place(*place), "id": segment_id},
        startOffset=start,
        endOffset=end,
        brokerId=1,
        maxTimestampMs=T0,
        eventTimestampMs=T0,
        segmentLeaderEpochs=[{"leaderEpoch": epoch, "offset": offset} for epoch, offset in epochs.items()],
        segmentSizeInBytes=(end - start + 1) * 100,
        remoteLogSegmentState=STARTED,
    )


def update(place: tuple[str, str, int], segment_id: str, state: int) -> bytes:
    """A segment changes its state."""
    return record(
        "RemoteLogSegmentMetadataUpdateRecord",
        remoteLogSegmentId={"topicIdPartition": _place(*place), "id": segment_id},
        brokerId=2,
        eventTimestampMs=T0 + 1,
        remoteLogSegmentState=state,
    )


def delete_partition(place: tuple[str, str, int], state: int) -> bytes:
    return record(
        "RemotePartitionDeleteMetadataRecord",
        topicIdPartition=_place(*place),
        brokerId=1,
        eventTimestampMs=T0,
        remotePartitionDeleteState=state,
    )


def write_remote_log(directory: Path, records: Sequence[bytes], base_offset: int = 0) -> None:
    """Write a segment of a partition of the topic with these records."""
    directory.mkdir(parents=True, exist_ok=True)
    data = b""
    for offset, value in enumerate(records, base_offset):
        data += encode_batch(NewBatch(records=(Record(offset, T0 + offset, None, value),), leader_epoch=0))
    (directory / f"{base_offset:020}.log").write_bytes(data)
