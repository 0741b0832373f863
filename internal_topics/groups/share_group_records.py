"""Records that make a group coordinator know a share group again, with the partitions whose states it had created.

If the group's records in `__consumer_offsets` are lost, and its states in `__share_group_state` are not, the coordinator creates the group
when a member joins, and initializes the states again: each then begins where share.auto.offset.reset says (at the log end by default), and
what was not delivered yet is skipped. Where a state is of a later epoch than the new group, the share coordinator refuses that
(FENCED_STATE_EPOCH), and members get no record. A group that has the partitions as initialized, and an epoch that is not below those of the
states, goes on where it had stopped (all observed with 4.3.1).

    ShareGroupMetadata               key: int16 11, string group                     value: int16 0, int32 epoch, int64 hash, tags
    ShareGroupStatePartitionMetadata key: int16 15, string group                     value: int16 0, arrays of topics that are being
                                                                                     initialized, are initialized, are being deleted, tags

Both values are flexible: the length of a string and of an array is an unsigned varint of n + 1. The hash of the subscribed topics' metadata
is 0, which makes the coordinator compute it when a member joins.
"""

import base64
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kseg.internal_topics.groups.group_results import ShareTopicOfGroup
from kseg.segment.java.uuids import uuid_bytes
from kseg.segment.json_line import compact_json

_GROUP, _STATE_PARTITIONS = 11, 15
_NO_TAGS = b"\0"


def share_group_lines(group: str, epoch: int | None, topics: Iterable[ShareTopicOfGroup]) -> Iterator[str]:
    """The lines for `kseg append`. epoch: None to leave it as it is. topics: all that the group has, in any state."""
    if epoch is not None:
        yield _line(_GROUP, group, struct.pack(">iq", epoch, 0) + _NO_TAGS)
    by_status: dict[str, list[ShareTopicOfGroup]] = {}
    for each in topics:
        by_status.setdefault(each.status, []).append(each)
    content = (
        _array([_topic(each) + _partitions(each) + _NO_TAGS for each in by_status.get("initializing", ())])
        + _array([_topic(each) + _partitions(each) + _NO_TAGS for each in by_status.get("initialized", ())])
        + _array([_topic(each) + _NO_TAGS for each in by_status.get("deleting", ())])
    )
    yield _line(_STATE_PARTITIONS, group, content + _NO_TAGS)


def with_initialized(
    topics: Iterable[ShareTopicOfGroup], group: str, found: Mapping[tuple[str, str], Iterable[int]]
) -> list[ShareTopicOfGroup]:
    """The topics of a group once it also has these partitions as initialized. found: their numbers, by topic and topic id."""
    numbers: dict[tuple[str, str, str], set[int]] = {}
    for each in topics:
        taken = set(found.get((each.topic, each.topic_id), ())) if each.status == "initializing" else set()
        if not each.partitions or set(each.partitions) - taken:
            numbers.setdefault((each.status, each.topic, each.topic_id), set()).update(
                set(each.partitions) - taken
            )
    for (topic, topic_id), partitions in found.items():
        numbers.setdefault(("initialized", topic, topic_id), set()).update(partitions)
    return [
        ShareTopicOfGroup(group, topic, topic_id, tuple(sorted(partitions)), status)
        for (status, topic, topic_id), partitions in numbers.items()
    ]


def _line(type_id: int, group: str, content: bytes) -> str:
    name = group.encode()
    key = struct.pack(">hh", type_id, len(name)) + name
    return compact_json(
        {
            "key": base64.b64encode(key).decode(),
            "key_encoding": "base64",
            "value": base64.b64encode(bytes(2) + content).decode(),
            "value_encoding": "base64",
        }
    )


def _topic(topic: ShareTopicOfGroup) -> bytes:
    name = topic.topic.encode()
    return uuid_bytes(topic.topic_id) + _uvarint(len(name) + 1) + name


def _partitions(topic: ShareTopicOfGroup) -> bytes:
    return _array([number.to_bytes(4, "big") for number in topic.partitions])


def _array(parts: Sequence[bytes]) -> bytes:
    return _uvarint(len(parts) + 1) + b"".join(parts)


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
