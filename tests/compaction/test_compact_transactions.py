"""Transactions in a compacted log: rows C27 and C29 … C39 of Kafka's own tests, and X15."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.segment.model import NewBatch
from kseg.segment.state.control import control_key
from tests.support.compact_helpers import (
    DAY_MS,
    SETTINGS,
    T0,
    Topic,
    aborted,
    batches,
    clean,
    ends,
    kept,
    log,
)

NOW = SETTINGS.now_ms
# early enough that producers are still active
SOON = T0 + 1000


@pytest.mark.behaviour("C27")
def test_last_sequence_of_an_aborted_transaction_is_kept(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send((1, "a"), producer=7, transactional=True)
    topic.send((2, "a"), (3, "a"), producer=7, transactional=True)
    topic.end(7, abort=True)
    directory = topic.roll_and_close()
    clean(directory, now_ms=SOON)
    assert [(b.last_offset, b.count) for b in batches(directory)] == [(2, 0), (3, 1)]
    assert batches(directory)[0].last_sequence == 2


@pytest.mark.behaviour("C29")
def test_interleaved_transactions_of_two_producers_are_compacted(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send((1, "p1"), (2, "p1"), producer=1, transactional=True)
    topic.send((2, "p2"), (3, "p2"), producer=2, transactional=True)
    topic.send((3, "p1"), producer=1, transactional=True)
    topic.send((1, "p2"), producer=2, transactional=True)
    topic.end(1, abort=True)
    topic.end(2)
    topic.send((2, "plain"))
    directory = topic.roll_and_close()
    outcome = clean(directory)
    assert kept(directory) == [(3, "3", "p2"), (5, "1", "p2"), (8, "2", "plain")]
    assert [b.last_offset for b in batches(directory) if b.is_control] == [6, 7]
    assert outcome.result["markers_kept"] == 2
    assert [entry.first_offset for entry in aborted(directory)] == [0]


@pytest.mark.behaviour("C30")
def test_commit_marker_without_data_is_removed_after_its_delete_horizon(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send((1, "a"), producer=1, transactional=True)
    topic.end(1)
    topic.send((1, "b"))
    directory = topic.roll_and_close()
    # the data is removed in this pass, so the marker stays without a horizon
    clean(directory, now_ms=NOW)
    assert ends(directory) == [1, 2]
    assert batches(directory)[0].delete_horizon_ms is None
    clean(directory, now_ms=NOW)
    assert batches(directory)[0].delete_horizon_ms == NOW + DAY_MS
    clean(directory, now_ms=NOW + DAY_MS - 1)
    assert ends(directory) == [1, 2]
    outcome = clean(directory, now_ms=NOW + DAY_MS)
    assert ends(directory) == [2]
    assert outcome.result["markers_removed"] == 1


@pytest.mark.behaviour("C31")
def test_commit_marker_is_kept_beside_the_empty_batch_of_its_producer(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send((1, "a"), producer=1, transactional=True)
    topic.end(1)
    topic.send((1, "b"))
    directory = topic.roll_and_close()
    for _ in range(3):
        clean(directory, now_ms=SOON)
        assert [(b.last_offset, b.count, b.delete_horizon_ms) for b in batches(directory)] == [
            (0, 0, None),
            (1, 1, None),
            (2, 1, None),
        ]


@pytest.mark.behaviour("C32")
@pytest.mark.behaviour("X15")
def test_abort_marker_is_removed_in_three_passes(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send((1, "a"), producer=1, transactional=True)
    topic.end(1, abort=True)
    topic.send((1, "b"))
    directory = topic.roll_and_close()
    clean(directory, now_ms=NOW)
    assert (ends(directory), [entry.last_offset for entry in aborted(directory)]) == ([1, 2], [1])
    clean(directory, now_ms=NOW)
    assert (ends(directory), aborted(directory)) == ([1, 2], [])
    assert not list(directory.glob("*.txnindex"))
    assert batches(directory)[0].delete_horizon_ms == NOW + DAY_MS
    clean(directory, now_ms=NOW + DAY_MS)
    assert ends(directory) == [2]


@pytest.mark.behaviour("C33")
@pytest.mark.behaviour("X15")
def test_abort_marker_is_kept_beside_the_empty_batch_of_its_producer(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send((1, "a"), producer=1, transactional=True)
    topic.end(1, abort=True)
    topic.send((1, "b"))
    directory = topic.roll_and_close()
    for _ in range(3):
        clean(directory, now_ms=SOON)
        assert [(b.last_offset, b.count) for b in batches(directory)] == [(0, 0), (1, 1), (2, 1)]
        assert [entry.last_offset for entry in aborted(directory)] == [1]


@pytest.mark.behaviour("C34")
def test_data_aborted_in_a_later_segment_is_removed(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send((1, "a"), producer=1, transactional=True)
    topic.roll()
    topic.send((2, "a"), producer=1, transactional=True)
    topic.end(1, abort=True)
    directory = topic.roll_and_close()
    outcome = clean(directory, now_ms=SOON, segment_bytes=1)
    assert kept(directory) == []
    assert [(b.last_offset, b.count) for b in batches(directory)] == [(1, 0), (2, 1)]
    assert outcome.bases == [0, 1, 3]
    assert log(directory, 0).stat().st_size == 0


@pytest.mark.behaviour("C35")
def test_data_committed_in_a_later_segment_is_kept(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send((1, "a"), producer=1, transactional=True)
    topic.roll()
    topic.send((2, "a"), producer=1, transactional=True)
    topic.roll()
    topic.end(1)
    directory = topic.roll_and_close()
    for _ in range(2):
        clean(directory, segment_bytes=1)
        assert kept(directory) == [(0, "1", "a"), (1, "2", "a")]
        assert [b.delete_horizon_ms for b in batches(directory)] == [None, None, None]


@pytest.mark.behaviour("C36")
def test_undecided_data_limits_the_cleaning_until_the_decision(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send((1, "old"))
    topic.send((1, "a"), producer=1, transactional=True)
    topic.roll()
    topic.send((2, "a"), producer=1, transactional=True)
    topic.roll()
    topic.send((1, "new"))
    topic.roll()
    topic.send((9, "x"))
    directory = topic.close()
    # the open transaction is in the first segment
    assert clean(directory).result["passes"] == 0
    other = Topic(tmp_path / "more")
    other.send((1, "old"))
    other.roll()
    other.send((1, "a"), producer=1, transactional=True)
    other.roll()
    other.send((1, "new"), producer=1, transactional=True)
    other.end(1)
    directory = other.roll_and_close()
    clean(directory)
    assert kept(directory) == [(2, "1", "new")]


@pytest.mark.behaviour("C37")
def test_batches_without_records_to_read_follow_their_own_rules(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send((1, "a"), producer=1, transactional=True)
    topic.end(1, abort=True)
    topic.send((2, "b"), producer=1, transactional=True)
    topic.send((2, "c"), producer=1, transactional=True)
    topic.end(1)
    topic.send((3, "end"))
    directory = topic.roll_and_close()
    clean(directory, now_ms=NOW)
    assert ends(directory) == [1, 3, 4, 5]
    clean(directory, now_ms=NOW)
    clean(directory, now_ms=NOW + DAY_MS)
    assert ends(directory) == [3, 4, 5]


@pytest.mark.behaviour("C38")
def test_empty_control_batch_has_no_effect(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.put(
        NewBatch(
            base_offset=0,
            last_offset=0,
            max_timestamp_ms=T0,
            transactional=True,
            control=True,
            producer_id=1,
            producer_epoch=0,
        )
    )
    topic.send((1, "a"))
    directory = topic.roll_and_close()
    for _ in range(3):
        clean(directory)
        assert ends(directory) == [1]


@pytest.mark.behaviour("C39")
def test_user_keys_that_look_like_markers_are_compacted_as_keys(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    key = control_key("COMMIT")
    topic.send((key, "user"))
    topic.send((1, "a"), producer=1, transactional=True)
    topic.end(1)
    topic.send((2, "b"))
    directory = topic.roll_and_close()
    clean(directory)
    assert ends(directory) == [0, 1, 2, 3]


def test_every_removed_record_is_counted_once(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send((1, "a"), (2, "b"), producer=1, transactional=True)
    topic.send((3, "c"), (3, "d"), (None, "e"), (4, None))
    topic.end(1, abort=True)
    topic.send((4, None), (5, None))
    topic.send((5, "f"), producer=2, transactional=True)
    topic.end(2)
    directory = topic.roll_and_close()
    first = clean(directory, now_ms=NOW).result
    reasons = ("superseded", "aborted", "invalid")
    # one "c" and two tombstones
    assert [first[f"{reason}_records"] for reason in reasons] == [3, 2, 1]
    assert (first["tombstones_removed"], first["tombstones_expired"], first["tombstones_kept"]) == (2, 0, 1)
    assert (first["records_before"], first["records_after"]) == (11, 5)
    second = clean(directory, now_ms=NOW + DAY_MS).result
    assert [second[f"{reason}_records"] for reason in reasons] == [0, 0, 0]
    assert (second["tombstones_removed"], second["tombstones_expired"], second["markers_removed"]) == (
        1,
        1,
        0,
    )
    assert (second["records_before"], second["records_after"]) == (5, 4)
    third = clean(directory, now_ms=NOW + 3 * DAY_MS).result
    assert (third["tombstones_expired"], third["markers_removed"], third["records_after"]) == (0, 1, 3)


@pytest.mark.parametrize("map_bytes", [24 * 4, 24 * 6, 1 << 20])
def test_counts_do_not_depend_on_the_number_of_passes(tmp_path: Path, map_bytes: int) -> None:
    topic = Topic(tmp_path)
    for number in range(12):
        topic.send((number % 6, "a"), (None, "b"))
        topic.send((number, "c"), producer=1, transactional=True)
        topic.end(1, abort=number % 3 == 0)
        topic.roll()
    result = clean(topic.close(), now_ms=NOW, map_bytes=map_bytes).result
    assert (result["passes"] > 1) == (map_bytes < 1 << 20)
    assert (result["records_before"], result["aborted_records"], result["invalid_records"]) == (48, 4, 12)
    gone = result["superseded_records"] + 4 + 12
    assert result["records_after"] == 48 - gone
    assert result["records_after"] == result["live_keys"] + result["markers_kept"]
