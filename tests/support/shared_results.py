"""Make what many tests read once in a run, although its tests are distributed over several processes (pytest-xdist)."""

from __future__ import annotations

import fcntl
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

Made = TypeVar("Made")


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Made]) -> Made:
    """The result of `make`, called with an empty directory, in the first process of the run that asks for this name; the others wait for
    it, and read a pickled copy of the result. Nobody may change the directory. If `make` raises, the next process tries again."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return make(factory.mktemp(name))
    # next to the directories of the processes
    place = factory.getbasetemp().parent / "shared" / name
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = place / "result"
        if not result.exists():
            made_here = make(Path(tempfile.mkdtemp(dir=place)))
            result.write_bytes(pickle.dumps(made_here))
        made: Made = pickle.loads(result.read_bytes())
        return made
