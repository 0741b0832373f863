"""The row about retention: a plan for a partition of many segments, each evaluated by the last entry of its time index.

The segments are many and small, so the row measures listing, index entries and verdicts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from bench.contest import SECONDS, Row
from bench.tools import Tools
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.segment.model import NewBatch, Record

SEGMENTS = 10_000
RECORDS = 3
FIRST_MS = 1_700_000_000_000
STEP_MS = 1000


def retain_rows(tools: Tools) -> Iterator[Row]:
    """Half of the segments are deleted, the other half is kept."""
    directory = tools.corpus / "retained"
    end_ms = FIRST_MS + SEGMENTS * RECORDS * STEP_MS
    words = (
        "--cleanup-policy",
        "delete",
        "--now",
        str(end_ms),
        "--retention-ms",
        str(SEGMENTS * RECORDS * STEP_MS // 2),
    )
    yield Row(
        "retain-many",
        f"retain of {SEGMENTS:,} segments, planned; start-up taken off",
        tools.kseg_turn(
            "retain", "--json", *words, directory / "orders-0", statuses=(0, 1)
        ),  # exit status of a plan with changes
        judged_by=SECONDS,
        startup=tools.startup_turn(),
        at_least=1.0,
        aim=0.8,
        prepare=lambda: _make(directory),
    )


def _make(directory: Path) -> None:
    """Create the partition unless it exists."""
    done = directory / "made"
    if done.exists():
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    offset = 0
    with PartitionWriter(directory / "orders-0", rules=RollRules(index_interval_bytes=100)) as writer:
        for number in range(SEGMENTS):
            if number:
                writer.roll(offset)
            for _ in range(RECORDS):
                record = Record(offset, FIRST_MS + offset * STEP_MS, b"key", b"v" * 50)
                writer.append(NewBatch(records=(record,), leader_epoch=0))
                offset += 1
    done.touch()
