"""Records of share groups as Kafka 4.0 wrote them: an early-access format whose version 0 is not that of later releases.

ShareGroupMetadataValue had no `metadataHash`, ShareGroupStatePartitionMetadataValue no `initializingTopics`; the epochs of
ShareSnapshotValue and ShareUpdateValue were unsigned int16, the snapshot had no timestamps, and a type 9 existed, laid out like the
partition metadata of consumer groups (fact sheet internal topics §3.3). A record that 4.3.1's schemas do not read to the last byte is tried
with these.
"""

from dataclasses import replace
from functools import cache

from kseg.internal_topics.decoding import Decoded, decode
from kseg.internal_topics.schemas import Message, message
from kseg.segment.errors import FormatError

DIALECT = "4.0"
_OFFSETS, _SHARE_STATE = "__consumer_offsets", "__share_group_state"
_PARTITION_METADATA = 9
_LATER_FIELDS = {
    (_OFFSETS, 11): ("metadataHash",),
    (_OFFSETS, 15): ("initializingTopics",),
    (_SHARE_STATE, 0): ("deliveryCompleteCount", "createTimestamp", "writeTimestamp"),
    (_SHARE_STATE, 1): ("deliveryCompleteCount",),
}


def decode_key(topic: str, key: bytes) -> Decoded | None:
    """A key of the type that exists only in 4.0; None for any other. Raises FormatError."""
    if topic != _OFFSETS or key[:2] != _PARTITION_METADATA.to_bytes(2, "big"):
        return None
    return decode(_partition_metadata("key", "ShareGroupPartitionMetadataKey"), 0, key, 2)


def decode_value(topic: str, type_id: int, value: bytes) -> Decoded | None:
    """A value that follows a 4.0 schema to its last byte; None if it does not."""
    is_changed = (topic, type_id) in _LATER_FIELDS or (topic, type_id) == (_OFFSETS, _PARTITION_METADATA)
    if not is_changed or value[:2] != b"\0\0":
        return None
    known = _message(topic, type_id)
    try:
        decoded = decode(known, 0, value, 2)
    except FormatError:
        return None
    return None if decoded.left_over_bytes else decoded


@cache
def _message(topic: str, type_id: int) -> Message:
    if (topic, type_id) == (_OFFSETS, _PARTITION_METADATA):
        return _partition_metadata("value", "ShareGroupPartitionMetadataValue")
    later = _LATER_FIELDS[topic, type_id]
    known = message(topic, "value", type_id)
    assert known is not None
    fields = tuple(
        replace(field, type="uint16") if field.name == "snapshotEpoch" else field
        for field in known.fields
        if field.name not in later
    )
    return replace(known, fields=fields)


@cache
def _partition_metadata(kind: str, name: str) -> Message:
    of_consumer_groups = message(_OFFSETS, kind, 4)
    assert of_consumer_groups is not None
    return replace(of_consumer_groups, name=name, type=_PARTITION_METADATA)
