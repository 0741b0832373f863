"""The browser for reports, or one visible line that says why there is none."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.browsers import browser, chromium_path
from tests.support.requirements import absent

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Skip the test without Chromium or Playwright, or fail it if CI is set, where reports must be tested in a browser."""
    if chromium_path() is None:
        absent("no browser: install chromium (on Debian: apt install chromium)")
    if importlib.util.find_spec("playwright") is None:
        absent("no browser is driven: playwright is not installed")
    with browser() as started:
        yield started
