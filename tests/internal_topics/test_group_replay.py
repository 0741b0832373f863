"""Replay of handmade group records by the rules of a coordinator's load (GroupMetadataManager, OffsetMetadataManager)."""

from __future__ import annotations

import pytest

from kseg.internal_topics.coordinator_log import CoordinatorRecord, TransactionMarker
from kseg.internal_topics.groups.committed_offsets import committed_offset
from kseg.internal_topics.groups.coordinator_partition import java_hash, partition_for
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS, OffsetKey, parse_commit, parse_key
from kseg.internal_topics.groups.group_replay import load_groups
from tests.internal_topics.coordinator_logs import key, value
from tests.support.group_records import Log, offset, waiting

# --- committed offsets


def worked_example() -> Log:
    """Section 12.1 of the fact sheet."""
    log = Log()
    log.commit(10)
    log.commit(20, 7)
    log.commit(15)
    log.end(7)
    log.commit(30, 7)
    log.end(7, is_commit=False)
    log.commit(40, 7)
    log.commit(None)
    log.end(7)
    return log


@pytest.mark.parametrize(
    ("records", "committed", "pending"),
    [(1, 10, None), (2, 10, 20), (3, 15, 20), (4, 15, None), (5, 15, 30), (6, 15, None), (7, 15, 40), (8, None, None), (9, None, None)],
)  # fmt: skip
@pytest.mark.behaviour("G01")
def test_transactional_offsets_after_each_record(
    records: int, committed: int | None, pending: int | None
) -> None:
    log = worked_example()
    loaded = load_groups(log.entries[:records])
    by_time = log.loaded(until_ms=(records - 1) * 1000)
    assert offset(loaded) == offset(by_time) == committed
    assert waiting(loaded) == waiting(by_time) == ([] if pending is None else [pending])


@pytest.mark.behaviour("G02")
def test_offset_tombstone_drops_pending_commits_of_all_producers() -> None:
    log = Log()
    log.commit(1, 7)
    log.commit(2, 8)
    log.commit(None, 9)
    log.end(7)
    log.end(8)
    assert offset(log.loaded()) is None
    assert OffsetKey("g", "t", 0) in log.loaded().offsets.deletions


@pytest.mark.behaviour("G01")
def test_transactional_flag_and_epoch_are_ignored() -> None:
    log = Log()
    log.commit(1, 7)
    (first,) = log.entries
    assert isinstance(first, CoordinatorRecord)
    log.entries[0] = first._replace(is_transactional=False)
    assert offset(log.loaded()) is None
    log.entries.append(TransactionMarker(1, 1000, 7, 5, True, 0))
    assert offset(log.loaded()) == 1


def test_markers_with_timestamps_out_of_order_end_only_their_commits() -> None:
    """As of a time, offsets of a transaction count from its own COMMIT marker on. A later marker of the same producer with an earlier
    timestamp ends only its own transaction."""
    log = Log()
    log.commit(10, 7)
    log.end(7)
    log.commit(20, 7, topic="u")
    log.end(7)
    times = [100, 900, 200, 300]
    log.entries = [
        entry._replace(timestamp_ms=time_ms) for entry, time_ms in zip(log.entries, times, strict=True)
    ]

    def committed(until_ms: int) -> dict[str, int]:
        found = log.loaded(until_ms=until_ms).offsets.offsets
        return {key.topic: committed_offset(commit) for key, commit in found.items()}

    assert committed(250) == {}
    assert committed(300) == committed(899) == {"u": 20}
    assert committed(900) == {"t": 10, "u": 20}
    (left,) = log.loaded(until_ms=300).offsets.still_open
    assert [key.topic for key in left] == ["t"]


def test_commits_without_message_timestamp_use_the_commit_timestamp() -> None:
    """Format v0 has no timestamp, so the commit timestamp counts (5, from `Log.commit`)."""
    log = Log()
    log.commit(10)
    (only,) = log.entries
    log.entries = [only._replace(timestamp_ms=-1)]
    assert offset(log.loaded(until_ms=4)) is None
    assert offset(log.loaded(until_ms=5)) == 10


def test_rewound_offsets_are_recorded() -> None:
    log = Log()
    log.commit(10)
    log.commit(4)
    log.commit(9, 7)
    log.commit(3, 7)
    log.end(7)
    log.commit(None)
    log.commit(2)
    log.commit(8)
    rewinds = log.loaded().offsets.rewinds
    assert [
        (committed_offset(each.former), committed_offset(each.commit), each.timestamp_ms, each.deleted_ms)
        for each in rewinds
    ] == [
        (10, 4, 1000, None),
        (4, 3, 4000, None),
        (3, 2, 6000, 5000),
    ]


def test_key_in_a_cleaned_part_may_be_unknown() -> None:
    log = Log()
    log.commit(10, group="a")
    log.commit(20, group="b")
    log.commit(30, group="c")
    unknown = log.loaded(until_ms=0, cleaned_end=2).unknown
    assert unknown == {OffsetKey("b", "t", 0): 1000}


# --- what fails


@pytest.mark.behaviour("G10")
def test_group_records_that_fail_the_load_or_are_skipped() -> None:
    log = Log()
    log.put(None, b"\0\0")
    log.put(b"\0", b"\0\0")
    log.put(b"\0\x63", b"\0\0")
    log.put(key(CONSUMER_OFFSETS, 1, group="g", topic="t", partition=0), b"\0\x05" + bytes(40))
    log.put(key(CONSUMER_OFFSETS, 1, group="g", topic="t", partition=1), b"\0\x03" + bytes(12))
    log.put(key(CONSUMER_OFFSETS, 0, group="g", topic="t", partition=2), b"\0\x01" + bytes(40))
    log.put(key(CONSUMER_OFFSETS, 3, groupId="g"), b"\0\0")
    loaded = log.loaded()
    assert [each.offset for each in loaded.failures] == [0, 1, 3, 4, 5, 6]
    assert loaded.unknown_types == {0x63: 1}


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("metadata", ["", "m", "ü" * 100])
@pytest.mark.behaviour("G10")
def test_truncated_commit_fails_the_load(version: int, metadata: str) -> None:
    whole = value(CONSUMER_OFFSETS, 1, version, offset=7, metadata=metadata, commitTimestamp=9)
    for end in range(len(whole) + 1):
        log = Log()
        log.put(key(CONSUMER_OFFSETS, 1, group="g", topic="t", partition=0), whole[:end])
        assert bool(log.loaded().failures) == (end < len(whole)), end
    assert parse_commit(1, whole)[0].metadata == metadata


def test_offset_keys_are_read_like_the_schema() -> None:
    for group, topic, partition in (("g", "t", 3), ("", "", -1), ("grüp", "t" * 249, 2**31 - 1)):
        raw = key(CONSUMER_OFFSETS, 1, group=group, topic=topic, partition=partition)
        assert parse_key(raw) == (1, OffsetKey(group, topic, partition))
        assert parse_key(raw + b"left over") == (1, OffsetKey(group, topic, partition))


@pytest.mark.parametrize(
    ("name", "code", "partition"),
    [
        ("g", 103, 3),
        ("my-group", -1906497762, 12),
        ("console-consumer-12345", 158455506, 6),
        ("grüp", 3185951, 1),
        ("😀", 1772899, 49),
        ("", 0, 0),
        ("polygenelubricants", -2147483648, 0),
        ("till-0", -873693416, 16),
    ],
)
@pytest.mark.behaviour("G11")
def test_partition_of_a_group_uses_javas_hash(name: str, code: int, partition: int) -> None:
    assert (java_hash(name), partition_for(name)) == (code, partition)
