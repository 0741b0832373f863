"""Generated data directories for the tests of `retain`, and the command as a function call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.compaction.retention.options import Limits, RetainOptions
from kseg.compaction.retention.run import RetainRun
from kseg.jobs.events import Failure, Row
from kseg.segment.findings import Finding
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.sidecar.checkpoint import (
    CheckpointEntry,
    decode_leader_epochs,
    decode_offset_checkpoint,
    encode_leader_epochs,
    encode_offset_checkpoint,
    offsets_by_partition,
)
from tests.support.one_target import retain

DAY_MS = 86_400_000
NOW = 1_700_000_000_000
RULES = RollRules(index_interval_bytes=100, segment_index_bytes=12_000)


@dataclass(frozen=True, slots=True)
class Part:
    """One segment: the number of records in each batch, and how long before NOW they were written (None: without timestamp)."""

    records: int
    age_ms: int | None = DAY_MS
    magic: int = 2
    epoch: int = 0


def lay(root: Path, parts: Sequence[Part], *, start: int = 0) -> Path:
    """Create a data directory as after a clean shutdown; returns the partition directory `orders-0`."""
    partition = root / "data" / "orders-0"
    partition.mkdir(parents=True)
    offset = start
    with PartitionWriter(partition, start_offset=start, rules=RULES) as writer:
        for number, part in enumerate(parts):
            if number:
                writer.roll(offset)
            for _ in range(part.records):
                time_ms = -1 if part.age_ms is None else NOW - part.age_ms
                record = Record(offset, time_ms, b"k", b"v" * 7)
                writer.append(NewBatch(records=(record,), magic=part.magic, leader_epoch=part.epoch))
                offset += 1
    (partition.parent / NAME_BY_ROLE[Role.CLEAN_SHUTDOWN]).touch()
    (partition.parent / "meta.properties").write_text(
        "version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"
    )
    return partition


def checkpoint(partition: Path, role: Role, offset: int) -> None:
    """Write the offset of `orders-0` to a checkpoint of its data directory that also has one of another partition."""
    entries = [CheckpointEntry("other", 1, 5), CheckpointEntry("orders", 0, offset)]
    (partition.parent / NAME_BY_ROLE[role]).write_bytes(encode_offset_checkpoint(entries))


def noted(partition: Path, role: Role) -> int | None:
    """The offset of `orders-0` in the checkpoint."""
    path = partition.parent / NAME_BY_ROLE[role]
    if not path.exists():
        return None
    return offsets_by_partition(decode_offset_checkpoint(path.read_bytes())).get(("orders", 0))


def give_epochs(partition: Path, *entries: tuple[int, int]) -> None:
    from kseg.segment.sidecar.leader_epochs import EpochEntry

    data = encode_leader_epochs([EpochEntry(*entry) for entry in entries])
    (partition / NAME_BY_ROLE[Role.LEADER_EPOCHS]).write_bytes(data)


def epochs(partition: Path) -> list[tuple[int, int]]:
    data = (partition / NAME_BY_ROLE[Role.LEADER_EPOCHS]).read_bytes()
    return [(entry.epoch, entry.start_offset) for entry in decode_leader_epochs(data)]


def bases(partition: Path) -> list[int]:
    """Base offsets of the live segments."""
    return sorted(int(path.stem) for path in partition.glob("*.log"))


def give_mtime(path: Path, age_ms: int) -> None:
    when_ns = (NOW - age_ms) * 1_000_000
    os.utime(path, ns=(when_ns, when_ns))


@dataclass(frozen=True, slots=True)
class RetainOutcome:
    """The output of one run. result: the row of the partition. dirs: the rows of data directories."""

    result: dict[str, Any]
    segments: list[dict[str, Any]]
    marks: list[dict[str, Any]]
    others: list[dict[str, Any]]
    findings: list[Finding]
    failures: list[Failure]

    @property
    def verdicts(self) -> list[tuple[int, str, str]]:
        return [(row["base_offset"], row["verdict"], row["rule"]) for row in self.segments]


_runs = iter(range(1 << 30))


def run(partition: Path, limits: Limits | None = None, **options: Any) -> RetainOutcome:
    """Run `retain` on one partition with its data directory."""
    asked = RetainOptions(limits=limits or Limits(), **{"now_ms": NOW, **options})
    if asked.apply:
        asked = replace(asked, run_id=f"20260101T000000Z-{next(_runs):08x}")
    target = PartitionTarget(str(partition), str(partition.parent))
    whole = RetainRun(asked)
    with whole.held([target]):
        events = list(whole.through(_guarded(target, asked)))
    rows = [dict(event.values) for event in events if isinstance(event, Row)]
    results = [row for row in rows if row["type"] == "result" and "partition" in row]
    return RetainOutcome(
        results[0] if results else {},
        [row for row in rows if row["type"] == "segment"],
        [row for row in rows if row["type"] == "mark"],
        [row for row in rows if row["type"] == "what_if" or "log_dir" in row],
        [event for event in events if isinstance(event, Finding)],
        [event for event in events if isinstance(event, Failure)],
    )


def _guarded(target: PartitionTarget, options: RetainOptions) -> Any:
    from kseg.jobs.guarded import guarded

    return guarded(retain, target, options)
