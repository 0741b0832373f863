"""One partition that is larger than all others together: other tasks validate its parts in advance. Tasks are counted, and no cluster is
needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures import diseases
from kseg.change.append.partition_writer import PartitionWriter
from kseg.jobs import fanout as local
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.verify import verify
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import PartitionTarget
from kseg.spark import cluster_fanout, early_validation, scheduling, session
from kseg.spark.options import ClusterOptions
from tests.support.fake_spark import Pretended
from tests.support.recording_work import shown

OPTIONS = VerifyOptions(level="deep", now_ms=1)


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    pretended = Pretended()
    monkeypatch.setattr(cluster_fanout, "ready", lambda _cluster, _say: pretended)
    monkeypatch.setattr(scheduling, "PIECE_BYTES", 50_000)
    monkeypatch.setattr(early_validation, "MIN_PREVALIDATED_BYTES", 200_000)
    return pretended


@pytest.fixture
def skewed(tmp_path: Path) -> list[PartitionTarget]:
    """Ten partitions, the last of which is a hundred times as large as the others."""
    for number, count in enumerate([4] * 9 + [400]):
        with PartitionWriter(tmp_path / f"orders-{number}") as writer:
            for first in range(0, count * 5, 5):
                records = tuple(Record(n, 10 + n, b"k", os.urandom(500)) for n in range(first, first + 5))
                writer.append(NewBatch(records=records))
    return [PartitionTarget(str(tmp_path / f"orders-{number}")) for number in range(10)]


def described(targets: list[PartitionTarget]) -> scheduling.TaskRun[PartitionTarget, VerifyOptions]:
    return cluster_fanout.task_run(verify, targets, OPTIONS)


def test_parts_of_a_heavy_partition_are_prevalidated_evenly(
    skewed: list[PartitionTarget], context: Pretended
) -> None:
    units = scheduling.weigh(skewed)
    looks = early_validation.prevalidation_tasks(described(skewed), units, 2)
    loads = [sum(part.stop - part.start for _, part in look.parts) for look in looks]
    assert len(looks) >= 6 and max(loads) < sum(loads) / 4
    assert {number for look in looks for number, _ in look.parts} == {9}
    assert sum(loads) == next(Path(skewed[9].path).glob("*.log")).stat().st_size


def test_even_partitions_and_a_single_core_need_no_prevalidation(
    skewed: list[PartitionTarget], context: Pretended
) -> None:
    run = described(skewed)
    assert early_validation.prevalidation_tasks(run, scheduling.weigh(skewed[:9]), 2) == []
    assert early_validation.prevalidation_tasks(run, scheduling.weigh(skewed), 1) == []


@pytest.mark.parametrize("disease", [None, diseases.bad_crc, diseases.undecodable_batch, diseases.torn_tail])
def test_prevalidation_does_not_change_the_findings(
    skewed: list[PartitionTarget], context: Pretended, disease: object
) -> None:
    if callable(disease):
        disease(next(Path(skewed[9].path).glob("*.log")))
    alone = shown(local.run(verify, skewed, OPTIONS))
    assert shown(cluster_fanout.run(verify, skewed, OPTIONS, ClusterOptions())) == alone
    # the job that validates in advance
    assert context.tasks[0] >= 6


def test_failed_prevalidation_does_not_change_the_findings(
    skewed: list[PartitionTarget], context: Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: object) -> None:
        raise ValueError("nobody foresaw this")

    monkeypatch.setattr("kseg.recovery.verify.precheck.claim", fail)
    monkeypatch.setattr(session, "is_over", lambda _context: False)
    alone = shown(local.run(verify, skewed, OPTIONS))
    assert shown(cluster_fanout.run(verify, skewed, OPTIONS, ClusterOptions())) == alone
