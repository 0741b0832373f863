"""A single segment during a broker's load: offset lookup, truncation, and wrong indexes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.healthy import T0
from kseg.change.plan.inputs import inputs_of
from kseg.recovery.loading.broker_walk import LogWalk
from kseg.recovery.loading.kafka_exceptions import BrokerException
from kseg.recovery.loading.load_state import LoadState
from kseg.recovery.loading.segment import LoadedSegment
from kseg.recovery.loading.wrapper_offsets import first_offset
from kseg.recovery.policy import LoadSettings
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.support.load_helpers import data, log_file, partition

# no offsets 4 to 9
BATCHES = [data(0, 2), data(2, 2), data(10, 2), data(12, 3)]
SIZES = [len(encode_batch(batch)) for batch in BATCHES]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[LoadState]:
    directory = partition(tmp_path, {0: BATCHES})
    with LoadState(str(directory), inputs_of(str(directory))) as workplace:
        yield workplace


def settings() -> LoadSettings:
    return LoadSettings(now_ms=T0, index_interval_bytes=200, segment_index_bytes=4000)


@pytest.mark.behaviour("R33", "R44")
@pytest.mark.parametrize(
    ("offset", "kept", "next_offset"),
    [(12, 3, 12), (13, 3, 12), (10, 2, 4), (7, 2, 4), (3, 1, 2), (0, 0, 0), (15, 4, 15), (99, 4, 15)],
)
def test_truncation_removes_the_batch_of_the_offset_and_what_follows(
    place: LoadState, offset: int, kept: int, next_offset: int
) -> None:
    segment = LoadedSegment(place, 0, settings())
    assert segment.next_offset() == 15
    removed = segment.truncate_to(offset, "a test")
    assert segment.size_bytes == sum(SIZES[:kept])
    assert removed == sum(SIZES[kept:])
    assert segment.next_offset() == next_offset
    assert all(entry.offset < offset for entry in segment.offset_index.reader)


@pytest.mark.behaviour("R34")
@pytest.mark.parametrize("offset", [0, 5])
def test_truncation_of_an_empty_segment_gives_its_indexes_their_size(place: LoadState, offset: int) -> None:
    segment = LoadedSegment(place, 20, settings())
    assert segment.truncate_to(20 + offset, "a test") == 0
    assert segment.next_offset() == 20
    segment.offset_index.write_back("a test")
    segment.time_index.write_back("a test")
    assert place.size_bytes(segment.offset_index.name) == 4000
    assert place.size_bytes(segment.time_index.name) == 3996
    segment.close()
    assert place.size_bytes(segment.offset_index.name) == place.size_bytes(segment.time_index.name) == 0


@pytest.mark.behaviour("R35")
@pytest.mark.parametrize(("offset", "largest"), [(99, 14), (12, 11), (10, 3), (2, 1)])
def test_truncation_updates_the_largest_timestamp(place: LoadState, offset: int, largest: int) -> None:
    segment = LoadedSegment(place, 0, settings())
    assert segment.largest.offset == 14
    segment.truncate_to(offset, "a test")
    assert segment.largest.offset == largest
    first_of_batch = {14: 12, 11: 10, 3: 2, 1: 0}[largest]
    assert segment.largest.timestamp_ms == T0 + first_of_batch * 1000 + largest - first_of_batch


def test_offset_search_finds_the_batch_or_the_one_after_the_gap(place: LoadState) -> None:
    walk = LoadedSegment(place, 0, settings()).walk
    found = [walk.search(offset, 0) for offset in (0, 1, 3, 4, 9, 10, 14)]
    assert [batch.base_offset for batch in found if batch] == [0, 0, 2, 10, 10, 10, 12]
    assert walk.search(15, 0) is None
    # a search that starts after the batch returns the first one from there
    assert walk.search(0, sum(SIZES[:2])) is not None


def test_log_walk_at_the_end_of_a_file_throws_like_kafka() -> None:
    sound = encode_batch(data(0))
    assert LogWalk(memoryview(sound + bytes(17)), "log").last_offset(0, len(sound) + 17) == 0
    with pytest.raises(BrokerException) as zeros:
        LogWalk(memoryview(sound + bytes(18)), "log").last_offset(0, len(sound) + 18)
    assert zeros.value.kafka_exception == "CorruptRecordException"
    short = (5).to_bytes(8, "big") + (14).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(9)
    cut = LogWalk(memoryview(sound + short), "log")
    assert cut.search(5, 0) is not None  # the offset is complete
    with pytest.raises(BrokerException) as unread:  # and the rest is not
        cut.last_offset(0, len(sound + short))
    assert unread.value.kafka_exception == "KafkaException"
    with pytest.raises(BrokerException) as negative:
        next(cut.tables(-1))
    assert negative.value.kafka_exception == "IllegalArgumentException"


def test_indexes_larger_than_the_configured_size_fail_the_load(tmp_path: Path) -> None:
    """A broker with a smaller segment.index.bytes fails on the preallocated indexes that a crash left, if it trusts them."""
    directory = partition(tmp_path, {0: BATCHES})
    log_file(directory, 0, L.OFFSET_INDEX_SUFFIX).write_bytes(bytes(8000))
    with LoadState(str(directory), inputs_of(str(directory))) as workplace:
        segment = LoadedSegment(workplace, 0, settings())
        with pytest.raises(BrokerException) as thrown:
            segment.offset_index.resize_to_full()
        assert thrown.value.kafka_exception == "IllegalArgumentException"
        # a recovery resets the index and is not affected
        segment.offset_index.reset()


def wrapper(magic: int, codec: int = L.GZIP) -> bytearray:
    """A compressed set of three messages from offset 40 on."""
    records = tuple(Record(40 + row, T0, b"k", b"v") for row in range(3))
    return bytearray(encode_batch(NewBatch(records=records, magic=magic, codec=codec)))


@pytest.mark.parametrize("magic", [L.MAGIC_V0, L.MAGIC_V1])
def test_first_offset_of_a_message_set_comes_from_its_content(magic: int) -> None:
    message = wrapper(magic)
    assert first_offset(memoryview(message), "it") == 40
    assert LogWalk(memoryview(message), "log").search(40, 0) is not None
    assert LogWalk(memoryview(message), "log").search(43, 0) is None


@pytest.mark.parametrize(
    ("position", "data", "thrown"),
    [
        (17, b"\7", "IllegalArgumentException"),  # an unknown codec
        (17, b"\4", "InvalidRecordException"),  # zstd, which magic 1 does not allow
        (16, b"\xff", "InvalidRecordException"),
        (26, b"\x7f\0\0\0", "IndexOutOfBoundsException"),  # length of the key
        (30, b"\x7f\0\0\0", "IllegalArgumentException"),  # length of the value
        (30, b"\xff\xff\xff\xff", "InvalidRecordException"),
        (36, b"\0\0\0\0", "KafkaException"),  # not gzip
        (0, (1).to_bytes(8, "big"), "InvalidRecordException"),  # below the last of its messages
    ],
)
def test_undecodable_message_set_fails_the_load_like_kafka(position: int, data: bytes, thrown: str) -> None:
    message = wrapper(L.MAGIC_V1)
    message[position : position + len(data)] = data
    with pytest.raises(BrokerException) as raised:
        first_offset(memoryview(message), "it")
    assert raised.value.kafka_exception == thrown
