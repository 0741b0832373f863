"""Producers that a broker has expired (producer.id.expiration.ms): what remains of them in its snapshots, and what kseg does with that."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.sidecar.snapshot import decode_snapshot
from tests.kafka.oracle import Oracle
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

NOW = 1_700_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
KEEPING = {"retention.ms": "-1"}
# The default expiration is one day. The producers have been idle for an hour, two days, eight days, and forever.
LAST_WRITTEN_MS = {5: NOW - HOUR_MS, 6: NOW - 2 * DAY_MS, 7: NOW - 8 * DAY_MS, 8: -1}


def sent(oracle: Oracle, producer_id: int, timestamp_ms: int, sequence: int = 0) -> dict[str, Any]:
    """The step that appends a batch of one record by an idempotent producer."""
    record = {"timestamp": timestamp_ms, "value": b"fare"}
    batch = {"base_offset": 0, "producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    return {"what": "append", "batches": oracle.make({**batch, "records": [record]})}


@pytest.mark.parametrize(
    ("expiration_ms", "kept"),
    [(HOUR_MS, set()), (HOUR_MS + 1, {5}), (None, {5}), (7 * DAY_MS, {5, 6}), (20 * DAY_MS, {5, 6, 7})],
)
def test_retain_writes_the_snapshot_of_a_broker_without_expired_producers(
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

    # the same partition as a crash leaves it before that retention, without a snapshot
    oracle.partition(partition, batches, now=NOW, config=config, in_place=True, close="handlers")
    assert not (partition / name).exists()
    lines = ["cleanup.policy=delete", "retention.bytes=0"]
    lines += [] if expiration_ms is None else [f"producer.id.expiration.ms={expiration_ms}"]
    (tmp_path / "topic.properties").write_text("\n".join(lines))
    arguments = ["--config", str(tmp_path / "topic.properties"), "--now", str(NOW), "--apply"]
    assert run(["retain", *arguments, str(partition)]) == 0
    assert (partition / name).read_bytes() == theirs


@pytest.mark.parametrize("is_killed", [True, False])
def test_producers_that_the_next_load_drops_are_those_of_the_broker(
    oracle: Oracle, tmp_path: Path, capfd: pytest.CaptureFixture[str], is_killed: bool
) -> None:
    """Also after a kill: recovery takes a snapshot at the log end, which is loaded then."""
    partition = tmp_path / "fares-0"
    partition.mkdir()
    old_ms = NOW - 2 * DAY_MS
    late = [(6, old_ms, 1), (9, old_ms, 0), (5, NOW - HOUR_MS, 1)]
    steps = [sent(oracle, *each) for each in LAST_WRITTEN_MS.items()]
    steps += [{"what": "roll"}, *(sent(oracle, *each) for each in late)]
    more: dict[str, Any] = {"close": "handlers"} if is_killed else {}
    # a segment is not rolled because of its age
    config = {**KEEPING, "segment.ms": str(1000 * DAY_MS)}
    before = oracle.partition(partition, steps, now=NOW, in_place=True, config=config, **more)
    assert {each["producer_id"] for each in before.ended["producers"]} == {5, 6, 7, 8, 9}
    rows = rows_of(capfd, "transactions", "--now", NOW, partition, status=0)
    producers = {row["producer_id"]: row for row in rows if row["type"] == "producer"}
    after = oracle.partition(partition, [], now=NOW, in_place=True, config=config, clean=not is_killed)
    kept = {each["producer_id"] for each in after.ended["producers"]}
    assert {name for name, row in producers.items() if not row["expired"]} == kept == {5}


@pytest.mark.evidence("producer-snapshot")
def test_short_producer_expiration_is_no_snapshot_mismatch(
    oracle: Oracle, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The snapshot at the base of the second segment lacks a producer that was idle for ten minutes. With the default expiration that would
    be a mismatch."""
    partition = tmp_path / "data" / "fares-0"
    partition.mkdir(parents=True)
    now, idle_ms = time.time_ns() // 1_000_000, 10 * 60_000
    batches = [sent(oracle, 5, now - idle_ms), sent(oracle, 6, now)]
    steps = [*batches, {"what": "expire_producers"}, {"what": "roll"}, sent(oracle, 6, now, 1)]
    answer = oracle.partition(
        partition, steps, now=now, in_place=True, producer_id_expiration_ms=idle_ms, config=KEEPING
    )
    assert [
        entry.producer_id for entry in decode_snapshot((partition / f"{2:020}.snapshot").read_bytes())
    ] == [6]
    assert answer.ended["log_end_offset"] == 3
    assert found_by_verify(partition, idle_ms, capfd) == set()
    assert found_by_verify(partition, 2 * idle_ms, capfd) == {"snapshot-mismatch"}


@pytest.mark.evidence("producer-snapshot")
def test_marker_without_data_after_expiration_is_no_snapshot_mismatch(
    oracle: Oracle, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The broker knows the producer only from the second marker, without its last batch."""
    partition = tmp_path / "data" / "fares-0"
    partition.mkdir(parents=True)
    start, idle_ms = NOW - DAY_MS, 10 * 60_000
    producer = {"base_offset": 0, "producer_id": 5, "producer_epoch": 0, "transactional": True}

    def marked(timestamp_ms: int) -> dict[str, Any]:
        record = {"timestamp": timestamp_ms, "marker": "COMMIT", "coordinator_epoch": 0}
        marker = oracle.make({**producer, "control": True, "timestamp": timestamp_ms, "records": [record]})
        return {"what": "append", "batches": marker, "origin": "COORDINATOR"}

    data = {**producer, "base_sequence": 0, "records": [{"timestamp": start, "value": b"fare"}]}
    steps = [
        {"what": "append", "batches": oracle.make(data)},
        marked(start),
        *({"what": "now", "ms": start + idle_ms}, {"what": "expire_producers"}),
        *(marked(start + idle_ms), {"what": "roll"}),
    ]
    oracle.partition(
        partition, steps, now=start, in_place=True, producer_id_expiration_ms=idle_ms, config=KEEPING
    )
    (entry,) = decode_snapshot((partition / f"{3:020}.snapshot").read_bytes())
    assert (entry.producer_id, entry.last_offset, entry.timestamp_ms) == (5, -1, start + idle_ms)
    assert found_by_verify(partition, idle_ms, capfd) == set()
    assert found_by_verify(partition, 2 * idle_ms, capfd) == {"snapshot-mismatch"}


def found_by_verify(partition: Path, expiration_ms: int, capfd: pytest.CaptureFixture[str]) -> set[str]:
    """The errors and warnings of verify with this expiration in server.properties."""
    known = partition.parent.parent / "server.properties"
    known.write_text(
        f"log.dirs={partition.parent}\nprocess.roles=broker\nnode.id=1\nproducer.id.expiration.ms={expiration_ms}\n"
    )
    capfd.readouterr()
    run(["verify", "--json", "--server-properties", str(known), str(partition)])
    rows = map(json.loads, capfd.readouterr().out.splitlines())
    return {row["id"] for row in rows if row["type"] == "finding" and row["severity"] != "info"}
