"""Going on with a log that is there: what UnifiedLog leaves after each stop, and what kseg leaves."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures import healthy
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.targets import PartitionTarget
from kseg.segment.writing.batch_writer import encode_batch
from kseg.segment.writing.reopen import reopen_partition
from kseg.segment.writing.segment_writer import PartitionWriter, RollRules
from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka
WEEK_MS = 604_800_000


def content_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def kafka_appends(oracle: Oracle, directory: Path, batches: Sequence[bytes], rules: RollRules) -> None:
    """One life of the real log: load after a clean stop, append, close."""
    config: dict[str, Any] = {
        "internal.segment.bytes": rules.segment_bytes,
        "segment.index.bytes": rules.segment_index_bytes,
        "index.interval.bytes": rules.index_interval_bytes,
        "segment.ms": 2**63 - 1 if rules.segment_ms is None else rules.segment_ms,
        "max.message.bytes": 2**31 - 1,
    }
    steps = [
        {
            "what": "append",
            "batches": base64.b64encode(data).decode(),
            "follower": True,
            "leader_epoch": max(0, int.from_bytes(data[12:16], "big", signed=True)) if data[16] > 1 else 0,
        }
        for data in batches
    ]
    answer = oracle.partition(directory, steps, in_place=True, clean=True, now=healthy.T0, config=config)
    assert not [line for line in answer.found if "exception" in line]


def kseg_appends(directory: Path, batches: Sequence[bytes], rules: RollRules) -> None:
    """The same by kseg."""
    with PartitionLog(PartitionTarget(str(directory))) as log:
        partition = reopen_partition(log, rules, healthy.T0)
    existing = [path.name for path in directory.iterdir()]
    with PartitionWriter(directory, partition=partition, existing=existing) as writer:
        for data in batches:
            writer.append(data, healthy.T0)


def in_several_lives(
    oracle: Oracle, place: Path, lives: Sequence[Sequence[bytes]], rules: RollRules
) -> list[list[str]]:
    """The names of the files that differ after each life."""
    theirs, ours = place / "theirs" / "metro-0", place / "ours" / "metro-0"
    theirs.mkdir(parents=True)
    ours.mkdir(parents=True)
    differing = []
    for batches in lives:
        kafka_appends(oracle, theirs, batches, rules)
        kseg_appends(ours, batches, rules)
        left, right = content_of(theirs), content_of(ours)
        # a load drops the snapshots of former log ends, which kseg leaves to the next broker
        right = {name: data for name, data in right.items() if name in left or ".snapshot" not in name}
        differing.append([name for name in sorted(left | right) if left.get(name) != right.get(name)])
    return differing


def parts_of(encoded: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    return [encoded[start : start + size] for start in range(0, len(encoded), size)]


@pytest.mark.behaviour("P16")
@pytest.mark.parametrize(("interval", "size"), [(0, 9), (600, 5), (4096, 50)])
def test_a_partition_with_everything_in_several_lives(
    oracle: Oracle, tmp_path: Path, interval: int, size: int
) -> None:
    encoded = [encode_batch(new) for new in healthy.batches()]
    rules = RollRules(segment_bytes=5000, index_interval_bytes=interval)
    differing = in_several_lives(oracle, tmp_path, parts_of(encoded, size), rules)
    assert not any(differing), differing


def test_message_formats_0_1_and_2_in_several_lives(oracle: Oracle, tmp_path: Path) -> None:
    encoded = [encode_batch(new) for new in healthy.old_batches()]
    differing = in_several_lives(oracle, tmp_path, parts_of(encoded, 7), healthy.RULES)
    assert not any(differing), differing


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([0, 0, 0, 1, 500, 2**31 - 2]),  # offsets skipped
            st.integers(min_value=0, max_value=900),  # value bytes
            st.integers(min_value=0, max_value=3 * WEEK_MS),  # timestamp
            st.integers(min_value=0, max_value=1),  # leader epochs skipped
        ),
        min_size=1,
        max_size=20,
    ),
    size=st.integers(min_value=1, max_value=6),
    segment_bytes=st.integers(min_value=1000, max_value=4000),
    index_bytes=st.sampled_from([36, 60, 1200]),
    interval=st.integers(min_value=0, max_value=1500),
    segment_ms=st.none() | st.integers(min_value=1, max_value=2 * WEEK_MS),
)
def test_size_time_index_and_offset_overflow_roll_the_same_after_a_stop(
    oracle: Oracle,
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, int, int, int]],
    size: int,
    segment_bytes: int,
    index_bytes: int,
    interval: int,
    segment_ms: int | None,
) -> None:
    encoded, offset, epoch = [], 0, 0
    for skipped, value_bytes, time, epochs in rows:
        offset, epoch = offset + skipped, epoch + epochs
        record = Record(offset, time, b"k", b"v" * value_bytes)
        encoded.append(encode_batch(NewBatch(records=(record,), leader_epoch=epoch)))
        offset += 1
    rules = RollRules(
        segment_bytes=segment_bytes,
        segment_index_bytes=index_bytes,
        index_interval_bytes=interval,
        segment_ms=segment_ms,
    )
    place = tmp_path_factory.mktemp("lives")
    differing = in_several_lives(oracle, place, parts_of(encoded, size), rules)
    assert not any(differing), differing
