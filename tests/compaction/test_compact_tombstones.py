"""When tombstones get a delete horizon and are removed, and what a plan reports about it: rows C19 to C23 of Kafka's own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.segment import layout as L
from tests.support.compact_helpers import (
    DAY_MS,
    SETTINGS,
    T0,
    Topic,
    batches,
    clean,
    kept,
    records,
    tombstones,
    touch,
)

NOW = SETTINGS.now_ms


@pytest.mark.behaviour("C19")
@pytest.mark.behaviour("C20")
def test_tombstone_gets_a_delete_horizon_and_is_removed_after_it(tmp_path: Path) -> None:
    directory = tombstones(tmp_path).close()
    first = clean(directory, now_ms=T0 + 5000, delete_retention_ms=1000)
    assert kept(directory) == [(1, "b", "2"), (2, "a", None), (3, "c", "3"), (4, "z", "9")]
    batch = batches(directory)[1]
    assert batch.delete_horizon_ms == T0 + 6000
    assert records(directory)[1].timestamp_ms == T0
    assert (first.result["tombstones_kept"], first.result["tombstones_removed"]) == (1, 0)
    clean(directory, now_ms=T0 + 5999, delete_retention_ms=1000)
    assert batches(directory)[1] == batch
    last = clean(directory, now_ms=T0 + 6000, delete_retention_ms=1000)
    assert kept(directory) == [(1, "b", "2"), (3, "c", "3"), (4, "z", "9")]
    assert batches(directory)[1].delete_horizon_ms == T0 + 6000
    assert (last.result["tombstones_kept"], last.result["tombstones_removed"]) == (0, 1)


@pytest.mark.behaviour("C21")
def test_old_tombstone_is_kept_in_its_first_pass(tmp_path: Path) -> None:
    directory = tombstones(tmp_path).close()
    clean(directory, now_ms=T0 + 1000 * DAY_MS)
    assert (2, "a", None) in kept(directory)


@pytest.mark.behaviour("C22")
def test_superseded_tombstone_is_removed_at_once(tmp_path: Path) -> None:
    topic = tombstones(tmp_path)
    topic.send(("a", 10))
    clean(topic.roll_and_close())
    assert kept(topic.directory) == [(1, "b", "2"), (3, "c", "3"), (4, "z", "9"), (5, "a", "10")]


@pytest.mark.behaviour("C23")
@pytest.mark.parametrize(("age_ms", "stays"), [(1001, False), (1000, False), (999, True)])
def test_tombstones_of_old_formats_are_removed_by_file_mtime(
    tmp_path: Path, age_ms: int, stays: bool
) -> None:
    topic = Topic(tmp_path)
    topic.send(("x", 1))
    topic.roll()
    topic.send(("a", None), magic=1)
    topic.send(("b", 1), magic=1)
    topic.roll()
    topic.send(("c", 1))
    directory = topic.roll_and_close()
    touch(directory, 0, T0)
    touch(directory, 1, T0 - age_ms)
    clean(directory, first_dirty_offset=1, delete_retention_ms=1000, segment_bytes=1)
    assert ((1, "a", None) in kept(directory)) is stays


def test_plan_says_when_tombstones_can_be_removed(tmp_path: Path) -> None:
    directory = tombstones(tmp_path).close()
    clean(directory, now_ms=T0 + 5000, delete_retention_ms=1000)
    topic_rows = clean(directory, now_ms=T0 + 5600, delete_retention_ms=7000, apply=False).rows
    assert [
        (row["delete_horizon_ms"], row["wait_ms"], row["tombstones"])
        for row in topic_rows
        if row["type"] == "horizon"
    ] == [(T0 + 6000, 400, 1)]


@pytest.mark.parametrize("codec", [L.NONE, L.LZ4])
def test_plan_names_the_keys_with_most_old_values(tmp_path: Path, codec: int) -> None:
    topic = Topic(tmp_path)
    for n in range(300):
        topic.send((f"k{n}", n), ("busy", "x" * 50), (b"\xff\xfe", "y" * (n % 40)), codec=codec)
    topic.send(*[(f"k{n}", "last") for n in range(300)])
    topic.roll()
    topic.send(("z", 0))
    topic.close()
    outcome = clean(topic.directory, apply=False, top_keys=2)
    keys = [row for row in outcome.rows if row["type"] == "key"]
    assert [(row["key"], row["key_encoding"], row["records"]) for row in keys] == [
        ("busy", "utf8", 299),
        ("//4=", "base64", 299),
    ]
    assert keys[0]["bytes"] == 299 * 54
    assert not [row for row in clean(topic.directory).rows if row["type"] == "key"]
