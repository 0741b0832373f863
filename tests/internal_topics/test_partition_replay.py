"""When the transactions of a partition began, from a log without an index."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.internal_topics.transactions.partition_replay import PartitionReplay
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.internal_topics.coordinator_logs import T0, data_batch, write_segment

COUNT = 3000


@pytest.mark.parametrize("is_backwards", [False, True])
def test_starts_of_many_transactions_without_an_index(tmp_path: Path, is_backwards: bool) -> None:
    """In offset order, as `kseg transactions` asks, each search continues after the last one."""
    directory = tmp_path / "orders-0"
    for base in (0, COUNT // 2):
        offsets = range(base, base + COUNT // 2)
        batches = (data_batch(offset, offset + 1, 0, at_ms=T0 + offset) for offset in offsets)
        write_segment(directory, *batches, base_offset=base)
    size_bytes = sum(path.stat().st_size for path in directory.iterdir())
    asked = range(COUNT)[:: -50 if is_backwards else 1]
    with PartitionLog(PartitionTarget(str(directory))) as log:
        replay = PartitionReplay(log)
        assert [replay.started_ms(offset) for offset in asked] == [T0 + offset for offset in asked]
        assert is_backwards or log.bytes_read < 20 * size_bytes
