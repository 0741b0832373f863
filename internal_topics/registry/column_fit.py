"""Convert decoded values to fit a column, with one function per type, built once.

A value that does not fit (a number that a damaged payload made too large, a member that its schema does not have) is a
FormatError: the record is then shown as its bytes, like one that cannot be decoded.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from kseg.internal_topics.registry.json_text import plain_json
from kseg.segment.column_types import ColumnType, DecimalOf, ListOf, MapOf, Scalar, StructOf
from kseg.segment.errors import FormatError
from kseg.segment.json_line import compact_json

Fit = Callable[[Any], Any]
_RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "date": (-(2**31), 2**31 - 1),
    "time-millis": (-(2**31), 2**31 - 1),
}
_INT64 = (-(2**63), 2**63 - 1)


def fit(kind: ColumnType) -> Fit:
    """The conversion function for a type. It raises FormatError for a value that does not fit; null fits every type."""
    inner = _fit(kind)

    def of(value: Any) -> Any:
        return None if value is None else inner(value)

    return of


def _fit(kind: ColumnType) -> Fit:
    match kind:
        case ListOf(element):
            return _list(fit(element))
        case MapOf(value):
            return _map(fit(value))
        case StructOf(fields):
            return _struct({name: fit(each) for name, each in fields})
        case DecimalOf(precision, scale):
            return _decimal(precision, scale)
        case Scalar(name):
            return _scalar(name)


def _list(inner: Fit) -> Fit:
    def of(value: Any) -> Any:
        if not isinstance(value, list):
            raise FormatError(f"{_shown(value)} is not a list")
        return [inner(each) for each in value]

    return of


def _map(inner: Fit) -> Fit:
    def of(value: Any) -> Any:
        if not isinstance(value, dict):
            raise FormatError(f"{_shown(value)} is not a map")
        return [(str(name), inner(each)) for name, each in value.items()]

    return of


def _struct(fields: dict[str, Fit]) -> Fit:
    pairs = list(fields.items())

    def of(value: Any) -> Any:
        if not isinstance(value, dict):
            raise FormatError(f"{_shown(value)} is not a record")
        if not value.keys() <= fields.keys():
            stray = next(name for name in value if name not in fields)
            raise FormatError(f"the schema has no property {_shown(stray)}")
        get = value.get
        return {name: inner(get(name)) for name, inner in pairs}

    return of


def _scalar(name: str) -> Fit:
    match name:
        case "json":
            return lambda value: compact_json(plain_json(value))
        case "string":
            return _string
        case "bytes":
            return _of_type(bytes, "bytes")
        case "bool":
            return _of_type(bool, "true or false")
        case "float" | "double":
            return _double
    return _integer(name, *_RANGES.get(name, _INT64))


def _string(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # a number that has no name in its protobuf enum
    if not isinstance(value, str):
        raise FormatError(f"{_shown(value)} is not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FormatError("a string has an unpaired surrogate") from None
    return value


def _of_type(wanted: type, words: str) -> Fit:
    def of(value: Any) -> Any:
        if not isinstance(value, wanted):
            raise FormatError(f"{_shown(value)} is not {words}")
        return value

    return of


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FormatError(f"{_shown(value)} is not a number")
    try:
        number = float(value)
    except OverflowError:
        raise FormatError(f"{_shown(value)} is out of the range of a double") from None
    if number != value and isinstance(value, int):
        raise FormatError(f"{_shown(value)} has more digits than a double can hold")
    return number


def _integer(name: str, lowest: int, highest: int) -> Fit:
    def of(value: Any) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON does not distinguish 1.0 from 1
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise FormatError(f"{_shown(value)} is not a valid {name}")
        return value

    return of


def _decimal(precision: int, scale: int) -> Fit:
    def of(value: Any) -> Decimal:
        if not isinstance(value, Decimal) or -int(value.as_tuple().exponent) != scale:
            raise FormatError(f"{_shown(value)} is not a decimal of scale {scale}")
        if len(value.as_tuple().digits) > precision:
            raise FormatError(f"{_shown(value)} has more than {precision} digits")
        return value

    return of


def _shown(value: Any) -> str:
    return f"{value!r:.60}" if not isinstance(value, int) or abs(value) < 1 << 200 else "a huge number"
