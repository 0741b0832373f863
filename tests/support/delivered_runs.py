"""Records that tasks have staged, their delivery to a log dir, and the contents of the log dir afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fixtures import healthy
from kseg.change.append.partition_writer import RollRules
from kseg.change.append.reopen import reopen_partition
from kseg.segment.model import Headers, Record
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from kseg.spark.source.write.commit import Delivered, Delivery, deliver
from kseg.spark.source.write.staged_runs import RunRules, RunWriter, StagedRun, staged_name

NOW_MS = healthy.T0
RUN_ID = "20260101T000000Z-00000001"
HEADERS: Headers = ((b"trace", b"\x00\x01"), (b"none", None))


def values(count: int, name: str) -> list[Record]:
    return [
        Record(0, NOW_MS + n, b"k%d" % (n % 3), b"%s-%d" % (name.encode(), n), HEADERS if n % 2 else ())
        for n in range(count)
    ]


def staged(
    log_dir: Path,
    records: Iterable[tuple[tuple[str, int], Record]],
    *,
    task: int = 0,
    has_offset: bool = False,
    **rules: Any,
) -> tuple[StagedRun, ...]:
    log_dir.mkdir(exist_ok=True)
    with RunWriter(str(log_dir), staged_name(RUN_ID, task), RunRules(**rules)) as writer:
        for partition, record in records:
            writer.add(partition, record, has_offset=has_offset)
        return writer.close()


def delivered(log_dir: Path, runs: Sequence[StagedRun], **more: Any) -> Delivered:
    return deliver(runs, Delivery(log_dir=str(log_dir), run_id=RUN_ID, now_ms=NOW_MS, **more))


def records_of(partition: Path) -> list[Record]:
    """All records, read from the files; fails on damage."""
    found = []
    for path in sorted(partition.glob("*.log")):
        data = path.read_bytes()
        decoder = Decoder(data, capacity=64)
        for block in Scanner(data).blocks():
            assert not isinstance(block, Damage), block
            for chunk in decoder.chunks(block, 0, block.count):
                found += [record_at(chunk, row) for row in range(chunk.records.count)]
    return found


def contents_of(partition: Path) -> list[bytes | None]:
    return [record.value for record in records_of(partition)]


def opens(partition: Path) -> int:
    """The log end of a partition that a broker would load unchanged."""
    target = PartitionTarget(str(partition), str(partition.parent))
    with PartitionLog(target) as log:
        return reopen_partition(log, RollRules(), NOW_MS).next_offset
