"""`kseg lookup` end to end: the answer in words and as JSON, several partitions, statuses. Nothing of the input changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kseg.cli.main import run

Unchanged = Callable[..., AbstractContextManager[None]]
FIELDS = [
    "type", "partition", "query", "found", "offset", "timestamp", "leader_epoch", "segment", "position",
    "batch_base_offset", "batch_last_offset", "bytes_read", "path", "record",
]  # fmt: skip


@pytest.fixture
def data(capture_small: Path, unchanged: Unchanged) -> Path:
    return capture_small / "data"


def answers(capfd: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize(
    "question",
    [["--offset", "100"], ["--timestamp", "1750000099001"], ["--timestamp", "2025-06-15T15:08:19.500Z"]],
)
def test_the_answer_has_the_fields_of_the_contract(
    data: Path, unchanged: Unchanged, codec: str, question: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    partition = data / f"metro-{codec}-0"
    with unchanged(partition):
        assert run(["lookup", "--json", *question, str(partition)]) == 0
    (answer,) = answers(capfd)
    assert list(answer)[: len(FIELDS)] == FIELDS
    assert (answer["found"], answer["offset"], answer["timestamp"]) == (True, 100, 1750000100000)
    assert isinstance(answer["record"], dict) and answer["record"]["key"] == "stop8"


def test_a_topic_of_several_partitions_is_asked_at_once(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["lookup", "--json", "--latest", "--topic", "metro-*", "--jobs", "2", str(data)]) == 0
    found = [(answer["partition"], answer["offset"]) for answer in answers(capfd)]
    assert found == [(f"metro-{codec}-0", 160) for codec in ("gzip", "lz4", "none", "snappy", "zstd")]


def test_words_say_where_and_how(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["lookup", "--explain", "--offset", "100", str(data / "metro-zstd-0")]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert (
        lines[0]
        == "metro-zstd-0: offset 100, timestamp 2025-06-15T15:08:20.000Z (1750000100000), leader epoch 0"
    )
    assert lines[1].endswith("00000000000000000000.log at byte 4435, batch 96-107")
    assert any(line.strip().startswith("offset-index ") for line in lines)


def test_nothing_found_is_status_1(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["lookup", "--timestamp", "2030-01-01", str(data / "metro-zstd-0")]) == 1
    assert "nothing found" in capfd.readouterr().out
    assert run(["lookup", "--key", "nobody", "--json", str(data / "metro-zstd-0")]) == 1
    assert [answer["found"] for answer in answers(capfd)] == [False]


def test_every_version_of_a_key(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["lookup", "--key", "73746f7038", "--key-encoding", "hex", "--json", str(data / "metro-zstd-0")])
        == 0
    )
    (newest,) = answers(capfd)
    assert run(["lookup", "--key", "stop8", "--all", "--json", str(data / "metro-zstd-0")]) == 0
    history = [int(str(answer["offset"])) for answer in answers(capfd)]
    assert history == sorted(history) and history[-1] == newest["offset"] and len(history) > 1


def test_over_a_directory_only_hits_are_told(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["lookup", "--key", "stop8", str(data)]) == 0
    lines = capfd.readouterr().out.splitlines()
    hits = [line for line in lines if line.startswith("metro-")]
    assert [line.split(":")[0] for line in hits] == [
        f"metro-{codec}-0" for codec in ("gzip", "lz4", "none", "snappy", "zstd")
    ]
    assert lines[-2] == (
        "nothing found in 7 partitions: __cluster_metadata-0, __consumer_offsets-0, __transaction_state-0, "
        "fares-0, gates-append-0 and 2 more"
    )
    assert lines[-1].startswith("5 answers; ") and len(lines) <= 6 * len(hits) + 10
    assert run(["lookup", "--key", "nobody", str(data)]) == 1
    assert len(capfd.readouterr().out.splitlines()) == 2


def test_an_answer_names_the_producer_and_the_headers(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["lookup", "--offset", "0", str(data / "fares-0")]) == 0
    assert "producer " in capfd.readouterr().out.splitlines()[0]
    assert run(["lookup", "--json", "--offset", "0", str(data / "fares-0")]) == 0
    row = json.loads(capfd.readouterr().out)
    assert row["producer_id"] >= 0 and row["producer_epoch"] == 0
    assert run(["lookup", "--offset", "0", str(data / "metro-none-0")]) == 0
    record = capfd.readouterr().out.splitlines()[2]
    assert ' header "seen"=' in record and ' header "none"=null' in record
    assert run(["lookup", "--json", "--offset", "0", str(data / "metro-none-0")]) == 0
    assert json.loads(capfd.readouterr().out)["producer_id"] is None
