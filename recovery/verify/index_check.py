"""Check offset index and time index against the batches of their segment, in one pass with the batches.

Every broker version follows these rules (fact sheet §4.1, §4.2, §4.6), so a violation is an error:

    offset index   offsets and positions increase · a batch starts at the position · its first offset is not above
                   the entry's, and the entry's is not above the last offset before the next entry's batch
    time index     timestamps increase, offsets do not decrease · the offset is in a batch whose maximum timestamp
                   is the entry's, and no earlier batch has a larger one

Versions differ in which offset of its batch an entry has: the first (up to 1.1), the last of the whole append (2.0 to 3.9),
the last (4.x); a time index of 1.x has the offset of the record. Older styles are reported once per file, as `index-entry-old-style`.
An entry whose batch is damaged is not reported; the finding about the batch is enough.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from kseg.recovery.verify.segment_check import SegmentFacts
from kseg.recovery.verify.totals import Totals
from kseg.segment import layout as L
from kseg.segment.counted import counted
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel import verify_records
from kseg.segment.moments import moment
from kseg.segment.unreadable import BadArea
from kseg.segment.values import dataclass

_ZEROS = bytes(64 * 1024)
_MAX_PENDING = 10_000


def used_slots(view: memoryview, width: int, data_end: int | None = None) -> int:
    """The number of slots up to the last one that is not all zeros.

    data_end: a hole in the file begins here, as a broker preallocates 10 MiB for each index of an active segment; it is not read."""
    end = len(view) - len(view) % width
    if data_end is not None:
        end = min(end, data_end)
    while end:
        start = max(0, end - len(_ZEROS))
        piece = bytes(view[start:end])
        if piece != _ZEROS[: end - start]:
            return -(-(start + len(piece.rstrip(b"\x00"))) // width)
        end = start
    return 0


@dataclass(frozen=True, slots=True)
class IndexContext:
    """path: of the index. may_be_preallocated: it belongs to the active segment and the shutdown was not clean,
    so unused slots are legal. may_be_incomplete: likewise, the last time index entry may be missing.
    unreadable: ranges that could not be read so far; they read as zeros, from which nothing follows."""

    path: str
    base_offset: int
    may_be_preallocated: bool = False
    may_be_incomplete: bool = False
    unreadable: Callable[[], Sequence[BadArea]] = tuple


class _IndexCheck:
    """The common part of offset and time index checks: slots, sizes, and the walk alongside the batches. used: how many slots there are up
    to the last one that is not all zeros."""

    WIDTH = 0

    def __init__(
        self, context: IndexContext, view: memoryview, totals: Totals, data_end: int | None = None
    ) -> None:
        self.context = context
        self.view = view
        self.slots = self.used = used_slots(view, self.WIDTH, data_end)
        self._totals = totals
        self._state = memoryview(array("q", bytes(8 * S.ENTRY_WIDTH)))
        self._state[S.ENTRY_FORMER_SLOT] = -1
        self._state[S.ENTRY_SEEN] = context.base_offset - 1
        self._pending: list[tuple[int, int]] = []
        self._bad_slots = 0

    def _report(
        self, kind: str, slot: int, message: str, offset: int | None = None, length: int | None = None
    ) -> Finding:
        position = slot * self.WIDTH
        return Finding(
            kind,
            self.context.path,
            message,
            position=position,
            length=self.WIDTH if length is None else length,
            first_offset=offset,
            numbers={"slot": slot},
        )

    def _walk(
        self, kernel: Callable[..., int], table: Columns, first: int, stop: int
    ) -> Iterator[tuple[int, int]]:
        """The kernel's verdicts (code, slot) for rows first … stop - 1."""
        state = self._state
        state[S.ENTRY_ROW] = first
        while True:
            code = kernel(
                self.view, self.slots, self.context.base_offset, table.cells, table.capacity, stop, state
            )
            if code in (verify_records.IN_ORDER, verify_records.MORE):
                return
            yield code, state[S.ENTRY_SLOT] - 1

    def _defer(self, slot: int, context: int) -> None:
        # only at the end of the segment is it known whether damage explains this; of very many, the first ones are enough
        if len(self._pending) < _MAX_PENDING:
            self._pending.append((slot, context))
        else:
            self._bad_slots += 1

    def _unmatched(self, place_of: Callable[[int], int]) -> Iterator[tuple[int, int]]:
        """The entries without a batch: the deferred ones, and those after the last batch."""
        yield from self._pending
        for slot in range(self._state[S.ENTRY_SLOT], self.slots):
            yield slot, place_of(slot)

    def _sizes(self) -> Iterator[Finding]:
        """Check the end of the file: a partial entry, or slots that were never used."""
        whole = len(self.view) // self.WIDTH
        trailing = len(self.view) % self.WIDTH
        if trailing:
            message = f"the size of {counted(len(self.view), 'byte')} is not a multiple of {self.WIDTH}, the size of an entry"
            yield self._report("index-bad-size", whole, message, length=trailing)
        tail = whole - self.slots
        if tail and not self.context.unreadable():
            kind = "index-preallocated" if self.context.may_be_preallocated else "index-zero-tail"
            message = f"{counted(self.slots, 'entry')} {'is' if self.slots == 1 else 'are'} followed by {counted(tail, 'unused slot')}"
            yield self._report(kind, self.slots, message, length=tail * self.WIDTH)
        damaged = self._bad_slots * self.WIDTH + trailing
        self._totals.account(self.context.path, len(self.view), damaged, tail * self.WIDTH)

    def _old_style(self, counts: dict[str, int]) -> Iterator[Finding]:
        clauses = [f"{number} {what}" for what, number in counts.items() if number]
        if clauses:
            numbers = {
                "entries": self.slots,
                "old_style": sum(counts.values()),
            }
            message = f"of {counted(self.slots, 'entry')}, {', '.join(clauses)}, as older brokers write them"
            yield Finding("index-entry-old-style", self.context.path, message, numbers=numbers)


class OffsetIndexCheck(_IndexCheck):
    """A `Consumer` for one `.index`."""

    WIDTH = L.OFFSET_INDEX_ENTRY

    def take(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        for code, slot in self._walk(verify_records.next_offset_entry, table, first, stop):
            if code == verify_records.NO_BATCH:
                self._defer(slot, self._position(slot))
            else:
                yield self._verdict(code, slot)

    def _verdict(self, code: int, slot: int) -> Finding:
        self._bad_slots += 1
        if self._offset(slot) < self.context.base_offset and slot + 1 == self.slots:
            message = f"the last entry has offset {self._offset(slot)}, below the base offset"
            return self._report("index-below-base", slot, message, self._offset(slot))
        if code == verify_records.UNSORTED:
            return self._report(
                "index-not-sorted", slot, f"entry {slot} does not increase", self._offset(slot)
            )
        if code == verify_records.FORMER_TOO_HIGH:
            slot = self._state[S.ENTRY_FORMER_LAST]
            message = f"entry {slot} has offset {self._offset(slot)}, above the batch of the next entry"
            return self._report("index-entry-mismatch", slot, message, self._offset(slot))
        message = f"entry {slot} has offset {self._offset(slot)}, but the batch at position {self._position(slot)} has higher offsets"
        return self._report("index-entry-mismatch", slot, message, self._offset(slot))

    def finish(self, facts: SegmentFacts) -> Iterator[Finding]:
        run: list[int] = []
        for slot, position in self._unmatched(self._position):
            if facts.is_damaged_at(position):
                continue
            self._bad_slots += 1
            if run and (
                slot != run[-1] + 1 or self._is_beyond(slot, facts) != self._is_beyond(run[-1], facts)
            ):
                yield self._run(run[0], run[-1], facts)
                run = []
            run = [run[0], slot] if run else [slot]
        if run:
            yield self._run(run[0], run[-1], facts)
        yield from self._last_entry(facts)
        state = self._state
        yield from self._old_style(
            {
                "have the first offset of their batch": state[S.ENTRY_FIRST],
                "have an offset inside it": state[S.ENTRY_INNER],
                "have the last offset of several batches": state[S.ENTRY_BEYOND],
            }
        )
        yield from self._sizes()

    def offset_for(self, position: int) -> int | None:
        """The offset of the entry for the batch at `position`, by binary search; None if there is none."""
        slot = bisect_left(range(self.slots), position, key=self._position)
        return self._offset(slot) if slot < self.slots and self._position(slot) == position else None

    def last_positions(self, before: int, count: int) -> list[int]:
        """Positions of the last batches before a position that have an entry, at most `count`."""
        stop = bisect_left(range(self.slots), before, key=self._position)
        return [self._position(slot) for slot in range(max(0, stop - count), stop)]

    def _is_beyond(self, slot: int, facts: SegmentFacts) -> bool:
        return self._position(slot) >= facts.size_bytes

    def _run(self, first: int, last: int, facts: SegmentFacts) -> Finding:
        """One finding for consecutive entries without a batch: inserted or missing bytes shift all that follow."""
        is_beyond = self._is_beyond(first, facts)
        kind = "index-entry-beyond-log" if is_beyond else "index-entry-mismatch"
        which = f"entry {first} points" if first == last else f"entries {first} to {last} point, first"
        where = f"beyond the end of the segment, {facts.size_bytes}" if is_beyond else "where no batch starts"
        message = f"{which} to position {self._position(first)}, {where}"
        return self._report(kind, first, message, self._offset(first), (last - first + 1) * self.WIDTH)

    def _last_entry(self, facts: SegmentFacts) -> Iterator[Finding]:
        slot = self._state[S.ENTRY_FORMER_SLOT]
        if slot < 0 or facts.damage or facts.last_offset is None or self._offset(slot) <= facts.last_offset:
            return
        self._bad_slots += 1
        message = f"entry {slot} has offset {self._offset(slot)}, but the segment ends at {facts.last_offset}"
        yield self._report("index-entry-mismatch", slot, message, self._offset(slot))

    def _offset(self, slot: int) -> int:
        field = self.view[slot * self.WIDTH : slot * self.WIDTH + 4]
        return self.context.base_offset + int.from_bytes(field, "big", signed=True)

    def _position(self, slot: int) -> int:
        return int.from_bytes(self.view[slot * self.WIDTH + 4 : slot * self.WIDTH + 8], "big", signed=True)


class TimeIndexCheck(_IndexCheck):
    """A `Consumer` for one `.timeindex`."""

    WIDTH = L.TIME_INDEX_ENTRY

    def __init__(
        self, context: IndexContext, view: memoryview, totals: Totals, data_end: int | None = None
    ) -> None:
        super().__init__(context, view, totals, data_end)
        if len(view) == self.WIDTH:
            self.slots = 1  # a trimmed index: its all-zero entry has timestamp 0
        self._state[S.ENTRY_FORMER] = L.NO_TIMESTAMP
        self._without_timestamp = 0
        self._wrong = 0

    @property
    def is_of_another_log(self) -> bool:
        """Whether the entries with offsets of the log, as far as it was taken, have timestamps, and none of them that of its batch."""
        return self._wrong > 0 == self._state[S.ENTRY_EXACT] + self._state[S.ENTRY_INNER]

    def take(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        for code, slot in self._walk(verify_records.next_time_entry, table, first, stop):
            if code == verify_records.NO_BATCH:
                self._defer(slot, self._offset(slot))
            elif code == verify_records.OLD_TIMESTAMP:
                self._without_timestamp += 1
            else:
                self._bad_slots += 1
                self._wrong += code == verify_records.WRONG_TIMESTAMP
                yield self._verdict(code, slot)

    def _verdict(self, code: int, slot: int) -> Finding:
        timestamp, offset = self._timestamp(slot), self._offset(slot)
        if code == verify_records.UNSORTED:
            message = f"entry {slot} (timestamp {moment(timestamp)}, offset {offset}) is out of order"
            return self._report("time-index-out-of-order", slot, message, offset)
        message = f"entry {slot} has {moment(timestamp)} as the largest timestamp up to offset {offset}, which is wrong"
        return self._report("time-index-mismatch", slot, message, offset)

    def finish(self, facts: SegmentFacts) -> Iterator[Finding]:
        for slot, offset in self._unmatched(self._offset):
            if facts.damage:
                continue  # its batch may be the one that was lost
            self._bad_slots += 1
            message = f"entry {slot} has offset {offset}, which no batch contains"
            yield self._report("time-index-offset-not-found", slot, message, offset)
        yield from self._completeness(facts)
        yield from self._old_style(
            {
                "have a record that is not the last of its batch": self._state[S.ENTRY_INNER],
                "have a message without a timestamp": self._without_timestamp,
            }
        )
        yield from self._sizes()

    def _completeness(self, facts: SegmentFacts) -> Iterator[Finding]:
        last = self._timestamp(self.slots - 1) if self.slots else L.NO_TIMESTAMP
        if (
            facts.max_timestamp_ms <= last
            or self.context.may_be_incomplete
            or self._bad_slots
            or facts.damage
            or self.context.unreadable()
        ):
            return
        what = f"the last entry has timestamp {moment(last)}" if last >= 0 else "it has no entry"
        message = f"{what}, but the segment's largest timestamp is {moment(facts.max_timestamp_ms)}"
        yield Finding(
            "time-index-incomplete",
            self.context.path,
            message,
            numbers={"indexed_timestamp": last, "max_timestamp": facts.max_timestamp_ms},
        )

    def _timestamp(self, slot: int) -> int:
        return int.from_bytes(self.view[slot * self.WIDTH : slot * self.WIDTH + 8], "big", signed=True)

    def _offset(self, slot: int) -> int:
        field = self.view[slot * self.WIDTH + 8 : slot * self.WIDTH + 12]
        return self.context.base_offset + int.from_bytes(field, "big", signed=True)
