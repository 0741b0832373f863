"""docs/data-directory.md is true: each of its rows has a test that carries its id, and each id that a test carries has a row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from kseg.segment.partition.names import NAME_BY_ROLE, SUFFIX_BY_ROLE
from tests.support.marked_tests import TestsById
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "data-directory.md"
HEADER = ["id", "Evidence", "kseg concludes", "A broker would"]


def cells(line: str) -> list[str]:
    """The cells of a table row; `\\|` is not a separator."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def tables() -> list[list[str]]:
    """All rows of the page's tables, without headers and separator rows."""
    lines = [cells(line) for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [row for row in lines if row != HEADER and not all(re.fullmatch(":?-+:?", cell) for cell in row)]


def test_every_table_has_the_four_columns() -> None:
    rows = tables()
    assert len(rows) > 20
    for row in rows:
        assert len(row) == len(HEADER) and all(row), row
        assert re.fullmatch(r"`[a-z0-9]+(-[a-z0-9]+)*`", row[0]), f"{row[0]} is no id in backquotes"


def test_evidence_ids_are_unique() -> None:
    assert [name for name, count in Counter(row[0] for row in tables()).items() if count > 1] == []


def test_data_directory_page_names_every_kafka_file() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in (*NAME_BY_ROLE.values(), *SUFFIX_BY_ROLE.values()) if name not in page] == []


def test_every_row_has_a_test_and_every_mark_a_row(marked_tests: Mapping[str, TestsById]) -> None:
    listed = {row[0].strip("`") for row in tables()}
    carried = marked_tests["evidence"].keys()
    assert sorted(listed - carried) == [], "rows without @pytest.mark.evidence(id)"
    assert sorted(carried - listed) == [], "marked tests without a row in docs/data-directory.md"
