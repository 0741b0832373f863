# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Exchange of keys between processes: rows of keys for the process that finds the latest record of each, and its answer.

    row     hash, first half int64 │ second half int64 │ offset + 1 int64      24 bytes, a slot of the map (`keymap`)

1. `copy_rows` copies rows from a table of records. `fold_rows` puts rows into a map and returns the offsets of those that
   a later one supersedes; `ask_rows` returns the offsets of rows for which the map has a later one.
2. `scatter_rows` partitions rows by their second half, so that all rows of a key are in one part; `scatter_offsets`
   partitions offsets by ranges of the log.
3. `mark_offsets` sets a bit for each superseded offset, `spare_latest` clears the bits of offsets in a map; `look_up` reads the bits for a
   table of records, in the form that `key_verdicts.judge_rows` expects of a map of two slots: LATER is a key with a later record, 0 one
   without.

Maps and their slots are those of `keymap`. `kseg.spark.shuffle` explains what is kept and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access, keymap_probe
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable
LATER = -(1 << 63)


def touched(slots: Readable, slot_count: int, rows: Readable, at: int, stop: int) -> int:
    # prefetches the slots of several rows before they are searched
    total = 0
    while at < stop:
        total = total ^ slots[3 * keymap_probe.home_of(rows[3 * at], slot_count) + 2]
        at = at + 1
    return total


def copy_rows(
    cells: Readable,
    capacity: int,
    count: int,
    hashes: Readable,
    from_offset: int,
    to_offset: int,
    bound: int,
    state: Writable,
    out: Writable,
) -> int:
    """Append the rows of keyed records with from_offset <= offset < to_offset of a hashed table to `out`.

    Returns `count`, or the first row whose offset is not above all previous ones, or not below `bound`.
    """
    if (
        count > capacity
        or C.RECORD_WIDTH * capacity > len(cells)
        or 2 * count > len(hashes)
        or len(state) < 2
    ):
        raise ValueError("a table is smaller than its capacity says")
    if state[S.COPY_AT] < 0 or 3 * (state[S.COPY_AT] + count) > len(out):
        raise ValueError("there is no room for the rows")
    records = buffer_access.cells_in(cells)
    words = buffer_access.cells_in(hashes)
    rows = buffer_access.table_in(out)
    at = 3 * state[S.COPY_AT]
    last = state[S.COPY_LAST]
    row = 0
    while row < count:
        offset = records[C.R_OFFSET * capacity + row]
        if records[C.R_KEY_LENGTH * capacity + row] >= 0 and offset >= from_offset and offset < to_offset:
            if offset <= last or offset >= bound:
                break
            last = offset
            rows[at] = words[2 * row]
            rows[at + 1] = words[2 * row + 1]
            rows[at + 2] = offset + 1
            at = at + 3
        row = row + 1
    state[S.COPY_AT] = at // 3
    state[S.COPY_LAST] = last
    return row


def fold_rows(
    rows: Readable,
    first: int,
    stop: int,
    slots: Writable,
    slot_count: int,
    limit: int,
    state: Writable,
    gone: Writable,
) -> int:
    """Put rows `first` … stop − 1 into the map, in any order; append the lower of two offsets of a key to `gone`.

    Stops at the first new key when the map has `limit` keys (limit: below `slot_count`); returns its row, or `stop`.
    """
    if first < 0 or first > stop or 3 * stop > len(rows) or len(state) < 3:
        raise ValueError("there are fewer rows than that")
    if slot_count < 2 or limit >= slot_count or 3 * slot_count > len(slots):
        raise ValueError("the map is smaller than its capacity says")
    if state[S.FOLD_GONE] < 0 or state[S.FOLD_GONE] + stop - first > len(gone):
        raise ValueError("there is no room for the offsets")
    source = buffer_access.cells_in(rows)
    table = buffer_access.table_in(slots)
    told = buffer_access.table_in(gone)
    size = state[S.FOLD_SIZE]
    count = state[S.FOLD_GONE]
    row = first
    touched_to = first
    while row < stop:
        if row == touched_to:
            touched_to = row + 32
            if touched_to > stop:
                touched_to = stop
            state[S.FOLD_TOUCHED] = touched(table, slot_count, source, row, touched_to)
        mark = source[3 * row + 2]
        at = keymap_probe.find_slot(table, slot_count, source[3 * row], source[3 * row + 1])
        known = table[at + 2]
        if known == 0:
            if size >= limit:
                break
            table[at] = source[3 * row]
            table[at + 1] = source[3 * row + 1]
            table[at + 2] = mark
            size = size + 1
        elif known < mark:
            table[at + 2] = mark
            told[count] = known - 1
            count = count + 1
        elif known > mark:
            told[count] = mark - 1
            count = count + 1
        row = row + 1
    state[S.FOLD_SIZE] = size
    state[S.FOLD_GONE] = count
    return row


def ask_rows(
    rows: Readable, count: int, slots: Writable, slot_count: int, state: Writable, gone: Writable
) -> int:
    """Append to `gone` the offsets of rows whose keys have a later one in the map."""
    if count < 0 or 3 * count > len(rows) or len(state) < 3:
        raise ValueError("there are fewer rows than that")
    if slot_count < 2 or 3 * slot_count > len(slots):
        raise ValueError("the map is smaller than its capacity says")
    if state[S.FOLD_GONE] < 0 or state[S.FOLD_GONE] + count > len(gone):
        raise ValueError("there is no room for the offsets")
    source = buffer_access.cells_in(rows)
    table = buffer_access.table_in(slots)
    told = buffer_access.table_in(gone)
    found = state[S.FOLD_GONE]
    touched_to = 0
    for row in range(count):
        if row == touched_to:
            touched_to = row + 32
            if touched_to > count:
                touched_to = count
            state[S.FOLD_TOUCHED] = touched(table, slot_count, source, row, touched_to)
        at = keymap_probe.find_slot(table, slot_count, source[3 * row], source[3 * row + 1])
        if table[at + 2] > source[3 * row + 2]:
            told[found] = source[3 * row + 2] - 1
            found = found + 1
    state[S.FOLD_GONE] = found
    return found


def scatter_rows(rows: Readable, count: int, parts: int, bounds: Writable, out: Writable) -> int:
    """Copy the rows that are not empty slots, sorted by part: part p is out[bounds[p]:bounds[p + 1]], in rows. Returns their number."""
    if count < 0 or parts < 1 or 3 * count > len(rows) or parts + 1 > len(bounds):
        raise ValueError("there are fewer rows than that")
    source = buffer_access.cells_in(rows)
    ends = buffer_access.table_in(bounds)
    part = 0
    while part <= parts:
        ends[part] = 0
        part = part + 1
    for row in range(count):
        if source[3 * row + 2] != 0:
            part = keymap_probe.home_of(source[3 * row + 1], parts)
            ends[part] = ends[part] + 1
    total = 0
    part = 0
    while part <= parts:
        number = ends[part]
        ends[part] = total
        total = total + number
        part = part + 1
    if 3 * total > len(out):
        raise ValueError("there is no room for the rows")
    target = buffer_access.table_in(out)
    for row in range(count):
        if source[3 * row + 2] != 0:
            part = keymap_probe.home_of(source[3 * row + 1], parts)
            at = ends[part]
            target[3 * at] = source[3 * row]
            target[3 * at + 1] = source[3 * row + 1]
            target[3 * at + 2] = source[3 * row + 2]
            ends[part] = at + 1
    part = parts
    while (
        part > 0
    ):  # each end was moved down to the start of its own part, which is the end of the previous one
        ends[part] = ends[part - 1]
        part = part - 1
    ends[0] = 0
    return total


def stretch_of(bases: Readable, count: int, offset: int) -> int:
    # the last of the ranges that begin at or below an offset, the first one for offsets below all
    low = 0
    high = count
    while low < high:
        middle = (low + high) >> 1
        if bases[middle] <= offset:
            low = middle + 1
        else:
            high = middle
    if low > 0:
        low = low - 1
    return low


def scatter_offsets(
    offsets: Readable, count: int, bases: Readable, stretches: int, bounds: Writable, out: Writable
) -> int:
    """Sort the offsets by range: those of range s are out[bounds[s]:bounds[s + 1]]. bases: where the ranges begin, ascending."""
    if count < 0 or stretches < 1 or count > len(offsets) or stretches > len(bases):
        raise ValueError("there are fewer offsets than that")
    if stretches + 1 > len(bounds) or count > len(out):
        raise ValueError("there is no room for the offsets")
    source = buffer_access.cells_in(offsets)
    begins = buffer_access.cells_in(bases)
    ends = buffer_access.table_in(bounds)
    target = buffer_access.table_in(out)
    part = 0
    while part <= stretches:
        ends[part] = 0
        part = part + 1
    for row in range(count):
        part = stretch_of(begins, stretches, source[row])
        ends[part] = ends[part] + 1
    total = 0
    part = 0
    while part <= stretches:
        number = ends[part]
        ends[part] = total
        total = total + number
        part = part + 1
    for row in range(count):
        part = stretch_of(begins, stretches, source[row])
        target[ends[part]] = source[row]
        ends[part] = ends[part] + 1
    part = stretches
    while part > 0:
        ends[part] = ends[part - 1]
        part = part - 1
    ends[0] = 0
    return total


def mark_offsets(offsets: Readable, count: int, base: int, bits: Writable) -> int:
    """Set the bit of each offset; the first bit is that of `base`. Returns `count`, or the first row outside the bits."""
    if count < 0 or count > len(offsets):
        raise ValueError("there are fewer offsets than that")
    source = buffer_access.cells_in(offsets)
    marks = buffer_access.room_in(bits)
    room = len(bits)
    for row in range(count):
        place = source[row] - base
        if place < 0 or place >> 3 >= room:
            return row
        marks[place >> 3] = marks[place >> 3] | (1 << (place & 7))
    return count


def spare_latest(slots: Readable, slot_count: int, base: int, bits: Writable) -> int:
    """Clear the bits of the offsets in a map. Returns `slot_count`, or the first slot whose offset has no bit."""
    if slot_count < 0 or 3 * slot_count > len(slots):
        raise ValueError("the map is smaller than its capacity says")
    table = buffer_access.cells_in(slots)
    marks = buffer_access.room_in(bits)
    room = len(bits)
    for slot in range(slot_count):
        if table[3 * slot + 2] != 0:
            place = table[3 * slot + 2] - 1 - base
            if place < 0 or place >> 3 >= room:
                return slot
            marks[place >> 3] = marks[place >> 3] & ~(1 << (place & 7))
    return slot_count


def look_up(
    size: int, cells: Readable, capacity: int, count: int, base: int, bits: Readable, words: Writable
) -> int:
    """Set words[2 × row] of each keyed record: LATER if the bit of its offset is set, otherwise 0; the next word is 0.

    size: of the body of the records, in bytes. Returns the first row whose key or value is outside the body, `count`
    if there is none, as `keymap.hash_rows` does.
    """
    if count > capacity or C.RECORD_WIDTH * capacity > len(cells) or 2 * count > len(words):
        raise ValueError("a table is smaller than its capacity says")
    records = buffer_access.cells_in(cells)
    marks = buffer_access.bytes_in(bits)
    found = buffer_access.table_in(words)
    room = len(bits)
    later = 1
    later = -(later << 62) - (later << 62)
    for row in range(count):
        length = records[C.R_KEY_LENGTH * capacity + row]
        if length >= 0:
            start = records[C.R_KEY_START * capacity + row]
            if start < 0 or start > size - length:
                return row
        length = records[C.R_VALUE_LENGTH * capacity + row]
        if length > 0:
            start = records[C.R_VALUE_START * capacity + row]
            if start < 0 or start > size - length:
                return row
        place = records[C.R_OFFSET * capacity + row] - base
        found[2 * row] = 0
        found[2 * row + 1] = 0
        if place >= 0 and place >> 3 < room and marks[place >> 3] & (1 << (place & 7)):
            found[2 * row] = later
    return count
