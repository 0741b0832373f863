"""The partition writer compared with the real log: UnifiedLog appends and kseg writes the same batches."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from fixtures import healthy
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch
from tests.kafka.appending import ROLL_RULES, batches_up_to, differing, kafka_appends
from tests.kafka.oracle import Oracle
from tests.support.trees import content_of

pytestmark = pytest.mark.kafka


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
    batches=batches_up_to(25, least_timestamp_ms=-1),
    rules=ROLL_RULES,
)
def test_any_sequence_of_batches_rolls_and_is_indexed_like_unified_log(
    oracle: Oracle,
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[NewBatch],
    rules: RollRules,
) -> None:
    if any(batch.records[0].timestamp_ms == -1 for batch in batches):
        # then the wall clock counts, which does not advance in the oracle
        rules = replace(rules, segment_ms=None)
    theirs, ours = written_by_both(oracle, tmp_path_factory.mktemp("both"), batches, rules)
    assert differing(theirs, ours) == []
