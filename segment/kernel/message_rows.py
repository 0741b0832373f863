# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""JSON lines of records whose keys and values are messages of Kafka's own topics: the lines of `json_lines`, with messages instead of
bytes, as in `internal_topics.topic_rows` (docs/json.md).

    key     {"type":1,"name":"OffsetCommitKey","data":{…}}
    value   {"type":1,"name":"OffsetCommitValue","version":4,"data":{…}}

A program begins with COORDINATOR or FRAMED (`kernel.decoded_lines`), the number of types, and the positions of their table and of the table
of topic ids. For each type the table has the struct of the key (COORDINATOR) or 1 (FRAMED), 0 for a type that is left to the caller; the
first and last version and the position of their structs; the texts before the version and before the data of the key, with their lengths.

This module formats only ordinary records. `format_rows` stops at a record that needs additional members (a newer version, unknown tags,
trailing bytes, secrets) or cannot be decoded, and the caller writes its line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import (
    buffer_access,
    dump_text,
    json_lines,
    json_strings,
    message_json,
    message_reader,
    record_headers,
)
from kseg.segment.kernel import message_fields as M
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable
    from kseg.segment.kernel.message_reader import MessageReader


def put_struct(r: MessageReader, s: int, p: int, end: int, o: int) -> int:
    """A message that uses all of its bytes, and the closing brace. −1 if the row needs more than that."""
    r.state[M.OUT] = o
    r.state[M.UNKNOWN_TAGS] = 0
    r.state[M.ODDITIES] = 0
    if message_json.read_struct(r, s, p, end, 0, M.AS_ROWS) != end:
        return -1
    if r.state[M.UNKNOWN_TAGS] or r.state[M.ODDITIES]:
        return -1
    r.out[r.state[M.OUT]] = 125
    return r.state[M.OUT] + 1


def put_key(r: MessageReader, p: int, length: int, o: int) -> int:
    if length < 2:
        return -1
    kind = buffer_access.short_at(r.buf, p)
    r.state[M.ROW_TYPE] = kind
    if kind < 0 or kind >= r.ops[M.PROGRAM_TYPES]:
        return -1
    entry = r.ops[M.PROGRAM_TABLE] + M.ROWS_TYPE_WIDTH * kind
    if not r.ops[entry + M.TYPE_STRUCT]:
        return -1
    if r.limit - o < r.ops[entry + M.TYPE_KEY_TEXT_LENGTH]:
        return message_reader.fail(r, M.NO_ROOM, 0, 0, 0)
    buffer_access.copied(
        r.out, o, r.names, r.ops[entry + M.TYPE_KEY_TEXT], r.ops[entry + M.TYPE_KEY_TEXT_LENGTH]
    )
    return put_struct(
        r, r.ops[entry + M.TYPE_STRUCT], p + 2, p + length, o + r.ops[entry + M.TYPE_KEY_TEXT_LENGTH]
    )


def put_message(r: MessageReader, p: int, end: int, version: int, o: int) -> int:
    """A value with a type and version."""
    entry = r.ops[M.PROGRAM_TABLE] + M.ROWS_TYPE_WIDTH * r.state[M.ROW_TYPE]
    if version < r.ops[entry + M.TYPE_FIRST] or version > r.ops[entry + M.TYPE_LAST]:
        return -1
    if r.limit - o < r.ops[entry + M.TYPE_TEXT_LENGTH] + M.SPARE_ROOM:
        return message_reader.fail(r, M.NO_ROOM, 0, 0, 0)
    buffer_access.copied(r.out, o, r.names, r.ops[entry + M.TYPE_TEXT], r.ops[entry + M.TYPE_TEXT_LENGTH])
    o = dump_text.put_number(r.out, o + r.ops[entry + M.TYPE_TEXT_LENGTH], version)
    o = buffer_access.put(r.out, o, b',"data":', 8)
    s = r.ops[r.ops[entry + M.TYPE_STRUCTS] + version - r.ops[entry + M.TYPE_FIRST]]
    return put_struct(r, s, p, end, o)


def put_framed(r: MessageReader, p: int, length: int, o: int) -> int:
    # frame, type and version below 128; larger ones are rare
    if length < 3 or r.buf[p] != 1 or r.buf[p + 1] > 127 or r.buf[p + 2] > 127:
        return -1
    kind = r.buf[p + 1]
    if kind >= r.ops[M.PROGRAM_TYPES] or not r.ops[r.ops[M.PROGRAM_TABLE] + M.ROWS_TYPE_WIDTH * kind]:
        return -1
    r.state[M.ROW_TYPE] = kind
    return put_message(r, p + 3, p + length, r.buf[p + 2], o)


def put_value(r: MessageReader, p: int, length: int, o: int) -> int:
    if length < 0:
        return buffer_access.put(r.out, o, b"null", 4)
    if r.ops[M.PROGRAM_FORM] == M.FRAMED:
        return put_framed(r, p, length, o)
    if length < 2:
        return -1
    return put_message(r, p + 2, p + length, buffer_access.short_at(r.buf, p), o)


def put_row(
    r: MessageReader,
    batches: Readable,
    batch_capacity: int,
    cells: Readable,
    capacity: int,
    at: int,
    mode: int,
    file: Readable,
    file_length: int,
    o: int,
    limit: int,
) -> int:
    """The line of a record, for which `line_room` is available; −1 if it is left to the caller, or the room is short."""
    row = cells[C.R_BATCH * capacity + at]
    key_start = cells[C.R_KEY_START * capacity + at]
    key_length = cells[C.R_KEY_LENGTH * capacity + at]
    value_start = cells[C.R_VALUE_START * capacity + at]
    value_length = cells[C.R_VALUE_LENGTH * capacity + at]
    headers = cells[C.R_HEADER_COUNT * capacity + at]
    framed = r.ops[M.PROGRAM_FORM] == M.FRAMED
    r.state[M.ERROR] = M.NO_ERROR
    if value_start < 0 <= value_length:
        return -1  # a legacy value that exceeds its message
    # the room for what follows the messages
    r.limit = limit - 200
    if headers > 0:
        r.limit = (
            r.limit
            - 16 * headers
            - 6 * record_headers.headers_length(r.buf, cells[C.R_HEADERS_START * capacity + at], headers)
        )
    o = json_lines.put_record_head(
        batches, batch_capacity, row, cells, capacity, at, file, file_length, r.out, o
    )
    if framed:
        o = json_strings.put_bytes(r.buf, key_start, key_length, mode, r.out, o)
    else:
        o = put_key(r, key_start, key_length, o)
        if o < 0:
            return -1
    if r.limit - o < M.SPARE_ROOM:
        return message_reader.fail(r, M.NO_ROOM, 0, 0, 0)
    o = buffer_access.put(r.out, o, b',"value":', 9)
    o = put_value(r, value_start, value_length, o)
    if o < 0:
        return -1
    o = buffer_access.put(r.out, o, b',"headers":', 11)
    o = json_lines.put_headers(r.buf, cells[C.R_HEADERS_START * capacity + at], headers, mode, r.out, o)
    o = buffer_access.put(r.out, o, b',"key_encoding":', 16)
    if framed:
        o = json_strings.put_encoding(r.buf, key_start, key_length, mode, r.out, o)
    else:
        o = buffer_access.put(r.out, o, b'"message"', 9)
    if value_length < 0:
        o = buffer_access.put(r.out, o, b',"value_encoding":null', 22)
    else:
        o = buffer_access.put(r.out, o, b',"value_encoding":"message"', 27)
    return json_lines.put_record_tail(batches[C.MAGIC * batch_capacity + row], cells, capacity, at, r.out, o)


def format_rows(
    ops: Readable,
    names: Readable,
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
    message_state: Writable,
) -> int:
    """`json_lines.format_json` for records that are messages: the same arguments and result, preceded by the program and followed by its
    state.

    Stops early at a record that is left to the caller; then message_state[STOPPED] is 1, and state[LINES_RECORD] is that record.
    """
    dump_text.check_tables(len(batches), batch_capacity, last_row, len(cells), capacity, count)
    if len(message_state) < M.ROWS_STATE_WIDTH:
        raise ValueError("the state is too small")
    r = message_reader.reader_of(ops, names, buf, out, message_state)
    body = buffer_access.bytes_in(buf)
    rows = buffer_access.cells_in(batches)
    table = buffer_access.cells_in(cells)
    text = buffer_access.room_in(out)
    name = buffer_access.bytes_in(file)
    name_length = len(file)
    message_state[M.STOPPED] = 0
    limit = len(out)
    o = start
    row = state[S.LINES_ROW]
    at = state[S.LINES_RECORD]
    while True:
        while at < count and table[C.R_BATCH * capacity + at] < row:
            if o + json_lines.line_room(body, table, capacity, at, name_length) > limit:
                break
            end = put_row(r, rows, batch_capacity, table, capacity, at, mode, name, name_length, o, limit)
            if end < 0:
                message_state[M.STOPPED] = 0 if message_state[M.ERROR] == M.NO_ROOM else 1
                break
            o = end
            at = at + 1
        if at < count and table[C.R_BATCH * capacity + at] < row:
            break
        if row > last_row or o + 900 + name_length > limit:
            break
        o = json_lines.put_batch_line(text, o, rows, batch_capacity, row, name, name_length)
        row = row + 1
    state[S.LINES_ROW] = row
    state[S.LINES_RECORD] = at
    return o
