"""Compare two series of batches over the same offsets record by record, where their bytes differ.

Different batches may contain the same records: another codec or level, another batch size, a batch that the cleaner has rewritten. So records
are compared by offset, with every field that a consumer or a coordinator sees. A batch's partition leader epoch, which its CRC does not cover, is
compared separately.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from kseg.inspection.copies.copy_batches import CopiedBatch
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import walk
from kseg.segment.model import Headers
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.values import dataclass

_KIND_BITS = L.TRANSACTIONAL_BIT | L.CONTROL_BIT


class _Seen(NamedTuple):
    """The fields that two copies of a record share. kind: whether its batch is transactional, and a control batch."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    producer_id: int
    producer_epoch: int
    sequence: int
    kind: int


@dataclass(frozen=True, slots=True)
class RecordsCompared:
    """differs_at: the first offset with another record in each copy, None for none. only_in_a, only_in_b: offsets of records that the other
    copy does not have, up to `differs_at`. epochs_differ_at: the first offset that both have in batches of another leader epoch."""

    differs_at: int | None
    only_in_a: Sequence[int]
    only_in_b: Sequence[int]
    epochs_differ_at: int | None


def compare_records(
    of_a: Sequence[CopiedBatch], of_b: Sequence[CopiedBatch], start_offset: int, last_offset: int
) -> RecordsCompared:
    """start_offset, last_offset: only records in this range are compared. A batch that cannot be decoded is different from any other."""
    a, b = (_records(batches, start_offset, last_offset) for batches in (of_a, of_b))
    if a is None or b is None:
        first = max(start_offset, min(of_a[0].base_offset, of_b[0].base_offset))
        return RecordsCompared(first, (), (), None)
    common = sorted(a.keys() & b.keys())
    differs_at = next((offset for offset in common if a[offset][0] != b[offset][0]), None)
    limit = L.INT64_MAX if differs_at is None else differs_at
    epochs = (offset for offset in common if offset < limit and a[offset][1] != b[offset][1])
    return RecordsCompared(
        differs_at,
        sorted(offset for offset in a.keys() - b.keys() if offset < limit),
        sorted(offset for offset in b.keys() - a.keys() if offset < limit),
        next(epochs, None),
    )


def _records(
    batches: Sequence[CopiedBatch], start_offset: int, last_offset: int
) -> dict[int, tuple[_Seen, int]] | None:
    """By offset (the record, the leader epoch of its batch); None where a batch cannot be decoded."""
    found: dict[int, tuple[_Seen, int]] = {}
    for batch in batches:
        table = Columns(C.BATCH_WIDTH, 1)
        state = memoryview(array("q", (0, 0)))
        walk(batch.data, len(batch.data), table.cells, 1, state)
        table.count = 1
        kind = batch.attributes & _KIND_BITS
        for chunk in Decoder(batch.data).chunks(table):
            for row in range(chunk.records.count):
                record = record_at(chunk, row)
                if start_offset <= record.offset <= last_offset:
                    seen = _Seen(
                        *(record.timestamp_ms, record.key, record.value, record.headers),
                        *(batch.producer_id, batch.producer_epoch, record.sequence, kind),
                    )
                    found[record.offset] = seen, batch.leader_epoch
            if chunk.problem is not None:
                return None
    return found
