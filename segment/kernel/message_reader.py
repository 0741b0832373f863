# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""The program of numbers with which `kernel.message_json` reads messages, the state of a reader, and look-ups in the program.

A program (compiled from the schemas by `internal_topics.message_programs`) is one array:

    struct   flexible, number of fields, TAGS | SCAN_FIRST, unreadable, fields …
    field    kind, ARRAY | NULLABLE | TAGGED, tag, name start, name length, struct, default start, default length

name, default: in `names`, the name as `,"name":`, the default as the text of the value. struct: position of the struct of the field;
for PROTOCOL fields, of their table of versions. unreadable: the version is above those of the struct, and reading it throws.

A NAMED field is followed by the name of its number or topic id in AS_ROWS; its struct is then the table of these names:

    of a number   label start, label length, count, (value, text start, text length) …
    of an id      label start, label length

Topic ids are sorted and stored in `names`. Their table (its position is the fourth number of the program): count, start of the ids, (text
start, text length) …
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment.kernel import buffer_access

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable

# state: end of the text; the error, with its two numbers and the field in the program; the number read last; whether the
# protocol type read last is `consumer`; number of unknown tags; number of five-byte varints and of tags with a wrong size;
# for each depth the positions of the tags
OUT, ERROR, A, B, FIELD, VALUE, IS_CONSUMER, UNKNOWN_TAGS, ODDITIES, SCRATCH = range(10)
TAG_LIMIT, DEPTH_LIMIT = 16, 8
STATE_WIDTH = SCRATCH + TAG_LIMIT * DEPTH_LIMIT

(
    BOOL,
    INT8,
    INT16,
    UINT16,
    INT32,
    UINT32,
    INT64,
    FLOAT64,
    UUID,
    STRING,
    BYTES,
    STRUCT,
    PROTOCOL_TYPE,  # a string that determines whether PROTOCOL fields are those of consumers
    PROTOCOL,  # bytes that contain a message of their own
    INVALID_TAG,  # a tag that this version does not have
) = range(15)
ARRAY, NULLABLE, TAGGED, NAMED = 1, 2, 4, 8
SILENT, AS_KAFKA, AS_ROWS = range(3)
TAGS, SCAN_FIRST = 1, 2
STRUCT_WIDTH, FIELD_WIDTH = 4, 8

# A: number read, B: number left, or 1 for an element of the field
NO_ERROR, UNDERFLOW, IS_NULL, TOO_LONG, MISSING_BYTES, TOO_MANY, BAD_VARINT, NEGATIVE_SIZE, TOO_NEW, NO_ROOM, BAD_TAG, UNFIT = range(12)  # fmt: skip


class MessageReader:
    """The arguments that all readers of a message share: the program and its names, the bytes, the text and its limit, the state."""

    ops: Readable
    names: Readable
    buf: Readable
    out: Writable
    limit: int
    state: Writable


def reader_of(ops: Readable, names: Readable, buf: Readable, out: Writable, state: Writable) -> MessageReader:
    r = MessageReader()
    r.ops = buffer_access.cells_in(ops)
    r.names = buffer_access.bytes_in(names)
    r.buf = buffer_access.bytes_in(buf)
    r.out = buffer_access.room_in(out)
    r.limit = len(out)
    r.state = buffer_access.table_in(state)
    return r


# --- look-ups in the program


def topic_of(r: MessageReader, p: int) -> int:
    """The position in the program of the name of the topic with the id at `p`, −1 for an unknown one."""
    table = r.ops[3]
    low = 0
    high = r.ops[table]
    while low < high:
        middle = (low + high) >> 1
        at = r.ops[table + 1] + 16 * middle
        i = 0
        while i < 16 and r.names[at + i] == r.buf[p + i]:
            i = i + 1
        if i == 16:
            return table + 2 + 2 * middle
        if r.names[at + i] < r.buf[p + i]:
            low = middle + 1
        else:
            high = middle
    return -1


def named_number(r: MessageReader, f: int, value: int) -> int:
    """The position in the program of the name of a number, −1 if it has none."""
    at = r.ops[f + 5] + 3
    stop = at + 3 * r.ops[r.ops[f + 5] + 2]
    while at < stop:
        if r.ops[at] == value:
            return at + 1
        at = at + 3
    return -1


def put_name(r: MessageReader, f: int, p: int) -> int:
    """Write the name of the last number or id, with its label. −1 if the room is short."""
    o = r.state[0]
    label = r.ops[f + 5]
    if r.ops[f] == 8:
        at = topic_of(r, p)
    elif r.ops[f] == 1:
        value = r.buf[p]
        at = named_number(r, f, value - 256 if value > 127 else value)
    else:
        at = named_number(r, f, buffer_access.short_at(r.buf, p))
    length = r.ops[at + 1] if at >= 0 else 4
    if r.limit - o < r.ops[label + 1] + length + 48:
        return -1
    buffer_access.copied(r.out, o, r.names, r.ops[label], r.ops[label + 1])
    o = o + r.ops[label + 1]
    if at >= 0:
        buffer_access.copied(r.out, o, r.names, r.ops[at], length)
        r.state[0] = o + length
    else:
        r.state[0] = buffer_access.put(r.out, o, b"null", 4)
    return 0


def field_of_tag(r: MessageReader, s: int, tag: int) -> int:
    """The field of struct s with a tag, −1 for an unknown tag."""
    f = s + 4
    stop = f + 8 * r.ops[s + 1]
    while f < stop:
        if r.ops[f + 1] & 4 and r.ops[f + 2] == tag:
            return f
        f = f + 8
    return -1
