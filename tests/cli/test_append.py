"""`kseg append` end to end: what it says, the statuses, and a pipe from dump."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.cli.main import run
from tests import trees


def test_a_pipe_from_dump_makes_an_equal_partition(capture_small: Path, tmp_path: Path) -> None:
    source, target = capture_small / "data" / "fares-0", tmp_path / "copy-0"
    kseg = [sys.executable, "-m", "kseg"]
    with subprocess.Popen(
        [*kseg, "dump", "--json", "--deep-iteration", str(source)], stdout=subprocess.PIPE
    ) as dump:
        done = subprocess.run(
            [*kseg, "append", "--json", "--from", "-", str(target)],
            stdin=dump.stdout,
            capture_output=True,
            check=False,
        )
    assert done.returncode == 0 and done.stderr.startswith(b"kseg append: passed over ")
    result = json.loads(done.stdout)
    assert {name: result[name] for name in ("type", "command", "partition", "log_end_offset")} == {
        "type": "result",
        "command": "append",
        "partition": "copy-0",
        "log_end_offset": 117,
    }
    verified = subprocess.run([*kseg, "verify", "--deep", str(target)], capture_output=True, check=False)
    assert verified.returncode == 0, verified.stdout


def test_words_of_the_result(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"value":"a"}\n{"type":"finding"}\n{"value":"b"}\n')
    assert run(["append", "--from", str(lines), str(tmp_path / "own-0")]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines() == [
        "own-0: 2 records in 1 batch appended at offset 0; the log ends at 2, 0 segments rolled",
        f"  undo with: kseg undo {next((tmp_path / 'own-0' / '.kseg').iterdir())}/journal.jsonl",
    ]
    assert err == "kseg append: passed over 1 finding line\n"
    assert run(["append", "--quiet", "--from", str(lines), str(tmp_path / "own-0")]) == 0
    assert capfd.readouterr().err == ""


def test_a_bad_line_is_status_2_behind_the_result(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"value":"a"}\nnonsense\n')
    assert run(["append", "--json", "--from", str(lines), str(tmp_path / "own-0")]) == 2
    out, err = capfd.readouterr()
    result, error = (json.loads(line) for line in out.splitlines())
    assert (result["records"], result["log_end_offset"]) == (1, 1)
    assert error["exit_status"] == 2 and error["message"] in err
    assert err.startswith(f"kseg: {lines}, line 2: it is no JSON: ")


def test_refusals_and_missing_input(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hurt = healthy.partition(tmp_path / "hurt-0")
    log = max(hurt.glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"value":"a"}\n')
    with trees.unchanged(hurt):
        assert run(["append", "--from", str(lines), str(hurt)]) == 4
    assert f"kseg recover {hurt}" in capfd.readouterr().err
    assert run(["append", "--from", str(tmp_path / "missing"), str(tmp_path / "own-0")]) == 3
    assert not (tmp_path / "own-0").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Missing argument 'PATH'"),
        (["a-0"], "Missing option '--from'"),
        (["--from", "x", "a-0", "b-0"], "exactly one PATH"),
        (["--from", "x", "--magic", "3", "a-0"], "--magic takes one of 0, 1, 2, not '3'"),
        (["--from", "x", "--transactional", "a-0"], "a transaction needs a producer id"),
        (["--from", "x", "--codec", "rar", "a-0"], "--codec takes one of"),
        (["--from", "x", "--segment-bytes", "0", "a-0"], "a segment cannot have 0 bytes"),
        (["--from", "x", "--topic-id", "nonsense", "a-0"], "nonsense is no topic id"),
        (["--from", "x", "--start-offset", "-1", "a-0"], "--start-offset takes"),
    ],
)
def test_wrong_usage(words: list[str], sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["append", *words]) == 2
    assert sentence in capfd.readouterr().err


def test_standard_input_is_read_by_its_descriptor(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("not this"))
    reader, writer = os.pipe()
    os.write(writer, b'{"value":"from the pipe"}\n{"value"}\n')
    os.close(writer)
    former = os.dup(0)
    try:
        os.dup2(reader, 0)
        assert run(["append", "--from", "-", str(tmp_path / "own-0")]) == 2
    finally:
        os.dup2(former, 0)
        os.close(former)
        os.close(reader)
    assert capfd.readouterr().err.startswith("kseg: standard input, line 2: ")


def test_ctrl_c_keeps_what_is_whole_and_undo_takes_it_back(tmp_path: Path) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    before = {path: path.read_bytes() for path in log_dir.rglob("*") if path.is_file()}
    target = log_dir / "metro-0"
    kseg = [sys.executable, "-m", "kseg"]
    words = ["append", "--json", "--batch-records", "2", "--from", "-", str(target)]
    with subprocess.Popen(
        [*kseg, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b'{"value":"a"}\n' * 5)
        process.stdin.flush()
        log = max(target.glob("*.log"))
        deadline = time.monotonic() + 30
        while log.read_bytes() == before[log] and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and b"interrupted" in err
    result = json.loads(out.splitlines()[0])
    assert (result["records"], result["batches"]) == (4, 2)
    verified = subprocess.run([*kseg, "verify", "--deep", str(target)], capture_output=True, check=False)
    assert verified.returncode == 0, verified.stdout
    undone = subprocess.run([*kseg, "undo", result["journal"]], capture_output=True, check=False)
    assert undone.returncode == 0, undone.stderr
    assert {path: path.read_bytes() for path in log_dir.rglob("*") if path.is_file()} == before
