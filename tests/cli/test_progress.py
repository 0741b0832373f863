"""The progress bar appears only on a terminal and for long runs, and is never mixed with results."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.internal_topics.metadata_logs import topic, topic_id, write_log
from tests.internal_topics.remote_logs import upload, write_remote_log
from tests.support.broker_dirs import broker_dir
from tests.support.group_dirs import went_back
from tests.support.paths import ROOT
from tests.support.stub_commands import toy_files

SLOW = """
import sys, time
from kseg.cli.render import Style
from kseg.cli.request import Request
from kseg.cli.run import over_targets
from kseg.jobs.events import Advance
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import Expansion

def work(target, options):
    for _ in range(8):
        time.sleep(0.1)
        yield Advance(target.path, 1 << 20)
    yield Finding("bad-crc", target.path, "toy")

progress, jobs, *paths = sys.argv[1:]
style = Style(command="verify", findings_are_result=True, progress=progress == "yes")
sys.exit(over_targets(work, None, style, expand=Expansion.FILES, request=Request(tuple(paths)), jobs=int(jobs)))
"""


def errors_of(
    paths: list[str], *, progress: str, jobs: str, terminal: bool, script: str = SLOW
) -> tuple[bytes, bytes]:
    """(stdout, stderr) of the slow toy command. stderr is a terminal or a pipe, stdout always a pipe."""
    return streams_of([sys.executable, "-c", script, progress, jobs, *paths], terminal=terminal, status=1)


def streams_of(command: list[str], *, terminal: bool, status: int) -> tuple[bytes, bytes]:
    """(stdout, stderr) of any command, which must exit with `status`."""
    parent, child = pty.openpty() if terminal else os.pipe()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=child, cwd=ROOT, env=environment
    ) as process:  # fmt: skip
        os.close(child)
        assert process.stdout is not None
        out = process.stdout.read()
        seen = b""
        while True:
            try:
                piece = os.read(parent, 65536)
            except OSError:
                break
            if not piece:
                break
            seen += piece
    os.close(parent)
    assert process.returncode == status
    return out, seen


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_progress_bar_goes_to_the_terminal_and_results_to_stdout(tmp_path: Path, jobs: str) -> None:
    partition = tmp_path / "orders-0"
    partition.mkdir()
    paths = toy_files(partition, 2)
    out, seen = errors_of(paths, progress="yes", jobs=jobs, terminal=True)
    assert re.search(rb"orders-0/[ab]\.log", seen) and b"MiB" in seen  # whichever reported its bytes last
    # the bar is erased at the end
    assert seen.count(b"\x1b[2K") >= 1
    assert out.decode().splitlines()[:2] == [f"{path}: error: toy (bad-crc)" for path in paths]


def test_progress_bar_escapes_control_characters(tmp_path: Path) -> None:
    partition = tmp_path / ("\x1b]0;owned\x07" + "long" * 20)
    partition.mkdir()
    _, seen = errors_of(toy_files(partition, 1), progress="yes", jobs="1", terminal=True)
    assert b"\x1b]0" not in seen and b"\x07" not in seen
    assert b"longlong/a.log" in seen.replace("…".encode(), b"")


@pytest.mark.parametrize(("progress", "terminal"), [("no", True), ("yes", False)])
def test_no_progress_bar_without_a_terminal_or_when_disabled(
    tmp_path: Path, progress: str, terminal: bool
) -> None:
    _, seen = errors_of(toy_files(tmp_path, 1), progress=progress, jobs="1", terminal=terminal)
    assert seen == b""


STEADY = """
import sys, time
from kseg.cli.render import Style
from kseg.cli.request import Request
from kseg.cli.run import over_targets
from kseg.cli.text.verify import VerifyReport
from kseg.jobs.events import Row
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import Expansion

def work(target, options):
    time.sleep(0.3)
    yield Finding("bad-crc", target.path, "toy")
    yield Row({"type": "verified", "path": target.path, "kind": "file", "errors": 1})

progress, jobs, *paths = sys.argv[1:]
style = Style(command="verify", findings_are_result=True, progress=progress == "yes", report=VerifyReport())
sys.exit(over_targets(work, None, style, expand=Expansion.FILES, request=Request(tuple(paths)), jobs=int(jobs)))
"""


def test_progress_without_bytes_shows_targets_and_errors(tmp_path: Path) -> None:
    paths = toy_files(tmp_path, 6)
    out, seen = errors_of(paths, progress="yes", jobs="1", terminal=True, script=STEADY)
    assert b" of 6 targets, " in seen and b" errors" in seen
    assert out.decode().splitlines()[0].startswith("DAMAGED: 6 errors")


# --- every command that can take long

EVERY = """
import sys
from kseg.cli import progress
from kseg.cli.main import run
progress.PATIENCE_SECONDS = progress.REDRAW_SECONDS = -1.0
sys.exit(run(sys.argv[1:]))
"""
COMMANDS: dict[str, tuple[str, ...]] = {
    "verify": (),
    "doctor": (),
    "list": ("--count",),
    "list --remote": ("of-remote",),
    "metadata": ("of-metadata",),
    "dump": ("--format", "table"),
    "lookup": ("--key", "key-5"),
    "transactions": (),
    "groups": ("of-groups/data",),
    "export": ("--to", "json", "--output", "out"),
    "what-if": ("--codec", "none"),
    "recover": (),
    "recover --apply": (),
    "undo": (),
    "undo --list": (),
    "append": ("--from", "lines.jsonl", "fresh-0"),
    "append --apply": ("--from", "lines.jsonl", "fresh-0"),
    "diff": ("data.other",),
    "compact": ("--cleanup-policy", "compact"),
    "retain": ("--retention-ms", "7d", "--cleanup-policy", "delete"),
    "retain --free": ("1", "--cleanup-policy", "delete"),
    "compact --apply": ("--cleanup-policy", "compact"),
    "retain --apply": ("--retention-ms", "7d", "--cleanup-policy", "delete"),
    "undo --forget": (),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = broker_dir(tmp_path_factory.mktemp("progress") / "data", 1, 3)
    shutil.copytree(data, data.with_name("data.other"))
    went_back(data.parent / "of-groups")
    records = [upload(("orders", topic_id(1), 0), topic_id(at % 250), at, at, {0: at}) for at in range(3000)]
    write_remote_log(data.parent / "of-remote" / "__remote_log_metadata-0", records)
    topics = [topic(f"t{at}", topic_id(at % 250)) for at in range(500)]
    write_log(data.parent / "of-metadata" / "__cluster_metadata-0", *topics)
    line = '{"type":"record","value":"some words"}\n'
    data.with_name("lines.jsonl").write_text(line * 20_000, encoding="utf-8")
    return data


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_long_command_shows_progress(command: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the table, because undo needs a previous apply."""
    monkeypatch.chdir(data.parent)
    if command == "undo":
        run(["recover", "--apply", "--quiet", str(data)])
    parent, child = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    words = [*command.split(), *COMMANDS[command]]
    if words[-1] not in ("fresh-0", "of-groups/data", "of-remote", "of-metadata"):
        words.append(data.name)
    with subprocess.Popen(
        [sys.executable, "-c", EVERY, *words], stdout=subprocess.PIPE, stderr=child, env=environment
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=process.stdout.read)
        reader.start()
        seen = b""
        while b"0:00:0" not in seen and (process.poll() is None or select.select([parent], [], [], 0)[0]):
            if select.select([parent], [], [], 0.05)[0]:
                seen += os.read(parent, 1 << 16)
        # further output is not checked, but must be read
        while process.poll() is None:
            if select.select([parent], [], [], 0.05)[0]:
                os.read(parent, 1 << 16)
        reader.join()
    os.close(child)
    os.close(parent)
    assert b"0:00:0" in seen, "the time that has passed, at the end of the bar"
    assert process.returncode in (0, 1)


def test_undo_progress_counts_directories_before_the_first_result(tmp_path: Path) -> None:
    """The directories are restored together, so no row is printed before all are done."""
    data = broker_dir(tmp_path / "data", 1, 3, running=True)
    assert run(["recover", "--apply", "--quiet", str(data)]) == 0
    _, seen = streams_of([sys.executable, "-c", EVERY, "undo", str(data)], terminal=True, status=0)
    counts = re.findall(rb"(\d+) of (\d+) (journals read|directories checked|directories restored)", seen)
    assert {what for _, _, what in counts} == {
        b"journals read",
        b"directories checked",
        b"directories restored",
    }
    assert counts[-1][0] == counts[-1][1]
