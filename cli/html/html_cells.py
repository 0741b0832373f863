"""Tables of JSON lines: their definitions, and the cells with text, sort key and style."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import NamedTuple

from kseg.cli.text.amounts import duration_words, rough_duration_words, size_words
from kseg.segment.counted import listed
from kseg.segment.moments import moment

Values = Mapping[str, object]

_NUMBERS = frozenset(
    ("count", "number", "length", "bytes", "duration", "rough", "seconds", "ratio", "alarm", "alarm-bytes")
)
_NAMED = 12  # names of a list that are shown
_MAX_TEXT = 4000  # the length at which a message is truncated


class Cell(NamedTuple):
    """text: as shown. sort: the number to sort by, if the text would sort differently. style: CSS classes."""

    text: str
    sort: int | float | None = None
    style: str = ""


NOTHING = Cell("", None, "nothing")


class HtmlColumn(NamedTuple):
    """A column of a table. key: dotted path of the value in the row. kind: a name in `_MAKERS`."""

    title: str
    key: str
    kind: str = "text"

    @property
    def is_number(self) -> bool:  # for the template
        return self.kind in _NUMBERS


class TableForm(NamedTuple):
    """The definition of a table. type: of the JSON lines. wanted: selects some of them. parts: turns a line into several rows. is_open:
    whether it is initially expanded."""

    id: str
    title: str
    type: str
    columns: Sequence[HtmlColumn]
    wanted: Callable[[Values], bool] = lambda _: True
    parts: Callable[[Values], Iterable[Values]] | None = None
    is_open: bool = True
    note: str = ""


def cell(row: Values, column: HtmlColumn) -> Cell:
    """The cell of a row. A missing or null value is an empty cell and sorts last."""
    value: object = row
    for name in column.key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return NOTHING if value is None else _MAKERS[column.kind](value)


def number(value: object) -> int:
    """A whole number of a row; 0 for anything else."""
    return value if isinstance(value, int) else 0


def _text(value: object) -> Cell:
    return Cell(_cut(str(value)))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def _name(value: object) -> Cell:
    return Cell(_cut(str(value)), None, "name")


def _count(value: object) -> Cell:
    text = f"{value:,.2f}" if isinstance(value, float) else f"{number(value):,}"
    return Cell(text, None, "n" if value else "n z")


def _plain_number(value: object) -> Cell:
    """An id or an offset: digits without thousands separators."""
    return Cell(str(value), None, "n")


def _bytes(value: object) -> Cell:
    return Cell(size_words(number(value)), number(value), "n" if value else "n z")


def _time(value: object) -> Cell:
    if number(value) < 0:
        return NOTHING
    return Cell(moment(number(value)).replace("T", " ").removesuffix(".000Z").removesuffix("Z"), number(value), "time")  # fmt: skip


def _duration(value: object) -> Cell:
    return Cell(duration_words(number(value)), number(value), "n")


def _rough(value: object) -> Cell:
    """An approximate duration, in two units at most."""
    days, rest = divmod(number(value), 86_400_000)
    hours = rest / 3_600_000
    text = f"{days:,} d {hours:.0f} h" if days else rough_duration_words(rest / 1000)
    return Cell(text, number(value), "n")


def _settings(value: object) -> Cell:
    named = value.items() if isinstance(value, Mapping) else ()
    return Cell(" ".join(f"{name}={each}" for name, each in named), None, "name")


def _shares(value: object) -> Cell:
    named = value.items() if isinstance(value, Mapping) else ()
    return Cell(", ".join(f"{name} {100 * float(share):.0f} %" for name, share in named))


def _length(value: object) -> Cell:
    return _count(len(value) if isinstance(value, Sized) else 0)


def _seconds(value: object) -> Cell:
    seconds = float(value) if isinstance(value, int | float) else 0.0
    return Cell(rough_duration_words(seconds), seconds, "n")


def _ratio(value: object) -> Cell:
    share = float(value) if isinstance(value, int | float) else 0.0
    return Cell(f"{100 * share:.1f} %", share, "n")


def _severity(value: object) -> Cell:
    rank = {"error": 0, "warning": 1, "info": 2}.get(str(value), 3)
    return Cell(str(value), rank, f"tag {value}" if rank < 3 else "tag")


def _flag(value: object) -> Cell:
    return Cell("yes" if value else "no", int(bool(value)))


def _alarm(value: object) -> Cell:
    """A number that signals a problem unless it is 0."""
    return Cell(f"{number(value):,}", None, "n bad" if value else "n z")


def _alarm_bytes(value: object) -> Cell:
    return Cell(size_words(number(value)), number(value), "n bad" if value else "n z")


def _list(value: object) -> Cell:
    if isinstance(value, Mapping):
        parts: list[object] = [f"{name} × {count}" if isinstance(count, int) else name for name, count in value.items()]  # fmt: skip
    else:
        parts = [*value] if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    return Cell(_cut(listed([*map(str, parts)], _NAMED)), len(parts)) if parts else NOTHING


_MAKERS: Mapping[str, Callable[[object], Cell]] = {
    "text": _text,
    "name": _name,
    "count": _count,
    "number": _plain_number,
    "bytes": _bytes,
    "time": _time,
    "duration": _duration,
    "rough": _rough,
    "length": _length,
    "choice": _text,
    "settings": _settings,
    "shares": _shares,
    "seconds": _seconds,
    "ratio": _ratio,
    "severity": _severity,
    "flag": _flag,
    "alarm": _alarm,
    "alarm-bytes": _alarm_bytes,
    "list": _list,
}
