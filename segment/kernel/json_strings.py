# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""JSON strings of bytes, and of the UTF-8 text of record keys and values.

Escapes are those of `segment.json_line`: `\\" \\\\ \\b \\f \\n \\r \\t`, other control characters as `\\u00xx`, and the line separators of
Unicode. Bytes that are valid UTF-8 are text; other bytes are base64 under AUTO, and text with replacement characters under TEXT.

Bounds checks are off: the caller has checked the room for the longest form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment.kernel import buffer_access, java_utf8

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable

AUTO, TEXT = range(2)


def put_escaped(out: Writable, o: int, byte: int, letters: int) -> int:
    # a quote, a backslash or a control character; the hexadecimal digit n above 9 is the character letters + n
    out[o] = 92
    if byte == 34 or byte == 92:
        out[o + 1] = byte
        return o + 2
    short = 0
    if byte == 8:
        short = 98
    elif byte == 9:
        short = 116
    elif byte == 10:
        short = 110
    elif byte == 12:
        short = 102
    elif byte == 13:
        short = 114
    if short:
        out[o + 1] = short
        return o + 2
    o = buffer_access.put(out, o + 1, b"u00", 3)
    low = byte & 15
    out[o] = 48 + (byte >> 4)
    out[o + 1] = 48 + low if low < 10 else letters + low
    return o + 2


def put_character(buf: Readable, p: int, n: int, out: Writable, o: int, letters: int) -> int:
    # a well-formed character of n > 1 bytes; U+0085, U+2028 and U+2029 are escaped
    b1 = buf[p]
    b2 = buf[p + 1]
    if n == 2:
        if b1 == 194 and b2 == 133 and letters == 87:
            return buffer_access.put(out, o, b"\\u0085", 6)
        out[o] = b1
        out[o + 1] = b2
        return o + 2
    b3 = buf[p + 2]
    if b1 == 226 and b2 == 128 and b3 & 254 == 168 and letters == 87:
        o = buffer_access.put(out, o, b"\\u202", 5)
        out[o] = b3 - 112
        return o + 1
    out[o] = b1
    out[o + 1] = b2
    out[o + 2] = b3
    if n == 3:
        return o + 3
    out[o + 3] = buf[p + 3]
    return o + 4


def put_string(buf: Readable, p: int, length: int, out: Writable, o: int, letters: int) -> int:
    """A JSON string of bytes decoded as Java does; needs 6 bytes of room per byte and 2 more.

    letters: 87 for the escapes of `segment.json_line`, 55 for those of Jackson: `\\u001F`, and unescaped line separators.
    """
    out[o] = 34
    o = o + 1
    end = p + length
    while p < end:
        byte = buf[p]
        if byte >= 128:
            n = java_utf8.sequence_length(buf, p, end)
            if n < 0:
                o = buffer_access.put(out, o, b"\xef\xbf\xbd", 3)
                p = p - n
            else:
                o = put_character(buf, p, n, out, o, letters)
                p = p + n
        elif byte < 32 or byte == 34 or byte == 92:
            o = put_escaped(out, o, byte, letters)
            p = p + 1
        else:
            out[o] = byte
            o = o + 1
            p = p + 1
    out[o] = 34
    return o + 1


def is_utf8(buf: Readable, p: int, end: int) -> int:
    seen = 0
    for i in range(p, end):
        seen = seen | buf[i]
    if seen < 128:
        return 1
    while p < end:
        n = java_utf8.sequence_length(buf, p, end)
        if n < 0:
            return 0
        p = p + n
    return 1


def put_base64(buf: Readable, p: int, length: int, out: Writable, o: int) -> int:
    """A JSON string of bytes in base64 (standard alphabet, padded)."""
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    out[o] = 34
    o = o + 1
    end = p + length
    while p < end:
        group = buf[p] << 16
        if p + 1 < end:
            group = group | buf[p + 1] << 8
        if p + 2 < end:
            group = group | buf[p + 2]
        out[o] = alphabet[group >> 18]
        out[o + 1] = alphabet[(group >> 12) & 63]
        out[o + 2] = alphabet[(group >> 6) & 63] if p + 1 < end else 61
        out[o + 3] = alphabet[group & 63] if p + 2 < end else 61
        o = o + 4
        p = p + 3
    out[o] = 34
    return o + 1


def put_bytes(buf: Readable, p: int, length: int, mode: int, out: Writable, o: int) -> int:
    """A key or value; null for a negative length."""
    if length < 0 or p < 0:
        return buffer_access.put(out, o, b"null", 4)
    if mode == 1 or is_utf8(buf, p, p + length):
        return put_string(buf, p, length, out, o, 87)
    return put_base64(buf, p, length, out, o)


def put_encoding(buf: Readable, p: int, length: int, mode: int, out: Writable, o: int) -> int:
    if length < 0 or p < 0:
        return buffer_access.put(out, o, b"null", 4)
    if mode == 1 or is_utf8(buf, p, p + length):
        return buffer_access.put(out, o, b'"utf8"', 6)
    return buffer_access.put(out, o, b'"base64"', 8)
