"""Fixtures of the `append` tests."""

from pathlib import Path

import pytest

from tests.support.append_helpers import Appended, appender


@pytest.fixture
def appended(tmp_path: Path) -> Appended:
    """appended(directory, lines, **rules) → the result row of an append."""
    return appender(tmp_path)
