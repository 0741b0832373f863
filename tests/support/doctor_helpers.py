"""Run `kseg doctor` as a script does, and read its rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.command_rows import Rows, of_type, rows_of

NOW = ("--now", "1795250600000")


def doctor(capfd: pytest.CaptureFixture[str], *words: object, status: int) -> Rows:
    return rows_of(capfd, "doctor", *NOW, *words, status=status)


def text_of(capfd: pytest.CaptureFixture[str], *words: object) -> list[str]:
    capfd.readouterr()
    run(["doctor", *NOW, *map(str, words)])
    return capfd.readouterr().out.splitlines()


def commands(rows: Rows) -> list[str]:
    return [row["command"] for row in of_type(rows, "step")]


def beside(capture_small: Path, root: Path, partition: str, **changes: str) -> list[Path]:
    """A data directory, and a second one of the same node with a copy of fares-0. changes: to the second one's meta.properties."""
    data, second = Path(shutil.copytree(capture_small / "data", root / "data")), root / "second"
    shutil.copytree(data / "fares-0", second / partition)
    values = dict(
        line.split("=", 1) for line in (data / "meta.properties").read_text().splitlines() if "=" in line
    )
    values |= {"directory.id": "AsCu_Qd6HlJL_AROE7wUxg"} | {
        key.replace("_", "."): each for key, each in changes.items()
    }
    (second / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return [data, second]
