"""Sizes and durations in words."""

from __future__ import annotations

import pytest

from kseg.cli.text.amounts import duration_words, size_words


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
def test_sizes(size_bytes: int, words: str) -> None:
    assert size_words(size_bytes) == words


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [
        (0, "0ms"),
        (250, "250ms"),
        (1500, "1.5s"),
        (20_000, "20s"),
        (5_400_000, "90min"),
        (7 * 86_400_000, "7d"),
        (-1, "no limit"),
    ],
)
def test_durations(duration_ms: int, words: str) -> None:
    assert duration_words(duration_ms) == words
