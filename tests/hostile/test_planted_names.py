"""Directories and files of every name and kind that a file system accepts: no command hangs, ends with a bug, or passes a name to the
terminal unescaped."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kseg.inspection.export.writers import _escaped
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.model import NewBatch, Record
from kseg.segment.terminal import for_terminal, shell_quoted, visible

NAMES = (
    b"line\nfeed-0",
    b"escape\x1b[31m-0",
    b"c1\xc2\x9b31m-0",
    b"turned\xe2\x80\xaegnp-0",
    b"isolated\xe2\x81\xa6x-0",
    b"nothing\xe2\x80\x8bthere-0",
    b"bytes\xff\x9b-0",
    b"--apply-0",
    b"..-0",
    b"...-0",
    b"quote'\"$(true)-0",
    b"x" * 240 + b"-0",
)
LOG = f"{0:020}.log"
COMMANDS = (
    ["verify"],
    ["list"],
    ["dump"],
    ["dump", "--format", "table"],
    ["dump", "--json"],
    ["recover"],
    ["compact", "--cleanup-policy", "compact"],
    ["retain", "--retention-ms", "1", "--cleanup-policy", "delete"],
    ["lookup", "--latest"],
)
OWN_COLOURS = re.compile("\x1b\\[(1;31|33|36|32|0)m")
DIGESTED = ("verify", "recover", "compact", "retain")
UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\udc80-\udcff]"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a partition for each name, one of which contains files of every kind."""
    directory = tmp_path_factory.mktemp("planted") / "data"
    directory.mkdir()
    (directory / "meta.properties").write_bytes(b"version=1\nnode.id=1\ncluster.id=x\n")
    batch = encode_batch(NewBatch(records=(Record(0, 1, b"key", b"value", ()),)))
    for name in NAMES:
        partition = os.path.join(os.fsencode(directory), name)
        os.mkdir(partition)
        for file in (LOG.encode(), name[:-2][:200] + b".txt"):
            with open(os.path.join(partition, file), "wb") as out:
                out.write(batch)
    odd = directory / "odd-0"
    odd.mkdir()
    (odd / LOG).write_bytes(batch)
    for number, suffix in enumerate(
        (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".log.deleted"), 5
    ):
        os.mkfifo(odd / f"{number:020}{suffix}")
        (odd / f"{number + 20:020}{suffix}").symlink_to("/dev/zero")
        (odd / f"{number + 40:020}{suffix}").mkdir()
    for side in ("leader-epoch-checkpoint", "partition.metadata", "quorum-state"):
        os.mkfifo(odd / side)
    for side in (
        "recovery-point-offset-checkpoint",
        "cleaner-offset-checkpoint",
        ".kafka_cleanshutdown",
        ".lock",
    ):
        os.mkfifo(directory / side)
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(".", os.O_RDONLY)
        os.chdir(odd)
        server.bind(f"{99:020}.log")
        os.fchdir(here)
        os.close(here)
    (directory / "ring-0").symlink_to("ring-0")
    return directory


def on_terminal(arguments: list[str]) -> tuple[int, bytes]:
    """The exit status, and everything that is written to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "kseg", *arguments], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            # the other end is closed and everything is read
            except OSError:
                break
            if not piece:
                break
            shown += piece
        status = process.wait(timeout=600)
    os.close(ours)
    return status, shown


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_file_names_are_escaped_on_a_terminal(command: list[str], data: Path) -> None:
    status, shown = on_terminal([*command, "--no-progress", str(data)])
    assert status in (0, 1, 4, 5), shown.decode(errors="replace")
    text = OWN_COLOURS.sub("", shown.decode("utf-8", "surrogateescape").replace("\r\n", "\n"))
    assert not UNSEEN.search(text), UNSEEN.findall(text)
    assert "line\nfeed" not in text
    # these commands show only the first few names
    if command[0] in DIGESTED:
        _, shown = on_terminal([*command, "--verbose", "--no-progress", str(data)])
        text = OWN_COLOURS.sub("", shown.decode("utf-8", "surrogateescape").replace("\r\n", "\n"))
        assert not UNSEEN.search(text), UNSEEN.findall(text)
    assert "line\nfeed" not in text
    assert "line\\nfeed" in text or "$'line\\x0afeed" in text, "it is escaped, in words or for a shell"


def test_dump_into_a_pipe_prints_names_like_kafka(data: Path) -> None:
    paths = [os.path.join(os.fsencode(data), name, LOG.encode()) for name in NAMES]
    done = subprocess.run([sys.executable, "-m", "kseg", "dump", *paths], capture_output=True, check=True)
    rest = done.stdout
    for path in paths:
        begin = b"Dumping " + path + b"\n"
        assert rest.startswith(begin)
        dumped, _, behind = rest[len(begin) :].partition(b"isvalid: true\n")
        assert dumped.count(b"\n") == 1, "the line of the offset, and then the batch"
        rest = behind
    assert rest == b""


def test_no_command_opens_a_device(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a device can have side effects (a watchdog, a tape), and a link in the evidence may lead to one."""
    opened: list[str] = []
    really_open = os.open

    def noting(path: str, *more: int, **others: int) -> int:
        opened.append(os.path.realpath(path))
        return really_open(path, *more, **others)

    monkeypatch.setattr(os, "open", noting)
    for path in (data / "odd-0").glob("*.log"):
        if path.is_symlink():
            with pytest.raises(UnreadableInput, match="not a regular file"):
                MappedFile(path)
    assert "/dev/zero" not in opened


def test_quoted_path_is_read_back_by_a_shell(data: Path) -> None:
    for name in NAMES:
        quoted = shell_quoted(os.fsdecode(name))
        assert not UNSEEN.search(quoted)
        output = subprocess.run(["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True)
        assert output.stdout == (b"./" if name.startswith(b"-") else b"") + name


def test_json_escaped_for_a_terminal_stays_json() -> None:
    text = '{"a":"\u202e\x7f\x9b\u2028\U000e0041","b":"é😀"}\n'
    shown = for_terminal(text.encode()).decode()
    import json

    assert json.loads(shown) == json.loads(text) and not UNSEEN.search(shown)


def test_export_directories_have_safe_unique_names() -> None:
    texts = [os.fsdecode(name[:-2]) for name in NAMES]
    names = [_escaped(text) for text in texts]
    assert len({*names}) == len(texts)
    for name in names:
        assert "/" not in name and "\0" not in name and not UNSEEN.search(name) and visible(name) == name


@pytest.mark.parametrize("command", ["verify", "list"])
def test_printed_paths_are_read_back_by_a_shell(command: str, data: Path) -> None:
    """bash turns each printed `$'…'` back into the bytes of an existing path."""
    done = subprocess.run(
        [sys.executable, "-m", "kseg", command, "--verbose", str(data)], capture_output=True, check=False
    )
    assert b"\x1b" not in done.stdout
    words = set(re.findall(rb"(?:^|in |  )(\$'(?:[^'\\]|\\.)*')(?=[:,\s]|$)", done.stdout, re.MULTILINE))
    script = b"for path in " + b" ".join(words) + b"; do printf '%s\\0' \"$path\"; done"
    taken = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout.split(b"\0")[:-1]
    assert taken and all(os.path.lexists(path) for path in taken)
    folder = os.fsencode(data)
    seen = {path.removeprefix(folder + b"/").partition(b"/")[0] for path in taken}
    assert {*NAMES[:7]} <= seen


def test_json_distinguishes_all_paths(data: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kseg", "list", "--json", str(data)], capture_output=True, check=False
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    folders = {os.fsencode(row["directory"]) for row in rows if row["type"] == "partition"}
    assert {os.path.join(os.fsencode(data), name) for name in NAMES} <= folders
