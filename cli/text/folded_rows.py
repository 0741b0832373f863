"""The report of `export` and `undo`: the first rows in full as they arrive, the number of the others, and the total."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kseg.cli.report import VERBOSE_SHOWS_ALL, Line, Report
from kseg.cli.run_summary import RunSummary
from kseg.segment.counted import counted
from kseg.segment.findings import ERROR, INFO, WARNING

Values = Mapping[str, Any]

_ROWS_SHOWN = 20


class FoldedRows(Report):
    """A `Report` on rows of one kind. words: the full text of one. noun: what a row is about. total: the text of the total, given the
    number of rows, or empty. is_one: whether a row is of that kind; other rows are always printed."""

    streams_rows = True

    def __init__(
        self,
        words: Callable[[Values], Iterable[str]],
        noun: str,
        total: Callable[[int, RunSummary], str],
        is_one: Callable[[Values], bool] = lambda values: values.get("type") == "result",
        *,
        shows_all: bool = False,
    ) -> None:
        super().__init__()
        self._words = words
        self._noun = noun
        self._total = total
        self._is_one = is_one
        self._shows_all = shows_all
        self._rows = 0
        self._held_back: list[str] = []  # the first row beyond the limit, shown if it stays the only one

    def words(self, values: Values) -> Iterator[str]:
        """The lines for a row that `row` has counted."""
        if self._shows_all or self._rows <= _ROWS_SHOWN or not self._is_one(values):
            yield from self._words(values)
        elif self._rows == _ROWS_SHOWN + 1:
            self._held_back = [*self._words(values)]

    def row(self, values: Values) -> None:
        self._rows += self._is_one(values)

    def opening(self, _summary: RunSummary) -> Iterator[Line]:
        yield from self._found.lines(ERROR, WARNING, INFO)

    def closing(self, summary: RunSummary) -> Iterator[Line]:
        if self._rows == _ROWS_SHOWN + 1 and self._held_back:
            yield from map(Line, self._held_back)
        elif not self._shows_all and self._rows > _ROWS_SHOWN:
            more = counted(self._rows - _ROWS_SHOWN, f"more {self._noun}")
            yield Line(f"… and {more} ({VERBOSE_SHOWS_ALL})")
        total = self._total(self._rows, summary) if self._rows > 1 else ""
        if total:
            yield Line(total)
