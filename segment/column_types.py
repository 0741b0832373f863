"""Column types of decoded payloads, as plain values: schema readers produce them, table writers translate them.

`merged` returns the type that holds the values of two schemas: two versions of one, or two branches of a union:

    equal types                                     that type
    int32 and int64 (the same for unsigned)         the wider one
    an integer or float, and a float or double      double
    structs                                         a struct of all fields, common ones merged; missing ones are null
    lists, maps                                     list or map of the merged element types
    anything else                                   JSON: text with the value as `dump --json` prints it
"""

from dataclasses import replace
from typing import Any

from kseg.segment.values import dataclass

JSON_TEXT = "json"
SCALARS = (
    *("bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes", JSON_TEXT),
    *("date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"),
    *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
)
_WIDER = {
    frozenset(("int32", "int64")): "int64",
    frozenset(("uint32", "uint64")): "uint64",
    frozenset(("uint32", "int64")): "int64",
}
_NUMBERS = frozenset(("int32", "int64", "uint32", "float", "double"))


@dataclass(frozen=True, slots=True)
class Scalar:
    """kind: one of SCALARS."""

    kind: str


@dataclass(frozen=True, slots=True)
class DecimalOf:
    """precision: at most 76, the maximum of table formats."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class ListOf:
    element: "ColumnType"


@dataclass(frozen=True, slots=True)
class MapOf:
    """Keys are strings."""

    value: "ColumnType"


@dataclass(frozen=True, slots=True)
class StructOf:
    """At least one field."""

    fields: "tuple[tuple[str, ColumnType], ...]"


ColumnType = Scalar | DecimalOf | ListOf | MapOf | StructOf
JSON_COLUMN = Scalar(JSON_TEXT)


def merged(one: ColumnType, other: ColumnType) -> ColumnType:
    """The type that holds the values of both; see the module."""
    if one == other:
        return one
    match one, other:
        case Scalar(), Scalar():
            kinds = frozenset((one.kind, other.kind))
            wider = _WIDER.get(kinds)
            if wider is not None:
                return Scalar(wider)
            if kinds <= _NUMBERS and kinds & {"float", "double"}:
                return Scalar("double")
        case StructOf(), StructOf():
            fields = dict(one.fields)
            for name, kind in other.fields:
                fields[name] = merged(fields[name], kind) if name in fields else kind
            return replace(one, fields=tuple(fields.items()))
        case ListOf(), ListOf():
            return ListOf(merged(one.element, other.element))
        case MapOf(), MapOf():
            return MapOf(merged(one.value, other.value))
    return JSON_COLUMN


def as_plain(kind: ColumnType) -> object:
    """The type as values of JSON."""
    match kind:
        case Scalar(name):
            return name
        case DecimalOf(precision, scale):
            return {"decimal": [precision, scale]}
        case ListOf(element):
            return {"list": as_plain(element)}
        case MapOf(value):
            return {"map": as_plain(value)}
        case StructOf(fields):
            return {"struct": [[name, as_plain(each)] for name, each in fields]}


def from_plain(plain: Any) -> ColumnType:
    """The inverse of `as_plain`. Raises ValueError for anything that it does not return."""
    match plain:
        case str() if plain in SCALARS:
            return Scalar(plain)
        case {"decimal": [int(precision), int(scale)]}:
            return DecimalOf(precision, scale)
        case {"list": element}:
            return ListOf(from_plain(element))
        case {"map": value}:
            return MapOf(from_plain(value))
        case {"struct": [*fields]} if fields and all(
            isinstance(each, list) and len(each) == 2 for each in fields
        ):
            return StructOf(tuple((str(name), from_plain(each)) for name, each in fields))
    raise ValueError("not a column type")
