# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Replaces runs of batches from which records are removed, in one buffer (`filter_batch` handles a single batch).

`state` (REWRITE_…): OUT bytes in `out`, SPAN_START and SPAN_END of a span that is not copied yet, POSITION in the new file, ROWS of
`table`, AT the current record, ROW the current batch, PACKS number of bodies that wait for compression, and counts.

Bodies that need compression are collected in `out`; `packs` has the start, the end and the batch of each. The caller
compresses them all and puts the results into `out`, leaving space for a header before each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access, filter_batch
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable
JUDGED, TAKEN, NOT_NEEDED, EMPTIED = range(4)  # what is known of the batches
ALL, NO_ROOM, SPAN_DUE, PACK_DUE = range(4)
PACK_WIDTH = 3  # start, end, row


def clear_tallies(tallies: Writable, capacity: int, row: int, stop: int) -> int:
    """Prepare the tallies before rows row … stop − 1 are judged."""
    if row < 0 or stop > capacity or C.TALLY_WIDTH * capacity > len(tallies):
        raise ValueError("there is no room for the tallies")
    while row < stop:
        tallies[C.T_RECORDS * capacity + row] = 0
        tallies[C.T_KEPT * capacity + row] = 0
        tallies[C.T_TOMBSTONES * capacity + row] = 0
        row = row + 1
    return 0


def check_sizes(
    view: Readable,
    batches: Readable,
    capacity: int,
    stop: int,
    tallies: Readable,
    params: Readable,
    protected: Readable,
    table: Writable,
    table_capacity: int,
    state: Writable,
) -> int:
    if stop > capacity or C.BATCH_WIDTH * capacity > len(batches) or C.TALLY_WIDTH * capacity > len(tallies):
        raise ValueError("the rows lie outside their tables")
    if (
        C.BATCH_WIDTH * table_capacity > len(table)
        or len(state) < S.REWRITE_WIDTH
        or len(params) < S.RULE_WIDTH
    ):
        raise ValueError("a table is smaller than its capacity says")
    if (
        params[S.RULE_PROTECTED] < 0
        or 2 * params[S.RULE_PROTECTED] > len(protected)
        or state[S.REWRITE_ROW] < 0
        or state[S.REWRITE_AT] < 0
        or state[S.REWRITE_OUT] < 0
    ):
        raise ValueError("the state points outside the tables")
    if (
        state[S.REWRITE_SPAN_START] < 0
        or state[S.REWRITE_SPAN_START] > state[S.REWRITE_SPAN_END]
        or state[S.REWRITE_SPAN_END] > len(view)
    ):
        raise ValueError("the span lies outside the file")
    return 0


def fate(
    known: int,
    batches: Readable,
    capacity: int,
    row: int,
    tallies: Readable,
    params: Readable,
    protected: Readable,
) -> int:
    # the result for a batch: 0 nothing, 1 the unchanged batch, 2 a new one, 3 only its header
    if known == 1:
        return 1
    if known == 3:
        return 3
    if known == 0:
        if filter_batch.stays_whole(batches, capacity, row, tallies):
            return 1
        if tallies[C.T_KEPT * capacity + row] > 0:
            return 2
    return 3 if filter_batch.is_needed(batches, capacity, row, params, protected) else 0


def rewrite_rows(
    view: Readable,
    known: int,
    body: Readable,
    cells: Readable,
    capacity: int,
    count: int,
    flags: bytearray,
    batches: Readable,
    batch_capacity: int,
    stop: int,
    tallies: Readable,
    params: Readable,
    protected: Readable,
    packs: Writable,
    out: bytearray,
    table: Writable,
    table_capacity: int,
    state: Writable,
) -> int:
    """Build the replacements of batches state[REWRITE_ROW] … stop − 1.

    view: the old file. known: JUDGED their records were judged, and begin at state[REWRITE_AT]; TAKEN they stay unchanged; NOT_NEEDED
    all records are removed, and the batches too unless they are needed; EMPTIED only the records are removed. body: the buffer to which the
    records' positions refer. params: offset after the last of the round, delete horizon for tombstones that have none, longest span to
    copy, number of `protected` pairs (last offset, producer), which are sorted.

    Returns ALL; NO_ROOM in `out` or `table`; SPAN_DUE: the caller has to write the pending span, after `out`; PACK_DUE: the caller has to
    compress the state[REWRITE_PACKS] bodies in `packs` and call `finish_packed`. Unless it returns ALL, call it again.
    """
    check_sizes(view, batches, batch_capacity, stop, tallies, params, protected, table, table_capacity, state)
    if count > capacity or C.RECORD_WIDTH * capacity > len(cells) or count > len(flags) or len(packs) < 3:
        raise ValueError("a table is smaller than its capacity says")
    old = buffer_access.bytes_in(view)
    rows = buffer_access.cells_in(batches)
    sums = buffer_access.cells_in(tallies)
    rules = buffer_access.cells_in(params)
    new = buffer_access.room_in(out)
    written = buffer_access.table_in(table)
    at_work = buffer_access.table_in(state)
    room = len(out)
    row = state[S.REWRITE_ROW]
    waiting = 0
    codec = 0
    due = 0
    while row < stop:
        if state[S.REWRITE_ROWS] + waiting >= table_capacity:
            due = NO_ROOM
            break
        if (
            rows[C.POSITION * batch_capacity + row] < 0
            or rows[C.SIZE * batch_capacity + row] < 0
            or rows[C.POSITION * batch_capacity + row] > len(view) - rows[C.SIZE * batch_capacity + row]
        ):
            raise ValueError("a batch lies outside the file")
        becomes = fate(known, rows, batch_capacity, row, sums, rules, buffer_access.cells_in(protected))
        if waiting and becomes == 2 and rows[C.ATTRIBUTES * batch_capacity + row] & C.CODEC_MASK != codec:
            break
        if waiting and becomes & 1:
            break  # its position depends on the pending bodies
        if becomes == 1:
            due = filter_batch.take_row(
                old,
                rows,
                batch_capacity,
                row,
                new,
                room,
                params[S.RULE_SHORT],
                written,
                table_capacity,
                at_work,
            )
        elif becomes == 3:
            due = filter_batch.empty_row(
                old,
                rows,
                batch_capacity,
                row,
                sums,
                new,
                room,
                params[S.RULE_SHORT],
                written,
                table_capacity,
                at_work,
            )
        elif becomes == 0:
            state[S.REWRITE_DROPPED] = state[S.REWRITE_DROPPED] + 1
        elif waiting == 0:
            due = filter_batch.flush_span(old, new, room, params[S.RULE_SHORT], at_work)
        if becomes == 2 and due == 0:
            o = state[S.REWRITE_PACKED_TO] if waiting else state[S.REWRITE_OUT] + 61
            end = -1
            if o <= room and 3 * waiting + 3 <= len(packs):
                end = filter_batch.body_of(
                    buffer_access.bytes_in(body),
                    buffer_access.cells_in(cells),
                    capacity,
                    count,
                    state[S.REWRITE_AT],
                    buffer_access.bytes_in(flags),
                    rows,
                    batch_capacity,
                    row,
                    sums,
                    params[S.RULE_HORIZON],
                    new,
                    o,
                    room,
                )
            codec = rows[C.ATTRIBUTES * batch_capacity + row] & C.CODEC_MASK
            if end < 0:
                due = NO_ROOM
            elif codec:
                packs[3 * waiting] = o
                packs[3 * waiting + 1] = end
                packs[3 * waiting + 2] = row
                waiting = waiting + 1
                state[S.REWRITE_PACKED_TO] = end
            else:
                filter_batch.finish(
                    state[S.REWRITE_OUT],
                    end,
                    rows,
                    batch_capacity,
                    row,
                    sums,
                    params[S.RULE_HORIZON],
                    new,
                    written,
                    table_capacity,
                    at_work,
                )
        if due != 0:
            break
        state[S.REWRITE_AT] = state[S.REWRITE_AT] + sums[C.T_RECORDS * batch_capacity + row]
        row = row + 1
    state[S.REWRITE_ROW] = row
    state[S.REWRITE_PACKS] = waiting
    return PACK_DUE if waiting else due


def finish_packed(
    ends: Readable,
    count: int,
    packs: Readable,
    batches: Readable,
    batch_capacity: int,
    tallies: Readable,
    params: Readable,
    out: bytearray,
    table: Writable,
    table_capacity: int,
    state: Writable,
) -> int:
    """Continue after PACK_DUE. The compressed form of each of `count` bodies ends in out[ends[…]] and begins 61 bytes after
    the end of the previous one, the first one after `out`."""
    if (
        C.BATCH_WIDTH * batch_capacity > len(batches)
        or C.TALLY_WIDTH * batch_capacity > len(tallies)
        or len(params) < S.RULE_WIDTH
    ):
        raise ValueError("the rows lie outside their tables")
    if (
        C.BATCH_WIDTH * table_capacity > len(table)
        or len(state) < S.REWRITE_WIDTH
        or state[S.REWRITE_ROWS] + count > table_capacity
    ):
        raise ValueError("there is no room for the batches")
    if count < 0 or count > len(ends) or 3 * count > len(packs):
        raise ValueError("there are fewer bodies than that")
    for at in range(count):
        row = packs[3 * at + 2]
        if row < 0 or row >= batch_capacity:
            raise ValueError("the rows lie outside their tables")
        if state[S.REWRITE_OUT] < 0 or ends[at] > len(out) or state[S.REWRITE_OUT] > ends[at] - 61:
            raise ValueError("there is no room for the batch")
        filter_batch.finish(
            state[S.REWRITE_OUT],
            ends[at],
            buffer_access.cells_in(batches),
            batch_capacity,
            row,
            buffer_access.cells_in(tallies),
            params[S.RULE_HORIZON],
            buffer_access.room_in(out),
            buffer_access.table_in(table),
            table_capacity,
            buffer_access.table_in(state),
        )
    state[S.REWRITE_PACKS] = 0
    return 0


def encode_rows(
    body: Readable,
    cells: Readable,
    capacity: int,
    count: int,
    flags: bytearray,
    batches: Readable,
    batch_capacity: int,
    row: int,
    tallies: Readable,
    new_ms: int,
    out: bytearray,
    o: int,
) -> int:
    """Encode the kept records of one table of batch `row` to out[o:]; returns the position after them, −1 if the room is short.

    For a batch with more records than a table: the tallies cover the whole batch, the flags only this table.
    """
    if (
        count > capacity
        or C.RECORD_WIDTH * capacity > len(cells)
        or count > len(flags)
        or o < 0
        or o > len(out)
    ):
        raise ValueError("a table is smaller than its capacity says")
    if (
        row < 0
        or row >= batch_capacity
        or C.BATCH_WIDTH * batch_capacity > len(batches)
        or C.TALLY_WIDTH * batch_capacity > len(tallies)
    ):
        raise ValueError("the rows lie outside their tables")
    return filter_batch.body_of(
        buffer_access.bytes_in(body),
        buffer_access.cells_in(cells),
        capacity,
        count,
        0,
        buffer_access.bytes_in(flags),
        buffer_access.cells_in(batches),
        batch_capacity,
        row,
        buffer_access.cells_in(tallies),
        new_ms,
        buffer_access.room_in(out),
        o,
        len(out),
    )


def place_rows(rows: Readable, first: int, count: int, base: int, table: Writable, capacity: int) -> int:
    """Add the rows of batches that another process has written, for the index of the new segment.

    rows: position, size, last offset and maximum timestamp of each. Those from row `first` on become rows 0 … count − 1 of
    `table`, with `base` added to their positions.
    """
    if first < 0 or count < 0 or count > capacity or C.BATCH_WIDTH * capacity > len(table):
        raise ValueError("a table is smaller than its capacity says")
    if 4 * (first + count) > len(rows):
        raise ValueError("there are fewer rows than that")
    at = 4 * first
    for row in range(count):
        table[C.POSITION * capacity + row] = rows[at] + base
        table[C.SIZE * capacity + row] = rows[at + 1]
        table[C.LAST_OFFSET * capacity + row] = rows[at + 2]
        table[C.MAX_TIMESTAMP * capacity + row] = rows[at + 3]
        at = at + 4
    return count


def note_rows(table: Readable, capacity: int, first: int, stop: int, rows: Writable) -> int:
    """Copy rows first … stop − 1 of a table of new batches in the form of `place_rows`; returns how many numbers were written."""
    if first < 0 or first > stop or stop > capacity or C.BATCH_WIDTH * capacity > len(table):
        raise ValueError("a table is smaller than its capacity says")
    if 4 * (stop - first) > len(rows):
        raise ValueError("there is no room for the rows")
    at = 0
    while first < stop:
        rows[at] = table[C.POSITION * capacity + first]
        rows[at + 1] = table[C.SIZE * capacity + first]
        rows[at + 2] = table[C.LAST_OFFSET * capacity + first]
        rows[at + 3] = table[C.MAX_TIMESTAMP * capacity + first]
        at = at + 4
        first = first + 1
    return at
