"""File systems of their own for a test, which root may mount."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(place: Path, *words: str) -> Iterator[Path]:
    """A file system mounted at a new directory. words: for `mount`. The test is skipped where that is not possible."""
    place.mkdir()
    done_or_skipped(["mount", *words, str(place)])
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def done_or_skipped(words: list[str]) -> None:
    """Run a command that makes or mounts a file system; the test is skipped if it fails."""
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no such file system can be mounted here: {error}")
