# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""The map of a compaction: for each key the highest offset, and what it says about a table of records.

    slot    hash, first half int64 │ second half int64 │ offset + 1 int64      24 bytes, as in Kafka; all 0 = empty

A key stands in the map as 128 bits of SipHash-1-3 under a secret of the run. Nobody who does not know the secret can
make two keys meet, and n keys meet by chance with a probability below n² / 2^129: 2^-80 for a thousand million keys.
So two keys are never taken for one. (Kafka has MD5 there: whoever can write may choose two keys that meet.)

A slot is searched from where the hash points to, on to the next ones. Where it points to is a random place in memory, and
waiting for one after the other would cost more than all the rest; so the places of a group of records are touched
first, which the processor does for many of them at once.

`map_rows` goes over bodies of batches of magic 2, of which it reads keys and offsets only. `hash_rows`, `put_rows` and
`judge_rows` go over tables of records (`columns`). A secret is two unsigned numbers of 64 bits. What is kept and why:
`compaction.cleaner.cleaning`.
"""

from kseg.segment.kernel import views

SLOT_WIDTH = 3
P_SIZE, P_OFFSET, P_ROW, P_TOUCHED, P_STOPPED = range(5)  # the state of `put_rows` and `map_rows`
P_WIDTH = 5
MAPPED, FULL, BAD = range(3)  # what `map_rows` says
PENDING = 32
(
    T_RECORDS,  # tallies of a batch: its records
    T_KEPT,
    T_TOMBSTONES,  # kept ones without a value, keyed or not
    T_MAX_TIMESTAMP,  # of the kept ones
    T_FIRST_TIMESTAMP,
    T_FIRST_OFFSET,
    T_LAST_OFFSET,
    T_BEGIN,  # the first offset, kept or not
) = range(8)
T_WIDTH = 8
(
    J_INVALID,  # totals: records without a key that go
    J_TOMBSTONES_KEPT,
    J_TOMBSTONES_REMOVED,
    J_LIVE,  # kept at or below the latest offset of the map, with key and value
    J_SUPERSEDED,
    J_SUPERSEDED_BYTES,
    J_TOUCHED,
) = range(7)
J_WIDTH = 7


def as_long(word):
    # the same 64 bits as a signed number
    half = 1
    half = half << 63
    if word >= half:
        return word - half - half
    return word


def word_at(buf, p):
    # eight bytes as a number, the first one lowest; C compilers see one load in it
    high = buf[p + 4] | (buf[p + 5] << 8) | (buf[p + 6] << 16)
    high = high | (as_word(buf[p + 7]) << 24)
    low = buf[p] | (buf[p + 1] << 8) | (buf[p + 2] << 16)
    return low | (as_word(buf[p + 3]) << 24) | (as_word(high) << 32)


def as_word(number):
    return number


def hash_key(body, p, end, first, second, hashes, at):
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


def hash_rows(body, cells, capacity, count, first, second, hashes):
    """The hash of each key of a table of records, in hashes[2 × row] and the one behind it; null keys have none.

    Returns the first row whose key or value lies outside of `body`, `count` when there is none.
    """
    if count > capacity or 12 * capacity > len(cells) or 2 * count > len(hashes):
        raise ValueError("a table is smaller than its capacity says")
    source = views.bytes_in(body)
    size = len(body)
    row = 0
    while row < count:
        start = cells[3 * capacity + row]
        length = cells[4 * capacity + row]
        if length >= 0:
            if start < 0 or start > size - length:
                return row
            hash_key(source, start, start + length, first, second, views.table_in(hashes), 2 * row)
        length = cells[6 * capacity + row]
        if length > 0:
            start = cells[5 * capacity + row]
            if start < 0 or start > size - length:
                return row
        row = row + 1
    return count


def home_of(word, slot_count):
    # the upper 32 bits say where, as a fraction of the map
    low = 0x7FFFFFFF
    low = (low << 1) | 1
    return ((((word >> 32) & low) * slot_count) >> 32) * 3


def find_slot(slots, slot_count, first, second):
    """Where in `slots` the key is, or the empty slot where it would be. One slot at least is always empty."""
    at = home_of(first, slot_count)
    while slots[at + 2] != 0:
        if slots[at] == first and slots[at + 1] == second:
            break
        at = at + 3
        if at >= 3 * slot_count:
            at = 0
    return at


def touched(slots, slot_count, cells, capacity, row, stop, hashes):
    # looks at the slots of several records, so that they are at hand when they are searched
    total = 0
    while row < stop:
        if cells[4 * capacity + row] >= 0:
            total = total ^ slots[home_of(hashes[2 * row], slot_count) + 2]
        row = row + 1
    return total


def put_rows(cells, capacity, row, count, hashes, start_offset, slots, slot_count, limit, state):
    """Put the keyed records `row` … count − 1 at or above `start_offset` into the map; later ones replace earlier ones.

    Stops at the first keyed record that meets `limit` keys in the map, known or not (Kafka: Cleaner.
    buildOffsetMapForSegment); returns its row, `count` when there was room for all. limit: below `slot_count`.
    state: P_SIZE keys in the map, P_OFFSET and P_ROW the last record put and the row of its batch.
    """
    if count > capacity or 12 * capacity > len(cells) or 2 * count > len(hashes) or len(state) < 5:
        raise ValueError("a table is smaller than its capacity says")
    if row < 0 or slot_count < 2 or limit >= slot_count or 3 * slot_count > len(slots):
        raise ValueError("the map is smaller than its capacity says")
    table = views.table_in(slots)
    words = views.table_in(hashes)
    touched_to = row
    while row < count:
        if row == touched_to:
            touched_to = row + 32
            if touched_to > count:
                touched_to = count
            state[3] = touched(table, slot_count, views.table_in(cells), capacity, row, touched_to, words)
        offset = cells[capacity + row]
        if cells[4 * capacity + row] >= 0 and offset >= start_offset:
            if state[0] >= limit:
                return row
            at = find_slot(table, slot_count, words[2 * row], words[2 * row + 1])
            if table[at + 2] == 0:
                table[at] = words[2 * row]
                table[at + 1] = words[2 * row + 1]
                state[0] = state[0] + 1
            table[at + 2] = offset + 1
            state[1] = offset
            state[2] = cells[row]
        row = row + 1
    return count


def put_pending(pending, count, slots, slot_count, limit, state):
    # hash, hash, offset, row of each; 1 when one met a full map
    total = 0
    at = 0
    while at < count:
        total = total ^ slots[home_of(pending[4 * at], slot_count) + 2]
        at = at + 1
    state[3] = total
    at = 0
    while at < count:
        if state[0] >= limit:
            state[4] = pending[4 * at + 3]
            return 1
        place = find_slot(slots, slot_count, pending[4 * at], pending[4 * at + 1])
        if slots[place + 2] == 0:
            slots[place] = pending[4 * at]
            slots[place + 1] = pending[4 * at + 1]
            state[0] = state[0] + 1
        slots[place + 2] = pending[4 * at + 2] + 1
        state[1] = pending[4 * at + 2]
        state[2] = pending[4 * at + 3]
        at = at + 1
    return 0


def map_rows(
    body,
    is_packed,
    row,
    stop,
    batches,
    capacity,
    start_offset,
    first,
    second,
    slots,
    slot_count,
    limit,
    pending,
    state,
):
    """Put the keyed records of batches of magic 2 at or above `start_offset` into the map, as `put_rows` does.

    body: the file in which uncompressed batches lie; with `is_packed` the decompressed body of the one batch `row`.
    pending: room for 4 × PENDING numbers. Returns MAPPED; FULL, and in state[P_STOPPED] the row of the record that met a
    full map; BAD, and there the row of a batch whose records cannot be walked over: those before it are in the map.
    """
    if slot_count < 2 or limit >= slot_count or 3 * slot_count > len(slots) or len(state) < 5:
        raise ValueError("the map is smaller than its capacity says")
    if row < 0 or stop > capacity or 15 * capacity > len(batches) or len(pending) < 128:
        raise ValueError("a table is smaller than its capacity says")
    source = views.bytes_in(body)
    table = views.table_in(slots)
    waiting = views.table_in(pending)
    at_work = views.table_in(state)
    count = 0
    while row < stop:
        p = 0
        end = len(body)
        if not is_packed:
            p = batches[row] + 61
            end = batches[row] + batches[capacity + row]
            if batches[row] < 0 or batches[capacity + row] < 61 or end > len(body):
                raise ValueError("a batch lies outside the buffer")
        records = batches[5 * capacity + row]
        base = batches[3 * capacity + row]
        is_bad = records < 0
        while records > 0:
            packed = views.varint(source, p, end)
            after = p + (packed & 15) + (packed >> 4)
            p = p + (packed & 15) + 1
            if packed == 0 or after < p or after > end:
                is_bad = True
                break
            while p < after and source[p] > 127:  # the timestamp
                p = p + 1
            p = p + 1
            packed = views.varint(source, p, after)
            if packed == 0:
                is_bad = True
                break
            offset = views.add_long(base, packed >> 4)
            p = p + (packed & 15)
            packed = views.varint(source, p, after)
            length = packed >> 4
            p = p + (packed & 15)
            if packed == 0 or length > after - p:
                is_bad = True
                break
            if length >= 0 and offset >= start_offset:
                hash_key(source, p, p + length, first, second, waiting, 4 * count)
                waiting[4 * count + 2] = offset
                waiting[4 * count + 3] = row
                count = count + 1
                if count == 32:
                    if put_pending(waiting, count, table, slot_count, limit, at_work):
                        return FULL
                    count = 0
            p = after
            records = records - 1
        if is_bad or (batches[5 * capacity + row] > 0 and p != end):
            if put_pending(waiting, count, table, slot_count, limit, at_work):
                return FULL
            state[4] = row
            return BAD
        row = row + 1
    if put_pending(waiting, count, table, slot_count, limit, at_work):
        return FULL
    return MAPPED


def judge_rows(
    cells,
    capacity,
    count,
    hashes,
    slots,
    slot_count,
    latest_offset,
    now_ms,
    keeps_legacy,
    batches,
    batch_capacity,
    flags,
    tallies,
    totals,
):
    """Which records of a table stay: flags[row] 1 or 0, and what that makes of their batches.

    latest_offset: what the map reaches to; records above it stay. keeps_legacy: 1 when tombstones of magic 0 and 1
    stay. tallies: columns of `batch_capacity` rows, added to; the caller has set T_RECORDS to 0 for rows not begun.
    """
    if count > capacity or 12 * capacity > len(cells) or 2 * count > len(hashes) or count > len(flags):
        raise ValueError("a table is smaller than its capacity says")
    if slot_count < 2 or 3 * slot_count > len(slots) or 15 * batch_capacity > len(batches):
        raise ValueError("the map is smaller than its capacity says")
    if 8 * batch_capacity > len(tallies) or len(totals) < 7:
        raise ValueError("there is no room for the tallies")
    table = views.table_in(slots)
    words = views.table_in(hashes)
    rows = views.table_in(cells)
    of_batch = views.table_in(tallies)
    row = 0
    touched_to = 0
    while row < count:
        if row == touched_to:
            touched_to = row + 32
            if touched_to > count:
                touched_to = count
            totals[6] = touched(table, slot_count, rows, capacity, row, touched_to, words)
        batch = rows[row]
        if batch < 0 or batch >= batch_capacity:
            raise ValueError("a record belongs to no batch of the table")
        offset = rows[capacity + row]
        has_key = rows[4 * capacity + row] >= 0
        has_value = rows[6 * capacity + row] >= 0
        keep = 1
        if offset <= latest_offset:
            if not has_key:
                keep = 0
                totals[0] = totals[0] + 1
            else:
                at = find_slot(table, slot_count, words[2 * row], words[2 * row + 1])
                if table[at + 2] > offset + 1:
                    keep = 0
                    totals[4] = totals[4] + 1
                    totals[5] = totals[5] + rows[4 * capacity + row]
                    if has_value:
                        totals[5] = totals[5] + rows[6 * capacity + row]
                elif has_value:
                    totals[3] = totals[3] + 1
                elif batches[2 * batch_capacity + batch] < 2:
                    keep = keeps_legacy
                elif batches[6 * batch_capacity + batch] & 64:
                    keep = now_ms < batches[9 * batch_capacity + batch]
        flags[row] = keep
        if has_key and not has_value:
            totals[2 - keep] = totals[2 - keep] + 1
        if of_batch[batch] == 0:
            of_batch[7 * batch_capacity + batch] = offset
            of_batch[batch_capacity + batch] = 0
            of_batch[2 * batch_capacity + batch] = 0
        of_batch[batch] = of_batch[batch] + 1
        if keep:
            timestamp = rows[2 * capacity + row]
            kept = of_batch[batch_capacity + batch]
            if kept == 0:
                of_batch[3 * batch_capacity + batch] = -1
                of_batch[4 * batch_capacity + batch] = timestamp
                of_batch[5 * batch_capacity + batch] = offset
            if timestamp > of_batch[3 * batch_capacity + batch]:
                of_batch[3 * batch_capacity + batch] = timestamp
            of_batch[6 * batch_capacity + batch] = offset
            of_batch[batch_capacity + batch] = kept + 1
            if not has_value:
                of_batch[2 * batch_capacity + batch] = of_batch[2 * batch_capacity + batch] + 1
        row = row + 1
    return 0


def tally_keys(cells, capacity, count, hashes, flags, batches, batch_capacity, segment, sketch, places):
    """Count the values that went, by key, in a sketch of `places`: of the keys with most bytes none is missed.

    sketch: columns hash, hash, weight, bytes, values, segment, position of the batch, offset. A key has one place, which it
    holds as long as the bytes of others there do not outweigh its own; what it had before it came is not counted.
    """
    if count > capacity or 12 * capacity > len(cells) or 2 * count > len(hashes) or count > len(flags):
        raise ValueError("a table is smaller than its capacity says")
    if places < 1 or 8 * places > len(sketch) or 15 * batch_capacity > len(batches):
        raise ValueError("the sketch is smaller than its capacity says")
    row = 0
    while row < count:
        if flags[row] == 0 and cells[4 * capacity + row] >= 0 and cells[6 * capacity + row] >= 0:
            batch = cells[row]
            if batch < 0 or batch >= batch_capacity:
                raise ValueError("a record belongs to no batch of the table")
            weight = cells[4 * capacity + row] + cells[6 * capacity + row] + 1
            at = home_of(hashes[2 * row + 1], places) // 3
            is_known = sketch[at] == hashes[2 * row] and sketch[places + at] == hashes[2 * row + 1]
            if is_known or sketch[2 * places + at] < weight:
                if not is_known:
                    weight = weight - sketch[2 * places + at]
                    sketch[at] = hashes[2 * row]
                    sketch[places + at] = hashes[2 * row + 1]
                    sketch[2 * places + at] = 0
                    sketch[3 * places + at] = 0
                    sketch[4 * places + at] = 0
                    sketch[5 * places + at] = segment
                    sketch[6 * places + at] = batches[batch]
                    sketch[7 * places + at] = cells[capacity + row]
                sketch[2 * places + at] = sketch[2 * places + at] + weight
                sketch[3 * places + at] = (
                    sketch[3 * places + at] + cells[4 * capacity + row] + cells[6 * capacity + row]
                )
                sketch[4 * places + at] = sketch[4 * places + at] + 1
            else:
                sketch[2 * places + at] = sketch[2 * places + at] - weight
        row = row + 1
    return 0
