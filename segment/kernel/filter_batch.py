# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Builds the replacement of one batch from which records are removed (fact sheet §8.7; Kafka: MemoryRecords.filterTo).

The tallies of `key_verdicts.judge_rows` select one of four results:

    all records stay, magic 2, no delete horizon is due   the unchanged batch: a span of the old file
    some stay, or a horizon is due, or magic 0 or 1        a new batch of magic 2 with the same offsets
    none stays, but the batch is needed                    only its header, 61 bytes, not compressed
    none stays                                             nothing

A new batch keeps the fields of its header except base timestamp (the delete horizon if there is one, else the first
record's), maximum timestamp (of the records that stay; unchanged with LogAppendTime), count, checksum and bit 6. With
magic 0 and 1, base and last offset become those of the first and the last record that stays.

Short spans are copied to `out` between new batches; long ones are left to the caller, which copies them faster. Every
batch of the new file becomes a row of `table` (position, size, last offset, maximum timestamp, count; until its
checksum is computed, VALID is −1 and CRC is its position in `out`).

`filter_batches` applies these functions to runs of batches; it also names the fields of `state` and of `params`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import batch_encode, buffer_access
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def put_row(
    table: Writable, capacity: int, state: Writable, size: int, last: int, max_ms: int, count: int, start: int
) -> int:
    """Add a batch of the new file. start: position in `out`, −1 for an unchanged batch."""
    row = state[S.REWRITE_ROWS]
    table[C.POSITION * capacity + row] = state[S.REWRITE_POSITION]
    table[C.SIZE * capacity + row] = size
    table[C.LAST_OFFSET * capacity + row] = last
    table[C.COUNT * capacity + row] = count
    table[C.CRC * capacity + row] = start
    table[C.MAX_TIMESTAMP * capacity + row] = max_ms
    table[C.VALID * capacity + row] = 1 if start < 0 else -1
    state[S.REWRITE_ROWS] = row + 1
    state[S.REWRITE_POSITION] = state[S.REWRITE_POSITION] + size
    state[S.REWRITE_RECORDS] = state[S.REWRITE_RECORDS] + count
    return 0


def base_time(batches: Readable, capacity: int, row: int, horizon_ms: int, first_ms: int) -> int:
    if horizon_ms >= 0:
        return horizon_ms
    if (
        batches[C.ATTRIBUTES * capacity + row] & C.TIMESTAMP_TYPE_BIT
        and batches[C.MAGIC * capacity + row] != 0
    ):
        return batches[C.MAX_TIMESTAMP * capacity + row]
    return first_ms


def horizon_of(batches: Readable, capacity: int, row: int, tallies: Readable, new_horizon_ms: int) -> int:
    """The delete horizon of the resulting batch; −1 for none."""
    if (
        batches[C.MAGIC * capacity + row] >= 2
        and batches[C.ATTRIBUTES * capacity + row] & C.DELETE_HORIZON_BIT
    ):
        return batches[C.BASE_TIMESTAMP * capacity + row]
    if tallies[C.T_TOMBSTONES * capacity + row] > 0:
        return new_horizon_ms
    return -1


def stays_whole(batches: Readable, capacity: int, row: int, tallies: Readable) -> int:
    kept = tallies[C.T_KEPT * capacity + row]
    if batches[C.MAGIC * capacity + row] < 2 or kept == 0 or kept != tallies[C.T_RECORDS * capacity + row]:
        return 0
    return (
        tallies[C.T_TOMBSTONES * capacity + row] == 0
        or batches[C.ATTRIBUTES * capacity + row] & C.DELETE_HORIZON_BIT != 0
    )


def flush_span(view: Readable, out: Writable, room: int, short: int, state: Writable) -> int:
    """Copy a pending span to `out`; returns ALL, or why the caller has to copy it: SPAN_DUE, NO_ROOM."""
    length = state[S.REWRITE_SPAN_END] - state[S.REWRITE_SPAN_START]
    if length == 0:
        return 0
    if length > short:
        return 2
    if length > room - state[S.REWRITE_OUT]:
        return 1
    buffer_access.copied(out, state[S.REWRITE_OUT], view, state[S.REWRITE_SPAN_START], length)
    state[S.REWRITE_OUT] = state[S.REWRITE_OUT] + length
    state[S.REWRITE_SPAN_START] = state[S.REWRITE_SPAN_END]
    return 0


def is_protected(protected: Readable, count: int, offset: int, producer: int) -> int:
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


def is_needed(batches: Readable, capacity: int, row: int, params: Readable, protected: Readable) -> int:
    """Whether a batch must stay although all of its records are removed (Kafka: Cleaner.checkBatchRetention)."""
    last = batches[C.LAST_OFFSET * capacity + row]
    if last == params[S.RULE_UPPER] - 1:
        return 1
    producer = batches[C.PRODUCER_ID * capacity + row]
    return producer >= 0 and is_protected(protected, params[S.RULE_PROTECTED], last, producer)


def take_row(
    view: Readable,
    batches: Readable,
    capacity: int,
    row: int,
    out: Writable,
    room: int,
    short: int,
    table: Writable,
    table_capacity: int,
    state: Writable,
) -> int:
    # the stored batch becomes part of the pending span
    start = batches[C.POSITION * capacity + row]
    size = batches[C.SIZE * capacity + row]
    if state[S.REWRITE_SPAN_END] != start:
        due = flush_span(view, out, room, short, state)
        if due != 0:
            return due
        state[S.REWRITE_SPAN_START] = start
    state[S.REWRITE_SPAN_END] = start + size
    count = batches[C.COUNT * capacity + row]
    last = batches[C.LAST_OFFSET * capacity + row]
    put_row(table, table_capacity, state, size, last, batches[C.MAX_TIMESTAMP * capacity + row], count, -1)
    state[S.REWRITE_TAKEN] = state[S.REWRITE_TAKEN] + 1
    return 0


def empty_row(
    view: Readable,
    batches: Readable,
    capacity: int,
    row: int,
    tallies: Readable,
    out: Writable,
    room: int,
    short: int,
    table: Writable,
    table_capacity: int,
    state: Writable,
) -> int:
    # only the header
    due = flush_span(view, out, room, short, state)
    if due != 0:
        return due
    o = state[S.REWRITE_OUT]
    if room - o < 61:
        return 1
    attributes = batches[C.ATTRIBUTES * capacity + row] & 56
    base = batches[C.BASE_OFFSET * capacity + row]
    if batches[C.MAGIC * capacity + row] < 2:
        attributes = attributes & C.TIMESTAMP_TYPE_BIT
        if batches[C.MAGIC * capacity + row] == 0:
            attributes = 0
        base = tallies[C.T_BEGIN * capacity + row]
        state[S.REWRITE_EMPTIED_LEGACY] = state[S.REWRITE_EMPTIED_LEGACY] + 1
    last = batches[C.LAST_OFFSET * capacity + row]
    max_ms = batches[C.MAX_TIMESTAMP * capacity + row]
    batch_encode.put_batch_header(out, o, 61, base, last, attributes, -1, max_ms, 0, batches, capacity, row)
    put_row(table, table_capacity, state, 61, last, max_ms, 0, o)
    state[S.REWRITE_OUT] = o + 61
    state[S.REWRITE_EMPTIED] = state[S.REWRITE_EMPTIED] + 1
    return 0


def finish(
    o: int,
    end: int,
    batches: Readable,
    capacity: int,
    row: int,
    tallies: Readable,
    new_horizon_ms: int,
    out: Writable,
    table: Writable,
    table_capacity: int,
    state: Writable,
) -> int:
    # the header of a new batch with its body in out[o + 61:end]
    attributes = batches[C.ATTRIBUTES * capacity + row] & 63
    base = batches[C.BASE_OFFSET * capacity + row]
    last = batches[C.LAST_OFFSET * capacity + row]
    if batches[C.MAGIC * capacity + row] < 2:
        attributes = attributes & 15
        if batches[C.MAGIC * capacity + row] == 0:
            attributes = attributes & C.CODEC_MASK
        base = tallies[C.T_FIRST_OFFSET * capacity + row]
        last = tallies[C.T_LAST_OFFSET * capacity + row]
    horizon_ms = horizon_of(batches, capacity, row, tallies, new_horizon_ms)
    base_ms = base_time(batches, capacity, row, horizon_ms, tallies[C.T_FIRST_TIMESTAMP * capacity + row])
    max_ms = tallies[C.T_MAX_TIMESTAMP * capacity + row]
    if attributes & C.TIMESTAMP_TYPE_BIT:
        max_ms = batches[C.MAX_TIMESTAMP * capacity + row]
    if horizon_ms >= 0:
        attributes = attributes | 64
    count = tallies[C.T_KEPT * capacity + row]
    size = end - o
    batch_encode.put_batch_header(
        out, o, size, base, last, attributes, base_ms, max_ms, count, batches, capacity, row
    )
    put_row(table, table_capacity, state, size, last, max_ms, count, o)
    state[S.REWRITE_OUT] = end
    state[S.REWRITE_REBUILT] = state[S.REWRITE_REBUILT] + 1
    if tallies[C.T_NEGATIVE * capacity + row] > 0:
        state[S.REWRITE_NEGATIVE] = state[S.REWRITE_NEGATIVE] + 1
    return 0


def body_of(
    body: Readable,
    cells: Readable,
    capacity: int,
    count: int,
    at: int,
    flags: Readable,
    batches: Readable,
    batch_capacity: int,
    row: int,
    tallies: Readable,
    new_ms: int,
    out: Writable,
    o: int,
    room: int,
) -> int:
    # the body of the batch that replaces `row`, for the records in this table
    base = batches[C.BASE_OFFSET * batch_capacity + row]
    if batches[C.MAGIC * batch_capacity + row] < 2:
        base = tallies[C.T_FIRST_OFFSET * batch_capacity + row]
    horizon_ms = horizon_of(batches, batch_capacity, row, tallies, new_ms)
    base_ms = base_time(
        batches, batch_capacity, row, horizon_ms, tallies[C.T_FIRST_TIMESTAMP * batch_capacity + row]
    )
    return batch_encode.put_records(body, cells, capacity, count, row, at, flags, base, base_ms, out, o, room)
