"""Rows as a table of aligned columns.

A table can be long, so its layout is determined by its first rows: `LAID_OUT_BY` rows of one type are buffered and fix the columns and
their widths. From then on each row is written as it arrives; a longer cell shifts the rest of its line. A new table begins when the
type of the rows changes. A terminal truncates long lines, so a column with long values should come last.
"""

from collections.abc import Mapping

from kseg.cli.streams import Output
from kseg.segment.terminal import shown_path, visible

LAID_OUT_BY = 200
GAP = "  "
_PATHS = frozenset(["path", "file", "directory", "log_dir"])

Values = Mapping[str, object]


class Table:
    """Writes rows to `out`; `end` must be called after the last one."""

    def __init__(self, out: Output, most_width: int | None = None) -> None:
        self._out = out
        self._most_width = most_width
        self._type: object = None
        self._waiting: list[Values] = []
        self._widths: dict[str, int] = {}
        self._right: set[str] = set()
        self._tables = 0

    def add(self, values: Values) -> None:
        if values.get("type") != self._type or (
            self._widths and any(n not in self._widths for n in _names(values))
        ):
            self.end()
            self._type = values.get("type")
        if self._widths:
            self._line(values)
        else:
            self._waiting.append(values)
            if len(self._waiting) >= LAID_OUT_BY:
                self._lay_out()

    def end(self) -> None:
        self._lay_out()
        self._widths = {}
        self._right = set()

    def _lay_out(self) -> None:
        if not self._waiting:
            return
        for values in self._waiting:
            for name in _names(values):
                width = max(self._widths.get(name, len(name)), len(cell(values[name], name)))
                self._widths[name] = width
        self._right = {
            name for name in self._widths if all(_is_number(values.get(name)) for values in self._waiting)
        }
        if self._tables:
            self._out.line("")
        self._tables += 1
        self._out.line(self._joined({name: name.replace("_", " ") for name in self._widths}))
        waiting, self._waiting = self._waiting, []
        for values in waiting:
            self._line(values)

    def _line(self, values: Values) -> None:
        self._out.line(self._joined({name: cell(values.get(name), name) for name in self._widths}))

    def _joined(self, cells: Mapping[str, str]) -> str:
        padded = (
            text.rjust(self._widths[name]) if name in self._right else text.ljust(self._widths[name])
            for name, text in cells.items()
        )
        line = GAP.join(padded).rstrip()
        if self._most_width is not None and len(line) > self._most_width:
            return line[: self._most_width - 1] + "…"
        return line


def cell(value: object, name: str = "") -> str:
    """The text of a value: null is `-`, booleans are words, containers are joined. name: of the column, by which paths are recognised."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{name}={cell(each)}" for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(cell(each) for each in value) or "-"
    return (shown_path if name in _PATHS else visible)(str(value))


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _names(values: Values) -> list[str]:
    return [name for name in values if name != "type"]
