"""The set-up commands on a machine that lacks something: one sentence, never a traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

NEEDED = ("sh", "dirname", "cat", "cksum", "echo")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A copy of what the set-up reads, beside an empty PATH folder `bin`."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "prepare", tmp_path / ".ci" / "prepare")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "bin").mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin" / name).symlink_to(found)
    return tmp_path


def fake_python(folder: Path, script: str) -> None:
    path = folder / "bin" / "python3"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def prepare(folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    return subprocess.run(
        [str(folder / "bin" / "sh"), str(folder / ".ci" / "prepare")],
        env=environment | {"PATH": str(folder / "bin")} | more,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("python", [None, "exit 1"])
def test_missing_or_too_old_python_is_reported(bare: Path, python: str | None) -> None:
    if python:
        fake_python(bare, python)
    done = prepare(bare)
    assert done.returncode == 1
    assert done.stderr == (
        "cannot set up kseg: Python 3.11 or newer is needed and none was found (PYTHON=/path/to/python names one)\n"
    )


def test_python_without_venv_is_reported(bare: Path) -> None:
    fake_python(bare, 'case "$2" in *version_info*) exit 0;; esac; exit 1')
    done = prepare(bare)
    assert done.returncode == 1
    assert "has no venv module (on Debian and Ubuntu: apt install python3-venv)" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(shutil.which("timeout") is None, reason="no GNU timeout")
def test_unresponsive_package_index_is_reported(bare: Path) -> None:
    """The interpreter of .venv represents a pip that waits forever."""
    for name in ("timeout", "true", "sleep"):
        (bare / "bin" / name).symlink_to(str(shutil.which(name)))
    (bare / ".venv" / "bin").mkdir(parents=True)
    python = bare / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\ncase "$*" in *"pip install"*) exec sleep 600;; esac\n')
    python.chmod(0o755)
    done = prepare(bare, KSEG_SETUP_LIMIT_S="1")
    assert done.returncode == 1
    assert "cannot set up kseg: not finished after 1 seconds: pip could not install kseg" in done.stderr


def test_packages_that_cannot_be_fetched_are_reported(bare: Path) -> None:
    """The interpreter of .venv represents a pip that installs kseg itself, but finds none of the packages that kseg needs."""
    (bare / "bin" / "cc").symlink_to(str(shutil.which("true")))
    (bare / ".venv" / "bin").mkdir(parents=True)
    python = bare / ".venv" / "bin" / "python"
    python.write_text(
        '#!/bin/sh\ncase "$*" in *"pip install"*" -r "*) echo "no such package"; exit 1;; esac\n'
    )
    python.chmod(0o755)
    done = prepare(bare)
    assert done.returncode == 1
    assert "no such package\n" in done.stderr
    assert "cannot set up kseg: pip could not install what kseg needs" in done.stderr
    # the next attempt installs only what is missing
    assert (bare / ".venv" / "kseg-stamp").exists() and not (bare / ".venv" / "tools-stamp").exists()


def test_continuous_integration_runs_the_test_command_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "\n./check " in readme and "\n./demo " in readme
    assert 'exec "$(dirname "$0")/../check"' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for script in ("demo", "check", ".ci/run", ".ci/prepare"):
        assert os.access(ROOT / script, os.X_OK)
