# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""JSON lines of a dump from the tables of batches and records (design §7; docs/json.md).

These are the lines that `segment.json_rows` produces one at a time; `kernel.json_strings` writes the keys, values and headers.

Bounds checks are off as in `kernel.dump_text`: the room for a line's longest form is checked before it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access, dump_text, json_strings, record_headers
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def put_headers(buf: Readable, p: int, count: int, mode: int, out: Writable, o: int) -> int:
    """`[["name","value"],…]` of headers that the record walk has validated; bytes that are not text are {"base64":…}."""
    out[o] = 91
    o = o + 1
    for i in range(count):
        if i > 0:
            out[o] = 44
            o = o + 1
        out[o] = 91
        length = record_headers.small_varint(buf, p)
        p = record_headers.skip_varint(buf, p)
        o = json_strings.put_string(buf, p, length, out, o + 1, 87)
        out[o] = 44
        o = o + 1
        p = p + length
        length = record_headers.small_varint(buf, p)
        p = record_headers.skip_varint(buf, p)
        if length >= 0 and mode == 0 and not json_strings.is_utf8(buf, p, p + length):
            o = buffer_access.put(out, o, b'{"base64":', 10)
            o = json_strings.put_base64(buf, p, length, out, o)
            out[o] = 125
            o = o + 1
        else:
            o = json_strings.put_bytes(buf, p, length, 1, out, o)
        if length > 0:
            p = p + length
        out[o] = 93
        o = o + 1
    out[o] = 93
    return o + 1


def put_file(out: Writable, o: int, file: Readable, file_length: int) -> int:
    o = buffer_access.put(out, o, b',"file":', 8)
    o = buffer_access.put(out, o, file, file_length)
    return buffer_access.put(out, o, b',"position":', 12)


def put_batch_line(
    out: Writable, o: int, cells: Readable, capacity: int, row: int, file: Readable, file_length: int
) -> int:
    magic = cells[C.MAGIC * capacity + row]
    attributes = cells[C.ATTRIBUTES * capacity + row] & 255
    flags = attributes if magic >= 2 else 0
    base_offset = cells[C.BASE_OFFSET * capacity + row]
    last_offset = cells[C.LAST_OFFSET * capacity + row]
    count = cells[C.COUNT * capacity + row]
    sequence = cells[C.BASE_SEQUENCE * capacity + row]
    o = buffer_access.put(out, o, b'{"type":"batch"', 15)
    o = put_file(out, o, file, file_length)
    o = dump_text.put_number(out, o, cells[C.POSITION * capacity + row])
    o = buffer_access.put(out, o, b',"size":', 8)
    o = dump_text.put_number(out, o, cells[C.SIZE * capacity + row])
    o = buffer_access.put(out, o, b',"magic":', 9)
    o = dump_text.put_number(out, o, magic)
    o = buffer_access.put(out, o, b',"base_offset":', 15)
    o = dump_text.put_number(out, o, base_offset)
    o = buffer_access.put(out, o, b',"last_offset":', 15)
    o = dump_text.put_number(out, o, last_offset)
    o = buffer_access.put(out, o, b',"count":', 9)
    if magic < 2 and count < 0:
        o = buffer_access.put(out, o, b"null", 4)
    else:
        o = dump_text.put_number(out, o, count)
    o = buffer_access.put(out, o, b',"base_sequence":', 17)
    o = dump_text.put_number(out, o, sequence)
    o = buffer_access.put(out, o, b',"last_sequence":', 17)
    o = dump_text.put_number(out, o, dump_text.last_sequence(sequence, base_offset, last_offset))
    o = buffer_access.put(out, o, b',"producer_id":', 15)
    o = dump_text.put_number(out, o, cells[C.PRODUCER_ID * capacity + row])
    o = buffer_access.put(out, o, b',"producer_epoch":', 18)
    o = dump_text.put_number(out, o, cells[C.PRODUCER_EPOCH * capacity + row])
    o = buffer_access.put(out, o, b',"leader_epoch":', 16)
    o = dump_text.put_number(out, o, cells[C.LEADER_EPOCH * capacity + row])
    o = buffer_access.put(out, o, b',"transactional":', 17)
    o = dump_text.put_bool(out, o, flags & C.TRANSACTIONAL_BIT)
    o = buffer_access.put(out, o, b',"control":', 11)
    o = dump_text.put_bool(out, o, flags & C.CONTROL_BIT)
    o = buffer_access.put(out, o, b',"delete_horizon_ms":', 21)
    if flags & C.DELETE_HORIZON_BIT:
        o = dump_text.put_number(out, o, cells[C.BASE_TIMESTAMP * capacity + row])
    else:
        o = buffer_access.put(out, o, b"null", 4)
    o = buffer_access.put(out, o, b',"timestamp_type":"', 19)
    o = dump_text.put_type(out, o, magic, attributes)
    o = buffer_access.put(out, o, b'","max_timestamp":', 18)
    o = dump_text.put_number(out, o, cells[C.MAX_TIMESTAMP * capacity + row])
    o = buffer_access.put(out, o, b',"compression":"', 16)
    o = dump_text.put_codec(out, o, attributes & C.CODEC_MASK)
    o = buffer_access.put(out, o, b'","crc":', 8)
    o = dump_text.put_number(out, o, cells[C.CRC * capacity + row])
    o = buffer_access.put(out, o, b',"valid":', 9)
    o = dump_text.put_bool(out, o, cells[C.VALID * capacity + row] == 1)
    return buffer_access.put(out, o, b"}\n", 2)


def put_record_head(
    batches: Readable,
    batch_capacity: int,
    row: int,
    cells: Readable,
    capacity: int,
    at: int,
    file: Readable,
    file_length: int,
    out: Writable,
    o: int,
) -> int:
    # everything before the key
    o = buffer_access.put(out, o, b'{"type":"record"', 16)
    o = put_file(out, o, file, file_length)
    o = dump_text.put_number(out, o, batches[C.POSITION * batch_capacity + row])
    o = buffer_access.put(out, o, b',"offset":', 10)
    o = dump_text.put_number(out, o, cells[C.R_OFFSET * capacity + at])
    o = buffer_access.put(out, o, b',"timestamp":', 13)
    o = dump_text.put_number(out, o, cells[C.R_TIMESTAMP * capacity + at])
    o = buffer_access.put(out, o, b',"timestamp_type":"', 19)
    o = dump_text.put_type(
        out, o, batches[C.MAGIC * batch_capacity + row], batches[C.ATTRIBUTES * batch_capacity + row]
    )
    o = buffer_access.put(out, o, b'","sequence":', 13)
    o = dump_text.put_number(out, o, cells[C.R_SEQUENCE * capacity + at])
    return buffer_access.put(out, o, b',"key":', 7)


def put_record_tail(magic: int, cells: Readable, capacity: int, at: int, out: Writable, o: int) -> int:
    # everything after the encodings
    if magic < 2:
        o = buffer_access.put(out, o, b',"crc":', 7)
        o = dump_text.put_number(out, o, cells[C.R_CRC * capacity + at])
        o = buffer_access.put(out, o, b',"valid":', 9)
        o = dump_text.put_bool(out, o, cells[C.R_VALID * capacity + at] == 1)
    return buffer_access.put(out, o, b"}\n", 2)


def put_record_line(
    buf: Readable,
    batches: Readable,
    batch_capacity: int,
    row: int,
    cells: Readable,
    capacity: int,
    at: int,
    mode: int,
    file: Readable,
    file_length: int,
    out: Writable,
    o: int,
) -> int:
    key_start = cells[C.R_KEY_START * capacity + at]
    key_length = cells[C.R_KEY_LENGTH * capacity + at]
    value_start = cells[C.R_VALUE_START * capacity + at]
    value_length = cells[C.R_VALUE_LENGTH * capacity + at]
    o = put_record_head(batches, batch_capacity, row, cells, capacity, at, file, file_length, out, o)
    o = json_strings.put_bytes(buf, key_start, key_length, mode, out, o)
    o = buffer_access.put(out, o, b',"value":', 9)
    o = json_strings.put_bytes(buf, value_start, value_length, mode, out, o)
    o = buffer_access.put(out, o, b',"headers":', 11)
    o = put_headers(
        buf, cells[C.R_HEADERS_START * capacity + at], cells[C.R_HEADER_COUNT * capacity + at], mode, out, o
    )
    o = buffer_access.put(out, o, b',"key_encoding":', 16)
    o = json_strings.put_encoding(buf, key_start, key_length, mode, out, o)
    o = buffer_access.put(out, o, b',"value_encoding":', 18)
    o = json_strings.put_encoding(buf, value_start, value_length, mode, out, o)
    return put_record_tail(batches[C.MAGIC * batch_capacity + row], cells, capacity, at, out, o)


def line_room(buf: Readable, cells: Readable, capacity: int, at: int, file_length: int) -> int:
    """Upper bound of the size of a record's line: every byte can become `\\u00xx`."""
    room = 500 + file_length
    if cells[C.R_HEADER_COUNT * capacity + at] > 0:
        room = room + 16 * cells[C.R_HEADER_COUNT * capacity + at]
        room = room + 6 * record_headers.headers_length(
            buf, cells[C.R_HEADERS_START * capacity + at], cells[C.R_HEADER_COUNT * capacity + at]
        )
    if cells[C.R_KEY_LENGTH * capacity + at] > 0:
        room = room + 6 * cells[C.R_KEY_LENGTH * capacity + at]
    if cells[C.R_VALUE_LENGTH * capacity + at] > 0 and cells[C.R_VALUE_START * capacity + at] >= 0:
        room = room + 6 * cells[C.R_VALUE_LENGTH * capacity + at]
    return room


def format_json(
    buf: Readable,
    batches: Readable,
    batch_capacity: int,
    last_row: int,
    cells: Readable,
    capacity: int,
    count: int,
    mode: int,
    file: Readable,
    out: Writable,
    start: int,
    state: Writable,
) -> int:
    """Append lines to `out` from position `start`, as `dump_text.format_lines` does; every batch line before its records.

    mode: AUTO or TEXT. file: the file's name as a JSON string, UTF-8. state: as there. Returns
    the new end in `out`; if the room is short it stops early, so a caller whose `out` is empty must enlarge it.
    """
    dump_text.check_tables(len(batches), batch_capacity, last_row, len(cells), capacity, count)
    body = buffer_access.bytes_in(buf)
    rows = buffer_access.cells_in(batches)
    table = buffer_access.cells_in(cells)
    room_of = buffer_access.room_in(out)
    name = buffer_access.bytes_in(file)
    name_length = len(file)
    o = start
    limit = len(out)
    row = state[S.LINES_ROW]
    at = state[S.LINES_RECORD]
    while True:
        while at < count and table[C.R_BATCH * capacity + at] < row:
            if o + line_room(body, table, capacity, at, name_length) > limit:
                break
            o = put_record_line(
                body,
                rows,
                batch_capacity,
                table[C.R_BATCH * capacity + at],
                table,
                capacity,
                at,
                mode,
                name,
                name_length,
                room_of,
                o,
            )
            at = at + 1
        if at < count and table[C.R_BATCH * capacity + at] < row:
            break
        if row > last_row or o + 900 + name_length > limit:
            break
        o = put_batch_line(room_of, o, rows, batch_capacity, row, name, name_length)
        row = row + 1
    state[S.LINES_ROW] = row
    state[S.LINES_RECORD] = at
    return o
