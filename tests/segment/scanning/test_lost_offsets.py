"""The offsets that a damaged batch at the log end has lost, if one of the two numbers that determine them is altered."""

from __future__ import annotations

import pytest

from fixtures import healthy
from fixtures.diseases import batch_spans
from kseg.change.append.partition_writer import PartitionWriter
from kseg.segment import layout as L
from kseg.segment.model import NewBatch
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.lost_offsets import LostRange, lost_range
from kseg.segment.scanning.scan import Scanner
from tests.support.scan_helpers import batch as small_batch
from tests.support.scan_helpers import file_of

_ATTRIBUTES, _LAST_DELTA, _COUNT, _HEADER = 21, 23, 57, 61
FIRST, RECORDS = 100, 5
KEPT = LostRange(FIRST, FIRST + RECORDS - 1, RECORDS)


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("logs") / "metro-0"
    directory.mkdir()
    with PartitionWriter(directory) as writer:
        writer.append(NewBatch(records=healthy.records(FIRST, RECORDS)))
    log = min(directory.glob("*.log"))
    ((position, size),) = batch_spans(log)
    return log.read_bytes()[position : position + size]


def lost(data: bytes) -> LostRange:
    """The range lost by a batch at the end of a log whose previous batch ended at offset 99."""
    return lost_range(memoryview(data), 0, len(data), FIRST, None, None, (FIRST, None))


@pytest.mark.parametrize("bit", range(32))
@pytest.mark.parametrize("field", [_LAST_DELTA, _COUNT])
def test_checksum_proves_which_number_is_altered(batch: bytes, field: int, bit: int) -> None:
    data = bytearray(batch)
    data[field + 3 - bit // 8] ^= 1 << bit % 8
    assert lost(bytes(data)) == KEPT


def test_compacted_batch_ends_where_its_header_says(batch: bytes) -> None:
    """It has fewer records than offsets, and because of damage elsewhere the checksum proves nothing."""
    data = bytearray(batch)
    data[_COUNT + 3] = 2
    data[-1] ^= 1
    assert lost(bytes(data)) == LostRange(FIRST, FIRST + RECORDS - 1, 2)


def test_checksum_of_a_torn_batch_proves_nothing(batch: bytes) -> None:
    data = bytearray(batch[:-3])
    data[_LAST_DELTA + 3] = 64
    assert lost(bytes(data)) == LostRange(FIRST, FIRST + 64, RECORDS)


@pytest.mark.parametrize("zeros", [0, 7, 40, None])
def test_lost_offsets_of_a_batch_torn_in_its_header(batch: bytes, zeros: int | None) -> None:
    """Once the last offset delta is written, the range is known. Zeros that a file system has left after the data do not count as
    numbers."""
    for written in range(1, len(batch)):
        found = lost((batch[:written] + bytes(len(batch) if zeros is None else zeros))[: len(batch)])
        if written >= _HEADER:
            assert found == KEPT
        elif written >= _LAST_DELTA + 4:
            assert found == LostRange(FIRST, FIRST + RECORDS - 1, None)
        else:
            assert found == LostRange(FIRST, None, None)


def test_lost_offsets_of_a_marker_torn_in_its_header(batch: bytes) -> None:
    data = bytearray(batch[:40])
    data[_ATTRIBUTES + 1] |= L.CONTROL_BIT
    data[_LAST_DELTA + 3] = 0
    assert lost(bytes(data)) == LostRange(FIRST, FIRST, 0)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_bytes_that_look_like_a_header_have_no_offset_that_the_segment_cannot_hold(magic: int) -> None:
    """The middle of a record, where a header would have an offset of many digits."""
    data, _ = file_of([small_batch(number, 1, magic=magic) for number in range(4)])
    garbage = bytearray(small_batch(24 << 32, 1, magic=magic))
    garbage[-1] ^= 1
    (damage,) = (item for item in Scanner(data + garbage, 0).blocks() if isinstance(item, Damage))
    assert (damage.lost.first_offset, damage.lost.last_offset, damage.lost.records) == (4, None, None)
