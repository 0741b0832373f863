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
from kseg.segment.kernel.message_reader import STATE_WIDTH as _MESSAGE_STATE

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable
    from kseg.segment.kernel.message_reader import MessageReader

COORDINATOR, FRAMED = range(2)
TYPE_WIDTH = 6

# after the state of message_reader: where it went wrong, the type and version read so far, the bytes left after the message, the key's end
STAGE, TYPE, VERSION, LEFT_OVER, KEY_END = range(_MESSAGE_STATE, _MESSAGE_STATE + 5)
STATE_WIDTH = _MESSAGE_STATE + 5

(
    NO_STAGE,
    KEY_MISSING,
    KEY_TYPE,
    UNKNOWN_TYPE,
    KEY_MESSAGE,
    VALUE_VERSION,
    UNKNOWN_VERSION,
    VALUE_MESSAGE,
    FRAME_VERSION,
    BAD_FRAME_VERSION,
    FRAME_TYPE,
    MESSAGE_VERSION,
    GARBAGE,
) = range(13)
# of a varint of the frame
IS_TRUNCATED, IS_TOO_LARGE = 1, 2


def stop_at(r: MessageReader, stage: int) -> int:
    r.state[137] = stage
    return -1


def put_prefix(out: Writable, o: int, text: Readable, length: int, number: int) -> int:
    o = buffer_access.put(out, o, text, length)
    o = dump_text.put_number(out, o, number)
    return buffer_access.put(out, o, b'","data":', 9)


def put_coordinator_key(r: MessageReader, p: int, length: int, o: int) -> int:
    if length < 0:
        return stop_at(r, 1)
    if length < 2:
        return stop_at(r, 2)
    kind = buffer_access.short_at(r.buf, p)
    r.state[138] = kind
    if kind < 0 or kind >= r.ops[1] or not r.ops[r.ops[2] + 6 * kind]:
        return stop_at(r, 3)
    if r.limit - o < 96:
        r.state[1] = 9
        return stop_at(r, 4)
    r.state[0] = put_prefix(r.out, o, b'{"type":"', 9, kind)
    s = r.ops[r.ops[2] + 6 * kind]
    if message_json.read_struct(r, s, p + 2, p + length, 0, 1) < 0:
        return stop_at(r, 4)
    r.out[r.state[0]] = 125
    return r.state[0] + 1


def put_coordinator_value(r: MessageReader, p: int, length: int, o: int) -> int:
    # of the type that the key contains
    if r.limit - o < 96:
        r.state[1] = 9
        return stop_at(r, 7)
    if length < 0:
        return buffer_access.put(r.out, o, b"<DELETE>", 8)
    if length < 2:
        return stop_at(r, 5)
    entry = r.ops[2] + 6 * r.state[138]
    version = buffer_access.short_at(r.buf, p)
    r.state[139] = version
    if version < r.ops[entry + 1] or version > r.ops[entry + 2]:
        return stop_at(r, 6)
    r.state[0] = put_prefix(r.out, o, b'{"version":"', 12, version)
    s = r.ops[r.ops[entry + 3] + version - r.ops[entry + 1]]
    end = message_json.read_struct(r, s, p + 2, p + length, 0, 1)
    if end < 0:
        return stop_at(r, 7)
    r.state[140] = p + length - end
    r.out[r.state[0]] = 125
    return r.state[0] + 1


def frame_number(r: MessageReader, p: int, end: int) -> int:
    # a varint as a Java short in r.state[VALUE]
    p = message_json.uvarint(r, p, end)
    if p < 0:
        r.state[1] = 1
        return -1
    if r.state[5] > 32767:
        r.state[1] = 2
        return -1
    value = r.state[5] & 65535
    r.state[5] = value - 65536 if value > 32767 else value
    return p


def put_framed(r: MessageReader, p: int, length: int, o: int) -> int:
    end = p + length if length > 0 else p
    p = frame_number(r, p, end)
    if p < 0:
        return stop_at(r, 8)
    if r.state[5] != 1:
        r.state[2] = r.state[5]
        return stop_at(r, 9)
    p = frame_number(r, p, end)
    if p < 0:
        return stop_at(r, 10)
    kind = r.state[5]
    r.state[138] = kind
    p = frame_number(r, p, end)
    if p < 0:
        return stop_at(r, 11)
    version = r.state[5]
    r.state[139] = version
    if kind < 0 or kind >= r.ops[1] or not r.ops[r.ops[2] + 6 * kind]:
        return stop_at(r, 3)
    if r.limit - o < 160:
        r.state[1] = 9
        return stop_at(r, 7)
    entry = r.ops[2] + 6 * kind
    o = buffer_access.put(r.out, o, b'{"type":"', 9)
    buffer_access.copied(r.out, o, r.names, r.ops[entry + 4], r.ops[entry + 5])
    o = buffer_access.put(r.out, o + r.ops[entry + 5], b'","version":', 12)
    o = dump_text.put_number(r.out, o, version)
    r.state[0] = buffer_access.put(r.out, o, b',"data":', 8)
    if version < r.ops[entry + 1]:
        version = r.ops[entry + 1]
    if version > r.ops[entry + 2]:
        version = r.ops[entry + 2] + 1
    s = r.ops[r.ops[entry + 3] + version - r.ops[entry + 1]]
    p = message_json.read_struct(r, s, p, end, 0, 1)
    if p < 0:
        return stop_at(r, 7)
    r.state[140] = end - p
    if p < end:
        return stop_at(r, 12)
    r.out[r.state[0]] = 125
    return r.state[0] + 1


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
    if len(state) < 142 or key_start + key_length > len(buf) or value_start + value_length > len(buf):
        raise ValueError("a key or value is outside the buffer")
    state[137] = 0
    state[1] = 0
    state[141] = 0
    r = message_reader.reader_of(ops, names, buf, out, state)
    if r.ops[0] == 1:
        return put_framed(r, value_start, value_length, 0)
    o = put_coordinator_key(r, key_start, key_length, 0)
    if o < 0:
        return -1
    state[141] = o
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

    Stops early at a record that cannot be read; then message_state[STAGE] is not NO_STAGE, and state[RECORD] is that record.
    """
    if batch_capacity * C.BATCH_WIDTH > len(batches) or last_row >= batch_capacity or count > capacity:
        raise ValueError("the table of batches is too small")
    if capacity * C.RECORD_WIDTH > len(cells) or len(message_state) < 142:
        raise ValueError("the table of records is too small")
    r = message_reader.reader_of(ops, names, buf, out, message_state)
    body = buffer_access.bytes_in(buf)
    rows = buffer_access.cells_in(batches)
    table = buffer_access.cells_in(cells)
    text = buffer_access.room_in(out)
    framed = r.ops[0]
    skip = flags & 4
    message_state[137] = 0
    message_state[1] = 0
    limit = len(out)
    o = start
    row = state[0]
    at = state[1]
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
                    stop_at(r, 7)  # a legacy value that exceeds its message
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
    if message_state[1] == 9:
        message_state[137] = 0  # out of room, not a fault of the record
    state[0] = row
    state[1] = at
    return o
