"""Helpers of the scanner tests: files of small batches at known positions, and scans whose totals are checked."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import Batch, NewBatch, Record
from kseg.segment.scanning.batches import scan
from kseg.segment.scanning.damage import Damage

T0 = 1_700_000_000_000


class Scanned(NamedTuple):
    """A scan in which every byte belongs to exactly one batch or damage, in order."""

    batches: list[Batch]
    damages: list[Damage]

    @property
    def positions(self) -> list[int]:
        return [batch.position for batch in self.batches]

    @property
    def only(self) -> Damage:
        assert len(self.damages) == 1, self.damages
        return self.damages[0]


def scanned(data: bytes | bytearray, base_offset: int = 0, start: int = 0, end: int | None = None) -> Scanned:
    """Scan, and check that the batches and damage account for every byte."""
    result = Scanned([], [])
    position = start
    for piece in scan(data, base_offset, start, end):
        assert piece.position == position
        if isinstance(piece, Batch):
            assert piece.crc_valid and piece.size_bytes >= 26
            position = piece.end_position
            result.batches.append(piece)
        else:
            assert piece.length > 0
            position += piece.length
            result.damages.append(piece)
    assert position == (len(data) if end is None else end)
    return result


def batch(
    base_offset: int, count: int = 2, value: bytes = b"some value", magic: int = 2, codec: int = 0
) -> bytes:
    """One batch of `count` records with this value."""
    records = tuple(
        Record(base_offset + row, T0 + row if magic else -1, b"k%d" % row, value) for row in range(count)
    )
    return encode_batch(NewBatch(records=records, magic=magic, codec=codec))


def batch_positions(data: bytes) -> list[int]:
    """Positions of the batches of a log without damage."""
    found = list(scan(data, 0))
    assert all(isinstance(each, Batch) for each in found)
    return [each.position for each in found]


def file_of(pieces: Iterable[bytes]) -> tuple[bytes, list[int]]:
    """The concatenated pieces, and the position of each."""
    data, positions = bytearray(), []
    for piece in pieces:
        positions.append(len(data))
        data += piece
    return bytes(data), positions


def plain_file(batches: int = 6, magic: int = 2) -> tuple[bytes, list[int]]:
    """A file of batches with two records each (legacy: one message each), without gaps."""
    step = 2 if magic == 2 else 1
    pieces = [batch(step * row, step, b"value %d" % row * (row % 3 + 1), magic) for row in range(batches)]
    return file_of(pieces)


def with_length(data: bytes, position: int, size_field: int) -> bytes:
    """The file with another value in the size field of a batch."""
    out = bytearray(data)
    struct.pack_into(">i", out, position + 8, size_field)
    return bytes(out)


def without(positions: Sequence[int], *numbers: int) -> list[int]:
    """The positions of all batches except these."""
    return [position for number, position in enumerate(positions) if number not in numbers]


def header(base_offset: int, size_bytes: int, count: int = 1, crc: int = 0xBADC0DE) -> bytes:
    """A magic 2 header for an entry of `size_bytes` in which only the checksum is wrong."""
    return struct.pack(
        ">qiibIhiqqqhii",
        base_offset,
        size_bytes - L.ENTRY_OVERHEAD,
        0,
        2,
        crc,
        0,
        count - 1,
        T0,
        T0,
        -1,
        -1,
        -1,
        count,
    )


def message(offset: int, crc: int = 0xBADC0DE) -> bytes:
    """A magic 0 message without key and value, 26 bytes, with a wrong checksum."""
    return struct.pack(">qiIbbii", offset, 14, crc, 0, 0, -1, -1)
