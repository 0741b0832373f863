"""The scanner: divides a file into batches and damage spans that together account for every byte.

The walk (`kernel.batch_walk`) follows the length fields, which may be wrong. Plan:

1. Walk entries into a table and verify the checksum of each. Valid ones are returned, a table at a time.
2. At the first invalid entry, or where the walk cannot continue, damage begins. It ends at the next
   plausible batch, or at the end of the file (`resync`).
3. Continue at 1 from there.

Time is linear: a failed search is not repeated, tables are small after damage, and once as many bytes as the file has were
checksummed without progress, checksums of long ranges are combined from those of blocks (`range_crc`).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self

from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import FULL, first_invalid
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.offset_order import OffsetOrder
from kseg.segment.scanning.table_walk import TableWalk

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kseg.segment.files import OpenFile
    from kseg.segment.scanning.prevalidated import SkippableSpans
    from kseg.segment.scanning.resync import Resync
    from kseg.segment.unreadable import BadArea

# Not a power of two: otherwise the columns of a table map to the same lines of the processor's cache, and the fifteen values of a batch
# evict each other before the next batch is written.
BATCHES_PER_TABLE = 4096 + 8
# Rows of the first tables of a file, which suffice for most files, and of the first tables after damage. Tables grow until there is damage.
FIRST_ROWS = (512 + 8, 1024 + 8)
ROWS_BEHIND_DAMAGE = (16, 256)
# A small file gets a small table: a data directory has many of them, and allocating memory costs as much as reading them.
_MIN_ROWS = 16
_BYTES_PER_ROW = 128


def nothing_follows() -> int | None:
    """The default of `next_base`: no next segment is known."""
    return None


def rows_for(size_bytes: int) -> int:
    """The maximum number of rows that a table for a log of this size needs."""
    return min(BATCHES_PER_TABLE, _MIN_ROWS + size_bytes // _BYTES_PER_ROW)


class Scanner:
    """Scans one segment's bytes. view: the whole file. base_offset: from its name (0 if unknown). skippable: spans that were validated
    before, whose checksums are not computed again. file: the source of the bytes, which knows its holes and unreadable ranges.
    next_base: returns the base offset of the next segment (None: there is none); called at damage.

    `table` holds the batches of the last `fill` or of the block last yielded and is overwritten by the next.
    """

    def __init__(
        self,
        view: "Buffer",
        base_offset: int = 0,
        capacity: int = BATCHES_PER_TABLE,
        skippable: "SkippableSpans | None" = None,
        *,
        file: "OpenFile | None" = None,
        next_base: Callable[[], int | None] = nothing_follows,
    ) -> None:
        self.view = memoryview(view)
        self._file = file
        self._next_base = next_base
        self._walk = TableWalk(self.view, skippable)
        self._resync: Resync | None = None  # created at the first damage
        self.base_offset = base_offset
        capacity = min(capacity, rows_for(len(self.view)))
        # the sizes of the successive tables; the first damage puts smaller ones before them
        self._rows = sorted({capacity, *(min(rows, capacity) for rows in FIRST_ROWS)})
        self._tables: dict[int, Columns] = {}
        self.table = self.table_of(0)
        self.order = OffsetOrder(base_offset)
        self._reached = 0  # end of the last batch that was added to `order`

    @classmethod
    def over(
        cls,
        file: "OpenFile",
        base_offset: int = 0,
        capacity: int = BATCHES_PER_TABLE,
        skippable: "SkippableSpans | None" = None,
        *,
        next_base: Callable[[], int | None] = nothing_follows,
    ) -> Self:
        """A scanner over an open file."""
        return cls(file.view, base_offset, capacity, skippable, file=file, next_base=next_base)

    def fill(self, position: int, end: int) -> int:
        """Walk from `position` into the table, as Kafka would, verifying every checksum; returns why it stopped."""
        self.table = self.table_of(-1)
        return self._walk.fill(self.table, position, end)

    def table_of(self, size: int) -> Columns:
        """The table of a size class: 0 is the smallest, classes beyond the last get the largest."""
        rows = self._rows[min(size, len(self._rows) - 1)]
        table = self._tables.get(rows)
        if table is None:
            table = self._tables[rows] = Columns(C.BATCH_WIDTH, rows)
        return table

    def find(self, position: int, end: int) -> tuple[Columns, int] | None:
        """The valid batch that starts at `position`, as a table and a row of it; None if there is none.

        Looked up in `table` if it is there, otherwise walked; both are overwritten by the next call of their kind.
        """
        table = self.table
        row = bisect_left(table.column(C.POSITION), position)
        if row < table.count and table.at(C.POSITION, row) == position:
            return (table, row) if table.at(C.VALID, row) == 1 else None
        probe = self._walk.probe(position, end)
        return None if probe is None else (probe, 0)

    def blocks(
        self, start: int = 0, end: int | None = None, until: int | None = None
    ) -> Iterator[Columns | Damage]:
        """Tables of valid batches and damage spans, in order of position, from `start` to `end` without a gap.

        until: omit entries that begin at or after it. If a scan starts before the position that the last one reached, the batches
        seen so far are forgotten: they are after its damage, not before it.
        """
        stop = len(self.view) if end is None else end
        limit = stop if until is None else min(until, stop)
        position = start
        if start < self._reached:
            self.order = OffsetOrder(self.base_offset)
            if self._resync is not None:
                self._resync.restart(self.order)
        if start:
            self.order.begin_inside()
        size = 0 if start == 0 else len(self._rows) - 1
        while position < limit:
            self.table = table = self._table_at(position) or self.table_of(size)
            position, is_whole = self.fill_valid(table, position, stop, limit)
            size += 1
            if table.count:
                self.remember_offsets(table)
                yield table
            if not is_whole and position < stop:
                damage = self.resync(position, stop)
                self._prepare_small_tables()
                size = 0
                yield damage
                position += damage.length

    def _table_at(self, position: int) -> Columns | None:
        """The table of the entries after the last damage, if the scan continues there."""
        resync = self._resync
        return None if resync is None or resync.position_behind != position else resync.table_behind

    def fill_valid(self, table: Columns, position: int, end: int, until: int) -> tuple[int, bool]:
        """Walk into any table, up to an invalid batch or to `until`; returns that position, and whether a batch may continue there."""
        reason = self._walk.fill(table, position, end, until)
        good = first_invalid(table.cells, table.capacity, table.count)
        is_whole = good == table.count
        stopped = self._walk.stopped if is_whole else table.at(C.POSITION, good)
        table.count = good
        return stopped, is_whole and reason == FULL

    def first_valid(self, position: int, stop: int) -> int | None:
        """The start of the first valid batch between `position` and `stop` that ends by `stop`: a guess at
        the boundaries of batches, since a record value may look like one."""
        return self._resynchronizer.first_valid(position, stop)

    def valid_within(self, position: int, stop: int) -> Iterator[Columns]:
        """Complete valid batches in a span of damage, whatever their offsets: tables of one row. They may be out
        of place, copies, or a record value that looks like a batch."""
        return self._resynchronizer.valid_within(position, stop)

    def _prepare_small_tables(self) -> None:
        """Restart with small tables after damage: if more damage follows soon, filling large ones would be wasted."""
        self._rows = sorted({self._rows[-1], *(min(rows, self._rows[-1]) for rows in ROWS_BEHIND_DAMAGE)})

    def resync(self, position: int, end: int) -> Damage:
        """The damage that begins at `position` (no valid batch starts there), up to the next plausible batch.

        If some of its bytes could not be read, its kind says so, and the zeros after them are not part of it.
        """
        return self._resynchronizer.damage_at(position, end)

    @property
    def _resynchronizer(self) -> "Resync":
        if self._resync is None:
            from kseg.segment.scanning.resync import Resync

            self._resync = Resync(self._walk, self.order, self.base_offset, self._file, self._next_base)
        return self._resync

    def unreadable(self, position: int, end: int) -> "tuple[BadArea, ...]":
        """The unreadable parts of a range, which the view shows as zeros."""
        return () if self._file is None else self._file.unreadable(position, end)

    def remember_offsets(self, table: Columns, first: int = 0, stop: int | None = None) -> None:
        """Record the offsets of valid batches that precede everything scanned from here on."""
        stop = table.count if stop is None else stop
        if first < stop:
            self.order.take(table, first, stop)
            self._reached = table.at(C.POSITION, stop - 1) + table.at(C.SIZE, stop - 1)

    def is_valid_at(self, position: int, end: int) -> bool:
        """Whether a valid batch starts at `position`."""
        return self._walk.valid_offset_at(position, end) is not None

    def damage_between(self, position: int, stop: int, end: int) -> Iterator[Damage]:
        """The damage spans that begin at or after `position` and before `stop`; valid batches in between are skipped."""
        while position < stop:
            probe = self._walk.probe(position, end)
            if probe is None:
                damage = self.resync(position, end)
                yield damage
                position += damage.length
            else:
                self.remember_offsets(probe)
                position += probe.at(C.SIZE, 0)
