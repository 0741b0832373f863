"""From `--html` to the report; nothing is imported for a run without it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kseg.cli.report import Page


def page_for(path: str | None, command: str, now_ms: int) -> "Page | None":
    """The report that --html asks for. now_ms: when the run is. Raises Refused where it cannot be written."""
    if path is None:
        return None
    from kseg.cli.html.html_page import HtmlPage

    return HtmlPage(path, command, now_ms)
