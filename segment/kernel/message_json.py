# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""Kafka's messages as the JSON text of their generated `*JsonConverter` classes, produced by interpreting a program of numbers
(`kernel.message_reader` describes a program, `kernel.message_fields` names its fields and those of the state).

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

from kseg.segment.kernel import buffer_access, dump_text, json_strings, message_reader, message_values
from kseg.segment.kernel import message_fields as M

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable
    from kseg.segment.kernel.message_reader import MessageReader


# --- fields


def put_byte(r: MessageReader, byte: int, f: int) -> int:
    """Write a byte of punctuation if there is room for it and a short value."""
    if r.limit - r.state[M.OUT] < M.SPARE_ROOM:
        return message_reader.fail(r, M.NO_ROOM, 0, 0, f)
    r.out[r.state[M.OUT]] = byte
    r.state[M.OUT] = r.state[M.OUT] + 1
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
    kind = r.ops[f + M.FIELD_KIND]
    is_text = kind == M.STRING or kind == M.PROTOCOL_TYPE
    p = message_reader.read_length(r, p, end, 2 if is_text else 4, flexible)
    if p < 0:
        return -1
    length = r.state[M.VALUE]
    if length < 0:
        if not r.ops[f + M.FIELD_FLAGS] & M.NULLABLE or element:
            return message_reader.fail(r, M.IS_NULL, 0, element, f)
        if kind == M.PROTOCOL_TYPE:
            r.state[M.IS_CONSUMER] = 0
        if write:
            r.state[M.OUT] = buffer_access.put(r.out, r.state[M.OUT], b"null", 4)
        return p
    if is_text and length > 32767:
        return message_reader.fail(r, M.TOO_LONG, length, element, f)
    if length > end - p:
        return message_reader.fail(r, M.MISSING_BYTES, length, end - p, f)
    if kind == M.PROTOCOL_TYPE:
        r.state[M.IS_CONSUMER] = equals_text(r.buf, p, p + length, b"consumer", 0, 8)
    if not write:
        return p + length
    if kind == M.PROTOCOL and r.state[M.IS_CONSUMER]:
        if read_protocol(r, f, p, p + length, depth, write) >= 0:
            return p + length
        if r.state[M.ERROR] == M.NO_ROOM or write == M.AS_ROWS:
            return -1
    if 6 * length + M.SPARE_ROOM > r.limit - r.state[M.OUT]:
        return message_reader.fail(r, M.NO_ROOM, 0, 0, f)
    if is_text:
        letters = 87 if write == M.AS_ROWS else 55
        r.state[M.OUT] = json_strings.put_string(r.buf, p, length, r.out, r.state[M.OUT], letters)
    else:
        r.state[M.OUT] = json_strings.put_base64(r.buf, p, length, r.out, r.state[M.OUT])
    return p + length


def read_protocol(r: MessageReader, f: int, p: int, end: int, depth: int, write: int) -> int:
    """A message of the consumer protocol after its version; ignores what follows it. −1 if it cannot be read."""
    start = r.state[M.OUT]
    if end - p < 2:
        return message_reader.fail(r, M.UNDERFLOW, 0, 0, f)
    versions = r.ops[f + M.FIELD_STRUCT]
    version = buffer_access.short_at(r.buf, p)
    if version < r.ops[versions]:
        if write == M.AS_ROWS:
            return message_reader.fail(r, M.UNFIT, 0, 0, f)
        version = r.ops[versions]
    if version > r.ops[versions + 1]:
        version = r.ops[versions + 1] + 1
    s = r.ops[versions + 2 + version - r.ops[versions]]
    p = read_struct(r, s, p + 2, end, depth + 1, write)
    if p < 0:
        r.state[M.OUT] = start
    return p


def read_one(
    r: MessageReader, f: int, p: int, end: int, depth: int, flexible: int, write: int, element: int
) -> int:
    """A single value, or an element of an array."""
    kind = r.ops[f + M.FIELD_KIND]
    o = r.state[M.OUT]
    if write and r.limit - o < M.SPARE_ROOM:
        return message_reader.fail(r, M.NO_ROOM, 0, 0, f)
    if kind == M.STRUCT:
        if r.ops[f + M.FIELD_FLAGS] & M.NULLABLE and not element:
            if r.ops[f + M.FIELD_FLAGS] & M.TAGGED:
                p = message_reader.uvarint(r, p, end)
                if p < 0:
                    return -1
                is_there = r.state[M.VALUE] > 0
            else:
                if p >= end:
                    return message_reader.fail(r, M.UNDERFLOW, 0, 0, f)
                is_there = r.buf[p] < 128
                p = p + 1
            if not is_there:
                if write:
                    r.state[M.OUT] = buffer_access.put(r.out, o, b"null", 4)
                return p
        return read_struct(r, r.ops[f + M.FIELD_STRUCT], p, end, depth + 1, write)
    if kind == M.STRING or kind == M.BYTES or kind >= M.PROTOCOL_TYPE:
        return read_bytes(r, f, p, end, depth, flexible, write, element)
    if kind <= M.INT8:
        size = 1
    elif kind <= M.UINT16:
        size = 2
    elif kind <= M.UINT32:
        size = 4
    elif kind <= M.FLOAT64:
        size = 8
    else:
        size = 16
    if end - p < size:
        return message_reader.fail(r, M.UNDERFLOW, 0, 0, f)
    if write == M.AS_ROWS and kind == M.FLOAT64:
        return message_reader.fail(r, M.UNFIT, 0, 0, f)
    if write:
        if kind == M.INT32:
            o = dump_text.put_number(r.out, o, buffer_access.int_at(r.buf, p))
        elif kind == M.INT64:
            o = dump_text.put_number(r.out, o, buffer_access.long_at(r.buf, p))
        elif kind == M.UUID:
            o = message_values.put_uuid(r.buf, p, r.out, o)
        elif kind == M.BOOL:
            o = dump_text.put_bool(r.out, o, r.buf[p])
        elif kind == M.INT8:
            value = r.buf[p]
            o = dump_text.put_number(r.out, o, value - 256 if value > 127 else value)
        elif kind == M.INT16:
            o = dump_text.put_number(r.out, o, buffer_access.short_at(r.buf, p))
        elif kind == M.UINT16:
            o = dump_text.put_number(r.out, o, buffer_access.short_at(r.buf, p) & 65535)
        elif kind == M.UINT32:
            o = dump_text.put_number(r.out, o, buffer_access.crc_at(r.buf, p))
        else:
            o = message_values.put_double(r.buf, p, r.out, o)
        r.state[M.OUT] = o
        if write == M.AS_ROWS and r.ops[f + M.FIELD_FLAGS] & M.NAMED and message_reader.put_name(r, f, p) < 0:
            return message_reader.fail(r, M.NO_ROOM, 0, 0, f)
    return p + size


def read_value(r: MessageReader, f: int, p: int, end: int, depth: int, flexible: int, write: int) -> int:
    """The value of a field."""
    if not r.ops[f + M.FIELD_FLAGS] & M.ARRAY:
        return read_one(r, f, p, end, depth, flexible, write, 0)
    p = message_reader.read_length(r, p, end, 4, flexible)
    if p < 0:
        return -1
    count = r.state[M.VALUE]
    if count < 0:
        if not r.ops[f + M.FIELD_FLAGS] & M.NULLABLE:
            return message_reader.fail(r, M.IS_NULL, 0, 0, f)
        if write:
            if r.limit - r.state[M.OUT] < M.SPARE_ROOM:
                return message_reader.fail(r, M.NO_ROOM, 0, 0, f)
            r.state[M.OUT] = buffer_access.put(r.out, r.state[M.OUT], b"null", 4)
        return p
    if count > end - p:
        return message_reader.fail(r, M.TOO_MANY, count, end - p, f)
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
    """Read the tag section and store the position of each known tag in the state, −1 if it is missing."""
    positions = M.SCRATCH + M.TAG_LIMIT * depth
    i = 0
    if r.ops[s + M.STRUCT_TAGS]:
        while i < M.TAG_LIMIT:
            r.state[positions + i] = -1
            i = i + 1
    p = message_reader.uvarint(r, p, end)
    if p < 0:
        return -1
    count = r.state[M.VALUE]
    i = 0
    while i < count:
        p = message_reader.uvarint(r, p, end)
        if p < 0:
            return -1
        tag = r.state[M.VALUE]
        p = message_reader.uvarint(r, p, end)
        if p < 0:
            return -1
        size = r.state[M.VALUE]
        f = message_reader.field_of_tag(r, s, tag)
        if f >= 0:
            if r.ops[f + M.FIELD_KIND] == M.INVALID_TAG:
                return message_reader.fail(r, M.BAD_TAG, tag, 0, f)
            r.state[positions + tag] = p
            p = read_value(r, f, p, end, depth, 1, 0)
            if p < 0:
                return -1
            if p - r.state[positions + tag] != size:
                r.state[M.ODDITIES] = r.state[M.ODDITIES] + 1
        else:
            if size > end - p:
                return message_reader.fail(r, M.MISSING_BYTES, size, end - p, s)
            if size < 0:
                return message_reader.fail(r, M.NEGATIVE_SIZE, size, 0, s)
            p = p + size
            r.state[M.UNKNOWN_TAGS] = r.state[M.UNKNOWN_TAGS] + 1
        i = i + 1
    return p


def put_default(r: MessageReader, f: int, first: int) -> int:
    """A tagged field that the bytes do not contain, for rows."""
    o = r.state[M.OUT]
    length = r.ops[f + M.FIELD_DEFAULT_LENGTH] - first
    if r.limit - o < length + M.SPARE_ROOM:
        return message_reader.fail(r, M.NO_ROOM, 0, 0, f)
    buffer_access.copied(r.out, o, r.names, r.ops[f + M.FIELD_DEFAULT] + first, length)
    r.state[M.OUT] = o + length
    return 1


def put_tagged(r: MessageReader, f: int, p: int, end: int, depth: int, first: int, write: int) -> int:
    """Write a tagged field; in Kafka's mode only if it differs from its default. Returns 1 if it was written, 0 if not, −1 if the room is
    short."""
    start = r.state[M.OUT]
    unknown = r.state[M.UNKNOWN_TAGS]
    if r.limit - start < r.ops[f + M.FIELD_NAME_LENGTH] + M.SPARE_ROOM:
        return message_reader.fail(r, M.NO_ROOM, 0, 0, f)
    buffer_access.copied(
        r.out, start, r.names, r.ops[f + M.FIELD_NAME] + first, r.ops[f + M.FIELD_NAME_LENGTH] - first
    )
    value = start + r.ops[f + M.FIELD_NAME_LENGTH] - first
    r.state[M.OUT] = value
    if read_value(r, f, p, end, depth, 1, write) < 0:
        return -1
    if write == M.AS_ROWS or r.state[M.UNKNOWN_TAGS] != unknown:
        return 1
    if equals_text(
        r.out, value, r.state[M.OUT], r.names, r.ops[f + M.FIELD_DEFAULT], r.ops[f + M.FIELD_DEFAULT_LENGTH]
    ):
        r.state[M.OUT] = start
        return 0
    return 1


def read_struct(r: MessageReader, s: int, p: int, end: int, depth: int, write: int) -> int:
    """A struct, or a message."""
    if r.ops[s + M.STRUCT_UNREADABLE]:
        return message_reader.fail(r, M.TOO_NEW, 0, 0, s)
    flexible = r.ops[s + M.STRUCT_FLEXIBLE]
    after_tags = -1
    if write:
        if r.ops[s + M.STRUCT_TAGS] & M.SCAN_FIRST:
            after_tags = read_struct(r, s, p, end, depth, 0)
            if after_tags < 0:
                return -1
        if put_byte(r, 123, s) < 0:
            return -1
    first = 1
    f = s + M.STRUCT_WIDTH
    stop = f + M.FIELD_WIDTH * r.ops[s + M.STRUCT_FIELDS]
    while f < stop:
        if r.ops[f + M.FIELD_FLAGS] & M.TAGGED:
            if write:
                if after_tags < 0:
                    after_tags = read_tags(r, s, p, end, depth)
                    if after_tags < 0:
                        return -1
                at = r.state[M.SCRATCH + M.TAG_LIMIT * depth + r.ops[f + M.FIELD_TAG]]
                written = 0
                if at >= 0:
                    written = put_tagged(r, f, at, end, depth, first, write)
                elif write == M.AS_ROWS:
                    written = put_default(r, f, first)
                if written < 0:
                    return -1
                if written:
                    first = 0
        else:
            if write:
                if r.limit - r.state[M.OUT] < r.ops[f + M.FIELD_NAME_LENGTH] + M.SPARE_ROOM:
                    return message_reader.fail(r, M.NO_ROOM, 0, 0, f)
                buffer_access.copied(
                    r.out,
                    r.state[M.OUT],
                    r.names,
                    r.ops[f + M.FIELD_NAME] + first,
                    r.ops[f + M.FIELD_NAME_LENGTH] - first,
                )
                r.state[M.OUT] = r.state[M.OUT] + r.ops[f + M.FIELD_NAME_LENGTH] - first
                first = 0
            p = read_value(r, f, p, end, depth, flexible, write)
            if p < 0:
                return -1
        f = f + M.FIELD_WIDTH
    if after_tags < 0:
        after_tags = p
        if flexible:
            after_tags = read_tags(r, s, p, end, depth)
            if after_tags < 0:
                return -1
    if write and put_byte(r, 125, s) < 0:
        return -1
    return after_tags
