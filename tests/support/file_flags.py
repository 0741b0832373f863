"""Make files and directories immutable or append-only during a test (`chattr`)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def flagged(path: Path, letter: str) -> Iterator[None]:
    """letter: i or a. Skips the test if chattr is missing or the file system has no such flags (tmpfs before Linux 6.6)."""
    if os.geteuid() != 0 or shutil.which("chattr") is None:
        pytest.skip("only root sets the flags of files, with chattr")
    made = subprocess.run(["chattr", f"+{letter}", str(path)], check=False, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no flags of files here: {made.stderr}")
    try:
        yield
    finally:
        subprocess.run(["chattr", f"-{letter}", str(path)], check=True)
