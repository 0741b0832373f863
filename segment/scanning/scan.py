"""The scanner: divides a file into batches and damage spans that together account for every byte.

The walk (`kernel.batch_walk`) follows the length fields; the scanner does not rely on them:

1. Walk entries into a table and judge the checksum of each. Valid ones are given out, a table at a time.
2. At the first entry that is not valid, or where the walk cannot continue, damage begins. It ends at the next
   believable batch, or at the end of the file (`resync`).
3. Continue at 1 from there.

Time is linear: a failed search is not repeated, tables are small after damage, and once as many bytes as the file has were
summed for nothing, checksums of long ranges are combined from those of blocks (`range_crc`).
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

# Not a power of two: the columns of such a table begin at addresses that share their lines of the processor's cache, and a batch that is
# put into fifteen columns drives each out before the next batch needs it.
BATCHES_PER_TABLE = 4096 + 8
# Rows of the first table of a file, which is all that most files need, and of the tables after damage; they grow while nothing is wrong.
FIRST_ROWS = 512 + 8
ROWS_BEHIND_DAMAGE = (16, 256)
# A small file gets a small table: many of them make a data directory, and memory costs as much as reading them.
_MIN_ROWS = 16
_BYTES_PER_ROW = 128


def nothing_follows() -> int | None:
    """The default of `next_base`: no next segment is known."""
    return None


def rows_for(size_bytes: int) -> int:
    """The most rows that a table for a log of this size needs."""
    return min(BATCHES_PER_TABLE, _MIN_ROWS + size_bytes // _BYTES_PER_ROW)


class Scanner:
    """Scans one segment's bytes. view: the whole file. base_offset: from its name (0 when unknown). skippable: what was validated
    before, so its checksums are not computed again. file: where the bytes come from, which knows its holes and what could not be read.
    next_base: asked for the base offset of the next segment (None: there is none) where there is damage.

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
        self._resync: Resync | None = None  # made for the first damage
        self.base_offset = base_offset
        capacity = min(capacity, rows_for(len(self.view)))
        self._rows = sorted(
            {min(FIRST_ROWS, capacity), capacity}
        )  # of the tables; smaller ones come before them at the first damage
        self._tables: dict[int, Columns] = {}
        self.table = self.table_of(0)
        self.order = OffsetOrder(base_offset)
        self._reached = 0  # where the last batch ends that `order` has taken in

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
        """Walk from `position` into the table, as Kafka would, judging every checksum; returns why it stopped."""
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
        """The valid batch that starts at `position`, as a table and a row of it; None when there is none.

        Looked up in `table` when it is there, else walked to; both are overwritten by the next of their kind.
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
        """Tables of valid batches and damage spans, in order of position, from `start` to `end` without a hole.

        until: leave out what begins there or after it. A scan that starts before what was scanned last starts again: the batches there
        are after its damage, not before it.
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
        """The table of the entries after the last damage, when the scan continues there."""
        resync = self._resync
        return None if resync is None or resync.position_behind != position else resync.table_behind

    def fill_valid(self, table: Columns, position: int, end: int, until: int) -> tuple[int, bool]:
        """Walk into any table, up to what is not a valid batch or to `until`: where that is, whether it may continue there."""
        reason = self._walk.fill(table, position, end, until)
        good = first_invalid(table.cells, table.capacity, table.count)
        is_whole = good == table.count
        stopped = self._walk.stopped if is_whole else table.at(C.POSITION, good)
        table.count = good
        return stopped, is_whole and reason == FULL

    def first_valid(self, position: int, stop: int) -> int | None:
        """Where the first valid batch begins between `position` and `stop`, of those that end by `stop`: a guess at
        the boundaries of batches, since a value may hold what looks like one."""
        return self._resynchronizer.first_valid(position, stop)

    def valid_within(self, position: int, stop: int) -> Iterator[Columns]:
        """Valid batches that are whole in a span of damage, whatever their offsets: tables of one row. They may be out
        of place, copies, or somebody's value that looks like a batch."""
        return self._resynchronizer.valid_within(position, stop)

    def _prepare_small_tables(self) -> None:
        """Restart with small tables after damage: where more damage follows soon, large ones would be filled for nothing."""
        self._rows = sorted({self._rows[-1], *(min(rows, self._rows[-1]) for rows in ROWS_BEHIND_DAMAGE)})

    def resync(self, position: int, end: int) -> Damage:
        """The damage that begins at `position` (no valid batch starts there), up to the next believable batch.

        Where bytes of it could not be read, that is what is wrong with it, and zeros after them are no part of it.
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
        """The damage that begins from `position` to before `stop`; valid batches in between are passed."""
        while position < stop:
            probe = self._walk.probe(position, end)
            if probe is None:
                damage = self.resync(position, end)
                yield damage
                position += damage.length
            else:
                self.remember_offsets(probe)
                position += probe.at(C.SIZE, 0)
