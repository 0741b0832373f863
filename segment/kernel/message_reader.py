# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""The program of numbers with which `kernel.message_json` reads messages: numbers from the bytes, and look-ups in the program.
`kernel.message_fields` has the names of its fields, and of those of a reader's state.

A program (compiled from the schemas by `internal_topics.message_programs`) is one array:

    struct   flexible, number of fields, TAGS | SCAN_FIRST, unreadable, fields …
    field    kind, ARRAY | NULLABLE | TAGGED, tag, name start, name length, struct, default start, default length

name, default: positions in `names`, which has the name as `,"name":` and the default as the text of the value. struct: position of
the struct of the field; for PROTOCOL fields, of their table of versions. unreadable: the version is above those of the struct, and
reading it throws.

A NAMED field is followed by the name of its number or topic id in AS_ROWS; its struct is then the table of these names:

    of a number   label start, label length, count, (value, text start, text length) …
    of an id      label start, label length

Topic ids are sorted and stored in `names`. Their table (its position is the fourth number of the program): count, start of the ids, (text
start, text length) …
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment.kernel import buffer_access
from kseg.segment.kernel import message_fields as M

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


class MessageReader:
    """What all readers of a message share: the program and its names, the bytes, the output and its limit, the state."""

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


# --- numbers


def fail(r: MessageReader, error: int, a: int, b: int, field: int) -> int:
    r.state[M.ERROR] = error
    r.state[M.A] = a
    r.state[M.B] = b
    r.state[M.FIELD] = field
    return -1


def long_uvarint(r: MessageReader, p: int, end: int) -> int:
    value = 0
    shift = 0
    while p < end:
        byte = r.buf[p]
        p = p + 1
        if shift == 28:
            r.state[M.ODDITIES] = r.state[M.ODDITIES] + 1
            value = value | (byte & 15) << 28
            if value > 2147483647:
                value = value - 2147483647 - 2147483647 - 2
            r.state[M.VALUE] = value
            if byte > 127:
                return fail(r, M.BAD_VARINT, value, 0, 0)
            return p
        value = value | (byte & 127) << shift
        if byte < 128:
            r.state[M.VALUE] = value
            return p
        shift = shift + 7
    return fail(r, M.UNDERFLOW, 0, 0, 0)


def uvarint(r: MessageReader, p: int, end: int) -> int:
    """An unsigned varint as a Java int into r.state[VALUE]."""
    if p < end and r.buf[p] < 128:
        r.state[M.VALUE] = r.buf[p]
        return p + 1
    return long_uvarint(r, p, end)


def read_length(r: MessageReader, p: int, end: int, width: int, flexible: int) -> int:
    """A length or count into r.state[VALUE], negative for null."""
    if flexible:
        p = uvarint(r, p, end)
        least = -2147483647 - 1
        r.state[M.VALUE] = 2147483647 if r.state[M.VALUE] == least else r.state[M.VALUE] - 1
        return p
    if end - p < width:
        return fail(r, M.UNDERFLOW, 0, 0, 0)
    r.state[M.VALUE] = buffer_access.short_at(r.buf, p) if width == 2 else buffer_access.int_at(r.buf, p)
    return p + width


# --- look-ups in the program


def topic_of(r: MessageReader, p: int) -> int:
    """The position in the program of the name of the topic with the id at `p`, −1 for an unknown one."""
    table = r.ops[M.PROGRAM_TOPICS]
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
    at = r.ops[f + M.FIELD_STRUCT] + 3
    stop = at + 3 * r.ops[r.ops[f + M.FIELD_STRUCT] + 2]
    while at < stop:
        if r.ops[at] == value:
            return at + 1
        at = at + 3
    return -1


def put_name(r: MessageReader, f: int, p: int) -> int:
    """Write the name of the last number or id, with its label. −1 if the room is short."""
    o = r.state[M.OUT]
    label = r.ops[f + M.FIELD_STRUCT]
    if r.ops[f + M.FIELD_KIND] == M.UUID:
        at = topic_of(r, p)
    elif r.ops[f + M.FIELD_KIND] == M.INT8:
        value = r.buf[p]
        at = named_number(r, f, value - 256 if value > 127 else value)
    else:
        at = named_number(r, f, buffer_access.short_at(r.buf, p))
    length = r.ops[at + 1] if at >= 0 else 4
    if r.limit - o < r.ops[label + 1] + length + M.SPARE_ROOM:
        return -1
    buffer_access.copied(r.out, o, r.names, r.ops[label], r.ops[label + 1])
    o = o + r.ops[label + 1]
    if at >= 0:
        buffer_access.copied(r.out, o, r.names, r.ops[at], length)
        r.state[M.OUT] = o + length
    else:
        r.state[M.OUT] = buffer_access.put(r.out, o, b"null", 4)
    return 0


def field_of_tag(r: MessageReader, s: int, tag: int) -> int:
    """The field of struct s with a tag, −1 for an unknown tag."""
    f = s + M.STRUCT_WIDTH
    stop = f + M.FIELD_WIDTH * r.ops[s + M.STRUCT_FIELDS]
    while f < stop:
        if r.ops[f + M.FIELD_FLAGS] & M.TAGGED and r.ops[f + M.FIELD_TAG] == tag:
            return f
        f = f + M.FIELD_WIDTH
    return -1
