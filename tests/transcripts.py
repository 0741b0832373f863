"""The end-to-end output of commands in incidents: one file for each incident in `tests/cli/transcripts/`.

`python -m tests.transcripts` rewrites them, so that a change of wording is a diff to review; `tests/cli/test_transcripts.py` compares. The
directories are created by `tests/support/broker_dirs`, the clock is fixed, and ids of runs are replaced.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import _lru_cache_wrapper
from pathlib import Path

import pytest

import kseg.cli.run
from kseg.cli.main import run
from kseg.segment.kernel import bad_pages
from tests.support.paths import ROOT
from tests.transcript_directories import END, NOW_MS
from tests.transcript_incidents import INCIDENTS, Incident

FOLDER = ROOT / "tests" / "cli" / "transcripts"
_RUN = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")
_FREE = re.compile(r"[\d,]+ (bytes )?are free")
# depends on the block size of the file system
_ROOM = re.compile(r"needs up to \S+ \w+ of room")
# depends on it as well
_WRITTEN = re.compile(r", \S+ [KMG]iB to write")
# depends on this machine
_MOUNTED = re.compile(r"[^ ]+ (\w+ )?of \S+ \w+ free \(\d+ %\).*")
_NEEDED = re.compile(r"[\d,]+ bytes (or more )?are needed")
_STAGED = re.compile(r"/\S+/(\.out\.kseg)-\w+/(part-\S+?)-[0-9a-f]{8}-[0-9a-f]{8}\.")
# journals contain inode numbers, which vary in length
_HELD = re.compile(r"(holds|holding) [1-9][\d,.]* (bytes|[KMG]iB)")
_KEPT = re.compile(r"(kept for undo: \d+), [\d.]+ (KiB|bytes)")
_FREED = re.compile(r"[1-9][\d,.]* (?:bytes|[KMG]iB) (to be )?freed")
_STARTED = re.compile(r"^\S+Z (?=[a-z]+ of )", re.MULTILINE)


@contextlib.contextmanager
def stage(make: Callable[[Path], object]) -> Iterator[None]:
    """Run `make` in a folder, which is the current directory meanwhile. The clock stands still."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), _still_clock():
        make(Path())
        for path in Path("data").rglob("*"):
            os.utime(path, ns=(NOW_MS * 1_000_000, NOW_MS * 1_000_000))
        # bad areas that an earlier incident found, whose inodes may be reused
        bad_pages.forget()
        yield
    bad_pages.forget()


def transcript(incident: Incident) -> str:
    """The commands of an incident and their output, with the exit status of each."""
    with stage(incident.make), pytest.MonkeyPatch.context() as patch:
        if incident.disk is not None:
            incident.disk(patch)
        return "\n".join(reported(line, incident) for line in incident.commands)


def reported(line: str | Callable[[], None], incident: Incident | None = None) -> str:
    """The output of a command and its exit status, with variable parts replaced. incident: if it needs a terminal."""
    if not isinstance(line, str):
        line()
        return f"# {line.__doc__}\n"
    forget()
    words = shlex.split(line)
    terminal = incident is not None and incident.columns is not None
    status, printed = _on_terminal(words, incident) if incident and terminal else in_pipe(words)
    text = _FREE.sub("N are free", _RUN.sub("RUN", printed.decode().replace("\r\n", "\n")))
    text = _MOUNTED.sub("N GiB of N GiB free (N %); FILE SYSTEM at MOUNT (OPTIONS)", text)
    text = _ROOM.sub("needs up to N KiB of room", text)
    text = _WRITTEN.sub(", N MiB to write", text)
    text = _NEEDED.sub(r"N bytes \1are needed", text)
    text = _STAGED.sub(r"\1-RUN/\2-RUN.", text)
    text = _KEPT.sub(r"\1, N KiB", text)
    text = _FREED.sub(r"N KiB \1freed", text)
    text = _HELD.sub(r"\1 N KiB", _STARTED.sub("TIME ", text))
    return f"$ kseg {line}\n{text.replace(chr(27), '<ESC>')}(exit status {status})\n"


def forget() -> None:
    """Clear caches that a new process would not have, about files that were replaced by others with the same inodes and times."""
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "kseg":
            for value in [*vars(module).values()]:
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()


def in_pipe(words: list[str]) -> tuple[int, bytes]:
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file, _instead(1, file.fileno()), _instead(2, file.fileno()):
        stderr, sys.stderr = sys.stderr, open(2, "w", closefd=False)  # noqa: SIM115  (closed with its descriptor)
        try:
            status = run([*words, "--jobs", "1"] if words[0] not in ("undo", "read") else words)
        finally:
            sys.stderr = stderr
        file.seek(0)
        return status, file.read()


@contextlib.contextmanager
def _instead(descriptor: int, other: int) -> Iterator[None]:
    kept = os.dup(descriptor)
    os.dup2(other, descriptor)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)


def _on_terminal(words: list[str], incident: Incident) -> tuple[int, bytes]:
    """Run in a separate process, which ends after all of its output was read: some kernels lose what a terminal still buffers when its last
    process exits."""
    read_side, write_side = os.pipe()
    child, master = pty.fork()
    if not child:
        os.close(write_side)
        status = 70
        with contextlib.suppress(BaseException):
            os.environ.pop("NO_COLOR", None)
            os.environ.update({"TERM": "xterm", "COLUMNS": str(incident.columns), **dict(incident.variables)})
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  (the process ends here)
            status = run([*words, "--jobs", "1", "--no-progress"])
        os.write(1, END)
        os.read(read_side, 1)
        os._exit(status)
    os.close(read_side)
    printed = b""
    # the error of a terminal whose other side is closed
    with contextlib.suppress(OSError):
        while not printed.endswith(END) and (data := os.read(master, 1 << 16)):
            printed += data
    os.close(write_side)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(master)
    return status, printed.removesuffix(END)


@contextlib.contextmanager
def _still_clock() -> Iterator[None]:
    really = kseg.cli.run.clock_ms
    kseg.cli.run.clock_ms = lambda now_ms=None: NOW_MS if now_ms is None else now_ms
    try:
        yield
    finally:
        kseg.cli.run.clock_ms = really


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for incident in INCIDENTS:
        (FOLDER / f"{incident.name}.txt").write_text(transcript(incident), encoding="utf-8")


if __name__ == "__main__":
    main()
