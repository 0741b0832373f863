"""Combined checksums of ranges equal those computed directly."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import crc
from kseg.segment.kernel.checksum import CASTAGNOLI, IEEE
from kseg.segment.scanning.range_crc import BLOCK_BYTES, RangeChecksum

DATA = memoryview(random.Random(5).randbytes(20 * BLOCK_BYTES + 77))
KINDS = [
    pytest.param(RangeChecksum(DATA, CASTAGNOLI, crc.crc32c), crc.crc32c, id="crc32c"),
    pytest.param(RangeChecksum(DATA, IEEE, crc.crc32), crc.crc32, id="crc32"),
]


@pytest.mark.parametrize(("ranges", "straight"), KINDS)
class TestRanges:
    @given(bounds=st.tuples(st.integers(0, len(DATA)), st.integers(0, len(DATA))))
    def test_crc_of_any_range_equals_the_direct_one(
        self, ranges: RangeChecksum, straight: crc.Checksum, bounds: tuple[int, int]
    ) -> None:
        start, end = sorted(bounds)
        assert ranges.of(start, end) == straight(DATA[start:end])

    @pytest.mark.parametrize("blocks", [0, 1, 2, 3, 20])
    @pytest.mark.parametrize("start", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES])
    def test_crc_at_block_edges_equals_the_direct_one(
        self, ranges: RangeChecksum, straight: crc.Checksum, start: int, blocks: int
    ) -> None:
        for beyond in (-1, 0, 1):
            end = min(len(DATA), max(start, start + blocks * BLOCK_BYTES + beyond))
            assert ranges.of(start, end) == straight(DATA[start:end])


def test_range_crc_reads_only_the_edges_of_known_blocks() -> None:
    read = []

    def counting(data: memoryview, value: int = 0, /) -> int:
        read.append(len(data))
        return crc.crc32c(data, value)

    ranges = RangeChecksum(DATA, CASTAGNOLI, counting)
    ranges.of(0, len(DATA))
    read.clear()
    assert ranges.of(5, len(DATA) - 5) == crc.crc32c(DATA[5 : len(DATA) - 5])
    assert sum(read) <= 2 * BLOCK_BYTES
