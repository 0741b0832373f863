"""Which tests of the suite carry which ids: the markers `behaviour("F01", …)` and `evidence("lock", …)`.

`python -m tests.marked_tests` collects the whole suite once and prints `{marker: {id: [test, …]}}` as JSON; the fixture `marked_tests` (conftest)
runs it in a process of its own, because pytest does not collect inside of pytest.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).resolve().parent.parent
MARKERS = ("behaviour", "evidence")

# id → names of the tests that carry it, sorted
TestsById: TypeAlias = dict[str, list[str]]


class _Collector:
    """A plugin of pytest that keeps what was collected."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, set[str]]] = {marker: {} for marker in MARKERS}

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            of_case = getattr(getattr(item, "callspec", None), "marks", ())
            for name, tests in self.tests.items():
                for marker in item.iter_markers(name):
                    # a mark of one case names the case
                    is_case = any(marker is mark for mark in of_case)
                    test = item.nodeid if is_case else re.sub(r"\[.*", "", item.nodeid)
                    for carried in marker.args:
                        tests.setdefault(carried, set()).add(test)


def collected() -> Mapping[str, TestsById]:
    """Marker → id → tests, of the whole suite. Raises RuntimeError when it cannot be collected."""
    collector = _Collector()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = pytest.main(
            ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(ROOT / "tests")],
            [collector],
        )
    if status != pytest.ExitCode.OK:
        raise RuntimeError(said.getvalue()[-2000:])
    return {
        marker: {row: sorted(names) for row, names in sorted(tests.items())}
        for marker, tests in collector.tests.items()
    }


if __name__ == "__main__":
    json.dump(collected(), sys.stdout)
