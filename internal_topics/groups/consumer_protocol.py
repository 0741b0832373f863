"""What members of a classic group with the protocol type `consumer` say to each other: the assignment inside of group metadata.

    int16 version, [string topic, [int32 partition]], bytes user data, and in later versions more behind that

Only the topics are read: they stand in front in every version, known or not (Kafka: ConsumerProtocol).
"""

import struct

from kseg.segment.errors import FormatError
from kseg.segment.java.java_output import decode_utf8

PROTOCOL_TYPE = "consumer"

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


def assigned_partitions(data: bytes) -> tuple[tuple[str, int], ...]:
    """(topic, partition) of an assignment; nothing for no bytes. Raises FormatError."""
    if not data:
        return ()
    try:
        count = _INT32.unpack_from(data, 2)[0]
        position = 6
        found: list[tuple[str, int]] = []
        for _ in range(_bounded(count, data, position)):
            (length,) = _INT16.unpack_from(data, position)
            position += 2 + _bounded(length, data, position + 2)
            topic = decode_utf8(data[position - length : position])
            partitions = _bounded(_INT32.unpack_from(data, position)[0], data, position + 4)
            found += [
                (topic, number)
                for (number,) in struct.iter_unpack(">i", _numbers(data, position, partitions))
            ]
            position += 4 + 4 * partitions
    except struct.error:
        raise FormatError("the assignment of a member is truncated") from None
    return tuple(found)


def _numbers(data: bytes, position: int, count: int) -> bytes:
    numbers = data[position + 4 : position + 4 + 4 * count]
    if len(numbers) != 4 * count:
        raise FormatError("the assignment of a member is truncated")
    return numbers


def _bounded(length: int, data: bytes, position: int) -> int:
    if not 0 <= length <= len(data) - position:
        raise FormatError("the assignment of a member has an invalid length")
    return length
