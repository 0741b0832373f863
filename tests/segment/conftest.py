"""Fixtures of this room."""

from pathlib import Path

import pytest

from tests.segment.appending import Appended, appender


@pytest.fixture
def appended(tmp_path: Path) -> Appended:
    """appended(directory, lines, **rules) → the result row of an append."""
    return appender(tmp_path)
