"""The checksum identifies a single flipped bit of a batch, wherever it is. Other damage is not taken for one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import layout as L
from kseg.segment.crc import crc32, crc32c
from kseg.segment.diagnosis import FlippedBit
from kseg.segment.scanning import flipped_bits
from kseg.segment.scanning.flipped_bits import flipped_bits_in
from tests.support.scan_helpers import batch, file_of, scanned

RECORD_COUNT_POSITION = 57
KINDS = [(0, 0), (1, 0), (1, L.GZIP), (2, 0), (2, L.GZIP), (2, L.SNAPPY), (2, L.LZ4), (2, L.ZSTD)]


def first_checked(magic: int) -> int:
    """The first byte of a batch that its checksum covers or that is part of it. In the old formats the checksum precedes the magic byte."""
    return L.CRC_POSITION if magic == 2 else L.ENTRY_OVERHEAD


@pytest.mark.parametrize(("magic", "codec"), KINDS)
def test_every_flipped_bit_is_found(magic: int, codec: int) -> None:
    """This holds for the checksum and what it covers, except for the magic byte, which determines how to read the rest."""
    whole = batch(70, 2 if magic == 2 or codec else 1, b"value " * 9, magic, codec)
    found, expected = [], []
    for position in range(first_checked(magic), len(whole)):
        if position == L.MAGIC_POSITION:
            continue
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            expected.append((FlippedBit(position, bit),))
            found.append(flipped_bits_in(memoryview(damaged), 0, len(damaged)))
    assert found == expected


@given(st.integers(1, 200_000), st.data(), st.sampled_from([crc32, crc32c]))
def test_crc_register_gives_the_distance_of_a_bit_from_the_end(
    count: int, draws: st.DataObject, checksum: Callable[[bytes], int]
) -> None:
    data = random.Random(count).randbytes(count)
    bit = draws.draw(st.integers(0, 8 * count - 1))
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    polynomial = 0x82F63B78 if checksum is crc32c else 0xEDB88320
    register = flipped_bits._register(polynomial)
    difference = checksum(data) ^ checksum(bytes(damaged))
    assert register.distance(difference, 8 * count) == 8 * count - bit
    assert register.distance(difference, 8 * count - bit - 1) is None


@pytest.mark.parametrize("codec", [0, L.ZSTD])
def test_two_flipped_bits_are_not_taken_for_one(codec: int) -> None:
    whole, chance = batch(0, 3, b"x" * 300, 2, codec), random.Random(codec)
    for _ in range(300):
        damaged = bytearray(whole)
        for bit in chance.sample(range(8 * L.ATTRIBUTES_POSITION, 8 * len(whole)), 2):
            damaged[bit // 8] ^= 1 << bit % 8
        assert flipped_bits_in(memoryview(damaged), 0, len(damaged)) == ()


def test_flipped_bit_that_fixes_only_the_checksum_is_rejected() -> None:
    """The header declares three records, and the batch has two. The checksum covers that, so the flipped bit explains the checksum but not
    the records."""
    whole = bytearray(batch(0, 2, b"value", 2, 0))
    whole[RECORD_COUNT_POSITION + 3] = 3
    whole[L.CRC_POSITION : L.CRC_POSITION + 4] = crc32c(whole[L.ATTRIBUTES_POSITION :]).to_bytes(4, "big")
    whole[-1] ^= 4
    assert flipped_bits_in(memoryview(whole), 0, len(whole)) == ()


def test_adjacent_damaged_batches_are_explained_as_far_as_one_bit_each_suffices() -> None:
    data, positions = file_of([batch(2 * number, 2, b"value", 2, 0) for number in range(6)])
    damaged = bytearray(data)
    flips = [FlippedBit(positions[number] + 64, number) for number in (1, 2, 4)]
    for flipped in flips:
        damaged[flipped.position] ^= 1 << flipped.bit
    found = scanned(bytes(damaged))
    assert [damage.flipped for damage in found.damages] == [tuple(flips[:2]), (flips[2],)]
    assert found.positions == [positions[number] for number in (0, 3, 5)]


def test_batch_above_16_mib_is_not_examined_for_flipped_bits() -> None:
    """With a probability of more than 6 %, one of its bits would explain any damage."""
    whole = bytearray(batch(0, 1, bytes(flipped_bits.MAX_BATCH_BYTES), 2, 0))
    whole[100] ^= 1
    assert flipped_bits_in(memoryview(whole), 0, len(whole)) == ()
    smaller = bytearray(batch(0, 1, bytes(flipped_bits.MAX_BATCH_BYTES - 100), 2, 0))
    smaller[100] ^= 1
    assert flipped_bits_in(memoryview(smaller), 0, len(smaller)) == (FlippedBit(100, 0),)


@given(st.binary(max_size=400))
def test_no_flipped_bit_is_found_in_random_bytes(data: bytes) -> None:
    assert flipped_bits_in(memoryview(data), 0, len(data)) == ()
