# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""Headers of records of magic 2, whose bytes the record walk has validated: a list of (name length, name, value length, value)
with zigzag varints.

Bounds checks are off: the record walk has checked all positions, and the caller the room for the output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment.kernel import java_utf8

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def skip_varint(buf: Readable, p: int) -> int:
    while buf[p] > 127:
        p = p + 1
    return p + 1


def small_varint(buf: Readable, p: int) -> int:
    # a zigzag varint that the record walk has validated
    raw = 0
    shift = 0
    while buf[p] > 127 and shift < 28:
        raw = raw | (buf[p] & 127) << shift
        shift = shift + 7
        p = p + 1
    raw = raw | (buf[p] & (15 if shift == 28 else 127)) << shift  # Java drops the bits above the 32nd
    return (raw >> 1) ^ -(raw & 1)


def put_header_names(buf: Readable, p: int, count: int, out: Writable, o: int, escape: int) -> int:
    """`[name,name]`: the names of `count` headers at p, which the record walk has validated."""
    out[o] = 91
    o = o + 1
    for i in range(count):
        if i > 0:
            out[o] = 44
            o = o + 1
        length = small_varint(buf, p)
        p = skip_varint(buf, p)
        o = java_utf8.put_text(buf, p, length, out, o, escape)
        p = p + length
        length = small_varint(buf, p)
        p = skip_varint(buf, p)
        if length > 0:
            p = p + length
    out[o] = 93
    return o + 1


def headers_length(buf: Readable, p: int, count: int) -> int:
    start = p
    while count > 0:
        p = skip_varint(buf, p) + small_varint(buf, p)
        length = small_varint(buf, p)
        p = skip_varint(buf, p)
        if length > 0:
            p = p + length
        count = count - 1
    return p - start
