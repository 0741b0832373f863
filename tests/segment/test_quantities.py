"""Times, sizes and durations as people write them."""

from __future__ import annotations

import datetime
import pickle
import time

import pytest

from kseg.segment.quantities import Typed, read_duration, read_size, read_time

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
def test_human_times_are_parsed(text: str, expected: int) -> None:
    assert read_time(text, NOW_MS) == expected


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        # shown at 00:45 and 01:45 UTC
        ("02:45 Europe/Berlin", at(2026, 10, 25, 1, 50), at(2026, 10, 25, 1, 45)),
        ("02:45 Europe/Berlin", at(2026, 10, 25, 1, 40), at(2026, 10, 25, 0, 45)),
        # skipped on the 29th
        ("02:45 Europe/Berlin", at(2026, 3, 29, 12), at(2026, 3, 28, 1, 45)),
        # the whole 30th is skipped
        ("12:00 Pacific/Apia", at(2011, 12, 30, 20), at(2011, 12, 29, 22)),
    ],
)
def test_clock_time_is_the_last_one_that_a_clock_showed(text: str, now: int, expected: int) -> None:
    assert read_time(text, now) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "2026-10-25T02:30 Europe/Berlin",
            r"takes 2026-10-25T02:30:00\+02:00 or 2026-10-25T02:30:00\+01:00 \(in this zone clocks show it twice\)",
        ),
        (
            "2026-03-29T02:30 Europe/Berlin",
            r"takes a time that clocks show \(in this zone they skip it\)",
        ),
        ("9999-12-31T23:00 America/New_York", "takes epoch milliseconds"),
    ],
)
def test_time_that_clocks_do_not_show_once_is_rejected(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_time(text, NOW_MS)


def test_local_time_zone_is_used_for_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert read_time("2026-07-01T12:00 local", NOW_MS) == at(2026, 7, 1, 16)
        assert read_time("05:29 local", NOW_MS) == at(2026, 11, 23, 10, 29)
        assert read_time("05:31 local", NOW_MS) == at(2026, 11, 22, 10, 31)
        # still UTC
        assert read_time("2026-07-01T12:00", NOW_MS) == at(2026, 7, 1, 12)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text", ["", "-", "-1x", "25:00", "yesterday", "14:3", "2026-13-01", "12:00 Mars/Olympus"]
)
def test_invalid_times_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"takes epoch milliseconds|does not know the time zone"):
        read_time(text, NOW_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1G", 1 << 30), ("1g", 1 << 30), ("50GB", 50 * 10**9), ("64KiB", 65536), ("64K", 65536), ("1kb", 1000),
        ("2 TiB", 2 << 40), ("3TB", 3 * 10**12), ("7", 7), ("7b", 7), ("1.5GiB", 3 << 29), ("0.25 k", 256), ("0.1kB", 100),
        ("0.0010000001MiB", 1049),
    ],
)  # fmt: skip
def test_sizes_are_parsed(text: str, expected: int) -> None:
    assert read_size(text) == expected


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500", 500), ("250ms", 250), ("90s", 90_000), ("5m", 300_000), ("90min", 90 * 60_000), ("12h", 12 * HOUR_MS), ("7d", 168 * HOUR_MS),
        ("1w", 168 * HOUR_MS), ("1h30m", HOUR_MS * 3 // 2), ("1.5h", HOUR_MS * 3 // 2), ("6 d 23 h", 167 * HOUR_MS),
        ("1w2d3h4m5s6ms", ((9 * 24 + 3) * 3600 + 245) * 1000 + 6), ("1H30M", HOUR_MS * 3 // 2), ("1h0.5m", HOUR_MS + 30_000),
    ],
)  # fmt: skip
def test_durations_are_parsed(text: str, expected: int) -> None:
    assert read_duration(text) == expected
    assert (
        read_time(f"-{text}", NOW_MS) == NOW_MS - expected or text == "500"
    )  # -500 is a time in epoch milliseconds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"7d$"), ("x", r"7d$"), ("7 days!", "days is none of the units ms, s, m, min, h, d, w"), ("7x", "x is none of the units"),
        ("1h30", "30 has no unit"), ("1.5", "1.5 has no unit"), ("30m1h", "the largest unit first"), ("1h1h", "each once"), ("5m5min", "each once"),
        ("-1h", r"7d$"), ("1.h", r"7d$|no unit"), (".5h", r"7d$"), ("1e3s", "e is none of"), ("٣s", r"7d$"), ("9" * 41, r"7d$"),
        ("999999999999d", "at most 64 bits"), ("9" * 4000 + "h", "takes a duration"),
    ],
)  # fmt: skip
def test_invalid_durations_are_rejected(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_duration(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1.5", "1.5 has no unit"), ("1G500M", r"50GB$"), ("5 apples", "apples is none of the units b, k, kib, m"), ("9E", "E is none of"),
        ("1,000", r"50GB$"), ("-1", r"50GB$"), ("16777216T", "at most 64 bits"),
    ],
)  # fmt: skip
def test_invalid_sizes_are_rejected(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_size(text)


def test_parsed_quantity_keeps_its_text() -> None:
    week = read_duration("7d")
    assert isinstance(week, Typed) and (week, week.text) == (604_800_000, "7d")
    again = pickle.loads(pickle.dumps(week))
    assert (again, again.text) == (week, "7d")
    assert not isinstance(read_duration("7"), Typed)
