"""The batches of a set that will be appended, parsed from its bytes before they are written.

A set that was just encoded needs no validation; one that arrives as bytes is validated as a broker validates produced batches.
"""

import struct

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import UsageError
from kseg.segment.header_tables import Columns
from kseg.segment.model import Batch, NewBatch
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from kseg.segment.state.control import EndTransactionMarker, end_transaction_marker
from kseg.segment.values import dataclass

_BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
_BATCHES_AT_ONCE = 16  # a set rarely holds more; a larger one is read in several tables


@dataclass(frozen=True, slots=True)
class SetEntry:
    """One batch of a set, with the content of its marker if it is one."""

    batch: Batch
    marker: EndTransactionMarker | None


def least_first_offset(entries: list[SetEntry]) -> int:
    """The first offset of a set. In old formats only the inner messages of a wrapper contain it, so Kafka takes a lower bound for every
    batch of an old format (UnifiedLog.maybeRoll); the log end then decides."""
    if entries[0].batch.magic < L.MAGIC_V2:
        return entries[-1].batch.last_offset - L.INT32_MAX
    return entries[0].batch.base_offset


def entry_of(new: NewBatch, content: bytes) -> SetEntry:
    """The batch that was just encoded, from its header, without validation."""
    base_offset, _, leader_epoch, magic, crc, attributes, delta, *rest = _BATCH_HEADER.unpack_from(content)
    base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence, count = rest
    batch = Batch(
        position=0,
        size_bytes=len(content),
        magic=magic,
        base_offset=base_offset,
        last_offset=base_offset + delta,
        count=count,
        attributes=attributes,
        leader_epoch=leader_epoch,
        crc=crc,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        crc_valid=True,
    )
    has_marker = new.control and producer_id >= 0 and count > 0
    return SetEntry(batch, end_transaction_marker(new.records[0]) if has_marker else None)


def entries_of(content: bytes) -> list[SetEntry]:
    """The batches of a set; raises UsageError if it is empty or contains a byte that is not part of a valid batch."""
    entries: list[SetEntry] = []
    for block in Scanner(content, capacity=_BATCHES_AT_ONCE).blocks():
        if isinstance(block, Damage):
            raise UsageError(f"the bytes at {block.position} of the input are damaged: {block.kind}")
        entries.extend(
            SetEntry(batch_at(block, row), _marker_at(content, block, row)) for row in range(block.count)
        )
    if not entries:
        raise UsageError("there is nothing to append")
    return entries


def _marker_at(content: bytes, table: Columns, row: int) -> EndTransactionMarker | None:
    is_control = table.at(C.MAGIC, row) >= L.MAGIC_V2 and table.at(C.ATTRIBUTES, row) & L.CONTROL_BIT
    if not is_control or table.at(C.PRODUCER_ID, row) < 0 or not table.at(C.COUNT, row):
        return None
    chunk = next(Decoder(content, capacity=1).chunks(table, row, row + 1))
    if chunk.problem is not None:
        raise UsageError(f"a control batch cannot be decoded: {chunk.problem.sentence}")
    return end_transaction_marker(record_at(chunk, 0))
