"""States of groups after a load: classic, consumer, streams and share groups (GroupMetadataManager)."""

from __future__ import annotations

import pytest

from kseg.internal_topics.coordinator_log import CoordinatorRecord
from kseg.internal_topics.groups.group_replay import load_groups
from tests.support.group_records import (
    TOPIC_ID,
    Log,
    classic,
    consumer,
    consumer_is_gone,
    member,
    offset,
    state,
)


@pytest.mark.behaviour("G03")
def test_pending_or_plain_commit_creates_a_simple_group() -> None:
    log = Log()
    log.commit(1, 7)
    assert state(log.loaded()) == ("classic", "Empty")
    assert log.loaded().metadata.groups["g"].epoch is None


@pytest.mark.behaviour("G05")
def test_classic_group_is_stable_with_members_and_empty_without() -> None:
    log = Log()
    classic(log, member("m"))
    assert state(log.loaded()) == ("classic", "Stable")
    classic(log)
    assert state(log.loaded()) == ("classic", "Empty")
    log.group(2, deleted=True)
    assert (log.loaded().metadata.groups, log.loaded().tombstones) == ({}, {"g": 2000})


@pytest.mark.behaviour("G09")
def test_duplicate_static_member_fails_the_load() -> None:
    log = Log()
    classic(log, member("m", groupInstanceId="i"), member("n", groupInstanceId="i"))
    log.commit(1)
    loaded = log.loaded()
    assert [(each.offset, "is already a member" in each.reason) for each in loaded.failures] == [(0, True)]
    # the load continues
    assert offset(loaded) == 1


@pytest.mark.behaviour("G06")
def test_consumer_group_state_follows_its_epochs() -> None:
    log = Log()
    consumer(log, 1, 1)
    # the assignment epoch starts at 1
    assert state(log.loaded()) == ("consumer", "Stable")
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
def test_consumer_group_replaces_only_a_simple_classic_group() -> None:
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
def test_upgrade_of_a_classic_group_keeps_its_offsets() -> None:
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
def test_tombstones_in_an_impossible_order_fail_the_load(without: int) -> None:
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
def test_partition_owned_twice_fails_the_load() -> None:
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
def test_change_of_a_member_that_lost_its_partition_fails_the_load() -> None:
    """Its next record claims the partition again; observed with the real broker (tests/kafka/test_random_groups.py)."""
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
def test_streams_group_is_not_ready_until_its_topology_is_validated() -> None:
    log = Log()
    log.group(17, epoch=1, metadataHash=0, validatedTopologyEpoch=-1)
    log.group(19, member="m", clientId="c", clientHost="/h", processId="p", topologyEpoch=1)
    log.group(23, epoch=1, subtopologies=[])
    assert state(log.loaded()) == ("streams", "NotReady")
    log.group(17, epoch=1, metadataHash=0, validatedTopologyEpoch=1)
    assert state(log.loaded()) == ("streams", "Reconciling")
    log.group(22, member="m", memberEpoch=1, previousMemberEpoch=0, state=1)
    assert state(log.loaded()) == ("streams", "Stable")


@pytest.mark.behaviour("G09")
def test_tombstone_of_a_streams_member_removes_all_its_tasks() -> None:
    """Standby and warm-up tasks too; observed with the real broker (tests/kafka/test_random_groups.py, seed 7701)."""
    log = Log()
    log.group(17, epoch=1, metadataHash=0, validatedTopologyEpoch=1)
    log.group(19, member="m", clientId="c", clientHost="/h", processId="p", topologyEpoch=1)
    tasks = [{"subtopologyId": "0", "partitions": [1], "assignmentEpochs": None}]
    log.group(
        22, member="m", memberEpoch=1, previousMemberEpoch=0, state=1, standbyTasks=tasks, warmupTasks=tasks
    )
    member = log.loaded().metadata.groups["g"].members["m"]
    assert member.standby and member.warmup
    log.group(22, member="m", deleted=True)
    member = log.loaded().metadata.groups["g"].members["m"]
    assert (member.assigned, member.standby, member.warmup) == ({}, {}, {})


@pytest.mark.behaviour("G07")
def test_share_group_is_stable_with_members() -> None:
    log = Log()
    log.group(11, epoch=1, metadataHash=0)
    assert state(log.loaded()) == ("share", "Empty")
    log.group(10, member="m", clientId="c", clientHost="/h", subscribedTopicNames=["t"])
    assert state(log.loaded()) == ("share", "Stable")
