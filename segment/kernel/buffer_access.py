"""Raw buffer access for the inner functions of the kernels.

Passing a typed memoryview from one C function to another copies its whole descriptor, which costs more than processing
a record. So the entry functions take views, check the sizes of the tables, and pass pointers on. In plain Python a view
is its own pointer, and Python's bounds checks cover every access: the fuzz tests run that mode.

C inlines only within a module, and a call from one kernel into another costs as much as reading a number. So the
functions that every kernel needs for each field are defined in the `.pxd`, and compiled into each module that uses
them; this module has the same lines for plain Python (a test compares them). It is not compiled itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from kseg.segment.kernel.buffer_types import Readable, Writable


def bytes_in(view: Any) -> Any:
    return view


def room_in(view: Any) -> Any:
    return view


def cells_in(view: Any) -> Any:
    return view


def table_in(view: Any) -> Any:
    return view


def copied(out: Any, o: int, text: Any, p: int, n: int) -> None:
    # in C a memcpy, which is faster than any loop over bytes
    out[o : o + n] = text[p : p + n]


def wanted(buf: Any, p: int) -> None:
    # in C a prefetch, which does not wait; p may be after the end
    return None


# --- big-endian numbers: in C whole words, which compilers recognise


def long_at(buf: Readable, p: int) -> int:
    value = buf[p]
    if value > 127:
        value = value - 256
    value = (value << 8) | buf[p + 1]
    value = (value << 8) | buf[p + 2]
    value = (value << 8) | buf[p + 3]
    value = (value << 8) | buf[p + 4]
    value = (value << 8) | buf[p + 5]
    value = (value << 8) | buf[p + 6]
    return (value << 8) | buf[p + 7]


def int_at(buf: Readable, p: int) -> int:
    value = buf[p]
    if value > 127:
        value = value - 256
    value = (value << 8) | buf[p + 1]
    value = (value << 8) | buf[p + 2]
    return (value << 8) | buf[p + 3]


def crc_at(buf: Readable, p: int) -> int:
    value = buf[p]
    value = (value << 8) | buf[p + 1]
    value = (value << 8) | buf[p + 2]
    return (value << 8) | buf[p + 3]


def short_at(buf: Readable, p: int) -> int:
    value = buf[p]
    if value > 127:
        value = value - 256
    return (value << 8) | buf[p + 1]


# --- control records


def is_end_marker(buf: Readable, p: int) -> int:
    # whether the 17 bytes at p are the record of an end-of-transaction marker as brokers write it
    if int_at(buf, p) != 536870912 or buf[p + 4] != 8:
        return 0
    if int_at(buf, p + 5) > 1 or int_at(buf, p + 5) < 0:
        return 0
    if buf[p + 9] != 12 or short_at(buf, p + 10) != 0 or buf[p + 16] != 0:
        return 0
    return 1


# --- varints


def wide_varint(buf: Readable, p: int, end: int) -> int:
    # like Java's, it drops bits above the 32nd
    raw = 0
    n = 0
    while n < 5 and p + n < end:
        byte = buf[p + n]
        if n < 4:
            raw = raw | (byte & 127) << (7 * n)
        else:
            raw = raw | (byte & 15) << 28
        n = n + 1
        if byte < 128:
            return ((raw >> 1) ^ -(raw & 1)) * 16 + n
    return 0


def varint(buf: Readable, p: int, end: int) -> int:
    # the zigzag varint at p as 16 × its value + its size; size 0 if it exceeds the body or 5 bytes
    if p >= end:
        return 0
    byte = buf[p]
    if byte < 128:
        return ((byte >> 1) ^ -(byte & 1)) * 16 + 1
    return wide_varint(buf, p, end)


# --- sums and text


def add_long(left: int, right: int) -> int:
    # left + right as a Java long; literals beyond 32 bits would be Python objects
    top = 0x7FFFFFFF
    top = (top << 16) | 0xFFFF
    top = (top << 16) | 0xFFFF
    if right > 0 and left > top - right:
        return left - top - 1 + right - top - 1
    if right < 0 and left < -top - 1 - right:
        return left + top + 1 + right + top + 1
    return left + right


def put(out: Writable, o: int, text: Readable, n: int) -> int:
    for i in range(n):
        out[o + i] = text[i]
    return o + n
