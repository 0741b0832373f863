"""Writes messages of magic 0 and 1 and their compressed wrappers (fact sheet §2.2; Kafka: LegacyRecord).

    message    offset int64 · size int32 · crc uint32, CRC-32 of magic … end · magic int8 · attributes int8
               · timestamp int64 (magic 1 only) · key length int32 · key · value length int32 · value
    wrapper    a message with a null key whose value is the compressed sequence of complete inner messages

The two offset rules: inner messages of magic 0 have absolute offsets, those of magic 1 are relative to the base
offset; in both, a wrapper has the offset of its last inner message. With LogAppendTime only the outermost message has
the timestamp-type bit and the append time; inner ones keep their own timestamps, as brokers of that time left them on
disk.
"""

import struct

from kseg.segment import layout as L
from kseg.segment.codecs.codec import compress
from kseg.segment.crc import crc32
from kseg.segment.errors import UsageError
from kseg.segment.model import NewBatch

_ENTRY = struct.Struct(">qiI")  # offset, size, crc
_HEAD = {L.MAGIC_V0: struct.Struct(">bb"), L.MAGIC_V1: struct.Struct(">bbq")}  # magic, attributes, timestamp
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)


def encode_message(
    magic: int, offset: int, timestamp_ms: int, attributes: int, key: bytes | None, value: bytes | None
) -> bytes:
    """One entry of magic 0 or 1 with the given attributes; no rule is checked (magic 0 has no timestamp).

    Raises UsageError if the entry does not fit its size field.
    """
    head = _HEAD[magic].pack(magic, attributes, *((timestamp_ms,) if magic == L.MAGIC_V1 else ()))
    message = b"".join((head, *_field(key), *_field(value)))
    size = len(message) + 4
    if size > L.INT32_MAX - L.ENTRY_OVERHEAD:
        raise UsageError(f"a message of {size} bytes does not fit into a segment")
    return _ENTRY.pack(offset, size, crc32(message)) + message


def encode_legacy(new: NewBatch) -> bytes:
    """The bytes of a batch of magic 0 or 1.

    Without a codec: consecutive messages, each an entry of its own. With one: a single wrapper; inner offsets of magic 1 are relative
    to `base_offset` (default: the first record's). Timestamps of records are dropped in magic 0.
    Raises UsageError for values that the old formats cannot express (acceptance row F52).
    """
    _refuse(new)
    base_offset = new.records[0].offset if new.base_offset is None else new.base_offset
    last_offset = _checked_last_offset(new, base_offset)
    if new.codec == L.NONE:
        attributes = L.TIMESTAMP_TYPE_BIT if new.log_append_time else 0
        return b"".join(
            encode_message(
                new.magic,
                record.offset,
                _append_time(new) if new.log_append_time else record.timestamp_ms,
                attributes,
                record.key,
                record.value,
            )
            for record in new.records
        )
    inner_base = base_offset if new.magic == L.MAGIC_V1 else 0
    inner = b"".join(
        encode_message(
            new.magic, record.offset - inner_base, record.timestamp_ms, 0, record.key, record.value
        )
        for record in new.records
    )
    attributes = new.codec | (L.TIMESTAMP_TYPE_BIT if new.log_append_time else 0)
    value = compress(new.codec, new.magic, inner)
    return encode_message(new.magic, last_offset, _wrapper_timestamp(new), attributes, None, value)


def _field(field: bytes | None) -> tuple[bytes, ...]:
    return (_NULL,) if field is None else (_LENGTH.pack(len(field)), field)


def _append_time(new: NewBatch) -> int:
    if new.max_timestamp_ms is None:
        raise UsageError("a batch with LogAppendTime needs its append time as maximum timestamp")
    return new.max_timestamp_ms


def _wrapper_timestamp(new: NewBatch) -> int:
    """The timestamp of a wrapper: the append time, else the maximum of its inner messages."""
    if new.log_append_time or new.max_timestamp_ms is not None:
        return _append_time(new)
    return max(record.timestamp_ms for record in new.records)


def _checked_last_offset(new: NewBatch, base_offset: int) -> int:
    """The offset of the last record; the old formats can declare no other last offset and no wider range."""
    last_offset = new.records[-1].offset
    if new.last_offset not in (None, last_offset):
        raise UsageError(
            f"a batch of magic {new.magic} must end with its last record, not at {new.last_offset}"
        )
    refuse_span(base_offset, last_offset, is_ordered=0 <= base_offset <= new.records[0].offset)
    refuse_records(new, base_offset, L.NO_TIMESTAMP, L.INT64_MAX)
    return last_offset


def refuse_span(base_offset: int, last_offset: int, *, is_ordered: bool) -> None:
    """Reject offsets that no batch of any format can span."""
    if not is_ordered or last_offset > L.INT64_MAX:
        raise UsageError(f"a batch cannot span offsets {base_offset} to {last_offset}")
    if last_offset - base_offset > L.INT32_MAX:
        raise UsageError(f"offset {last_offset} is too far from base offset {base_offset} for one batch")


def refuse_records(new: NewBatch, base_offset: int, min_timestamp_ms: int, max_timestamp_ms: int) -> int:
    """Reject offsets that do not increase, and timestamps outside these limits; returns the last offset, or without records the offset
    before the base offset."""
    previous = base_offset - 1
    for record in new.records:
        if record.offset <= previous:
            raise UsageError(f"offset {record.offset} does not come after {previous}")
        if not min_timestamp_ms <= record.timestamp_ms <= max_timestamp_ms:
            raise UsageError(f"{record.timestamp_ms} is not a valid timestamp")
        previous = record.offset
    return previous


def _refuse(new: NewBatch) -> None:
    """Reject fields that magic 0 and 1 do not have."""
    if new.magic not in _HEAD:
        raise UsageError(f"there is no message format with magic {new.magic}")
    if not new.records:
        raise UsageError(f"a batch of magic {new.magic} cannot be empty")
    producer = (new.producer_id, new.producer_epoch, new.base_sequence)
    for impossible, what in (
        (new.transactional, "transactions"),
        (new.control, "control batches"),
        (producer != (L.NO_PRODUCER_ID, L.NO_PRODUCER_EPOCH, L.NO_SEQUENCE), "idempotent producers"),
        (new.delete_horizon_ms is not None, "delete horizons"),
        (new.leader_epoch != L.NO_LEADER_EPOCH, "leader epochs"),
        (any(record.headers for record in new.records), "record headers"),
        (new.log_append_time and new.magic == L.MAGIC_V0, "LogAppendTime"),
        (new.codec == L.ZSTD, "zstd"),
    ):
        if impossible:
            raise UsageError(f"message format v{new.magic} does not support {what}")
    if not 0 <= new.codec < len(L.CODEC_NAMES):
        raise UsageError(f"there is no codec {new.codec}")
    if new.max_timestamp_ms is not None and not L.NO_TIMESTAMP <= new.max_timestamp_ms <= L.INT64_MAX:
        raise UsageError(f"{new.max_timestamp_ms} is not a valid timestamp")
