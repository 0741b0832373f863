"""kseg reads from disk what a real consumer received from the broker, in both isolation levels: from a live copy (active indexes
preallocated) and after a clean shutdown. The real dump tool agrees on every file."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Consumed
from tests.kafka.dump_cases import compare, dumpable
from tests.kafka.oracle import Oracle
from tests.kafka.scenario import SINGLE_TOPICS, Written
from tests.support.forked_programs import run_kseg
from tests.support.trees import unchanged

pytestmark = pytest.mark.kafka


def kseg_records(directory: Path, *flags: str) -> list[dict[str, Any]]:
    """The record lines of `kseg dump --json` for the segments of a partition, in offset order."""
    logs = sorted(str(path) for path in directory.glob("*.log"))
    done = run_kseg("dump", "--json", "--print-data-log", *flags, *logs)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [line for line in lines if line["type"] == "record"]


def as_consumed(line: dict[str, Any]) -> Consumed:
    headers = tuple((name, _bytes(value)) for name, value in line["headers"])
    key = _decoded(line["key"], line["key_encoding"])
    value = _decoded(line["value"], line["value_encoding"])
    kind = {"CreateTime": 1, "LogAppendTime": 2}[line["timestamp_type"]]
    return Consumed(line["offset"], kind, line["timestamp"], key, value, headers)


def _decoded(shown: str | None, encoding: str | None) -> bytes | None:
    if shown is None:
        return None
    return b64decode(shown) if encoding == "base64" else shown.encode()


def _bytes(shown: str | dict[str, str] | None) -> bytes | None:
    if shown is None:
        return None
    return b64decode(shown["base64"]) if isinstance(shown, dict) else shown.encode()


@pytest.mark.parametrize("topic", SINGLE_TOPICS)
@pytest.mark.parametrize("state", ["live", "stopped"])
def test_dump_equals_what_consumers_received(everything: Written, topic: str, state: str) -> None:
    data: Path = getattr(everything, state)
    with unchanged(data / f"{topic}-0"):
        records = kseg_records(data / f"{topic}-0", "--no-control")
        committed = kseg_records(data / f"{topic}-0", "--isolation", "read_committed")

    assert records and everything.uncommitted[topic, 0]
    assert [as_consumed(line) for line in records] == everything.uncommitted[topic, 0]
    assert [as_consumed(line) for line in committed] == everything.committed[topic, 0]


@pytest.mark.parametrize("state", ["live", "stopped"])
@pytest.mark.behaviour("D05")
def test_dump_equals_the_real_tool_for_every_file(everything: Written, oracle: Oracle, state: str) -> None:
    data: Path = getattr(everything, state)
    files = dumpable(data)
    compared = sum(compare(oracle, path) for path in files)

    assert compared > 200
