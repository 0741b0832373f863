"""Command lines as a script runs them: `--json`, and the resulting rows."""

from __future__ import annotations

import json
from collections.abc import Callable
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
