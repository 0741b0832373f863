"""A second, slow reader of `.log` bytes for tests, written with `struct` directly from the fact sheet (§2.2, §2.3).

It shares only the value types with the library, so it can check the kernels and provide batches for modules without them.
"""

import struct
import zlib
from collections.abc import Iterator

import google_crc32c

from kseg.segment.model import Batch, Record
from tests.support.reference_decoder import records_of

_V2 = struct.Struct(">qiibIhiqqqhii")


def batches(data: bytes, start: int = 0) -> Iterator[Batch]:
    """Every complete batch from `start` on, up to a partial one. Checksums are reported, not enforced."""
    position = start
    while len(data) - position >= 17:
        offset, size = struct.unpack_from(">qi", data, position)
        if size < 14 or position + 12 + size > len(data):
            return
        entry = data[position : position + 12 + size]
        yield _batch_v2(position, entry) if entry[16] >= 2 else _message(position, offset, entry)
        position += len(entry)


def _batch_v2(position: int, entry: bytes) -> Batch:
    base, _, leader, magic, crc, attributes, delta, first_ms, max_ms, pid, epoch, sequence, count = (
        _V2.unpack_from(entry)
    )
    return Batch(
        position=position,
        size_bytes=len(entry),
        magic=magic,
        base_offset=base,
        last_offset=base + delta,
        count=count,
        attributes=attributes,
        leader_epoch=leader,
        crc=crc,
        base_timestamp_ms=first_ms,
        max_timestamp_ms=max_ms,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        crc_valid=google_crc32c.value(entry[21:]) == crc,
    )


def _message(position: int, offset: int, entry: bytes) -> Batch:
    magic, attributes = entry[16], entry[17]
    (crc,) = struct.unpack_from(">I", entry, 12)
    timestamp_ms = struct.unpack_from(">q", entry, 18)[0] if magic else -1
    return Batch(
        position=position,
        size_bytes=len(entry),
        magic=magic,
        base_offset=offset,
        last_offset=offset,
        count=None if attributes & 7 else 1,
        attributes=attributes,
        leader_epoch=-1,
        crc=crc,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        crc_valid=zlib.crc32(entry[16:]) == crc,
    )


def records(batch: Batch, data: bytes) -> list[Record]:
    """The records of an uncompressed magic 2 batch, without headers."""
    assert batch.magic == 2 and batch.codec == 0
    body = data[batch.position + 61 : batch.position + batch.size_bytes]
    found = records_of(body, batch.count or 0, batch.base_offset, batch.base_timestamp_ms)
    append_ms = batch.max_timestamp_ms if batch.timestamp_type == "LogAppendTime" else None
    return [
        Record(each.offset, each.timestamp_ms if append_ms is None else append_ms, each.key, each.value)
        for each in found
    ]
