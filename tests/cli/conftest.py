"""Fixtures of the command line tests."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.command_lines import Capfd, Say, json_run
from tests.support.trees import copy_tree


@pytest.fixture
def say(capfd: Capfd) -> Say:
    """`say(command, …)`: run a command; returns its exit status and its rows."""
    return partial(json_run, capfd=capfd)


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    """A writable copy of the data directory of a real broker. Its compacted topic `stations` has files that are marked for deletion."""
    return copy_tree(capture_small / "data", tmp_path / "data")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for a running broker: the lock holder that represents it changes nothing."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
