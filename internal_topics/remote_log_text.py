"""Records of `__remote_log_metadata` as `toString` of their classes prints them, with the checks of these classes.

Sources: RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemotePartitionDeleteMetadata, RemoteLogSegmentMetadataSnapshot and their
transforms of 4.3.1; fact sheet internal topics §1.7.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

from kseg.segment.errors import FormatError

SEGMENT_STATES = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
PARTITION_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")

_Values = Mapping[str, Any]


def remote_log_text(type_id: int, message: bytes) -> str:
    """message: the record as JSON. Raises FormatError with the message of the exception that the class throws."""
    return _TEXTS[type_id](json.loads(message)["data"])


def _segment(values: _Values) -> str:
    start, end = values["startOffset"], values["endOffset"]
    if start < 0:
        raise FormatError(
            f"Unexpected start offset = {start}. StartOffset for a remote segment cannot be negative"
        )
    if end < start:
        raise FormatError(
            f"Unexpected end offset = {end}. EndOffset for a remote segment cannot be less than startOffset = {start}"
        )
    epochs = _epochs(values)
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(values)}, startOffset={start}, endOffset={end}, "
        f"brokerId={values['brokerId']}, maxTimestampMs={values['maxTimestampMs']}, "
        f"eventTimestampMs={values['eventTimestampMs']}, segmentLeaderEpochs={epochs}, "
        f"segmentSizeInBytes={values['segmentSizeInBytes']}, customMetadata={_custom(values)}, "
        f"state={_segment_state(values)}, txnIdxEmpty={_is_index_empty(values)}}}"
    )


def _update(values: _Values) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(values)}, customMetadata={_custom(values)}, "
        f"state={_segment_state(values)}, eventTimestampMs={values['eventTimestampMs']}, brokerId={values['brokerId']}}}"
    )


def _partition_delete(values: _Values) -> str:
    state = _state(PARTITION_STATES, values["remotePartitionDeleteState"], "null")
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_topic_partition(values['topicIdPartition'])}, state={state}, "
        f"eventTimestampMs={values['eventTimestampMs']}, brokerId={values['brokerId']}}}"
    )


def _snapshot(values: _Values) -> str:
    state = _segment_state(values)
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={values['segmentId']}, startOffset={values['startOffset']}, "
        f"endOffset={values['endOffset']}, maxTimestampMs={values['maxTimestampMs']}, segmentLeaderEpochs={_epochs(values)}, "
        f"segmentSizeInBytes={values['segmentSizeInBytes']}, customMetadata={_custom(values)}, state={state}, "
        f"txnIdxEmpty={_is_index_empty(values)}}}"
    )


_TEXTS: Mapping[int, Callable[[_Values], str]] = {0: _segment, 1: _update, 2: _partition_delete, 3: _snapshot}


def _topic_partition(values: _Values) -> str:
    return f"{values['id']}:{values['name']}-{values['partition']}"


def _segment_id(values: _Values) -> str:
    both = values["remoteLogSegmentId"]
    return f"RemoteLogSegmentId{{topicIdPartition={_topic_partition(both['topicIdPartition'])}, id={both['id']}}}"


def _epochs(values: _Values) -> str:
    """A TreeMap: sorted by epoch; the last of several equal epochs counts."""
    epochs = {each["leaderEpoch"]: each["offset"] for each in values["segmentLeaderEpochs"]}
    if not epochs:
        raise FormatError("segmentLeaderEpochs can not be null or empty")
    return "{" + ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs)) + "}"


def _custom(values: _Values) -> str:
    custom = values["customMetadata"]
    if custom is None:
        return "Optional.empty"
    return f"Optional[CustomMetadata{{{len(b64decode(custom))} bytes}}]"


def _segment_state(values: _Values) -> str:
    return _state(SEGMENT_STATES, values["remoteLogSegmentState"], "state can not be null")


def _state(names: tuple[str, ...], number: int, message: str) -> str:
    if not 0 <= number < len(names):
        raise FormatError(message)
    return names[number]


def _is_index_empty(values: _Values) -> str:
    return str(values.get("txnIndexEmpty", False)).lower()
