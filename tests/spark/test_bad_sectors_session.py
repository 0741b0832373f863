"""A real Spark session on a disk with bad sectors: the rows before and after them arrive, and the loss is reported.

Needs root, for ext4 on a loop device (`tests.support.bad_sectors`). `test_unreadable` runs the tasks in the test's own process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kseg.change.append.partition_writer import PartitionWriter
from kseg.segment.model import NewBatch, Record
from kseg.spark.source import register
from tests.support.bad_sectors import DyingDisk, dying_disk

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCH, BATCHES = 10, 120
LOG = f"{0:020}.log"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DyingDisk]:
    """Two partitions of 120 batches of 5 KiB each."""
    with dying_disk(tmp_path) as disk:
        (disk.root / "data").mkdir()
        for name in ("orders-0", "sound-0"):
            with PartitionWriter(disk.root / "data" / name) as writer:
                for first in range(0, BATCH * BATCHES, BATCH):
                    numbers = range(first, first + BATCH)
                    writer.append(
                        NewBatch(records=tuple(Record(n, 1000 + n, b"k", bytes(500)) for n in numbers))
                    )
        yield disk


@pytest.mark.evidence("unreadable-bytes")
@pytest.mark.parametrize("blocks", [[0], [60], [3, 70, 71, 140]], ids=["first", "inside", "several"])
def test_rows_before_and_after_a_bad_sector_arrive(
    local_spark: Any, disk: DyingDisk, blocks: list[int]
) -> None:
    data = disk.root / "data"
    size = (data / "orders-0" / LOG).stat().st_size
    assert size > (max(blocks) + 1) * 4096
    register(local_spark)
    disk.spoil({f"data/orders-0/{LOG}": blocks})

    def source(**options: str) -> Any:
        reader = local_spark.read.format("kafka-log")
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load(str(data))

    with pytest.raises(Exception, match=r"Input/output error|cannot be read"):
        source().collect()
    rows = source(failOnDataLoss="false").select("topic", "offset").collect()
    sound = sorted(row.offset for row in rows if row.topic == "sound")
    left = sorted(row.offset for row in rows if row.topic == "orders")
    assert sound == [*range(BATCH * BATCHES)]
    lost = sorted(set(range(BATCH * BATCHES)) - set(left))
    assert 0 < len(lost) <= 2 * BATCH * len(blocks)
    assert len(left) == len(set(left)) and left[-1] == BATCH * BATCHES - 1
    findings = source(table="findings").collect()
    unreadable = [row for row in findings if row.id == "unreadable"]
    assert sum(row.length for row in unreadable) == 4096 * len(blocks)
    assert {Path(row.path).parent.name for row in unreadable} == {"orders-0"}
