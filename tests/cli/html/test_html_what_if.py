"""The report of what-if: a bar for each setting, as long as its line says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.inspection.test_what_if import write_log
from tests.support.browsers import opened
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ALONE = ("--jobs", "1", "--no-progress", "--now", "1795250600000")


def test_what_if_report_draws_each_setting(tmp_path: Path, capfd: Capfd, chromium: Browser) -> None:
    for topic, batches in (("orders", 900), ("</script><b>x", 100)):
        write_log(tmp_path / "data" / f"{topic.replace('/', '')}-0", batches, batches)
    path = tmp_path / "report.html"
    words = ("what-if", *ALONE, "--sample", "300KiB", "--html", str(path), "--json", str(tmp_path / "data"))
    reported = rows_of(capfd, *words, status=0)
    orders = [line for line in reported if line["type"] == "setting" and line["topic"] == "orders"]
    with opened(chromium, path) as seen:
        bars = seen.page.locator("#settings rect.tried")
        assert bars.count() == len(orders)
        widths = [float(bars.nth(at).get_attribute("width") or 0) for at in range(len(orders))]
        scale = widths[0] / orders[0]["bytes"]
        for width, line in zip(widths, orders, strict=True):
            assert width == pytest.approx(max(1, scale * line["bytes"]), abs=0.5)
        estimated = [line for line in orders if not line["exact"]]
        assert seen.page.locator("#settings path.whisker:not(.now)").count() == len(estimated) > 3
        assert seen.page.locator("#tried tbody tr").count() == sum(
            line["type"] == "setting" for line in reported
        )
        seen.page.locator("#settings select").select_option(label="<script><b>x")
        assert seen.texts("#settings b, #tried b") == []
    assert (seen.complaints, seen.requests) == ([], [])
