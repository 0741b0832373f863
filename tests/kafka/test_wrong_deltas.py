"""Batches of a client that numbers their records wrongly, as the real log appends them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from kseg.change.append.partition_writer import PartitionWriter
from tests.kafka.oracle import Oracle
from tests.support.raw_batches import T0
from tests.support.wrong_deltas import WRONG_DELTAS, batches_of

pytestmark = pytest.mark.kafka


@pytest.mark.evidence("header-contradicts")
def test_real_log_appends_batches_with_wrong_offset_deltas(oracle: Oracle, tmp_path: Path) -> None:
    """It stores them as `tests/recovery/verify/test_unread_records.py` writes them."""
    directory = tmp_path / "metro-0"
    PartitionWriter(directory).close()
    kinds = (None, *WRONG_DELTAS, None)
    sent = batches_of(kinds, as_sent=True)
    steps = [{"what": "append", "batches": base64.b64encode(data).decode()} for data in sent]
    answer = oracle.partition(directory, steps, in_place=True, clean=True, now=T0 + 1000)
    assert not [line for line in answer.found if "exception" in line]
    assert (directory / f"{0:020}.log").read_bytes() == b"".join(batches_of(kinds))
