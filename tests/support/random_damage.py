"""Damage the bytes of a file at random."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from kseg.segment.crc import crc32, crc32c


def damage(content: bytes, suffix: str, lots: random.Random) -> tuple[bytes, tuple[str, ...]]:
    """The content with one to five kinds of damage, and their names. In half of the cases the checksums are corrected afterwards."""
    data = bytearray(content)
    names = []
    for _ in range(lots.choice([1, 1, 1, 2, 3, 5])):
        way = lots.choice(WAYS)
        way(data, lots)
        names.append(way.__name__.strip("_"))
    if lots.random() < 0.5:
        _seal(data, suffix)
        names.append("sealed")
    return bytes(data), tuple(names)


def _place(data: bytearray, lots: random.Random, width: int = 1) -> int:
    return lots.randrange(max(1, len(data) - width + 1))


def _flip(data: bytearray, lots: random.Random) -> None:
    for _ in range(lots.choice([1, 1, 8])):
        if data:
            data[_place(data, lots)] ^= 1 << lots.randrange(8)


def _byte(data: bytearray, lots: random.Random) -> None:
    if data:
        data[_place(data, lots)] = lots.choice([0, 1, 2, 0x30, 0x7F, 0x80, 0xFF])


def _number(data: bytearray, lots: random.Random) -> None:
    form, width = lots.choice([(">i", 4), (">q", 8), (">h", 2)])
    if len(data) >= width:
        top = 2 ** (8 * width - 1)
        value = lots.choice(
            [0, 1, -1, 13, 14, 49, top - 1, -top, lots.randrange(-top, top), lots.randrange(300)]
        )
        struct.pack_into(form, data, _place(data, lots, width), value)


def _field(data: bytearray, lots: random.Random) -> None:
    """Overwrite a number at a position that is a field of the batch header, counted from the start of an entry."""
    starts = [0, *_starts(data)]
    at = lots.choice(starts) + lots.choice([0, 8, 12, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57, 61])
    if at + 4 <= len(data):
        value = lots.choice([0, 1, -1, 2**31 - 1, -(2**31), lots.randrange(-300, 300)])
        struct.pack_into(">i", data, at, value)


def _cut(data: bytearray, lots: random.Random) -> None:
    del data[lots.randrange(len(data) + 1) :]


def _append(data: bytearray, lots: random.Random) -> None:
    length = lots.choice([1, 7, 17, 100, 5000])
    data += lots.choice([bytes(length), lots.randbytes(length), bytes(data[:length])])


def _remove(data: bytearray, lots: random.Random) -> None:
    at = lots.randrange(len(data) + 1)
    del data[at : at + lots.choice([1, 4, 12, 61, 300])]


def _insert(data: bytearray, lots: random.Random) -> None:
    at = lots.randrange(len(data) + 1)
    data[at:at] = lots.choice(
        [lots.randbytes(9), bytes(30), b"\n", b" ", b"99999999999999999999", bytes(data[:80])]
    )


def _repeat(data: bytearray, lots: random.Random) -> None:
    start = lots.randrange(len(data) + 1)
    piece = data[start : start + lots.choice([8, 12, 34, 100, 1000])]
    data[start:start] = piece


def _zero(data: bytearray, lots: random.Random) -> None:
    start = lots.randrange(len(data) + 1)
    stop = min(len(data), start + lots.choice([4, 61, 500, 10**6]))
    data[start:stop] = bytes(stop - start)


def _noise(data: bytearray, lots: random.Random) -> None:
    start = lots.randrange(len(data) + 1)
    stop = min(len(data), start + lots.choice([4, 61, 500]))
    data[start:stop] = lots.randbytes(stop - start)


def _swap(data: bytearray, lots: random.Random) -> None:
    starts = _starts(data)
    if len(starts) > 2:
        first, second = sorted(lots.sample(range(len(starts) - 1), 2))
        a, b = data[starts[first] : starts[first + 1]], data[starts[second] : starts[second + 1]]
        middle = data[starts[first + 1] : starts[second]]
        data[starts[first] : starts[second + 1]] = b + middle + a


WAYS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip,
    _byte,
    _number,
    _field,
    _field,
    _cut,
    _append,
    _remove,
    _insert,
    _repeat,
    _zero,
    _noise,
    _swap,
)


def _starts(data: bytearray) -> list[int]:
    """The starts of the entries of a `.log`, as far as their lengths can be followed."""
    starts, position = [], 0
    while position + 26 <= len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        if size < 14:
            break
        starts.append(position)
        position += 12 + size
    return starts


def _seal(data: bytearray, suffix: str) -> None:
    """Correct the checksums, so that the damage reaches the code after their check."""
    if suffix in (".log", ".checkpoint"):
        for start in _starts(data):
            (size,) = struct.unpack_from(">i", data, start + 8)
            end = min(len(data), start + 12 + size)
            if data[start + 16] == 2 and end - start >= 61:
                struct.pack_into(">I", data, start + 17, crc32c(data[start + 21 : end]))
            elif data[start + 16] < 2:
                struct.pack_into(">I", data, start + 12, crc32(data[start + 16 : end]))
    elif suffix == ".snapshot" and len(data) >= 6:
        struct.pack_into(">I", data, 2, crc32c(data[6:]))
    elif suffix == ".kafka":
        position = 0
        while position + 5 <= len(data):
            (size,) = struct.unpack_from(">i", data, position)
            head = 5 if data[position + 4] == 0 else 6
            if size < head or position + 4 + size > len(data):
                break
            start, end = position + 4 + head, position + 4 + size
            struct.pack_into(">I", data, start - 4, crc32(data[start:end]))
            position = end
