"""The rows that a command prints with `--json`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kseg.cli.main import run

Rows = list[dict[str, Any]]


def rows_of(capfd: pytest.CaptureFixture[str], *words: object, status: int | None = None) -> Rows:
    """words: the command, its options and paths, without `--json`. status: with which it has to end; None for 0 or 1."""
    capfd.readouterr()
    ended = run([*map(str, words), "--json"])
    shown = capfd.readouterr()
    assert ended in ((0, 1) if status is None else (status,)), (ended, shown.err, shown.out)
    return [json.loads(line) for line in shown.out.splitlines()]


def of_type(rows: Rows, kind: str) -> Rows:
    return [row for row in rows if row["type"] == kind]
