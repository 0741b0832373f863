"""A slow reference reader of batches, for checking the writers: one struct per field, no code of kseg.

It accepts only valid input (fact sheet §2.2, §2.3) and raises on anything else.
"""

import struct
from collections.abc import Callable

from kseg.segment.model import NewBatch, Record

Decompress = Callable[[int, int, bytes], bytes]


def number(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint: (value, position after it)."""
    raw, shift = 0, 0
    while True:
        byte = data[position]
        raw |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), position


def field(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = number(data, position)
    return (None, position) if length < 0 else (data[position : position + length], position + length)


def records_of(body: bytes, count: int, base_offset: int, base_timestamp_ms: int) -> tuple[Record, ...]:
    records, position = [], 0
    for _ in range(count):
        length, position = number(body, position)
        end = position + length
        assert body[position] == 0
        timestamp_delta, position = number(body, position + 1)
        offset_delta, position = number(body, position)
        key, position = field(body, position)
        value, position = field(body, position)
        header_count, position = number(body, position)
        headers = []
        for _ in range(header_count):
            name, position = field(body, position)
            header, position = field(body, position)
            assert name is not None
            headers.append((name, header))
        assert position == end
        records.append(
            Record(
                base_offset + offset_delta, base_timestamp_ms + timestamp_delta, key, value, tuple(headers)
            )
        )
    assert position == len(body)
    return tuple(records)


def batch_of(data: bytes, decompress: Decompress) -> NewBatch:
    """A magic 2 batch as the value that the writer takes, after a check of checksum and length."""
    base_offset, _, leader_epoch, magic, _, attributes = struct.unpack_from(">qiibIh", data)
    delta, first_ms, max_ms, producer_id, epoch, sequence, count = struct.unpack_from(">iqqqhii", data, 23)
    codec = attributes & 7
    body = data[61:]
    if codec:
        body = decompress(codec, magic, body)
    return NewBatch(
        records=records_of(body, count, base_offset, first_ms),
        codec=codec,
        base_offset=base_offset,
        last_offset=base_offset + delta,
        leader_epoch=leader_epoch,
        log_append_time=bool(attributes & 8),
        transactional=bool(attributes & 16),
        control=bool(attributes & 32),
        delete_horizon_ms=first_ms if attributes & 64 else None,
        max_timestamp_ms=max_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def entries_of(data: bytes) -> list[bytes]:
    """Split data into complete batches or messages by their size fields."""
    entries, position = [], 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        entries.append(data[position : position + 12 + size])
        position += 12 + size
    assert position == len(data)
    return entries


def message_of(entry: bytes) -> tuple[int, int, int, int, int | None, bytes | None, bytes | None]:
    """A legacy message: (offset, crc, magic, attributes, timestamp, key, value)."""
    offset, _, crc, magic, attributes = struct.unpack_from(">qiIbb", entry)
    position = 18
    timestamp = None
    if magic == 1:
        (timestamp,) = struct.unpack_from(">q", entry, position)
        position += 8
    fields: list[bytes | None] = []
    for _ in range(2):
        (length,) = struct.unpack_from(">i", entry, position)
        position += 4
        fields.append(None if length < 0 else entry[position : position + length])
        position += max(0, length)
    assert position == len(entry)
    return offset, crc, magic, attributes, timestamp, fields[0], fields[1]
