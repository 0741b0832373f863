"""The browser for reports, or one visible line that says why there is none."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.support.browsers import browser, chromium_path

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Skip without Chromium or Playwright; where CI is set, that is a failure: there reports must be looked at."""
    if chromium_path() is None:
        _absent("no browser: install chromium (on Debian: apt install chromium)")
    if importlib.util.find_spec("playwright") is None:
        _absent("no browser is driven: playwright is not installed")
    with browser() as started:
        yield started


def _absent(what: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)
