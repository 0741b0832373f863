"""A disk on which some renames fail, so that a change stops halfway."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kseg.change.apply.disk import Disk


@contextmanager
def failing_renames(
    monkeypatch: pytest.MonkeyPatch, error: int, fails: Callable[[str, str], bool]
) -> Iterator[None]:
    """While active, a rename fails with `error` if `fails` is true for its old and new path."""
    rename = Disk.rename

    def renamed(disk: Disk, path: str, new_path: str) -> None:
        if fails(path, new_path):
            raise OSError(error, os.strerror(error), path)
        rename(disk, path, new_path)

    with monkeypatch.context() as patched:
        patched.setattr(Disk, "rename", renamed)
        yield
