"""The report of diff: both copies of a partition on one offset axis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kseg.cli.main import run
from tests.support.browsers import opened
from tests.support.command_lines import Capfd
from tests.support.copies import batches, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ALONE = ("--jobs", "1", "--no-progress", "--now", "1795250600000", "--quiet")
# landscape, within the page margins
A4_WIDTH_PX = 1032
HOSTILE = "<script>alert(1)<b>x"


def test_diff_report_draws_both_copies(tmp_path: Path, capfd: Capfd, chromium: Browser) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    write(a / "t-0", batches(0, 100), batches(100, 200))
    write(b / "t-0", batches(0, 100), [*batches(100, 150), *batches(150, 180, word="other")])
    write(a / f"{HOSTILE}-1", batches(0, 100))
    write(b / f"{HOSTILE}-1", [*batches(0, 40), *batches(60, 100)], base=0)
    write(a / "same-0", batches(0, 20))
    write(b / "same-0", batches(0, 20))
    write(b / "new-0", batches(0, 50))
    page = tmp_path / "report.html"
    assert run(("diff", *ALONE, "--html", str(page), str(a), str(b))) == 1
    with opened(chromium, page) as seen:
        figures = seen.page.locator("#pairs figure")
        assert [text.split(" ")[-1] for text in seen.texts("#pairs figcaption")] == [
            "150",
            "only-in-b",
            "compacted",
        ]
        widths = {
            letter: float(figures.first.locator(f".copy.{letter} rect.apart").get_attribute("width") or 0)
            for letter in "AB"
        }
        assert widths["A"] == pytest.approx(widths["B"] * 50 / 30, rel=0.01)
        assert figures.first.locator(".copy.A rect.segment").count() == 2
        assert figures.nth(1).locator(".copy").count() == 1
        assert figures.nth(2).locator(".copy.B rect.missing").count() == 1
        assert figures.nth(2).locator("b script, b b").count() == 0
        assert seen.page.locator("#compared tbody tr").count() == 4
        frame = seen.page.locator("#compared .wide").bounding_box()
        head = seen.page.locator("#compared th", has_text="B: damaged").bounding_box()
        assert frame is not None and head is not None
        assert (
            head["x"] + head["width"] <= frame["x"] + frame["width"]
        )  # the difference is visible without scrolling
        seen.page.set_viewport_size({"width": A4_WIDTH_PX, "height": 703})
        seen.page.emulate_media(media="print")
        assert seen.call("document.documentElement.scrollWidth") == A4_WIDTH_PX
    assert (seen.complaints, seen.requests) == ([], [])
    assert page.stat().st_size < 500_000
