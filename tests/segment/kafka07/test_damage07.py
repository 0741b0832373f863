"""Damaged and hostile Kafka 0.7 files: every byte is accounted for, in linear time."""

from __future__ import annotations

import random
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kseg.segment import layout as L
from kseg.segment.codecs.codec import compress
from kseg.segment.errors import CodecError, FormatError
from kseg.segment.kafka07 import encoding07
from kseg.segment.kafka07 import messages07 as A
from tests.support.encoders import encode_set
from tests.support.logs07 import HELLO_0, HELLO_1, payloads, walk_all

CODECS = (L.NONE, L.GZIP, L.SNAPPY)


def test_flipped_payload_bit_invalidates_one_0_7_entry() -> None:
    data = bytearray(HELLO_1 * 5)
    data[2 * 15 + 12] ^= 4
    found = walk_all(bytes(data))
    assert [item.crc_valid for item in found if isinstance(item, A.Entry07)] == [
        True,
        True,
        False,
        True,
        True,
    ]


def test_adjacent_damaged_0_7_entries_are_separate() -> None:
    data = bytearray(HELLO_1 * 6)
    for index in (1, 2, 3):
        data[index * 15 + 12] ^= 4
    assert [item.crc_valid for item in A.walk(bytes(data)) if isinstance(item, A.Entry07)] == [
        True, False, False, False, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("middle", "kind"),
    [
        (b"\xff" * 50, "bad-length"),
        (bytes(5000), "zero-filled"),
        (b"some text that is no message at all", "bad-length"),
        (bytes.fromhex("00000020 07") + b"x" * 30, "foreign-bytes"),
    ],
)
def test_0_7_walk_continues_after_damage(middle: bytes, kind: str) -> None:
    assert walk_all(HELLO_1 + middle + HELLO_0 * 2)[1] == A.Damage07(kind, 15, len(middle))


@pytest.mark.slow
@pytest.mark.parametrize("before", [b"", HELLO_1, HELLO_1[:-3], b"\xff" * 9])
@pytest.mark.parametrize("after", [b"", HELLO_0 * 3, HELLO_0[3:], b"\xff" * 9 + HELLO_1 * 2])
@pytest.mark.parametrize("into", [0, 2, 4])
def test_holes_in_a_0_7_file_are_read_as_zeros(before: bytes, after: bytes, into: int) -> None:
    """into: the number of zeros stored before the hole. An entry may start with the last of them."""
    zeros = 2 << 20
    data = HELLO_1 + before + bytes(zeros) + after
    start = len(HELLO_1 + before) + into
    extents = [(0, start), (start + zeros - into, len(after))]
    assert list(A.walk(data, 0, None, lambda _start, _stop: extents)) == walk_all(data)
    assert list(A.walk(data, 15, None, lambda _start, _stop: extents)) == list(A.walk(data, 15))


def test_single_empty_message_does_not_end_damage() -> None:
    lookalike = bytes.fromhex("00000005 00 00000000")
    found = walk_all(HELLO_1 + b"\xff" * 20 + lookalike + b"\xff" * 20 + HELLO_1)
    assert found[1] == A.Damage07("bad-length", 15, 49)
    assert walk_all(lookalike * 3) == list(A.walk(lookalike * 3))
    assert payloads(lookalike * 3) == [b""] * 3


def test_damaged_0_7_size_is_resynchronized_at_the_next_entry() -> None:
    data = bytearray(HELLO_1 * 4)
    data[15:19] = struct.pack(">i", 0x7000_0000)
    found = walk_all(bytes(data))
    assert found[1] == A.Damage07("bad-length", 15, 15)
    assert len(found) == 4


@given(
    messages=st.lists(st.binary(max_size=40), min_size=1, max_size=12),
    start=st.integers(0, 400),
    junk=st.binary(max_size=30),
    codec=st.sampled_from(CODECS),
)
@settings(max_examples=200)
def test_every_byte_of_a_damaged_0_7_file_is_accounted_for(
    messages: list[bytes], start: int, junk: bytes, codec: int
) -> None:
    data = bytearray(b"".join(encode_set([message], codec) for message in messages))
    data[start : start + len(junk)] = junk
    damaged = bytes(data)
    for item in walk_all(damaged):
        if isinstance(item, A.Entry07):
            try:
                list(A.messages(memoryview(damaged), item, limit_bytes=10_000))
            except FormatError as error:
                assert str(error)
    assert 0 <= A.valid_prefix(damaged).position <= len(damaged)


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_every_random_byte_is_accounted_for(data: bytes) -> None:
    walk_all(data)


def test_truncated_0_7_set_is_an_error_after_its_messages() -> None:
    data = encoding07.encode_message(compress(L.GZIP, 1, HELLO_1 + HELLO_1[:9]), 1, L.GZIP)
    (entry,) = A.walk(data)
    assert isinstance(entry, A.Entry07)
    with pytest.raises(FormatError, match="at byte 15 of its content"):
        list(A.messages(memoryview(data), entry))


def test_nesting_and_size_of_0_7_sets_are_bounded() -> None:
    data = HELLO_1
    for _ in range(A.MAX_NESTING + 1):
        data = encoding07.encode_message(compress(L.GZIP, 1, data), 1, L.GZIP)
    (entry,) = A.walk(data)
    assert isinstance(entry, A.Entry07)
    with pytest.raises(CodecError, match="nested"):
        list(A.messages(memoryview(data), entry))
    bomb = encode_set([bytes(1 << 20)] * 3, L.GZIP)
    (entry,) = A.walk(bomb)
    assert isinstance(entry, A.Entry07)
    with pytest.raises(CodecError, match="limit"):
        list(A.messages(memoryview(bomb), entry, limit_bytes=2 << 20))


def hostile(kind: str, size_bytes: int) -> bytes:
    # at every sixth byte there is an entry that covers half of the file
    if kind == "candidates":
        return struct.pack(">iBB", size_bytes // 2, 0, 0) * (size_bytes // 6)
    if kind == "one valid, one huge":
        huge = struct.pack(">iBB", size_bytes // 2, 1, 0) + b"\1" * 4
        return (HELLO_1 + huge) * (size_bytes // 25)
    # many sizes that lead into a long run of zeros, after which the file continues
    if kind == "into zeros":
        half = size_bytes // 2
        entries = b"".join(
            HELLO_1 + struct.pack(">iB", half - position - 19 + 500, 0) + b"\1" * 4
            for position in range(0, half - 24, 24)
        )
        return entries + bytes(half) + b"\1"
    if kind == "zeros":
        return HELLO_1 + bytes(size_bytes) + b"\1"
    return random.Random(7).randbytes(size_bytes)


@pytest.mark.parametrize("kind", ["candidates", "one valid, one huge", "into zeros", "zeros", "random"])
def test_hostile_0_7_files_take_linear_time(kind: str) -> None:
    """8 times the bytes may take about 8 times as long; quadratic work would take 64 times as long."""
    seconds = []
    for size_bytes in (250_000, 2_000_000):
        data = hostile(kind, size_bytes)
        start = time.process_time()
        walk_all(data)
        seconds.append(time.process_time() - start)
    assert seconds[1] < 32 * seconds[0] + 1.0, seconds
