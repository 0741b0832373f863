"""Filters that Spark pushes down, as bounds: nothing that a filter lets through may be lost by them."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as S

from kseg.segment.arrow.pieces import Bounds
from kseg.spark.source.pruning import Narrowing, narrow

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
COMPARISONS: dict[type[S.Filter], Callable[[int, int], bool]] = {
    S.EqualTo: lambda left, right: left == right,
    S.EqualNullSafe: lambda left, right: left == right,
    S.GreaterThan: lambda left, right: left > right,
    S.GreaterThanOrEqual: lambda left, right: left >= right,
    S.LessThan: lambda left, right: left < right,
    S.LessThanOrEqual: lambda left, right: left <= right,
}
OFFSET, TIME = ("offset",), ("timestamp",)


@given(st.sampled_from(list(COMPARISONS)), st.integers(-3, 30), st.integers(0, 30))
def test_offsets_are_bounded_exactly(kind: type[S.Filter], value: int, offset: int) -> None:
    found, left = narrow([kind(OFFSET, value)])  # type: ignore[call-arg]
    is_within = found.bounds.from_offset <= offset < found.bounds.to_offset
    assert is_within == COMPARISONS[kind](offset, value)
    assert not left


@given(st.sampled_from(list(COMPARISONS)), st.integers(-5000, 5000), st.integers(-5, 5))
def test_times_are_bounded_exactly(kind: type[S.Filter], microseconds: int, time_ms: int) -> None:
    value = EPOCH + datetime.timedelta(microseconds=microseconds)
    found, left = narrow([kind(TIME, value)])  # type: ignore[call-arg]
    is_within = found.bounds.from_ms <= time_ms < found.bounds.to_ms
    assert is_within == COMPARISONS[kind](time_ms * 1000, microseconds)
    assert len(left) == 1  # Spark asks again


def test_filters_are_taken_together() -> None:
    asked: list[S.Filter] = [S.GreaterThan(OFFSET, 4), S.LessThanOrEqual(OFFSET, 9), S.IsNotNull(OFFSET)]
    assert narrow(asked) == (Narrowing(Bounds(5, 10)), [])


def test_a_list_of_offsets_is_bounded_by_its_ends() -> None:
    one = S.In(OFFSET, (7, 3, 12))
    assert narrow([one]) == (Narrowing(Bounds(3, 13)), [one])


@pytest.mark.parametrize(
    ("asked", "accepted"),
    [
        (S.EqualTo(("topic",), "a"), {("a", 0), ("a", 1)}),
        (S.EqualNullSafe(("topic",), "a"), {("a", 0), ("a", 1)}),
        (S.Not(S.EqualTo(("topic",), "a")), {("ab", 0), ("b", 1)}),
        (S.In(("topic",), ("ab", "b")), {("ab", 0), ("b", 1)}),
        (S.Not(S.In(("topic",), ("ab", "b"))), {("a", 0), ("a", 1)}),
        (S.StringStartsWith(("topic",), "a"), {("a", 0), ("a", 1), ("ab", 0)}),
        (S.StringEndsWith(("topic",), "b"), {("ab", 0), ("b", 1)}),
        (S.StringContains(("topic",), "b"), {("ab", 0), ("b", 1)}),
        (S.EqualTo(("partition",), 1), {("a", 1), ("b", 1)}),
        (S.GreaterThan(("partition",), 0), {("a", 1), ("b", 1)}),
        (S.LessThan(("partition",), 1), {("a", 0), ("ab", 0)}),
        (S.In(("partition",), (0, 5)), {("a", 0), ("ab", 0)}),
        (S.IsNull(("topic",)), set()),
        (S.IsNotNull(("partition",)), {("a", 0), ("a", 1), ("ab", 0), ("b", 1)}),
    ],
)
def test_which_partitions(asked: S.Filter, accepted: set[tuple[str, int]]) -> None:
    found, left = narrow([asked])
    there = [("a", 0), ("a", 1), ("ab", 0), ("b", 1)]
    assert {where for where in there if found.accepts(*where)} == accepted
    assert not left


@pytest.mark.parametrize(
    "asked",
    [
        S.EqualTo(("key",), b"k"),
        S.EqualTo(("_meta", "offset"), 5),
        S.EqualTo(OFFSET, None),
        S.EqualTo(OFFSET, 2**63 - 1),
        S.Not(S.EqualTo(OFFSET, 5)),
        S.In(OFFSET, (1, None)),
        S.EqualTo(TIME, datetime.datetime(2024, 1, 1)),
        S.IsNotNull(TIME),
        S.In(("topic",), ("a", None)),
        S.EqualTo(("partition",), None),
    ],
)
def test_what_is_left_to_spark(asked: S.Filter) -> None:
    assert narrow([asked]) == (Narrowing(), [asked])
