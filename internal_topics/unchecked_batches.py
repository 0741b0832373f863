"""What a coordinator reads from damaged bytes, since it does not verify checksums when it loads its log.

    the length field is below 14, as in zeros   the load ends there (CorruptRecordException)
    whole batches by their length fields, with  records are taken over one after the other, up to one whose bytes are not a record:
    the offsets that are missing there          there the load ends (InvalidRecordException)
    anything else                               it depends on how much the coordinator reads at once

A damaged batch is read here as if it were sound, by giving it the checksum of its bytes.

(Kafka: ByteBufferLogInputStream.nextBatch, DefaultRecordBatch.uncompressedIterator, which the loads of all coordinators go through.)
"""

from collections.abc import Sequence

from kseg.segment import crc
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.model import Record
from kseg.segment.scanning.damage import Damage, end_by_length_field
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from kseg.segment.values import dataclass

_DELTA_POSITION = 23  # of lastOffsetDelta in the header of a batch
_READ = ("bad-crc", "zero-filled", "zero-tail")


@dataclass(frozen=True, slots=True)
class UncheckedRead:
    """records: those that the coordinator accepts. ends: the load ends after them."""

    records: tuple[Record, ...]
    ends: bool


def unchecked_read(view: memoryview, damage: Damage) -> UncheckedRead | None:
    """What a coordinator reads from a damaged span of a segment; None if that is not certain. view: the whole file."""
    if damage.kind not in _READ:
        return None
    taken: list[Record] = []
    position, end = damage.position, damage.position + damage.length
    offset = damage.next_offset
    while position < end:
        stop = end_by_length_field(view, position, end)
        if stop is None:
            is_whole = position + L.ENTRY_OVERHEAD <= end
            return UncheckedRead(tuple(taken), True) if is_whole else None
        first, last = _offsets(view, position, stop)
        if (
            stop > end
            or view[position + L.MAGIC_POSITION] != L.MAGIC_V2
            or first < (offset or 0)
            or last < first
        ):
            return None
        read = _as_sound(bytes(view[position:stop]))
        if read is None:
            return None
        records, is_all = read
        taken += records
        if not is_all:
            return UncheckedRead(tuple(taken), True)
        position, offset = stop, last + 1
    behind = damage.resumed_offset
    return (
        None
        if behind is not None and offset is not None and offset > behind
        else UncheckedRead(tuple(taken), False)
    )


def _offsets(view: memoryview, position: int, stop: int) -> tuple[int, int]:
    """The first and last offset of a batch, as its header has them; none if it is too short for a header."""
    if stop - position < L.BATCH_HEADER:
        return 0, -1
    first = int.from_bytes(view[position : position + 8], "big", signed=True)
    delta_at = position + _DELTA_POSITION
    return first, first + int.from_bytes(view[delta_at : delta_at + 4], "big", signed=True)


def _as_sound(data: bytes) -> tuple[Sequence[Record], bool] | None:
    """The records of a batch whose checksum was made to match, and whether these are all of them; None if it is still not a valid batch, or
    has control records."""
    checksum = crc.crc32c(data[L.ATTRIBUTES_POSITION :]).to_bytes(4, "big")
    data = data[: L.CRC_POSITION] + checksum + data[L.ATTRIBUTES_POSITION :]
    records: list[Record] = []
    for block in Scanner(data).blocks():
        if isinstance(block, Damage):
            return None
        for chunk in Decoder(data).chunks(block):
            if chunk.control:
                return None
            records += [record_at(chunk, at) for at in range(chunk.records.count)]
            if chunk.problem is not None:
                # Kafka checks the end of the batch before it returns the last record, so that one is not read
                return records[: max(0, block.at(C.COUNT, 0) - 1)], False
    return records, True
