"""Walk batch headers from any batch boundary, for callers that need one batch instead of all.

`Scanner` verifies the CRC of every batch that it passes, which a lookup cannot afford. Plan:

1. Walk headers into tables that start small and grow, without verifying CRCs (`VALID` stays -1).
2. Accept a table while its offsets increase, from the base offset of the segment on, within each batch and from batch to batch, and every
   length leads to the next header.
3. At the first implausible table, continue with the scanner: CRCs, damage spans.

A caller that picks a batch from a table verifies that one (`BatchWalk.has_valid_crc`). If its CRC is wrong, the walk was misled by
damage and is repeated as a scan. That scan begins where the walk began, so that it reports the same damage as a scan of the whole
file: what precedes damage determines where it begins and which offsets it covers.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from operator import le, lt

from kseg.segment import crc
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.files import MappedFile
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import FULL, walk
from kseg.segment.model import Batch
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import BATCHES_PER_TABLE, Scanner, nothing_follows

_FIRST_TABLE = 8
_GROWTH = 8
# When a file is fetched in parts, this many bytes are fetched and walked first, and more at a time later.
_FIRST_WINDOW_BYTES = 16 * 1024
_LARGEST_WINDOW_BYTES = 8 * 1024 * 1024

Wanted = Callable[[Columns], Iterable[int]]


class Meter:
    """Counts the bytes that were read."""

    __slots__ = ("bytes_read",)

    def __init__(self) -> None:
        self.bytes_read = 0


class BatchWalk:
    """Batches of one segment. file: the log. base_offset: from its name. meter: counts the bytes that are read.

    report: called with the damage on the way. next_base: as in `Scanner`.
    """

    def __init__(
        self,
        file: MappedFile,
        base_offset: int,
        meter: Meter,
        report: Callable[[Damage], None],
        next_base: Callable[[], int | None] = nothing_follows,
    ) -> None:
        self._file = file
        self.view = file.sparse_view  # each method fetches what it reads
        self.base_offset = base_offset
        self._meter = meter
        self._report = report
        self._next_base = next_base

    def blocks(self, position: int = 0) -> Iterator[Columns | Damage]:
        """Tables of headers and damage spans from a batch boundary to the end; a table is valid until the next."""
        start, end, capacity = position, len(self.view), _FIRST_TABLE
        window = _FIRST_WINDOW_BYTES if self._file.is_in_part else 0
        table = Columns(C.BATCH_WIDTH, capacity)
        state = memoryview(array("q", [position, 0]))
        before = self.base_offset - 1
        while position < end:
            state[S.BATCHES_END] = position
            until = -1
            if window:
                self._file.need(position, position + window)
                # the header of a batch that begins earlier has been fetched
                until = position + window - L.BATCH_HEADER
                window = min(2 * window, _LARGEST_WINDOW_BYTES)
            reason = walk(self.view, end, table.cells, table.capacity, state, until)
            table.count = state[S.BATCHES_COUNT]
            self._meter.bytes_read += table.count * L.BATCH_HEADER
            leads_on = reason == FULL or state[S.BATCHES_END] == end
            if not leads_on or not is_plausible(table, before):
                yield from self.scanned(position, start)
                return
            before = table.at(C.LAST_OFFSET, table.count - 1)
            yield table
            position = state[S.BATCHES_END]
            if capacity < BATCHES_PER_TABLE:
                capacity *= _GROWTH
                table = Columns(C.BATCH_WIDTH, capacity)

    def scanned(self, position: int = 0, start: int | None = None) -> Iterator[Columns | Damage]:
        """Like `blocks`, with every checksum verified. start: a batch boundary before `position` where the scan begins; batches
        that end before `position` are left out."""
        self._file.need(position if start is None else start, len(self.view))
        scanner = Scanner(self.view, self.base_offset, file=self._file, next_base=self._next_base)
        for block in scanner.blocks(position if start is None else start):
            if isinstance(block, Damage):
                self._meter.bytes_read += block.length
                if block.position + block.length > position:
                    yield block
                continue
            self._meter.bytes_read += sum(block.column(C.SIZE))
            row = bisect_left(block.column(C.POSITION), position)
            if row < block.count:
                yield block if not row else _rows_from(block, row)

    def find(self, position: int, wanted: Wanted) -> Iterator[Batch]:
        """The valid batches from `position` on whose rows `wanted` selects, in order; reports damage on the way."""
        blocks: Iterator[Columns | Damage] | None = self.blocks(position)
        while blocks is not None:
            invalid_at = None
            for block in blocks:
                if isinstance(block, Damage):
                    self._report(block)
                    continue
                for row in wanted(block):
                    batch = self._verified(block, row)
                    if batch is None:
                        invalid_at = block.at(C.POSITION, row)
                        break
                    yield batch
                if invalid_at is not None:
                    break
            blocks = None if invalid_at is None else self.scanned(invalid_at, position)

    def last(self, position: int) -> Batch | None:
        """The last valid batch at or after a batch boundary; reports damage on the way."""
        for blocks in (self.blocks(position), self.scanned(position)):
            found = None
            for block in blocks:
                if isinstance(block, Damage):
                    self._report(block)
                elif block.count:  # copied, because the table is reused
                    found = batch_at(block, block.count - 1)
            if found is None or found.crc_valid:
                return found
            if self.has_valid_crc(found):
                return replace(found, crc_valid=True)
        return None

    def valid_batch_at(self, position: int) -> Batch | None:
        """The valid batch that starts at `position`, None if there is none."""
        if not 0 <= position < len(self.view):
            return None
        self._file.need(position, position + L.BATCH_HEADER)
        table = Columns(C.BATCH_WIDTH, 1)
        state = memoryview(array("q", [position, 0]))
        walk(self.view, len(self.view), table.cells, 1, state)
        table.count = state[S.BATCHES_COUNT]
        self._meter.bytes_read += table.count * L.BATCH_HEADER
        return self._verified(table, 0) if table.count else None

    def table_of(self, batch: Batch) -> Columns:
        """A table with only that batch, for the decoder."""
        self._file.need(batch.position, batch.position + L.BATCH_HEADER)
        table = Columns(C.BATCH_WIDTH, 1)
        state = memoryview(array("q", [batch.position, 0]))
        walk(self.view, batch.end_position, table.cells, 1, state)
        table.count = 1
        return table

    def has_valid_crc(self, batch: Batch) -> bool:
        """Whether the checksum is valid; counts the bytes of the batch as read."""
        self._meter.bytes_read += batch.size_bytes - min(L.BATCH_HEADER, batch.size_bytes)
        if not L.MAGIC_V0 <= batch.magic <= L.MAGIC_V2:
            return False
        self._file.need(batch.position, batch.end_position)
        if batch.magic < L.MAGIC_V2:
            return crc.crc32(self.view[batch.position + L.MAGIC_POSITION : batch.end_position]) == batch.crc
        body = self.view[batch.position + L.ATTRIBUTES_POSITION : batch.end_position]
        return batch.size_bytes >= L.BATCH_HEADER and crc.crc32c(body) == batch.crc

    def _verified(self, table: Columns, row: int) -> Batch | None:
        batch = batch_at(table, row)
        if batch.crc_valid:
            return batch
        if not self.has_valid_crc(batch):
            return None
        table.column(C.VALID)[row] = 1
        return batch_at(table, row)


def _rows_from(table: Columns, row: int) -> Columns:
    """A table of the rows from `row` on."""
    rest = Columns(C.BATCH_WIDTH, table.count - row)
    rest.count = table.count - row
    for field in range(C.BATCH_WIDTH):
        rest.column(field)[:] = table.column(field)[row:]
    return rest


def is_plausible(table: Columns, before: int) -> bool:
    """Whether offsets increase and magics are known; `before` is the last offset of the previous table."""
    if not table.count:
        return False
    bases, lasts, magics = (table.column(field) for field in (C.BASE_OFFSET, C.LAST_OFFSET, C.MAGIC))
    return (
        bases[0] > before
        and min(magics) >= L.MAGIC_V0
        and max(magics) <= L.MAGIC_V2
        and all(map(le, bases, lasts))
        and all(map(lt, lasts[:-1], bases[1:]))
    )
