"""Append batches with the real UnifiedLog."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fixtures import healthy
from kseg.change.append.partition_writer import RollRules
from kseg.segment.model import NewBatch, Record
from tests.kafka.oracle import Oracle

WEEK_MS = 604_800_000
ROLL_RULES = st.builds(
    RollRules,
    segment_bytes=st.integers(min_value=1000, max_value=4000),
    segment_index_bytes=st.sampled_from([36, 60, 1200]),
    index_interval_bytes=st.integers(min_value=0, max_value=1500),
    segment_ms=st.none() | st.integers(min_value=1, max_value=2 * WEEK_MS),
)


def batches_up_to(most: int, *, least_timestamp_ms: int) -> st.SearchStrategy[list[NewBatch]]:
    """Batches of one record, with offsets and leader epochs that may be skipped between them."""

    def made(rows: list[tuple[int, int, int, int]]) -> list[NewBatch]:
        batches, offset, epoch = [], 0, 0
        for skipped, value_bytes, time_ms, epochs in rows:
            offset, epoch = offset + skipped, epoch + epochs
            record = Record(offset, time_ms, b"k", b"v" * value_bytes)
            batches.append(NewBatch(records=(record,), leader_epoch=epoch))
            offset += 1
        return batches

    row = st.tuples(
        st.sampled_from([0, 0, 0, 1, 500, 2**31 - 2]),  # offsets skipped
        st.integers(min_value=0, max_value=900),  # value bytes
        st.integers(min_value=least_timestamp_ms, max_value=3 * WEEK_MS),
        st.integers(min_value=0, max_value=1),  # leader epochs skipped
    )
    return st.lists(row, min_size=1, max_size=most).map(made)


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
