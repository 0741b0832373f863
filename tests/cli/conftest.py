"""Fixtures of the command line tests."""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.command_lines import Say, json_run


@pytest.fixture
def say(capfd: pytest.CaptureFixture[str]) -> Say:
    """`say(command, …)`: run a command; its exit status and its rows."""
    return partial(json_run, capfd=capfd)
