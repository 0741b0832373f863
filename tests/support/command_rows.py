"""The rows that a command prints with `--json`."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any

import pytest

from kseg.cli.main import run

Rows = list[dict[str, Any]]


def rows_of(capfd: pytest.CaptureFixture[str], *words: object, status: int | Container[int] = (0, 1)) -> Rows:
    """words: the command, its options and paths, without `--json`. status: with which, or with one of which, it has to end."""
    capfd.readouterr()
    ended = run([*map(str, words), "--json"])
    shown = capfd.readouterr()
    assert ended in ((status,) if isinstance(status, int) else status), (ended, shown.err)
    return [json.loads(line) for line in shown.out.splitlines()]


def of_type(rows: Rows, kind: str) -> Rows:
    return [row for row in rows if row["type"] == kind]
