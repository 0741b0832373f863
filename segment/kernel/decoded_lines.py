# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""Lines of a dump whose keys and values are messages of Kafka's own topics (fact sheet internal topics §1.2, §1.3, §1.6).

    coordinator   key: {"type":"1","data":{…}} payload: {"version":"4","data":{…}}     payload: <DELETE> without a value
    framed        payload: {"type":"TOPIC_RECORD","version":0,"data":{…}}

A program begins with COORDINATOR or FRAMED, the number of types and the position of their table. For each type the table has the
struct of the key (COORDINATOR) or 1 (FRAMED), 0 for a type that does not exist; the first and the last version; the position of the
structs of all versions, followed by the one for any later version; and the name of the type in `names`. The structs:
`kernel.message_reader`.

This module formats only records that can be decoded. At any other record `format_decoded` stops, and the caller writes the line with
the reason, which `format_parts` reports as a stage and an error in the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access, dump_text, message_json, message_reader
from kseg.segment.kernel import message_fields as M
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable
    from kseg.segment.kernel.message_reader import MessageReader


def stop_at(r: MessageReader, stage: int) -> int:
    r.state[M.STAGE] = stage
    return -1


def put_prefix(out: Writable, o: int, text: Readable, length: int, number: int) -> int:
    o = buffer_access.put(out, o, text, length)
    o = dump_text.put_number(out, o, number)
    return buffer_access.put(out, o, b'","data":', 9)


def put_coordinator_key(r: MessageReader, p: int, length: int, o: int) -> int:
    if length < 0:
        return stop_at(r, M.KEY_MISSING)
    if length < 2:
        return stop_at(r, M.KEY_TYPE)
    kind = buffer_access.short_at(r.buf, p)
    r.state[M.TYPE] = kind
    if (
        kind < 0
        or kind >= r.ops[M.PROGRAM_TYPES]
        or not r.ops[r.ops[M.PROGRAM_TABLE] + M.LINES_TYPE_WIDTH * kind]
    ):
        return stop_at(r, M.UNKNOWN_TYPE)
    if r.limit - o < 96:
        r.state[M.ERROR] = M.NO_ROOM
        return stop_at(r, M.KEY_MESSAGE)
    r.state[M.OUT] = put_prefix(r.out, o, b'{"type":"', 9, kind)
    s = r.ops[r.ops[M.PROGRAM_TABLE] + M.LINES_TYPE_WIDTH * kind]
    if message_json.read_struct(r, s, p + 2, p + length, 0, M.AS_KAFKA) < 0:
        return stop_at(r, M.KEY_MESSAGE)
    r.out[r.state[M.OUT]] = 125
    return r.state[M.OUT] + 1


def put_coordinator_value(r: MessageReader, p: int, length: int, o: int) -> int:
    # of the type that the key contains
    if r.limit - o < 96:
        r.state[M.ERROR] = M.NO_ROOM
        return stop_at(r, M.VALUE_MESSAGE)
    if length < 0:
        return buffer_access.put(r.out, o, b"<DELETE>", 8)
    if length < 2:
        return stop_at(r, M.VALUE_VERSION)
    entry = r.ops[M.PROGRAM_TABLE] + M.LINES_TYPE_WIDTH * r.state[M.TYPE]
    version = buffer_access.short_at(r.buf, p)
    r.state[M.VERSION] = version
    if version < r.ops[entry + M.TYPE_FIRST] or version > r.ops[entry + M.TYPE_LAST]:
        return stop_at(r, M.UNKNOWN_VERSION)
    r.state[M.OUT] = put_prefix(r.out, o, b'{"version":"', 12, version)
    s = r.ops[r.ops[entry + M.TYPE_STRUCTS] + version - r.ops[entry + M.TYPE_FIRST]]
    end = message_json.read_struct(r, s, p + 2, p + length, 0, M.AS_KAFKA)
    if end < 0:
        return stop_at(r, M.VALUE_MESSAGE)
    r.state[M.LEFT_OVER] = p + length - end
    r.out[r.state[M.OUT]] = 125
    return r.state[M.OUT] + 1


def frame_number(r: MessageReader, p: int, end: int) -> int:
    # a varint as a Java short in r.state[VALUE]
    p = message_reader.uvarint(r, p, end)
    if p < 0:
        r.state[M.ERROR] = M.IS_TRUNCATED
        return -1
    if r.state[M.VALUE] > 32767:
        r.state[M.ERROR] = M.IS_TOO_LARGE
        return -1
    value = r.state[M.VALUE] & 65535
    r.state[M.VALUE] = value - 65536 if value > 32767 else value
    return p


def put_framed(r: MessageReader, p: int, length: int, o: int) -> int:
    end = p + length if length > 0 else p
    p = frame_number(r, p, end)
    if p < 0:
        return stop_at(r, M.FRAME_VERSION)
    if r.state[M.VALUE] != 1:
        r.state[M.A] = r.state[M.VALUE]
        return stop_at(r, M.BAD_FRAME_VERSION)
    p = frame_number(r, p, end)
    if p < 0:
        return stop_at(r, M.FRAME_TYPE)
    kind = r.state[M.VALUE]
    r.state[M.TYPE] = kind
    p = frame_number(r, p, end)
    if p < 0:
        return stop_at(r, M.MESSAGE_VERSION)
    version = r.state[M.VALUE]
    r.state[M.VERSION] = version
    if (
        kind < 0
        or kind >= r.ops[M.PROGRAM_TYPES]
        or not r.ops[r.ops[M.PROGRAM_TABLE] + M.LINES_TYPE_WIDTH * kind]
    ):
        return stop_at(r, M.UNKNOWN_TYPE)
    if r.limit - o < 160:
        r.state[M.ERROR] = M.NO_ROOM
        return stop_at(r, M.VALUE_MESSAGE)
    entry = r.ops[M.PROGRAM_TABLE] + M.LINES_TYPE_WIDTH * kind
    o = buffer_access.put(r.out, o, b'{"type":"', 9)
    buffer_access.copied(r.out, o, r.names, r.ops[entry + M.TYPE_TEXT], r.ops[entry + M.TYPE_TEXT_LENGTH])
    o = buffer_access.put(r.out, o + r.ops[entry + M.TYPE_TEXT_LENGTH], b'","version":', 12)
    o = dump_text.put_number(r.out, o, version)
    r.state[M.OUT] = buffer_access.put(r.out, o, b',"data":', 8)
    if version < r.ops[entry + M.TYPE_FIRST]:
        version = r.ops[entry + M.TYPE_FIRST]
    if version > r.ops[entry + M.TYPE_LAST]:
        version = r.ops[entry + M.TYPE_LAST] + 1
    s = r.ops[r.ops[entry + M.TYPE_STRUCTS] + version - r.ops[entry + M.TYPE_FIRST]]
    p = message_json.read_struct(r, s, p, end, 0, M.AS_KAFKA)
    if p < 0:
        return stop_at(r, M.VALUE_MESSAGE)
    r.state[M.LEFT_OVER] = end - p
    if p < end:
        return stop_at(r, M.GARBAGE)
    r.out[r.state[M.OUT]] = 125
    return r.state[M.OUT] + 1


def format_parts(
    ops: Readable,
    names: Readable,
    buf: Readable,
    key_start: int,
    key_length: int,
    value_start: int,
    value_length: int,
    out: Writable,
    state: Writable,
) -> int:
    """Write the text of a key, up to state[KEY_END], and of a value after it to the start of `out`; a FRAMED record has no key. Returns
    the end, −1 if the record cannot be read: state[STAGE] and state[ERROR] have the reason (NO_ROOM: `out` is too small).
    """
    if (
        len(state) < M.LINES_STATE_WIDTH
        or key_start + key_length > len(buf)
        or value_start + value_length > len(buf)
    ):
        raise ValueError("a key or value is outside the buffer")
    state[M.STAGE] = M.NO_STAGE
    state[M.ERROR] = M.NO_ERROR
    state[M.KEY_END] = 0
    r = message_reader.reader_of(ops, names, buf, out, state)
    if r.ops[M.PROGRAM_FORM] == M.FRAMED:
        return put_framed(r, value_start, value_length, 0)
    o = put_coordinator_key(r, key_start, key_length, 0)
    if o < 0:
        return -1
    state[M.KEY_END] = o
    return put_coordinator_value(r, value_start, value_length, o)


def format_decoded(
    ops: Readable,
    names: Readable,
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
    message_state: Writable,
) -> int:
    """`dump_text.format_lines` for decoded records: the same arguments and result, preceded by the program and followed by its state.

    Stops early at a record that cannot be read; then message_state[STAGE] is not NO_STAGE, and state[LINES_RECORD] is that record.
    """
    dump_text.check_tables(len(batches), batch_capacity, last_row, len(cells), capacity, count)
    if len(message_state) < M.LINES_STATE_WIDTH:
        raise ValueError("the state is too small")
    r = message_reader.reader_of(ops, names, buf, out, message_state)
    body = buffer_access.bytes_in(buf)
    rows = buffer_access.cells_in(batches)
    table = buffer_access.cells_in(cells)
    text = buffer_access.room_in(out)
    framed = r.ops[M.PROGRAM_FORM]
    skip = flags & 4
    message_state[M.STAGE] = M.NO_STAGE
    message_state[M.ERROR] = M.NO_ERROR
    limit = len(out)
    o = start
    row = state[S.LINES_ROW]
    at = state[S.LINES_RECORD]
    while True:
        while at < count and table[C.R_BATCH * capacity + at] < row:
            end = o
            if not skip:
                room = dump_text.record_room(body, table, capacity, at, 0)
                if end + room > limit:
                    break
                end = dump_text.put_metadata(
                    body,
                    rows,
                    batch_capacity,
                    table[C.R_BATCH * capacity + at],
                    table,
                    capacity,
                    at,
                    text,
                    end,
                    0,
                )
            if limit - end < 32:
                break
            if (
                rows[C.MAGIC * batch_capacity + table[C.R_BATCH * capacity + at]] < 2
                or not rows[C.ATTRIBUTES * batch_capacity + table[C.R_BATCH * capacity + at]] & C.CONTROL_BIT
            ):
                if skip:
                    text[end] = 124
                    end = end + 1
                length = table[C.R_VALUE_LENGTH * capacity + at]
                if table[C.R_VALUE_START * capacity + at] < 0 and length >= 0:
                    stop_at(r, M.VALUE_MESSAGE)  # a legacy value that exceeds its message
                    break
                if not framed:
                    end = buffer_access.put(text, end, b" key: ", 6)
                    end = put_coordinator_key(
                        r, table[C.R_KEY_START * capacity + at], table[C.R_KEY_LENGTH * capacity + at], end
                    )
                    if end < 0 or limit - end < 32:
                        break
                    end = buffer_access.put(text, end, b" payload: ", 10)
                    end = put_coordinator_value(r, table[C.R_VALUE_START * capacity + at], length, end)
                else:
                    end = buffer_access.put(text, end, b" payload: ", 10)
                    end = put_framed(r, table[C.R_VALUE_START * capacity + at], length, end)
                if end < 0 or limit - end < 2:
                    break
            text[end] = 10
            o = end + 1
            at = at + 1
        if at < count and table[C.R_BATCH * capacity + at] < row:
            break
        if row > last_row or o + 640 > limit:
            break
        o = dump_text.put_batch(text, o, rows, batch_capacity, row)
        row = row + 1
    if message_state[M.ERROR] == M.NO_ROOM:
        message_state[M.STAGE] = M.NO_STAGE  # out of room, not a fault of the record
    state[S.LINES_ROW] = row
    state[S.LINES_RECORD] = at
    return o
