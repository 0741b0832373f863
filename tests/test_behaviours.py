"""The acceptance list is complete, and its page is up to date."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests import behaviours
from tests.support.marked_tests import TestsById


@pytest.fixture(scope="module")
def written(marked_tests: Mapping[str, TestsById]) -> str:
    """The page as it should be."""
    return behaviours.page(marked_tests["behaviour"])


def test_every_row_of_the_areas_is_listed() -> None:
    areas = (
        ("F", 59),
        ("I", 22),
        ("D", 11),
        ("V", 16),
        ("L", 22),
        ("R", 44),
        ("P", 27),
        ("X", 22),
        ("C", 59),
        ("T", 21),
        ("G", 14),
    )
    for letter, last in areas:
        there = [f"{letter}{number:02}" for number in range(1, last + 1)]
        assert [row for row in behaviours.ROWS if row[0] == letter] == [
            row for row in there if row not in behaviours.UNREACHABLE
        ]


def test_every_row_has_a_test(written: str) -> None:
    bare = [line for line in written.splitlines() if line.endswith("| — |")]
    assert bare == []


def test_behaviours_page_is_up_to_date(written: str) -> None:
    assert behaviours.PAGE.read_text() == written, "run python -m tests.behaviours"


def test_row_without_a_test_is_reported() -> None:
    tests = {row: ["tests/test_x.py::test_y"] for row in behaviours.ROWS}
    assert behaviours.rows_without_test(tests) == []
    del tests["F46"]
    assert behaviours.rows_without_test(tests) == ["F46"]
    assert "| F46 | a truncated lz4 header is an error | — |" in behaviours.page(tests)
    assert behaviours.unknown_rows({**tests, "F60": [], "Z01": []}) == ["F60"]
