"""Producers that a broker has expired (producer.id.expiration.ms): what it leaves of them in its snapshots, and what kseg makes of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.sidecar.snapshot import decode_snapshot
from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

NOW = 1_700_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
# A day is the default. One of these is idle for an hour, the others for two days, for eight, and for ever.
LAST_WRITTEN_MS = {5: NOW - HOUR_MS, 6: NOW - 2 * DAY_MS, 7: NOW - 8 * DAY_MS, 8: -1}


def sent(oracle: Oracle, producer_id: int, timestamp_ms: int, sequence: int = 0) -> dict[str, Any]:
    """The step that appends a batch of one record of an idempotent producer."""
    record = {"timestamp": timestamp_ms, "value": b"fare"}
    batch = {"base_offset": 0, "producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    return {"what": "append", "batches": oracle.make({**batch, "records": [record]})}


@pytest.mark.parametrize(
    ("expiration_ms", "kept"),
    [(HOUR_MS, set()), (HOUR_MS + 1, {5}), (None, {5}), (7 * DAY_MS, {5, 6}), (20 * DAY_MS, {5, 6, 7})],
)
def test_a_new_segment_of_retain_has_the_producers_that_a_broker_knows(
    oracle: Oracle, tmp_path: Path, expiration_ms: int | None, kept: set[int]
) -> None:
    partition = tmp_path / "fares-0"
    partition.mkdir()
    given: dict[str, Any] = {} if expiration_ms is None else {"producer_id_expiration_ms": expiration_ms}
    batches = [sent(oracle, *each) for each in LAST_WRITTEN_MS.items()]
    retention = [{"what": "expire_producers"}, {"what": "retain"}]
    config = {"retention.bytes": "0"}
    answer = oracle.partition(partition, [*batches, *retention], now=NOW, config=config, **given)
    assert answer.found[-1]["deleted"] == 1
    name = f"{len(LAST_WRITTEN_MS):020}.snapshot"
    theirs = (answer.directory / name).read_bytes()
    assert {entry.producer_id for entry in decode_snapshot(theirs)} == kept

    # the same partition as a crash before that retention leaves it, without a snapshot at its end
    oracle.partition(partition, batches, now=NOW, config=config, in_place=True, close="handlers")
    assert not (partition / name).exists()
    lines = ["cleanup.policy=delete", "retention.bytes=0"]
    lines += [] if expiration_ms is None else [f"producer.id.expiration.ms={expiration_ms}"]
    (tmp_path / "topic.properties").write_text("\n".join(lines))
    arguments = ["--config", str(tmp_path / "topic.properties"), "--now", str(NOW), "--apply"]
    assert run(["retain", *arguments, str(partition)]) == 0
    assert (partition / name).read_bytes() == theirs
