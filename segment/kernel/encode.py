# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Encodes the records of one magic-2 batch from parallel sequences, the hot loop of writing (fact sheet §2.3).

    record   length varint · attributes int8 (0) · timestamp delta varlong · offset delta varint
             · key · value · header count varint · headers
    key, value, header value    length varint (-1 = null) · bytes
    header   name length varint · name · value

Varints are zigzag and little-endian, seven bits a byte. The body of a record is measured first, because its
length precedes it; then it is written once, at the end of a growing buffer. Bounds are not checked here: the
caller (`batch`) has checked the whole batch. Plain Python; `encode.pxd` adds the C types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable

Headers = tuple[tuple[bytes, bytes | None], ...]


def zigzag(number: int) -> int:
    """The unsigned form of a signed 64-bit number: 0, -1, 1, -2, … become 0, 1, 2, 3, …"""
    if number >= 0:
        magnitude = number
        return 2 * magnitude
    magnitude = -(number + 1)
    return 2 * magnitude + 1


def varint_size(number: int) -> int:
    """Size of a signed number as a zigzag varint, in bytes: 1 … 10."""
    rest = zigzag(number)
    size = 1
    while rest > 127:
        rest >>= 7
        size += 1
    return size


def put_varint(out: bytearray, number: int) -> int:
    """Append a signed 64-bit number as a zigzag varint."""
    rest = zigzag(number)
    while rest > 127:
        out.append((rest & 127) | 128)
        rest >>= 7
    out.append(rest)
    return 0


def field_size(field: bytes | None) -> int:
    """Size of a length-prefixed field in bytes; null has a length of -1 and no content."""
    if field is None:
        return 1
    length = len(field)
    return varint_size(length) + length


def put_field(out: bytearray, field: bytes | None) -> int:
    if field is None:
        out.append(1)
        return 0
    put_varint(out, len(field))
    out += field
    return 0


def headers_size(headers: Headers) -> int:
    size = varint_size(len(headers))
    for name, value in headers:
        size += field_size(name) + field_size(value)
    return size


def put_headers(out: bytearray, headers: Headers) -> int:
    put_varint(out, len(headers))
    for name, value in headers:
        put_field(out, name)
        put_field(out, value)
    return 0


def encode_records(
    offsets: Readable,
    timestamps: Readable,
    base_offset: int,
    base_timestamp: int,
    keys: list[bytes | None],
    values: list[bytes | None],
    headers: list[Headers] | None,
    out: bytearray,
) -> int:
    """Append the records to `out` (a bytearray); returns the number of bytes added.

    offsets, timestamps: int64 buffers (`array("q")`), absolute. keys, values: lists of bytes or None. headers: a list with one tuple of
    (name, value or None) pairs per record, or None if no record has any. Raises IndexError if a sequence is shorter than `offsets`.
    """
    before = len(out)
    for row in range(len(offsets)):
        timestamp_delta = timestamps[row] - base_timestamp
        offset_delta = offsets[row] - base_offset
        key = keys[row]
        value = values[row]
        size = (
            1 + varint_size(timestamp_delta) + varint_size(offset_delta) + field_size(key) + field_size(value)
        )
        if headers is None:
            put_varint(out, size + 1)
        else:
            put_varint(out, size + headers_size(headers[row]))
        out.append(0)
        put_varint(out, timestamp_delta)
        put_varint(out, offset_delta)
        put_field(out, key)
        put_field(out, value)
        if headers is None:
            out.append(0)
        else:
            put_headers(out, headers[row])
    return len(out) - before
