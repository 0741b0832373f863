"""What read_committed hides, determined from the headers of a log and the snapshot at its start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kseg.change.append.partition_writer import PartitionWriter
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.committed import transactions_around
from kseg.segment.partition.derived_state import last_stable_offset
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.support.raw_batches import T0


def _batch(offset: int) -> NewBatch:
    return NewBatch(records=(Record(offset, T0, b"k", b"v"),), leader_epoch=0)


@pytest.mark.parametrize("is_decided", [False, True])
def test_read_committed_hides_a_transaction_begun_in_a_deleted_segment(
    is_decided: bool, tmp_path: Path
) -> None:
    """Observed with 3.9.1: after retention has deleted the records of a hanging transaction, a read_committed consumer receives nothing."""
    directory = tmp_path / "fares-0"
    with PartitionWriter(directory) as writer:
        begun = replace(_batch(0), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        writer.append(begun)
        writer.roll(1)
        writer.append(_batch(1))
        if is_decided:
            writer.append(end_transaction_batch(EndTransactionMarker(False, 0, T0), 2, 7, 0, 0))
    for path in directory.glob(f"{0:020d}.*"):
        path.unlink()
    aborted, first_open = transactions_around(str(directory / f"{1:020d}.log"))
    assert (aborted, first_open) == ([], None if is_decided else 0)
    with PartitionLog(PartitionTarget(str(directory))) as log:
        assert last_stable_offset(log) == (3 if is_decided else 1)
