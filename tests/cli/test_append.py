"""`kseg append` end to end: its output, exit statuses, and a pipe from dump."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.cli.main import run
from tests.support import trees
from tests.support.command_lines import Capfd


def test_append_from_a_dump_pipe_makes_an_equal_partition(capture_small: Path, tmp_path: Path) -> None:
    source, target = capture_small / "data" / "fares-0", tmp_path / "copy-0"
    kseg = [sys.executable, "-m", "kseg"]
    with subprocess.Popen(
        [*kseg, "dump", "--json", "--deep-iteration", str(source)], stdout=subprocess.PIPE
    ) as dump:
        done = subprocess.run(
            [*kseg, "append", "--apply", "--json", "--from", "-", str(target)],
            stdin=dump.stdout,
            capture_output=True,
            check=False,
        )
    assert done.returncode == 0 and done.stderr.startswith(b"kseg append: ignored ")
    result = json.loads(done.stdout)
    assert {name: result[name] for name in ("type", "command", "partition", "log_end_offset")} == {
        "type": "result",
        "command": "append",
        "partition": "copy-0",
        "log_end_offset": 117,
    }
    verified = subprocess.run([*kseg, "verify", "--deep", str(target)], capture_output=True, check=False)
    assert verified.returncode == 0, verified.stdout


def test_append_text_of_plan_and_result(tmp_path: Path, capfd: Capfd) -> None:
    lines, target = tmp_path / "lines.jsonl", tmp_path / "own-0"
    lines.write_text('{"value":"a"}\n{"type":"finding"}\n{"value":"b"}\n')
    words = ["--from", str(lines), "--codec", "gzip", "--now", "1700000000000", str(target)]
    assert run(["append", *words]) == 1
    out, err = capfd.readouterr()
    (line,) = out.splitlines()
    size_bytes = int(line.split("(")[2].split()[0])
    assert line == (
        f"own-0 (new): 2 records in 1 batch ({size_bytes} bytes) to be appended at offset 0; the log would end at 2, "
        "0 segments rolled"
    )
    assert err.splitlines() == [
        "kseg append: ignored 1 finding line",
        f"next: kseg append --apply --from {lines} --codec gzip --now 1700000000000 {target}",
    ]
    assert not target.exists()
    assert run(shlex.split(err.splitlines()[1])[2:]) == 0
    out, err = capfd.readouterr()
    assert (target / f"{0:020d}.log").stat().st_size == size_bytes
    assert out.splitlines() == [
        f"own-0 (new): 2 records in 1 batch ({size_bytes} bytes) appended at offset 0; the log ends at 2, 0 segments rolled",
        f"  undo with: kseg undo {next((target / '.kseg').iterdir())}/journal.jsonl",
    ]
    assert err == "kseg append: ignored 1 finding line\n"
    assert run(["append", "--apply", "--quiet", *words]) == 0
    assert capfd.readouterr().err == ""
    lines.write_text("")
    for apply in ([], ["--apply"]):
        assert run(["append", *apply, *words]) == 0
        assert capfd.readouterr().out == "own-0: nothing to append; the log ends at 4\n"


def test_append_of_a_bad_line_exits_with_2_and_writes_nothing(tmp_path: Path, capfd: Capfd) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"value":"a"}\nnonsense\n')
    for words in ([], ["--apply"]):
        assert run(["append", "--json", *words, "--from", str(lines), str(tmp_path / "own-0")]) == 2
        out, err = capfd.readouterr()
        (error,) = (json.loads(line) for line in out.splitlines())
        assert error["type"] == "error" and error["exit_status"] == 2 and error["message"] in err
        assert err.startswith(f"kseg: {lines}, line 2: it is not JSON: ")
        assert not (tmp_path / "own-0").exists()


def test_append_refuses_the_largest_offset(tmp_path: Path, capfd: Capfd) -> None:
    lines = tmp_path / "lines.jsonl"
    for offset, status in ((2**63 - 1, 2), (2**63 - 2, 1)):
        lines.write_text(json.dumps({"value": "a", "offset": offset}) + "\n")
        assert run(["append", "--from", str(lines), str(tmp_path / "own-0")]) == status
    err = capfd.readouterr().err
    assert err.startswith(f"kseg: {lines}, line 1: offset {2**63 - 1} leaves no number for the log end\n")


def test_append_refuses_damage_and_missing_input(tmp_path: Path, capfd: Capfd) -> None:
    damaged = healthy.partition(tmp_path / "damaged-0")
    log = max(damaged.glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"value":"a"}\n')
    with trees.unchanged(damaged):
        assert run(["append", "--from", str(lines), str(damaged)]) == 4
    assert f"kseg recover {damaged}" in capfd.readouterr().err
    assert run(["append", "--from", str(tmp_path / "missing"), str(tmp_path / "own-0")]) == 3
    assert not (tmp_path / "own-0").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Missing argument 'PATH'"),
        (["a-0"], "either lines (--from) or a marker (--marker)"),
        (["--from", "x", "a-0", "b-0"], "exactly one PATH"),
        (["--from", "x", "--magic", "3", "a-0"], "--magic takes one of 0, 1, 2, not '3'"),
        (["--from", "x", "--transactional", "a-0"], "a transaction needs a producer id"),
        (["--from", "x", "--codec", "rar", "a-0"], "--codec takes one of"),
        (["--from", "x", "--segment-bytes", "0", "a-0"], "a segment cannot have 0 bytes"),
        (["--from", "x", "--topic-id", "nonsense", "a-0"], "nonsense is not a topic id"),
        (["--from", "x", "--start-offset", "-1", "a-0"], "--start-offset takes"),
    ],
)
def test_append_rejects_wrong_usage(words: list[str], sentence: str, capfd: Capfd) -> None:
    assert run(["append", *words]) == 2
    assert sentence in capfd.readouterr().err


@pytest.fixture
def fed(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """fed(lines, *words): `kseg append --from -` with the lines in a pipe or, with `file=True`, in a file."""

    def feed(
        lines: bytes, *words: str, file: bool = False, skip: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "kseg", "append", "--from", "-", *words]
        if not file:
            return subprocess.run(command, input=lines, capture_output=True, check=False)
        source = tmp_path / "stdin"
        source.write_bytes(lines)
        with source.open("rb", buffering=0) as stream:
            stream.seek(skip)
            return subprocess.run(command, stdin=stream, capture_output=True, check=False)

    return feed


@pytest.mark.slow
@pytest.mark.parametrize("file", [False, True], ids=["pipe", "file"])
def test_append_checks_all_of_stdin_before_writing(
    fed: Callable[..., subprocess.CompletedProcess[bytes]], tmp_path: Path, file: bool
) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    target = str(log_dir / "metro-0")
    # more than a pipe can buffer
    good = b'{"value":"%s"}\n' % (b"x" * 500) * 10_000
    with trees.unchanged(log_dir):
        done = fed(good + b'{"value"}\n', "--apply", target, file=file)
        assert done.returncode == 2 and b"standard input, line 10001: it is not JSON" in done.stderr
        done = fed(good, target, file=file)
        assert done.returncode == 1 and b"10,000 records in" in done.stdout
    done = fed(good, "--apply", "--json", target, file=file)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["records"] == 10_000 and result["applied"]
    verified = subprocess.run(
        [sys.executable, "-m", "kseg", "verify", "--deep", target], capture_output=True, check=False
    )
    assert verified.returncode == 0, verified.stdout


def test_append_reads_stdin_from_its_current_position(
    fed: Callable[..., subprocess.CompletedProcess[bytes]], tmp_path: Path
) -> None:
    lines = b'{"value":"not this"}\n{"value":"a"}\n{"value":"b"}\n'
    done = fed(lines, "--apply", "--json", str(tmp_path / "own-0"), file=True, skip=lines.index(b"\n") + 1)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == 2


def test_append_refuses_a_pipe_without_room_for_a_temporary_file(
    fed: Callable[..., subprocess.CompletedProcess[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is no room for the temporary file (in this test because of a limit on file sizes), nothing is appended."""
    log_dir = healthy.log_dir(tmp_path / "data")
    script = tmp_path / "limited"
    # in blocks of 512 bytes
    script.write_text(f'#!/bin/sh\nulimit -f 1000\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    lines = b'{"value":"%s"}\n' % (b"x" * 500) * 10_000
    target = str(log_dir / "metro-0")
    with trees.unchanged(log_dir):
        done = fed(lines, target)
        assert done.returncode == 1, "a plan keeps nothing"
        done = fed(lines, "--apply", target)
    assert done.returncode == 4, done.stderr
    output = done.stderr.decode()
    assert (
        "File too large" in output
        and "set TMPDIR" in output
        and "--from" in output
        and "standard input" in output
    )


@pytest.mark.slow
def test_append_does_not_hold_a_pipe_in_memory(tmp_path: Path) -> None:
    """200 MiB are piped to a process whose data segment is limited to less than that."""
    code = (
        "import re, sys; from kseg.cli.main import run; "
        "status = run(['append', '--apply', '--quiet', '--from', '-', '--segment-index-bytes', '64KiB', sys.argv[1]]); "
        # ru_maxrss would be inherited from the parent process if that had used more
        "print(status, re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1])"
    )
    line = b'{"value":"%s"}\n' % (b"x" * (1 << 20))
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "big-0")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        for _ in range(200):
            process.stdin.write(line)
        out, _ = process.communicate(timeout=600)
    status, peak_kib = map(int, out.splitlines()[-1].split())
    assert status == 0 and peak_kib < 150 << 10


def test_append_reads_stdin_by_its_descriptor(
    tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
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


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["checking", "writing"])
def test_append_interrupted_by_ctrl_c_changes_nothing(tmp_path: Path, moment: str) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    before = {path: path.read_bytes() for path in log_dir.rglob("*") if path.is_file()}
    words = ["append", "--apply", "--json", "--batch-records", "1", "--flush-messages", "1", "--from", "-"]
    with subprocess.Popen(
        [sys.executable, "-m", "kseg", *words, str(log_dir / "metro-0")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"value":"a"}\n' * 20_000)
        process.stdin.flush()
        if moment == "writing":
            process.stdin.close()
            process.stdin = None
        # the marker is removed when writing begins; the lock exists from the start
        file, is_there = (".kafka_cleanshutdown", False) if moment == "writing" else (".lock", True)
        while process.poll() is None and (log_dir / file).exists() is not is_there:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130 and b"interrupted" in err and out == b""
    assert {path: path.read_bytes() for path in log_dir.rglob("*") if path.is_file()} == before


def test_append_warns_that_a_partition_without_topic_id_becomes_stray(tmp_path: Path, capfd: Capfd) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"value":"a"}\n')
    words = ["append", "--from", str(lines), str(log_dir / "new-0")]
    assert run(words) == 1
    assert "without --topic-id a broker" in capfd.readouterr().out
    assert run([*words, "--topic-id", healthy.TOPIC_ID]) == 1
    assert "--topic-id a broker" not in capfd.readouterr().out


def test_append_to_a_damaged_segment_advises_recovering_the_partition(tmp_path: Path, capfd: Capfd) -> None:
    damaged = healthy.partition(tmp_path / "damaged-0")
    index = max(damaged.glob("*.index"))
    index.write_bytes(index.read_bytes() + b"\1")
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"value":"a"}\n')
    assert run(["append", "--from", str(lines), str(damaged)]) == 4
    assert f"(kseg recover {damaged} says what to do)" in capfd.readouterr().err
