"""Writes one batch: from a `NewBatch` to its bytes (fact sheet §2.3; Kafka: MemoryRecordsBuilder, DefaultRecordBatch).

    0  base offset     int64       23  last offset delta int32      51  producer epoch int16
    8  length          int32       27  base timestamp    int64      53  base sequence  int32
   12  leader epoch    int32       35  maximum timestamp int64      57  record count   int32
   16  magic           int8        43  producer id       int64      61  records, one block when compressed
   17  crc             uint32, CRC-32C of 21 … end
   21  attributes      int16

Only this module derives length and checksum. It rejects what Kafka's own writers reject (acceptance row F52), and what
the fields cannot hold, before it writes a byte. So append, recovery and compaction can never write a batch that no
broker would have written. `legacy` writes magic 0 and 1.

A broker stores an uncompressed or compressed batch as the producer sent it, and accepts negative timestamps, which Kafka's writers reject
(LogValidator). So a copy of a stored batch may have them.
"""

import struct
from array import array

from kseg.segment import layout as L
from kseg.segment.codecs.codec import compress
from kseg.segment.crc import crc32c
from kseg.segment.encoding.legacy import encode_legacy, refuse_records, refuse_span
from kseg.segment.errors import UsageError
from kseg.segment.kernel.encode import encode_records
from kseg.segment.model import NewBatch
from kseg.segment.state.control import ABORT, COMMIT, control_key
from kseg.segment.state.kraft_messages import KINDS

_TO_CRC = struct.Struct(">qiib")  # base offset, length, leader epoch, magic
_FROM_CRC = struct.Struct(">IhiqqqhiI")  # crc, attributes, last offset delta … record count
assert _TO_CRC.size == L.CRC_POSITION and _TO_CRC.size + _FROM_CRC.size == L.BATCH_HEADER

_TYPE_IN_KEY = slice(2, 4)  # after the version; Kafka accepts versions newer than its own
_END_MARKERS = (control_key(ABORT)[_TYPE_IN_KEY], control_key(COMMIT)[_TYPE_IN_KEY])
_CONTROL_TYPES = (*_END_MARKERS, *(control_key(kind)[_TYPE_IN_KEY] for kind in KINDS))

_INT16_MAX = 2**15 - 1
_INT64_MIN = -(2**63)


def encode_batch(new: NewBatch) -> bytes:
    """The bytes of a batch as a broker would have written it.

    Uncompressed bytes equal those of Kafka's MemoryRecordsBuilder; a compressed block holds the same records, but its
    bytes may differ. Without records the result is the 61-byte header that compaction leaves (base
    timestamp -1). A magic below 2 returns a message, consecutive messages or a compressed wrapper (`legacy`).
    Raises UsageError for batches that no writer of Kafka produces or whose values do not fit the fields.
    """
    if new.magic < L.MAGIC_V2:
        return encode_legacy(new)
    _refuse_impossible_fields(new)
    base_offset, last_offset = _offset_range(new)
    base_timestamp_ms, max_timestamp_ms = _timestamps(new)
    if new.records:
        _refuse_unwritable_producer(new)
        _refuse_bad_records(new, base_offset, last_offset, base_timestamp_ms)
    if new.control:
        _refuse_bad_control(new)
    body = _body(new, base_offset, base_timestamp_ms)
    size_bytes = L.BATCH_HEADER + len(body)
    if size_bytes > L.INT32_MAX:
        raise UsageError(f"a batch of {size_bytes} bytes does not fit into a segment")
    header = _FROM_CRC.pack(
        0,
        _attributes(new),
        last_offset - base_offset,
        base_timestamp_ms,
        max_timestamp_ms,
        new.producer_id,
        new.producer_epoch,
        new.base_sequence,
        len(new.records),
    )
    crc = crc32c(body, crc32c(header[4:]))
    start = _TO_CRC.pack(base_offset, size_bytes - L.ENTRY_OVERHEAD, new.leader_epoch, new.magic)
    return b"".join((start, crc.to_bytes(4), header[4:], body))


def _attributes(new: NewBatch) -> int:
    return (
        new.codec
        | (L.TIMESTAMP_TYPE_BIT if new.log_append_time else 0)
        | (L.TRANSACTIONAL_BIT if new.transactional else 0)
        | (L.CONTROL_BIT if new.control else 0)
        | (L.DELETE_HORIZON_BIT if new.delete_horizon_ms is not None else 0)
    )


def _body(new: NewBatch, base_offset: int, base_timestamp_ms: int) -> bytes | bytearray:
    if not new.records:
        return b""
    plain = bytearray()
    encode_records(
        array("q", [record.offset for record in new.records]),
        array("q", [record.timestamp_ms for record in new.records]),
        base_offset,
        base_timestamp_ms,
        [record.key for record in new.records],
        [record.value for record in new.records],
        [record.headers for record in new.records] if any(record.headers for record in new.records) else None,
        plain,
    )
    return plain if new.codec == L.NONE else compress(new.codec, new.magic, bytes(plain))


def _offset_range(new: NewBatch) -> tuple[int, int]:
    """Base and last offset: the declared ones, else those of the records."""
    if not new.records and (new.base_offset is None or new.last_offset is None):
        raise UsageError("a batch without records needs a base offset and a last offset")
    base_offset = new.records[0].offset if new.base_offset is None else new.base_offset
    last_offset = new.records[-1].offset if new.last_offset is None else new.last_offset
    refuse_span(base_offset, last_offset, is_ordered=0 <= base_offset <= last_offset)
    return base_offset, last_offset


def _timestamps(new: NewBatch) -> tuple[int, int]:
    """Base timestamp (the first record's, or the delete horizon) and maximum timestamp, in ms."""
    if new.log_append_time and new.max_timestamp_ms is None:
        raise UsageError("a batch with LogAppendTime needs its append time as maximum timestamp")
    if new.delete_horizon_ms is not None:
        if not new.records:
            raise UsageError("a batch without records has no delete horizon")
        base_timestamp_ms = new.delete_horizon_ms
        if base_timestamp_ms < 0:
            raise UsageError(f"{base_timestamp_ms} is not a valid delete horizon")
    else:
        base_timestamp_ms = new.records[0].timestamp_ms if new.records else L.NO_TIMESTAMP
    max_timestamp_ms = new.max_timestamp_ms
    if max_timestamp_ms is None:
        # -1 also if all are below it, as a broker stores it
        max_timestamp_ms = max((L.NO_TIMESTAMP, *(record.timestamp_ms for record in new.records)))
    if not L.NO_TIMESTAMP <= max_timestamp_ms <= L.INT64_MAX:
        raise UsageError(f"{max_timestamp_ms} is not a valid timestamp")
    return base_timestamp_ms, max_timestamp_ms


def _refuse_impossible_fields(new: NewBatch) -> None:
    """Reject values that the header's fields cannot hold or no version of Kafka has defined."""
    if new.magic != L.MAGIC_V2:
        raise UsageError(f"there is no message format with magic {new.magic}")
    if not 0 <= new.codec < len(L.CODEC_NAMES):
        raise UsageError(f"there is no codec {new.codec}")
    if new.codec != L.NONE and (new.control or not new.records):
        raise UsageError("control batches and batches without records are never compressed")
    for name, value, largest in (
        ("leader epoch", new.leader_epoch, L.INT32_MAX),
        ("producer id", new.producer_id, L.INT64_MAX),
        ("producer epoch", new.producer_epoch, _INT16_MAX),
        ("base sequence", new.base_sequence, L.INT32_MAX),
    ):
        if not -1 <= value <= largest:
            raise UsageError(f"{value} is not a valid {name}")


def _refuse_unwritable_producer(new: NewBatch) -> None:
    """Rules of Kafka's writer for batches with records; batches that the cleaner has emptied keep their values (F02, F52)."""
    if new.producer_id == L.NO_PRODUCER_ID:
        if new.transactional:
            raise UsageError("a transactional batch needs a producer id")
        return
    if new.producer_epoch == L.NO_PRODUCER_EPOCH:
        raise UsageError("a batch with a producer id needs a producer epoch")
    if new.base_sequence == L.NO_SEQUENCE and not new.control:
        raise UsageError("a batch with a producer id needs a base sequence (an end marker: a control batch)")


def _refuse_bad_records(new: NewBatch, base_offset: int, last_offset: int, base_timestamp_ms: int) -> None:
    # a record's timestamp is stored as the difference to the base timestamp
    min_timestamp_ms = max(_INT64_MIN, _INT64_MIN + base_timestamp_ms) if new.is_copy else L.NO_TIMESTAMP
    previous = refuse_records(new, base_offset, min_timestamp_ms, L.INT64_MAX + base_timestamp_ms)
    if previous > last_offset:
        raise UsageError(f"offset {previous} is after the last offset {last_offset} of its batch")


def _refuse_bad_control(new: NewBatch) -> None:
    """Control records have a known type in their key; an end marker requires a transactional batch (F52)."""
    for record in new.records:
        kind = (record.key or b"")[_TYPE_IN_KEY]
        if kind not in _CONTROL_TYPES:
            raise UsageError("the key of a control record must name a known type")
        if kind in _END_MARKERS and not new.transactional:
            raise UsageError("an end marker needs a transactional control batch")
