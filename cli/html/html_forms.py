"""The definition of a table of a report: the columns for one type of JSON line."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kseg.cli.html.html_cells import HtmlColumn, Values


class TableForm(NamedTuple):
    """type: of the JSON lines. wanted: selects some of them. parts: turns a line into several rows. is_open: initially expanded."""

    id: str
    title: str
    type: str
    columns: Sequence[HtmlColumn]
    wanted: Callable[[Values], bool] = lambda _: True
    parts: Callable[[Values], Iterable[Values]] | None = None
    is_open: bool = True
    note: str = ""
