# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""The record walk: from batch bodies to a table of records (fact sheet §2.2, §2.3).

    magic 2 body   records…, each: length varint │ attributes │ timestamp delta varlong │ offset delta varint
                   │ key length varint, key │ value length varint, value │ header count varint, headers
    magic 0, 1     one message, or (wrapper) a decompressed sequence of messages

Bodies are never trusted: a length is compared with what remains before it is used, a varint ends within 5 (10)
bytes, a record uses exactly the bytes it declares, a batch exactly its body. What is wrong is a code in
`state[ERROR]` at the body position `state[ERROR_AT]`; the records before it stay in the table.

`state` (int64): ROW batch row at work, NEXT body position (0 = the batch has not begun), DONE records of that
batch so far, COUNT records in the table, ERROR, ERROR_AT. A full table returns early; calling again with COUNT
set to 0 goes on where it stopped.

The readers of big-endian numbers and `add_long` stand in each kernel that needs them, because C inlines only
within a module and these are the innermost steps of the hottest loops.
"""

from kseg.segment.kernel import views
from kseg.segment.kernel.arithmetic import add_sequence

ROW, NEXT, DONE, COUNT, ERROR, ERROR_AT = range(6)
STATE_WIDTH = 6

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
    "a record is longer than what is left of its batch",
    "a record's header count cannot be true",
    "a header name has a negative length",
    "a record does not use exactly the bytes it declares",
    "the batch ends before the declared number of records",
    "bytes are left over behind the declared number of records",
    "a message is too short for its fields",
    "a message's value is longer than the message",
    "an inner message is smaller than a message can be",
    "an inner message is itself compressed",
    "a compressed message set holds no message",
    "a wrapper's offset is below that of its last message",
)

BODY_FULL, BODY_DONE, BODY_BAD = range(3)


def long_at(buf, p):
    value = buf[p]
    if value > 127:
        value = value - 256
    value = (value << 8) | buf[p + 1]
    value = (value << 8) | buf[p + 2]
    value = (value << 8) | buf[p + 3]
    value = (value << 8) | buf[p + 4]
    value = (value << 8) | buf[p + 5]
    value = (value << 8) | buf[p + 6]
    return (value << 8) | buf[p + 7]


def int_at(buf, p):
    value = buf[p]
    if value > 127:
        value = value - 256
    value = (value << 8) | buf[p + 1]
    value = (value << 8) | buf[p + 2]
    return (value << 8) | buf[p + 3]


def crc_at(buf, p):
    value = buf[p]
    value = (value << 8) | buf[p + 1]
    value = (value << 8) | buf[p + 2]
    return (value << 8) | buf[p + 3]


def varint(buf, p, end):
    # the zigzag varint at p as 16 × its value + its size; size 0 when it leaves the body or exceeds 5 bytes
    if p >= end:
        return 0
    byte = buf[p]
    if byte < 128:
        return ((byte >> 1) ^ -(byte & 1)) * 16 + 1
    return wide_varint(buf, p, end)


def wide_varint(buf, p, end):
    # like Java's, it loses bits above the 32nd
    raw = 0
    n = 0
    while n < 5 and p + n < end:
        byte = buf[p + n]
        if n < 4:
            raw = raw | (byte & 127) << (7 * n)
        else:
            raw = raw | (byte & 15) << 28
        n = n + 1
        if byte < 128:
            return ((raw >> 1) ^ -(raw & 1)) * 16 + n
    return 0


def varlong_size(buf, p, end):
    n = 0
    while n < 10 and p + n < end:
        if buf[p + n] < 128:
            return n + 1
        n = n + 1
    return 0


def varlong_at(buf, p, size):
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


def add_long(left, right):
    # left + right as a Java long; literals beyond 32 bits would be Python objects
    top = 0x7FFFFFFF
    top = (top << 16) | 0xFFFF
    top = (top << 16) | 0xFFFF
    if right > 0 and left > top - right:
        return left - top - 1 + right - top - 1
    if right < 0 and left < -top - 1 - right:
        return left + top + 1 + right + top + 1
    return left + right


def headers_end(body, p, end, count):
    """Position behind `count` headers that start at p; −1 bad structure, −2 a negative name length."""
    while count > 0:
        packed = varint(body, p, end)
        if packed == 0:
            return -1
        length = packed >> 4
        if length < 0:
            return -2
        p = p + (packed & 15)
        if length > end - p:
            return -1
        p = p + length
        packed = varint(body, p, end)
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


def read_field(body, p, end, cells, start_at, length_at):
    """A key or value at p: its place and length into two cells (-1, -1 for null); the position behind it or -1."""
    packed = varint(body, p, end)
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


def read_record(body, p, end, row, batches, batch_capacity, cells, capacity, at):
    """Decode the record at p into row `at`; returns the position behind it, or −(error code)."""
    packed = varint(body, p, end)
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
    if batches[6 * batch_capacity + row] & 8:
        timestamp = batches[10 * batch_capacity + row]
    else:
        timestamp = add_long(batches[9 * batch_capacity + row], delta)
    packed = varint(body, p, end)
    if packed == 0:
        return -BAD_STRUCTURE
    delta = packed >> 4
    p = p + (packed & 15)
    cells[at] = row
    cells[capacity + at] = add_long(batches[3 * batch_capacity + row], delta)
    cells[2 * capacity + at] = timestamp
    sequence = batches[13 * batch_capacity + row]
    if sequence >= 0:
        cells[9 * capacity + at] = add_sequence(sequence, delta)
    else:
        cells[9 * capacity + at] = -1

    p = read_field(body, p, end, cells, 3 * capacity + at, 4 * capacity + at)
    if p < 0:
        return -BAD_STRUCTURE
    p = read_field(body, p, end, cells, 5 * capacity + at, 6 * capacity + at)
    if p < 0:
        return -BAD_STRUCTURE

    packed = varint(body, p, end)
    if packed == 0:
        return -BAD_STRUCTURE
    length = packed >> 4
    p = p + (packed & 15)
    if length < 0 or length > end - p:
        return -BAD_HEADER_COUNT
    cells[7 * capacity + at] = p
    cells[8 * capacity + at] = length
    if length > 0:
        p = headers_end(body, p, end, length)
        if p == -1:
            return -BAD_STRUCTURE
        if p == -2:
            return -NEGATIVE_HEADER_NAME
    if p != end:
        return -SIZE_MISMATCH
    cells[10 * capacity + at] = -1
    cells[11 * capacity + at] = -1
    return p


def body_records(body, start, end, batches, batch_capacity, cells, capacity, state):
    row = state[0]
    count = batches[5 * batch_capacity + row]
    p = state[1]
    done = state[2]
    at = state[3]
    result = BODY_DONE
    if count < 0:
        state[4] = NEGATIVE_COUNT
        state[5] = start
        return BODY_BAD
    if p == 0:
        p = start
    while done < count:
        if at >= capacity:
            result = BODY_FULL
            break
        after = read_record(body, p, end, row, batches, batch_capacity, cells, capacity, at)
        if after < 0:
            state[4] = -after
            result = BODY_BAD
            break
        p = after
        done = done + 1
        at = at + 1
    if result == BODY_DONE and count > 0 and p != end:
        state[4] = BYTES_LEFT_OVER
        result = BODY_BAD
    state[1] = p
    state[2] = done
    state[3] = at
    state[5] = p
    return result


def read_body(body, start, end, batches, batch_capacity, cells, capacity, state):
    """Decode the records of one magic 2 batch, row `state[ROW]`, whose (decompressed) body is body[start:end].

    Begins or resumes at state[NEXT] (0 = at `start`), appends from row state[COUNT] on. Returns BODY_FULL (table
    full, call again), BODY_DONE, or BODY_BAD (state[ERROR], state[ERROR_AT]). A batch with count 0 is done at
    once and its body is not looked at, as in Kafka.
    """
    check_tables(batches, batch_capacity, cells, capacity, state)
    if start < 0 or start > end or end > len(body):
        raise ValueError("the body lies outside its buffer")
    return body_records(
        views.bytes_in(body),
        start,
        end,
        views.cells_in(batches),
        batch_capacity,
        views.table_in(cells),
        capacity,
        views.table_in(state),
    )


def check_tables(batches, batch_capacity, cells, capacity, state):
    if 15 * batch_capacity > len(batches) or 12 * capacity > len(cells) or len(state) < 6:
        raise ValueError("a table is smaller than its capacity says")
    if state[0] < 0 or state[0] >= batch_capacity or state[3] < 0:
        raise ValueError("the state points outside the tables")
    return 0


def read_message(body, p, size, row, offset, timestamp, cells, capacity, at):
    """Decode the magic 0/1 message of `size` bytes whose crc field is at body[p] into row `at`; 0 or −(error).

    timestamp: the wrapper's when its LogAppendTime overrides, else −2 (take the message's own).
    """
    magic = body[p + 4]
    if magic > 127:
        magic = magic - 256
    wide = 0 if magic == 0 else 8
    if size < 10 + wide:
        return -MESSAGE_TOO_SHORT
    cells[at] = row
    cells[capacity + at] = offset
    if magic == 0:
        cells[2 * capacity + at] = -1
    elif timestamp != -2:
        cells[2 * capacity + at] = timestamp
    elif size < 14:
        return -MESSAGE_TOO_SHORT
    else:
        cells[2 * capacity + at] = long_at(body, p + 6)
    length = int_at(body, p + 6 + wide)
    cells[3 * capacity + at] = p + 10 + wide
    cells[4 * capacity + at] = length
    if length < 0:
        length = 0
    if length > size - 14 - wide:
        return -MESSAGE_TOO_SHORT
    q = p + 10 + wide + length
    length = int_at(body, q)
    cells[5 * capacity + at] = q + 4
    cells[6 * capacity + at] = length
    cells[7 * capacity + at] = 0
    cells[8 * capacity + at] = 0
    cells[9 * capacity + at] = -1
    cells[10 * capacity + at] = crc_at(body, p)
    cells[11 * capacity + at] = -1
    if length > p + size - q - 4:
        cells[5 * capacity + at] = -1
        return -VALUE_BEYOND_MESSAGE
    return 0


def read_plain(buf, last_row, batches, batch_capacity, cells, capacity, state):
    """Decode consecutive uncompressed batches, rows state[ROW] … last_row, whose bodies lie in `buf` itself.

    Returns as `read_body`; on BODY_BAD state[ROW] is the bad batch, on BODY_DONE it is last_row + 1.
    """
    check_tables(batches, batch_capacity, cells, capacity, state)
    if last_row >= batch_capacity:
        raise ValueError("the last row lies outside the table of batches")
    source = views.bytes_in(buf)
    table = views.table_in(cells)
    while state[0] <= last_row:
        row = state[0]
        p = batches[row]
        size = batches[batch_capacity + row]
        if p < 0 or size < 26 or p > len(buf) - size:
            raise ValueError("a batch lies outside the buffer")
        if batches[2 * batch_capacity + row] < 2:
            if state[3] >= capacity:
                return BODY_FULL
            after = read_message(
                source,
                p + 12,
                size - 12,
                row,
                batches[3 * batch_capacity + row],
                -2,
                table,
                capacity,
                state[3],
            )
            if after == 0 or after == -VALUE_BEYOND_MESSAGE:
                cells[11 * capacity + state[3]] = batches[14 * batch_capacity + row]
                state[3] = state[3] + 1
            if after < 0:
                state[4] = -after
                state[5] = p
                return BODY_BAD
        elif size < 61:
            if batches[5 * batch_capacity + row] != 0:
                state[4] = TOO_FEW_RECORDS
                state[5] = p
                return BODY_BAD
        else:
            result = body_records(
                source,
                p + 61,
                p + size,
                views.cells_in(batches),
                batch_capacity,
                table,
                capacity,
                views.table_in(state),
            )
            if result != BODY_DONE:
                return result
        state[0] = row + 1
        state[1] = 0
        state[2] = 0
    return BODY_DONE


def read_bodies(body, bounds, first, last_row, batches, batch_capacity, cells, capacity, state):
    """Decode decompressed batches, rows state[ROW] … last_row: the body of row r is body[bounds[2i]:bounds[2i + 1]]
    with i = r − first.

    Returns as `read_plain`; the caller sees to it that the table of records has room for all they declare.
    """
    check_tables(batches, batch_capacity, cells, capacity, state)
    if (
        last_row >= batch_capacity
        or first < 0
        or state[0] < first
        or 2 * (last_row - first) + 2 > len(bounds)
    ):
        raise ValueError("the rows lie outside the tables")
    source = views.bytes_in(body)
    while state[0] <= last_row:
        row = state[0]
        start = bounds[2 * (row - first)]
        end = bounds[2 * (row - first) + 1]
        if start < 0 or start > end or end > len(body):
            raise ValueError("a body lies outside its buffer")
        result = body_records(
            source,
            start,
            end,
            views.cells_in(batches),
            batch_capacity,
            views.table_in(cells),
            capacity,
            views.table_in(state),
        )
        if result != BODY_DONE:
            return result
        state[0] = row + 1
        state[1] = 0
        state[2] = 0
    return BODY_DONE


def count_messages(body):
    """Walk a decompressed message set: (messages, last inner offset) or (−error, position).

    A last entry that is cut off ends the set silently (Kafka: DataLogInputStream).
    """
    source = views.bytes_in(body)
    p = 0
    end = len(body)
    count = 0
    last_offset = 0
    while p + 12 <= end:
        size = int_at(source, p + 8)
        if size < 14:
            return -INNER_TOO_SMALL, p
        if size > end - p - 12:
            break
        last_offset = long_at(source, p)
        count = count + 1
        p = p + 12 + size
    if count == 0:
        return -EMPTY_SET, 0
    return count, last_offset


def read_message_set(body, base_offset, batches, batch_capacity, cells, capacity, state):
    """Decode the messages of a decompressed wrapper, batch row state[ROW]; returns as `read_body`.

    base_offset: added to every inner offset (0 for magic 0 wrappers, whose inner offsets are absolute).
    R_HEADERS_START and R_VALID of each row are left as the range of the message's checksum.
    """
    check_tables(batches, batch_capacity, cells, capacity, state)
    source = views.bytes_in(body)
    row = state[0]
    p = state[1]
    end = len(body)
    timestamp = -2
    if batches[2 * batch_capacity + row] == 1 and batches[6 * batch_capacity + row] & 8:
        timestamp = batches[10 * batch_capacity + row]
    while p + 12 <= end:
        size = int_at(source, p + 8)
        if size < 14 or size > end - p - 12:
            break
        if state[3] >= capacity:
            state[1] = p
            return BODY_FULL
        if body[p + 17] & 7:
            state[4] = INNER_COMPRESSED
            state[5] = p
            return BODY_BAD
        after = read_message(
            source,
            p + 12,
            size,
            row,
            add_long(base_offset, long_at(source, p)),
            timestamp,
            views.table_in(cells),
            capacity,
            state[3],
        )
        if after == 0 or after == -VALUE_BEYOND_MESSAGE:
            # the range of the message's checksum, for the caller to judge
            cells[7 * capacity + state[3]] = p + 16
            cells[11 * capacity + state[3]] = p + 12 + size
            state[3] = state[3] + 1
        if after < 0:
            state[4] = -after
            state[5] = p
            # Kafka lists such a message and goes on, as long as nobody asks for the value
            if after != -VALUE_BEYOND_MESSAGE:
                return BODY_BAD
        p = p + 12 + size
        state[1] = p
        state[2] = state[2] + 1
    if state[4] != OK:
        return BODY_BAD
    return BODY_DONE
