"""`kseg list` end to end: nothing on disk is left out, sums come first on paper, JSON has the contract's rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kseg.cli.main import run

Unchanged = Callable[..., AbstractContextManager[None]]


def test_every_file_of_a_data_directory_is_listed(
    capture_small: Path, unchanged: Unchanged, capfd: pytest.CaptureFixture[str]
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


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_on_paper_the_sum_stands_above_its_files(
    capture_small: Path, jobs: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["list", "--jobs", jobs, "--topic", "metro-[lz]*", str(capture_small / "data")]) == 0
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


def test_a_0_7_partition_has_offsets_and_no_times(
    legacy_small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["list", str(legacy_small / "data" / "0.7" / "1-written" / "lamp.gzip-0")]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[2] == "  offsets 0 to 3327" and "segment of Kafka 0.7" in lines[3]


def test_what_is_foreign_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / "00000000000000000000.log").touch()
    (partition / "notes\n.txt").write_text("x")
    assert run(["list", str(partition)]) == 0
    out = capfd.readouterr().out
    assert "unknown: notes\\n.txt" in out and "missing: " in out
