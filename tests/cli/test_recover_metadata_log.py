"""The metadata log: a node recovers it at every start, even after a clean stop, and reads all of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of

LOG = f"{0:020}.log"
METADATA = "__cluster_metadata-0"
SNAPSHOT_END = 69
# base offsets of the batches with these records
TOPIC, PARTITION_CHANGES, LEADER_CHANGE = 71, 86, 100
Unchanged = Callable[..., AbstractContextManager[None]]


def batch_at(log: bytes, offset: int) -> int:
    """The position of the batch with this base offset, or of the first one after it."""
    position = 0
    while int.from_bytes(log[position : position + 8], "big") < offset:
        position += 12 + int.from_bytes(log[position + 8 : position + 12], "big")
    return position


def flip(data: Path, offset: int) -> int:
    """Damage the batch at an offset; returns its position."""
    path = data / "__cluster_metadata-0" / LOG
    log = bytearray(path.read_bytes())
    position = batch_at(bytes(log), offset)
    log[position + 70] ^= 1
    path.write_bytes(log)
    return position


def without(data: Path, offset: int) -> None:
    """Remove the batch at an offset."""
    path = data / METADATA / LOG
    log = path.read_bytes()
    position = batch_at(log, offset)
    end = position + 12 + int.from_bytes(log[position + 8 : position + 12], "big")
    path.write_bytes(log[:position] + log[end:])


def reported(capfd: Capfd, *words: object) -> tuple[int, dict[str, Any]]:
    """The exit status, and the result for the metadata log."""
    status = run([*map(str, words), "--json"])
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    (result,) = (
        row for row in rows if row["type"] == "result" and row.get("partition") == "__cluster_metadata-0"
    )
    return status, result


def test_metadata_log_is_recovered_even_after_a_clean_stop(data: Path, capfd: Capfd) -> None:
    """As `verify` predicts, and as a real node does (tests/kafka/test_metadata_log_repair.py)."""
    assert (data / ".kafka_cleanshutdown").exists()
    position = flip(data, 100)
    log = data / "__cluster_metadata-0" / LOG
    kept = log.read_bytes()[:position]
    _, result = reported(capfd, "recover", "--policy", "kafka", "--apply", data)
    assert log.read_bytes() == kept and result["log_end_offset"] < 140
    assert run(["verify", "--quiet", str(log.parent)]) == 0


@pytest.mark.parametrize("offset", [SNAPSHOT_END - 20, LEADER_CHANGE, PARTITION_CHANGES])
def test_metadata_gap_that_a_node_loads_is_repaired(data: Path, capfd: Capfd, offset: int) -> None:
    """A snapshot covers the gap, or no record refers to the lost one, so a real node starts (tests/kafka/test_metadata_log_repair.py)."""
    flip(data, offset)
    partition = data / METADATA
    status, result = reported(capfd, "recover", partition)
    assert (status, result["doubt"]) == (1, None)
    status, result = reported(capfd, "recover", "--apply", partition)
    assert (status, result["doubt"], result["log_end_offset"]) == (0, None, 140)
    status, result = reported(capfd, "recover", partition)
    assert (status, result["doubt"], result["steps"]) == (0, None, 0)
    # nothing is left to do
    assert run(["doctor", str(data)]) == 0


def test_metadata_gap_that_a_node_fails_on_is_not_repaired(
    data: Path, capfd: Capfd, unchanged: Unchanged
) -> None:
    flip(data, TOPIC)
    with unchanged(data / METADATA):
        for words in (["recover"], ["recover", "--apply"], ["recover"]):
            status, result = reported(capfd, *words, data / METADATA)
            assert status == 1 and result["steps"] == 0
            assert "the metadata log lacks offsets 71 to 78" in result["doubt"]


def test_metadata_gap_is_not_repaired_with_other_voters(
    data: Path, capfd: Capfd, unchanged: Unchanged
) -> None:
    """A node truncates a damaged log when it starts, and fetches the rest. What is missing in a log without damage it never fetches."""
    flip(data, LEADER_CHANGE)
    quorum_state = data / METADATA / "quorum-state"
    state = json.loads(quorum_state.read_text())
    state["currentVoters"].append({"voterId": 2})
    quorum_state.write_text(json.dumps(state))
    with unchanged(data / METADATA):
        status, result = reported(capfd, "recover", "--apply", data / METADATA)
    assert status == 1 and "lacks offset 100" in result["doubt"]


def test_metadata_record_that_refers_to_a_lost_one_prevents_the_start(data: Path, capfd: Capfd) -> None:
    without(data, TOPIC)
    rows = rows_of(capfd, "verify", data)
    (start,) = (row for row in rows if row["type"] == "broker-start")
    assert start["outcome"] == "does-not-start"
    assert start["message"].startswith(
        "Error loading metadata log record from offset 96: partition 0 of topic"
    )


def test_torn_end_of_a_metadata_log_is_repaired(data: Path, capfd: Capfd) -> None:
    log = data / "__cluster_metadata-0" / LOG
    log.write_bytes(log.read_bytes()[:-5])
    status, result = reported(capfd, "recover", "--apply", log.parent)
    assert (status, result["doubt"]) == (0, None)


@pytest.mark.parametrize(
    ("content", "exception"),
    [
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAACAAQ", "InconsistentTopicIdException"),
        ("version: 0", "NullPointerException"),
    ],
)
def test_metadata_log_gets_its_constant_topic_id(
    content: str, exception: str, data: Path, capfd: Capfd
) -> None:
    path = data / METADATA / "partition.metadata"
    whole = path.read_bytes()
    path.write_text(content)
    rows = rows_of(capfd, "verify", data, status=1)
    assert [row["id"] for row in rows if row.get("severity") == "error"] == ["partition-metadata-corrupt"]
    assert [row["exception"] for row in rows if row["type"] == "broker-start"] == [exception]
    status, result = reported(capfd, "recover", "--apply", data)
    assert (status, result["doubt"]) == (0, None) and path.read_bytes() == whole
