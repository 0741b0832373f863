"""`kseg list` end to end: nothing on disk is left out, totals come first in the text, and JSON has the rows of the contract."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.cli.text.columns import TextColumn, aligned
from tests.internal_topics.metadata_logs import record, topic, topic_id, write_log
from tests.support.broker_dirs import broker_dir
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.copies import batches, write

Unchanged = Callable[..., AbstractContextManager[None]]


def test_every_file_of_a_data_directory_is_listed(
    capture_small: Path, unchanged: Unchanged, capfd: Capfd
) -> None:
    data = capture_small / "data"
    with unchanged(data):
        assert run(["list", "--json", str(data)]) == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    files = {row["file"]: row["size"] for row in rows if row["type"] == "file"}
    assert files == {str(path): path.stat().st_size for path in data.rglob("*") if path.is_file()}
    partitions = {row["partition"]: row for row in rows if row["type"] == "partition"}
    assert set(partitions) == {path.name for path in data.iterdir() if path.is_dir()}
    assert partitions["fares-0"]["log_end_offset"] == 117 and partitions["fares-0"]["segments"] == 2
    (log_dir,) = (row for row in rows if row["type"] == "log-dir")
    assert log_dir["clean_shutdown"] is True and log_dir["partitions"] == len(partitions)


def test_list_says_that_a_garbage_timestamp_is_not_a_date(
    capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    data = Path(shutil.copytree(capture_small / "data" / "fares-0", tmp_path / "data" / "fares-0")).parent
    times = max((data / "fares-0").glob("*.timeindex"))
    times.write_bytes(times.read_bytes()[:-12] + (2**62).to_bytes(8, "big") + times.read_bytes()[-4:])
    assert run(["list", str(data)]) == 0
    (row,) = (line for line in capfd.readouterr().out.splitlines() if line.startswith("fares "))
    assert row.endswith("  2025-06-15 15:06  not a date")
    assert run(["list", str(data / "fares-0")]) == 0
    assert f" to {2**62} (not a date), in the future, " in capfd.readouterr().out


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_list_verbose_prints_totals_above_the_files(capture_small: Path, jobs: str, capfd: Capfd) -> None:
    assert (
        run(["list", "--verbose", "--jobs", jobs, "--topic", "metro-[lz]*", str(capture_small / "data")]) == 0
    )
    lines = capfd.readouterr().out.splitlines()
    heads = [number for number, line in enumerate(lines) if not line.startswith(" ")]
    assert [lines[number].split()[0] for number in heads] == ["metro-lz4-0", "metro-zstd-0"]
    below = lines[heads[1] + 1 :]
    assert below[0].startswith(
        "  2 segments, 7,351 bytes of log, 160 records in 14 batches; 10 files of 7,548 bytes"
    )
    assert below[1] == "  offsets 0 to 160, last stable 160, high watermark 160, leader epoch 0"
    assert below[2] == "  2025-06-15T15:06:40.000Z to 2025-06-15T15:09:19.000Z, CreateTime, zstd, magic 2"
    assert len(below) == 3 + 10 and all("metro-zstd-0/" in line for line in below[3:])


def test_list_shows_offsets_but_no_times_of_a_0_7_partition(legacy_small: Path, capfd: Capfd) -> None:
    assert run(["list", "--verbose", str(legacy_small / "data" / "0.7" / "1-written" / "lamp.gzip-0")]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[2] == "  offsets 0 to 3327" and "segment of Kafka 0.7" in lines[3]


def test_list_names_unknown_files(tmp_path: Path, capfd: Capfd) -> None:
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / "00000000000000000000.log").touch()
    (partition / "notes\n.txt").write_text("x")
    assert run(["list", str(partition)]) == 0
    out = capfd.readouterr().out
    assert "unknown: notes\\n.txt" in out and "missing: " in out


def test_list_has_a_line_for_each_topic(capture_small: Path, capfd: Capfd) -> None:
    data = capture_small / "data"
    assert run(["list", str(data)]) == 0
    lines = capfd.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("TOPIC "))
    assert lines[0].startswith(f"data directory {data}: node id 1, ")
    topics = {path.name.rpartition("-")[0] for path in data.iterdir() if path.is_dir()}
    assert [line.split()[0] for line in lines[head + 1 :]] == sorted(topics)
    (gates,) = [line.split() for line in lines if line.startswith("gates-append ")]
    size_bytes = sum(path.stat().st_size for path in data.glob("gates-append-*/*.log"))
    assert gates[1:6] == ["2", "2", f"{size_bytes / 1024:.1f}", "KiB", "~60"]


def test_list_estimates_or_counts_records(capture_small: Path, capfd: Capfd) -> None:
    """Offsets of transaction markers and of compacted records do not count as records."""
    data = capture_small / "data"
    output = {}
    for words in (["--no-count"], ["--count"]):
        assert run(["list", "--partitions", *words, str(data)]) == 0
        output[words[0]] = {line.split()[0]: line.split() for line in capfd.readouterr().out.splitlines()}
    assert run(["list", "--json", str(data)]) == 0
    rows = map(json.loads, capfd.readouterr().out.splitlines())
    for row in (row for row in rows if row["type"] == "partition"):
        counted, estimated = output["--count"][row["partition"]], output["--no-count"][row["partition"]]
        assert counted[4] == str(row["records"]) and estimated[4] == f"~{row['records_estimated']}"
        assert row["records_estimated"] == row["log_end_offset"] - row["log_start_offset"]
        assert counted[5] == estimated[5] == f"{row['log_start_offset']}-{row['log_end_offset']}"
        # the last timestamp
        assert counted[-2:] == estimated[-2:]


def test_list_reads_only_the_ends_of_a_log_unless_it_counts(
    capture_small: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a whole log was read")

    monkeypatch.setattr("kseg.inspection.log_summary._add_segment", never)
    assert run(["list", "--jobs", "1", str(capture_small / "data")]) == 0
    assert run(["list", "--jobs", "1", "--json", "--no-count", str(capture_small / "data")]) == 0


@pytest.mark.parametrize(
    ("sort", "first"), [("name", "__cluster_metadata"), ("size", "metro-none"), ("records", "stations")]
)
def test_list_sorts_the_lines(capture_small: Path, capfd: Capfd, sort: str, first: str) -> None:
    assert run(["list", "--sort", sort, str(capture_small / "data")]) == 0
    lines = capfd.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("TOPIC "))
    assert lines[head + 1].split()[0] == first


@pytest.mark.parametrize(
    "words", [["--topic", "orders.*"], ["--partitions"], ["--count", "--topic", "orders.*"]]
)
def test_list_prints_partitions_given_alone_as_a_table(
    tmp_path: Path, words: list[str], capfd: Capfd
) -> None:
    data = broker_dir(tmp_path / "data", 1, 2, running=False)
    paths = [data] if "--topic" in words else sorted(data.glob("orders.*"))
    assert run(["list", "--jobs", "1", *words, *map(str, paths)]) == 0
    head, *lines = capfd.readouterr().out.splitlines()
    assert head.startswith("PARTITION " if words == ["--partitions"] else "TOPIC ")
    assert [line.split()[0] for line in lines] == (
        ["orders.00-0", "orders.00-1"] if words == ["--partitions"] else ["orders.00"]
    )


def test_list_does_not_count_preallocated_space_as_size(tmp_path: Path, capfd: Capfd) -> None:
    data = broker_dir(tmp_path / "data", 1, 2)
    log_bytes = sum(path.stat().st_size for path in (data / "orders.00-0").glob("*.log"))
    active = max((data / "orders.00-0").glob("*.log"))
    unwritten_bytes = (1 << 20) - active.stat().st_size
    with active.open("ab") as out:
        out.truncate(1 << 20)
    for words in ([], ["--count"]):
        assert run(["list", "--partitions", "--jobs", "1", *words, "--topic", "orders.00", str(data)]) == 0
        sizes = {line.split()[0]: line.split()[2] for line in capfd.readouterr().out.splitlines()}
        assert sizes["orders.00-0"] == sizes["orders.00-1"] == f"{log_bytes / 1024:.1f}"
    rows = rows_of(capfd, "list", data, status=0)
    found = {row["partition"]: row["preallocated_bytes"] for row in rows if row["type"] == "partition"}
    assert found == {"orders.00-0": unwritten_bytes, "orders.00-1": 0, "__cluster_metadata-0": 0}


def test_list_quotes_odd_topic_names_completely(tmp_path: Path, capfd: Capfd) -> None:
    write(tmp_path / "new\nline-0", batches(0, 10))
    assert run(["list", str(tmp_path)]) == 0
    (line,) = (line for line in capfd.readouterr().out.splitlines() if "line" in line)
    assert line.startswith("$'new\\x0aline' ")


def test_many_lost_indexes_are_summarized_in_one_line(tmp_path: Path, capfd: Capfd) -> None:
    data = broker_dir(tmp_path / "data", 2, 10)
    for index in data.glob("orders.*/*.index"):
        index.unlink()
    assert run(["list", str(data)]) == 0
    out = capfd.readouterr().out.splitlines()
    assert [line for line in out if ".index" in line] == [
        "20 partitions without an .index (--verbose shows all)"
    ]
    assert len(out) < 10
    assert run(["verify", str(data)]) == 0
    assert len(capfd.readouterr().out.splitlines()) < 15


def test_narrow_terminal_keeps_the_important_columns() -> None:
    names = ["a", "a.very.long.topic.name.that.fills.the.line"]
    columns = [
        TextColumn("topic", names),
        TextColumn("size", ["1", "2"], right=True),
        TextColumn("to", ["x" * 16] * 2, dropped=1),
    ]
    assert [*aligned(columns, None)][2] == f"{names[1]}     2  {'x' * 16}"
    assert next(iter(aligned(columns, 50))).split() == ["TOPIC", "SIZE"]
    assert all(len(line) <= 30 for line in aligned(columns, 30))


def test_suffixed_directories_are_named_by_their_topic_ids(tmp_path: Path, capfd: Capfd) -> None:
    """The topic in such a name may be truncated. For a deleted topic, the name is taken from the metadata log."""
    whole = "a" * 240
    write_log(
        tmp_path / "__cluster_metadata-0",
        topic(whole, topic_id(1)),
        [record("RemoveTopicRecord", topicId=topic_id(1))],
    )
    cut = tmp_path / f"{'a' * 213}-0.{'0a' * 16}-delete"
    cut.mkdir()
    (cut / f"{0:020}.log").write_bytes(b"")
    (cut / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(1)}")
    rows = rows_of(capfd, "list", tmp_path, status=0)
    reported = {row["directory"]: row["topic_name"] for row in rows if row["type"] == "partition"}
    assert reported == {str(tmp_path / "__cluster_metadata-0"): None, str(cut): whole}
    assert run(["list", str(tmp_path)]) == 0
    assert f"(topic {whole})" in capfd.readouterr().out
