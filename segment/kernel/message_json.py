# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""Kafka's messages as the JSON text that their generated `*JsonConverter` classes print, by a program of numbers.

A program (`internal_topics.message_programs` makes it from the schemas) is one array:

    struct   flexible, number of fields, TAGS | SCAN_FIRST, unreadable, fields …
    field    kind, ARRAY | NULLABLE | TAGGED, tag, name start, name length, struct, default start, default length

name, default: in `names`, the name as `,"name":`, the default as the text of the value. struct: where the struct of the field stands;
for PROTOCOL fields where their table of versions does. unreadable: the version is above what the struct has, and reading it throws.

The bytes are read in the order and with the checks of Kafka's generated readers, so that what is wrong first is what Kafka says is wrong:

1. Fields without a tag are read and written at once, in the order of the definition, which is that of the wire.
2. The tag section follows: every known tag is read by its own length, each time it is there, and its position remembered.
3. Tagged fields are written from there, where they differ from their default. Where one stands before an untagged field in
   the definition (SCAN_FIRST), the struct is read once without writing, for the positions, and then again.

A reader returns the position behind what it read, or −1 with the reason in the state. `out` is the caller's scratch buffer; the room is
checked before anything of a size that the data says, and at each field for the rest. Reading takes time linear in the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment.kernel import buffer_access, dump_text, json_lines, message_values

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable

# state: where the text ends; what went wrong, with its two numbers and the field in the program; the number read last; whether the
# protocol type read last is `consumer`; how many unknown tags were met; and for each depth the positions of the tags
OUT, ERROR, A, B, FIELD, VALUE, IS_CONSUMER, UNKNOWN_TAGS, SCRATCH = range(9)
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
    PROTOCOL_TYPE,  # a string that says whether PROTOCOL fields are those of consumers
    PROTOCOL,  # bytes that are a message of their own
    INVALID_TAG,  # a tag of other versions
) = range(15)
ARRAY, NULLABLE, TAGGED = 1, 2, 4
TAGS, SCAN_FIRST = 1, 2
STRUCT_WIDTH, FIELD_WIDTH = 4, 8

# A: number read, B: number left, or 1 for an element of the field
NO_ERROR, UNDERFLOW, IS_NULL, TOO_LONG, MISSING_BYTES, TOO_MANY, BAD_VARINT, NEGATIVE_SIZE, TOO_NEW, NO_ROOM, BAD_TAG = range(11)  # fmt: skip


def fail(state: Writable, error: int, a: int, b: int, field: int) -> int:
    state[1] = error
    state[2] = a
    state[3] = b
    state[4] = field
    return -1


# --- numbers


def long_uvarint(buf: Readable, p: int, end: int, state: Writable) -> int:
    value = 0
    shift = 0
    while p < end:
        byte = buf[p]
        p = p + 1
        if shift == 28:
            value = value | (byte & 15) << 28
            if value > 2147483647:
                value = value - 2147483647 - 2147483647 - 2
            state[5] = value
            if byte > 127:
                return fail(state, 6, value, 0, 0)
            return p
        value = value | (byte & 127) << shift
        if byte < 128:
            state[5] = value
            return p
        shift = shift + 7
    return fail(state, 1, 0, 0, 0)


def uvarint(buf: Readable, p: int, end: int, state: Writable) -> int:
    """An unsigned varint as a Java int in state[VALUE]."""
    if p < end and buf[p] < 128:
        state[5] = buf[p]
        return p + 1
    return long_uvarint(buf, p, end, state)


def read_length(buf: Readable, p: int, end: int, state: Writable, width: int, flexible: int) -> int:
    """A length or count in state[VALUE], negative for null."""
    if flexible:
        p = uvarint(buf, p, end, state)
        least = -2147483647 - 1
        state[5] = 2147483647 if state[5] == least else state[5] - 1
        return p
    if end - p < width:
        return fail(state, 1, 0, 0, 0)
    state[5] = buffer_access.short_at(buf, p) if width == 2 else buffer_access.int_at(buf, p)
    return p + width


# --- fields


def is_consumer(buf: Readable, p: int, length: int) -> int:
    name = b"consumer"
    i = 0
    if length != 8:
        return 0
    while i < 8:
        if buf[p + i] != name[i]:
            return 0
        i = i + 1
    return 1


def read_bytes(
    ops: Readable,
    f: int,
    buf: Readable,
    p: int,
    end: int,
    names: Readable,
    out: Writable,
    limit: int,
    state: Writable,
    depth: int,
    flexible: int,
    write: int,
    element: int,
) -> int:
    """A string, bytes, or what bytes say in a protocol of their own."""
    kind = ops[f]
    is_text = kind == 9 or kind == 12
    p = read_length(buf, p, end, state, 2 if is_text else 4, flexible)
    if p < 0:
        return -1
    length = state[5]
    if length < 0:
        if not ops[f + 1] & 2 or element:
            return fail(state, 2, 0, element, f)
        if kind == 12:
            state[6] = 0
        if write:
            state[0] = buffer_access.put(out, state[0], b"null", 4)
        return p
    if is_text and length > 32767:
        return fail(state, 3, length, element, f)
    if length > end - p:
        return fail(state, 4, length, end - p, f)
    if kind == 12:
        state[6] = is_consumer(buf, p, length)
    if not write:
        return p + length
    if kind == 13 and state[6]:
        if read_protocol(ops, f, buf, p, p + length, names, out, limit, state, depth) >= 0:
            return p + length
        if state[1] == 9:
            return -1
    if 6 * length + 48 > limit - state[0]:
        return fail(state, 9, 0, 0, f)
    if is_text:
        state[0] = json_lines.put_string(buf, p, length, out, state[0], 55)
    else:
        state[0] = json_lines.put_base64(buf, p, length, out, state[0])
    return p + length


def read_protocol(
    ops: Readable,
    f: int,
    buf: Readable,
    p: int,
    end: int,
    names: Readable,
    out: Writable,
    limit: int,
    state: Writable,
    depth: int,
) -> int:
    """A message of the consumer protocol behind its version; what lies behind it is ignored. −1 when it is none."""
    start = state[0]
    if end - p < 2:
        return fail(state, 1, 0, 0, f)
    versions = ops[f + 5]
    version = buffer_access.short_at(buf, p)
    if version < ops[versions]:
        version = ops[versions]
    if version > ops[versions + 1]:
        version = ops[versions + 1] + 1
    s = ops[versions + 2 + version - ops[versions]]
    p = read_struct(ops, s, buf, p + 2, end, names, out, limit, state, depth + 1, 1)
    if p < 0:
        state[0] = start
    return p


def read_one(
    ops: Readable,
    f: int,
    buf: Readable,
    p: int,
    end: int,
    names: Readable,
    out: Writable,
    limit: int,
    state: Writable,
    depth: int,
    flexible: int,
    write: int,
    element: int,
) -> int:
    """A value that is no array, or an element of one."""
    kind = ops[f]
    o = state[0]
    if write and limit - o < 48:
        return fail(state, 9, 0, 0, f)
    if kind == 11:
        if ops[f + 1] & 2 and not element:
            if ops[f + 1] & 4:
                p = uvarint(buf, p, end, state)
                if p < 0:
                    return -1
                is_there = state[5] > 0
            else:
                if p >= end:
                    return fail(state, 1, 0, 0, f)
                is_there = buf[p] < 128
                p = p + 1
            if not is_there:
                if write:
                    state[0] = buffer_access.put(out, o, b"null", 4)
                return p
        return read_struct(ops, ops[f + 5], buf, p, end, names, out, limit, state, depth + 1, write)
    if kind == 9 or kind == 10 or kind >= 12:
        return read_bytes(ops, f, buf, p, end, names, out, limit, state, depth, flexible, write, element)
    if kind < 2:
        size = 1
    elif kind < 4:
        size = 2
    elif kind < 6:
        size = 4
    elif kind < 8:
        size = 8
    else:
        size = 16
    if end - p < size:
        return fail(state, 1, 0, 0, f)
    if write:
        if kind == 4:
            o = dump_text.put_number(out, o, buffer_access.int_at(buf, p))
        elif kind == 6:
            o = dump_text.put_number(out, o, buffer_access.long_at(buf, p))
        elif kind == 8:
            o = message_values.put_uuid(buf, p, out, o)
        elif kind == 0:
            o = dump_text.put_bool(out, o, buf[p])
        elif kind == 1:
            value = buf[p]
            o = dump_text.put_number(out, o, value - 256 if value > 127 else value)
        elif kind == 2:
            o = dump_text.put_number(out, o, buffer_access.short_at(buf, p))
        elif kind == 3:
            o = dump_text.put_number(out, o, buffer_access.short_at(buf, p) & 65535)
        elif kind == 5:
            o = dump_text.put_number(out, o, buffer_access.crc_at(buf, p))
        else:
            o = message_values.put_double(buf, p, out, o)
        state[0] = o
    return p + size


def read_value(
    ops: Readable,
    f: int,
    buf: Readable,
    p: int,
    end: int,
    names: Readable,
    out: Writable,
    limit: int,
    state: Writable,
    depth: int,
    flexible: int,
    write: int,
) -> int:
    """The value of a field."""
    if not ops[f + 1] & 1:
        return read_one(ops, f, buf, p, end, names, out, limit, state, depth, flexible, write, 0)
    p = read_length(buf, p, end, state, 4, flexible)
    if p < 0:
        return -1
    count = state[5]
    if write and limit - state[0] < 48:
        return fail(state, 9, 0, 0, f)
    if count < 0:
        if not ops[f + 1] & 2:
            return fail(state, 2, 0, 0, f)
        if write:
            state[0] = buffer_access.put(out, state[0], b"null", 4)
        return p
    if count > end - p:
        return fail(state, 5, count, end - p, f)
    if write:
        out[state[0]] = 91
        state[0] = state[0] + 1
    i = 0
    while i < count:
        p = read_one(ops, f, buf, p, end, names, out, limit, state, depth, flexible, write, 1)
        if p < 0:
            return -1
        i = i + 1
        if write and i < count:
            if limit - state[0] < 48:
                return fail(state, 9, 0, 0, f)
            out[state[0]] = 44
            state[0] = state[0] + 1
    if write:
        if limit - state[0] < 48:
            return fail(state, 9, 0, 0, f)
        out[state[0]] = 93
        state[0] = state[0] + 1
    return p


# --- structs


def field_of_tag(ops: Readable, s: int, tag: int) -> int:
    f = s + 4
    stop = f + 8 * ops[s + 1]
    while f < stop:
        if ops[f + 1] & 4 and ops[f + 2] == tag:
            return f
        f = f + 8
    return -1


def read_tags(
    ops: Readable,
    s: int,
    buf: Readable,
    p: int,
    end: int,
    names: Readable,
    out: Writable,
    limit: int,
    state: Writable,
    depth: int,
) -> int:
    """The tag section: the position of each known tag into the state, −1 where it is not there."""
    positions = 8 + 16 * depth
    i = 0
    if ops[s + 2]:
        while i < 16:
            state[positions + i] = -1
            i = i + 1
    p = uvarint(buf, p, end, state)
    if p < 0:
        return -1
    count = state[5]
    i = 0
    while i < count:
        p = uvarint(buf, p, end, state)
        if p < 0:
            return -1
        tag = state[5]
        p = uvarint(buf, p, end, state)
        if p < 0:
            return -1
        size = state[5]
        f = field_of_tag(ops, s, tag)
        if f >= 0:
            if ops[f] == 14:
                return fail(state, 10, tag, 0, f)
            state[positions + tag] = p
            p = read_value(ops, f, buf, p, end, names, out, limit, state, depth, 1, 0)
            if p < 0:
                return -1
        else:
            if size > end - p:
                return fail(state, 4, size, end - p, s)
            if size < 0:
                return fail(state, 7, size, 0, s)
            p = p + size
            state[7] = state[7] + 1
        i = i + 1
    return p


def equals_text(out: Readable, start: int, end: int, names: Readable, at: int, length: int) -> int:
    i = 0
    if end - start != length:
        return 0
    while i < length:
        if out[start + i] != names[at + i]:
            return 0
        i = i + 1
    return 1


def put_tagged(
    ops: Readable,
    f: int,
    buf: Readable,
    p: int,
    end: int,
    names: Readable,
    out: Writable,
    limit: int,
    state: Writable,
    depth: int,
    first: int,
) -> int:
    """A tagged field, unless it has its default. Returns 1 when it was written, 0 when not, −1 without room."""
    start = state[0]
    unknown = state[7]
    if limit - start < ops[f + 4] + 48:
        return fail(state, 9, 0, 0, f)
    buffer_access.copied(out, start, names, ops[f + 3] + first, ops[f + 4] - first)
    value = start + ops[f + 4] - first
    state[0] = value
    if read_value(ops, f, buf, p, end, names, out, limit, state, depth, 1, 1) < 0:
        return -1
    if state[7] == unknown and equals_text(out, value, state[0], names, ops[f + 6], ops[f + 7]):
        state[0] = start
        return 0
    return 1


def read_struct(
    ops: Readable,
    s: int,
    buf: Readable,
    p: int,
    end: int,
    names: Readable,
    out: Writable,
    limit: int,
    state: Writable,
    depth: int,
    write: int,
) -> int:
    """A struct, or a message."""
    if ops[s + 3]:
        return fail(state, 8, 0, 0, s)
    flexible = ops[s]
    after_tags = -1
    if write:
        if limit - state[0] < 48:
            return fail(state, 9, 0, 0, s)
        if ops[s + 2] & 2:
            after_tags = read_struct(ops, s, buf, p, end, names, out, limit, state, depth, 0)
            if after_tags < 0:
                return -1
        out[state[0]] = 123
        state[0] = state[0] + 1
    first = 1
    f = s + 4
    stop = f + 8 * ops[s + 1]
    while f < stop:
        if ops[f + 1] & 4:
            if write:
                if after_tags < 0:
                    after_tags = read_tags(ops, s, buf, p, end, names, out, limit, state, depth)
                    if after_tags < 0:
                        return -1
                at = state[8 + 16 * depth + ops[f + 2]]
                if at >= 0:
                    written = put_tagged(ops, f, buf, at, end, names, out, limit, state, depth, first)
                    if written < 0:
                        return -1
                    if written:
                        first = 0
        else:
            if write:
                if limit - state[0] < ops[f + 4] + 48:
                    return fail(state, 9, 0, 0, f)
                buffer_access.copied(out, state[0], names, ops[f + 3] + first, ops[f + 4] - first)
                state[0] = state[0] + ops[f + 4] - first
                first = 0
            p = read_value(ops, f, buf, p, end, names, out, limit, state, depth, flexible, write)
            if p < 0:
                return -1
        f = f + 8
    if after_tags < 0:
        after_tags = p
        if flexible:
            after_tags = read_tags(ops, s, buf, p, end, names, out, limit, state, depth)
            if after_tags < 0:
                return -1
    if write:
        if limit - state[0] < 48:
            return fail(state, 9, 0, 0, s)
        out[state[0]] = 125
        state[0] = state[0] + 1
    return after_tags
