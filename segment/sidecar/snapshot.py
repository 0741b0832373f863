"""Producer state snapshots, `<20 digits>.snapshot` (fact sheet §5.1; Kafka: ProducerStateManager, ProducerSnapshot).

    0  version        int16 (1)
    2  crc            uint32, CRC-32C of everything from byte 6 to the end of the file
    6  entry count    int32
   10  entries        46 bytes each:
         0  producer_id               int64
         8  producer_epoch            int16
        10  last_sequence             int32
        14  last_offset               int64, negative: no batch is remembered
        22  offset_delta              int32
        26  timestamp_ms              int64, of the last batch or marker
        34  coordinator_epoch         int32, -1: no marker seen
        38  current_txn_first_offset  int64, negative: no open transaction
The checksum covers bytes after the last entry, which are otherwise ignored, as in Kafka. The order of entries is
that of a hash map and has no meaning.

A file that a broker considers corrupt raises SnapshotCorrupt. Besides kseg's own sentence it contains the one that
Kafka's dump tool prints on stderr, because tests compare that output.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kseg.segment import layout as L
from kseg.segment.counted import counted
from kseg.segment.crc import crc32c
from kseg.segment.errors import FormatError

VERSION = 1
_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
ENTRIES_POSITION = 2 + 4  # the checksum covers everything from the entry count on
HEADER_BYTES = ENTRIES_POSITION + 4
ENTRY_BYTES = 46
assert (_HEADER.size, _ENTRY.size) == (HEADER_BYTES, ENTRY_BYTES)

NO_OFFSET = -1
_SCHEMA = "Snapshot failed schema validation: "


class SnapshotCorrupt(FormatError):
    """A snapshot that a broker deletes. kafka_message: Kafka's message about it, verbatim."""

    def __init__(self, sentence: str, kafka_message: str) -> None:
        super().__init__(sentence, kafka_message)
        self.kafka_message = kafka_message

    def __str__(self) -> str:
        return str(self.args[0])


class ProducerSnapshotEntry(NamedTuple):
    """One producer; the fields as stored, except that no open transaction is None."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int | None

    @property
    def has_batch(self) -> bool:
        """Whether the entry has a last batch; if not, sequence, offset and delta have no meaning."""
        return self.last_offset >= 0

    @property
    def first_sequence(self) -> int:
        """First sequence of the last batch (with wraparound), -1 without one."""
        if not self.has_batch:
            return L.NO_SEQUENCE
        first = L.decrement_sequence(self.last_sequence, self.offset_delta)
        return (first + 2**31) % 2**32 - 2**31  # a hostile delta overflows an int in Java as well

    @property
    def first_offset(self) -> int:
        """First offset of the last batch, -1 without one."""
        return self.last_offset - self.offset_delta if self.has_batch else NO_OFFSET


def decode_snapshot(
    buffer: bytes | bytearray | memoryview, *, check_crc: bool = True
) -> tuple[ProducerSnapshotEntry, ...]:
    """The producers in the file `buffer`. check_crc: False ignores a wrong checksum.

    Raises SnapshotCorrupt if the file is too short, of another version, damaged, or declares more entries than it has.
    """
    view = memoryview(buffer).cast("B")
    if len(view) < 2:
        raise SnapshotCorrupt(
            f"the snapshot has only {counted(len(view), 'byte')}, too few for a version", _SCHEMA + "null"
        )
    version = int.from_bytes(view[:2], "big", signed=True)
    if version != VERSION:
        message = f"{_SCHEMA}Snapshot contained an unknown file version {version}"
        raise SnapshotCorrupt(f"the snapshot has an unknown version {version}", message)
    if len(view) < HEADER_BYTES:
        sentence = f"the snapshot has {counted(len(view), 'byte')}, its header needs {HEADER_BYTES}"
        raise SnapshotCorrupt(sentence, _SCHEMA + "null")
    _, crc, count = _HEADER.unpack_from(view)
    _check_count(count, len(view) - HEADER_BYTES)
    computed = crc32c(view[ENTRIES_POSITION:])
    if check_crc and crc != computed:
        message = f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: {computed}"
        raise SnapshotCorrupt(f"the snapshot's CRC is {crc}, but its contents have CRC {computed}", message)
    return tuple(_entries(view[HEADER_BYTES : HEADER_BYTES + count * ENTRY_BYTES]))


def _check_count(count: int, remaining_bytes: int) -> None:
    if count < 0:
        message = f"{_SCHEMA}non-nullable field producerEntries was serialized as null"
        raise SnapshotCorrupt(f"the snapshot declares {count} producers", message)
    if count * ENTRY_BYTES <= remaining_bytes:
        return
    # Kafka compares the count, not the bytes it implies, with the remaining bytes. If the count is smaller, it reads past the end, which
    # throws without a message.
    allocation = f"Tried to allocate a collection of size {count}, but there are only {counted(remaining_bytes, 'byte')} remaining."
    message = _SCHEMA + (allocation if count > remaining_bytes else "null")
    raise SnapshotCorrupt(
        f"the snapshot declares {count} producers in {counted(remaining_bytes, 'byte')}", message
    )


def _entries(view: memoryview) -> Iterator[ProducerSnapshotEntry]:
    for *fields, txn_first_offset in _ENTRY.iter_unpack(view):
        yield ProducerSnapshotEntry._make((*fields, txn_first_offset if txn_first_offset >= 0 else None))


def encode_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """The file that Kafka would write for these producers, in this order. Raises FormatError if a number does not fit its field."""
    packed = [_pack(entry) for entry in entries]
    body = len(packed).to_bytes(4, "big") + b"".join(packed)
    return VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def _pack(entry: ProducerSnapshotEntry) -> bytes:
    txn_first_offset = entry.current_txn_first_offset
    try:
        return _ENTRY.pack(*entry[:-1], NO_OFFSET if txn_first_offset is None else txn_first_offset)
    except struct.error as error:
        raise FormatError(f"{entry} does not fit a producer snapshot: {error}") from error
