"""Replay of handmade group records: the rules of a coordinator's load (GroupMetadataManager, OffsetMetadataManager)."""

from __future__ import annotations

from typing import Any

import pytest

from kseg.internal_topics.coordinator_log import CoordinatorRecord, TransactionMarker
from kseg.internal_topics.groups.committed_offsets import committed_offset
from kseg.internal_topics.groups.coordinator_partition import java_hash, partition_for
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS, OffsetKey, parse_commit, parse_key
from kseg.internal_topics.groups.group_replay import LoadedGroups, load_groups
from tests.internal_topics.coordinator_logs import key, value

TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


class Log:
    """Records in order; each gets the next offset, and a time one second behind the one before."""

    def __init__(self) -> None:
        self.entries: list[CoordinatorRecord | TransactionMarker] = []

    def put(self, key_bytes: bytes | None, value_bytes: bytes | None, producer_id: int = -1) -> None:
        at = len(self.entries)
        epoch = -1 if producer_id == -1 else 0
        self.entries.append(
            CoordinatorRecord(at, at * 1000, key_bytes, value_bytes, producer_id, epoch, producer_id != -1)
        )

    def commit(self, offset: int | None, producer_id: int = -1, group: str = "g", topic: str = "t") -> None:
        """A commit of partition 0; None is a tombstone."""
        commit = None if offset is None else value(CONSUMER_OFFSETS, 1, 3, offset=offset, commitTimestamp=5)
        self.put(key(CONSUMER_OFFSETS, 1, group=group, topic=topic, partition=0), commit, producer_id)

    def end(self, producer_id: int, *, is_commit: bool = True) -> None:
        at = len(self.entries)
        self.entries.append(TransactionMarker(at, at * 1000, producer_id, 0, is_commit, 0))

    def group(self, type_id: int, *, member: str | None = None, deleted: bool = False, **fields: Any) -> None:
        names = {"group": "g"} if type_id == 2 else {"groupId": "g"}
        if member is not None:
            names["regularExpression" if type_id == 16 else "memberId"] = member
        version = 3 if type_id == 2 else 0
        content = None if deleted else value(CONSUMER_OFFSETS, type_id, version, **fields)
        self.put(key(CONSUMER_OFFSETS, type_id, **names), content)

    def loaded(self, **how: Any) -> LoadedGroups:
        return load_groups(self.entries, **how)


def offset(loaded: LoadedGroups, group: str = "g") -> int | None:
    found = loaded.offsets.offsets.get(OffsetKey(group, "t", 0))
    return None if found is None else committed_offset(found)


def waiting(loaded: LoadedGroups) -> list[int]:
    transactions = (*loaded.offsets.pending.values(), *loaded.offsets.still_open)
    return [committed_offset(commit) for each in transactions for commit in each.values()]


def state(loaded: LoadedGroups) -> tuple[str, str]:
    group = loaded.metadata.groups["g"]
    return group.type, group.state


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
def test_offsets_in_transactions_after_each_record(
    records: int, committed: int | None, pending: int | None
) -> None:
    log = worked_example()
    loaded = load_groups(log.entries[:records])
    by_time = log.loaded(until_ms=(records - 1) * 1000)
    assert offset(loaded) == offset(by_time) == committed
    assert waiting(loaded) == waiting(by_time) == ([] if pending is None else [pending])


@pytest.mark.behaviour("G02")
def test_a_tombstone_drops_what_any_producer_has_waiting() -> None:
    log = Log()
    log.commit(1, 7)
    log.commit(2, 8)
    log.commit(None, 9)
    log.end(7)
    log.end(8)
    assert offset(log.loaded()) is None
    assert OffsetKey("g", "t", 0) in log.loaded().offsets.deletions


@pytest.mark.behaviour("G01")
def test_the_transactional_flag_and_the_epoch_are_not_looked_at() -> None:
    log = Log()
    log.commit(1, 7)
    (first,) = log.entries
    assert isinstance(first, CoordinatorRecord)
    log.entries[0] = first._replace(is_transactional=False)
    assert offset(log.loaded()) is None
    log.entries.append(TransactionMarker(1, 1000, 7, 5, True, 0))
    assert offset(log.loaded()) == 1


def test_markers_out_of_the_order_of_time() -> None:
    """As of a time, offsets in a transaction count from their own COMMIT marker on; a marker of the same producer that lies behind it in the
    log and is earlier ends only its own transaction."""
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


def test_commits_in_messages_without_a_time() -> None:
    """Format v0 has none: the commit's own time counts (5, by `Log.commit`)."""
    log = Log()
    log.commit(10)
    (only,) = log.entries
    log.entries = [only._replace(timestamp_ms=-1)]
    assert offset(log.loaded(until_ms=4)) is None
    assert offset(log.loaded(until_ms=5)) == 10


def test_offsets_that_went_back() -> None:
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


def test_of_a_cleaned_part_a_key_may_be_unknown() -> None:
    log = Log()
    log.commit(10, group="a")
    log.commit(20, group="b")
    log.commit(30, group="c")
    unknown = log.loaded(until_ms=0, cleaned_end=2).unknown
    assert unknown == {OffsetKey("b", "t", 0): 1000}


# --- groups


@pytest.mark.behaviour("G03")
def test_a_commit_makes_a_simple_group_also_while_it_waits() -> None:
    log = Log()
    log.commit(1, 7)
    assert state(log.loaded()) == ("classic", "Empty")
    assert log.loaded().metadata.groups["g"].epoch is None


def member(name: str, **more: Any) -> dict[str, Any]:
    fields = {
        "memberId": name,
        "clientId": "c",
        "clientHost": "/h",
        "sessionTimeout": 1,
        "rebalanceTimeout": 1,
    }
    return fields | {"groupInstanceId": None, "subscription": b"", "assignment": b""} | more


def classic(log: Log, *members: dict[str, Any], protocol_type: str = "consumer") -> None:
    log.group(2, protocolType=protocol_type, generation=3, protocol="range", leader=None, members=members)


@pytest.mark.behaviour("G05")
def test_a_classic_group_is_stable_with_members_and_empty_without() -> None:
    log = Log()
    classic(log, member("m"))
    assert state(log.loaded()) == ("classic", "Stable")
    classic(log)
    assert state(log.loaded()) == ("classic", "Empty")
    log.group(2, deleted=True)
    assert (log.loaded().metadata.groups, log.loaded().tombstones) == ({}, {"g": 2000})


@pytest.mark.behaviour("G09")
def test_a_static_member_twice_fails_the_load() -> None:
    log = Log()
    classic(log, member("m", groupInstanceId="i"), member("n", groupInstanceId="i"))
    log.commit(1)
    loaded = log.loaded()
    assert [(each.offset, "is already a member" in each.reason) for each in loaded.failures] == [(0, True)]
    assert offset(loaded) == 1  # it continues


def consumer(
    log: Log, epoch: int, member_epoch: int, state: int = 0, partitions: tuple[int, ...] = (0,)
) -> None:
    log.group(3, epoch=epoch)
    log.group(
        5, member="m", clientId="c", clientHost="/h", subscribedTopicNames=["t"], classicMemberMetadata=None
    )
    log.group(7, member="m", topicPartitions=[{"topicId": TOPIC_ID, "partitions": partitions}])
    log.group(
        8,
        member="m",
        memberEpoch=member_epoch,
        previousMemberEpoch=member_epoch - 1,
        state=state,
        assignedPartitions=[{"topicId": TOPIC_ID, "partitions": partitions, "assignmentEpochs": None}],
        partitionsPendingRevocation=[],
    )


def consumer_is_gone(log: Log) -> None:
    for type_id, name in ((8, "m"), (7, "m"), (6, None), (5, "m"), (4, None), (3, None)):
        log.group(type_id, member=name, deleted=True)


@pytest.mark.behaviour("G06")
def test_states_of_a_consumer_group() -> None:
    log = Log()
    consumer(log, 1, 1)
    assert state(log.loaded()) == ("consumer", "Stable")  # the assignment epoch begins at 1
    log.group(3, epoch=2)
    assert state(log.loaded()) == ("consumer", "Assigning")
    log.group(6, assignmentEpoch=2)
    assert state(log.loaded()) == ("consumer", "Reconciling")
    consumer(log, 2, 2, state=1)
    assert state(log.loaded()) == ("consumer", "Reconciling")
    consumer(log, 2, 2, state=0)
    assert state(log.loaded()) == ("consumer", "Stable")
    log.commit(5)
    consumer_is_gone(log)
    loaded = log.loaded()
    assert (loaded.metadata.groups, loaded.failures) == ({}, [])
    assert loaded.tombstones == {"g": (len(log.entries) - 1) * 1000}


@pytest.mark.behaviour("G04")
def test_a_consumer_group_replaces_a_simple_one_and_no_other() -> None:
    log = Log()
    log.commit(5)
    log.group(3, epoch=1)
    assert state(log.loaded()) == ("consumer", "Empty")
    other = Log()
    classic(other, member("m"))
    other.group(3, epoch=1)
    assert [each.offset for each in other.loaded().failures] == [1]
    assert state(other.loaded()) == ("classic", "Stable")
    share = Log()
    share.commit(5)
    share.group(11, epoch=1)
    assert [each.reason for each in share.loaded().failures] == ["Group g is not a share group"]


@pytest.mark.behaviour("G04")
def test_upgrade_of_a_classic_group_leaves_its_offsets() -> None:
    log = Log()
    classic(log, member("m"))
    log.commit(5)
    log.group(2, deleted=True)
    consumer(log, 4, 4)
    log.group(6, assignmentEpoch=4)
    loaded = log.loaded()
    assert (state(loaded), offset(loaded), loaded.tombstones, loaded.failures) == (
        ("consumer", "Stable"),
        5,
        {},
        [],
    )


@pytest.mark.parametrize("without", [8, 7, 6])
@pytest.mark.behaviour("G08")
def test_tombstones_in_an_order_that_no_coordinator_writes(without: int) -> None:
    log = Log()
    consumer(log, 1, 1)
    before = len(log.entries)
    consumer_is_gone(log)
    kept = [each for each in log.entries[before:] if isinstance(each, CoordinatorRecord) and each.key]
    failing = load_groups(
        [*log.entries[:before], *(each for each in kept if (each.key or b"")[1] != without)]
    )
    assert failing.failures
    assert "Received a tombstone record to delete" in failing.failures[0].reason


@pytest.mark.behaviour("G09")
def test_a_partition_that_is_owned_twice_fails_the_load() -> None:
    log = Log()
    consumer(log, 1, 1)
    log.group(
        8,
        member="n",
        memberEpoch=1,
        previousMemberEpoch=0,
        state=0,
        assignedPartitions=[{"topicId": TOPIC_ID, "partitions": [0], "assignmentEpochs": None}],
        partitionsPendingRevocation=[],
    )
    (failure,) = log.loaded().failures
    assert (
        failure.reason
        == f"Cannot set the epoch of {TOPIC_ID}-0 to 1 because the partition is still owned at epoch 1"
    )


@pytest.mark.behaviour("G09")
def test_a_member_that_lost_its_partition_to_a_later_epoch_fails_the_load_when_it_changes() -> None:
    """It takes the partition again; observed with the real broker (tests/kafka/test_random_groups.py)."""
    log = Log()
    consumer(log, 2, 1)
    assigned = [{"topicId": TOPIC_ID, "partitions": [0], "assignmentEpochs": None}]
    log.group(8, member="n", memberEpoch=2, assignedPartitions=assigned)
    assert not log.loaded().failures
    log.group(
        5, member="m", clientId="d", clientHost="/h", subscribedTopicNames=["t"], classicMemberMetadata=None
    )
    (failure,) = log.loaded().failures
    assert (
        failure.reason
        == f"Cannot set the epoch of {TOPIC_ID}-0 to 1 because the partition is still owned at epoch 2"
    )


@pytest.mark.behaviour("G07")
def test_a_streams_group_is_not_ready_until_its_topology_is_validated() -> None:
    log = Log()
    log.group(17, epoch=1, metadataHash=0, validatedTopologyEpoch=-1)
    log.group(19, member="m", clientId="c", clientHost="/h", processId="p", topologyEpoch=1)
    log.group(23, epoch=1, subtopologies=[])
    assert state(log.loaded()) == ("streams", "NotReady")
    log.group(17, epoch=1, metadataHash=0, validatedTopologyEpoch=1)
    assert state(log.loaded()) == ("streams", "Reconciling")
    log.group(22, member="m", memberEpoch=1, previousMemberEpoch=0, state=1)
    assert state(log.loaded()) == ("streams", "Stable")


@pytest.mark.behaviour("G07")
def test_a_share_group_is_stable_with_members() -> None:
    log = Log()
    log.group(11, epoch=1, metadataHash=0)
    assert state(log.loaded()) == ("share", "Empty")
    log.group(10, member="m", clientId="c", clientHost="/h", subscribedTopicNames=["t"])
    assert state(log.loaded()) == ("share", "Stable")


# --- what fails


@pytest.mark.behaviour("G10")
def test_what_fails_the_load_and_what_is_passed_over() -> None:
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
def test_a_commit_that_is_cut_anywhere_fails_unless_it_is_whole(version: int, metadata: str) -> None:
    whole = value(CONSUMER_OFFSETS, 1, version, offset=7, metadata=metadata, commitTimestamp=9)
    for end in range(len(whole) + 1):
        log = Log()
        log.put(key(CONSUMER_OFFSETS, 1, group="g", topic="t", partition=0), whole[:end])
        assert bool(log.loaded().failures) == (end < len(whole)), end
    assert parse_commit(1, whole)[0].metadata == metadata


def test_keys_are_read_as_by_the_schema() -> None:
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
def test_the_partition_of_a_group(name: str, code: int, partition: int) -> None:
    assert (java_hash(name), partition_for(name)) == (code, partition)
