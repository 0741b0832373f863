"""Append batches with the real UnifiedLog."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fixtures import healthy
from kseg.change.append.partition_writer import RollRules
from tests.kafka.oracle import Oracle


def kafka_appends(oracle: Oracle, directory: Path, batches: Sequence[bytes], rules: RollRules) -> None:
    """Load a partition after a clean stop, append the batches, and close it."""
    config: dict[str, Any] = {
        "internal.segment.bytes": rules.segment_bytes,
        "segment.index.bytes": rules.segment_index_bytes,
        "index.interval.bytes": rules.index_interval_bytes,
        "segment.ms": 2**63 - 1 if rules.segment_ms is None else rules.segment_ms,
        "max.message.bytes": 2**31 - 1,
    }
    steps = [
        {
            "what": "append",
            "batches": base64.b64encode(data).decode(),
            "follower": True,
            "leader_epoch": max(0, int.from_bytes(data[12:16], "big", signed=True)) if data[16] > 1 else 0,
        }
        for data in batches
    ]
    answer = oracle.partition(directory, steps, in_place=True, clean=True, now=healthy.T0, config=config)
    assert not [line for line in answer.found if "exception" in line]


def differing(theirs: dict[str, bytes], ours: dict[str, bytes]) -> list[str]:
    """The names of the files that differ between the two sides."""
    return [name for name in sorted(theirs | ours) if theirs.get(name) != ours.get(name)]
