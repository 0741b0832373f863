"""`kseg export` end to end on this machine: output, exit statuses, kills, and that the input stays unchanged."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from kseg.cli.main import run
from kseg.segment.new_files import NewFile
from tests.cli.test_command_line import imported
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.expected_exports import dumped, exported, files_of
from tests.support.failing_disks import die_at, rounds

Unchanged = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def data(capture_small: Path) -> Path:
    return capture_small / "data"


@pytest.fixture
def damaged(data: Path, tmp_path: Path) -> Path:
    path = tmp_path / "in" / "metro-zstd-0"
    shutil.copytree(data / "metro-zstd-0", path)
    log = path / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[500] ^= 1
    log.write_bytes(content)
    return path


def everything_in(data: Path) -> list[Path]:
    return sorted({path.parent for path in data.rglob("*.log")})


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "3"])
@pytest.mark.parametrize("form", ["parquet", "arrow", "json", "csv"])
def test_export_writes_the_records_of_a_data_directory(
    data: Path, form: str, jobs: str, tmp_path: Path, unchanged: Unchanged, capfd: Capfd
) -> None:
    words = ["--bytes", "base64"] if form == "csv" else []
    with unchanged(data):
        assert (
            run(["export", "--to", form, "--output", f"{tmp_path}/out", "--jobs", jobs, *words, str(data)])
            == 0
        )
    out, err = capfd.readouterr()
    assert err == "" and out.count("\n") == 13 and "fares-0: 89 records in 1 file, " in out
    assert exported(tmp_path / "out", form) == dumped(everything_in(data))
    # one for each partition
    assert len(files_of(tmp_path / "out")) == 12
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_export_json_lines(data: Path, tmp_path: Path, capfd: Capfd) -> None:
    output = tmp_path / "out"
    words = ["export", "--json", "--to", "parquet", "--partition-by", "topic,hour", "--topic", "metro-*"]
    *results, summary = rows_of(capfd, *words, "--output", output, data, status=0)
    assert len(results) == 5
    for row in results:
        assert row["type"] == "result" and row["command"] == "export" and row["to"] == "parquet"
        assert row["output"] == str(output) and row["records"] == 160 and row["damaged_bytes"] == 0
        assert row["path"] == str(data / row["partition"])
        (name,) = row["files"]
        assert name.startswith(f"topic={row['partition'][:-2]}/hour=15/part-")
        assert row["bytes"] == (output / name).stat().st_size
    assert summary["type"] == "summary" and summary["files"] == 5 and summary["records"] == 800
    assert summary["bytes"] == sum(row["bytes"] for row in results)


def test_export_skips_or_fails_on_damage(
    damaged: Path, tmp_path: Path, unchanged: Unchanged, capfd: Capfd
) -> None:
    output = tmp_path / "out"
    with unchanged(damaged):
        assert run(["export", "--to", "json", "--output", str(output), str(damaged)]) == 1
        out, err = capfd.readouterr()
        assert "148 records in 1 file" in out and "575 damaged bytes" in out
        assert "(bad-crc; bytes 477-1051; offsets 12-23)" in err
        assert exported(output, "json") == dumped([damaged])
        stop = ["export", "--to", "json", "--fail-on-damage", "--mode", "overwrite", "--output", str(output)]
        before = files_of(output)
        assert run([*stop, str(damaged)]) == 1
    err = capfd.readouterr().err
    assert "bytes 477-1051" in err and "nothing was exported (--fail-on-damage)" in err
    assert files_of(output) == before


def test_export_save_modes(data: Path, tmp_path: Path, capfd: Capfd) -> None:
    def export(mode: str, topic: str) -> int:
        words = [
            "export",
            "--to",
            "json",
            "--mode",
            mode,
            "--topic",
            topic,
            "--output",
            str(tmp_path / "out"),
        ]
        return run([*words, str(data)])

    def topics() -> set[str]:
        return {row[0] for row in exported(tmp_path / "out", "json")}

    assert export("errorifexists", "fares") == 0
    assert export("errorifexists", "stations") == 4
    assert "already exists and is not empty" in capfd.readouterr().err
    assert export("ignore", "stations") == 0
    assert "nothing was exported" in capfd.readouterr().err
    assert topics() == {"fares"}
    assert export("append", "stations") == 0
    assert topics() == {"fares", "stations"}
    assert export("append", "stations") == 0 and len(files_of(tmp_path / "out")) == 3
    assert export("overwrite", "gates-*") == 0
    assert topics() == {"gates-append"} and len(files_of(tmp_path / "out")) == 2
    capfd.readouterr()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--to", "delta"], "--to delta is written by Spark only; add --spark"),
        (["--to", "iceberg"], "--to iceberg is written by Spark only; add --spark"),
        (["--to", "csv", "--compression", "zstd"], "--compression for csv must be none or gzip or bzip2, not zstd"),
        (["--to", "arrow", "--bytes", "hex"], "--bytes applies to json and csv only; arrow stores keys and values as bytes"),
        (["--to", "json", "--partition-by", "offset"], "--partition-by takes topic, partition, timestampType, date, hour, not offset"),
        (["--to", "json", "--partition-by", "date,date"], "--partition-by names a column twice"),
        (["--to", "json", "--key-regex", "["], "is not a regular expression"),
    ],
)  # fmt: skip
def test_export_rejects_wrong_usage(
    words: list[str], sentence: str, data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    assert run(["export", *words, "--output", str(tmp_path / "out"), str(data)]) == 2
    out, err = capfd.readouterr()
    assert out == "" and sentence in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_export_reports_paths_that_are_not_logs(data: Path, tmp_path: Path, capfd: Capfd) -> None:
    other = data / "fares-0" / "partition.metadata"
    words = ["--output", str(tmp_path / "out"), str(data / "stations-0"), str(other)]
    assert run(["export", "--to", "json", *words]) == 5
    assert capfd.readouterr().err.splitlines() == [
        f"kseg: {other} is not a log; only records can be exported",
        "0 errors, 0 warnings, 1 not readable in 2 targets",
    ]


def test_export_refuses_an_output_inside_the_input(data: Path, unchanged: Unchanged, capfd: Capfd) -> None:
    with unchanged(data):
        assert run(["export", "--to", "json", "--output", str(data / "out"), str(data)]) == 4
    assert "is in the input directory" in capfd.readouterr().err


def test_export_without_pyarrow_says_what_to_install(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capfd
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name))
    assert run(["export", "--to", "json", "--output", str(tmp_path / "out"), str(data)]) == 2
    assert capfd.readouterr().err == (
        "kseg: export needs pyarrow, which is not installed: pip install 'kseg[export]', or take the tarball with -arrow in its name\n"
    )


def test_only_export_imports_pyarrow(data: Path) -> None:
    for words in (["export", "--help"], ["dump", str(data / "fares-0")], ["list", str(data)]):
        modules = imported(f"from kseg.cli.main import run; run({words!r})")
        assert not [name for name in modules if name.startswith(("pyarrow", "kseg.inspection.arrow"))]


# --- kills


@pytest.mark.parametrize("mode", ["errorifexists", "append", "overwrite"])
def test_export_killed_at_any_step_leaves_no_partial_file(mode: str, data: Path, tmp_path: Path) -> None:
    """In this process, killed at each change of the file system in turn."""
    inputs = [data / name for name in ("fares-0", "gates-append-0", "gates-append-1")]
    new = dumped(inputs)
    output, template = tmp_path / "out", tmp_path / "template"
    words = ["export", "--quiet", "--to", "json", "--jobs", "1", "--partition-by", "timestampType"]
    assert run([*words, "--output", str(template), str(data / "stations-0")]) == 0
    old = [] if mode == "errorifexists" else _exported(template)
    for number in rounds(mode):
        shutil.rmtree(output, ignore_errors=True)
        if old:
            shutil.copytree(template, output)
        child = os.fork()
        if not child:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
            die_at(number, (NewFile, ("__init__", "write", "sync", "close")))
            try:
                run([*words, "--mode", mode, "--output", str(output), *map(str, inputs)])
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        now = _exported(output)
        if mode == "append":
            assert set(map(repr, old)) <= set(map(repr, now)) <= set(map(repr, sorted(old + _of(new))))
        else:
            assert now in (old, sorted(_of(new)), [])
        if mode == "append" and os.WIFSIGNALED(status):
            has_ended = any(path.name.endswith(".done") for path in output.glob("_kseg-*"))
            assert run([*words, "--mode", mode, "--output", str(output), *map(str, inputs)]) == 0
            assert _exported(output) == sorted(old + _of(new) * (1 + has_ended)), (
                "rows of a killed run are not there twice"
            )
            assert not list(output.glob("_kseg-*"))
        if not os.WIFSIGNALED(status):
            assert now == sorted(_of(new) + (old if mode == "append" else []))
            break
    assert number > 15


def _exported(output: Path) -> list[tuple[str, int]]:
    """(topic and partition, offset) of every record that a reader sees; fails on incomplete lines."""
    rows = []
    for path in files_of(output):
        if any(step.startswith((".", "_")) for step in path.relative_to(output).parts):
            continue
        for line in path.read_text().split("\n")[:-1]:
            row = json.loads(line)
            rows.append((f"{row['topic']}-{row['partition']}", row["offset"]))
    return sorted(rows)


def _of(reported: list[Any]) -> list[tuple[str, int]]:
    return [(f"{row[0]}-{row[1]}", row[2]) for row in reported]


@pytest.mark.slow
def test_export_killed_at_random_times_leaves_no_partial_file(data: Path, tmp_path: Path) -> None:
    """The complete program with its workers, killed after random times."""
    output = tmp_path / "out"
    command = [sys.executable, "-m", "kseg", "export", "--to", "json", "--output", str(output), "--jobs", "2"]
    expected = _of(dumped(everything_in(data)))
    for wait in (0.3, 0.6, 0.9):
        # the workers inherit the pipe
        reader, writer = os.pipe()
        with subprocess.Popen([*command, str(data)], stdout=subprocess.DEVNULL, pass_fds=[writer]) as process:
            os.close(writer)
            time.sleep(wait)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        assert os.read(reader, 1) == b"", "until the workers have ended too"
        os.close(reader)
        assert _exported(output) in ([], sorted(expected))
        shutil.rmtree(output, ignore_errors=True)
    subprocess.run([*command, str(data)], stdout=subprocess.DEVNULL, check=True)
    assert _exported(output) == sorted(expected)
    assert list(tmp_path.iterdir()) == [output]


def test_export_interrupted_leaves_no_files(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kseg.inspection.export.writers import Writers

    def stop(self: Writers) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Writers, "close", stop)
    assert (
        run(
            ["export", "--quiet", "--to", "json", "--jobs", "1", "--output", str(tmp_path / "out"), str(data)]
        )
        == 130
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["metro-none-0", "fares-0", "stations-0"])
def test_exported_json_lines_can_be_appended_again(
    capture_small: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], name: str
) -> None:
    """Offsets, timestamps, keys, values and headers of all records survive the round trip as JSON lines through a pipe."""
    source, lines, copy = capture_small / "data" / name, tmp_path / "lines.json", tmp_path / "copy-0"
    assert run(["export", "--to", "json", "--output", "-", str(source)]) == 0
    lines.write_bytes(capfdbinary.readouterr().out)
    assert run(["append", "--apply", "--quiet", "--from", str(lines), str(copy)]) == 0

    def records(partition: Path) -> list[tuple[object, ...]]:
        capfdbinary.readouterr()
        run(["dump", "--json", "--print-data-log", "--no-control", str(partition)])
        rows = map(json.loads, capfdbinary.readouterr().out.splitlines())
        names = ("offset", "timestamp", "key", "key_encoding", "value", "value_encoding", "headers")
        return [tuple(row[each] for each in names) for row in rows if row["type"] == "record"]

    assert records(copy) == records(source) and records(copy)


def test_csv_stream_of_several_partitions_has_one_header(
    capture_small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capfd
) -> None:
    monkeypatch.chdir(tmp_path)
    data = str(capture_small / "data")
    assert run(["export", "--to", "csv", "--output", "-", "--topic", "metro-*", "--jobs", "2", data]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert (
        lines[0].startswith('"key","key_encoding","value"') and sum(line == lines[0] for line in lines) == 1
    )
    assert not list(tmp_path.iterdir())
    for words in (
        ["--to", "parquet"],
        ["--to", "json", "--json"],
        ["--to", "json", "--partition-by", "topic"],
    ):
        assert run(["export", *words, "--output", "-", data]) == 2
    assert not list(tmp_path.iterdir())
