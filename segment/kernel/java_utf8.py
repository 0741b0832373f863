# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""Decodes bytes as Java's `new String(bytes, UTF_8)` does: each malformed sequence becomes one U+FFFD.

What counts as one sequence follows Java, which differs from Python for surrogates and truncated sequences.

Bounds checks are off: the caller has checked the positions, and that `out` has the room that `put_text` needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def is_tail(byte: int) -> int:
    return byte & 192 == 128


def sequence_length(buf: Readable, p: int, end: int) -> int:
    """Length of the well-formed UTF-8 sequence at p, or −(bytes that Java replaces by one U+FFFD)."""
    b1 = buf[p]
    left = end - p
    if b1 < 128:
        return 1
    if b1 < 194 or b1 > 247:
        return -1
    if b1 < 224:
        if left < 2:
            return -1
        return 2 if is_tail(buf[p + 1]) else -1
    if b1 < 240:
        if left < 2:
            return -1
        b2 = buf[p + 1]
        if (b1 == 224 and b2 & 224 == 128) or not is_tail(b2):
            return -1
        if left < 3 or not is_tail(buf[p + 2]):
            return -2
        if b1 == 237 and b2 >= 160:
            return -3
        return 3
    if b1 > 244:
        return -1
    if left < 2:
        return -1
    b2 = buf[p + 1]
    if (b1 == 240 and b2 < 144) or (b1 == 244 and b2 & 240 != 128) or not is_tail(b2):
        return -1
    if left < 3 or not is_tail(buf[p + 2]):
        return -2
    if left < 4 or not is_tail(buf[p + 3]):
        return -3
    return 4


def decoded_length(buf: Readable, p: int, length: int) -> int:
    # of the text that `put_text` makes of these bytes, without escapes
    seen = 0
    for i in range(length):
        seen = seen | buf[p + i]
    if seen < 128:
        return length
    end = p + length
    size = 0
    while p < end:
        n = sequence_length(buf, p, end)
        if n < 0:
            size = size + 3
            p = p - n
        else:
            size = size + n
            p = p + n
    return size


def put_escape(out: Writable, o: int, byte: int) -> int:
    out[o] = 92
    out[o + 1] = 120
    high = byte >> 4
    low = byte & 15
    out[o + 2] = 48 + high if high < 10 else 87 + high
    out[o + 3] = 48 + low if low < 10 else 87 + low
    return o + 4


def put_escaped(buf: Readable, p: int, end: int, out: Writable, o: int) -> int:
    # sequence by sequence
    while p < end:
        n = sequence_length(buf, p, end)
        if n < 0:
            out[o] = 239
            out[o + 1] = 191
            out[o + 2] = 189
            o = o + 3
            p = p - n
        elif buf[p] < 32 or buf[p] == 127:
            o = put_escape(out, o, buf[p])
            p = p + 1
        elif buf[p] == 194 and buf[p + 1] < 160:
            o = put_escape(out, o, buf[p + 1])
            p = p + 2
        else:
            while n > 0:
                out[o] = buf[p]
                o = o + 1
                p = p + 1
                n = n - 1
    return o


def put_decoded(buf: Readable, p: int, end: int, out: Writable, o: int) -> int:
    # in bytes that are not text any byte may follow any other, so branches are mispredicted: most bytes stand for themselves or are
    # replaced one by one, and the bytes of a replacement after one that stands for itself are overwritten
    last = end - 1
    looked = p
    grown = o - p
    while p < last:
        if p - looked >= 256:  # periodically check whether these bytes are not text
            if end - p >= 1024 and o - p - grown >= 64:
                return put_no_text(buf, p, end, out, o)
            looked = p
            grown = o - p
        byte = buf[p]
        if (byte > 193) & (byte < 245) & (buf[p + 1] & 192 == 128):
            n = sequence_length(buf, p, end)
            if n < 0:
                out[o] = 239
                out[o + 1] = 191
                out[o + 2] = 189
                o = o + 3
                p = p - n
            else:
                while n > 0:
                    out[o] = buf[p]
                    o = o + 1
                    p = p + 1
                    n = n - 1
        else:
            is_replaced = byte >> 7
            out[o] = 239 if is_replaced else byte
            out[o + 1] = 191
            out[o + 2] = 189
            o = o + 1 + 2 * is_replaced
            p = p + 1
    return put_last(buf, p, end, out, o)


def put_no_text(buf: Readable, p: int, end: int, out: Writable, o: int) -> int:
    # the same without a branch, in blocks of 256 bytes: no first byte of a sequence can be a later one, so the result for a byte
    # depends only on its neighbours. The marks are stored in the room for a fourth byte per byte, after all output.
    marks = o + 3 * (end - p) + 8
    lengths = marks + 256 + 8
    out[marks - 3] = 0
    out[marks - 2] = 0
    out[marks - 1] = 0
    while end - p > 256 + 3:
        mark_sequences(buf, p, out, marks)
        mark_lengths(buf, p, out, marks, lengths)
        o = put_marked(buf, p, out, lengths, o)
        p = p + 256
        out[marks - 3] = out[marks + 253]
        out[marks - 2] = out[marks + 254]
        out[marks - 1] = out[marks + 255]
    # the bytes of the last sequence after the last block
    out[marks] = 0
    out[marks + 1] = 0
    n = 0
    while n < 3 and is_inside(out[marks + n - 1], out[marks + n - 2], out[marks + n - 3]):
        out[o] = buf[p]
        o = o + 1 - is_swallowed(out[marks + n - 1], out[marks + n - 2], out[marks + n - 3])
        p = p + 1
        n = n + 1
    return put_decoded(buf, p, end, out, o)


def mark_sequences(buf: Readable, p: int, out: Writable, marks: int) -> None:
    # for each byte, whether a sequence begins there that has a second byte (1), a third (2), a fourth (4), and is replaced (8)
    for i in range(256):
        b1 = buf[p + i]
        b2 = buf[p + i + 1]
        is_wrong = ((b1 == 224) & (b2 < 160)) | ((b1 == 240) & (b2 < 144)) | ((b1 == 244) & (b2 > 143))
        has_two = (b1 > 193) & (b1 < 245) & (b2 & 192 == 128) & (is_wrong ^ 1)
        has_three = has_two & (b1 > 223) & (buf[p + i + 2] & 192 == 128)
        has_four = has_three & (b1 > 239) & (buf[p + i + 3] & 192 == 128)
        is_cut = ((b1 > 223) & (has_three ^ 1)) | ((b1 > 239) & (has_four ^ 1)) | ((b1 == 237) & (b2 > 159))
        out[marks + i] = has_two | has_three << 1 | has_four << 2 | (has_two & is_cut) << 3


def is_inside(before: int, two_before: int, three_before: int) -> int:
    # whether a byte belongs to a sequence that began before it, by the marks of the previous bytes
    return (before | two_before >> 1 | three_before >> 2) & 1


def is_swallowed(before: int, two_before: int, three_before: int) -> int:
    # whether that sequence is replaced; of a replaced sequence only the first byte produces output
    return (before & 9 == 9) | (two_before & 10 == 10) | (three_before & 12 == 12)


def mark_lengths(buf: Readable, p: int, out: Writable, marks: int, lengths: int) -> None:
    # the number of output bytes of each: the byte itself, a replacement, or nothing
    for i in range(256):
        before = out[marks + i - 1]
        two_before = out[marks + i - 2]
        three_before = out[marks + i - 3]
        begins = out[marks + i]
        is_alone = (begins | is_inside(before, two_before, three_before)) & 1 ^ 1
        is_replaced = (buf[p + i] >> 7 & is_alone) | begins >> 3
        out[lengths + i] = (1 + 2 * is_replaced) * (is_swallowed(before, two_before, three_before) ^ 1)


def put_marked(buf: Readable, p: int, out: Writable, lengths: int, o: int) -> int:
    # masks instead of conditions, which a compiler would turn into branches
    for i in range(256):
        length = out[lengths + i]
        mask = (length >> 1) * 255
        out[o] = (buf[p + i] & (mask ^ 255)) | (239 & mask)
        out[o + 1] = 191
        out[o + 2] = 189
        o = o + length
    return o


def put_last(buf: Readable, p: int, end: int, out: Writable, o: int) -> int:
    # the last byte, unless it belongs to the sequence before
    if p >= end:
        return o
    if buf[p] < 128:
        out[o] = buf[p]
        return o + 1
    out[o] = 239
    out[o + 1] = 191
    out[o + 2] = 189
    return o + 3


def put_text(buf: Readable, p: int, length: int, out: Writable, o: int, escape: int) -> int:
    """Bytes as Java decodes and prints them; needs 3 bytes of room per byte, 4 when escaping control characters."""
    if escape:
        return put_escaped(buf, p, p + length, out, o)
    seen = 0
    for i in range(length):
        byte = buf[p + i]
        out[o + i] = byte
        seen = seen | byte
    if seen < 128:
        return o + length
    return put_decoded(buf, p, p + length, out, o)
