"""Filters that Spark pushes down, as bounds on what is read (Spark 4.1 and later, when it is told to push).

    offset                    becomes a bound, exact; IN becomes one around its values
    timestamp                 becomes a bound in milliseconds, exact
    topic, partition          decide which partitions are read at all
What is exact Spark need not ask again; timestamps it asks all the same, since a log may hold times beyond those that
Spark has. Everything else is Spark's business. Spark 4.0 has no filters to push; nothing here asks for them before one comes.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeGuard

from pyspark.sql import datasource as S

from kseg.segment.arrow.pieces import Bounds
from kseg.segment.layout import INT64_MAX

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_LEAST: Final = -INT64_MAX - 1


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What pushed filters leave: `bounds` of records, and `tests` on (topic, partition)."""

    bounds: Bounds = field(default_factory=Bounds)
    tests: tuple[S.Filter, ...] = ()

    def accepts(self, topic: str, partition: int) -> bool:
        values: dict[str, object] = {"topic": topic, "partition": partition}
        return all(_holds(test, values) for test in self.tests)


def narrow(filters: Sequence[S.Filter]) -> tuple[Narrowing, list[S.Filter]]:
    """What the filters say together, and those of them that Spark must still ask."""
    bounds, tests, left = Bounds(), [], []
    for each in filters:
        column = _column_of(each)
        if column in ("topic", "partition") and _is_known(each):
            tests.append(each)
            continue
        narrower = None
        if column == "offset":
            narrower = _offset_bounds(each)
        elif column == "timestamp":
            narrower = _time_bounds(each)
        if narrower is not None:
            bounds = bounds.within(narrower)
        if narrower is None or column != "offset" or isinstance(each, S.In):
            left.append(each)
    return Narrowing(bounds, tuple(tests)), left


def _column_of(test: S.Filter) -> str | None:
    """The column that a filter is about; None for a member of one, and for what is not known here."""
    if isinstance(test, S.Not):
        return _column_of(test.child)
    path: tuple[str, ...] = getattr(test, "attribute", ())
    return path[0] if len(path) == 1 else None


# --- partitions


@cache
def _tests() -> dict[type[S.Filter], Callable[..., bool]]:
    return {
        S.EqualTo: lambda value, other: value == other,
        S.EqualNullSafe: lambda value, other: value == other,
        S.GreaterThan: lambda value, other: value > other,
        S.GreaterThanOrEqual: lambda value, other: value >= other,
        S.LessThan: lambda value, other: value < other,
        S.LessThanOrEqual: lambda value, other: value <= other,
        S.In: lambda value, others: value in others,
        S.StringStartsWith: lambda value, other: value.startswith(other),
        S.StringEndsWith: lambda value, other: value.endswith(other),
        S.StringContains: lambda value, other: other in value,
    }


def _is_known(test: S.Filter) -> bool:
    if isinstance(test, S.Not):
        # of a null in a list nobody knows whether it is the value; so NOT IN with one is never true, which is Spark's
        return _is_known(test.child) and not isinstance(test.child, S.IsNull | S.IsNotNull)
    if isinstance(test, S.IsNull | S.IsNotNull):
        return True
    if type(test) not in _tests():
        return False
    value = getattr(test, "value", None)
    values: Iterable[object] = (value,)
    if isinstance(test, S.In):
        values = test.value
    kind = str if _column_of(test) == "topic" else int
    return all(isinstance(each, kind) and not isinstance(each, bool) for each in values)


def _holds(test: S.Filter, values: dict[str, object]) -> bool:
    if isinstance(test, S.Not):
        return not _holds(test.child, values)
    if isinstance(test, S.IsNull | S.IsNotNull):
        return isinstance(test, S.IsNotNull)
    column = _column_of(test)
    assert column is not None
    return _tests()[type(test)](values[column], getattr(test, "value", None))


# --- bounds


def _offset_bounds(test: S.Filter) -> Bounds | None:
    if isinstance(test, S.In):
        offsets = [value for value in test.value if _is_long(value)]
        if len(offsets) < len(test.value) or not offsets:
            return None
        return _offsets(min(offsets), max(offsets) + 1)
    if isinstance(test, S.IsNotNull):
        return Bounds()
    value: object = getattr(test, "value", None)
    if not _is_long(value):
        return None
    match test:
        case S.EqualTo() | S.EqualNullSafe():
            return _offsets(value, value + 1)
        case S.GreaterThan():
            return _offsets(value + 1, INT64_MAX)
        case S.GreaterThanOrEqual():
            return _offsets(value, INT64_MAX)
        case S.LessThan():
            return _offsets(0, value)
        case S.LessThanOrEqual():
            return _offsets(0, value + 1)
    return None


def _is_long(value: object) -> TypeGuard[int]:
    """A long that has a neighbour on either side."""
    return isinstance(value, int) and not isinstance(value, bool) and _LEAST < value < INT64_MAX


def _offsets(low: int, high: int) -> Bounds:
    return Bounds(max(0, low), max(0, high))


def _time_bounds(test: S.Filter) -> Bounds | None:
    value = getattr(test, "value", None)
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    microseconds = (value - _EPOCH) // _MICROSECOND
    below, at_or_above = microseconds // 1000, -(-microseconds // 1000)
    match test:
        case S.EqualTo() | S.EqualNullSafe():
            return Bounds(from_ms=at_or_above, to_ms=below + 1)
        case S.GreaterThan():
            return Bounds(from_ms=below + 1)
        case S.GreaterThanOrEqual():
            return Bounds(from_ms=at_or_above)
        case S.LessThan():
            return Bounds(to_ms=at_or_above)
        case S.LessThanOrEqual():
            return Bounds(to_ms=below + 1)
    return None
