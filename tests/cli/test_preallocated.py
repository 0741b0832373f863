"""Zeros after the last batch of an active segment of full size are preallocated space: every command reports them as an info. Zeros in any
other segment, in one of an unusual size, or despite a clean-shutdown marker come from an interrupted write, and are an error."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures.healthy import partition
from kseg.cli.main import run
from tests.internal_topics import metadata_logs as metadata
from tests.recovery.verify.test_quick_check import ordinary
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of

ACTIVE, BEFORE = f"{297:020d}.log", f"{198:020d}.log"
MIB = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return partition(tmp_path / "data" / "orders-0")


def _findings(command: str, path: Path, capfd: Capfd) -> tuple[int, dict[str, str]]:
    status = run([*command.split(), "--json", str(path)])
    rows: list[dict[str, Any]] = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return status, {row["id"]: row["severity"] for row in rows if row["type"] == "finding"}


@pytest.mark.evidence("zero-tail")
@pytest.mark.parametrize(
    "command",
    [
        "verify",
        "verify --quick",
        "verify --deep",
        "dump",
        "dump --print-data-log",
        "list --count",
        "lookup --latest",
        "lookup --key key-5",
        "read --offset 325 --max-bytes 4KiB",
    ],
)
@pytest.mark.parametrize("size_bytes", [20_000, 1 << 15, MIB, 100 * MIB, 1 << 30, 500_000_000, 2**31 - 1])
def test_preallocated_tail_is_an_info(log: Path, capfd: Capfd, command: str, size_bytes: int) -> None:
    os.truncate(log / ACTIVE, size_bytes)
    status, found = _findings(command, log, capfd)
    assert status == 0
    assert found.get("segment-preallocated", "info") == "info" and "zero-tail" not in found
    if "read" not in command and "key" not in command:
        assert "segment-preallocated" in found


@pytest.mark.evidence("zero-tail")
@pytest.mark.parametrize("command", ["verify", "verify --quick", "dump", "list --count", "lookup --latest"])
@pytest.mark.parametrize("case", ["not the last", "odd length", "whole pages", "clean marker"])
def test_zero_tail_of_an_interrupted_write_is_an_error(
    log: Path, capfd: Capfd, command: str, case: str
) -> None:
    if case == "not the last":
        os.truncate(log / BEFORE, MIB)
        command = command.replace("lookup --latest", "lookup --key nobody")
    elif case == "odd length":
        os.truncate(log / ACTIVE, MIB + 4097)
    elif case == "whole pages":
        os.truncate(log / ACTIVE, 5 << 14)
    else:
        os.truncate(log / ACTIVE, MIB)
        (log.parent / ".kafka_cleanshutdown").write_text("")
    status, found = _findings(command, log, capfd)
    assert status == 1 and found["zero-tail"] == "error" and "segment-preallocated" not in found


def test_checkpoint_beyond_the_zeros_is_still_an_error(log: Path, capfd: Capfd) -> None:
    """The zeros have replaced records."""
    os.truncate(log / ACTIVE, MIB)
    (log.parent / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 400\n")
    assert run(["verify", str(log.parent)]) == 1
    assert "checkpoint-beyond-log" in capfd.readouterr().out


def test_recover_truncates_preallocated_zeros_and_undo_restores_them(log: Path, capfd: Capfd) -> None:
    size_bytes = (log / ACTIVE).stat().st_size
    os.truncate(log / ACTIVE, 1 << 30)
    assert run(["recover", str(log)]) == 1
    plan = capfd.readouterr().out
    assert "the preallocated rest is cut off" in plan and "removes" not in plan and "disk space" not in plan
    assert run(["recover", "--apply", str(log)]) == 0
    assert (log / ACTIVE).stat().st_size == size_bytes
    assert run(["undo", str(log)]) == 0
    status = (log / ACTIVE).stat()
    assert status.st_size == 1 << 30 and status.st_blocks * 512 < MIB


def test_retention_by_size_does_not_count_preallocated_zeros(log: Path, capfd: Capfd) -> None:
    command = ["retain", "--json", "--cleanup-policy", "delete", "--retention-bytes"]
    written = sum(path.stat().st_size for path in log.glob("*.log"))
    os.truncate(log / ACTIVE, 1 << 30)
    for limit_bytes, deleted in ((written, []), (written - 4962, [0])):
        rows = rows_of(capfd, *command, limit_bytes, log)
        (result,) = (row for row in rows if row["type"] == "result")
        assert result["deleted"] == deleted


def _preallocate(partition: Path, size_bytes: int) -> Path:
    """Preallocate the active log as under a running broker with preallocate=true."""
    active = max(partition.glob("*.log"))
    os.truncate(active, size_bytes)
    for suffix, index_bytes in ((".index", 10 << 20), (".timeindex", 10485756)):
        os.truncate(active.with_suffix(suffix), index_bytes)
    return active


def _contents(directory: Path) -> dict[str, bytes]:
    """The content of the live files."""
    live = (path for path in directory.iterdir() if path.suffix != ".deleted" and path.is_file())
    return {path.name: path.read_bytes() for path in live}


@pytest.mark.parametrize("stays", [False, True])
def test_compaction_of_a_preallocated_active_segment_equals_the_trimmed_one(
    tmp_path: Path, stays: bool, capfd: Capfd
) -> None:
    """stays: a transaction is open in the active segment, so the segment is rolled and not rewritten."""
    words = ["compact", "--include-active", "--cleanup-policy", "compact", "--now", "1800000000000", "--json"]
    for name in ("data", "trimmed"):
        (tmp_path / name).mkdir()
    log = (partition if stays else ordinary)(tmp_path / "data" / "orders-0")
    trimmed = Path(shutil.copytree(log, tmp_path / "trimmed" / log.name))
    active = _preallocate(log, 1 << 20)
    inode = active.stat().st_ino
    results = []
    for directory in (trimmed, log):
        assert run([*words, str(directory)]) == 1
        out = tmp_path / "out" / directory.parent.name
        assert run([*words, "--output", str(out), str(directory)]) == 0
        rows = rows_of(capfd, *words, "--apply", directory, status=0)
        (result,) = (row for row in rows if row["type"] == "result")
        counts = ("bytes_before", "bytes_after", "records_before", "records_after", "segments_after")
        results.append([result[name] for name in counts])
    assert results[0] == results[1]
    assert _contents(log) == _contents(trimmed)
    assert _contents(tmp_path / "out/data/orders-0") == _contents(tmp_path / "out/trimmed/orders-0")
    assert (active.exists() and active.stat().st_ino == inode) == stays
    assert run(["verify", str(log)]) == 0
    assert run(["undo", str(log)]) == 0
    assert active.stat().st_size == 1 << 20


def test_preallocated_indexes_of_a_metadata_log_need_no_repair(
    capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """A node recovers the metadata log at every start, and 4.4.0 stops without trimming its indexes. Those of other partitions are
    trimmed."""
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "node" / "data"))
    for name, status in (("__cluster_metadata-0", 0), ("metro-none-0", 1)):
        for suffix in (".index", ".timeindex"):
            index = max((data / name).glob(f"*{suffix}"))
            os.truncate(index, 10 * MIB - (4 if suffix == ".timeindex" else 0))
        assert run(["recover", str(data)]) == status
        assert name in capfd.readouterr().out or not status


@pytest.mark.parametrize("padding", [0, 30])
def test_roll_of_a_preallocated_segment_completes_the_time_index(
    log: Path, padding: int, capfd: Capfd
) -> None:
    """The active segment stays, because a transaction is open in it. The index of a killed broker lacks the greatest timestamp, which
    determines the age of a segment that is no longer recovered."""
    index = (log / ACTIVE).with_suffix(".timeindex")
    complete = index.read_bytes()
    index.write_bytes(complete[:-12] + bytes(12 * padding))
    words = ["compact", "--include-active", "--cleanup-policy", "compact", "--now", "1800000000000"]
    assert run([*words, "--apply", str(log)]) == 0
    assert index.read_bytes() == complete
    capfd.readouterr()
    _, found = _findings("verify", log, capfd)
    assert "time-index-incomplete" not in found
    assert run(["undo", str(log)]) == 0
    assert index.read_bytes() == complete[:-12] + bytes(12 * padding)


def test_record_is_appended_to_a_metadata_log_with_preallocated_indexes(tmp_path: Path) -> None:
    """A node recovers its metadata log at every start. `recover` has nothing to repair there, and `append` refused it."""
    directory = tmp_path / "data" / "__cluster_metadata-0"
    metadata.write_log(directory, metadata.topic("fares", metadata.topic_id(5), 1))
    (directory / f"{0:020}.index").write_bytes(bytes(8 * 100))
    (directory / f"{0:020}.timeindex").write_bytes(bytes(12 * 100))
    before = {file.name: file.read_bytes() for file in directory.iterdir()}
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"value": "more"}\n')
    no_roll = ["--segment-ms", str(1 << 62)]
    assert run(["append", "--apply", "--from", str(lines), *no_roll, str(directory)]) == 0
    assert (directory / f"{0:020}.timeindex").stat().st_size == 12
    assert run(["undo", str(directory)]) == 0
    assert {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()} == before
