"""Fill the tables of a command's report with the rows of a run. A table without rows is left out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kseg.cli.html import html_change_tables as changes
from kseg.cli.html import html_check_tables as checks
from kseg.cli.html import html_list_tables as listed
from kseg.cli.html.html_cells import Cell, HtmlColumn, TableForm, Values, cell, number

MAX_ROWS = 10_000  # rows of a table that a browser sorts without a noticeable pause


class HtmlTable(NamedTuple):
    """A table to render. columns: the columns of its form that have any value. left_out: the number of omitted rows."""

    form: TableForm
    columns: Sequence[HtmlColumn]
    rows: Sequence[Sequence[Cell]]
    left_out: int

    @property
    def filters(self) -> list[int]:
        return [at for at, column in enumerate(self.columns) if column.kind in ("severity", "choice")]


_ABOUT_FILES = (checks.FINDINGS, checks.FAILURES)
FORMS: Mapping[str, Sequence[TableForm]] = {
    "verify": (*_ABOUT_FILES, checks.STARTS, checks.START_CHANGES, checks.VERIFIED),
    "doctor": (
        *(checks.STARTS, checks.START_CHANGES, *_ABOUT_FILES, checks.COSTS, checks.HANGING, checks.STRANDED),
        *(
            checks.RETENTION,
            checks.EXPIRING,
            checks.UNCLEANED,
            checks.LEFTOVERS,
            checks.LOG_DIRS,
            checks.NODES,
            checks.VERIFIED,
        ),
    ),
    "diff": (listed.COMPARED, *_ABOUT_FILES),
    "list": (
        *_ABOUT_FILES,
        listed.PARTITIONS,
        listed.LISTED_DIRS,
        listed.ODD_FILES,
        listed.REMOTE_PARTITIONS,
        listed.DANGLING,
    ),
    "retain": (
        *_ABOUT_FILES,
        changes.FREE,
        changes.FREE_TOPICS,
        changes.RETAINED,
        changes.SEGMENTS,
        changes.WHAT_IF,
        changes.MARKS,
    ),
    "what-if": (*_ABOUT_FILES, changes.MEASURED_TOPICS, changes.TRIED),
    "compact": (*_ABOUT_FILES, changes.COMPACTED, changes.HORIZONS),
}


class RowsByType:
    """The rows of a run that its tables need. Of very many rows of one type it keeps those with errors and the first of the others."""

    def __init__(self, forms: Sequence[TableForm]) -> None:
        self._kept: dict[str, list[Values]] = {form.type: [] for form in forms}
        self._forms = forms
        self._left_out: dict[str, int] = {}

    def add(self, kind: str, row: Values) -> None:
        rows = self._kept.get(kind)
        if rows is None or not any(form.type == kind and form.wanted(row) for form in self._forms):
            return
        limit = MAX_ROWS if not (row.get("errors") or row.get("severity") == "error") else 2 * MAX_ROWS
        if len(rows) < limit:
            rows.append(row)
        else:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1

    def table(self, form: TableForm) -> HtmlTable:
        found: Iterable[Values] = filter(form.wanted, self._kept[form.type])
        if form.parts is not None:
            parts = form.parts
            found = (part for row in found for part in parts(row))
        ordered = sorted(found, key=_badness)
        rows = [[cell(row, column) for column in form.columns] for row in ordered[:MAX_ROWS]]
        used = [at for at in range(len(form.columns)) if any(row[at].text for row in rows)]
        columns = [form.columns[at] for at in used]
        left_out = self._left_out.get(form.type, 0) + len(ordered) - len(rows)
        return HtmlTable(form, columns, [[row[at] for at in used] for row in rows], left_out)


def _badness(row: Values) -> tuple[int, int, int]:
    """Bad rows first; the others keep their order."""
    severity = {"error": 0, "warning": 1}.get(str(row.get("severity")), 2)
    return severity, -number(row.get("errors")), -number(row.get("warnings"))
