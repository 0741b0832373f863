"""The first offset of a compressed message set of magic 0 or 1, as a broker computes it during an offset lookup.

Only the inner messages contain it, so the set is decompressed, whatever its checksum; of each message only offset, size
and magic are checked (Kafka: AbstractLegacyRecordBatch.DeepRecordsIterator, LegacyRecord.value). Every fault
throws, and the exception depends on the fault:

    key or value exceed the message       IndexOutOfBoundsException, IllegalArgumentException
    no value, no message, zstd, bad magic, a wrapper's offset below its last message's   InvalidRecordException
    an inner size below the minimum       CorruptRecordException
    the block cannot be decompressed      KafkaException; SnappyError for the length of a snappy block
"""

from collections.abc import Iterator
from typing import NamedTuple

from kseg.recovery.loading.kafka_exceptions import (
    CORRUPT,
    ILLEGAL_ARGUMENT,
    INDEX_OUT_OF_BOUNDS,
    INVALID_RECORD,
    KAFKA,
    BrokerException,
)
from kseg.segment import layout as L
from kseg.segment.codecs.codec import MAX_BODY_BYTES, decompress
from kseg.segment.errors import CodecError

_INNER_ATTRIBUTES = L.MAGIC_POSITION + 1


class _Message(NamedTuple):
    offset: int
    attributes: int


def first_offset(message: memoryview, location: str) -> int:
    """First offset of the wrapper `message` (offset and size fields included). location: for messages. Raises BrokerException."""
    wrapper_offset = _long_at(message, 0)
    magic = int.from_bytes(message[L.MAGIC_POSITION : L.MAGIC_POSITION + 1], "big", signed=True)
    codec = message[L.MAGIC_POSITION + 1] & L.CODEC_MASK
    if codec > L.ZSTD:
        raise BrokerException(ILLEGAL_ARGUMENT, f"{location} has an unknown codec")
    if codec == L.ZSTD or magic < L.MAGIC_V0:
        raise BrokerException(INVALID_RECORD, f"{location} cannot use this codec")
    try:
        body = memoryview(decompress(codec, magic, _value_of(message, magic, location), MAX_BODY_BYTES))
    except CodecError as error:
        for _ in _messages(memoryview(error.content), location):
            pass  # a broker reads what was decompressed, and may fail there first
        raise BrokerException(error.java_class or KAFKA, f"{location}: {error}") from error
    first, last = None, None
    for last in _messages(body, location):
        first = first or last
    if first is None or last is None:
        raise BrokerException(INVALID_RECORD, f"{location} has no message")
    base = 0
    if magic == L.MAGIC_V1 and wrapper_offset:
        base = wrapper_offset - last.offset
        if base < 0:
            raise BrokerException(
                INVALID_RECORD, f"the offset of {location} is below that of its last message"
            )
    if first.attributes & L.CODEC_MASK:
        thrown = ILLEGAL_ARGUMENT if first.attributes & L.CODEC_MASK > L.ZSTD else INVALID_RECORD
        raise BrokerException(thrown, f"the first message of {location} is itself compressed")
    return base + first.offset


def _value_of(message: memoryview, magic: int, location: str) -> memoryview:
    key_at = L.ENTRY_OVERHEAD + (6 if magic == L.MAGIC_V0 else 14)
    value_at = key_at + 4 + max(0, _int_at(message, key_at)) if key_at + 4 <= len(message) else len(message)
    if value_at + 4 > len(message):
        raise BrokerException(INDEX_OUT_OF_BOUNDS, f"{location} is too short for its fields")
    length = _int_at(message, value_at)
    if length < 0:
        raise BrokerException(INVALID_RECORD, f"{location} has no value")
    if length > len(message) - value_at - 4:
        raise BrokerException(ILLEGAL_ARGUMENT, f"{location} is shorter than its value")
    return message[value_at + 4 : value_at + 4 + length]


def _messages(body: memoryview, location: str) -> Iterator[_Message]:
    """The inner messages; a partial message ends the set."""
    position = 0
    while position + L.ENTRY_OVERHEAD <= len(body):
        size = _int_at(body, position + 8)
        if size < L.MIN_LEGACY_SIZE_FIELD:
            raise BrokerException(CORRUPT, f"a message in {location} has a size of {size}")
        if position + L.ENTRY_OVERHEAD + size > len(body):
            return
        yield _Message(_long_at(body, position), body[position + _INNER_ATTRIBUTES])
        position += L.ENTRY_OVERHEAD + size


def _long_at(data: memoryview, position: int) -> int:
    return int.from_bytes(data[position : position + 8], "big", signed=True)


def _int_at(data: memoryview, position: int) -> int:
    return int.from_bytes(data[position : position + 4], "big", signed=True)
