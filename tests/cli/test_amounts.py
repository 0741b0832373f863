"""Sizes and durations in words."""

from __future__ import annotations

import pytest

from kseg.cli.run_summary import RunSummary
from kseg.cli.text.amounts import duration_words, size_words
from kseg.cli.text.change_report import estimate_words


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (102_348, "99.9 KiB"),
        (102_400, "100 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (50 << 30, "50.0 GiB"),
        (1 << 60, "1.0 EiB"),
        ((1 << 63) - 1, "8.0 EiB"),
    ],
)
def test_sizes_in_words(size_bytes: int, words: str) -> None:
    assert size_words(size_bytes) == words


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [
        (0, "0ms"),
        (250, "250ms"),
        (1500, "1.5s"),
        (86_400_001, "86400.001s"),
        (1_234_567_890, "1234567.89s"),
        (20_000, "20s"),
        (5_400_000, "90min"),
        (7 * 86_400_000, "7d"),
        (-1, "no limit"),
    ],
)
def test_durations_in_words(duration_ms: int, words: str) -> None:
    assert duration_words(duration_ms) == words


def test_estimate_names_both_kinds_of_disk() -> None:
    summary = RunSummary(1)
    summary.note_result({"applied": False, "room": [{"needed": 100 << 20, "fits": True}]})
    summary.planned_changes = 2000
    row = summary.as_row("recover")
    assert (row["estimated_s"], row["estimated_s_on_flash"]) == (102.0, 10.2)
    assert estimate_words(102.0, 10.2, summary) == (
        "--apply plans again and then takes about 10 s on flash, 102 s on a spinning disk (2,000 changes, 100 MiB to write)"
    )
    assert estimate_words(1.0, 0.1, summary).startswith("--apply plans again and then takes about 1 s (")
