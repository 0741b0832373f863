"""Run kseg in processes that need not import it: a server imports it once and forks a child for each command line.

    python -m tests.support.forked_programs MODULE...     imports kseg and these, and serves requests on stdin until that ends

A program that reads a bucket imports an S3 client for 0.4 s of processor time, more than most commands take otherwise. A forked child has
it already. In every other respect it is a separate program, with its own environment, output, exit status and memory. --jobs defaults to 1,
because the worker of a program that reads a bucket is a new process that would import the client as well.

`run_kseg` is for tests that need a separate program and read no bucket: importing kseg alone takes 0.2 s of processor time.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from kseg.cli.registry import COMMANDS, module_of
from tests.support.command_lines import default_jobs, import_work
from tests.support.paths import ROOT


class ForkedPrograms:
    """A running server. Not suited to tests of what the program imports."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def kseg(
        self, words: Sequence[str], environment: Mapping[str, str], jobs: int | None = 1
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line in ROOT. jobs: what --jobs defaults to, None for the program's own default."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with tempfile.TemporaryDirectory() as place:
            files = [Path(place, name) for name in ("stdout", "stderr")]
            request = {
                "words": words,
                "environment": dict(environment),
                "files": [*map(str, files)],
                "jobs": jobs,
            }
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            status = int(self._process.stdout.readline())
            output, errors = (file.read_text() for file in files)
        return subprocess.CompletedProcess([*words], status, output, errors)


# the server of a test process, with the id of that process
_shared: list[tuple[int, ForkedPrograms]] = []
_at_exit = ExitStack()


def run_kseg(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command line of kseg as a program of its own, in ROOT."""
    if not _shared or _shared[0][0] != os.getpid():
        _shared[:] = [(os.getpid(), _at_exit.enter_context(forked_programs()))]
    return _shared[0][1].kseg([*map(str, words)], os.environ, jobs=None)


@atexit.register
def _end_shared() -> None:
    if _shared and _shared[0][0] == os.getpid():
        _at_exit.close()


@contextmanager
def forked_programs(*modules: str) -> Iterator[ForkedPrograms]:
    """A server that has also imported these modules."""
    command = [sys.executable, "-m", __name__, *modules]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield ForkedPrograms(process)
        assert process.stdin is not None
        process.stdin.close()


def _serve(modules: Sequence[str]) -> None:
    import_work()
    for command in COMMANDS:
        module_of(command)
    for module in modules:
        importlib.import_module(module)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            _become(**request)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(
    words: Sequence[str], environment: Mapping[str, str], files: Sequence[str], jobs: int | None
) -> None:
    from kseg.cli.main import main

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["kseg", *words]
    with nullcontext() if jobs is None else default_jobs(jobs):
        # does not return
        main()


if __name__ == "__main__":
    _serve(sys.argv[1:])
