# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Batches of which some records go: what takes their place (fact sheet §8.7; Kafka: MemoryRecords.filterTo).

Of each batch one of four things comes of the tallies that `keymap.judge_rows` left:

    all records stay, magic 2, no delete horizon is due   the batch as it lies: a span of the old file
    some stay, or a horizon is due, or magic 0 or 1        a new batch of magic 2 with the same offsets
    none stays, but the batch is needed                    its header alone, 61 bytes, not compressed
    none stays                                             nothing

A new batch keeps what its header said but for these: base timestamp (the delete horizon when there is one, else the
first record's), maximum timestamp (of the records that stay; with LogAppendTime as before), count, checksum, bit 6. Of
magic 0 and 1 base and last offset are those of the first and the last record that stays.

Short spans are copied to `out` between new batches; a long one is left to the caller, who has better ways. Every batch
of the new file becomes a row of `table` (position, size, last offset, maximum timestamp, count; and while its checksum
is due, VALID −1 and in CRC where in `out` it starts).

`state`: OUT bytes in `out`, SPAN_START and SPAN_END of a span that is not copied yet, POSITION in the new file, ROWS of
`table`, AT record at work, ROW batch at work, BODY_START and BODY_END of a body to be compressed, and counts.
"""

from kseg.segment.kernel import recode, views
from kseg.segment.kernel.checksum import crc_of

(
    S_OUT,
    S_SPAN_START,
    S_SPAN_END,
    S_POSITION,
    S_ROWS,
    S_AT,
    S_ROW,
    S_BODY_START,
    S_BODY_END,
    S_RECORDS,  # kept records
    S_TAKEN,  # batches that stay as they are
    S_REBUILT,
    S_EMPTIED,
    S_DROPPED,
    S_EMPTIED_LEGACY,
) = range(15)
S_WIDTH = 15
P_UPPER, P_HORIZON, P_SHORT, P_PROTECTED = range(4)  # what applies to all: see `emit_rows`
P_WIDTH = 4
ALL, NO_ROOM, SPAN_DUE, PACK_DUE = range(4)


def put_row(table, capacity, state, size, last, max_ms, count, start):
    """A batch of the new file. start: in `out`, −1 for one that stays as it is."""
    row = state[4]
    table[row] = state[3]
    table[capacity + row] = size
    table[4 * capacity + row] = last
    table[5 * capacity + row] = count
    table[8 * capacity + row] = start
    table[10 * capacity + row] = max_ms
    table[14 * capacity + row] = 1 if start < 0 else -1
    state[4] = row + 1
    state[3] = state[3] + size
    state[9] = state[9] + count
    return 0


# --- what becomes of a batch


def base_time(batches, capacity, row, horizon_ms, first_ms):
    if horizon_ms >= 0:
        return horizon_ms
    if batches[6 * capacity + row] & 8 and batches[2 * capacity + row] != 0:
        return batches[10 * capacity + row]
    return first_ms


def horizon_of(batches, capacity, row, tallies, new_horizon_ms):
    """The delete horizon of what a batch becomes; −1 for none."""
    if batches[2 * capacity + row] >= 2 and batches[6 * capacity + row] & 64:
        return batches[9 * capacity + row]
    if tallies[2 * capacity + row] > 0:
        return new_horizon_ms
    return -1


def flush_span(view, out, room, short, state):
    """Copy a pending span to `out`; ALL, or why that is the caller's: SPAN_DUE, NO_ROOM."""
    length = state[2] - state[1]
    if length == 0:
        return 0
    if length > short:
        return 2
    if length > room - state[0]:
        return 1
    state[0] = recode.copied(out, state[0], view, state[1], length)
    state[1] = state[2]
    return 0


def is_protected(protected, count, offset, producer):
    low = 0
    high = count
    while low < high:
        middle = (low + high) >> 1
        if protected[2 * middle] < offset:
            low = middle + 1
        else:
            high = middle
    while low < count and protected[2 * low] == offset:
        if protected[2 * low + 1] == producer:
            return 1
        low = low + 1
    return 0


def is_needed(batches, capacity, row, params, protected):
    """Whether a batch must stay though all of its records go (Kafka: Cleaner.checkBatchRetention)."""
    last = batches[4 * capacity + row]
    if last == params[0] - 1:
        return 1
    producer = batches[11 * capacity + row]
    return producer >= 0 and is_protected(protected, params[3], last, producer)


def take_row(view, batches, capacity, row, out, room, short, table, table_capacity, state):
    # the batch as it lies becomes part of the pending span
    start = batches[row]
    size = batches[capacity + row]
    if state[2] != start:
        due = flush_span(view, out, room, short, state)
        if due != 0:
            return due
        state[1] = start
    state[2] = start + size
    count = batches[5 * capacity + row]
    last = batches[4 * capacity + row]
    put_row(table, table_capacity, state, size, last, batches[10 * capacity + row], count, -1)
    state[10] = state[10] + 1
    return 0


def empty_row(view, batches, capacity, row, tallies, out, room, short, table, table_capacity, state):
    # the header alone
    due = flush_span(view, out, room, short, state)
    if due != 0:
        return due
    o = state[0]
    if room - o < 61:
        return 1
    attributes = batches[6 * capacity + row] & 56
    base = batches[3 * capacity + row]
    if batches[2 * capacity + row] < 2:
        attributes = attributes & 8
        if batches[2 * capacity + row] == 0:
            attributes = 0
        base = tallies[7 * capacity + row]
        state[14] = state[14] + 1
    last = batches[4 * capacity + row]
    max_ms = batches[10 * capacity + row]
    recode.put_batch_header(out, o, 61, base, last, attributes, -1, max_ms, 0, batches, capacity, row)
    put_row(table, table_capacity, state, 61, last, max_ms, 0, o)
    state[0] = o + 61
    state[12] = state[12] + 1
    return 0


def finish(o, end, batches, capacity, row, tallies, new_horizon_ms, out, table, table_capacity, state):
    # the header of a new batch whose body stands in out[o + 61:end]
    attributes = batches[6 * capacity + row] & 63
    base = batches[3 * capacity + row]
    last = batches[4 * capacity + row]
    if batches[2 * capacity + row] < 2:
        attributes = attributes & 15
        if batches[2 * capacity + row] == 0:
            attributes = attributes & 7
        base = tallies[5 * capacity + row]
        last = tallies[6 * capacity + row]
    horizon_ms = horizon_of(batches, capacity, row, tallies, new_horizon_ms)
    base_ms = base_time(batches, capacity, row, horizon_ms, tallies[4 * capacity + row])
    max_ms = tallies[3 * capacity + row]
    if attributes & 8:
        max_ms = batches[10 * capacity + row]
    if horizon_ms >= 0:
        attributes = attributes | 64
    count = tallies[capacity + row]
    size = end - o
    recode.put_batch_header(
        out, o, size, base, last, attributes, base_ms, max_ms, count, batches, capacity, row
    )
    put_row(table, table_capacity, state, size, last, max_ms, count, o)
    state[0] = end
    state[11] = state[11] + 1
    return 0


def stays_whole(batches, capacity, row, tallies):
    kept = tallies[capacity + row]
    if batches[2 * capacity + row] < 2 or kept == 0 or kept != tallies[row]:
        return 0
    return tallies[2 * capacity + row] == 0 or batches[6 * capacity + row] & 64 != 0


def body_of(
    body, end, cells, capacity, count, at, flags, batches, batch_capacity, row, tallies, new_ms, out, o, room
):
    # the body of what batch `row` becomes, as far as this table of records goes
    base = batches[3 * batch_capacity + row]
    if batches[2 * batch_capacity + row] < 2:
        base = tallies[5 * batch_capacity + row]
    horizon_ms = horizon_of(batches, batch_capacity, row, tallies, new_ms)
    base_ms = base_time(batches, batch_capacity, row, horizon_ms, tallies[4 * batch_capacity + row])
    return recode.put_records(body, end, cells, capacity, count, row, at, flags, base, base_ms, out, o, room)


def clear_tallies(tallies, capacity, row, stop):
    """Before rows row … stop − 1 are judged."""
    if row < 0 or stop > capacity or 8 * capacity > len(tallies):
        raise ValueError("there is no room for the tallies")
    while row < stop:
        tallies[row] = 0
        tallies[capacity + row] = 0
        tallies[2 * capacity + row] = 0
        row = row + 1
    return 0


def check_sizes(view, batches, capacity, stop, tallies, params, protected, table, table_capacity, state):
    if stop > capacity or 15 * capacity > len(batches) or 8 * capacity > len(tallies):
        raise ValueError("the rows lie outside their tables")
    if 15 * table_capacity > len(table) or len(state) < 15 or len(params) < 4:
        raise ValueError("a table is smaller than its capacity says")
    if params[3] < 0 or 2 * params[3] > len(protected) or state[6] < 0 or state[5] < 0 or state[0] < 0:
        raise ValueError("the state points outside the tables")
    if state[1] < 0 or state[1] > state[2] or state[2] > len(view):
        raise ValueError("the span lies outside the file")
    return 0


def emit_rows(
    view,
    body,
    cells,
    capacity,
    count,
    flags,
    batches,
    batch_capacity,
    stop,
    tallies,
    params,
    protected,
    out,
    table,
    table_capacity,
    state,
):
    """What becomes of the batches state[ROW] … stop − 1, whose records were judged and begin at state[AT].

    view: the old file. body: what the records' positions mean. params: offset behind the last of the round, delete
    horizon for tombstones that have none, longest span to copy, number of `protected` pairs (last offset, producer), which
    are sorted. Returns ALL; NO_ROOM in `out` or `table`; SPAN_DUE: the pending span is the caller's to write, behind
    `out`; PACK_DUE: out[BODY_START:BODY_END] is to be compressed, `finish_packed` goes on. Then it is called again.
    """
    check_sizes(view, batches, batch_capacity, stop, tallies, params, protected, table, table_capacity, state)
    if count > capacity or 12 * capacity > len(cells) or count > len(flags):
        raise ValueError("a table is smaller than its capacity says")
    old = views.bytes_in(view)
    source = views.bytes_in(body)
    records = views.cells_in(cells)
    rows = views.cells_in(batches)
    sums = views.cells_in(tallies)
    new = views.room_in(out)
    written = views.table_in(table)
    at_work = views.table_in(state)
    room = len(out)
    short = params[2]
    row = state[6]
    due = 0
    while row < stop:
        if state[4] >= table_capacity:
            due = NO_ROOM
            break
        if (
            rows[row] < 0
            or rows[batch_capacity + row] < 0
            or rows[row] > len(view) - rows[batch_capacity + row]
        ):
            raise ValueError("a batch lies outside the file")
        if stays_whole(rows, batch_capacity, row, sums):
            due = take_row(old, rows, batch_capacity, row, new, room, short, written, table_capacity, at_work)
        elif sums[batch_capacity + row] > 0:
            due = flush_span(old, new, room, short, at_work)
            if due == 0:
                o = state[0]
                end = -1
                if room - o >= 61:
                    end = body_of(
                        source,
                        len(body),
                        records,
                        capacity,
                        count,
                        state[5],
                        views.bytes_in(flags),
                        rows,
                        batch_capacity,
                        row,
                        sums,
                        params[1],
                        new,
                        o + 61,
                        room,
                    )
                if end < 0:
                    due = NO_ROOM
                elif rows[6 * batch_capacity + row] & 7:
                    state[7] = o + 61
                    state[8] = end
                    due = PACK_DUE
                else:
                    finish(
                        o,
                        end,
                        rows,
                        batch_capacity,
                        row,
                        sums,
                        params[1],
                        new,
                        written,
                        table_capacity,
                        at_work,
                    )
        elif is_needed(rows, batch_capacity, row, views.cells_in(params), views.cells_in(protected)):
            due = empty_row(
                old, rows, batch_capacity, row, sums, new, room, short, written, table_capacity, at_work
            )
        else:
            state[13] = state[13] + 1
        if due != 0:
            break
        state[5] = state[5] + sums[row]
        row = row + 1
    state[6] = row
    return due


def finish_packed(end, batches, batch_capacity, tallies, params, out, table, table_capacity, state):
    """Go on behind PACK_DUE: the compressed body stands in out[BODY_START:end]."""
    row = state[6]
    if (
        row < 0
        or row >= batch_capacity
        or 15 * batch_capacity > len(batches)
        or 8 * batch_capacity > len(tallies)
    ):
        raise ValueError("the rows lie outside their tables")
    if (
        15 * table_capacity > len(table)
        or state[4] >= table_capacity
        or end > len(out)
        or state[0] > len(out) - 61
    ):
        raise ValueError("there is no room for the batch")
    finish(
        state[0],
        end,
        views.cells_in(batches),
        batch_capacity,
        row,
        views.cells_in(tallies),
        params[1],
        views.room_in(out),
        views.table_in(table),
        table_capacity,
        views.table_in(state),
    )
    state[5] = state[5] + tallies[row]
    state[6] = row + 1
    return 0


def encode_rows(body, cells, capacity, count, flags, batches, batch_capacity, row, tallies, new_ms, out, o):
    """Encode what stays of one table of records of batch `row` to out[o:]; the position behind, −1 when it has no room.

    For a batch with more records than a table: the tallies are of the whole batch, the flags of this table.
    """
    if count > capacity or 12 * capacity > len(cells) or count > len(flags) or o < 0 or o > len(out):
        raise ValueError("a table is smaller than its capacity says")
    if (
        row < 0
        or row >= batch_capacity
        or 15 * batch_capacity > len(batches)
        or 8 * batch_capacity > len(tallies)
    ):
        raise ValueError("the rows lie outside their tables")
    return body_of(
        views.bytes_in(body),
        len(body),
        views.cells_in(cells),
        capacity,
        count,
        0,
        views.bytes_in(flags),
        views.cells_in(batches),
        batch_capacity,
        row,
        views.cells_in(tallies),
        new_ms,
        views.room_in(out),
        o,
        len(out),
    )


def move_rows(
    view,
    batches,
    batch_capacity,
    stop,
    empties,
    tallies,
    params,
    protected,
    out,
    table,
    table_capacity,
    state,
):
    """Batches that are not judged by their records. empties: 0 they stay as they are; 1 their records go, and they do
    unless they are needed; 2 their records go. Returns as `emit_rows`, never PACK_DUE."""
    check_sizes(view, batches, batch_capacity, stop, tallies, params, protected, table, table_capacity, state)
    old = views.bytes_in(view)
    rows = views.cells_in(batches)
    sums = views.cells_in(tallies)
    new = views.room_in(out)
    written = views.table_in(table)
    at_work = views.table_in(state)
    room = len(out)
    short = params[2]
    row = state[6]
    due = 0
    while row < stop:
        if state[4] >= table_capacity:
            due = NO_ROOM
            break
        if (
            rows[row] < 0
            or rows[batch_capacity + row] < 0
            or rows[row] > len(view) - rows[batch_capacity + row]
        ):
            raise ValueError("a batch lies outside the file")
        if empties == 0:
            due = take_row(old, rows, batch_capacity, row, new, room, short, written, table_capacity, at_work)
        elif empties == 2 or is_needed(
            rows, batch_capacity, row, views.cells_in(params), views.cells_in(protected)
        ):
            due = empty_row(
                old, rows, batch_capacity, row, sums, new, room, short, written, table_capacity, at_work
            )
        else:
            state[13] = state[13] + 1
        if due != 0:
            break
        row = row + 1
    state[6] = row
    return due


# --- checksums


def seal_small(out, table, table_capacity, count, limit_bytes, castagnoli):
    """Compute the checksums that are due of batches of at most `limit_bytes`; how many are left."""
    if 15 * table_capacity > len(table) or count > table_capacity or len(castagnoli) != 2048:
        raise ValueError("a table is smaller than its capacity says")
    left = 0
    row = 0
    while row < count:
        if table[14 * table_capacity + row] == -1:
            start = table[8 * table_capacity + row]
            size = table[table_capacity + row]
            if start < 0 or size < 61 or start > len(out) - size:
                raise ValueError("a batch lies outside the buffer")
            if size > limit_bytes:
                left = left + 1
            else:
                recode.put_int(
                    views.room_in(out), start + 17, crc_of(out, start + 21, start + size, castagnoli)
                )
                table[14 * table_capacity + row] = 1
        row = row + 1
    return left


def seal_large(view, out, table, table_capacity, count, castagnoli):
    """Compute those that are left, by a function that gives the CRC-32C of a buffer. view: of `out`, for slices."""
    if 15 * table_capacity > len(table) or count > table_capacity:
        raise ValueError("a table is smaller than its capacity says")
    row = 0
    while row < count:
        if table[14 * table_capacity + row] == -1:
            start = table[8 * table_capacity + row]
            size = table[table_capacity + row]
            if start < 0 or size < 61 or start > len(out) - size:
                raise ValueError("a batch lies outside the buffer")
            crc = castagnoli(view[start + 21 : start + size])
            recode.put_int(views.room_in(out), start + 17, crc)
            table[14 * table_capacity + row] = 1
        row = row + 1
    return 0
