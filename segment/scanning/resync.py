"""Resynchronization: determine what is damaged where no valid batch starts, and where the next plausible batch begins.

1. Zeros from the position p to the end of the file are a tail that was allocated and never written.
2. If the recorded length leads to a valid batch, to the clean end or to a tail of zeros, the length is
   confirmed: the damage is exactly this entry. (Exception: the entry is valid if it ends at a plausible batch
   before that. Then only its length is wrong: it includes the batches after it.)
3. Otherwise search byte by byte for the next plausible batch: magic, length, header and offset must fit
   (offset at or above the end of what was valid before; if there is no such batch, any offset of the segment)
   and the checksum must be valid. The damage ends there, or at the end of the file. Exception: before such a batch several
   others follow one another, with increasing offsets of the segment. Then what was valid before is out of order, as the
   contents of a reused block are, and the damage ends at the first of them.

A torn end (the writer died), zeros (never written) and damage are distinguished. Kinds of damage are ids of findings. A log without
damage needs nothing from this module, so the scanner loads it at the first damage.

A failed search is not repeated, so that the time is linear.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import first_candidate, first_invalid
from kseg.segment.scanning.damage import (
    Damage,
    end_by_length_field,
    is_intact_when_cut_at,
    is_plausible_start,
    is_valid_as_magic_2,
    kind_of_tail,
)
from kseg.segment.scanning.flipped_bits import flipped_bits_in
from kseg.segment.scanning.lost_offsets import LostRange, lost_range
from kseg.segment.scanning.offset_order import ASKED_BEHIND, Claim, DamageBounds, OffsetOrder, claim_of
from kseg.segment.scanning.table_walk import TableWalk
from kseg.segment.scanning.zero_ranges import CHUNK_BYTES, ZeroRanges

if TYPE_CHECKING:
    from kseg.segment.files import OpenFile
    from kseg.segment.unreadable import BadArea

ROWS_BEHIND = 16
MIN_ZERO_TAIL_BYTES = 64
# After this many fruitless searches for a plausible offset up to the end of the file, any offset is accepted right away.
MAX_EXHAUSTED_SEARCHES = 8
# So many batches that follow one another are part of the log, and hardly of a record value in the damage.
MIN_RUN_BATCHES = 3


class Resync:
    """Resynchronization in one segment. walk: over its bytes. order: of the batches before the damage; the scanner adds them. file,
    next_base: as in the scanner.

    position_behind, table_behind: the end of the last damage, and a table of the entries from there on.
    """

    def __init__(
        self,
        walk: TableWalk,
        order: OffsetOrder,
        base_offset: int,
        file: "OpenFile | None",
        next_base: Callable[[], int | None],
    ) -> None:
        self.view = walk.view
        self.order = order
        self.base_offset = base_offset
        self._walk = walk
        self._file = file
        self._zeros = ZeroRanges(self.view, file)
        self._next_base = next_base
        # the position where damage with a known last offset ended, and the offset after that: a lower bound for damage that begins there
        self._damage_behind = -1, -1
        # the first batches after damage: their position, table and offsets
        self.position_behind, self.table_behind = -1, Columns(C.BATCH_WIDTH, ROWS_BEHIND)
        self._claims: list[Claim] = []
        # no plausible batch with this offset or a higher one follows up to the end of the file; the number of searches that found this
        self._exhausted_from, self._exhausted = L.INT64_MAX, 0
        # the batch that the last successful search found, and the lowest offset that was plausible for it
        self._found, self._found_from = -1, L.INT64_MAX

    def restart(self, order: OffsetOrder) -> None:
        """Restart, for a scan that begins again before batches that it has passed."""
        self.order, self._exhausted_from, self._exhausted = order, L.INT64_MAX, 0
        self._found, self._found_from = -1, L.INT64_MAX

    def damage_at(self, position: int, end: int) -> Damage:
        """The damage that begins at `position` (no valid batch starts there), up to the next plausible batch.

        If some of its bytes could not be read, its kind says so, and the zeros after them are not part of it.
        """
        damage = self._damage_at(position, end)
        bad = self._unreadable(position, position + damage.length)
        if not bad:
            return damage
        stop = position + damage.length
        if bad[-1].end < stop == end and self._zeros_to_end(bad[-1].end, end):
            stop = bad[-1].end
        return replace(
            damage, kind="unreadable-batch", length=stop - position, intact_length_bytes=None, flipped=()
        )

    def _damage_at(self, position: int, end: int) -> Damage:
        self._walk.forget_from(position)
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
            return self._damage("zero-filled", position, found, self._walk.valid_offset_at(found, end))
        return self._before_resumption(position, found, end, recorded_end)

    def valid_within(self, position: int, stop: int) -> Iterator[Columns]:
        """Complete valid batches in a span of damage, whatever their offsets: tables of one row. They may be out
        of place, copies, or a record value that looks like a batch."""
        found = self._search_from(position, stop, stop, -L.INT64_MAX - 1, L.INT64_MAX)
        while found is not None:
            table = Columns(C.BATCH_WIDTH, 1)
            self._walk.fill(table, found, stop)
            yield table
            behind = found + table.at(C.SIZE, 0)
            found = self._search_from(behind, stop, stop, -L.INT64_MAX - 1, L.INT64_MAX)

    def first_valid(self, position: int, stop: int) -> int | None:
        """The start of the first valid batch between `position` and `stop` that ends by `stop`: a guess at
        the boundaries of batches, since a record value may look like one."""
        return self._search_from(position, stop, len(self.view), self.base_offset, self._highest_offset())

    # --- the verdicts

    def _corroborated_damage(self, position: int, recorded_end: int, end: int) -> Damage:
        if is_valid_as_magic_2(self.view, position, recorded_end):
            return self._damage(
                "bad-magic", position, recorded_end, self._walk.valid_offset_at(recorded_end, end)
            )
        resumed = self._walk.valid_offset_at(recorded_end, end)
        # zeros are weaker evidence than a batch: they may be the end of one
        reach = recorded_end if resumed is not None else min(end, recorded_end + CHUNK_BYTES)
        true_end = self._search_from(position + 1, reach, end, *self._strict_bounds())
        if true_end is not None and (end_by_length_field(self.view, true_end, end) or 0) > recorded_end:
            return self._before_resumption(position, true_end, end, recorded_end)
        if true_end is None and resumed is None:
            true_end = end
        if true_end is not None and is_intact_when_cut_at(self.view, position, true_end):
            resumed = self._walk.valid_offset_at(true_end, end)
            return self._damage("bad-length", position, true_end, resumed, true_end - position)
        return self._damage("bad-crc", position, recorded_end, resumed)

    def _before_resumption(self, position: int, found: int, end: int, recorded_end: int | None) -> Damage:
        resumed = self._walk.valid_offset_at(found, end)
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
        # a header in the damage has no offset that the segment cannot hold
        most = self._highest_offset() + 1 if most is None else most
        lost = lost_range(self.view, position, stop, lowest, upper, intact_length, (least, most))
        if kind == "zero-tail" and upper is None:
            lost = LostRange(lowest, None, 0)  # nothing was written there
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
            flipped_bits_in(self.view, position, stop) if kind == "bad-crc" else (),
        )

    # --- evidence

    def _corroborated(self, recorded_end: int, end: int) -> bool:
        if recorded_end >= end:
            return recorded_end == end
        if self._walk.valid_offset_at(recorded_end, end) is not None:
            return True
        # a few zeros at the end may belong to the last batch
        return end - recorded_end >= MIN_ZERO_TAIL_BYTES and self._zeros_to_end(recorded_end, end)

    def _zeros_to_end(self, position: int, end: int) -> bool:
        """Whether everything from `position` to `end` is zero and readable."""
        return self._zeros.reach(position, end) and not self._unreadable(position, end)

    def _unreadable(self, position: int, end: int) -> "tuple[BadArea, ...]":
        """The unreadable parts of a range, which the view shows as zeros."""
        return () if self._file is None else self._file.unreadable(position, end)

    # --- the search

    def _search(self, position: int, end: int) -> int | None:
        """The next plausible batch at or after `position` with a valid checksum."""
        lowest, highest = self._strict_bounds()
        if lowest < self._exhausted_from and self._exhausted < MAX_EXHAUSTED_SEARCHES:
            # nothing before the batch found last has such an offset
            begin = max(position, self._found) if lowest >= self._found_from else position
            found = self._search_from(begin, end, end, lowest, highest)
            if found is not None:
                self._found, self._found_from = found, lowest
                run = self._run_below(position, found, end, lowest)
                return found if run is None else run
            # no later search for such offsets can succeed either
            self._exhausted_from, self._exhausted = lowest, self._exhausted + 1
        return self._search_from(position, end, end, 0, L.INT64_MAX)

    def _run_below(self, position: int, stop: int, end: int, lowest: int) -> int | None:
        """The first of several batches that follow one another in the file, with increasing offsets of this segment, and that begin between
        `position` and `stop` with one below `lowest`; None if there are none. They may continue after `stop`, except in the old formats,
        where a record value may end where the batch does."""
        next_base = self._base_behind
        highest = min(lowest, L.INT64_MAX if next_base is None else next_base) - 1
        table = Columns(C.BATCH_WIDTH, MIN_RUN_BATCHES)
        while position < stop:
            found = self._search_from(position, stop, stop, self.base_offset, highest)
            if found is None:
                return None
            is_old = self.view[found + L.MAGIC_POSITION] < L.MAGIC_V2
            self._walk.fill(table, found, stop if is_old else end)
            claims = [claim_of(table, row) for row in range(table.count)]
            is_run = first_invalid(table.cells, table.capacity, table.count) == MIN_RUN_BATCHES
            if is_run and all(before[1] < after[0] for before, after in pairwise(claims)):
                return found
            position = found + max(1, table.at(C.SIZE, 0))
        return None

    def _strict_bounds(self) -> tuple[int, int]:
        least = self.order.least_last_before
        return self.base_offset if least is None else min(least + 1, L.INT64_MAX), self._highest_offset()

    def _bounds(self, stop: int) -> DamageBounds:
        """The offsets around damage that ends at `stop`."""
        next_base = self._base_behind
        limit = self._highest_offset() + 1 if next_base is None else next_base
        return self.order.around(self._claims_behind(stop), limit, next_base)

    def _claims_behind(self, stop: int) -> list[Claim]:
        """The offsets of the next valid batches from `stop` on, where damage ends."""
        if self.position_behind != stop:
            # a scan that continues there reuses the table
            table, end = Columns(C.BATCH_WIDTH, ROWS_BEHIND), len(self.view)
            self._walk.fill(table, stop, end, end)
            valid = first_invalid(table.cells, table.capacity, min(ASKED_BEHIND, table.count))
            self._claims = [claim_of(table, row) for row in range(valid)]
            self.position_behind, self.table_behind = stop, table
        return self._claims

    def _lowest_offset(self, stop: int) -> int:
        """The offset expected first in damage that ends at `stop`."""
        last_before = self._bounds(stop).last_before
        return self.base_offset if last_before is None else last_before + 1

    @cached_property
    def _base_behind(self) -> int | None:
        """The base offset of the next segment, None if there is none."""
        return self._next_base()

    def _highest_offset(self) -> int:
        return min(self.base_offset + L.INT32_MAX, L.INT64_MAX)

    def _search_from(self, position: int, stop: int, end: int, lowest: int, highest: int) -> int | None:
        """The first valid batch that begins at or after `position`, ends at or before `stop`, and has offsets from `lowest` to
        `highest`."""
        for first, until in self._zeros.with_data(position, stop):
            # a batch may begin with the zeros at the end of a hole
            first, limit = max(position, first - L.BATCH_HEADER), () if until == stop else (until,)
            candidate = first_candidate(self.view, first, stop, lowest, highest, *limit)
            while candidate >= 0:
                if self._walk.valid_offset_at(candidate, end) is not None:
                    return candidate
                candidate = first_candidate(self.view, candidate + 1, stop, lowest, highest, *limit)
        return None
