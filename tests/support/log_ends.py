"""Append records to a log of a stopped broker."""

from __future__ import annotations

from pathlib import Path

from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.internal_topics.coordinator_logs import batch


def append_records(directory: Path, *records: tuple[bytes | None, bytes | None]) -> None:
    """Append one batch. A broker that was stopped cleanly finds the new log end by itself."""
    with PartitionLog(PartitionTarget(str(directory))) as log:
        end, path = log.end_offset, Path(log.segments[-1].path)
    with path.open("ab") as file:
        file.write(batch(end, *records))
