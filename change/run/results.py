"""The result of a command for one directory, as a value. It becomes JSON where it is printed or stored in a journal.

Each command has its own class, a frozen dataclass with the fields of its row of type `result`, in the order of docs/json.md.
"""

import types
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, ClassVar, Self, get_origin

from kseg.segment.values import dataclass

Values = dict[str, Any]
Rows = tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """The outcome of a plan. applied: the change was made, in place or as a copy. output: the copy. room: for a change that was
    only planned, the rows about the disk space it needs; else None."""

    applied: bool = False
    journal: str | None = None
    quarantine: str | None = None
    output: str | None = None
    room: Rows | None = None


class ChangeResult:
    """Base class of the results. command: its name. optional: fields that the row omits when they are None."""

    __slots__ = ()
    command: ClassVar[str]
    optional: ClassVar[tuple[str, ...]] = ()

    def with_outcome(self, outcome: ChangeOutcome) -> Self:
        """The result once the plan was carried out: the fields of the outcome that it has."""
        names = _names_of(type(self))  # type: ignore[arg-type]
        values: Values = {name: getattr(outcome, name) for name in _names_of(ChangeOutcome) if name in names}
        return replace(self, **values)  # type: ignore[type-var]

    def as_row(self) -> Values:
        row: Values = {"type": "result", "command": self.command}
        for name in _names_of(type(self)):  # type: ignore[arg-type]  # the subclasses are dataclasses
            value = getattr(self, name)
            if value is not None or name not in self.optional:
                row[name] = list(value) if isinstance(value, tuple) else value
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The inverse of `as_row`. Raises TypeError for any other value."""
        values = {name: value for name, value in row.items() if name not in ("type", "command")}
        for field in fields(cls):  # type: ignore[arg-type]
            value = values.get(field.name)
            if isinstance(value, list):
                values[field.name] = value = tuple(value)
            if field.name in values and not isinstance(value, _plain(field.type)):
                raise TypeError(f"{field.name} is {value!r}")
        return cls(**values)


@cache
def _names_of(kind: type) -> tuple[str, ...]:
    """The names of the fields of a dataclass, in order."""
    return tuple(field.name for field in fields(kind))


def _plain(annotation: Any) -> Any:
    """The argument of `isinstance` for an annotation: `tuple` for `tuple[int, ...]`."""
    if isinstance(annotation, types.UnionType):
        return tuple(_plain(each) for each in annotation.__args__)
    return get_origin(annotation) or annotation
