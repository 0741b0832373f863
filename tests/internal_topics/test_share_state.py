"""State of share groups: how batches are combined (PersisterStateBatchCombiner), and the replay of snapshots and updates."""

from __future__ import annotations

from typing import Any

import pytest

from kseg.internal_topics.coordinator_log import CoordinatorRecord
from kseg.internal_topics.groups.share_state import (
    SHARE_GROUP_STATE,
    SharePartitionKey,
    StateBatch,
    combined_batches,
    load_share_state,
)
from kseg.segment.errors import FormatError
from tests.internal_topics.coordinator_logs import key, value

TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


def batches(text: str) -> list[StateBatch]:
    found = []
    for word in text.split():
        offsets, delivery = word.split(":")
        first, last = map(int, offsets.split("-"))
        state, count = map(int, delivery.split("/"))
        found.append(StateBatch(first, last, count, state))
    return found


def shown(found: tuple[StateBatch, ...]) -> str:
    return " ".join(
        f"{each.first_offset}-{each.last_offset}:{each.delivery_state}/{each.delivery_count}"
        for each in found
    )


@pytest.mark.parametrize(
    ("former", "added", "start", "combined"),
    [
        ("100-110:0/1", "105-107:2/1", -1, "100-104:0/1 105-107:2/1 108-110:0/1"),
        ("100-110:2/1", "105-115:0/1", -1, "100-110:2/1 111-115:0/1"),
        ("100-110:0/2", "105-115:4/1", -1, "100-110:0/2 111-115:4/1"),
        ("100-110:0/1", "111-120:0/1", -1, "100-120:0/1"),
        ("100-110:0/1 120-130:0/1", "105-125:0/2", 102, "102-104:0/1 105-125:0/2 126-130:0/1"),
        ("1-5:2/1", "", 6, ""),
        ("", "3-9:0/1", 5, "5-9:0/1"),
        ("3-9:0/1", "5-4:2/2", 3, "3-4:0/1 5-4:2/2 5-9:0/1"),
        ("3-9:2/1", "5-3:2/1", 3, "3-9:2/1"),
        ("8-6:2/1", "7-9:2/1", 3, "7-9:2/1"),
        ("8-6:2/1", "", 3, "8-6:2/1"),
        ("8-6:2/1 9-7:0/1", "8-9:2/2", -1, "8-6:2/1 8-9:2/2"),
        ("2-1:2/1", "3-4:2/1", -1, "2-1:2/1 3-4:2/1"),
        ("5-4:2/1", "5-9:2/1", -1, "5-9:2/1"),
        ("8-2:2/1", "1-3:0/1", 5, ""),
    ],
)
@pytest.mark.behaviour("G12")
def test_share_state_batches_are_combined_like_kafka(
    former: str, added: str, start: int, combined: str
) -> None:
    assert shown(combined_batches(batches(former), batches(added), start)) == combined


@pytest.mark.parametrize("added", ["5-3:2/2", "9-3:2/2"])
def test_share_state_batches_that_kafka_never_finishes_combining_are_an_error(added: str) -> None:
    with pytest.raises(FormatError, match="without end"):
        combined_batches(batches("3-9:0/1"), batches(added), -1)


def record(at: int, type_id: int, content: dict[str, Any] | None) -> CoordinatorRecord:
    name = key(SHARE_GROUP_STATE, type_id, groupId="g", topicId=TOPIC_ID, partition=0)
    data = None if content is None else value(SHARE_GROUP_STATE, type_id, 0, **content)
    return CoordinatorRecord(at, at * 10, name, data, -1, -1, False)


def one(first: int, last: int, state: int, count: int) -> dict[str, int]:
    return {"firstOffset": first, "lastOffset": last, "deliveryState": state, "deliveryCount": count}


SNAPSHOT = {
    "snapshotEpoch": 1,
    "stateEpoch": 2,
    "leaderEpoch": 3,
    "startOffset": 4,
    "deliveryCompleteCount": 0,
}
UPDATE = {"snapshotEpoch": 1, "leaderEpoch": -1, "startOffset": -1}


@pytest.mark.behaviour("G12")
def test_share_update_is_merged_and_snapshot_replaces() -> None:
    taken = [
        record(
            0, 0, SNAPSHOT | {"createTimestamp": 1, "writeTimestamp": 2, "stateBatches": [one(4, 9, 0, 1)]}
        ),
        record(1, 1, UPDATE | {"stateBatches": [one(4, 5, 2, 1)]}),
        record(2, 1, UPDATE | {"startOffset": 6, "leaderEpoch": 4, "deliveryCompleteCount": 7}),
        record(3, 0, SNAPSHOT),
        record(4, 0, None),
    ]
    after = [load_share_state(taken[:end]).states for end in range(1, 6)]
    place = SharePartitionKey("g", TOPIC_ID, 0)
    assert shown(after[1][place].batches) == "4-5:2/1 6-9:0/1"
    assert (after[1][place].start_offset, after[1][place].leader_epoch) == (4, 3)
    # always that of the update
    assert after[1][place].delivery_complete_count == -1
    third = after[2][place]
    assert (shown(third.batches), third.start_offset, third.leader_epoch, third.delivery_complete_count) == (
        "6-9:0/1",
        6,
        4,
        7,
    )
    assert (third.state_epoch, third.write_ms, third.timestamp_ms) == (2, 2, 20)
    assert shown(after[3][place].batches) == ""
    assert after[4] == {}


def test_share_update_without_a_snapshot_is_a_state() -> None:
    loaded = load_share_state([record(0, 1, UPDATE | {"startOffset": 3})])
    (state,) = loaded.states.values()
    assert (state.start_offset, state.state_epoch, state.write_ms) == (3, 0, None)


def test_share_records_that_fail_the_load() -> None:
    endless = SNAPSHOT | {"stateBatches": [one(4, 9, 0, 1)]}, UPDATE | {"stateBatches": [one(8, 6, 2, 2)]}
    loaded = load_share_state([record(0, 1, None), record(1, 0, endless[0]), record(2, 1, endless[1])])
    assert [each.offset for each in loaded.failures] == [0, 2]
    (state,) = loaded.states.values()
    assert shown(state.batches) == "4-9:0/1"
