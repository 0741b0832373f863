"""Times, sizes and durations as people write them."""

from __future__ import annotations

import datetime
import pickle
import time

import pytest

from kseg.segment.quantities import DURATIONS_MS, SIZES, Typed, amount, read_time

NOW = datetime.datetime(2026, 11, 23, 10, 30, tzinfo=datetime.UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    moment = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW_MS),
        ("-1h", NOW_MS - 3_600_000),
        ("-90s", NOW_MS - 90_000),
        ("-7d", NOW_MS - 7 * 86_400_000),
        ("10:30", NOW_MS),
        ("10:31", NOW_MS - 86_400_000 + 60_000),
        ("14:03", at(2026, 11, 22, 14, 3)),
        ("9:05:07", at(2026, 11, 23, 9, 5, 7)),
        ("09:05:07.250", at(2026, 11, 23, 9, 5, 7) + 250),
        ("11:29 Europe/Berlin", at(2026, 11, 23, 10, 29)),
        ("11:31 Europe/Berlin", at(2026, 11, 22, 10, 31)),
        ("2026-07-01T12:00 Europe/Berlin", at(2026, 7, 1, 10)),
        ("2026-07-01 12:00:00 UTC", at(2026, 7, 1, 12)),
        ("2026-07-01T12:00+02:00", at(2026, 7, 1, 10)),
        ("-5", -5),
    ],
)
def test_times_of_people(text: str, expected: int) -> None:
    assert read_time(text, NOW_MS) == expected


def test_the_zone_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert read_time("2026-07-01T12:00 local", NOW_MS) == at(2026, 7, 1, 16)
        assert read_time("05:29 local", NOW_MS) == at(2026, 11, 23, 10, 29)
        assert read_time("05:31 local", NOW_MS) == at(2026, 11, 22, 10, 31)
        assert read_time("2026-07-01T12:00", NOW_MS) == at(2026, 7, 1, 12)  # UTC all the same
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text", ["", "-", "-1x", "25:00", "yesterday", "14:3", "2026-13-01", "12:00 Mars/Olympus"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"takes epoch milliseconds|does not know the time zone"):
        read_time(text, NOW_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1G", 1 << 30), ("1g", 1 << 30), ("50GB", 50 * 10**9), ("64KiB", 65536), ("64K", 65536), ("1kb", 1000),
        ("2 TiB", 2 << 40), ("3TB", 3 * 10**12), ("7", 7), ("7b", 7),
    ],
)  # fmt: skip
def test_sizes(text: str, expected: int) -> None:
    assert amount(text, SIZES, "no size") == expected


def test_a_number_keeps_the_words_it_was_typed_in() -> None:
    week = amount("7d", DURATIONS_MS, "no duration")
    assert isinstance(week, Typed) and (week, week.text) == (604_800_000, "7d")
    again = pickle.loads(pickle.dumps(week))
    assert (again, again.text) == (week, "7d")
    assert not isinstance(amount("7", DURATIONS_MS, "no duration"), Typed)
