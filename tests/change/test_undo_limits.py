"""Undo of a run over many directories on a system that allows few open files."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.paths import ROOT
from tests.support.trees import tree_state

DIRECTORIES = 80


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    """A data directory with this number of partitions, each with a torn log."""
    data = tmp_path / "data"
    for number in range(DIRECTORIES):
        shutil.copytree(capture_small / "data" / "metro-none-0", data / f"metro-{number}")
        with max((data / f"metro-{number}").glob("*.log")).open("ab") as log:
            log.write(b"torn")
    return data


@pytest.mark.slow
def test_undo_raises_a_low_limit_of_open_files(data: Path) -> None:
    """A shell has a limit of 1,024 by default, and a broker has thousands of partitions."""
    before = tree_state(data)
    assert run(["recover", "--apply", "--quiet", str(data)]) in (0, 1)
    # a separate process, because this one may have more files open than that
    limited = ["sh", "-c", 'ulimit -Sn 64 && exec "$0" -m kseg undo --quiet "$1"', sys.executable, str(data)]
    assert subprocess.run(limited, check=False, cwd=ROOT).returncode == 0
    assert tree_state(data) == before


def test_undo_names_a_limit_of_open_files_it_cannot_raise(
    data: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["recover", "--apply", "--quiet", str(data)]) in (0, 1)
    changed = tree_state(data)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (64, 128))
    capfd.readouterr()
    assert run(["undo", str(data)]) == 4
    sentence = capfd.readouterr().err
    assert f"{DIRECTORIES + 1} directories are undone together" in sentence and "the limit is 128" in sentence
    assert (
        "nothing was changed: repeat the command in a shell with a higher limit (`ulimit -n 337`)" in sentence
    )
    assert tree_state(data) == changed
