"""The partition writer compared with the real log: UnifiedLog appends and kseg writes the same batches."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures import healthy
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.kafka.appending import differing, kafka_appends
from tests.kafka.oracle import Oracle
from tests.support.trees import content_of

pytestmark = pytest.mark.kafka
WEEK_MS = 604_800_000


def written_by_both(
    oracle: Oracle, place: Path, batches: list[NewBatch], rules: RollRules
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """(Kafka's files, ours) for the same batches, without `partition.metadata`."""
    encoded = [encode_batch(new) for new in batches]
    theirs, ours = place / "theirs" / "metro-0", place / "ours" / "metro-0"
    theirs.mkdir(parents=True)
    ours.parent.mkdir()
    kafka_appends(oracle, theirs, encoded, rules)
    with PartitionWriter(ours, rules=rules) as writer:
        for data in encoded:
            writer.append(data)
    return content_of(theirs), content_of(ours)


@pytest.mark.behaviour("P16", "I21", "F53")
@pytest.mark.parametrize("interval", [0, 600, 4096])
def test_written_partition_with_every_kind_of_batch_equals_unified_log(
    oracle: Oracle, tmp_path: Path, interval: int
) -> None:
    rules = RollRules(segment_bytes=5000, index_interval_bytes=interval)
    theirs, ours = written_by_both(oracle, tmp_path, list(healthy.batches()), rules)
    assert len([name for name in theirs if name.endswith(".log")]) >= 3
    assert differing(theirs, ours) == []


def test_written_log_of_formats_0_1_and_2_equals_unified_log(oracle: Oracle, tmp_path: Path) -> None:
    theirs, ours = written_by_both(oracle, tmp_path, list(healthy.old_batches()), healthy.RULES)
    assert differing(theirs, ours) == []


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([0, 0, 0, 1, 500, 2**31 - 2]),  # offsets skipped
            st.integers(min_value=0, max_value=900),  # value bytes
            st.integers(min_value=-1, max_value=3 * WEEK_MS),  # timestamp
            st.integers(min_value=0, max_value=1),  # leader epochs skipped
        ),
        min_size=1,
        max_size=25,
    ),
    segment_bytes=st.integers(min_value=1000, max_value=4000),
    index_bytes=st.sampled_from([36, 60, 1200]),
    interval=st.integers(min_value=0, max_value=1500),
    segment_ms=st.none() | st.integers(min_value=1, max_value=2 * WEEK_MS),
)
def test_any_sequence_of_batches_rolls_and_is_indexed_like_unified_log(
    oracle: Oracle,
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, int, int, int]],
    segment_bytes: int,
    index_bytes: int,
    interval: int,
    segment_ms: int | None,
) -> None:
    batches, offset, epoch = [], 0, 0
    for skipped, size, time, epochs in rows:
        offset, epoch = offset + skipped, epoch + epochs
        batches.append(NewBatch(records=(Record(offset, time, b"k", b"v" * size),), leader_epoch=epoch))
        offset += 1
    if segment_ms is not None and -1 in (row[2] for row in rows):
        # then the wall clock counts, which does not advance in the oracle
        segment_ms = None
    rules = RollRules(
        segment_bytes=segment_bytes,
        segment_index_bytes=index_bytes,
        index_interval_bytes=interval,
        segment_ms=segment_ms,
    )
    theirs, ours = written_by_both(oracle, tmp_path_factory.mktemp("both"), batches, rules)
    assert differing(theirs, ours) == []
