# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""The checks of `verify` on whole tables: batches against adjacent batches, index entries against batches, records against the
header of their batch.

Every function runs until something needs a closer look and returns its position; valid data costs one call per table. Columns are those of
`kseg.segment.header_tables`; numbers that outlive a call are in `state` (int64), with the fields of `state_fields`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable

# --- neighbours
OFFSET, EPOCH, COUNT, ATTRIBUTES, MAGIC = 1, 2, 4, 8, 16


def header_reasons(cells: Readable, capacity: int, row: int) -> int:
    # what a header with a valid checksum still must not contain
    magic = cells[C.MAGIC * capacity + row]
    attributes = cells[C.ATTRIBUTES * capacity + row]
    if magic < 2:
        return ATTRIBUTES if attributes > 15 or attributes & C.CODEC_MASK > 3 else 0
    reasons = 0
    if magic > 2:
        reasons = MAGIC
    base = cells[C.BASE_OFFSET * capacity + row]
    last = cells[C.LAST_OFFSET * capacity + row]
    count = cells[C.COUNT * capacity + row]
    # a negative offset is reported by the order check, and the difference could overflow
    if last < base or count < 0 or (base >= 0 and count - 1 > last - base):
        reasons = reasons | COUNT
    if attributes < 0 or attributes > 127 or attributes & C.CODEC_MASK > 4:
        reasons = reasons | ATTRIBUTES
    return reasons


def next_suspect(cells: Readable, capacity: int, row: int, count: int, state: Writable) -> int:
    """The first row from `row` on that does not simply follow its predecessor; `count` if all do.

    state: SEEN_LAST, SEEN_EPOCH (−1 = none yet) of the row before, afterwards of the row returned; SEEN_REASONS is the
    reason: OFFSET it does not start above the end of the previous one, EPOCH another leader epoch, COUNT, ATTRIBUTES,
    MAGIC the header contradicts itself or the format. A legacy wrapper is checked by its only offset, the last.
    """
    last = state[S.SEEN_LAST]
    epoch = state[S.SEEN_EPOCH]
    reasons = 0
    while row < count:
        reasons = header_reasons(cells, capacity, row)
        if cells[C.MAGIC * capacity + row] >= 2:
            if cells[C.BASE_OFFSET * capacity + row] <= last:
                reasons = reasons | OFFSET
            found = cells[C.LEADER_EPOCH * capacity + row]
            if found != epoch and found != -1:
                if epoch != -1 or found < -1:
                    reasons = reasons | EPOCH
                epoch = found
        elif cells[C.LAST_OFFSET * capacity + row] <= last:
            reasons = reasons | OFFSET
        last = cells[C.LAST_OFFSET * capacity + row]
        if reasons:
            break
        row = row + 1
    state[S.SEEN_LAST] = last
    state[S.SEEN_EPOCH] = epoch
    state[S.SEEN_REASONS] = reasons
    return row


def tally(cells: Readable, capacity: int, row: int, count: int, now: int, state: Writable) -> int:
    """Add rows `row` … count − 1 to the sums in `state`; returns 0.

    SUM_GAPS, SUM_MISSING: number of places where offsets are missing, and of these offsets (none before a legacy wrapper, whose first
    offset is unknown); the first place in SUM_GAP_POSITION (of the batch after it) and SUM_GAP_OFFSET. SUM_RECORDS: number of declared
    records; SUM_WRAPPERS: of batches that declare none. SUM_FUTURE: of batches whose maximum timestamp is above `now`. SUM_MAGICS: bit m
    for magic m. SUM_CLEANED: number of batches that only a cleaner leaves. SUM_PRODUCERS: of those with a producer id.
    """
    # sums of numbers below this cannot overflow
    largest = 1
    largest = largest << 61
    while row < count:
        magic = cells[C.MAGIC * capacity + row]
        base = cells[C.BASE_OFFSET * capacity + row]
        records = cells[C.COUNT * capacity + row]
        if (
            state[S.SUM_CONTIGUOUS]
            and 0 <= base < largest
            and base > state[S.SUM_LAST] + 1
            and (magic >= 2 or records >= 0)
        ):
            if state[S.SUM_GAPS] == 0:
                state[S.SUM_GAP_POSITION] = cells[C.POSITION * capacity + row]
                state[S.SUM_GAP_OFFSET] = state[S.SUM_LAST] + 1
            state[S.SUM_GAPS] = state[S.SUM_GAPS] + 1
            if state[S.SUM_MISSING] < largest:
                state[S.SUM_MISSING] = state[S.SUM_MISSING] + base - state[S.SUM_LAST] - 1
        state[S.SUM_LAST] = cells[C.LAST_OFFSET * capacity + row]
        state[S.SUM_CONTIGUOUS] = 1 if -2 < state[S.SUM_LAST] < largest else 0
        if records >= 0:
            state[S.SUM_RECORDS] = state[S.SUM_RECORDS] + records
        elif magic < 2:
            state[S.SUM_WRAPPERS] = state[S.SUM_WRAPPERS] + 1
        timestamp = cells[C.MAX_TIMESTAMP * capacity + row]
        if timestamp > state[S.SUM_MAX_TIMESTAMP]:
            state[S.SUM_MAX_TIMESTAMP] = timestamp
        if timestamp > now:
            if state[S.SUM_FUTURE] == 0:
                state[S.SUM_FUTURE_POSITION] = cells[C.POSITION * capacity + row]
                state[S.SUM_FUTURE_OFFSET] = cells[C.LAST_OFFSET * capacity + row]
                state[S.SUM_FUTURE_TIMESTAMP] = timestamp
            state[S.SUM_FUTURE] = state[S.SUM_FUTURE] + 1
        if 0 <= magic <= 2:
            state[S.SUM_MAGICS] = state[S.SUM_MAGICS] | (1 << magic)
        if magic >= 2:
            if records == 0 or cells[C.ATTRIBUTES * capacity + row] & C.DELETE_HORIZON_BIT:
                state[S.SUM_CLEANED] = state[S.SUM_CLEANED] + 1
            if cells[C.PRODUCER_ID * capacity + row] >= 0:
                state[S.SUM_PRODUCERS] = state[S.SUM_PRODUCERS] + 1
        row = row + 1
    return 0


def next_epoch(cells: Readable, capacity: int, row: int, count: int, epoch: int) -> int:
    """The first row from `row` on that has a leader epoch other than `epoch` (−1 counts as none); otherwise `count`."""
    while row < count:
        if (
            cells[C.MAGIC * capacity + row] >= 2
            and cells[C.LEADER_EPOCH * capacity + row] >= 0
            and cells[C.LEADER_EPOCH * capacity + row] != epoch
        ):
            break
        row = row + 1
    return row


# --- indexes

IN_ORDER, MORE, UNSORTED, NO_BATCH, WRONG_OFFSET, FORMER_TOO_HIGH, WRONG_TIMESTAMP, OLD_TIMESTAMP = range(8)


def offset_entries_ordered(entries: Readable, left: int, right: int) -> int:
    # both numbers of an entry increase
    if buffer_access.int_at(entries, 8 * left) >= buffer_access.int_at(entries, 8 * right):
        return 0
    return buffer_access.int_at(entries, 8 * left + 4) < buffer_access.int_at(entries, 8 * right + 4)


def time_entries_ordered(entries: Readable, left: int, right: int) -> int:
    # timestamps increase, offsets do not decrease
    if buffer_access.long_at(entries, 12 * left) >= buffer_access.long_at(entries, 12 * right):
        return 0
    return buffer_access.int_at(entries, 12 * left + 8) <= buffer_access.int_at(entries, 12 * right + 8)


def ordered(entries: Readable, width: int, left: int, right: int) -> int:
    if width == 8:
        return offset_entries_ordered(entries, left, right)
    return time_entries_ordered(entries, left, right)


def check_slots(size: int, width: int, former: int, slot: int, slots: int) -> int:
    slot_size = 8 if width == 8 else 12
    if slot < 0 or slot >= slots or former >= slots or slots > size // slot_size:
        raise ValueError("a slot lies outside the index")
    return 0


def breaks_order(entries: Readable, width: int, former: int, slot: int, slots: int) -> int:
    if former >= 0 and not ordered(entries, width, former, slot):
        return 1
    if slot + 1 >= slots or ordered(entries, width, slot, slot + 1):
        return 0
    # an inverted pair: the second entry is wrong if it does not fit after the former one, the first if it does not fit
    # before the one after the second; if both fit equally, the first is reported
    if former >= 0 and not ordered(entries, width, former, slot + 1):
        return 0
    if (
        slot + 2 < slots
        and ordered(entries, width, slot, slot + 2)
        and not ordered(entries, width, slot + 1, slot + 2)
    ):
        return 0
    return 1


def starts_above(cells: Readable, capacity: int, row: int, former_last: int, offset: int) -> int:
    # whether the batch has only offsets above this one; a legacy wrapper does not contain its first offset
    if cells[C.MAGIC * capacity + row] < 2 and cells[C.COUNT * capacity + row] < 0:
        return offset <= former_last
    return offset < cells[C.BASE_OFFSET * capacity + row]


def next_offset_entry(
    index: Readable, slots: int, base: int, cells: Readable, capacity: int, stop: int, state: Writable
) -> int:
    """Compare offset index entries with the batches in rows state[ENTRY_ROW] … stop − 1; returns why it stopped.

    index: the file. base: of the segment. MORE: the next entry points beyond the last row (call again with the next
    rows and ENTRY_ROW set); IN_ORDER: all entries are done. UNSORTED, NO_BATCH (no batch starts there), WRONG_OFFSET:
    about the slot before state[ENTRY_SLOT]. FORMER_TOO_HIGH: about slot state[ENTRY_FORMER_SLOT]. Correct entries
    are counted by style: ENTRY_EXACT last offset of the batch, ENTRY_FIRST its first, ENTRY_INNER between, ENTRY_BEYOND above it.
    State: ENTRY_SEEN last offset of the row before ENTRY_ROW; ENTRY_FORMER offset of the last valid entry.
    """
    entries = buffer_access.bytes_in(index)
    while state[S.ENTRY_SLOT] < slots:
        slot = state[S.ENTRY_SLOT]
        check_slots(len(index), 8, state[S.ENTRY_FORMER_SLOT], slot, slots)
        if breaks_order(entries, 8, state[S.ENTRY_FORMER_SLOT], slot, slots):
            state[S.ENTRY_SLOT] = slot + 1
            return UNSORTED
        offset = base + buffer_access.int_at(entries, 8 * slot)
        position = buffer_access.int_at(entries, 8 * slot + 4)
        row = state[S.ENTRY_ROW]
        while row < stop and cells[C.POSITION * capacity + row] < position:
            state[S.ENTRY_SEEN] = cells[C.LAST_OFFSET * capacity + row]
            row = row + 1
        state[S.ENTRY_ROW] = row
        if row >= stop:
            return MORE
        state[S.ENTRY_SLOT] = slot + 1
        if cells[C.POSITION * capacity + row] != position:
            return NO_BATCH
        last = cells[C.LAST_OFFSET * capacity + row]
        if starts_above(cells, capacity, row, state[S.ENTRY_SEEN], offset):
            return WRONG_OFFSET
        too_high = state[S.ENTRY_FORMER_SLOT] >= 0 and state[S.ENTRY_FORMER] > state[S.ENTRY_SEEN]
        state[S.ENTRY_FORMER_LAST] = state[S.ENTRY_FORMER_SLOT]
        state[S.ENTRY_FORMER] = offset
        state[S.ENTRY_FORMER_SLOT] = slot
        if offset == last:
            state[S.ENTRY_EXACT] = state[S.ENTRY_EXACT] + 1
        elif offset > last:
            state[S.ENTRY_BEYOND] = state[S.ENTRY_BEYOND] + 1
        elif offset == cells[C.BASE_OFFSET * capacity + row]:
            state[S.ENTRY_FIRST] = state[S.ENTRY_FIRST] + 1
        else:
            state[S.ENTRY_INNER] = state[S.ENTRY_INNER] + 1
        if too_high:
            return FORMER_TOO_HIGH
    return IN_ORDER


def next_time_entry(
    index: Readable, slots: int, base: int, cells: Readable, capacity: int, stop: int, state: Writable
) -> int:
    """Compare time index entries with the batches in rows state[ENTRY_ROW] … stop − 1; returns why it stopped.

    As `next_offset_entry`, with NO_BATCH (the offset is in no batch), WRONG_TIMESTAMP (not the maximum of the batch, or
    an earlier batch has a greater one) and OLD_TIMESTAMP (the batch has no timestamp at all). State: ENTRY_SEEN last
    offset of the row before, ENTRY_FORMER greatest timestamp before ENTRY_ROW.
    """
    entries = buffer_access.bytes_in(index)
    while state[S.ENTRY_SLOT] < slots:
        slot = state[S.ENTRY_SLOT]
        check_slots(len(index), 12, state[S.ENTRY_FORMER_SLOT], slot, slots)
        if breaks_order(entries, 12, state[S.ENTRY_FORMER_SLOT], slot, slots):
            state[S.ENTRY_SLOT] = slot + 1
            return UNSORTED
        timestamp = buffer_access.long_at(entries, 12 * slot)
        offset = base + buffer_access.int_at(entries, 12 * slot + 8)
        row = state[S.ENTRY_ROW]
        while row < stop and cells[C.LAST_OFFSET * capacity + row] < offset:
            state[S.ENTRY_SEEN] = cells[C.LAST_OFFSET * capacity + row]
            if cells[C.MAX_TIMESTAMP * capacity + row] > state[S.ENTRY_FORMER]:
                state[S.ENTRY_FORMER] = cells[C.MAX_TIMESTAMP * capacity + row]
            row = row + 1
        state[S.ENTRY_ROW] = row
        if row >= stop:
            return MORE
        state[S.ENTRY_SLOT] = slot + 1
        state[S.ENTRY_FORMER_SLOT] = slot
        if starts_above(cells, capacity, row, state[S.ENTRY_SEEN], offset):
            return NO_BATCH
        if cells[C.MAGIC * capacity + row] == 0:
            return OLD_TIMESTAMP
        if cells[C.MAX_TIMESTAMP * capacity + row] != timestamp or state[S.ENTRY_FORMER] > timestamp:
            return WRONG_TIMESTAMP
        if offset == cells[C.LAST_OFFSET * capacity + row]:
            state[S.ENTRY_EXACT] = state[S.ENTRY_EXACT] + 1
        else:
            state[S.ENTRY_INNER] = state[S.ENTRY_INNER] + 1
    return IN_ORDER


# --- records
RECORDS_DONE, OUTSIDE, NOT_INCREASING, BAD_MESSAGE_CRC, MAX_TIMESTAMP = range(5)


def next_record(
    records: Readable,
    capacity: int,
    at: int,
    count: int,
    batches: Readable,
    batch_capacity: int,
    state: Writable,
) -> int:
    """Check decoded records `at` … count − 1; returns the first that breaks a rule, and the rule in RECORDS_RULE.

    OUTSIDE the batch's offsets, NOT_INCREASING, BAD_MESSAGE_CRC (inner messages of magic 0 and 1). RECORDS_MAX is the
    greatest timestamp of the current batch, whose row is RECORDS_BATCH (set it to −1 at the start of a table). If the records of
    a batch do not reach its declared maximum (magic 2 only), that is reported at the first record of the next batch:
    MAX_TIMESTAMP, the row in RECORDS_MISSED; the caller checks the last batch of a table (`max_reached`).
    """
    state[S.RECORDS_RULE] = RECORDS_DONE
    while at < count:
        row = records[C.R_BATCH * capacity + at]
        offset = records[C.R_OFFSET * capacity + at]
        if row != state[S.RECORDS_BATCH]:
            former = state[S.RECORDS_BATCH]
            missed = former >= 0 and max_reached(batches, batch_capacity, former, state[S.RECORDS_MAX]) == 0
            state[S.RECORDS_BATCH] = row
            state[S.RECORDS_OFFSET] = -9223372036854775807 - 1
            state[S.RECORDS_MAX] = -9223372036854775807 - 1
            if missed:
                state[S.RECORDS_RULE] = MAX_TIMESTAMP
                state[S.RECORDS_MISSED] = former
                return at
        if records[C.R_TIMESTAMP * capacity + at] > state[S.RECORDS_MAX]:
            state[S.RECORDS_MAX] = records[C.R_TIMESTAMP * capacity + at]
        if batches[C.MAGIC * batch_capacity + row] >= 2 and (
            offset < batches[C.BASE_OFFSET * batch_capacity + row]
            or offset > batches[C.LAST_OFFSET * batch_capacity + row]
        ):
            state[S.RECORDS_RULE] = OUTSIDE
            state[S.RECORDS_OFFSET] = offset
            return at
        if offset <= state[S.RECORDS_OFFSET]:
            state[S.RECORDS_RULE] = NOT_INCREASING
            state[S.RECORDS_OFFSET] = offset
            return at
        state[S.RECORDS_OFFSET] = offset
        if records[C.R_VALID * capacity + at] == 0:
            state[S.RECORDS_RULE] = BAD_MESSAGE_CRC
            return at
        at = at + 1
    return count


def max_reached(batches: Readable, capacity: int, row: int, greatest: int) -> int:
    """1 unless batch `row` is of magic 2 and the greatest timestamp of its records differs from its header. Of records that all have a
    negative timestamp, which a broker accepts, it stores −1 (LogValidator)."""
    if batches[C.MAGIC * capacity + row] < 2 or batches[C.COUNT * capacity + row] <= 0:
        return 1
    declared = batches[C.MAX_TIMESTAMP * capacity + row]
    return 1 if greatest == declared or (greatest < -1 and declared == -1) else 0
