"""Compacted topics that grow without end: what a real broker's cleaner fails at, what `doctor` says, and that the cleaner continues
after its step."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.support.command_rows import of_type, rows_of

pytestmark = pytest.mark.kafka

DAY_NS = 24 * 3600 * 10**9
BEFORE_1970_MS = -5000
USUAL_MS = 1_700_000_000_000
TEN_YEARS_MS = 315_360_000_000
UNCLEANABLE = "Marking its partition (events-0) as uncleanable"


def write(broker: Broker, topic: str, timestamp: int, rounds: int = 4) -> list[str]:
    """Batches in which a later record replaces only the first one; returns the errors of the broker."""
    errors: list[str] = []
    producer = broker.producer()
    for number in range(rounds):
        for key in (b"same", b"key-%d" % number):
            producer.produce(
                topic,
                b"v" * 1500,
                key=key,
                timestamp=timestamp,
                on_delivery=lambda error, _: errors.append(error.name()) if error else None,
            )
        assert producer.flush(CLIENT_LIMIT_S) == 0
    return errors


def logs_of(data: Path, topic: str) -> list[Path]:
    return sorted((data / f"{topic}-0").glob("*.log"))


def age(data: Path, *topics: str) -> None:
    """Give closed segments the modification times that they would have if the broker had written on for two days."""
    for topic in topics:
        *closed, active = logs_of(data, topic)
        status = active.stat()
        for log in closed:
            os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns - 2 * DAY_NS))


def examined(capfd: pytest.CaptureFixture[str], data: Path, *, status: int) -> list[dict[str, Any]]:
    return rows_of(capfd, "doctor", data, status=status)


def offsets(broker: Broker, topic: str) -> dict[bytes | None, int]:
    """The latest offset of each key."""
    return {record.key: record.offset for record in broker.consume(topic)}


def assert_cleaner_continues(broker: Broker, before: dict[bytes | None, int]) -> None:
    """before: the latest offset of each key before the step."""
    cleaned = broker.cleaned_up_to("events")
    assert offsets(broker, "events") == before
    assert not write(broker, "events", USUAL_MS, rounds=6)
    broker.wait_for("the cleaner continues", lambda: broker.cleaned_up_to("events") > cleaned > 0)


@pytest.mark.evidence("uncleaned")
def test_doctor_names_what_the_cleaner_fails_at_and_the_cleaner_continues_after_its_step(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Broker(tmp_path / "before") as broker:
        broker.create_topic("events", cleanup_policy="compact")
        broker.create_topic("clean", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        assert not write(broker, "events", BEFORE_1970_MS)
        broker.wait_for("the cleaner fails", lambda: UNCLEANABLE in broker.log_text())
        for topic in ("events", "clean"):
            assert not write(broker, topic, USUAL_MS)
        broker.wait_for(
            "the cleaner cleans the other topic",
            lambda: broker.cleaned_up_to("clean") == int(logs_of(broker.data, "clean")[-1].stem) > 0,
        )
    data = broker.data
    assert not of_type(examined(capfd, data, status=0), "uncleaned")

    age(data, "events", "clean")
    rows = examined(capfd, data, status=1)
    (told,) = of_type(rows, "uncleaned")
    assert (told["partition"], told["cause"]) == ("events-0", "negative-timestamps")
    assert told["first_dirty_offset"] == 0
    (step,) = [step for step in of_type(rows, "step") if step["due"]]

    with Broker(tmp_path / "again", data) as again:
        again.wait_for("the cleaner fails once more", lambda: UNCLEANABLE in again.log_text())
        before = offsets(again, "events")
    assert run(shlex.split(step["command"])[1:]) == 0
    capfd.readouterr()
    assert not of_type(examined(capfd, data, status=0), "uncleaned")

    with Broker(tmp_path / "after", data) as after:
        assert_cleaner_continues(after, before)
        assert UNCLEANABLE not in after.log_text()
        after.create_topic("strict", message_timestamp_before_max_ms=str(TEN_YEARS_MS))
        assert {*write(after, "strict", BEFORE_1970_MS)} == {"INVALID_RECORD"}


@pytest.mark.evidence("uncleaned")
def test_timestamps_in_the_future_keep_the_cleaner_away_until_the_step(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ahead_ms = int(time.time() * 1000) + 400 * 24 * 3600 * 1000
    lag = {"cleanup_policy": "compact", "min_compaction_lag_ms": "3600000"}
    with Broker(tmp_path / "before") as broker:
        broker.create_topic("events", 1, **lag, message_timestamp_after_max_ms=str(2**62))
        broker.create_topic("young", 1, **lag)
        assert not write(broker, "events", ahead_ms)
        assert not write(broker, "events", USUAL_MS)
        assert not write(broker, "young", int(time.time() * 1000))
    data = broker.data
    assert not of_type(examined(capfd, data, status=0), "uncleaned")

    age(data, "events")
    rows = examined(capfd, data, status=1)
    (told,) = of_type(rows, "uncleaned")
    assert (told["partition"], told["cause"]) == ("events-0", "future-timestamps")
    assert told["freed_bytes"] > 0
    (step,) = [step for step in of_type(rows, "step") if step["due"]]
    with Broker(tmp_path / "again", data) as again:
        before = offsets(again, "events")
        again.create_topic("other", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        assert not write(again, "other", USUAL_MS)
        again.wait_for("the cleaner works", lambda: again.cleaned_up_to("other") > 0)
        assert again.cleaned_up_to("events") == 0

    assert run(shlex.split(step["command"])[1:]) == 0
    capfd.readouterr()
    assert not of_type(examined(capfd, data, status=0), "uncleaned")
    with Broker(tmp_path / "after", data) as after:
        assert_cleaner_continues(after, before)


@pytest.mark.evidence("uncleaned")
def test_retention_spares_what_the_cleaner_fails_at(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker:
        both = {"cleanup_policy": "compact,delete", "retention_bytes": "1"}
        for topic in ("events", "plain"):
            broker.create_topic(topic, 1, **both, min_cleanable_dirty_ratio="0", file_delete_delay_ms="0")
        assert not write(broker, "events", BEFORE_1970_MS)
        broker.wait_for("the cleaner fails", lambda: UNCLEANABLE in broker.log_text())
        first = logs_of(broker.data, "events")[0]
        left = len(logs_of(broker.data, "events"))
        for topic in ("events", "plain"):
            assert not write(broker, topic, USUAL_MS)
        broker.wait_for("the cleaner deletes", lambda: int(logs_of(broker.data, "plain")[0].stem) > 0)
        assert first.exists() and len(logs_of(broker.data, "events")) > left


@pytest.mark.evidence("uncleaned")
def test_retention_deletes_from_it_after_a_start_until_the_cleaner_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The cleaner takes the filthiest log, which is another one, and then deletes from all logs at which it has not failed yet. So what
    retention deletes after a start includes such a log."""
    both = {"cleanup_policy": "compact,delete"}
    with Broker(tmp_path / "before", log_cleaner_min_cleanable_ratio="1") as broker:
        broker.create_topic("events", 1, **both, max_compaction_lag_ms="1")
        broker.create_topic("filthiest", 1, **both)
        assert not write(broker, "events", USUAL_MS)
        broker.wait_for("the cleaning", lambda: broker.cleaned_up_to("events") > 0)
        assert not write(broker, "events", BEFORE_1970_MS)
        broker.wait_for("the cleaner fails", lambda: UNCLEANABLE in broker.log_text())
        for topic in ("events", "filthiest"):
            assert not write(broker, topic, USUAL_MS)
    properties = tmp_path / "given.properties"
    properties.write_text("log.retention.bytes=1\n")
    (told,) = of_type(
        rows_of(capfd, "doctor", "--server-properties", properties, broker.data, status=0),
        "retention",
    )
    assert told["partitions"] == 2
    with Broker(
        tmp_path / "after", broker.data, log_retention_bytes="1", log_cleaner_min_cleanable_ratio="0.01"
    ) as after:
        after.wait_for("the deletion", lambda: len(logs_of(after.data, "events")) == 1)
        assert UNCLEANABLE not in after.log_text()


@pytest.mark.evidence("uncleaned")
def test_doctor_tells_a_held_back_log_from_one_that_nothing_cleans(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a cleaner, and below the first offset of an open transaction there is nothing to clean."""
    with Broker(tmp_path / "broker", log_cleaner_enable="false") as broker:
        for topic in ("held", "plain"):
            broker.create_topic(topic, cleanup_policy="compact")
        broker.create_topic("other")
        hanging = broker.producer(transactional_id="hangs")
        hanging.init_transactions(CLIENT_LIMIT_S)
        hanging.begin_transaction()
        hanging.produce("held", b"first", key=b"open")
        assert hanging.flush(CLIENT_LIMIT_S) == 0
        for topic in ("held", "plain", "other"):
            assert not write(broker, topic, USUAL_MS)
    age(broker.data, "held", "plain", "other")
    rows = rows_of(capfd, "doctor", broker.data, status=0)
    told = {row["partition"]: row for row in of_type(rows, "uncleaned")}
    assert {name: row["cause"] for name, row in told.items()} == {
        "held-0": "last-stable-offset",
        "plain-0": "unknown",
    }
    assert told["held-0"]["last_stable_offset"] == 0
    assert told["plain-0"]["freed_bytes"] > 0
    (step,) = [step for step in of_type(rows, "step") if step["command"].startswith("kseg compact")]
    assert not step["due"] and step["command"].endswith("/plain-0")
