"""The scanner: a file becomes batches and damage spans that together account for every byte.

The walk (`kernel.batch_walk`) follows the length fields; the scanner distrusts them. Plan:

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

The four ends that amateurs merge stay apart: clean end, torn end (the writer died), zeros (never written), and
damage. Kinds of damage are ids of the findings catalogue.

Time is linear: a search that failed is remembered and not repeated; behind damage tables start small, so that
little is judged that the next damage throws away; and once as many bytes as the file has were summed in vain,
checksums of long ranges are combined from those of blocks (`range_crc`) in time that does not grow with them.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from kseg.segment import crc
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.files import without_large_holes
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import (
    FULL,
    first_candidate,
    first_invalid,
    highest_offset,
    walk,
    zero_run,
)
from kseg.segment.scanning.crc_verdicts import BatchJudge
from kseg.segment.scanning.lost_offsets import UNKNOWN, LostRange, lost_range
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kseg.segment.files import OpenFile
    from kseg.segment.model import Batch
    from kseg.segment.scanning.prevalidated import Trust
    from kseg.segment.unreadable import BadArea

BATCHES_PER_TABLE = 4096
# Rows of the tables behind damage, growing while nothing is wrong.
ROWS_BEHIND_DAMAGE = (16, 256)
# A small file gets a small table: many of them make a data directory, and memory costs as much as reading them.
_LEAST_ROWS = 16
_BYTES_PER_ROW = 128
REMEMBERED_VERDICTS = 4096
ZEROS_CHUNK_BYTES = 64 * 1024
_ZEROS = bytes(ZEROS_CHUNK_BYTES)
LEAST_ZERO_TAIL_BYTES = 64


@dataclass(frozen=True, slots=True)
class Damage:
    """A span of bytes that is no valid batch.

    kind: id in the findings catalogue (torn-tail, zero-tail, zero-filled, bad-crc, bad-length, bad-magic,
    foreign-bytes, unreadable-batch). position, length: the span. next_offset: the offset expected where it begins (None when no
    batch came before). resumed_offset: base offset of the valid batch found behind it, None at the end of the
    file. claimed_offset: what the first 8 bytes say, None when too few. intact_length_bytes: the batch at
    `position` is whole if its length field is read as this (only that field is damaged). lost: the offsets that the
    damage stands for.
    """

    kind: str
    position: int
    length: int
    next_offset: int | None
    resumed_offset: int | None
    claimed_offset: int | None
    intact_length_bytes: int | None = None
    lost: LostRange = UNKNOWN


def nothing_follows() -> int | None:
    """No next segment is known."""
    return None


def rows_for(size_bytes: int) -> int:
    """How many rows the tables of a log of this size have at most."""
    return min(BATCHES_PER_TABLE, _LEAST_ROWS + size_bytes // _BYTES_PER_ROW)


class Scanner:
    """Scans one segment's bytes. view: the whole file. base_offset: from its name (0 when unknown). trust: what others
    have found, and need not be summed again. file: what the bytes are of; it knows of holes, whose zeros nobody needs to
    read, and of what could not be read. next_base: is asked for the base offset of the next segment where damage reaches
    to the end, None for the last segment.

    `table` holds the batches of the last `fill` or of the block last yielded and is overwritten by the next.
    """

    def __init__(
        self,
        view: "Buffer",
        base_offset: int = 0,
        capacity: int = BATCHES_PER_TABLE,
        trust: "Trust | None" = None,
        *,
        file: "OpenFile | None" = None,
        next_base: Callable[[], int | None] = nothing_follows,
    ) -> None:
        self.view = memoryview(view)
        self._file = file
        self._extents: list[tuple[int, int]] | None = None
        self._next_base = next_base
        # where other damage begins right behind some whose last offset is known, and at least
        self._damage_behind = -1, -1
        self.base_offset = base_offset
        capacity = min(capacity, rows_for(len(self.view)))
        self.table = Columns(C.BATCH_WIDTH, capacity)
        self._growing = [self.table]  # smaller ones come before it at the first damage
        self.next_offset: int | None = None
        self._state = memoryview(array("q", [0, 0]))
        # the last wish (table, position, end, until) and why that walk stopped
        self._walked: tuple[tuple[Columns, int, int, int], int] | None = None
        self._probe: Columns | None = None
        self._exhausted_strict = False
        self._zero_tail = -1, -1
        self._verdicts: dict[int, int | None] = {}
        self._judge = BatchJudge(self.view)
        self._trust = trust

    @classmethod
    def over(
        cls,
        file: "OpenFile",
        base_offset: int = 0,
        capacity: int = BATCHES_PER_TABLE,
        trust: "Trust | None" = None,
        *,
        next_base: Callable[[], int | None] = nothing_follows,
    ) -> Self:
        """A scanner over an open file."""
        return cls(file.view, base_offset, capacity, trust, file=file, next_base=next_base)

    def fill(self, position: int, end: int) -> int:
        """Walk from `position` into the table, as Kafka would, judging every checksum; returns why it stopped."""
        self.table = self._growing[-1]
        return self._fill(self.table, position, end, -1)

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
            self._judge.judge(table)
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

        until: leave out what begins there or behind it.
        """
        stop = len(self.view) if end is None else end
        limit = stop if until is None else min(until, stop)
        position = start
        size = len(self._growing) - 1
        while position < limit:
            self.table = table = self._growing[size]
            position, is_whole = self.fill_valid(table, position, stop, limit)
            size = min(size + 1, len(self._growing) - 1)
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
        """Walk into any table, up to what is no valid batch or to `until`: where that is, whether it may go on there."""
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
        """Behind damage the walk begins with few rows: more damage may follow, and then the rest was in vain."""
        if len(self._growing) == 1:
            capacity = self._growing[0].capacity
            sizes = sorted({min(rows, capacity) for rows in ROWS_BEHIND_DAMAGE} - {capacity})
            self._growing[:0] = [Columns(C.BATCH_WIDTH, rows) for rows in sizes]

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
        self._judge.vain_bytes += max(0, self._state[0] - position)
        if self._zeros_to_end(position, end):
            return self._damage("zero-tail", position, end, None)
        recorded_end = self._recorded_end(position, end)
        if recorded_end is not None and self._corroborated(recorded_end, end):
            return self._corroborated_damage(position, recorded_end, end)
        found = self._search(position + 1, end)
        if found is None:
            if self._intact_when_cut_at(position, end):
                return self._damage("bad-length", position, end, None, end - position)
            return self._damage(self._last_kind(position, end, recorded_end), position, end, None)
        if self._are_zeros(position, found):
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
        if self._valid_as_magic_2(position, recorded_end):
            return self._damage("bad-magic", position, recorded_end, self._valid_offset_at(recorded_end, end))
        resumed = self._valid_offset_at(recorded_end, end)
        # zeros confirm less than a batch does: they may be the end of one
        reach = recorded_end if resumed is not None else min(end, recorded_end + ZEROS_CHUNK_BYTES)
        true_end = self._search_from(position + 1, reach, end, *self._strict_bounds())
        if true_end is not None and (self._recorded_end(true_end, end) or 0) > recorded_end:
            return self._before_resumption(position, true_end, end, recorded_end)
        if true_end is None and resumed is None:
            true_end = end
        if true_end is not None and self._intact_when_cut_at(position, true_end):
            resumed = self._valid_offset_at(true_end, end)
            return self._damage("bad-length", position, true_end, resumed, true_end - position)
        return self._damage("bad-crc", position, recorded_end, resumed)

    def _before_resumption(self, position: int, found: int, end: int, recorded_end: int | None) -> Damage:
        resumed = self._valid_offset_at(found, end)
        if self._intact_when_cut_at(position, found):
            return self._damage("bad-length", position, found, resumed, found - position)
        if recorded_end is not None and recorded_end <= found and self._plausible_start(position, end):
            return self._damage("bad-crc", position, found, resumed)
        kind = "bad-length" if self._plausible_start(position, end) else "foreign-bytes"
        return self._damage(kind, position, found, resumed)

    def _last_kind(self, position: int, end: int, recorded_end: int | None) -> str:
        # nothing believable follows: what is this tail?
        if recorded_end is not None and recorded_end <= end:
            return "bad-crc" if self._plausible_start(position, end) else "foreign-bytes"
        if end - position <= L.HEADER_TO_MAGIC:
            return "torn-tail" if self._offset_fits(position, end) else "foreign-bytes"
        if not self._plausible_start(position, end):
            return "foreign-bytes"
        return "torn-tail" if recorded_end is not None else "bad-length"

    def _damage(
        self, kind: str, position: int, stop: int, resumed: int | None, intact_length: int | None = None
    ) -> Damage:
        readable = position + 8 <= len(self.view)
        claimed = int.from_bytes(self.view[position : position + 8], "big", signed=True) if readable else None
        lowest = self.base_offset if self.next_offset is None else self.next_offset
        if self._damage_behind[0] == position:
            lowest = max(lowest, self._damage_behind[1])
        upper = resumed if resumed is not None or stop < len(self.view) else self._next_base()
        if upper is not None and upper < lowest:
            upper = None  # what follows is out of order, and bounds nothing
        lost = lost_range(self.view, position, stop, lowest, upper, intact_length)
        if kind == "zero-tail" and upper is None:
            lost = LostRange(lowest, None, 0)  # nobody wrote anything there
        if lost.records is not None and lost.last_offset is not None:
            self._damage_behind = stop, lost.last_offset + 1
        return Damage(
            kind, position, stop - position, self.next_offset, resumed, claimed, intact_length, lost
        )

    # --- evidence

    def _recorded_end(self, position: int, end: int) -> int | None:
        """Where the length field at `position` leads; None when there is none or it cannot be a length."""
        if position + L.ENTRY_OVERHEAD > end:
            return None
        size = int.from_bytes(self.view[position + 8 : position + 12], "big", signed=True)
        return None if size < L.MIN_LEGACY_SIZE_FIELD else position + L.ENTRY_OVERHEAD + size

    def _corroborated(self, recorded_end: int, end: int) -> bool:
        if recorded_end >= end:
            return recorded_end == end
        if self._valid_offset_at(recorded_end, end) is not None:
            return True
        # a few zeros at the end may be those of the last batch
        return end - recorded_end >= LEAST_ZERO_TAIL_BYTES and self._zeros_to_end(recorded_end, end)

    def _zeros_to_end(self, position: int, end: int) -> bool:
        """Whether everything from `position` to `end` is zero, and was read as that."""
        if self._zero_tail[0] != end:
            self._zero_tail = end, self._zero_tail_start(end)
        return position >= self._zero_tail[1] and not self.unreadable(position, end)

    def unreadable(self, position: int, end: int) -> "tuple[BadArea, ...]":
        """What of a range could not be read; zeros stand there."""
        return () if self._file is None else self._file.unreadable(position, end)

    def _zero_tail_start(self, end: int) -> int:
        for first, start in reversed(self._with_data(0, end)):
            while start > first:
                chunk = bytes(self.view[max(first, start - ZEROS_CHUNK_BYTES) : start])
                if chunk == _ZEROS:  # ten times as fast as to strip them, and a preallocated segment has many
                    start -= len(chunk)
                    continue
                left = len(chunk.rstrip(b"\0"))
                start -= len(chunk) - left
                if left:
                    return start
        return 0

    def _are_zeros(self, position: int, stop: int) -> bool:
        return all(
            zero_run(self.view, first, until) == until - first
            for first, until in self._with_data(position, stop)
        )

    def _with_data(self, position: int, stop: int) -> list[tuple[int, int]]:
        """(start, end) of what of a range is no large hole."""
        if self._extents is None:
            self._extents = without_large_holes(
                [(0, len(self.view))] if self._file is None else self._file.extents(0, len(self.view))
            )
        found = [(max(start, position), min(end, stop)) for start, end in self._extents]
        return [(start, end) for start, end in found if start < end]

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
        self._judge.vain_bytes += probe.at(C.SIZE, 0)
        self._judge.judge(probe)
        return probe.at(C.BASE_OFFSET, 0) if probe.at(C.VALID, 0) == 1 else None

    def _valid_as_magic_2(self, position: int, stop: int) -> bool:
        return self.view[position + L.MAGIC_POSITION] != L.MAGIC_V2 and self._matches_crc32c(position, stop)

    def _intact_when_cut_at(self, position: int, stop: int) -> bool:
        """Whether position…stop is a batch or message whose checksum is right (the length is outside it)."""
        if stop - position < L.ENTRY_OVERHEAD + L.MIN_LEGACY_SIZE_FIELD:
            return False
        if self.view[position + L.MAGIC_POSITION] >= L.MAGIC_V2:
            return self._matches_crc32c(position, stop)
        crc_at = position + L.ENTRY_OVERHEAD
        stored = int.from_bytes(self.view[crc_at : crc_at + 4], "big")
        return crc.crc32(self.view[position + L.MAGIC_POSITION : stop]) == stored

    def _matches_crc32c(self, position: int, stop: int) -> bool:
        if not L.BATCH_HEADER <= stop - position <= L.INT32_MAX:
            return False
        crc_at = position + L.CRC_POSITION
        stored = int.from_bytes(self.view[crc_at : crc_at + 4], "big")
        return crc.crc32c(self.view[position + L.ATTRIBUTES_POSITION : stop]) == stored

    def _offset_fits(self, position: int, end: int) -> bool:
        """Whether a tail too short for a header begins like the next offset."""
        expected = self.base_offset if self.next_offset is None else self.next_offset
        head = bytes(self.view[position : min(position + 8, end)])
        if len(head) < 8:
            return expected.to_bytes(8, "big", signed=True).startswith(head)
        return expected <= int.from_bytes(head, "big", signed=True) <= expected + L.INT32_MAX

    def _plausible_start(self, position: int, end: int) -> bool:
        if position + L.HEADER_TO_MAGIC > end or self.view[position + L.MAGIC_POSITION] > L.MAGIC_V2:
            return False
        offset = int.from_bytes(self.view[position : position + 8], "big", signed=True)
        lowest = self.base_offset if self.next_offset is None else self.next_offset
        return lowest <= offset <= lowest + L.INT32_MAX

    # --- the search

    def _search(self, position: int, end: int) -> int | None:
        """The next believable batch at or behind `position` whose checksum is right."""
        if not self._exhausted_strict:
            found = self._search_from(position, end, end, *self._strict_bounds())
            if found is not None:
                return found
            # `next_offset` only grows, so no later search with these bounds can succeed either
            self._exhausted_strict = True
        return self._search_from(position, end, end, 0, L.INT64_MAX)

    def _strict_bounds(self) -> tuple[int, int]:
        lowest = self.base_offset if self.next_offset is None else self.next_offset
        return lowest, self._highest_offset()

    def _highest_offset(self) -> int:
        return min(self.base_offset + L.INT32_MAX, L.INT64_MAX)

    def _search_from(self, position: int, stop: int, end: int, lowest: int, highest: int) -> int | None:
        """The first valid batch that begins at or behind `position`, ends at or before `stop` and has such an offset."""
        for first, until in self._with_data(position, stop):
            # a batch may begin with zeros, which end a hole
            first, limit = max(position, first - L.BATCH_HEADER), () if until == stop else (until,)
            candidate = first_candidate(self.view, first, stop, lowest, highest, *limit)
            while candidate >= 0:
                if self._valid_offset_at(candidate, end) is not None:
                    return candidate
                candidate = first_candidate(self.view, candidate + 1, stop, lowest, highest, *limit)
        return None

    def remember_offsets(self, table: Columns, first: int = 0, stop: int | None = None) -> None:
        """Take note of valid batches that lie before everything else that will be looked at."""
        stop = table.count if stop is None else stop
        if first >= stop:
            return
        if first:
            highest = max(table.column(C.LAST_OFFSET)[first:stop])
        else:
            highest = highest_offset(table.cells, table.capacity, stop)
        if highest < L.INT64_MAX and (self.next_offset is None or highest >= self.next_offset):
            self.next_offset = highest + 1

    def catch_up(self, position: int) -> None:
        """Take note of everything before `position`, where nothing is wrong; no checksum is computed."""
        table, reached = Columns(C.BATCH_WIDTH, rows_for(len(self.view))), 0
        state = memoryview(array("q", [0, 0]))
        while reached < position:
            state[0] = reached
            walk(self.view, position, table.cells, table.capacity, state)
            table.count = state[1]
            if not table.count:
                return
            self.remember_offsets(table)
            reached = state[0]

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


def batch_at(table: Columns, row: int) -> "Batch":
    """The row of a table of batches as a value."""
    from kseg.segment.model import Batch  # here, so that work in columns does not wait for it

    at = table.at
    count = at(C.COUNT, row)
    magic = at(C.MAGIC, row)
    return Batch(
        position=at(C.POSITION, row),
        size_bytes=at(C.SIZE, row),
        magic=magic,
        base_offset=at(C.BASE_OFFSET, row),
        last_offset=at(C.LAST_OFFSET, row),
        count=None if magic < L.MAGIC_V2 and count < 0 else count,
        attributes=at(C.ATTRIBUTES, row),
        leader_epoch=at(C.LEADER_EPOCH, row),
        crc=at(C.CRC, row),
        base_timestamp_ms=at(C.BASE_TIMESTAMP, row),
        max_timestamp_ms=at(C.MAX_TIMESTAMP, row),
        producer_id=at(C.PRODUCER_ID, row),
        producer_epoch=at(C.PRODUCER_EPOCH, row),
        base_sequence=at(C.BASE_SEQUENCE, row),
        crc_valid=at(C.VALID, row) == 1,
    )


def scan(
    view: "Buffer", base_offset: int = 0, start: int = 0, end: int | None = None
) -> "Iterator[Batch | Damage]":
    """`Scanner.blocks` one value at a time: convenient where batches are few or looked at one by one."""
    scanner = Scanner(view, base_offset)
    for block in scanner.blocks(start, end):
        if isinstance(block, Damage):
            yield block
        else:
            for row in range(block.count):
                yield batch_at(block, row)
