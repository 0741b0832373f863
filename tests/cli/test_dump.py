"""`kseg dump` end to end on real captures: bytes on stdout, streams, jobs, terminals. The input never changes."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.paths import ROOT

DECODED = {
    "__consumer_offsets-0": "--offsets-decoder",
    "__transaction_state-0": "--transaction-log-decoder",
    "__cluster_metadata-0": "--cluster-metadata-decoder",
}
ODD = "00000000000000000000.log"

Unchanged = Callable[..., AbstractContextManager[None]]


def flags_for(path: str) -> list[str]:
    """The options with which the captures were dumped (fixtures/README.md)."""
    if not path.endswith((".log", ".checkpoint")):
        return []
    decoders = [flag for partition, flag in DECODED.items() if path.startswith(partition)]
    return ["--deep-iteration", "--print-data-log", *decoders]


def test_dump_of_the_capture_equals_the_real_tool(
    capture_small: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    data, expected = capture_small / "data", capture_small / "expected"
    monkeypatch.chdir(data)
    compared = 0
    for truth in sorted(expected.rglob("*.txt")):
        path = str(truth.relative_to(expected))[: -len(".txt")]
        assert run(["dump", *flags_for(path), path]) in (0, 1)
        if truth.with_suffix(".rc").exists():
            # the tool stopped, and kseg continues
            assert capfdbinary.readouterr().out.startswith(truth.read_bytes()), path
        else:
            assert capfdbinary.readouterr().out == truth.read_bytes(), path
        compared += 1
    assert compared > 64


@pytest.fixture
def partition(capture_small: Path, tmp_path: Path) -> Path:
    copied: Path = shutil.copytree(capture_small / "data" / "metro-zstd-0", tmp_path / "metro-zstd-0")
    return copied


@pytest.mark.parametrize(
    "flags", [[], ["--print-data-log"], ["--json", "--print-data-log"], ["--format", "table"]]
)
def test_dump_is_the_same_for_any_number_of_jobs(
    capture_small: Path, flags: list[str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    outputs = []
    for jobs in ("1", "2"):
        assert run(["dump", *flags, "--jobs", jobs, str(capture_small / "data" / "metro-none-0")]) == 0
        out, err = capfdbinary.readouterr()
        assert err == b""
        outputs.append(out)
    assert outputs[0] == outputs[1] != b""


def test_dump_accepts_a_comma_separated_list_of_files(
    partition: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log, index = partition / ODD, partition / ODD.replace(".log", ".index")
    run(["dump", str(log), str(index)])
    both = capfdbinary.readouterr().out
    run(["dump", f"--files={log},{index}"])
    assert capfdbinary.readouterr().out == both
    assert both.count(b"Dumping ") == 2


def test_dump_reports_damage_and_continues(partition: Path, unchanged: Unchanged, capfd: Capfd) -> None:
    log = partition / ODD
    data = bytearray(log.read_bytes())
    data[600] ^= 0x55
    log.write_bytes(data)

    with unchanged(partition):
        assert run(["dump", str(log)]) == 1
    out, err = capfd.readouterr()
    assert out.count("isvalid: true") == len(out.splitlines()) - 3 and out.count("isvalid: false") == 1
    first, second, advice = err.splitlines()
    assert f"{log}: error: " in first and "(bad-crc; bytes 477-" in first
    assert second == "1 error, 0 warnings in 1 file"
    assert advice == f"next: kseg recover {partition}"


def test_dump_json_lines_parse_and_end_with_a_summary(
    partition: Path, unchanged: Unchanged, capfd: Capfd
) -> None:
    with unchanged(partition):
        assert run(["dump", "--json", "--print-data-log", str(partition / ODD)]) == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {row["type"] for row in rows} == {"batch", "record", "summary"}
    assert rows[-1]["type"] == "summary" and rows[-1]["targets"] == 1 and rows[-1]["errors"] == 0
    assert [row["offset"] for row in rows if row["type"] == "record"] == list(range(132))


def test_dump_filters_and_limit(partition: Path, capfd: Capfd) -> None:
    run(["dump", "--json", "--key", "stop8", "--from-offset", "90", "--limit", "1", str(partition / ODD)])
    records = [row for row in map(json.loads, capfd.readouterr().out.splitlines()) if row["type"] == "record"]
    assert [(record["offset"], record["key"]) for record in records] == [(100, "stop8")]


def on_a_terminal(*words: str) -> tuple[bytes, int]:
    """The output of kseg when stdout and stderr are a terminal, and its exit status."""
    parent, child = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "kseg", *words], stdout=child, stderr=child, stdin=child, cwd=ROOT
    ) as process:
        os.close(child)
        seen = b""
        while True:
            try:
                piece = os.read(parent, 65536)
            # the other end is closed
            except OSError:
                break
            if not piece:
                break
            seen += piece
    os.close(parent)
    return seen, process.returncode


def test_dump_escapes_control_characters_on_a_terminal(tmp_path: Path) -> None:
    from kseg.segment.encoding.batch import encode_batch
    from kseg.segment.model import NewBatch, Record

    log = tmp_path / ODD
    log.write_bytes(encode_batch(NewBatch(records=(Record(0, 1, b"\x1b[31mred\x07", b"a\x00b"),))))
    shown, status = on_a_terminal("dump", "--print-data-log", str(log))
    assert status == 0
    assert b"\x1b" not in shown and b"\x07" not in shown and b"\x00" not in shown
    assert b"[31mred" in shown

    piped = subprocess.run(
        [sys.executable, "-m", "kseg", "dump", "--print-data-log", str(log)],
        capture_output=True,
        check=True,
        cwd=ROOT,
    )
    assert b"key: \x1b[31mred\x07 payload: a\x00b\n" in piped.stdout


def test_dump_table_has_a_line_for_each_record(capture_small: Path, capfd: Capfd) -> None:
    partition = capture_small / "data" / "fares-0"
    assert run(["dump", "--format", "table", str(partition)]) == 0
    head, *lines = capfd.readouterr().out.splitlines()
    assert head.split() == ["offset", "time", "key", "value"]
    assert [int(line.split()[0]) for line in lines] == [*range(117)]
    assert run(["dump", "--format", "table", "--control", str(partition)]) == 0
    lines = capfd.readouterr().out.splitlines()[1:]
    assert lines and all(line.endswith(("control record COMMIT", "control record ABORT")) for line in lines)
    assert (
        run(["dump", "--format", "table", "--topic", "metro-*", "--key", "stop8", str(partition.parent)]) == 0
    )
    head, *lines = capfd.readouterr().out.splitlines()
    assert head.split()[0] == "partition" and all(' "stop8"  ' in line for line in lines)
    assert {line.split()[0] for line in lines} == {
        f"metro-{codec}-0" for codec in ("gzip", "lz4", "none", "snappy", "zstd")
    }


def test_dump_with_a_record_filter_skips_side_files(capture_small: Path, capfd: Capfd) -> None:
    partition = capture_small / "data" / "fares-0"
    assert run(["dump", "--key", "f1", str(partition)]) == 0
    headings = [line for line in capfd.readouterr().out.splitlines() if line.startswith("Dumping ")]
    assert headings == [f"Dumping {path}" for path in sorted(partition.glob("*.log"))]
    assert run(["dump", "--limit", "1", str(partition)]) == 0
    assert ".index" in capfd.readouterr().out
