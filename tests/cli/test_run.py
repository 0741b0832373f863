"""The behaviour that all commands have in common: output streams, exit status, summary, next command."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.cli.main import run
from kseg.cli.text.common import damage_words
from kseg.cli.text.verify import looked_at_words
from kseg.jobs.events import Event
from kseg.recovery.verify import partition_check
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.totals import Totals
from kseg.segment.errors import UnreadableInput, UsageError
from kseg.segment.partition.targets import PartitionTarget
from tests.support.command_lines import Capfd
from tests.support.paths import ROOT
from tests.support.stub_commands import Finding, Row, Script, Style, Text, perform, toy_files

DUMP = Style(command="dump", summary=damage_words)
DUMP_JSON = Style(command="dump", json=True, summary=damage_words)
VERIFY = Style(command="verify", findings_are_result=True, summary=looked_at_words)
BAD_CRC = Finding("bad-crc", "a.log", "stored 1, computed 2", 100, 71, 5, 9, {"stored": 1, "computed": 2})
FUTURE = Finding("future-timestamp", "a.log", "offset 3 lies ahead", first_offset=3)
GAP = Finding("offset-gap", "a.log", "offsets 4 to 8 are missing")


def script(*events: Event, **more: frozenset[str]) -> Script:
    return Script({"a.log": events}, **more)


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_text_is_written_to_stdout_unchanged(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    raw = bytes(range(256)) * 9000
    status = perform(script(Text(raw), Text(b"\n")), toy_files(tmp_path, 1), DUMP)

    out, err = capfdbinary.readouterr()
    assert (status, out, err) == (0, raw + b"\n", b"")


def test_dump_reports_damage_on_stderr_and_continues(tmp_path: Path, capfd: Capfd) -> None:
    (asked,) = toy_files(tmp_path, 1)
    status = perform(script(Text(b"one\n"), BAD_CRC, FUTURE, Text(b"two\n")), [asked], DUMP)

    out, err = capfd.readouterr()
    assert (status, out) == (1, "one\ntwo\n")
    assert err.splitlines() == [
        "a.log: error: stored 1, computed 2 (bad-crc; bytes 100-170; offsets 5-9)",
        "a.log: warning: offset 3 lies ahead (future-timestamp; offset 3)",
        "1 error, 1 warning in 1 file",
        f"next: kseg verify --deep {asked}",
    ]


def test_warnings_and_infos_alone_exit_with_0(tmp_path: Path, capfd: Capfd) -> None:
    assert perform(script(FUTURE, GAP), toy_files(tmp_path, 1), VERIFY) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[2:] == ["0 errors, 1 warning", "next: kseg dump a.log"]
    assert err == ""


def test_json_has_findings_and_one_summary_on_stdout(tmp_path: Path, capfd: Capfd) -> None:
    summary = Row({"type": "summary", "files": 2, "bytes_total": 10, "errors": 99})
    made = Script({"a.log": (Row({"type": "x", "n": None}), summary, BAD_CRC), "b.log": (summary,)})
    assert perform(made, toy_files(tmp_path, 2), DUMP_JSON) == 1

    out, _ = capfd.readouterr()
    row, finding, end = lines(out)
    assert row == {"type": "x", "n": None}
    assert finding["type"] == "finding" and finding["id"] == "bad-crc" and finding["stored"] == 1
    assert finding["position"] == 100 and finding["length"] == 71 and finding["severity"] == "error"
    assert end == {
        "type": "summary",
        "command": "dump",
        "files": 4,
        "bytes_total": 20,
        "errors": 1,
        "warnings": 0,
        "infos": 0,
        "targets": 2,
        "targets_done": 2,
        "targets_failed": 0,
        "interrupted": False,
    }


def test_verify_prints_findings_and_summary_on_stdout(tmp_path: Path, capfd: Capfd) -> None:
    summary = Row(
        {"type": "summary", "files": 1, "batches": 2, "records": 1, "bytes_total": 1000,
         "bytes_valid": 900, "bytes_damaged": 60, "bytes_padding": 40}
    )  # fmt: skip
    assert perform(script(FUTURE, BAD_CRC, summary), toy_files(tmp_path, 1), VERIFY) == 1

    out, err = capfd.readouterr()
    assert err == ""
    assert out.splitlines()[2:] == [
        "1 file, 2 batches, 1 record; 1,000 bytes: 900 bytes valid, 60 bytes damaged, 40 bytes padding; 1 error, 1 warning",
        "next: kseg dump a.log",
    ]


def test_sums_of_targets_are_kept_in_json_and_added_up_in_text(tmp_path: Path, capfd: Capfd) -> None:
    one = Row({"type": "verified", "path": "p", "files": 2, "errors": 7, "warnings": 7, "infos": 7})
    style = Style(command="verify", json=True, findings_are_result=True, summary=looked_at_words)
    assert perform(Script({"a.log": (one,), "b.log": (one,)}), toy_files(tmp_path, 2), style) == 0
    first, second, end = lines(capfd.readouterr().out)
    assert first == second == one.values
    assert (end["type"], end["files"], end["errors"], end["warnings"], end["infos"]) == (
        "summary",
        4,
        0,
        0,
        0,
    )
    assert perform(script(one), toy_files(tmp_path, 1), VERIFY) == 0
    assert capfd.readouterr().out == "2 files; 0 errors, 0 warnings\n"


def test_quiet_prints_only_results_and_errors(tmp_path: Path, capfd: Capfd) -> None:
    quiet = Style(command="verify", quiet=True, findings_are_result=True, summary=looked_at_words)
    assert perform(script(GAP, BAD_CRC), toy_files(tmp_path, 1), quiet) == 1
    out, err = capfd.readouterr()
    assert out == "a.log: error: stored 1, computed 2 (bad-crc; bytes 100-170; offsets 5-9)\n"
    assert err == ""


@pytest.mark.parametrize("jobs", [1, 2])
def test_some_failed_targets_of_many_exit_with_5(tmp_path: Path, capfd: Capfd, jobs: int) -> None:
    made = Script(
        {"a.log": (Text(b"a\n"),), "c.log": (Text(b"c\n"), BAD_CRC)}, unreadable=frozenset({"b.log"})
    )
    paths = toy_files(tmp_path, 3)
    assert perform(made, paths, DUMP, jobs) == 5

    out, err = capfd.readouterr()
    assert out == "a\nc\n"
    assert err.splitlines()[0] == f"kseg: cannot read {paths[1]}: toy"
    assert "1 error, 0 warnings, 1 not readable in 3 files" in err


def test_status_is_that_of_the_failure_if_all_targets_failed(tmp_path: Path, capfd: Capfd) -> None:
    made = script(unreadable=frozenset({"a.log", "b.log"}))
    assert perform(made, toy_files(tmp_path, 1), DUMP_JSON) == 3
    assert perform(made, toy_files(tmp_path, 2), DUMP) == 3

    first = lines(capfd.readouterr().out)[0]
    assert first["type"] == "error" and first["exit_status"] == 3 and str(first["path"]).endswith("a.log")


def test_missing_path_among_several_is_one_failure(tmp_path: Path, capfd: Capfd) -> None:
    missing = str(tmp_path / "missing.log")
    status = perform(script(Text(b"a\n")), [missing, *toy_files(tmp_path, 1)], DUMP)

    out, err = capfd.readouterr()
    assert (status, out) == (5, "a\n")
    assert err.splitlines()[0] == f"kseg: cannot read {missing}: No such file or directory"
    with pytest.raises(UnreadableInput):
        perform(script(), [missing], DUMP)


def test_bug_prints_one_report_line_and_a_traceback_on_request(
    tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = script(Text(b"a\n"), buggy=frozenset({"a.log"}))
    (path,) = toy_files(tmp_path, 1)
    monkeypatch.delenv("KSEG_TRACEBACK", raising=False)
    assert perform(made, [path], DUMP) == 70
    out, err = capfd.readouterr()
    assert out == "a\n" and err.splitlines()[0] == f"kseg: bug in kseg at {path}: LookupError: toy bug"
    assert "Traceback" not in err

    monkeypatch.setenv("KSEG_TRACEBACK", "1")
    assert perform(made, [path], DUMP) == 70
    assert "Traceback (most recent call last)" in capfd.readouterr().err


def test_nothing_found_exits_with_1_only_if_no_target_answers(tmp_path: Path) -> None:
    style = Style(command="lookup", json=True, missed=lambda row: row["found"] is False)
    found, missed = Row({"type": "lookup", "found": True}), Row({"type": "lookup", "found": False})
    paths = toy_files(tmp_path, 2)

    assert perform(Script({"a.log": (missed,), "b.log": (found,)}), paths, style) == 0
    assert perform(Script({"a.log": (missed,), "b.log": (missed,)}), paths, style) == 1


def test_missing_path_and_no_match_are_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs at least one PATH"):
        perform(script(), [], DUMP)


def test_control_characters_in_names_are_escaped(tmp_path: Path, capfd: Capfd) -> None:
    odd = Finding("bad-crc", "a\x1b[31m\n.log", "odd\r")
    perform(script(odd), toy_files(tmp_path, 1), DUMP)
    assert capfd.readouterr().err.startswith("$'a\\x1b[31m\\x0a.log': error: odd\\r (bad-crc)\n")


def test_table_has_a_heading_and_aligned_columns(tmp_path: Path, capfd: Capfd) -> None:
    rows = (
        Row({"type": "batch", "base_offset": 0, "compression": "none", "horizon": None}),
        Row({"type": "batch", "base_offset": 1000, "compression": "zstd", "horizon": 7}),
        Row({"type": "record", "key": "k", "control": True}),
    )
    perform(script(*rows), toy_files(tmp_path, 1), Style(command="dump", table=True))
    assert capfd.readouterr().out == (
        "base offset  compression  horizon\n"
        "          0  none               -\n"
        "       1000  zstd               7\n"
        "\n"
        "key  control\n"
        "k    yes\n"
    )


HANGING = """
import os, sys, time
from kseg.cli import main, run_summary
from kseg.cli.render import Style
from kseg.cli.request import Request
from kseg.cli.run import over_targets
from kseg.jobs.events import Text, Row
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import Expansion

def work(target, options):
    if target.path.endswith("a.log"):
        yield Finding("bad-crc", target.path, "toy")
        yield Row({"type": "summary", "files": 1})
        return
    yield Finding("bad-crc", target.path, "begun")
    open(target.path + ".hangs", "w").close()
    time.sleep(600)

def finish_target(self, target, real=run_summary.RunSummary.finish_target):
    real(self, target)
    open(target.path + ".done", "w").close()

run_summary.RunSummary.finish_target = finish_target

def command():
    style = Style(command="verify", findings_are_result=True, summary=lambda tally: f"{tally.errors} errors")
    return over_targets(work, None, style, expand=Expansion.FILES, request=Request(tuple(sys.argv[2:])), jobs=int(sys.argv[1]))

main._dispatch = lambda words: command()
main.main()
"""


def test_killed_worker_fails_only_its_target(tmp_path: Path, capfd: Capfd) -> None:
    paths = toy_files(tmp_path, 3)
    made = Script(
        {"a.log": (Text(b"a\n"),), "b.log": (Text(b"b\n"),), "c.log": (Text(b"c\n"),)},
        killed=frozenset({"b.log"}),
    )
    assert perform(made, paths, DUMP, jobs=2) == 5
    out, err = capfd.readouterr()
    assert {"a", "c"} <= set(out.split())
    assert f"kseg: the process working on {paths[1]} was killed by SIGKILL" in err and "bug" not in err
    every = Script({}, killed=frozenset({"a.log", "b.log", "c.log"}))
    assert perform(every, paths, DUMP, jobs=2) == 3


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGINT, "interrupted"),
        (signal.SIGHUP, "interrupted by SIGHUP"),
        (signal.SIGTERM, "interrupted by SIGTERM"),
    ],
)
def test_signal_ends_with_a_summary_of_what_was_done(
    tmp_path: Path, jobs: str, number: signal.Signals, words: str
) -> None:
    """A terminal sends its signals to all processes."""
    paths = toy_files(tmp_path, 3)
    arguments = [sys.executable, "-c", HANGING, jobs, *paths]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        first, *others = map(Path, paths)
        while process.poll() is None and not (
            first.with_suffix(".log.done").exists()
            and any(path.with_suffix(".log.hangs").exists() for path in others)
        ):
            time.sleep(0.01)
        if number == signal.SIGTERM:
            process.send_signal(number)
        else:
            os.killpg(process.pid, number)
        out, err = process.communicate(timeout=300)

    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert f"kseg verify: {words}: 1 target of 3 done" in err
    assert "a.log: error: toy (bad-crc)" in out and "Traceback" not in err


def test_ignored_signal_stays_ignored() -> None:
    script = (
        "import os, signal\n"
        "from kseg.cli.termination import handle_termination\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "handle_termination()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('lives')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "lives\n"


def test_second_signal_does_not_interrupt_the_handling_of_the_first() -> None:
    script = (
        "from signal import *\n"
        "from kseg.cli.termination import end_by_received_signal, handle_termination\n"
        "handle_termination()\n"
        "try:\n"
        "    raise_signal(SIGINT)\n"
        "except KeyboardInterrupt:\n"
        "    for number in (SIGINT, SIGTERM, SIGHUP):\n"
        "        raise_signal(number)\n"
        "end_by_received_signal()\n"
        "print('done', flush=True)\n"
        "raise_signal(SIGINT)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("done\n", "", -signal.SIGINT)


@pytest.mark.parametrize("is_read", [True, False])
def test_signal_does_not_cut_an_output_line(tmp_path: Path, is_read: bool) -> None:
    """The command waits for the reader of its output; if there is none, it ends soon."""
    code = (
        "import sys\nfrom kseg.cli.termination import handle_termination\nfrom tests.support.stub_commands import *\n"
        "handle_termination()\n"
        "lines = Text(b'[1, 2, 3]\\n' * 12_345)\n"
        "style = Style(command='dump', json=True, summary=lambda tally: '')\n"
        "sys.exit(perform(Script({'a.log': (lines,) * 50}), sys.argv[1:], style))\n"
    )
    words = [sys.executable, "-c", code, *toy_files(tmp_path, 1)]
    with subprocess.Popen(
        words, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.read(10)
        # the pipe of 64 KiB is nearly full
        while _unread_bytes(process.stdout.fileno()) < 60_000:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        if is_read:
            lines = (first + process.stdout.read()).splitlines()
            assert {*lines[:-1]} == {b"[1, 2, 3]"}
            assert json.loads(lines[-1])["interrupted"]
        assert process.wait(300) == 130


def _unread_bytes(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom tests.support.stub_commands import *\n"
        "big = Text(b'x' * 999_999 + b'\\n')\n"
        "status = perform(Script({'a.log': (big,) * 50}), sys.argv[1:], Style(command='dump'))\n"
        "sys.exit(status)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, *toy_files(tmp_path, 1)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read(10) == b"x" * 10
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize("asked", ["list .", "--help", "list --help", "-h", ""])
def test_unwritable_output_is_not_a_bug(tmp_path: Path, asked: str) -> None:
    """`/dev/full` fails like a file on a full disk."""
    (tmp_path / "t-0").mkdir()
    words = [sys.executable, "-m", "kseg", *asked.replace(".", str(tmp_path)).split()]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, check=False, cwd=ROOT, text=True)
    assert done.returncode == 4
    assert done.stderr == "kseg: cannot write the standard output: No space left on device\n"


def test_verdict_of_an_interrupted_run_says_how_much_it_covers(
    tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("metro-0", "metro-1", "metro-2"):
        healthy.partition(tmp_path / name)
    check = partition_check.verify_partition

    def interrupted(target: PartitionTarget, options: VerifyOptions, totals: Totals) -> Iterator[Event]:
        if target.path.endswith("metro-1"):
            raise KeyboardInterrupt
        return check(target, options, totals)

    monkeypatch.setattr(partition_check, "verify_partition", interrupted)
    assert run(["verify", "--jobs", "1", str(tmp_path)]) == 130
    out, err = capfd.readouterr()
    assert out.startswith("INTERRUPTED after 2 of 4 targets; of these: SOUND: no errors, 1 warning\n")
    assert "kseg verify: interrupted: 2 targets of 4 done" in err
