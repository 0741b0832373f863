"""Batches as values, one at a time: for callers with few batches, or that process them one by one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import Scanner

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kseg.segment.model import Batch


def batch_at(table: Columns, row: int) -> "Batch":
    """The row of a table of batches as a value."""
    from kseg.segment.model import Batch  # imported here, so that code that works on columns does not load it

    cells, capacity = table.cells, table.capacity
    values: list[int] = cells[row : C.BODY * capacity : capacity].tolist()  # in the order of the columns
    position, size_bytes, magic, base_offset, last_offset, count, attributes, leader_epoch, crc, *rest = (
        values
    )
    base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence, valid = rest
    return Batch(
        position,
        size_bytes,
        magic,
        base_offset,
        last_offset,
        None if magic < L.MAGIC_V2 and count < 0 else count,
        attributes,
        leader_epoch,
        crc,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        valid == 1,
    )


def scan(
    view: "Buffer", base_offset: int = 0, start: int = 0, end: int | None = None
) -> "Iterator[Batch | Damage]":
    """`Scanner.blocks`, one value at a time."""
    scanner = Scanner(view, base_offset)
    for block in scanner.blocks(start, end):
        if isinstance(block, Damage):
            yield block
        else:
            for row in range(block.count):
                yield batch_at(block, row)
