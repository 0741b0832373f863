# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""The offset map of a compaction: for each key the highest offset.

    slot    hash, first half int64 │ second half int64 │ offset + 1 int64      24 bytes, as in Kafka; all 0 = empty

A key is represented by 128 bits of SipHash-1-3 with a secret of the run. Without the secret it is infeasible to construct two
keys that collide, and n keys collide by chance with a probability below n² / 2^129: about 2^-69 for a billion
keys. So two different keys are never confused. (Kafka uses MD5: a producer could choose two keys that collide.)

The search for a slot starts at the one that the hash selects. That is a random access to memory, and waiting for each access would cost
more than everything else. So the slots of a group of records are prefetched, and the processor loads many of them at once.

`map_rows` reads keys and offsets directly from the bodies of batches of magic 2. `hash_rows` and `put_rows` take tables
of records (`header_tables`). A secret is two unsigned numbers of 64 bits. `key_verdicts` reads the map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access, keymap_probe
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable
MAPPED, FULL, BAD = range(3)  # results of `map_rows`
PENDING = 32


def as_long(word: int) -> int:
    # the same 64 bits as a signed number
    half = 1
    half = half << 63
    if word >= half:
        return word - half - half
    return word


def word_at(buf: Readable, p: int) -> int:
    # eight bytes as a little-endian number; C compilers turn this into one load
    high = buf[p + 4] | (buf[p + 5] << 8) | (buf[p + 6] << 16)
    high = high | (as_word(buf[p + 7]) << 24)
    low = buf[p] | (buf[p + 1] << 8) | (buf[p + 2] << 16)
    return low | (as_word(buf[p + 3]) << 24) | (as_word(high) << 32)


def as_word(number: int) -> int:
    return number


def hash_key(body: Readable, p: int, end: int, first: int, second: int, hashes: Writable, at: int) -> int:
    """SipHash-1-3, 128 bits, of body[p:end] into hashes[at] and hashes[at + 1]."""
    mask = 0x7FFFFFFF  # literals beyond 31 bits would be Python objects
    mask = (mask << 33) | (mask << 2) | 3
    v0 = 0x736F6D65
    v0 = ((v0 << 32) | 0x70736575) ^ first
    v1 = 0x646F7261
    v1 = ((v1 << 32) | 0x6E646F6D) ^ second ^ 238
    v2 = 0x6C796765
    v2 = ((v2 << 32) | 0x6E657261) ^ first
    v3 = 0x74656462
    v3 = ((v3 << 32) | 0x79746573) ^ second
    length = end - p
    words = length >> 3
    step = 0
    while step < words + 7:
        word = 0
        if step < words:
            word = word_at(body, p)
            p = p + 8
        elif step == words:
            n = end - p
            if words and n:  # the last bytes are those of the last eight
                word = word_at(body, end - 8) >> (8 * (8 - n))
            else:
                while n > 0:
                    n = n - 1
                    word = (word << 8) | body[p + n]
            word = word | (as_word(length & 255) << 56)
        elif step == words + 1:
            v2 = v2 ^ 238
        elif step == words + 4:
            hashes[at] = as_long(v0 ^ v1 ^ v2 ^ v3)
            v1 = v1 ^ 221
        v3 = v3 ^ word
        v0 = (v0 + v1) & mask
        v1 = (((v1 << 13) | (v1 >> 51)) & mask) ^ v0
        v0 = ((v0 << 32) | (v0 >> 32)) & mask
        v2 = (v2 + v3) & mask
        v3 = (((v3 << 16) | (v3 >> 48)) & mask) ^ v2
        v0 = (v0 + v3) & mask
        v3 = (((v3 << 21) | (v3 >> 43)) & mask) ^ v0
        v2 = (v2 + v1) & mask
        v1 = (((v1 << 17) | (v1 >> 47)) & mask) ^ v2
        v2 = ((v2 << 32) | (v2 >> 32)) & mask
        v0 = v0 ^ word
        step = step + 1
    hashes[at + 1] = as_long(v0 ^ v1 ^ v2 ^ v3)
    return 0


def hash_rows(
    body: Readable, cells: Readable, capacity: int, count: int, first: int, second: int, hashes: Writable
) -> int:
    """Hash each key of a table of records into hashes[2 × row] and the next word; null keys have no hash.

    Returns the first row whose key or value is outside `body`, `count` if there is none.
    """
    if count > capacity or C.RECORD_WIDTH * capacity > len(cells) or 2 * count > len(hashes):
        raise ValueError("a table is smaller than its capacity says")
    source = buffer_access.bytes_in(body)
    size = len(body)
    for row in range(count):
        start = cells[C.R_KEY_START * capacity + row]
        length = cells[C.R_KEY_LENGTH * capacity + row]
        if length >= 0:
            if start < 0 or start > size - length:
                return row
            hash_key(source, start, start + length, first, second, buffer_access.table_in(hashes), 2 * row)
        length = cells[C.R_VALUE_LENGTH * capacity + row]
        if length > 0:
            start = cells[C.R_VALUE_START * capacity + row]
            if start < 0 or start > size - length:
                return row
    return count


def put_rows(
    cells: Writable,
    capacity: int,
    row: int,
    count: int,
    hashes: Writable,
    start_offset: int,
    slots: Writable,
    slot_count: int,
    limit: int,
    state: Writable,
) -> int:
    """Put the keyed records `row` … count − 1 at or above `start_offset` into the map; later ones replace earlier ones.

    Stops at the first keyed record when the map has `limit` keys, whether or not its key is new (Kafka: Cleaner. buildOffsetMapForSegment);
    returns its row, `count` if there was room for all. limit: below `slot_count`. state: MAP_SIZE number of keys in the map, MAP_OFFSET and
    MAP_ROW the last record put and the row of its batch, MAP_TURNS how often a record was put whose offset is not above the previous one.
    """
    if (
        count > capacity
        or C.RECORD_WIDTH * capacity > len(cells)
        or 2 * count > len(hashes)
        or len(state) < S.MAP_WIDTH
    ):
        raise ValueError("a table is smaller than its capacity says")
    if row < 0 or slot_count < 2 or limit >= slot_count or 3 * slot_count > len(slots):
        raise ValueError("the map is smaller than its capacity says")
    table = buffer_access.table_in(slots)
    words = buffer_access.table_in(hashes)
    touched_to = row
    while row < count:
        if row == touched_to:
            touched_to = row + 32
            if touched_to > count:
                touched_to = count
            state[S.MAP_TOUCHED] = keymap_probe.touched(
                table, slot_count, buffer_access.table_in(cells), capacity, row, touched_to, words
            )
        offset = cells[C.R_OFFSET * capacity + row]
        if cells[C.R_KEY_LENGTH * capacity + row] >= 0 and offset >= start_offset:
            if state[S.MAP_SIZE] >= limit:
                return row
            at = keymap_probe.find_slot(table, slot_count, words[2 * row], words[2 * row + 1])
            if table[at + 2] == 0:
                table[at] = words[2 * row]
                table[at + 1] = words[2 * row + 1]
                state[S.MAP_SIZE] = state[S.MAP_SIZE] + 1
            table[at + 2] = offset + 1
            if offset <= state[S.MAP_OFFSET]:
                state[S.MAP_TURNS] = state[S.MAP_TURNS] + 1
            state[S.MAP_OFFSET] = offset
            state[S.MAP_ROW] = cells[C.R_BATCH * capacity + row]
        row = row + 1
    return count


def move_slots(slots: Writable, slot_count: int, larger: Writable, larger_count: int) -> int:
    """Copy all entries of a map into a larger one, which is empty."""
    if slot_count < 2 or slot_count >= larger_count:
        raise ValueError("the other map is not larger")
    if 3 * slot_count > len(slots) or 3 * larger_count > len(larger):
        raise ValueError("the map is smaller than its capacity says")
    old = buffer_access.table_in(slots)
    new = buffer_access.table_in(larger)
    at = 0
    while at < 3 * slot_count:
        if old[at + 2] != 0:
            place = keymap_probe.find_slot(new, larger_count, old[at], old[at + 1])
            new[place] = old[at]
            new[place + 1] = old[at + 1]
            new[place + 2] = old[at + 2]
        at = at + 3
    return 0


def pack_slots(slots: Readable, slot_count: int, out: Writable) -> int:
    """Copy all entries of a map to `out`, without empty slots; returns their number."""
    if slot_count < 0 or 3 * slot_count > len(slots):
        raise ValueError("the map is smaller than its capacity says")
    table = buffer_access.cells_in(slots)
    room = len(out)
    packed = buffer_access.table_in(out)
    at = 0
    to = 0
    while at < 3 * slot_count:
        if table[at + 2] != 0:
            if to + 3 > room:
                raise ValueError("there is no room for the keys")
            packed[to] = table[at]
            packed[to + 1] = table[at + 1]
            packed[to + 2] = table[at + 2]
            to = to + 3
        at = at + 3
    return to // 3


def put_one(pending: Readable, at: int, slots: Writable, slot_count: int, limit: int, state: Writable) -> int:
    # hash, hash, offset, row; returns 1 if the map is full
    if state[S.MAP_SIZE] >= limit:
        state[S.MAP_STOPPED] = pending[at + 3]
        return 1
    place = keymap_probe.find_slot(slots, slot_count, pending[at], pending[at + 1])
    if slots[place + 2] == 0:
        slots[place] = pending[at]
        slots[place + 1] = pending[at + 1]
        state[S.MAP_SIZE] = state[S.MAP_SIZE] + 1
    slots[place + 2] = pending[at + 2] + 1
    if pending[at + 2] <= state[S.MAP_OFFSET]:
        state[S.MAP_TURNS] = state[S.MAP_TURNS] + 1
    state[S.MAP_OFFSET] = pending[at + 2]
    state[S.MAP_ROW] = pending[at + 3]
    return 0


def put_pending(
    pending: Readable, first: int, count: int, slots: Writable, slot_count: int, limit: int, state: Writable
) -> int:
    # puts the pending ones, in order; returns 1 if the map is full
    while first < count:
        if put_one(pending, 4 * (first & 31), slots, slot_count, limit, state):
            return 1
        first = first + 1
    return 0


def map_rows(
    body: Readable,
    bounds: Readable,
    first_row: int,
    row: int,
    stop: int,
    batches: Readable,
    capacity: int,
    start_offset: int,
    first: int,
    second: int,
    slots: Writable,
    slot_count: int,
    limit: int,
    pending: Writable,
    state: Writable,
) -> int:
    """Put the keyed records of batches of magic 2 at or above `start_offset` into the map, as `put_rows` does.

    body: the file, for uncompressed batches; or, with `bounds`, decompressed bodies: that of batch r is
    body[bounds[2i]:bounds[2i + 1]] with i = r − first_row.
    pending: room for 4 × PENDING numbers. Returns MAPPED; FULL, with the batch row of the record that found the map full in
    state[MAP_STOPPED]; BAD, with the row of a batch whose records cannot be walked there: the previous ones are in the map.
    """
    if slot_count < 2 or limit >= slot_count or 3 * slot_count > len(slots) or len(state) < S.MAP_WIDTH:
        raise ValueError("the map is smaller than its capacity says")
    if (
        row < first_row
        or first_row < 0
        or stop > capacity
        or C.BATCH_WIDTH * capacity > len(batches)
        or len(pending) < 128
    ):
        raise ValueError("a table is smaller than its capacity says")
    is_packed = len(bounds) > 0
    if is_packed and 2 * (stop - first_row) > len(bounds):
        raise ValueError("there are fewer bodies than that")
    source = buffer_access.bytes_in(body)
    table = buffer_access.table_in(slots)
    waiting = buffer_access.table_in(pending)
    at_work = buffer_access.table_in(state)
    count = 0
    done = 0
    while row < stop:
        if is_packed:
            start = bounds[2 * (row - first_row)]
            end = bounds[2 * (row - first_row) + 1]
            p = start
        else:
            start = batches[C.POSITION * capacity + row]
            end = start + batches[C.SIZE * capacity + row]
            p = start + 61
        if start < 0 or p > end or end > len(body):
            raise ValueError("a batch lies outside the buffer")
        records = batches[C.COUNT * capacity + row]
        base = batches[C.BASE_OFFSET * capacity + row]
        is_bad = records < 0
        while records > 0:
            packed = buffer_access.varint(source, p, end)
            after = p + (packed & 15) + (packed >> 4)
            p = p + (packed & 15) + 1
            if packed == 0 or after < p or after > end:
                is_bad = True
                break
            while p < after and source[p] > 127:  # the timestamp
                p = p + 1
            p = p + 1
            packed = buffer_access.varint(source, p, after)
            if packed == 0:
                is_bad = True
                break
            offset = buffer_access.add_long(base, packed >> 4)
            p = p + (packed & 15)
            packed = buffer_access.varint(source, p, after)
            length = packed >> 4
            p = p + (packed & 15)
            if packed == 0 or length > after - p:
                is_bad = True
                break
            if length >= 0 and offset >= start_offset:
                at = 4 * (count & 31)
                if count - done == 32:
                    if put_one(waiting, at, table, slot_count, limit, at_work):
                        return FULL
                    done = done + 1
                hash_key(source, p, p + length, first, second, waiting, at)
                waiting[at + 2] = offset
                waiting[at + 3] = row
                keymap_probe.wanted(table, 3 * keymap_probe.home_of(waiting[at], slot_count))
                count = count + 1
            p = after
            records = records - 1
        if is_bad or (batches[C.COUNT * capacity + row] > 0 and p != end):
            if put_pending(waiting, done, count, table, slot_count, limit, at_work):
                return FULL
            state[S.MAP_STOPPED] = row
            return BAD
        row = row + 1
    if put_pending(waiting, done, count, table, slot_count, limit, at_work):
        return FULL
    return MAPPED
