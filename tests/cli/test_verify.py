"""`kseg verify` end to end: findings and summary on stdout, bytes accounted for, exit status. The input never changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd

Unchanged = Callable[..., AbstractContextManager[None]]
LOG = "00000000000000000000.log"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def partition(capture_small: Path, tmp_path: Path) -> Path:
    copied: Path = shutil.copytree(capture_small / "data" / "metro-zstd-0", tmp_path / "metro-zstd-0")
    return copied


def rows(capfd: Capfd) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


@pytest.mark.parametrize("level", [["--quick"], [], ["--deep"]])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_verify_of_undamaged_partitions_exits_with_0(
    capture_small: Path, unchanged: Unchanged, level: list[str], jobs: str, capfd: Capfd
) -> None:
    partitions = [capture_small / "data" / f"metro-{codec}-0" for codec in CODECS]
    with unchanged(*partitions):
        assert run(["verify", "--json", "--jobs", jobs, *level, *map(str, partitions)]) == 0
    *each, summary = rows(capfd)
    assert [row["path"] for row in each if row["type"] == "verified"] == list(map(str, partitions))
    assert summary["type"] == "summary" and summary["errors"] == 0 and summary["targets_done"] == 5
    assert summary["batches"] == 5 * 14 and summary["bytes_damaged"] == 0
    assert summary["bytes_total"] == summary["bytes_valid"] + summary["bytes_padding"]


@pytest.mark.parametrize("level", [["--quick"], [], ["--deep"]])
def test_verify_of_damage_exits_with_1_with_range_and_advice(
    partition: Path, unchanged: Unchanged, level: list[str], capfd: Capfd
) -> None:
    log = partition / LOG
    data = bytearray(log.read_bytes())
    # in the body of the second batch
    data[600] ^= 0x55
    log.write_bytes(data)

    with unchanged(partition):
        assert run(["verify", *level, str(partition)]) == 1
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert any(line.startswith(f"{log}: error: ") and "(bad-crc; bytes 477-" in line for line in lines)
    assert "1 error, " in lines[-2] and " damaged, " in lines[-2]
    assert lines[-1] == f"next: kseg recover {log.parent}"

    assert run(["verify", "--json", *level, str(partition)]) == 1
    *findings, verified, summary = rows(capfd)
    assert [finding["id"] for finding in findings if finding["severity"] == "error"] == ["bad-crc"]
    assert verified["bytes_damaged"] == summary["bytes_damaged"] > 0
    assert summary["bytes_total"] == (
        summary["bytes_valid"] + summary["bytes_damaged"] + summary["bytes_padding"]
    )


def test_verify_quiet_prints_nothing_for_an_undamaged_partition(partition: Path, capfd: Capfd) -> None:
    assert run(["verify", "--quiet", str(partition)]) == 0
    assert capfd.readouterr() == ("", "")


def test_now_option_sets_the_clock_of_verify(partition: Path, capfd: Capfd) -> None:
    run(["verify", "--json", "--now", "2020-01-01T00:00:00Z", str(partition)])
    assert "future-timestamp" in {row.get("id") for row in rows(capfd)}


def test_verify_accepts_a_single_file(partition: Path, capfd: Capfd) -> None:
    assert run(["verify", "--json", str(partition / LOG)]) == 0
    summary = rows(capfd)[-1]
    assert (summary["files"], summary["bytes_total"]) == (1, (partition / LOG).stat().st_size)


@pytest.mark.parametrize("command", ["verify", "list"])
def test_verify_reads_a_data_directory_that_contains_others(
    command: str, ancient_small: Path, unchanged: Unchanged, tmp_path: Path, capfd: Capfd
) -> None:
    shutil.copytree(ancient_small / "taps-0", tmp_path / "taps-0")
    shutil.copytree(ancient_small / "taps-0", tmp_path / "copy" / "taps-0")
    with unchanged(tmp_path):
        assert run([command, str(tmp_path)]) == 0
    assert capfd.readouterr().err == ""


def test_empty_partition_is_not_blamed_on_filters(tmp_path: Path, capfd: Capfd) -> None:
    (tmp_path / "orders-0").mkdir()
    assert run(["dump", str(tmp_path / "orders-0")]) == 2
    assert "no matching files" in capfd.readouterr().err
    assert run(["dump", "--partition", "7", str(tmp_path / "orders-0")]) == 2
    assert "--topic or --partition match nothing" in capfd.readouterr().err


def test_filter_that_matches_nothing_is_answered_with_the_topics(capture_small: Path, capfd: Capfd) -> None:
    """Those like the given one first: a partition's name is no topic's, and lower case counts."""
    for given in ("stations-0", "Stations"):
        assert run(["list", "--topic", given, str(capture_small / "data")]) == 2
        said = capfd.readouterr().err
        assert "match nothing; the topics there: stations, fares, gates-append" in said
        assert "and 6 more" in said
    assert run(["list", "--topic", "gates-*", "--partition", "9", str(capture_small / "data")]) == 2
    assert "match nothing; the partitions there: gates-append-0, gates-append-1\n" in capfd.readouterr().err


def test_name_that_is_not_utf_8_is_quoted_for_a_shell(
    partition: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = os.fsencode(partition) + b"/half\xff\nname.log"
    open(path, "wb").close()
    assert run(["verify", str(partition)]) == 0
    (line,) = (line for line in capfdbinary.readouterr().out.splitlines() if b"unknown-file" in line)
    shown = b"$'half\\xff\\x0aname.log' is not a Kafka file"
    assert line.isascii() and shown in line
    quoted = line[: line.index(b": warning")].decode()
    found = subprocess.run(["bash", "-c", f"ls -- {quoted}"], capture_output=True, check=True)
    assert b"half" in found.stdout
