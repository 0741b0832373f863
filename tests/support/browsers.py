"""A real browser for the tests of HTML reports: Debian's Chromium, headless, driven by Playwright.

An open page records its errors and its network requests; both must be empty.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# generous, for a busy machine
LIMIT_MS = 300_000
Scheme = Literal["light", "dark"]


def chromium_path() -> str | None:
    """Path of the Chromium on this machine, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Opened:
    """A page. complaints: console messages, uncaught errors and dialogs. requests: to anything but the file itself."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def texts(self, selector: str) -> list[str]:
        """The text of each matching element."""
        return self.page.locator(selector).all_text_contents()

    def call(self, expression: str) -> Any:
        return self.page.evaluate(expression)


@contextmanager
def browser() -> Iterator[Browser]:
    """One browser for many pages. Fork processes only before it starts or after it ends. => One browser for many pages. Do not fork while
    it runs."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # /dev/shm is small in containers, and Chromium's sandbox does not work for root
        arguments = [
            "--disable-gpu",
            "--disable-dev-shm-usage",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        started = playwright.chromium.launch(
            executable_path=chromium_path(), args=arguments, timeout=LIMIT_MS
        )
        try:
            yield started
        finally:
            started.close()


@contextmanager
def opened(
    browser: Browser, path: Path, scheme: Scheme = "light", *, scripts: bool = True
) -> Iterator[Opened]:
    """The page of a local file."""
    context = browser.new_context(
        color_scheme=scheme, java_script_enabled=scripts, viewport={"width": 1360, "height": 900}
    )
    context.set_default_timeout(LIMIT_MS)
    page = context.new_page()
    found = Opened(page)
    page.on("console", lambda message: found.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on("dialog", lambda dialog: found.complaints.append(f"dialog: {dialog.message}"))
    url = path.as_uri()
    page.on("request", lambda request: None if request.url == url else found.requests.append(request.url))
    try:
        page.goto(url)
        yield found
    finally:
        context.close()
