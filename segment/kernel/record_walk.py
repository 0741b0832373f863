# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""The record walk: from bodies of batches of magic 2 to a table of records (fact sheet §2.3).

    body   records…, each: length varint │ attributes │ timestamp delta varlong │ offset delta varint
           │ key length varint, key │ value length varint, value │ header count varint, headers

Messages of magic 0 and 1 have their own kernel (`legacy_messages`), which shares the state and the codes below.

Bodies are never trusted: a length is compared with the remaining bytes before it is used, a varint ends within 5 (10)
bytes, a record uses exactly the bytes that it declares, a batch exactly its body. An error is a code in `state[WALK_ERROR]` at
the body position `state[WALK_ERROR_AT]`; the records before it stay in the table.

`state` (WALK_…): ROW the current batch, NEXT body position (0 = the batch has not begun), DONE number of records of that batch so
far, COUNT number of records in the table, ERROR, ERROR_AT. When the table is full, the walk returns early; called again with
COUNT set to 0, it continues where it stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import arithmetic, buffer_access
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable

(
    OK,
    NEGATIVE_COUNT,
    BAD_STRUCTURE,
    RECORD_TOO_LONG,
    BAD_HEADER_COUNT,
    NEGATIVE_HEADER_NAME,
    SIZE_MISMATCH,
    TOO_FEW_RECORDS,
    BYTES_LEFT_OVER,
    MESSAGE_TOO_SHORT,
    VALUE_BEYOND_MESSAGE,
    INNER_TOO_SMALL,
    INNER_COMPRESSED,
    EMPTY_SET,
    BAD_WRAPPER_OFFSET,
) = range(15)

SENTENCES = (
    "",
    "the record count is negative",
    "a record's fields do not fit its length",
    "a record is longer than the rest of its batch",
    "a record's header count is invalid",
    "a header name has a negative length",
    "a record does not use exactly the bytes it declares",
    "the batch ends before the declared number of records",
    "bytes are left over after the declared number of records",
    "a message is too short for its fields",
    "a message's value is longer than the message",
    "an inner message is smaller than a message can be",
    "an inner message is itself compressed",
    "a compressed message set contains no message",
    "a wrapper's offset is below that of its last message",
)

BODY_FULL, BODY_DONE, BODY_BAD = range(3)


def varlong_size(buf: Readable, p: int, end: int) -> int:
    n = 0
    while n < 10 and p + n < end:
        if buf[p + n] < 128:
            return n + 1
        n = n + 1
    return 0


def varlong_at(buf: Readable, p: int, size: int) -> int:
    # zigzag varlong of known size, built from its halves so that 64 bits never overflow
    low = 0
    n = 0
    while n < size and n < 8:
        part = buf[p + n] & 127
        low = low | part << (7 * n)
        n = n + 1
    if size <= 8:
        return (low >> 1) ^ -(low & 1)
    high = buf[p + 8] & 127
    if size > 9:
        high = high | (buf[p + 9] & 1) << 7
    # 56 low bits and 8 high ones; shifted right by one they fit a signed long
    return ((low >> 1) | high << 55) ^ -(low & 1)


def headers_end(body: Readable, p: int, end: int, count: int) -> int:
    """Position after `count` headers that start at p; −1 bad structure, −2 a negative name length."""
    while count > 0:
        packed = buffer_access.varint(body, p, end)
        if packed == 0:
            return -1
        length = packed >> 4
        if length < 0:
            return -2
        p = p + (packed & 15)
        if length > end - p:
            return -1
        p = p + length
        packed = buffer_access.varint(body, p, end)
        if packed == 0:
            return -1
        length = packed >> 4
        p = p + (packed & 15)
        if length > 0:
            if length > end - p:
                return -1
            p = p + length
        count = count - 1
    return p


def read_field(body: Readable, p: int, end: int, cells: Writable, start_at: int, length_at: int) -> int:
    """Read a key or value at p: write its position and length into two cells (-1, -1 for null); return the position after it or -1."""
    packed = buffer_access.varint(body, p, end)
    if packed == 0:
        return -1
    length = packed >> 4
    p = p + (packed & 15)
    if length < 0:
        cells[start_at] = -1
        cells[length_at] = -1
        return p
    if length > end - p:
        return -1
    cells[start_at] = p
    cells[length_at] = length
    return p + length


def read_record(
    body: Readable,
    p: int,
    end: int,
    row: int,
    batches: Readable,
    batch_capacity: int,
    cells: Writable,
    capacity: int,
    at: int,
) -> int:
    """Decode the record at p into row `at`; returns the position after it, or −(error code)."""
    packed = buffer_access.varint(body, p, end)
    if packed == 0:
        return -TOO_FEW_RECORDS
    size = packed >> 4
    p = p + (packed & 15)
    if size > end - p:
        return -RECORD_TOO_LONG
    if size < 1:
        return -BAD_STRUCTURE
    end = p + size
    p = p + 1
    n = varlong_size(body, p, end)
    if n == 0:
        return -BAD_STRUCTURE
    delta = varlong_at(body, p, n)
    p = p + n
    if batches[C.ATTRIBUTES * batch_capacity + row] & C.TIMESTAMP_TYPE_BIT:
        timestamp = batches[C.MAX_TIMESTAMP * batch_capacity + row]
    else:
        timestamp = buffer_access.add_long(batches[C.BASE_TIMESTAMP * batch_capacity + row], delta)
    packed = buffer_access.varint(body, p, end)
    if packed == 0:
        return -BAD_STRUCTURE
    delta = packed >> 4
    p = p + (packed & 15)
    cells[C.R_BATCH * capacity + at] = row
    cells[C.R_OFFSET * capacity + at] = buffer_access.add_long(
        batches[C.BASE_OFFSET * batch_capacity + row], delta
    )
    cells[C.R_TIMESTAMP * capacity + at] = timestamp
    sequence = batches[C.BASE_SEQUENCE * batch_capacity + row]
    if sequence >= 0:
        cells[C.R_SEQUENCE * capacity + at] = arithmetic.add_sequence(sequence, delta)
    else:
        cells[C.R_SEQUENCE * capacity + at] = -1

    p = read_field(body, p, end, cells, C.R_KEY_START * capacity + at, C.R_KEY_LENGTH * capacity + at)
    if p < 0:
        return -BAD_STRUCTURE
    p = read_field(body, p, end, cells, C.R_VALUE_START * capacity + at, C.R_VALUE_LENGTH * capacity + at)
    if p < 0:
        return -BAD_STRUCTURE

    packed = buffer_access.varint(body, p, end)
    if packed == 0:
        return -BAD_STRUCTURE
    length = packed >> 4
    p = p + (packed & 15)
    if length < 0 or length > end - p:
        return -BAD_HEADER_COUNT
    cells[C.R_HEADERS_START * capacity + at] = p
    cells[C.R_HEADER_COUNT * capacity + at] = length
    if length > 0:
        p = headers_end(body, p, end, length)
        if p == -1:
            return -BAD_STRUCTURE
        if p == -2:
            return -NEGATIVE_HEADER_NAME
    if p != end:
        return -SIZE_MISMATCH
    cells[C.R_CRC * capacity + at] = -1
    cells[C.R_VALID * capacity + at] = -1
    return p


def body_records(
    body: Readable,
    start: int,
    end: int,
    batches: Readable,
    batch_capacity: int,
    cells: Writable,
    capacity: int,
    state: Writable,
) -> int:
    row = state[S.WALK_ROW]
    count = batches[C.COUNT * batch_capacity + row]
    p = state[S.WALK_NEXT]
    done = state[S.WALK_DONE]
    at = state[S.WALK_COUNT]
    result = BODY_DONE
    if count < 0:
        state[S.WALK_ERROR] = NEGATIVE_COUNT
        state[S.WALK_ERROR_AT] = start
        return BODY_BAD
    if p == 0:
        p = start
    while done < count:
        if at >= capacity:
            result = BODY_FULL
            break
        after = read_record(body, p, end, row, batches, batch_capacity, cells, capacity, at)
        if after < 0:
            state[S.WALK_ERROR] = -after
            result = BODY_BAD
            break
        p = after
        done = done + 1
        at = at + 1
    if result == BODY_DONE and count > 0 and p != end:
        state[S.WALK_ERROR] = BYTES_LEFT_OVER
        result = BODY_BAD
    state[S.WALK_NEXT] = p
    state[S.WALK_DONE] = done
    state[S.WALK_COUNT] = at
    state[S.WALK_ERROR_AT] = p
    return result


def read_body(
    body: Readable,
    start: int,
    end: int,
    batches: Readable,
    batch_capacity: int,
    cells: Writable,
    capacity: int,
    state: Writable,
) -> int:
    """Decode the records of one magic 2 batch, row `state[WALK_ROW]`, whose (decompressed) body is body[start:end].

    Begins or resumes at state[WALK_NEXT] (0 = at `start`), appends from row state[WALK_COUNT] on. Returns BODY_FULL (table
    full, call again), BODY_DONE, or BODY_BAD (state[WALK_ERROR], state[WALK_ERROR_AT]). A batch with count 0 is done
    immediately and its body is not read, as in Kafka.
    """
    check_tables(batches, batch_capacity, cells, capacity, state)
    if start < 0 or start > end or end > len(body):
        raise ValueError("the body lies outside its buffer")
    return body_records(
        buffer_access.bytes_in(body),
        start,
        end,
        buffer_access.cells_in(batches),
        batch_capacity,
        buffer_access.table_in(cells),
        capacity,
        buffer_access.table_in(state),
    )


def check_tables(
    batches: Readable, batch_capacity: int, cells: Writable, capacity: int, state: Writable
) -> int:
    if (
        C.BATCH_WIDTH * batch_capacity > len(batches)
        or C.RECORD_WIDTH * capacity > len(cells)
        or len(state) < S.WALK_WIDTH
    ):
        raise ValueError("a table is smaller than its capacity says")
    if state[S.WALK_ROW] < 0 or state[S.WALK_ROW] >= batch_capacity or state[S.WALK_COUNT] < 0:
        raise ValueError("the state points outside the tables")
    return 0


def read_plain(
    buf: Readable,
    last_row: int,
    batches: Readable,
    batch_capacity: int,
    cells: Writable,
    capacity: int,
    state: Writable,
) -> int:
    """Decode consecutive uncompressed batches of magic 2, rows state[WALK_ROW] … last_row, whose bodies are in `buf` itself.

    Returns like `read_body`; on BODY_BAD state[WALK_ROW] is the bad batch, on BODY_DONE it is last_row + 1.
    """
    check_tables(batches, batch_capacity, cells, capacity, state)
    if last_row >= batch_capacity:
        raise ValueError("the last row lies outside the table of batches")
    source = buffer_access.bytes_in(buf)
    table = buffer_access.table_in(cells)
    while state[S.WALK_ROW] <= last_row:
        row = state[S.WALK_ROW]
        p = batches[C.POSITION * batch_capacity + row]
        size = batches[C.SIZE * batch_capacity + row]
        if p < 0 or size < 26 or p > len(buf) - size:
            raise ValueError("a batch lies outside the buffer")
        if batches[C.MAGIC * batch_capacity + row] < 2:
            raise ValueError("a message of magic 0 or 1 is not a batch")
        if size < 61:
            if batches[C.COUNT * batch_capacity + row] != 0:
                state[S.WALK_ERROR] = TOO_FEW_RECORDS
                state[S.WALK_ERROR_AT] = p
                return BODY_BAD
        else:
            result = body_records(
                source,
                p + 61,
                p + size,
                buffer_access.cells_in(batches),
                batch_capacity,
                table,
                capacity,
                buffer_access.table_in(state),
            )
            if result != BODY_DONE:
                return result
        state[S.WALK_ROW] = row + 1
        state[S.WALK_NEXT] = 0
        state[S.WALK_DONE] = 0
    return BODY_DONE


def read_bodies(
    body: Readable,
    bounds: Readable,
    first: int,
    last_row: int,
    batches: Readable,
    batch_capacity: int,
    cells: Writable,
    capacity: int,
    state: Writable,
) -> int:
    """Decode decompressed batches, rows state[WALK_ROW] … last_row: the body of row r is body[bounds[2i]:bounds[2i + 1]]
    with i = r − first.

    Returns like `read_plain`; the caller ensures that the table has room for all records that the batches declare.
    """
    check_tables(batches, batch_capacity, cells, capacity, state)
    if (
        last_row >= batch_capacity
        or first < 0
        or state[S.WALK_ROW] < first
        or 2 * (last_row - first) + 2 > len(bounds)
    ):
        raise ValueError("the rows lie outside the tables")
    source = buffer_access.bytes_in(body)
    while state[S.WALK_ROW] <= last_row:
        row = state[S.WALK_ROW]
        start = bounds[2 * (row - first)]
        end = bounds[2 * (row - first) + 1]
        if start < 0 or start > end or end > len(body):
            raise ValueError("a body lies outside its buffer")
        result = body_records(
            source,
            start,
            end,
            buffer_access.cells_in(batches),
            batch_capacity,
            buffer_access.table_in(cells),
            capacity,
            buffer_access.table_in(state),
        )
        if result != BODY_DONE:
            return result
        state[S.WALK_ROW] = row + 1
        state[S.WALK_NEXT] = 0
        state[S.WALK_DONE] = 0
    return BODY_DONE
