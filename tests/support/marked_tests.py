"""Find the tests of the suite that carry an id, by the markers `behaviour("F01", …)` and `evidence("lock", …)`.

A run of the whole suite has collected them already (`is_whole_suite`). For any other run, `python -m tests.support.marked_tests` collects
the suite and prints `{marker: {id: [test, …]}}` as JSON; the fixture `marked_tests` (conftest) runs it in a process of its own, because
pytest cannot be nested.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.paths import ROOT

MARKERS = ("behaviour", "evidence")

# id → names of the tests that carry it, sorted
TestsById: TypeAlias = dict[str, list[str]]


class _Collector:
    """A pytest plugin that records what was collected."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        self.items = [*items]


def is_whole_suite(config: pytest.Config) -> bool:
    """Whether a run collects every test, whatever it deselects afterwards."""
    narrowed = ("lf", "ignore", "ignore_glob", "deselect")
    return [Path(argument).resolve() for argument in config.args] == [ROOT / "tests"] and not any(
        config.getoption(name, False) for name in narrowed
    )


def marks_of(items: Iterable[pytest.Item]) -> Mapping[str, TestsById]:
    """Marker → id → tests."""
    found: dict[str, dict[str, set[str]]] = {marker: {} for marker in MARKERS}
    for item in items:
        of_case = getattr(getattr(item, "callspec", None), "marks", ())
        for name, tests in found.items():
            for marker in item.iter_markers(name):
                # the marker of a single parametrized case names that case
                is_case = any(marker is mark for mark in of_case)
                test = item.nodeid if is_case else re.sub(r"\[.*", "", item.nodeid)
                for carried in marker.args:
                    tests.setdefault(carried, set()).add(test)
    return {
        marker: {row: sorted(names) for row, names in sorted(tests.items())}
        for marker, tests in found.items()
    }


def collected() -> Mapping[str, TestsById]:
    """Marker → id → tests, for the whole suite. Raises RuntimeError if it cannot be collected."""
    collector = _Collector()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        status = pytest.main(
            ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(ROOT / "tests")],
            [collector],
        )
    if status != pytest.ExitCode.OK:
        raise RuntimeError(output.getvalue()[-2000:])
    return marks_of(collector.items)


if __name__ == "__main__":
    json.dump(collected(), sys.stdout)
