"""Batches and records as plain values.

There are two types: `Batch` was *read* from a file (it has a position, a size, a stored checksum and whether that is
valid); `NewBatch` is *to be written* (its length and checksum do not exist yet, the writer computes them).
A writer accepts only the second one, so stale checksums cannot be written by mistake.

Objects are created only when a single batch or record is needed; bulk work stays in columns (`header_tables.py`).
"""

from kseg.segment import layout as L
from kseg.segment.values import dataclass

Headers = tuple[tuple[bytes, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One record. Timestamps in ms, −1 = none. Null key or value is None, empty is b"". Header names are raw UTF-8.

    `sequence` is −1 if the batch has no producer. `crc_valid` and `crc` apply only to messages of magic 0 and 1, each of
    which has a checksum; None in magic 2.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    sequence: int = L.NO_SEQUENCE
    crc: int | None = None
    crc_valid: bool | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as it is stored in a file; for magic 0 and 1 one entry (a message, or a compressed wrapper).

    position, size_bytes: byte range of the whole entry in the file. last_offset: for legacy entries the stored offset. base_offset: for a
    legacy *wrapper* equal to last_offset (the true one requires decompression). count: number of records that the header declares; None for
    a legacy wrapper. crc: unsigned, as stored. crc_valid: size and checksum are valid (Kafka: RecordBatch.isValid).
    """

    position: int
    size_bytes: int
    magic: int
    base_offset: int
    last_offset: int
    count: int | None
    attributes: int
    leader_epoch: int
    crc: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    crc_valid: bool

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes

    @property
    def codec(self) -> int:
        return self.attributes & L.CODEC_MASK

    @property
    def timestamp_type(self) -> str:
        return L.timestamp_type_name(self.magic, self.attributes)

    @property
    def is_transactional(self) -> bool:
        return self.magic >= L.MAGIC_V2 and bool(self.attributes & L.TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return self.magic >= L.MAGIC_V2 and bool(self.attributes & L.CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        has_horizon = self.magic >= L.MAGIC_V2 and self.attributes & L.DELETE_HORIZON_BIT
        return self.base_timestamp_ms if has_horizon else None

    @property
    def last_offset_delta(self) -> int:
        return self.last_offset - self.base_offset

    @property
    def last_sequence(self) -> int:
        """Computed from the last offset delta, not from the count (fact sheet §2.3)."""
        if self.base_sequence == L.NO_SEQUENCE:
            return L.NO_SEQUENCE
        return L.increment_sequence(self.base_sequence, self.last_offset_delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A batch to be written: everything except length and checksum, which the writer computes.

    records have absolute offsets and timestamps. base_offset, last_offset: default to those of the records, required if
    `records` is empty (the 61-byte header that compaction leaves). max_timestamp_ms: defaults to the maximum of the
    records, required for LogAppendTime. delete_horizon_ms: stored as base timestamp. is_copy: of a batch that a broker has stored, so its
    timestamps may be negative.
    """

    records: tuple[Record, ...] = ()
    magic: int = L.MAGIC_V2
    codec: int = L.NONE
    base_offset: int | None = None
    last_offset: int | None = None
    leader_epoch: int = L.NO_LEADER_EPOCH
    log_append_time: bool = False
    transactional: bool = False
    control: bool = False
    delete_horizon_ms: int | None = None
    max_timestamp_ms: int | None = None
    producer_id: int = L.NO_PRODUCER_ID
    producer_epoch: int = L.NO_PRODUCER_EPOCH
    base_sequence: int = L.NO_SEQUENCE
    is_copy: bool = False
