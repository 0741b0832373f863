"""Which tests of the suite carry which ids: the markers `behaviour("F01", …)` and `evidence("lock", …)`.

A run of the whole suite has collected it already (`is_whole_suite`). For any other, `python -m tests.support.marked_tests` collects it and
prints `{marker: {id: [test, …]}}` as JSON; the fixture `marked_tests` (conftest) runs it in a process of its own, because pytest does not
collect inside of pytest.
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
    """A pytest plugin that keeps what was collected."""

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
                # the mark of a single case names that case
                is_case = any(marker is mark for mark in of_case)
                test = item.nodeid if is_case else re.sub(r"\[.*", "", item.nodeid)
                for carried in marker.args:
                    tests.setdefault(carried, set()).add(test)
    return {
        marker: {row: sorted(names) for row, names in sorted(tests.items())}
        for marker, tests in found.items()
    }


def collected() -> Mapping[str, TestsById]:
    """Marker → id → tests, of the whole suite. Raises RuntimeError when it cannot be collected."""
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
