"""`kseg lookup` end to end: the answer as text and as JSON, several partitions, exit statuses. The input never changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.segment.encoding.partitioner import partition_for_key
from tests.support.broker_dirs import broker_dir
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of

Unchanged = Callable[..., AbstractContextManager[None]]
FIELDS = [
    "type", "partition", "query", "found", "offset", "timestamp", "leader_epoch", "segment", "position",
    "batch_base_offset", "batch_last_offset", "bytes_read", "path", "record",
]  # fmt: skip


@pytest.fixture
def data(capture_small: Path, unchanged: Unchanged) -> Path:
    return capture_small / "data"


def answers(capfd: Capfd) -> list[dict[str, object]]:
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize(
    "question",
    [["--offset", "100"], ["--timestamp", "1750000099001"], ["--timestamp", "2025-06-15T15:08:19.500Z"]],
)
def test_lookup_json_has_the_fields_of_the_contract(
    data: Path, unchanged: Unchanged, codec: str, question: list[str], capfd: Capfd
) -> None:
    partition = data / f"metro-{codec}-0"
    with unchanged(partition):
        assert run(["lookup", "--json", *question, str(partition)]) == 0
    (answer,) = answers(capfd)
    assert list(answer)[: len(FIELDS)] == FIELDS
    assert (answer["found"], answer["offset"], answer["timestamp"]) == (True, 100, 1750000100000)
    assert isinstance(answer["record"], dict) and answer["record"]["key"] == "stop8"


def test_lookup_answers_for_all_partitions_of_a_topic(data: Path, capfd: Capfd) -> None:
    assert run(["lookup", "--json", "--latest", "--topic", "metro-*", "--jobs", "2", str(data)]) == 0
    found = [(answer["partition"], answer["offset"]) for answer in answers(capfd)]
    assert found == [(f"metro-{codec}-0", 160) for codec in ("gzip", "lz4", "none", "snappy", "zstd")]


def test_lookup_explain_says_where_and_how_it_was_found(data: Path, capfd: Capfd) -> None:
    assert run(["lookup", "--explain", "--offset", "100", str(data / "metro-zstd-0")]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert (
        lines[0]
        == "metro-zstd-0: offset 100, timestamp 2025-06-15T15:08:20.000Z (1750000100000), leader epoch 0"
    )
    assert lines[1].endswith("00000000000000000000.log at byte 4435, batch 96-107")
    assert any(line.strip().startswith("offset-index ") for line in lines)


def test_lookup_without_a_hit_exits_with_1(data: Path, capfd: Capfd) -> None:
    assert run(["lookup", "--timestamp", "2030-01-01", str(data / "metro-zstd-0")]) == 1
    assert "nothing found" in capfd.readouterr().out
    assert run(["lookup", "--key", "nobody", "--json", str(data / "metro-zstd-0")]) == 1
    assert [answer["found"] for answer in answers(capfd)] == [False]


def test_lookup_all_shows_every_version_of_a_key(data: Path, capfd: Capfd) -> None:
    assert (
        run(["lookup", "--key", "73746f7038", "--key-encoding", "hex", "--json", str(data / "metro-zstd-0")])
        == 0
    )
    (newest,) = answers(capfd)
    assert run(["lookup", "--key", "stop8", "--all", "--json", str(data / "metro-zstd-0")]) == 0
    history = [int(str(answer["offset"])) for answer in answers(capfd)]
    assert history == sorted(history) and history[-1] == newest["offset"] and len(history) > 1


def test_lookup_over_a_directory_prints_only_hits(data: Path, capfd: Capfd) -> None:
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


def test_lookup_answer_names_producer_and_headers(data: Path, capfd: Capfd) -> None:
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


class TestKeySearch:
    def ask(self, capfd: Capfd, *words: str | Path) -> tuple[int, str, str]:
        status = run(["lookup", "--key", "stop8", *map(str, words)])
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    @pytest.mark.parametrize(
        "words",
        [
            ["--from-offset", "3"],
            ["--to-time", "2025-06-15T15:08:19Z"],
            ["--partitioner", "murmur2", "--partition-count", "3"],
        ],
    )
    def test_lookup_key_filters_require_a_key(self, data: Path, words: list[str], capfd: Capfd) -> None:
        assert run(["lookup", "--latest", *words, str(data / "metro-none-0")]) == 2
        assert f"{words[0]} requires --key" in capfd.readouterr().err

    def test_lookup_ranges_equal_those_of_dump(self, data: Path, capfd: Capfd) -> None:
        bounds = ["--from-offset", "20", "--to-offset", "120", "--from-time", "1750000030000"]
        partition = data / "metro-lz4-0"
        _, out, _ = self.ask(capfd, "--json", "--all", *bounds, partition)
        found = [json.loads(line) for line in out.splitlines()]
        lines = rows_of(capfd, "dump", "--print-data-log", "--key", "stop8", *bounds, partition, status=0)
        dumped = [line["offset"] for line in lines if line["type"] == "record"]
        assert [answer["offset"] for answer in found if answer["type"] == "lookup"] == dumped != []
        assert found[0]["query"]["from_offset"] == 20
        assert found[0]["query"]["from_time"] == 1750000030000
        assert "to_time" not in found[0]["query"]

    def test_lookup_by_partitioner_requires_the_partition_count(
        self, data: Path, tmp_path: Path, capfd: Capfd
    ) -> None:
        alone = tmp_path / "metro-none-0"
        shutil.copytree(data / "metro-none-0", alone)
        status, _, err = self.ask(capfd, "--partitioner", "murmur2", alone)
        assert status == 2
        assert "how many partitions metro-none has" in err and "--partition-count" in err
        status, _, err = self.ask(capfd, "--partition-count", "3", alone)
        assert status == 2
        assert "--partition-count requires --partitioner" in err

    def test_lookup_by_partitioner_takes_the_count_from_the_metadata_log(
        self, tmp_path: Path, capfd: Capfd
    ) -> None:
        """Each partition of the topic has the same keys. One of five is selected, and the directory of the metadata log is not among
        them."""
        log_dir = broker_dir(tmp_path / "logs", 1, 5, running=False)
        key = "key-3"
        selected = partition_for_key(key.encode(), 5)
        words = ["lookup", "--key", key, "--topic", "orders.00", "--partitioner", "murmur2", str(log_dir)]
        status = run([*words, "--json"])
        rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert [row["partition"] for row in rows if row.get("searched") is not False] == [
            f"orders.00-{selected}"
        ]
        assert len(rows) == 5
        assert status == (0 if any(row["found"] for row in rows) else 1)
        run(words)
        assert "not searched: 4 partitions" in capfd.readouterr().out


def test_lookup_shortens_a_huge_record(tmp_path: Path, capfd: Capfd) -> None:
    """JSON and --verbose show the complete record."""
    huge = "x" * 100_000
    line = {"type": "record", "key": "k", "value": huge, "headers": [["h", huge]]}
    (tmp_path / "lines").write_text(json.dumps(line) + "\n", encoding="utf-8")
    log = tmp_path / "huge-0"
    run(["append", "--quiet", "--apply", "--from", str(tmp_path / "lines"), str(log)])
    capfd.readouterr()
    assert run(["lookup", "--key", "k", str(log)]) == 0
    reported = capfd.readouterr().out
    assert len(reported) < 2000 and "… (100,002 characters, --verbose shows all)" in reported
    for words in (["--verbose"], ["--json"]):
        assert run(["lookup", *words, "--key", "k", str(log)]) == 0
        assert capfd.readouterr().out.count(huge) == 2


def test_lookup_distinguishes_copies_of_a_partition(
    capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """A replica that is being moved to another data directory, or a stray one, used to look like the live one."""
    live, suffixed = (
        "metro-none-0",
        [f"metro-none-0.{'0' * 31}{n}-{state}" for n, state in enumerate(("future", "stray"))],
    )
    for name in (live, *suffixed):
        shutil.copytree(capture_small / "data" / live, tmp_path / "data" / name)
    assert run(["lookup", "--latest", str(tmp_path / "data")]) == 0
    heads = [line.split(":")[0] for line in capfd.readouterr().out.splitlines() if "offset 160" in line]
    assert heads == [live, *suffixed]
    assert run(["lookup", "--json", "--key", "nobody", str(tmp_path / "data")]) == 1
    rows = answers(capfd)
    assert [(row["partition"], row["directory"]) for row in rows] == [
        (live, str(tmp_path / "data" / name)) for name in (live, *suffixed)
    ]
    assert run(["lookup", "--key", "nobody", str(tmp_path / "data")]) == 1
    assert f"nothing found in 3 partitions: {', '.join((live, *suffixed))}" in capfd.readouterr().out
