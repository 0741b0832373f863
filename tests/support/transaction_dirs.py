"""Handmade directories of producers and of the coordinators' log, and rows of `kseg transactions`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.internal_topics.coordinator_logs import T0, batch, key, value, write_segment

STATE = "__transaction_state"
LATER = T0 + 3_600_000
PID = 7
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
AS_OF = ("--now", str(LATER))
COMMAND = (
    "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic orders --partition 0 --start-offset 5"
)


def transaction(name: str, **values: Any) -> tuple[bytes, bytes]:
    version = values.pop("version", 1)
    listed = values.pop("partitions", ())
    made = {
        "producerId": PID,
        "producerEpoch": 0,
        "transactionTimeoutMs": 60_000,
        "transactionStatus": ONGOING,
        "transactionLastUpdateTimestampMs": T0,
        "transactionStartTimestampMs": T0,
        "transactionPartitions": [{"topic": topic, "partitionIds": [number]} for topic, number in listed],
        **values,
    }
    return key(STATE, 0, transactionalId=name), value(STATE, 0, version, **made)


def write_state(data: Path, *records: tuple[bytes | None, bytes | None], number: int = 0) -> None:
    batches = [batch(at, record) for at, record in enumerate(records)]
    write_segment(data / f"{STATE}-{number}", *batches)


def transaction_rows(
    capfd: pytest.CaptureFixture[str], *words: str, status: int | None = 0
) -> dict[str, list[dict[str, Any]]]:
    capfd.readouterr()
    ended = run(["transactions", "--json", *words])
    shown = capfd.readouterr()
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert status is None or ended == status, (ended, shown.err, shown.out)
    found: dict[str, list[dict[str, Any]]] = {"stderr": [{"text": shown.err}]}
    for row in rows:
        found.setdefault(row["type"], []).append(row)
    return found


def write_orders(data: Path, *batches: bytes, number: int = 0) -> Path:
    return write_segment(data / f"orders-{number}", *batches)
