"""Mount file systems for a test, as root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(place: Path, *words: str) -> Iterator[Path]:
    """A file system mounted at a new directory. words: arguments of `mount`. Skips the test if it cannot be mounted."""
    place.mkdir()
    done_or_skipped(["mount", *words, str(place)])
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def done_or_skipped(words: list[str]) -> None:
    """Run a command that makes or mounts a file system; skips the test if the command fails."""
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no such file system can be mounted here: {error}")
