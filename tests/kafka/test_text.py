"""Decoding of bytes that are not UTF-8 by Java's rule, compared with Java."""

import itertools
import random
from array import array

import pytest

from kseg.segment import header_tables as C
from kseg.segment.java.java_output import decode_utf8
from kseg.segment.kernel import dump_text, record_walk
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import walk
from tests.kafka.oracle import Oracle
from tests.support.raw_batches import record, sealed

pytestmark = pytest.mark.kafka

# the first and last byte of every class that the rule distinguishes
EDGES = bytes(
    [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED]
)
EDGES += bytes([0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF7, 0xF8, 0xFD, 0xFE, 0xFF])


def by_the_kernel(value: bytes) -> bytes:
    """The value as a dump prints it."""
    data = sealed(record(0, key=None, value=value), 1)
    batches, cells = array("q", bytes(8 * C.BATCH_WIDTH)), array("q", bytes(8 * 12))
    at, state = array("q", [0, 0]), array("q", bytes(8 * S.WALK_WIDTH))
    walk(data, len(data), memoryview(batches), 1, memoryview(at))
    record_walk.read_plain(data, 0, memoryview(batches), 1, memoryview(cells), 1, memoryview(state))
    out = bytearray(1000 + 4 * len(value))
    at[0] = at[1] = 0
    flags = dump_text.DEEP | dump_text.CONTENTS
    end = dump_text.format_lines(
        data, memoryview(batches), 1, 0, memoryview(cells), 1, 1, flags, out, 0, memoryview(at)
    )
    return bytes(out[:end]).partition(b" payload: ")[2].removesuffix(b"\n")


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_combinations_of_edge_bytes_are_decoded_like_java(length: int, oracle: Oracle) -> None:
    """A letter follows each combination, so that it cannot combine with the next. Sequences of four bytes are a random sample."""
    combinations = [bytes(each) for each in itertools.product(EDGES, repeat=length)]
    if length == 4:
        combinations = random.Random(3).sample(combinations, 40_000)
    for start in range(0, len(combinations), 10_000):
        value = b"".join(each + b"|" for each in combinations[start : start + 10_000])
        java = oracle.utf8(value)
        assert decode_utf8(value).encode() == java
        assert by_the_kernel(value) == java


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_are_decoded_like_java(seed: int, oracle: Oracle) -> None:
    lots = random.Random(seed)
    for value in (lots.randbytes(100_000), bytes(lots.choices(EDGES, k=100_000)), "é€😀a".encode() * 9999):
        java = oracle.utf8(value)
        assert decode_utf8(value).encode() == java
        assert by_the_kernel(value) == java
        cut = value[: lots.randrange(len(value))]
        assert by_the_kernel(cut) == oracle.utf8(cut)
