# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""Text of a dump: the lines of Kafka's DumpLogSegments 4.3 from the tables of batches and records.

Lines (fact sheet §9.2; one physical line each):

    baseOffset: … lastOffset: … count: … … position: P CreateTime: T size: S magic: 2 compresscodec: C crc: X isvalid: B
    offset: O position: P CreateTime: T size: S magic: 1 compresscodec: C crc: X isvalid: B          (magic 0, 1)
    | offset: O CreateTime: T keySize: K valueSize: V sequence: Q headerKeys: [h1,h2] key: … payload: …
    | offset: O CreateTime: T keySize: K valueSize: V isValid: B crc: X key: … payload: …            (magic 0, 1)

Bounds checks are off: `out` is the caller's scratch buffer, and before each line the space for its longest form is
checked (`BATCH_ROOM`, `record_room`); the record walk has already checked all positions against the same buffer, and
`format_lines` checks the sizes of the tables on entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import arithmetic, buffer_access, java_utf8, record_headers
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable

DEEP, CONTENTS, SKIP_METADATA, ESCAPE = 1, 2, 4, 8


BATCH_ROOM = 640


def put_number(out: Writable, o: int, value: int) -> int:
    """Decimal digits of a Java long."""
    if value < 0:
        out[o] = 45
        o = o + 1
        least = -0x7FFFFFFF - 1
        if value == least * 65536 * 65536:  # it has no positive counterpart in C
            return buffer_access.put(out, o, b"9223372036854775808", 19)
        value = -value
    if value < 100000000:
        return put_up_to_eight(out, o, value)
    high = value // 100000000
    low = value - high * 100000000
    o = put_number(out, o, high)
    high = low // 10000
    put_four(out, o, high)
    put_four(out, o + 4, low - high * 10000)
    return o + 8


def put_four(out: Writable, o: int, value: int) -> None:
    put_two(out, o, value // 100)
    put_two(out, o + 2, value % 100)


def put_two(out: Writable, o: int, value: int) -> None:
    # a literal, so that C sees an array: two digits a division
    pairs = (
        b"00010203040506070809101112131415161718192021222324"
        b"25262728293031323334353637383940414243444546474849"
        b"50515253545556575859606162636465666768697071727374"
        b"75767778798081828384858687888990919293949596979899"
    )
    out[o] = pairs[2 * value]
    out[o + 1] = pairs[2 * value + 1]


def put_up_to_eight(out: Writable, o: int, value: int) -> int:
    if value >= 10000:
        high = value // 10000
        o = put_up_to_four(out, o, high)
        put_four(out, o, value - high * 10000)
        return o + 4
    return put_up_to_four(out, o, value)


def put_up_to_four(out: Writable, o: int, value: int) -> int:
    high = value // 100
    if high:
        o = put_up_to_two(out, o, high)
        put_two(out, o, value - high * 100)
        return o + 2
    return put_up_to_two(out, o, value)


def put_up_to_two(out: Writable, o: int, value: int) -> int:
    if value < 10:
        out[o] = 48 + value
        return o + 1
    put_two(out, o, value)
    return o + 2


def put_bool(out: Writable, o: int, value: int) -> int:
    if value:
        return buffer_access.put(out, o, b"true", 4)
    return buffer_access.put(out, o, b"false", 5)


def put_type(out: Writable, o: int, magic: int, attributes: int) -> int:
    if magic == 0:
        return buffer_access.put(out, o, b"NoTimestampType", 15)
    if attributes & C.TIMESTAMP_TYPE_BIT:
        return buffer_access.put(out, o, b"LogAppendTime", 13)
    return buffer_access.put(out, o, b"CreateTime", 10)


def put_codec(out: Writable, o: int, codec: int) -> int:
    if codec > 4:
        o = buffer_access.put(out, o, b"unknown(", 8)
        out[o] = 48 + codec
        out[o + 1] = 41
        return o + 2
    if codec == 0:
        return buffer_access.put(out, o, b"none", 4)
    if codec == 1:
        return buffer_access.put(out, o, b"gzip", 4)
    if codec == 2:
        return buffer_access.put(out, o, b"snappy", 6)
    if codec == 3:
        return buffer_access.put(out, o, b"lz4", 3)
    return buffer_access.put(out, o, b"zstd", 4)


def last_sequence(base_sequence: int, base_offset: int, last_offset: int) -> int:
    """Computed from the last offset delta, not from the count; −1 without a producer."""
    if base_sequence == -1:
        return -1
    return arithmetic.add_sequence(base_sequence, arithmetic.to_int(last_offset - base_offset))


def put_batch(out: Writable, o: int, cells: Readable, capacity: int, row: int) -> int:
    """The batch line of one row, newline included; needs BATCH_ROOM bytes."""
    magic = cells[C.MAGIC * capacity + row]
    attributes = cells[C.ATTRIBUTES * capacity + row] & 255
    base_offset = cells[C.BASE_OFFSET * capacity + row]
    last_offset = cells[C.LAST_OFFSET * capacity + row]
    if magic >= 2:
        o = buffer_access.put(out, o, b"baseOffset: ", 12)
        o = put_number(out, o, base_offset)
        o = buffer_access.put(out, o, b" lastOffset: ", 13)
        o = put_number(out, o, last_offset)
        o = buffer_access.put(out, o, b" count: ", 8)
        o = put_number(out, o, cells[C.COUNT * capacity + row])
        o = buffer_access.put(out, o, b" baseSequence: ", 15)
        sequence = cells[C.BASE_SEQUENCE * capacity + row]
        o = put_number(out, o, sequence)
        o = buffer_access.put(out, o, b" lastSequence: ", 15)
        o = put_number(out, o, last_sequence(sequence, base_offset, last_offset))
        o = buffer_access.put(out, o, b" producerId: ", 13)
        o = put_number(out, o, cells[C.PRODUCER_ID * capacity + row])
        o = buffer_access.put(out, o, b" producerEpoch: ", 16)
        o = put_number(out, o, cells[C.PRODUCER_EPOCH * capacity + row])
        o = buffer_access.put(out, o, b" partitionLeaderEpoch: ", 23)
        o = put_number(out, o, cells[C.LEADER_EPOCH * capacity + row])
        o = buffer_access.put(out, o, b" isTransactional: ", 18)
        o = put_bool(out, o, attributes & C.TRANSACTIONAL_BIT)
        o = buffer_access.put(out, o, b" isControl: ", 12)
        o = put_bool(out, o, attributes & C.CONTROL_BIT)
        o = buffer_access.put(out, o, b" deleteHorizonMs: OptionalLong", 30)
        if attributes & C.DELETE_HORIZON_BIT:
            out[o] = 91
            o = put_number(out, o + 1, cells[C.BASE_TIMESTAMP * capacity + row])
            out[o] = 93
            o = o + 1
        else:
            o = buffer_access.put(out, o, b".empty", 6)
    else:
        o = buffer_access.put(out, o, b"offset: ", 8)
        o = put_number(out, o, last_offset)
    o = buffer_access.put(out, o, b" position: ", 11)
    o = put_number(out, o, cells[C.POSITION * capacity + row])
    out[o] = 32
    o = put_type(out, o + 1, magic, attributes)
    o = buffer_access.put(out, o, b": ", 2)
    o = put_number(out, o, cells[C.MAX_TIMESTAMP * capacity + row])
    o = buffer_access.put(out, o, b" size: ", 7)
    o = put_number(out, o, cells[C.SIZE * capacity + row])
    o = buffer_access.put(out, o, b" magic: ", 8)
    o = put_number(out, o, magic)
    o = buffer_access.put(out, o, b" compresscodec: ", 16)
    o = put_codec(out, o, attributes & C.CODEC_MASK)
    o = buffer_access.put(out, o, b" crc: ", 6)
    o = put_number(out, o, cells[C.CRC * capacity + row])
    o = buffer_access.put(out, o, b" isvalid: ", 10)
    o = put_bool(out, o, cells[C.VALID * capacity + row] == 1)
    out[o] = 10
    return o + 1


def record_room(buf: Readable, cells: Readable, capacity: int, at: int, flags: int) -> int:
    """Upper bound of the size of a record's line in bytes."""
    room = 320
    if cells[C.R_HEADER_COUNT * capacity + at] > 0:
        room = room + 4 * record_headers.headers_length(
            buf, cells[C.R_HEADERS_START * capacity + at], cells[C.R_HEADER_COUNT * capacity + at]
        )
    if flags & 2:
        if cells[C.R_KEY_LENGTH * capacity + at] > 0:
            room = room + 4 * cells[C.R_KEY_LENGTH * capacity + at]
        if cells[C.R_VALUE_LENGTH * capacity + at] > 0 and cells[C.R_VALUE_START * capacity + at] >= 0:
            room = room + 4 * cells[C.R_VALUE_LENGTH * capacity + at]
    return room


def put_metadata(
    buf: Readable,
    batches: Readable,
    batch_capacity: int,
    row: int,
    cells: Readable,
    capacity: int,
    at: int,
    out: Writable,
    o: int,
    escape: int,
) -> int:
    magic = batches[C.MAGIC * batch_capacity + row]
    o = buffer_access.put(out, o, b"| offset: ", 10)
    o = put_number(out, o, cells[C.R_OFFSET * capacity + at])
    out[o] = 32
    o = put_type(out, o + 1, magic, batches[C.ATTRIBUTES * batch_capacity + row])
    o = buffer_access.put(out, o, b": ", 2)
    o = put_number(out, o, cells[C.R_TIMESTAMP * capacity + at])
    o = buffer_access.put(out, o, b" keySize: ", 10)
    o = put_number(out, o, cells[C.R_KEY_LENGTH * capacity + at])
    o = buffer_access.put(out, o, b" valueSize: ", 12)
    o = put_number(out, o, cells[C.R_VALUE_LENGTH * capacity + at])
    if magic >= 2:
        o = buffer_access.put(out, o, b" sequence: ", 11)
        o = put_number(out, o, cells[C.R_SEQUENCE * capacity + at])
        o = buffer_access.put(out, o, b" headerKeys: ", 13)
        return record_headers.put_header_names(
            buf,
            cells[C.R_HEADERS_START * capacity + at],
            cells[C.R_HEADER_COUNT * capacity + at],
            out,
            o,
            escape,
        )
    o = buffer_access.put(out, o, b" isValid: ", 10)
    o = put_bool(out, o, cells[C.R_VALID * capacity + at] == 1)
    o = buffer_access.put(out, o, b" crc: ", 6)
    return put_number(out, o, cells[C.R_CRC * capacity + at])


def put_record(
    buf: Readable,
    batches: Readable,
    batch_capacity: int,
    row: int,
    cells: Readable,
    capacity: int,
    at: int,
    flags: int,
    out: Writable,
    o: int,
) -> int:
    """One record line without its newline; needs `record_room` bytes."""
    escape = 1 if flags & 8 else 0
    skip = flags & 4
    if not skip:
        o = put_metadata(buf, batches, batch_capacity, row, cells, capacity, at, out, o, escape)
    if flags & 2 and not (
        batches[C.MAGIC * batch_capacity + row] >= 2
        and batches[C.ATTRIBUTES * batch_capacity + row] & C.CONTROL_BIT
    ):
        if cells[C.R_KEY_LENGTH * capacity + at] >= 0:
            if skip:
                out[o] = 124
                o = o + 1
                skip = 0
            o = buffer_access.put(out, o, b" key: ", 6)
            o = java_utf8.put_text(
                buf,
                cells[C.R_KEY_START * capacity + at],
                cells[C.R_KEY_LENGTH * capacity + at],
                out,
                o,
                escape,
            )
        # a legacy value that exceeds its message has a length and no start
        if cells[C.R_VALUE_LENGTH * capacity + at] >= 0 and cells[C.R_VALUE_START * capacity + at] >= 0:
            if skip:
                out[o] = 124
                o = o + 1
            o = buffer_access.put(out, o, b" payload: ", 10)
            o = java_utf8.put_text(
                buf,
                cells[C.R_VALUE_START * capacity + at],
                cells[C.R_VALUE_LENGTH * capacity + at],
                out,
                o,
                escape,
            )
    return o


def check_tables(
    batch_cells: int, batch_capacity: int, last_row: int, record_cells: int, capacity: int, count: int
) -> int:
    """Raises ValueError if a table is smaller than the rows to format. batch_cells, record_cells: the sizes of the arrays."""
    if batch_capacity * C.BATCH_WIDTH > batch_cells or last_row >= batch_capacity or count > capacity:
        raise ValueError("the table of batches is too small")
    if capacity * C.RECORD_WIDTH > record_cells:
        raise ValueError("the table of records is too small")
    return 0


def format_lines(
    buf: Readable,
    batches: Readable,
    batch_capacity: int,
    last_row: int,
    cells: Readable,
    capacity: int,
    count: int,
    flags: int,
    out: Writable,
    start: int,
    state: Writable,
) -> int:
    """Append lines to `out` from position `start`: batch rows state[LINES_ROW] … last_row, each followed by its records.

    cells, count: the table of records of these batches (in order, R_BATCH is the row of the batch) whose positions are in
    `buf`; ignored unless flags has DEEP. flags: DEEP, CONTENTS, SKIP_METADATA, ESCAPE. state: LINES_ROW the next batch row,
    LINES_RECORD the next record (a batch line is written when its row is reached). Returns the new end in `out`. If the
    room is short it stops early (state has the position), so a caller whose `out` is empty must enlarge it.
    """
    check_tables(len(batches), batch_capacity, last_row, len(cells), capacity, count)
    body = buffer_access.bytes_in(buf)
    rows = buffer_access.cells_in(batches)
    table = buffer_access.cells_in(cells)
    text = buffer_access.room_in(out)
    o = start
    limit = len(out)
    row = state[S.LINES_ROW]
    at = state[S.LINES_RECORD]
    while True:
        if flags & 1:
            while at < count and table[C.R_BATCH * capacity + at] < row:
                room = record_room(body, table, capacity, at, flags)
                if o + room > limit:
                    break
                o = put_record(
                    body,
                    rows,
                    batch_capacity,
                    table[C.R_BATCH * capacity + at],
                    table,
                    capacity,
                    at,
                    flags,
                    text,
                    o,
                )
                text[o] = 10
                o = o + 1
                at = at + 1
            if at < count and table[C.R_BATCH * capacity + at] < row:
                break
        if row > last_row or o + 640 > limit:
            break
        o = put_batch(text, o, rows, batch_capacity, row)
        row = row + 1
    state[S.LINES_ROW] = row
    state[S.LINES_RECORD] = at
    return o
