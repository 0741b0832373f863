"""Keys and offset commits of `__consumer_offsets`, decoded quickly: one partition may hold a million of them.

    key, type 0 and 1           int16 type, string group, string topic, int32 partition
    offset commit, version 0-2  int16 version, int64 offset, string metadata, int64 commit time, int64 expiry (version 1)
                   version 3    int16 version, int64 offset, int32 leader epoch, string metadata, int64 commit time
                   version 4    the same, metadata as a compact string, followed by tag 0: the topic id

During replay only the lengths of a commit are checked; it is decoded at the end if it is still the newest. Other records go through
`decoding`, which reports what is wrong. (Kafka: GroupCoordinatorRecordSerde, OffsetAndMetadata.fromRecord.)
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from kseg.internal_topics.decoding import decode_key, decode_value
from kseg.segment.java import uuids
from kseg.segment.java.java_output import decode_utf8

CONSUMER_OFFSETS = "__consumer_offsets"

LEGACY_OFFSET_COMMIT, OFFSET_COMMIT = 0, 1

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_OFFSET_LENGTH, _OFFSET_EPOCH, _OFFSET_EPOCH_LENGTH = (struct.Struct(each) for each in (">qh", ">qi", ">qih"))
_UNKNOWN_IDS = ("", uuids.ZERO)


class OffsetKey(NamedTuple):
    """The key of an offset commit. Types 0 and 1 of the record are the same key to the coordinator."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a record about a group. subject: the member id or the regular expression, empty if the key has none."""

    type_id: int
    group: str
    subject: str


class OffsetCommit(NamedTuple):
    """A committed offset. leader_epoch, expire_timestamp_ms: -1 for none. topic_id: None when the commit has none."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: str | None


def parse_key(data: bytes) -> tuple[int, OffsetKey | GroupKey]:
    """The record type and the key. Raises UnknownType and FormatError."""
    if len(data) >= 4 and data[0] == 0 and data[1] <= OFFSET_COMMIT:
        return data[1], _offset_key(data)
    decoded = decode_key(CONSUMER_OFFSETS, data)
    values = decoded.values
    type_id = _INT16.unpack_from(data)[0]
    group = values.get("groupId", values.get("group"))
    subject = values.get("memberId", values.get("regularExpression", ""))
    return type_id, GroupKey(type_id, group, subject)


def _offset_key(data: bytes) -> OffsetKey:
    try:
        (length,) = _INT16.unpack_from(data, 2)
        topic_at = 4 + length
        (topic_length,) = _INT16.unpack_from(data, topic_at)
        end = topic_at + 2 + topic_length
        if length >= 0 and topic_length >= 0:
            partition = _INT32.unpack_from(data, end)[0]
            return OffsetKey(_name(data[4:topic_at]), _name(data[topic_at + 2 : end]), partition)
    except struct.error:
        pass
    values = decode_key(CONSUMER_OFFSETS, data).values  # raises FormatError with the reason
    return OffsetKey(values["group"], values["topic"], values["partition"])


@lru_cache(maxsize=1 << 12)  # the same groups and topics are repeated with every partition
def _name(data: bytes) -> str:
    return decode_utf8(data)


def is_commit_well_formed(type_id: int, value: bytes) -> bool:
    """Whether a commit is certainly well formed; False if only `parse_commit` can decide."""
    if len(value) < 20 or value[0] != 0 or (type_id == LEGACY_OFFSET_COMMIT and value[1] != 0):
        return False
    version = value[1]
    if version == 3:
        return value[14] < 0x80 and len(value) >= 24 + (value[14] << 8 | value[15])
    if version == 4:
        # the compact length of the metadata is one byte (up to 126 bytes); after it no tagged field, or only the topic id
        tags = 22 + value[14]
        if not 0 < value[14] < 0x80 or len(value) <= tags:
            return False
        return value[tags] == 0 or (value[tags : tags + 3] == b"\x01\x00\x10" and len(value) >= tags + 3 + 16)
    expiry = 8 if version == 1 else 0
    return version < 3 and value[10] < 0x80 and len(value) >= 20 + expiry + (value[10] << 8 | value[11])


def parse_commit(type_id: int, value: bytes) -> tuple[OffsetCommit, str]:
    """A commit, and why a 4.3.1 coordinator cannot load it (a newer version), empty if it can. Raises FormatError."""
    if is_commit_well_formed(type_id, value):
        return _parsed_commit(value), ""
    decoded = decode_value(CONSUMER_OFFSETS, type_id, value)
    values = decoded.values
    problem = f"unknown version {decoded.version} of an offset commit" if decoded.is_newer else ""
    topic_id = values.get("topicId", "")
    return (
        OffsetCommit(
            values["offset"],
            values.get("leaderEpoch", -1),
            values["metadata"],
            values["commitTimestamp"],
            values.get("expireTimestamp", -1),
            None if topic_id in _UNKNOWN_IDS else topic_id,
        ),
        problem,
    )


def _parsed_commit(value: bytes) -> OffsetCommit:
    """Decode a commit whose lengths have been checked."""
    version, epoch, expires_ms, topic_id = value[1], -1, -1, None
    if version < 3:
        offset, length = _OFFSET_LENGTH.unpack_from(value, 2)
        start = 12
    elif version == 3:
        offset, epoch, length = _OFFSET_EPOCH_LENGTH.unpack_from(value, 2)
        start = 16
    else:
        offset, epoch = _OFFSET_EPOCH.unpack_from(value, 2)
        start, length = 15, value[14] - 1
    end = start + length
    (commit_ms,) = _INT64.unpack_from(value, end)
    if version == 1:
        (expires_ms,) = _INT64.unpack_from(value, end + 8)
    elif version == 4 and value[end + 8]:
        topic_id = uuids.uuid_text(value[end + 11 : end + 27])
    metadata = decode_utf8(value[start:end]) if length else ""
    return OffsetCommit(
        offset, epoch, metadata, commit_ms, expires_ms, None if topic_id in _UNKNOWN_IDS else topic_id
    )
