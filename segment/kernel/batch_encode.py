# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""The bytes of a new batch of magic 2 from a table of records of an old one (fact sheet §2.3).

Keys and values are copied from the old body; lengths are re-encoded as Kafka's writer would, so an overlong varint becomes a
short one. Kafka's writer holds header names as Java strings, so anything in them that is not UTF-8 becomes U+FFFD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access, java_utf8, record_headers

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def put_int(out: Writable, at: int, value: int) -> int:
    out[at] = (value >> 24) & 255
    out[at + 1] = (value >> 16) & 255
    out[at + 2] = (value >> 8) & 255
    out[at + 3] = value & 255
    return 0


def put_long(out: Writable, at: int, value: int) -> int:
    put_int(out, at, value >> 32)
    put_int(out, at + 4, value)
    return 0


def put_short(out: Writable, at: int, value: int) -> int:
    out[at] = (value >> 8) & 255
    out[at + 1] = value & 255
    return 0


def varint_size(number: int) -> int:
    # size of the zigzag form, which depends on the distance of the number from 0 or −1
    if number < 0:
        number = -(number + 1)
    size = 1
    number = number >> 6
    while number > 0:
        number = number >> 7
        size = size + 1
    return size


def put_varint(out: Writable, o: int, number: int) -> int:
    last = 0
    if number < 0:
        number = -(number + 1)
        last = 1
    low = ((number & 63) << 1) | last
    number = number >> 6
    while number > 0:
        out[o] = low | 128
        o = o + 1
        low = number & 127
        number = number >> 7
    out[o] = low
    return o + 1


def put_batch_header(
    out: Writable,
    o: int,
    size: int,
    base: int,
    last: int,
    attributes: int,
    base_ms: int,
    max_ms: int,
    count: int,
    batches: Readable,
    capacity: int,
    row: int,
) -> int:
    put_long(out, o, base)
    put_int(out, o + 8, size - 12)
    put_int(out, o + 12, batches[C.LEADER_EPOCH * capacity + row])
    out[o + 16] = 2
    put_int(out, o + 17, 0)
    put_short(out, o + 21, attributes)
    put_int(out, o + 23, last - base)
    put_long(out, o + 27, base_ms)
    put_long(out, o + 35, max_ms)
    put_long(out, o + 43, batches[C.PRODUCER_ID * capacity + row])
    put_short(out, o + 51, batches[C.PRODUCER_EPOCH * capacity + row])
    put_int(out, o + 53, batches[C.BASE_SEQUENCE * capacity + row])
    put_int(out, o + 57, count)
    return 0


def headers_size(buf: Readable, p: int, count: int) -> int:
    size = 0
    while count > 0:
        length = record_headers.small_varint(buf, p)
        p = record_headers.skip_varint(buf, p)
        decoded = java_utf8.decoded_length(buf, p, length)
        size = size + varint_size(decoded) + decoded
        p = p + length
        length = record_headers.small_varint(buf, p)
        p = record_headers.skip_varint(buf, p)
        size = size + varint_size(length)
        if length > 0:
            size = size + length
            p = p + length
        count = count - 1
    return size


def put_headers(buf: Readable, p: int, count: int, out: Writable, o: int) -> int:
    while count > 0:
        length = record_headers.small_varint(buf, p)
        p = record_headers.skip_varint(buf, p)
        o = put_varint(out, o, java_utf8.decoded_length(buf, p, length))
        o = java_utf8.put_text(buf, p, length, out, o, 0)
        p = p + length
        length = record_headers.small_varint(buf, p)
        p = record_headers.skip_varint(buf, p)
        o = put_varint(out, o, length)
        if length > 0:
            buffer_access.copied(out, o, buf, p, length)
            o = o + length
            p = p + length
        count = count - 1
    return o


def put_records(
    body: Readable,
    cells: Readable,
    capacity: int,
    count: int,
    row: int,
    at: int,
    flags: Readable,
    base: int,
    base_ms: int,
    out: Writable,
    o: int,
    room: int,
) -> int:
    """Encode the kept records of batch `row`, from record `at` on; returns the position after them, −1 if `out` is too small."""
    while at < count and cells[C.R_BATCH * capacity + at] == row:
        if flags[at]:
            key_length = cells[C.R_KEY_LENGTH * capacity + at]
            value_length = cells[C.R_VALUE_LENGTH * capacity + at]
            if key_length < 0:  # in old messages any negative length means null
                key_length = -1
            if value_length < 0:
                value_length = -1
            headers_start = cells[C.R_HEADERS_START * capacity + at]
            header_count = cells[C.R_HEADER_COUNT * capacity + at]
            headers_length = 0
            spare = 10
            if header_count > 0:
                headers_length = headers_size(body, headers_start, header_count)
                spare = spare + 3 * headers_length + 600  # for `put_text`
            time_delta = cells[C.R_TIMESTAMP * capacity + at] - base_ms
            offset_delta = cells[C.R_OFFSET * capacity + at] - base
            size = 1 + varint_size(time_delta) + varint_size(offset_delta) + varint_size(key_length)
            size = size + varint_size(value_length) + varint_size(header_count) + headers_length
            if key_length > 0:
                size = size + key_length
            if value_length > 0:
                size = size + value_length
            if size + spare > room - o:
                return -1
            o = put_varint(out, o, size)
            out[o] = 0
            o = put_varint(out, o + 1, time_delta)
            o = put_varint(out, o, offset_delta)
            o = put_varint(out, o, key_length)
            if key_length > 0:
                buffer_access.copied(out, o, body, cells[C.R_KEY_START * capacity + at], key_length)
                o = o + key_length
            o = put_varint(out, o, value_length)
            if value_length > 0:
                buffer_access.copied(out, o, body, cells[C.R_VALUE_START * capacity + at], value_length)
                o = o + value_length
            o = put_varint(out, o, header_count)
            o = put_headers(body, headers_start, header_count, out, o)
        at = at + 1
    return o
