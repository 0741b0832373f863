"""Create the report for `--html`. The imports are local, so that a run without the option does not pay for them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kseg.cli.html.html_page import HtmlPage


def page_for(path: str | None, command: str, now_ms: int) -> "HtmlPage | None":
    """The report that --html asks for. now_ms: the time of the run. Raises Refused when it cannot be written."""
    if path is None:
        return None
    from kseg.cli.html.html_page import HtmlPage

    return HtmlPage(path, command, now_ms)
