# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Compare two tables of records, each of one copy of a log, offset by offset (`inspection.copies.log_comparison`).

Tables are those of `segment.header_tables`, with the table of batches to which `R_BATCH` refers. The comparison covers every field that a
consumer or a coordinator sees: timestamp, key, value, headers, and of the batch the producer id and epoch, and whether it is transactional
or a control batch. `flags` has a byte for each record: 1 if the other copy does not have the record.

`state` (int64): the current rows in A and B; the first and the last offset to compare (others are skipped); the first offset that
both have in batches of different leader epochs, -1 if none so far; the row of the last batch of A with a record in both (-1 for
none), and the number of its records in both; the number of batches of A of which B has all records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access, keymap_probe
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable
EXHAUSTED, DIFFERENT = range(2)  # results of `compare_rows`


def is_same_field(a: Readable, p: int, b: Readable, q: int, size: int) -> int:
    n = 0
    while n < size and a[p + n] == b[q + n]:
        n = n + 1
    return 1 if n == size else 0


def is_inside(start: int, length: int, size: int) -> int:
    # whether a field that is not null is inside a buffer of this size
    return start >= 0 and start <= size - length


def are_same_headers(a: Readable, p: int, a_end: int, b: Readable, q: int, b_end: int, count: int) -> int:
    # compares `count` headers at p and at q: names and values, not the widths of their encoded lengths
    fields = 2 * count
    while fields > 0:
        packed = buffer_access.varint(a, p, a_end)
        other = buffer_access.varint(b, q, b_end)
        p = p + (packed & 15)
        q = q + (other & 15)
        length = packed >> 4
        if packed == 0 or other == 0 or length != other >> 4:
            return 0
        if length > 0:
            if length > a_end - p or length > b_end - q or not is_same_field(a, p, b, q, length):
                return 0
            p = p + length
            q = q + length
        fields = fields - 1
    return 1


def compare_rows(
    body_a: Readable,
    batches_a: Readable,
    batch_capacity_a: int,
    records_a: Readable,
    capacity_a: int,
    count_a: int,
    body_b: Readable,
    batches_b: Readable,
    batch_capacity_b: int,
    records_b: Readable,
    capacity_b: int,
    count_b: int,
    flags_a: Writable,
    flags_b: Writable,
    state: Writable,
) -> int:
    """Continue until one of the tables is exhausted, or the current rows are different records of one offset."""
    if (
        C.BATCH_WIDTH * batch_capacity_a > len(batches_a)
        or C.BATCH_WIDTH * batch_capacity_b > len(batches_b)
        or len(state) < S.PAIR_WIDTH
    ):
        raise ValueError("a table of batches is smaller than its capacity says")
    if C.RECORD_WIDTH * capacity_a > len(records_a) or C.RECORD_WIDTH * capacity_b > len(records_b):
        raise ValueError("a table of records is smaller than its capacity says")
    if count_a > capacity_a or count_b > capacity_b or count_a > len(flags_a) or count_b > len(flags_b):
        raise ValueError("there are more records than that")
    a = state[S.PAIR_A]
    b = state[S.PAIR_B]
    if a < 0 or b < 0:
        raise ValueError("the rows lie outside the tables")
    first = state[S.PAIR_FIRST]
    last = state[S.PAIR_LAST]
    size_a = len(body_a)
    size_b = len(body_b)
    bytes_a = buffer_access.bytes_in(body_a)
    bytes_b = buffer_access.bytes_in(body_b)
    cells_a = buffer_access.cells_in(records_a)
    cells_b = buffer_access.cells_in(records_b)
    table_a = buffer_access.cells_in(batches_a)
    table_b = buffer_access.cells_in(batches_b)
    result = 0
    while a < count_a and b < count_b:
        offset = cells_a[C.R_OFFSET * capacity_a + a]
        other = cells_b[C.R_OFFSET * capacity_b + b]
        if offset < first or offset > last:
            a = a + 1
        elif other < first or other > last:
            b = b + 1
        elif offset < other:
            flags_a[a] = 1
            a = a + 1
        elif other < offset:
            flags_b[b] = 1
            b = b + 1
        else:
            result = 1
            field = 3
            while field < 7:
                length = cells_a[(field + 1) * capacity_a + a]
                if length != cells_b[(field + 1) * capacity_b + b]:
                    break
                if length > 0:
                    p = cells_a[field * capacity_a + a]
                    q = cells_b[field * capacity_b + b]
                    if not is_inside(p, length, size_a) or not is_inside(q, length, size_b):
                        break
                    if not is_same_field(bytes_a, p, bytes_b, q, length):
                        break
                field = field + 2
            count = cells_a[C.R_HEADER_COUNT * capacity_a + a]
            if field < 7 or count != cells_b[C.R_HEADER_COUNT * capacity_b + b]:
                break
            if cells_a[C.R_TIMESTAMP * capacity_a + a] != cells_b[C.R_TIMESTAMP * capacity_b + b]:
                break
            if cells_a[C.R_SEQUENCE * capacity_a + a] != cells_b[C.R_SEQUENCE * capacity_b + b]:
                break
            if count > 0:
                p = cells_a[C.R_HEADERS_START * capacity_a + a]
                q = cells_b[C.R_HEADERS_START * capacity_b + b]
                if p < 0 or q < 0 or not are_same_headers(bytes_a, p, size_a, bytes_b, q, size_b, count):
                    break
            row = cells_a[C.R_BATCH * capacity_a + a]
            at = cells_b[C.R_BATCH * capacity_b + b]
            if row < 0 or row >= batch_capacity_a or at < 0 or at >= batch_capacity_b:
                raise ValueError("a record belongs to no batch of the table")
            # producer id, its epoch, and the bits of transactional and control batches
            if (
                table_a[C.PRODUCER_ID * batch_capacity_a + row]
                != table_b[C.PRODUCER_ID * batch_capacity_b + at]
            ):
                break
            if (
                table_a[C.PRODUCER_EPOCH * batch_capacity_a + row]
                != table_b[C.PRODUCER_EPOCH * batch_capacity_b + at]
            ):
                break
            if (
                table_a[C.ATTRIBUTES * batch_capacity_a + row] & 48
                != table_b[C.ATTRIBUTES * batch_capacity_b + at] & 48
            ):
                break
            if (
                state[S.PAIR_EPOCHS] < 0
                and table_a[C.LEADER_EPOCH * batch_capacity_a + row]
                != table_b[C.LEADER_EPOCH * batch_capacity_b + at]
            ):
                state[S.PAIR_EPOCHS] = offset
            if row != state[S.PAIR_ROW]:
                state[S.PAIR_ROW] = row
                state[S.PAIR_COMMON] = 0
            state[S.PAIR_COMMON] = state[S.PAIR_COMMON] + 1
            if state[S.PAIR_COMMON] == table_a[C.COUNT * batch_capacity_a + row]:
                state[S.PAIR_WHOLE] = state[S.PAIR_WHOLE] + 1
            result = 0
            a = a + 1
            b = b + 1
    state[S.PAIR_A] = a
    state[S.PAIR_B] = b
    return result


def flag_rest(
    records: Readable, capacity: int, row: int, count: int, first: int, last: int, flags: Writable
) -> int:
    """Flag the records from `row` on whose offsets are `first` to `last`."""
    if C.RECORD_WIDTH * capacity > len(records) or row < 0 or count > capacity or count > len(flags):
        raise ValueError("the table of records is too small")
    while row < count:
        if records[C.R_OFFSET * capacity + row] >= first and records[C.R_OFFSET * capacity + row] <= last:
            flags[row] = 1
        row = row + 1
    return 0


def flagged_range(
    records: Readable, capacity: int, row: int, count: int, flags: Readable, bounds: Writable
) -> int:
    """The next run of flagged records at or after `row` with consecutive offsets: bounds[0] and bounds[1] are its first and its last
    offset, bounds[2] the number of records. Returns the row after it; bounds[2] is 0 if there is none."""
    if (
        C.RECORD_WIDTH * capacity > len(records)
        or row < 0
        or count > capacity
        or count > len(flags)
        or len(bounds) < 3
    ):
        raise ValueError("the table of records is too small")
    while row < count and flags[row] == 0:
        row = row + 1
    bounds[2] = 0
    while row < count and flags[row] != 0:
        offset = records[C.R_OFFSET * capacity + row]
        if bounds[2] == 0:
            bounds[0] = offset
        elif offset != bounds[1] + 1:
            break
        bounds[1] = offset
        bounds[2] = bounds[2] + 1
        row = row + 1
    return row


def unflag_superseded(
    records: Readable,
    capacity: int,
    count: int,
    hashes: Readable,
    slots: Readable,
    slot_count: int,
    by_itself: int,
    flags: Writable,
) -> int:
    """Clear the flag of each keyed record whose key has a higher offset in the map (`keymap`); return the number of remaining flags.

    by_itself: 1 to clear it also if the offset in the map is the record's own.
    """
    if (
        C.RECORD_WIDTH * capacity > len(records)
        or count > capacity
        or count > len(flags)
        or 2 * count > len(hashes)
    ):
        raise ValueError("the table of records is too small")
    if slot_count < 2 or 3 * slot_count > len(slots):
        raise ValueError("the map is smaller than its capacity says")
    table = buffer_access.cells_in(slots)
    remaining = 0
    for row in range(count):
        if flags[row] != 0:
            at = 0
            if records[C.R_KEY_LENGTH * capacity + row] >= 0:
                at = keymap_probe.find_slot(table, slot_count, hashes[2 * row], hashes[2 * row + 1])
                at = table[at + 2]  # one more than the offset, 0 for none
            if at + by_itself > records[C.R_OFFSET * capacity + row] + 1:
                flags[row] = 0
            else:
                remaining = remaining + 1
    return remaining
