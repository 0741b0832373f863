# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""UUIDs and doubles in the JSON text of Kafka's tools, as Jackson writes them. Strings and bytes: `json_lines`.

Bounds checks are off: the caller has checked that the text fits.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from kseg.segment.kernel import buffer_access

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def double_text(high: int, low: int) -> bytes:
    """`Double.toString` of a float64 given as two halves; a number that is not finite is quoted, as by Jackson."""
    value: float = struct.unpack(">d", struct.pack(">II", high & 0xFFFFFFFF, low & 0xFFFFFFFF))[0]
    if math.isnan(value):
        return b'"NaN"'
    sign = b"-" if high & 0x80000000 else b""
    value = abs(value)
    if math.isinf(value):
        return b'"' + sign + b'Infinity"'
    if value == 0:
        return sign + b"0.0"
    shortest = f"{value!r}"
    two_digits = f"{value:.1e}"
    # Java prints at least two digits, and of those the closest
    if len(shortest.partition("e")[0]) == 1 and float(two_digits) == value:
        shortest = two_digits
    mantissa, _, exponent = shortest.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + ("" if fraction == "0" else fraction)).lstrip("0")
    # value = 0.digits * 10 ** point
    point = len(whole) if whole != "0" else len(digits) - len(fraction)
    point += int(exponent or 0)
    digits = digits.rstrip("0") or "0"
    if -3 < point <= 7:
        padded = digits.ljust(point, "0") if point > 0 else "0" * (1 - point) + digits
        at = max(point, 1)
        return sign + f"{padded[:at]}.{padded[at:] or '0'}".encode()
    return sign + f"{digits[0]}.{digits[1:] or '0'}E{point - 1}".encode()


def put_uuid(buf: Readable, p: int, out: Writable, o: int) -> int:
    """16 bytes in the URL-safe alphabet, not padded."""
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    out[o] = 34
    o = o + 1
    end = p + 15
    while p < end:
        group = buf[p] << 16 | buf[p + 1] << 8 | buf[p + 2]
        out[o] = alphabet[group >> 18]
        out[o + 1] = alphabet[(group >> 12) & 63]
        out[o + 2] = alphabet[(group >> 6) & 63]
        out[o + 3] = alphabet[group & 63]
        o = o + 4
        p = p + 3
    out[o] = alphabet[buf[p] >> 2]
    out[o + 1] = alphabet[(buf[p] & 3) << 4]
    out[o + 2] = 34
    return o + 3


def put_double(buf: Readable, p: int, out: Writable, o: int) -> int:
    text = double_text(buffer_access.int_at(buf, p), buffer_access.int_at(buf, p + 4))
    for byte in text:
        out[o] = byte
        o = o + 1
    return o
