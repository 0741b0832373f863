"""Find records of `__transaction_state` that a coordinator cannot load, for `verify`.

A log of that topic has millions of records, nearly all of them as a coordinator writes them. So the layout of their bytes is checked
first, and only a record that differs in any way is decoded.

    key      int16 0 │ int16 length │ transactional id
    value    int16 version 0 or 1 │ 8 producer id │ 2 epoch │ 4 timeout │ status │ partitions │ 8 update │ 8 start │ version 1: tags
    partitions   version 0: int32 count, each: int16 length, topic, int32 count, 4 each (count -1: null)
                 version 1: the lengths and counts are varints of n + 1, and a tag section ends each
"""

from collections.abc import Iterator

from kseg.internal_topics.coordinator_log import CoordinatorRecord, LogProblem, read_coordinator_log
from kseg.internal_topics.coordinator_reading import PASSED_OVER
from kseg.internal_topics.load_findings import skipped_finding
from kseg.internal_topics.transactions.transaction_log import (
    CLIENT_VERSIONS,
    STATES,
    PassedOver,
    Unloadable,
    load_finding,
    loaded_record,
)
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import LogTarget

_TAG_BYTES = {0: 8, 1: 8, 2: 2, 3: 2}  # sizes of the tagged fields of version 1, by tag
_CLIENT_VERSION = 2  # the tag
_FIXED_END = 17  # after the status
_TIMES_BYTES = 16
_LONG_VARINT = 0x80


def check_transaction_log(target: LogTarget) -> Iterator[Finding]:
    """Every record that a coordinator cannot load, or skips, in offset order. Damage is not reported here. Raises UnreadableInput."""
    for entry in read_coordinator_log(target):
        if isinstance(entry, LogProblem) and entry.damage == PASSED_OVER:
            yield skipped_finding(entry)
        if not isinstance(entry, CoordinatorRecord) or is_ordinary(entry.key, entry.value):
            continue
        try:
            loaded_record(entry)
        except (Unloadable, PassedOver) as error:
            yield load_finding(target.path, entry.offset, error)


def is_ordinary(key: bytes | None, value: bytes | None) -> bool:
    """Whether a record is certain to be loaded; False if it must be decoded to decide."""
    if key is None or key[:2] != b"\0\0" or len(key) < 4 or int.from_bytes(key[2:4], "big") != len(key) - 4:
        return False
    if value is None:
        return True
    if len(value) < _FIXED_END + 1 or value[16] >= len(STATES):
        return False
    try:
        if value[:2] == b"\0\1":
            return _is_ordinary_1(value)
        return value[:2] == b"\0\0" and _is_ordinary_0(value)
    except IndexError:
        return False


def _is_ordinary_0(value: bytes) -> bool:
    count = int.from_bytes(value[17:21], "big", signed=True)
    if count < 0 or count > len(value):
        return False
    position = 21
    for _ in range(count):
        length = int.from_bytes(value[position : position + 2], "big", signed=True)
        position += 2 + length
        numbers = int.from_bytes(value[position : position + 4], "big", signed=True)
        position += 4 + 4 * numbers
        if length < 0 or numbers < 0 or position > len(value):
            return False
    return position + _TIMES_BYTES <= len(value)


def listed_partitions(value: bytes) -> bytes:
    """The bytes of the partitions in a value of version 1, to compare them with those of another one. If they are not as a coordinator
    ordinarily writes them, all bytes of the value, with its times."""
    try:
        end = _partitions_end_1(value)
    except IndexError:
        end = None
    return value if end is None else value[_FIXED_END:end]


def _partitions_end_1(value: bytes) -> int | None:
    """The position after the partitions in a value of version 1, None if a varint has more than one byte or is null."""
    count, position = value[_FIXED_END], _FIXED_END + 1
    if not 0 < count < _LONG_VARINT:
        return None
    for _ in range(count - 1):
        length = value[position]
        position += length  # the length byte, and a name of length - 1 bytes
        numbers = value[position]
        position += 4 * numbers - 3
        if not (0 < length < _LONG_VARINT and 0 < numbers < _LONG_VARINT) or value[position]:
            return None
        position += 1
    return position


def _is_ordinary_1(value: bytes) -> bool:
    """The same for version 1: all varints have one byte, and none is null."""
    end = _partitions_end_1(value)
    if end is None:
        return False
    position = end + _TIMES_BYTES
    tags, position = value[position], position + 1
    for _ in range(tags):
        tag = value[position]
        if _TAG_BYTES.get(tag) != value[position + 1]:
            return False
        content = value[position + 2 : position + 4]
        if tag == _CLIENT_VERSION and int.from_bytes(content, "big") not in CLIENT_VERSIONS:
            return False
        position += 2 + value[position + 1]
    return position <= len(value)
