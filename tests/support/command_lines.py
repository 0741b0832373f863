"""Command lines as a script runs them: `--json`, and the resulting rows; and with how many processes, where nobody says it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kseg.cli.main import run

Rows = list[dict[str, Any]]
Say = Callable[..., tuple[int, Rows]]


def json_run(*words: object, capfd: pytest.CaptureFixture[str]) -> tuple[int, Rows]:
    """The exit status of a command, and its rows."""
    capfd.readouterr()
    status = run([str(words[0]), "--json", *map(str, words[1:])])
    return status, [json.loads(line) for line in capfd.readouterr().out.splitlines()]


@contextmanager
def default_jobs(jobs: int) -> Iterator[None]:
    """A command that is called inside has this default of `--jobs`, and not the number of cores."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("kseg.cli.options", "kseg.cli.run"):
            patch.setattr(f"{module}.default_jobs", lambda: jobs)
        yield
