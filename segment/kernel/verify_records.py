# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""The checks of `verify` on whole tables: batches against adjacent batches, index entries against batches, records against the
header of their batch.

Every function runs until something needs a closer look and returns where; valid data costs one call per table.
Columns are those of `kseg.segment.header_tables`; numbers that outlive a call are in `state` (int64); the constants
beside each function name its fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable

# --- neighbours

SEEN_LAST, SEEN_EPOCH, SEEN_REASONS = range(3)
SEEN_WIDTH = 3
OFFSET, EPOCH, COUNT, ATTRIBUTES, MAGIC = 1, 2, 4, 8, 16


def header_reasons(cells: Readable, capacity: int, row: int) -> int:
    # what a header with a right checksum still must not say
    magic = cells[C.MAGIC * capacity + row]
    attributes = cells[C.ATTRIBUTES * capacity + row]
    if magic < 2:
        return ATTRIBUTES if attributes > 15 or attributes & 7 > 3 else 0
    reasons = 0
    if magic > 2:
        reasons = MAGIC
    base = cells[C.BASE_OFFSET * capacity + row]
    last = cells[C.LAST_OFFSET * capacity + row]
    count = cells[C.COUNT * capacity + row]
    # of a negative offset the order tells, and the difference could overflow
    if last < base or count < 0 or (base >= 0 and count - 1 > last - base):
        reasons = reasons | COUNT
    if attributes < 0 or attributes > 127 or attributes & 7 > 4:
        reasons = reasons | ATTRIBUTES
    return reasons


def next_suspect(cells: Readable, capacity: int, row: int, count: int, state: Writable) -> int:
    """The first row from `row` on that does not simply follow its predecessor; `count` when all do.

    state: SEEN_LAST, SEEN_EPOCH (−1 = none yet) of the row before, afterwards of the row returned; SEEN_REASONS
    says why: OFFSET it does not start above the end of the one before, EPOCH another leader epoch, COUNT, ATTRIBUTES,
    MAGIC the header contradicts itself or the format. A legacy wrapper is judged by its only offset, the last.
    """
    last = state[0]
    epoch = state[1]
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
    state[0] = last
    state[1] = epoch
    state[2] = reasons
    return row


(
    T_LAST,
    T_CONTIGUOUS,  # 1 when the next batch is expected right behind T_LAST
    T_GAPS,
    T_MISSING,
    T_GAP_POSITION,
    T_GAP_OFFSET,
    T_RECORDS,
    T_WRAPPERS,
    T_MAX_TIMESTAMP,
    T_FUTURE,
    T_FUTURE_POSITION,
    T_FUTURE_OFFSET,
    T_FUTURE_TIMESTAMP,
    T_MAGICS,
    T_CLEANED,
    T_PRODUCERS,
) = range(16)
T_WIDTH = 16


def tally(cells: Readable, capacity: int, row: int, count: int, now: int, state: Writable) -> int:
    """Add rows `row` … count − 1 to the sums in `state`; returns 0.

    T_GAPS, T_MISSING: places where offsets are missing and how many (before a legacy wrapper none is counted, its
    first offset is unknown); the first of them in T_GAP_POSITION (of the batch behind it) and T_GAP_OFFSET.
    T_RECORDS: declared ones; T_WRAPPERS: batches that declare none. T_FUTURE: batches whose maximum timestamp lies
    above `now`. T_MAGICS: bit m for magic m. T_CLEANED: batches that only a cleaner leaves. T_PRODUCERS: with a
    producer id.
    """
    # sums of what stays below this cannot overflow
    largest = 1
    largest = largest << 61
    while row < count:
        magic = cells[C.MAGIC * capacity + row]
        base = cells[C.BASE_OFFSET * capacity + row]
        records = cells[C.COUNT * capacity + row]
        if state[1] and 0 <= base < largest and base > state[0] + 1 and (magic >= 2 or records >= 0):
            if state[2] == 0:
                state[4] = cells[C.POSITION * capacity + row]
                state[5] = state[0] + 1
            state[2] = state[2] + 1
            if state[3] < largest:
                state[3] = state[3] + base - state[0] - 1
        state[0] = cells[C.LAST_OFFSET * capacity + row]
        state[1] = 1 if -2 < state[0] < largest else 0
        if records >= 0:
            state[6] = state[6] + records
        elif magic < 2:
            state[7] = state[7] + 1
        timestamp = cells[C.MAX_TIMESTAMP * capacity + row]
        if timestamp > state[8]:
            state[8] = timestamp
        if timestamp > now:
            if state[9] == 0:
                state[10] = cells[C.POSITION * capacity + row]
                state[11] = cells[C.LAST_OFFSET * capacity + row]
                state[12] = timestamp
            state[9] = state[9] + 1
        if 0 <= magic <= 2:
            state[13] = state[13] | (1 << magic)
        if magic >= 2:
            if records == 0 or cells[C.ATTRIBUTES * capacity + row] & 64:
                state[14] = state[14] + 1
            if cells[C.PRODUCER_ID * capacity + row] >= 0:
                state[15] = state[15] + 1
        row = row + 1
    return 0


def next_epoch(cells: Readable, capacity: int, row: int, count: int, epoch: int) -> int:
    """The first row from `row` on that has a leader epoch other than `epoch` (−1 counts as none); else `count`."""
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

(I_SLOT, I_ROW, I_SEEN, I_FORMER, I_FORMER_LAST, I_EXACT, I_FIRST, I_INNER, I_BEYOND, I_FORMER_SLOT) = range(
    10
)
I_WIDTH = 10
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
    # an inverted pair: the second is wrong when it does not fit behind the former, the first when it does not fit
    # before what follows the second; when both fit alike, the first is named
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
    # whether the batch holds only offsets above this one; a legacy wrapper does not say where it starts
    if cells[C.MAGIC * capacity + row] < 2 and cells[C.COUNT * capacity + row] < 0:
        return offset <= former_last
    return offset < cells[C.BASE_OFFSET * capacity + row]


def next_offset_entry(
    index: Readable, slots: int, base: int, cells: Readable, capacity: int, stop: int, state: Writable
) -> int:
    """Compare offset index entries with the batches in rows state[I_ROW] … stop − 1; why it stopped.

    index: the file. base: of the segment. MORE: the next entry points behind the last row (call again with the next
    rows and I_ROW set); IN_ORDER: all entries are done. UNSORTED, NO_BATCH (no batch starts there), WRONG_OFFSET:
    about the slot before state[I_SLOT]. FORMER_TOO_HIGH: about slot state[I_FORMER_SLOT]. True entries
    are counted by style: I_EXACT last offset of the batch, I_FIRST its first, I_INNER between, I_BEYOND above it.
    State: I_SEEN last offset of the row before I_ROW; I_FORMER offset of the last sound entry.
    """
    entries = buffer_access.bytes_in(index)
    while state[0] < slots:
        slot = state[0]
        check_slots(len(index), 8, state[9], slot, slots)
        if breaks_order(entries, 8, state[9], slot, slots):
            state[0] = slot + 1
            return UNSORTED
        offset = base + buffer_access.int_at(entries, 8 * slot)
        position = buffer_access.int_at(entries, 8 * slot + 4)
        row = state[1]
        while row < stop and cells[C.POSITION * capacity + row] < position:
            state[2] = cells[C.LAST_OFFSET * capacity + row]
            row = row + 1
        state[1] = row
        if row >= stop:
            return MORE
        state[0] = slot + 1
        if cells[C.POSITION * capacity + row] != position:
            return NO_BATCH
        last = cells[C.LAST_OFFSET * capacity + row]
        if starts_above(cells, capacity, row, state[2], offset):
            return WRONG_OFFSET
        too_high = state[9] >= 0 and state[3] > state[2]
        state[4] = state[9]
        state[3] = offset
        state[9] = slot
        if offset == last:
            state[5] = state[5] + 1
        elif offset > last:
            state[8] = state[8] + 1
        elif offset == cells[C.BASE_OFFSET * capacity + row]:
            state[6] = state[6] + 1
        else:
            state[7] = state[7] + 1
        if too_high:
            return FORMER_TOO_HIGH
    return IN_ORDER


def next_time_entry(
    index: Readable, slots: int, base: int, cells: Readable, capacity: int, stop: int, state: Writable
) -> int:
    """Compare time index entries with the batches in rows state[I_ROW] … stop − 1; why it stopped.

    As `next_offset_entry`, with NO_BATCH (the offset lies in no batch), WRONG_TIMESTAMP (not the batch's maximum, or
    a batch before has a greater one) and OLD_TIMESTAMP (the batch has no timestamp at all). State: I_SEEN last
    offset of the row before, I_FORMER greatest timestamp before I_ROW.
    """
    entries = buffer_access.bytes_in(index)
    while state[0] < slots:
        slot = state[0]
        check_slots(len(index), 12, state[9], slot, slots)
        if breaks_order(entries, 12, state[9], slot, slots):
            state[0] = slot + 1
            return UNSORTED
        timestamp = buffer_access.long_at(entries, 12 * slot)
        offset = base + buffer_access.int_at(entries, 12 * slot + 8)
        row = state[1]
        while row < stop and cells[C.LAST_OFFSET * capacity + row] < offset:
            state[2] = cells[C.LAST_OFFSET * capacity + row]
            if cells[C.MAX_TIMESTAMP * capacity + row] > state[3]:
                state[3] = cells[C.MAX_TIMESTAMP * capacity + row]
            row = row + 1
        state[1] = row
        if row >= stop:
            return MORE
        state[0] = slot + 1
        state[9] = slot
        if starts_above(cells, capacity, row, state[2], offset):
            return NO_BATCH
        if cells[C.MAGIC * capacity + row] == 0:
            return OLD_TIMESTAMP
        if cells[C.MAX_TIMESTAMP * capacity + row] != timestamp or state[3] > timestamp:
            return WRONG_TIMESTAMP
        if offset == cells[C.LAST_OFFSET * capacity + row]:
            state[5] = state[5] + 1
        else:
            state[7] = state[7] + 1
    return IN_ORDER


# --- records

R_BATCH, R_OFFSET, R_MAX, R_RULE, R_MISSED = range(5)
R_STATE_WIDTH = 5
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
    """Run over decoded records `at` … count − 1; the number of the first that breaks a rule, with R_RULE the rule.

    OUTSIDE the batch's offsets, NOT_INCREASING, BAD_MESSAGE_CRC (inner messages of magic 0 and 1). R_MAX is the
    greatest timestamp of the batch at work, whose row is R_BATCH (set it to −1 at the start of a table). That a
    batch's records did not have its declared maximum (magic 2 only) is told at the first record of the batch behind
    it: MAX_TIMESTAMP, the row in R_MISSED; the last batch of a table is the caller's (`max_reached`).
    """
    state[3] = RECORDS_DONE
    while at < count:
        row = records[C.R_BATCH * capacity + at]
        offset = records[C.R_OFFSET * capacity + at]
        if row != state[0]:
            former = state[0]
            missed = former >= 0 and max_reached(batches, batch_capacity, former, state[2]) == 0
            state[0] = row
            state[1] = -9223372036854775807 - 1
            state[2] = -9223372036854775807 - 1
            if missed:
                state[3] = MAX_TIMESTAMP
                state[4] = former
                return at
        if records[C.R_TIMESTAMP * capacity + at] > state[2]:
            state[2] = records[C.R_TIMESTAMP * capacity + at]
        if batches[C.MAGIC * batch_capacity + row] >= 2 and (
            offset < batches[C.BASE_OFFSET * batch_capacity + row]
            or offset > batches[C.LAST_OFFSET * batch_capacity + row]
        ):
            state[3] = OUTSIDE
            state[1] = offset
            return at
        if offset <= state[1]:
            state[3] = NOT_INCREASING
            state[1] = offset
            return at
        state[1] = offset
        if records[C.R_VALID * capacity + at] == 0:
            state[3] = BAD_MESSAGE_CRC
            return at
        at = at + 1
    return count


def max_reached(batches: Readable, capacity: int, row: int, greatest: int) -> int:
    """1 unless batch `row` is of magic 2 and its records' greatest timestamp is not what its header says."""
    if batches[C.MAGIC * capacity + row] < 2 or batches[C.COUNT * capacity + row] <= 0:
        return 1
    return 1 if greatest == batches[C.MAX_TIMESTAMP * capacity + row] else 0
