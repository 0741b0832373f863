"""Counted nouns, and that no module builds plurals on its own."""

from __future__ import annotations

import re

import pytest

from kseg.segment.counted import counted
from tests.support.paths import ROOT

ROOMS = (
    "change",
    "cli",
    "compaction",
    "inspection",
    "internal_topics",
    "jobs",
    "recovery",
    "segment",
    "spark",
)


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (0, "error", "0 errors"),
        (1, "batch", "1 batch"),
        (2, "batch", "2 batches"),
        (1000, "pass", "1,000 passes"),
        (2, "directory", "2 directories"),
        (3, "key", "3 keys"),
        (2, "valid batch", "2 valid batches"),
        (2, "index", "2 indexes"),
        (2, "more entry", "2 more entries"),
    ],
)
def test_counted_nouns_have_their_plural(number: int, noun: str, words: str) -> None:
    assert counted(number, noun) == words


def test_no_module_builds_plurals_on_its_own() -> None:
    own = re.compile(
        r"""(batch|pass|entry|record|file|group|place)e?s?['"]? if [^\n]{0,40}== 1|replace\("batchs"""
    )
    found = [
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if own.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []
