"""The scanner: divides a file into batches and damage spans that together account for every byte.

The walk (`kernel.batch_walk`) follows the length fields; the scanner does not rely on them:

1. Walk entries into a table and judge the checksum of each. Valid ones are given out, a table at a time.
2. At the first entry that is not valid, or where the walk cannot go on, damage begins at its position p.
   Zeros from p to the end of the file are a tail that was allocated and never written: done.
3. If the recorded length leads to a valid batch, to the clean end or to a tail of zeros, the length is
   corroborated: the damage is exactly this entry. (Unless the entry is sound when it ends at a believable batch
   before that: then only its length is wrong, and says that the batches behind it are its own.)
4. Otherwise search byte by byte for the next believable batch: magic, length, header and offset must fit
   (offset at or above the end of what was valid before; when no such batch is left, any offset of the segment)
   and the checksum must be right. The damage ends there, or at the end of the file.
5. Go on at 1 from there.

A clean end, a torn end (the writer died), zeros (never written) and damage are told apart. Kinds of damage are ids of findings.

Time is linear: a failed search is not repeated, tables are small behind damage, and once as many bytes as the file has were
summed in vain, checksums of long ranges are combined from those of blocks (`range_crc`).
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import FULL, first_candidate, first_invalid, walk
from kseg.segment.scanning.crc_verdicts import CrcVerifier
from kseg.segment.scanning.damage import (
    Damage,
    end_by_length_field,
    is_intact_when_cut_at,
    is_plausible_start,
    is_valid_as_magic_2,
    kind_of_tail,
)
from kseg.segment.scanning.lost_offsets import LostRange, lost_range
from kseg.segment.scanning.offset_order import ASKED_BEHIND, DamageBounds, OffsetOrder, batch_range
from kseg.segment.scanning.zero_ranges import CHUNK_BYTES, ZeroRanges

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kseg.segment.files import OpenFile
    from kseg.segment.scanning.prevalidated import SkippableSpans
    from kseg.segment.unreadable import BadArea

# Not a power of two: the columns of such a table begin at addresses that share their lines of the processor's cache, and a batch that is
# put into fifteen columns drives each out before the next batch needs it.
BATCHES_PER_TABLE = 4096 + 8
# Rows of the first table of a file, which is all that most files need, and of the tables behind damage; they grow while nothing is wrong.
FIRST_ROWS = 512 + 8
ROWS_BEHIND_DAMAGE = (16, 256)
# A small file gets a small table: many of them make a data directory, and memory costs as much as reading them.
_MIN_ROWS = 16
_BYTES_PER_ROW = 128
REMEMBERED_VERDICTS = 4096
MIN_ZERO_TAIL_BYTES = 64
# Searches for what follows damage, up to the end of the file, before one for any offset is enough.
MAX_EXHAUSTED_SEARCHES = 8


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
        self._zeros = ZeroRanges(self.view, file)
        self._next_base = next_base
        # where other damage begins right behind some whose last offset is known, and at least
        self._damage_behind = -1, -1
        self.base_offset = base_offset
        capacity = min(capacity, rows_for(len(self.view)))
        self._rows = sorted(
            {min(FIRST_ROWS, capacity), capacity}
        )  # of the tables; smaller ones come before them at the first damage
        self._tables: dict[int, Columns] = {}
        self.table = self.table_of(0)
        self.order = OffsetOrder(base_offset)
        self._reached = 0  # where the last batch ends that `order` has taken in
        self._state = memoryview(array("q", [0, 0]))
        # the last wish (table, position, end, until) and why that walk stopped
        self._walked: tuple[tuple[Columns, int, int, int], int] | None = None
        self._probe: Columns | None = None
        # where damage ended last, the batches behind it, and the offsets of the next few of them
        self._behind_at, self._table_behind, self._ranges = -1, self.table, list[tuple[int, int]]()
        # the lowest offset from which on nothing believable was found up to the end, and how often that was searched for
        self._exhausted_from, self._exhausted = L.INT64_MAX, 0
        self._verdicts: dict[int, int | None] = {}
        self._judge = CrcVerifier(self.view)
        self._trust = skippable

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
        return self._fill(self.table, position, end, -1)

    def table_of(self, size: int) -> Columns:
        """The table of a size class: 0 is the smallest, classes beyond the last get the largest."""
        rows = self._rows[min(size, len(self._rows) - 1)]
        table = self._tables.get(rows)
        if table is None:
            table = self._tables[rows] = Columns(C.BATCH_WIDTH, rows)
        return table

    def _fill(self, table: Columns, position: int, end: int, until: int) -> int:
        wish = table, position, end, until
        if self._walked is not None and self._walked[0] == wish:
            table.count = self._state[1]  # who asks again gets what still lies there
            return self._walked[1]
        self._state[0] = position
        reason = walk(self.view, end, table.cells, table.capacity, self._state, until)
        table.count = self._state[1]
        if self._trust is not None and self._trust.covers(table, position, self._state[0]):
            table.column(C.VALID)[:] = memoryview(array("q", [1]) * table.count)
        else:
            self._judge.verify(table)
        self._walked = wish, reason
        return reason

    def find(self, position: int, end: int) -> tuple[Columns, int] | None:
        """The valid batch that starts at `position`, as a table and a row of it; None when there is none.

        Looked up in `table` when it is there, else walked to; both are overwritten by the next of their kind.
        """
        table = self.table
        row = bisect_left(table.column(C.POSITION), position)
        if row < table.count and table.at(C.POSITION, row) == position:
            return (table, row) if table.at(C.VALID, row) == 1 else None
        if self._probe_at(position, end) is None or self._probe is None:
            return None
        return self._probe, 0

    def blocks(
        self, start: int = 0, end: int | None = None, until: int | None = None
    ) -> Iterator[Columns | Damage]:
        """Tables of valid batches and damage spans, in order of position, from `start` to `end` without a hole.

        until: leave out what begins there or behind it. A scan that starts before what was scanned last begins anew: the batches there
        are behind its damage, not before it.
        """
        stop = len(self.view) if end is None else end
        limit = stop if until is None else min(until, stop)
        position = start
        if start < self._reached:
            self.order, self._exhausted_from, self._exhausted = OffsetOrder(self.base_offset), L.INT64_MAX, 0
        if start:
            self.order.begin_inside()
        size = 0 if start == 0 else len(self._rows) - 1
        while position < limit:
            self.table = table = self._table_behind if position == self._behind_at else self.table_of(size)
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

    def fill_valid(self, table: Columns, position: int, end: int, until: int) -> tuple[int, bool]:
        """Walk into any table, up to what is not a valid batch or to `until`: where that is, whether it may go on there."""
        reason = self._fill(table, position, end, until)
        good = first_invalid(table.cells, table.capacity, table.count)
        is_whole = good == table.count
        stopped = self._state[0] if is_whole else table.at(C.POSITION, good)
        table.count = good
        return stopped, is_whole and reason == FULL

    def first_valid(self, position: int, stop: int) -> int | None:
        """Where the first valid batch begins between `position` and `stop`, of those that end by `stop`: a guess at
        the boundaries of batches, since a value may hold what looks like one."""
        return self._search_from(position, stop, len(self.view), self.base_offset, self._highest_offset())

    def _prepare_small_tables(self) -> None:
        """Restart with small tables behind damage: where more damage follows soon, large ones would be filled in vain."""
        self._rows = sorted({self._rows[-1], *(min(rows, self._rows[-1]) for rows in ROWS_BEHIND_DAMAGE)})

    def resync(self, position: int, end: int) -> Damage:
        """The damage that begins at `position` (no valid batch starts there), up to the next believable batch.

        Where bytes of it could not be read, that is what is wrong with it, and zeros behind them are no part of it.
        """
        damage = self._resync(position, end)
        bad = self.unreadable(position, position + damage.length)
        if not bad:
            return damage
        stop = position + damage.length
        if bad[-1].end < stop == end and self._zeros_to_end(bad[-1].end, end):
            stop = bad[-1].end
        return replace(damage, kind="unreadable-batch", length=stop - position, intact_length_bytes=None)

    def _resync(self, position: int, end: int) -> Damage:
        # what was judged behind it will have to be judged again
        self._judge.wasted_bytes += max(0, self._state[0] - position)
        if self._zeros_to_end(position, end):
            return self._damage("zero-tail", position, end, None)
        recorded_end = end_by_length_field(self.view, position, end)
        if recorded_end is not None and self._corroborated(recorded_end, end):
            return self._corroborated_damage(position, recorded_end, end)
        found = self._search(position + 1, end)
        if found is None:
            if is_intact_when_cut_at(self.view, position, end):
                return self._damage("bad-length", position, end, None, end - position)
            return self._damage(
                kind_of_tail(self.view, position, end, recorded_end, self._lowest_offset(end)),
                position,
                end,
                None,
            )
        if self._zeros.fill(position, found):
            return self._damage("zero-filled", position, found, self._valid_offset_at(found, end))
        return self._before_resumption(position, found, end, recorded_end)

    def valid_within(self, position: int, stop: int) -> Iterator[Columns]:
        """Valid batches that lie whole in a span of damage, whatever their offsets: tables of one row. They may be out
        of place, copies, or somebody's value that looks like a batch."""
        found = self._search_from(position, stop, stop, -L.INT64_MAX - 1, L.INT64_MAX)
        while found is not None:
            table = Columns(C.BATCH_WIDTH, 1)
            self._fill(table, found, stop, -1)
            yield table
            behind = found + table.at(C.SIZE, 0)
            found = self._search_from(behind, stop, stop, -L.INT64_MAX - 1, L.INT64_MAX)

    # --- the verdicts

    def _corroborated_damage(self, position: int, recorded_end: int, end: int) -> Damage:
        if is_valid_as_magic_2(self.view, position, recorded_end):
            return self._damage("bad-magic", position, recorded_end, self._valid_offset_at(recorded_end, end))
        resumed = self._valid_offset_at(recorded_end, end)
        # zeros confirm less than a batch does: they may be the end of one
        reach = recorded_end if resumed is not None else min(end, recorded_end + CHUNK_BYTES)
        true_end = self._search_from(position + 1, reach, end, *self._strict_bounds())
        if true_end is not None and (end_by_length_field(self.view, true_end, end) or 0) > recorded_end:
            return self._before_resumption(position, true_end, end, recorded_end)
        if true_end is None and resumed is None:
            true_end = end
        if true_end is not None and is_intact_when_cut_at(self.view, position, true_end):
            resumed = self._valid_offset_at(true_end, end)
            return self._damage("bad-length", position, true_end, resumed, true_end - position)
        return self._damage("bad-crc", position, recorded_end, resumed)

    def _before_resumption(self, position: int, found: int, end: int, recorded_end: int | None) -> Damage:
        resumed = self._valid_offset_at(found, end)
        if is_intact_when_cut_at(self.view, position, found):
            return self._damage("bad-length", position, found, resumed, found - position)
        kind = "foreign-bytes"
        if is_plausible_start(self.view, position, end, self._lowest_offset(found)):
            kind = "bad-crc" if recorded_end is not None and recorded_end <= found else "bad-length"
        return self._damage(kind, position, found, resumed)

    def _damage(
        self, kind: str, position: int, stop: int, resumed: int | None, intact_length: int | None = None
    ) -> Damage:
        readable = position + 8 <= len(self.view)
        claimed = int.from_bytes(self.view[position : position + 8], "big", signed=True) if readable else None
        bounds = self._bounds(stop)
        lowest = self._lowest_offset(stop)
        least = self.base_offset if bounds.least_before is None else bounds.least_before + 1
        if self._damage_behind[0] == position:
            lowest, least = max(lowest, self._damage_behind[1]), max(least, self._damage_behind[1])
        upper, most = bounds.first_behind, bounds.most_behind
        if (resumed is None and stop < len(self.view)) or (upper is not None and upper < lowest):
            upper = most = None  # nothing follows, or what follows is out of order and bounds nothing
        lost = lost_range(self.view, position, stop, lowest, upper, intact_length, (least, most))
        if kind == "zero-tail" and upper is None:
            lost = LostRange(lowest, None, 0)  # nobody wrote anything there
        if lost.records is not None and lost.last_offset is not None:
            self._damage_behind = stop, lost.last_offset + 1
        next_offset = None if bounds.last_before is None else bounds.last_before + 1
        return Damage(
            kind,
            position,
            stop - position,
            next_offset,
            resumed,
            claimed,
            intact_length,
            lost,
            bounds.first_behind,
        )

    # --- evidence

    def _corroborated(self, recorded_end: int, end: int) -> bool:
        if recorded_end >= end:
            return recorded_end == end
        if self._valid_offset_at(recorded_end, end) is not None:
            return True
        # a few zeros at the end may be those of the last batch
        return end - recorded_end >= MIN_ZERO_TAIL_BYTES and self._zeros_to_end(recorded_end, end)

    def _zeros_to_end(self, position: int, end: int) -> bool:
        """Whether everything from `position` to `end` is zero and readable."""
        return self._zeros.reach(position, end) and not self.unreadable(position, end)

    def unreadable(self, position: int, end: int) -> "tuple[BadArea, ...]":
        """The unreadable parts of a range, which the view shows as zeros."""
        return () if self._file is None else self._file.unreadable(position, end)

    def _valid_offset_at(self, position: int, end: int) -> int | None:
        """Base offset of the valid batch that starts at `position`, None when there is none."""
        # length fields may lead to one batch again and again: its checksum is computed once
        if position not in self._verdicts:
            if len(self._verdicts) >= REMEMBERED_VERDICTS:
                self._verdicts.clear()
            self._verdicts[position] = self._probe_at(position, end)
        return self._verdicts[position]

    def _probe_at(self, position: int, end: int) -> int | None:
        probe = self._probe = self._probe or Columns(C.BATCH_WIDTH, 1)
        state = memoryview(array("q", [position, 0]))
        walk(self.view, end, probe.cells, 1, state)
        probe.count = state[1]
        if not probe.count:
            return None
        self._judge.wasted_bytes += probe.at(C.SIZE, 0)
        self._judge.verify(probe)
        return probe.at(C.BASE_OFFSET, 0) if probe.at(C.VALID, 0) == 1 else None

    # --- the search

    def _search(self, position: int, end: int) -> int | None:
        """The next believable batch at or behind `position` whose checksum is right."""
        lowest, highest = self._strict_bounds()
        if lowest < self._exhausted_from and self._exhausted < MAX_EXHAUSTED_SEARCHES:
            found = self._search_from(position, end, end, lowest, highest)
            if found is not None:
                return found
            # no later search for such offsets can succeed either
            self._exhausted_from, self._exhausted = lowest, self._exhausted + 1
        return self._search_from(position, end, end, 0, L.INT64_MAX)

    def _strict_bounds(self) -> tuple[int, int]:
        least = self.order.least_last_before
        return self.base_offset if least is None else least + 1, self._highest_offset()

    def _bounds(self, stop: int) -> DamageBounds:
        """The offsets around damage that ends at `stop`."""
        next_base = self.next_base
        limit = self._highest_offset() + 1 if next_base is None else next_base
        return self.order.around(self._ranges_behind(stop), limit, next_base)

    def _ranges_behind(self, stop: int) -> list[tuple[int, int]]:
        """The offsets of the next valid batches from `stop` on, where damage ends."""
        if self._behind_at != stop:
            table, end = Columns(C.BATCH_WIDTH, ROWS_BEHIND_DAMAGE[0]), len(self.view)
            self._state[0] = stop
            reason = walk(self.view, end, table.cells, table.capacity, self._state, end)
            table.count = self._state[1]
            self._judge.verify(table)
            self._walked = (table, stop, end, end), reason  # who reads on from there has it already
            valid = first_invalid(table.cells, table.capacity, min(ASKED_BEHIND, table.count))
            self._ranges = [batch_range(table, row) for row in range(valid)]
            self._behind_at, self._table_behind = stop, table
        return self._ranges

    def _lowest_offset(self, stop: int) -> int:
        """The offset expected first in damage that ends at `stop`."""
        last_before = self._bounds(stop).last_before
        return self.base_offset if last_before is None else last_before + 1

    @cached_property
    def next_base(self) -> int | None:
        """The base offset of the next segment, None when there is none."""
        return self._next_base()

    def _highest_offset(self) -> int:
        return min(self.base_offset + L.INT32_MAX, L.INT64_MAX)

    def _search_from(self, position: int, stop: int, end: int, lowest: int, highest: int) -> int | None:
        """The first valid batch that begins at or behind `position`, ends at or before `stop` and has such an offset."""
        for first, until in self._zeros.with_data(position, stop):
            # a batch may begin with zeros, which end a hole
            first, limit = max(position, first - L.BATCH_HEADER), () if until == stop else (until,)
            candidate = first_candidate(self.view, first, stop, lowest, highest, *limit)
            while candidate >= 0:
                if self._valid_offset_at(candidate, end) is not None:
                    return candidate
                candidate = first_candidate(self.view, candidate + 1, stop, lowest, highest, *limit)
        return None

    def remember_offsets(self, table: Columns, first: int = 0, stop: int | None = None) -> None:
        """Record the offsets of valid batches that precede everything scanned from here on."""
        stop = table.count if stop is None else stop
        if first < stop:
            self.order.take(table, first, stop)
            self._reached = table.at(C.POSITION, stop - 1) + table.at(C.SIZE, stop - 1)

    def is_valid_at(self, position: int, end: int) -> bool:
        """Whether a valid batch starts at `position`."""
        return self._valid_offset_at(position, end) is not None

    def damage_between(self, position: int, stop: int, end: int) -> Iterator[Damage]:
        """The damage that begins from `position` to before `stop`; valid batches in between are passed."""
        while position < stop:
            if self._probe_at(position, end) is None or self._probe is None:
                damage = self.resync(position, end)
                yield damage
                position += damage.length
            else:
                self.remember_offsets(self._probe)
                position += self._probe.at(C.SIZE, 0)
