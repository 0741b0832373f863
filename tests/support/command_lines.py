"""Command lines as a script runs them (`--json`, parsed rows), and the default number of processes in tests."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kseg.cli.main import run
from tests.support.paths import ROOT

ROOMS = ("segment", "jobs", "change", "internal_topics", "inspection", "compaction", "recovery")
NOT_IMPORTED = ("kseg.inspection.arrow", "kseg.inspection.export")
Rows = list[dict[str, Any]]
Say = Callable[..., tuple[int, Rows]]
Capfd = pytest.CaptureFixture[str]  # so that most signatures of tests fit into a line


def json_run(*words: object, capfd: Capfd) -> tuple[int, Rows]:
    """The exit status of a command, and its rows."""
    capfd.readouterr()
    status = run([str(words[0]), "--json", *map(str, words[1:])])
    return status, [json.loads(line) for line in capfd.readouterr().out.splitlines()]


@contextmanager
def default_jobs(jobs: int) -> Iterator[None]:
    """While active, `--jobs` defaults to this number for commands called in this process, not to the number of cores."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("kseg.cli.options", "kseg.cli.run"):
            patch.setattr(f"{module}.default_jobs", lambda: jobs)
        yield


def import_work() -> None:
    """Import the modules that commands use, so that forked processes need not. Leaves out those that need Arrow, which starts threads."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = ".".join(("kseg", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
            if not name.startswith(NOT_IMPORTED):
                importlib.import_module(name)
