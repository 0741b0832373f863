# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""Kafka's messages as the JSON text of their generated `*JsonConverter` classes, produced by interpreting a program of numbers
(`kernel.message_reader` describes the program and the state).

Bytes are read in the order of Kafka's generated readers and with their checks, so that the first error is the one that Kafka reports:

1. Untagged fields are read and written immediately, in the order of the definition, which is that of the wire.
2. The tag section follows: every known tag is read with its own length each time it occurs, and its position is recorded.
3. Tagged fields are written from there if they differ from their default. If one precedes an untagged field in the
   definition (SCAN_FIRST), the struct is read twice: first without writing, for the positions.

`write` selects one of three modes: SILENT, AS_KAFKA (the output of the converters), and AS_ROWS for the rows of kseg's own JSON, which
contain more and omit whatever may be wrong:

    every field is present, missing tagged ones with their default (whose text has the name before it)
    a NAMED field is followed by the name of its number or topic id
    doubles, and messages of an unreadable protocol, are left to the caller (UNFIT)

A reader returns the position after what it read, or −1 with the reason in the state. `out` is the caller's scratch buffer. The room is
checked before writing anything whose size comes from the data, and at each field for the rest. The time is linear in the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment.kernel import buffer_access, dump_text, json_lines, message_reader, message_values

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable
    from kseg.segment.kernel.message_reader import MessageReader


def fail(r: MessageReader, error: int, a: int, b: int, field: int) -> int:
    r.state[1] = error
    r.state[2] = a
    r.state[3] = b
    r.state[4] = field
    return -1


# --- numbers


def long_uvarint(r: MessageReader, p: int, end: int) -> int:
    value = 0
    shift = 0
    while p < end:
        byte = r.buf[p]
        p = p + 1
        if shift == 28:
            r.state[8] = r.state[8] + 1
            value = value | (byte & 15) << 28
            if value > 2147483647:
                value = value - 2147483647 - 2147483647 - 2
            r.state[5] = value
            if byte > 127:
                return fail(r, 6, value, 0, 0)
            return p
        value = value | (byte & 127) << shift
        if byte < 128:
            r.state[5] = value
            return p
        shift = shift + 7
    return fail(r, 1, 0, 0, 0)


def uvarint(r: MessageReader, p: int, end: int) -> int:
    """An unsigned varint as a Java int into r.state[VALUE]."""
    if p < end and r.buf[p] < 128:
        r.state[5] = r.buf[p]
        return p + 1
    return long_uvarint(r, p, end)


def read_length(r: MessageReader, p: int, end: int, width: int, flexible: int) -> int:
    """A length or count into r.state[VALUE], negative for null."""
    if flexible:
        p = uvarint(r, p, end)
        least = -2147483647 - 1
        r.state[5] = 2147483647 if r.state[5] == least else r.state[5] - 1
        return p
    if end - p < width:
        return fail(r, 1, 0, 0, 0)
    r.state[5] = buffer_access.short_at(r.buf, p) if width == 2 else buffer_access.int_at(r.buf, p)
    return p + width


# --- fields


def put_byte(r: MessageReader, byte: int, f: int) -> int:
    """Write a byte of punctuation if there is room for it and a short value."""
    if r.limit - r.state[0] < 48:
        return fail(r, 9, 0, 0, f)
    r.out[r.state[0]] = byte
    r.state[0] = r.state[0] + 1
    return 0


def equals_text(buf: Readable, start: int, end: int, text: Readable, at: int, length: int) -> int:
    """Whether the bytes from start to end equal the text of `length` bytes at `at`."""
    i = 0
    if end - start != length:
        return 0
    while i < length:
        if buf[start + i] != text[at + i]:
            return 0
        i = i + 1
    return 1


def read_bytes(
    r: MessageReader, f: int, p: int, end: int, depth: int, flexible: int, write: int, element: int
) -> int:
    """A string, bytes, or bytes that contain a message of another protocol."""
    kind = r.ops[f]
    is_text = kind == 9 or kind == 12
    p = read_length(r, p, end, 2 if is_text else 4, flexible)
    if p < 0:
        return -1
    length = r.state[5]
    if length < 0:
        if not r.ops[f + 1] & 2 or element:
            return fail(r, 2, 0, element, f)
        if kind == 12:
            r.state[6] = 0
        if write:
            r.state[0] = buffer_access.put(r.out, r.state[0], b"null", 4)
        return p
    if is_text and length > 32767:
        return fail(r, 3, length, element, f)
    if length > end - p:
        return fail(r, 4, length, end - p, f)
    if kind == 12:
        r.state[6] = equals_text(r.buf, p, p + length, b"consumer", 0, 8)
    if not write:
        return p + length
    if kind == 13 and r.state[6]:
        if read_protocol(r, f, p, p + length, depth, write) >= 0:
            return p + length
        if r.state[1] == 9 or write == 2:
            return -1
    if 6 * length + 48 > r.limit - r.state[0]:
        return fail(r, 9, 0, 0, f)
    if is_text:
        letters = 87 if write == 2 else 55
        r.state[0] = json_lines.put_string(r.buf, p, length, r.out, r.state[0], letters)
    else:
        r.state[0] = json_lines.put_base64(r.buf, p, length, r.out, r.state[0])
    return p + length


def read_protocol(r: MessageReader, f: int, p: int, end: int, depth: int, write: int) -> int:
    """A message of the consumer protocol after its version; ignores what follows it. −1 if it cannot be read."""
    start = r.state[0]
    if end - p < 2:
        return fail(r, 1, 0, 0, f)
    versions = r.ops[f + 5]
    version = buffer_access.short_at(r.buf, p)
    if version < r.ops[versions]:
        if write == 2:
            return fail(r, 11, 0, 0, f)
        version = r.ops[versions]
    if version > r.ops[versions + 1]:
        version = r.ops[versions + 1] + 1
    s = r.ops[versions + 2 + version - r.ops[versions]]
    p = read_struct(r, s, p + 2, end, depth + 1, write)
    if p < 0:
        r.state[0] = start
    return p


def read_one(
    r: MessageReader, f: int, p: int, end: int, depth: int, flexible: int, write: int, element: int
) -> int:
    """A single value, or an element of an array."""
    kind = r.ops[f]
    o = r.state[0]
    if write and r.limit - o < 48:
        return fail(r, 9, 0, 0, f)
    if kind == 11:
        if r.ops[f + 1] & 2 and not element:
            if r.ops[f + 1] & 4:
                p = uvarint(r, p, end)
                if p < 0:
                    return -1
                is_there = r.state[5] > 0
            else:
                if p >= end:
                    return fail(r, 1, 0, 0, f)
                is_there = r.buf[p] < 128
                p = p + 1
            if not is_there:
                if write:
                    r.state[0] = buffer_access.put(r.out, o, b"null", 4)
                return p
        return read_struct(r, r.ops[f + 5], p, end, depth + 1, write)
    if kind == 9 or kind == 10 or kind >= 12:
        return read_bytes(r, f, p, end, depth, flexible, write, element)
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
        return fail(r, 1, 0, 0, f)
    if write == 2 and kind == 7:
        return fail(r, 11, 0, 0, f)
    if write:
        if kind == 4:
            o = dump_text.put_number(r.out, o, buffer_access.int_at(r.buf, p))
        elif kind == 6:
            o = dump_text.put_number(r.out, o, buffer_access.long_at(r.buf, p))
        elif kind == 8:
            o = message_values.put_uuid(r.buf, p, r.out, o)
        elif kind == 0:
            o = dump_text.put_bool(r.out, o, r.buf[p])
        elif kind == 1:
            value = r.buf[p]
            o = dump_text.put_number(r.out, o, value - 256 if value > 127 else value)
        elif kind == 2:
            o = dump_text.put_number(r.out, o, buffer_access.short_at(r.buf, p))
        elif kind == 3:
            o = dump_text.put_number(r.out, o, buffer_access.short_at(r.buf, p) & 65535)
        elif kind == 5:
            o = dump_text.put_number(r.out, o, buffer_access.crc_at(r.buf, p))
        else:
            o = message_values.put_double(r.buf, p, r.out, o)
        r.state[0] = o
        if write == 2 and r.ops[f + 1] & 8 and message_reader.put_name(r, f, p) < 0:
            return fail(r, 9, 0, 0, f)
    return p + size


def read_value(r: MessageReader, f: int, p: int, end: int, depth: int, flexible: int, write: int) -> int:
    """The value of a field."""
    if not r.ops[f + 1] & 1:
        return read_one(r, f, p, end, depth, flexible, write, 0)
    p = read_length(r, p, end, 4, flexible)
    if p < 0:
        return -1
    count = r.state[5]
    if count < 0:
        if not r.ops[f + 1] & 2:
            return fail(r, 2, 0, 0, f)
        if write:
            if r.limit - r.state[0] < 48:
                return fail(r, 9, 0, 0, f)
            r.state[0] = buffer_access.put(r.out, r.state[0], b"null", 4)
        return p
    if count > end - p:
        return fail(r, 5, count, end - p, f)
    if write and put_byte(r, 91, f) < 0:
        return -1
    i = 0
    while i < count:
        p = read_one(r, f, p, end, depth, flexible, write, 1)
        if p < 0:
            return -1
        i = i + 1
        if write and i < count and put_byte(r, 44, f) < 0:
            return -1
    if write and put_byte(r, 93, f) < 0:
        return -1
    return p


# --- structs


def read_tags(r: MessageReader, s: int, p: int, end: int, depth: int) -> int:
    """Read the tag section: the position of each known tag into the state, −1 if it is missing."""
    positions = 9 + 16 * depth
    i = 0
    if r.ops[s + 2]:
        while i < 16:
            r.state[positions + i] = -1
            i = i + 1
    p = uvarint(r, p, end)
    if p < 0:
        return -1
    count = r.state[5]
    i = 0
    while i < count:
        p = uvarint(r, p, end)
        if p < 0:
            return -1
        tag = r.state[5]
        p = uvarint(r, p, end)
        if p < 0:
            return -1
        size = r.state[5]
        f = message_reader.field_of_tag(r, s, tag)
        if f >= 0:
            if r.ops[f] == 14:
                return fail(r, 10, tag, 0, f)
            r.state[positions + tag] = p
            p = read_value(r, f, p, end, depth, 1, 0)
            if p < 0:
                return -1
            if p - r.state[positions + tag] != size:
                r.state[8] = r.state[8] + 1
        else:
            if size > end - p:
                return fail(r, 4, size, end - p, s)
            if size < 0:
                return fail(r, 7, size, 0, s)
            p = p + size
            r.state[7] = r.state[7] + 1
        i = i + 1
    return p


def put_default(r: MessageReader, f: int, first: int) -> int:
    """A tagged field that the bytes do not contain, for rows."""
    o = r.state[0]
    length = r.ops[f + 7] - first
    if r.limit - o < length + 48:
        return fail(r, 9, 0, 0, f)
    buffer_access.copied(r.out, o, r.names, r.ops[f + 6] + first, length)
    r.state[0] = o + length
    return 1


def put_tagged(r: MessageReader, f: int, p: int, end: int, depth: int, first: int, write: int) -> int:
    """A tagged field, unless it has its default in Kafka's mode. Returns 1 if it was written, 0 if not, −1 if the room is short."""
    start = r.state[0]
    unknown = r.state[7]
    if r.limit - start < r.ops[f + 4] + 48:
        return fail(r, 9, 0, 0, f)
    buffer_access.copied(r.out, start, r.names, r.ops[f + 3] + first, r.ops[f + 4] - first)
    value = start + r.ops[f + 4] - first
    r.state[0] = value
    if read_value(r, f, p, end, depth, 1, write) < 0:
        return -1
    if write == 2 or r.state[7] != unknown:
        return 1
    if equals_text(r.out, value, r.state[0], r.names, r.ops[f + 6], r.ops[f + 7]):
        r.state[0] = start
        return 0
    return 1


def read_struct(r: MessageReader, s: int, p: int, end: int, depth: int, write: int) -> int:
    """A struct, or a message."""
    if r.ops[s + 3]:
        return fail(r, 8, 0, 0, s)
    flexible = r.ops[s]
    after_tags = -1
    if write:
        if r.ops[s + 2] & 2:
            after_tags = read_struct(r, s, p, end, depth, 0)
            if after_tags < 0:
                return -1
        if put_byte(r, 123, s) < 0:
            return -1
    first = 1
    f = s + 4
    stop = f + 8 * r.ops[s + 1]
    while f < stop:
        if r.ops[f + 1] & 4:
            if write:
                if after_tags < 0:
                    after_tags = read_tags(r, s, p, end, depth)
                    if after_tags < 0:
                        return -1
                at = r.state[9 + 16 * depth + r.ops[f + 2]]
                written = 0
                if at >= 0:
                    written = put_tagged(r, f, at, end, depth, first, write)
                elif write == 2:
                    written = put_default(r, f, first)
                if written < 0:
                    return -1
                if written:
                    first = 0
        else:
            if write:
                if r.limit - r.state[0] < r.ops[f + 4] + 48:
                    return fail(r, 9, 0, 0, f)
                buffer_access.copied(r.out, r.state[0], r.names, r.ops[f + 3] + first, r.ops[f + 4] - first)
                r.state[0] = r.state[0] + r.ops[f + 4] - first
                first = 0
            p = read_value(r, f, p, end, depth, flexible, write)
            if p < 0:
                return -1
        f = f + 8
    if after_tags < 0:
        after_tags = p
        if flexible:
            after_tags = read_tags(r, s, p, end, depth)
            if after_tags < 0:
                return -1
    if write and put_byte(r, 125, s) < 0:
        return -1
    return after_tags
