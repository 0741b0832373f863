"""The indexes that a broker writes, compared with files that brokers wrote.

The captured 4.3.1 topics were written with an index interval of 1024 bytes, the internal ones with 4096. `RECOVERED` has what the real
`LogSegment.recover` of 4.3.1 made of old segments with an interval of 300 bytes.
"""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import layout as L
from kseg.segment.sidecar.index import OffsetIndex, TimeIndex
from kseg.segment.sidecar.index_builder import FULL, OUT_OF_ORDER, OVERFLOW, SegmentIndexes
from tests.support import reference_reader

RECOVERED = {
    "0.9.0.1/2-compacted/hive.gzip-0/00000000000000000038": ("0000001f 0000038c 0000002f 00000523", ""),
    "0.10.2.2/3-compacted/hive.lz4-0/00000000000000000000": (
        "00000019 0000053b 0000001d 000006f3",
        "0000015d f1cafa8f 00000019 0000015d f1cb73b6 0000001d",
    ),
    "0.10.2.2/3-compacted/odd.times-0/00000000000000000000": ("", "00000000 00000005 00000003"),
    "0.10.2.2/3-compacted/hour.snappy-0/00000000000000000000": (
        "00000012 0000049a",
        "000001a1 fd8d901b 00000012",
    ),
    "1.1.1/3-format-1.1/comb.gzip-0/00000000000000000045": (
        "00000018 00000358 0000002c 000006ab",
        "0000015d f1d04af1 00000018 0000015d f1d2b5ed 0000002c",
    ),
    "1.1.1/4-compacted/swarm.codecs-0/00000000000000000030": (
        "00000004 00000168 00000007 000002e2 00000011 00000555 00000013 0000069f",
        (
            "0000015d f1ce1983 00000004 0000015d f1d34a7b 0000000e"
            "0000015d f1d3649b 00000013 0000015d f1d3818f 00000018"
        ),
    ),
}


def built(log: Path, interval_bytes: int, restart_at: int | None = None) -> SegmentIndexes:
    indexes = SegmentIndexes(int(log.name[:20]), interval_bytes)
    for batch in reference_reader.batches(log.read_bytes()):
        if batch.position == restart_at:
            assert indexes.finish() is None
            indexes.resume(indexes.offset_index.to_bytes(), indexes.time_index.to_bytes(), batch.position)
        refusal = indexes.add(batch.position, batch.size_bytes, batch.last_offset, batch.max_timestamp_ms)
        assert refusal is None
    assert indexes.finish() is None
    return indexes


@pytest.mark.behaviour("I21")
@pytest.mark.parametrize("state", ["before", "data"])
def test_built_indexes_equal_those_of_a_broker(capture_small: Path, state: str) -> None:
    seen = 0
    for log in sorted((capture_small / state).rglob("*.log")):
        internal = log.parent.name.startswith("__")
        before = capture_small / "before" / log.parent.name / log.name
        restarted = state == "data" and log.parent.name == "__cluster_metadata-0"
        indexes = built(log, 4096 if internal else 1024, before.stat().st_size if restarted else None)
        assert log.with_suffix(".index").read_bytes() == indexes.offset_index.to_bytes(), log
        assert log.with_suffix(".timeindex").read_bytes() == indexes.time_index.to_bytes(), log
        seen += 1
    assert seen > 20


@pytest.mark.behaviour("I21")
@pytest.mark.parametrize("name", sorted(RECOVERED))
def test_built_indexes_of_old_formats_equal_a_recovery(legacy_small: Path, name: str) -> None:
    indexes = built(legacy_small / "data" / f"{name}.log", 300)
    index, time_index = RECOVERED[name]
    assert indexes.offset_index.to_bytes() == bytes.fromhex(index)
    assert indexes.time_index.to_bytes() == bytes.fromhex(time_index)


@pytest.mark.behaviour("I21")
def test_index_has_one_entry_per_interval_with_the_last_offset() -> None:
    indexes = SegmentIndexes(0, interval_bytes=2 * 100 - 1)
    for batch in range(3):
        assert indexes.add(100 * batch, 100, last_offset=10 * batch + 9, max_timestamp_ms=50 - batch) is None
    assert list(OffsetIndex(indexes.offset_index.to_bytes(), 0)) == [(29, 200)]
    assert list(TimeIndex(indexes.time_index.to_bytes(), 0)) == [(50, 9)]
    assert (indexes.max_timestamp_ms, indexes.offset_of_max) == (50, 9)


def test_index_entry_needs_more_than_one_interval() -> None:
    indexes = SegmentIndexes(0, interval_bytes=100)
    for batch in range(3):
        indexes.add(100 * batch, 100, last_offset=batch, max_timestamp_ms=1)
    assert list(OffsetIndex(indexes.offset_index.to_bytes(), 0)) == [(2, 200)]


def test_batches_without_timestamps_leave_the_time_index_empty() -> None:
    indexes = SegmentIndexes(7, interval_bytes=0)
    for batch in range(4):
        indexes.add(100 * batch, 100, last_offset=7 + batch, max_timestamp_ms=L.NO_TIMESTAMP)
    assert indexes.finish() is None
    assert indexes.time_index.to_bytes() == b""
    assert (indexes.max_timestamp_ms, indexes.offset_of_max) == (-1, 7)


@pytest.mark.behaviour("I05")
def test_full_index_accepts_only_the_final_time_entry() -> None:
    indexes = SegmentIndexes(0, interval_bytes=0, max_index_bytes=24)  # 3 offset entries, 1 + 1 time entries
    refusals = [indexes.add(100 * n, 100, n, max_timestamp_ms=n) for n in range(5)]
    assert [refusal and refusal.kafka_exception for refusal in refusals] == [None, None, FULL, FULL, FULL]
    assert indexes.is_full
    assert indexes.finish() is None
    assert list(OffsetIndex(indexes.offset_index.to_bytes(), 0)) == [(1, 100), (2, 200), (3, 300)]
    assert list(TimeIndex(indexes.time_index.to_bytes(), 0)) == [(1, 1), (4, 4)]


@pytest.mark.behaviour("I04")
def test_non_increasing_offset_is_left_out_of_the_index() -> None:
    indexes = SegmentIndexes(0, interval_bytes=0)
    assert indexes.add(0, 100, 5, 1) is None
    assert indexes.add(100, 100, 9, 2) is None
    refusal = indexes.add(200, 100, 9, 3)
    assert refusal is not None and refusal.kafka_exception == OUT_OF_ORDER
    assert list(OffsetIndex(indexes.offset_index.to_bytes(), 0)) == [(9, 100)]


@pytest.mark.behaviour("I12")
def test_maximum_timestamp_below_the_last_entry_is_refused() -> None:
    indexes = SegmentIndexes(0, interval_bytes=150)
    assert [indexes.add(100 * n, 100, offset, offset) for n, offset in enumerate((5, 6, 9))] == [None] * 3
    # lower than before, but between two index entries, so it is not noticed
    assert indexes.add(300, 100, 8, 20) is None
    refusal = indexes.finish()
    assert refusal is not None and refusal.kafka_exception == OUT_OF_ORDER


@pytest.mark.behaviour("I08")
@pytest.mark.parametrize("offset", [99, 100 + 2**31])
def test_offset_too_far_from_the_base_overflows_the_index(offset: int) -> None:
    indexes = SegmentIndexes(100, interval_bytes=0)
    assert indexes.add(0, 100, 100 + 2**31 - 1, 5) is None
    refusal = indexes.add(100, 100, offset, 6)
    assert refusal is not None and refusal.kafka_exception == OVERFLOW
    assert indexes.max_timestamp_ms == 5


@given(
    st.lists(
        st.tuples(st.integers(61, 3000), st.integers(1, 9), st.integers(-1, 10**6)), min_size=1, max_size=60
    ),
    st.sampled_from([0, 100, 4096]),
)
def test_any_built_index_passes_its_sanity_check(
    batches: list[tuple[int, int, int]], interval_bytes: int
) -> None:
    indexes = SegmentIndexes(10, interval_bytes)
    position, offset, seen = 0, 10, []
    for size_bytes, records, timestamp_ms in batches:
        offset += records
        assert indexes.add(position, size_bytes, offset - 1, timestamp_ms) is None
        seen.append((offset - 1, position, timestamp_ms))
        position += size_bytes
    assert indexes.finish() is None
    entries = list(OffsetIndex(indexes.offset_index.to_bytes(), 10))
    assert set(entries) <= {(last, start) for last, start, _ in seen}
    points = [0] + [entry.position for entry in entries]
    assert all(b - a > interval_bytes for a, b in itertools.pairwise(points))
    for timestamp_ms, at in TimeIndex(indexes.time_index.to_bytes(), 10):
        assert (at, timestamp_ms) in {(last, time) for last, _, time in seen}
    maximum = max(timestamp for _, _, timestamp in seen)
    assert indexes.time_index.last_entry.timestamp_ms == maximum
