"""Directories for `tests/cli/test_json_contract.py` that produce the rows that none of the incidents produces."""

from __future__ import annotations

import os
from pathlib import Path

from fixtures.diseases import bad_length_small
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
from kseg.internal_topics.groups.share_state import SHARE_GROUP_STATE
from tests.internal_topics.coordinator_logs import T0, batch, key, value, write_segment
from tests.internal_topics.metadata_logs import config, record, topic, topic_id, write_log
from tests.support.broker_dirs import broker_dir
from tests.support.group_dirs import FARES, broker, commit
from tests.support.known_topics import append
from tests.support.metadata_rows import ACL, BROKER, CREDENTIAL, TOKEN, quota


def metadata_of_everything(folder: Path) -> None:
    """A metadata log with every type of record."""
    more = [quota({"user": "alice"}, "producer_byte_rate", 7.0), *topic("gone", topic_id(1))]
    gone = record("RemoveTopicRecord", topicId=topic_id(1))
    write_log(folder / "access" / "__cluster_metadata-0", [BROKER, CREDENTIAL, ACL, TOKEN, *more], [gone])


def groups_of_every_type(folder: Path) -> None:
    """Groups of every type, and a commit in a partition from which compaction may have removed earlier ones."""
    of = CONSUMER_OFFSETS
    member = {"clientId": "c", "clientHost": "/h"}
    records = [
        (key(of, 3, groupId="new"), value(of, 3, 0, epoch=1)),
        (key(of, 5, groupId="new", memberId="m"), value(of, 5, 0, **member, rebalanceTimeout=1, serverAssignor=None)),
        (key(of, 11, groupId="shared"), value(of, 11, 0, epoch=1, metadataHash=0)),
        (key(of, 10, groupId="shared", memberId="m"), value(of, 10, 0, **member, subscribedTopicNames=["fares"])),
        (key(of, 17, groupId="streams"), value(of, 17, 0, epoch=1, metadataHash=0, validatedTopologyEpoch=1)),
        (key(of, 19, groupId="streams", memberId="m"), value(of, 19, 0, **member, processId="p", topologyEpoch=1)),
        (key(of, 23, groupId="streams"), value(of, 23, 0, epoch=1, subtopologies=[])),
    ]  # fmt: skip
    made = broker(
        folder,
        batch(0, *records),
        batch(len(records), commit(7, "late"), at_ms=T0 + 90_000),
        name="groups",
    )
    (made / "cleaner-offset-checkpoint").write_text(f"0\n1\n{of} 0 {len(records) + 1}\n")
    share_key = key(SHARE_GROUP_STATE, 0, groupId="shared", topicId=FARES, partition=0)
    delivered = {"firstOffset": 4, "lastOffset": 9, "deliveryState": 0, "deliveryCount": 1}
    fields = {
        "snapshotEpoch": 1,
        "stateEpoch": 2,
        "leaderEpoch": 3,
        "startOffset": 4,
        "deliveryCompleteCount": 0,
    }
    state = value(
        SHARE_GROUP_STATE, 0, 0, **fields, createTimestamp=1, writeTimestamp=2, stateBatches=[delivered]
    )
    write_segment(made / f"{SHARE_GROUP_STATE}-0", batch(0, (share_key, state)))


def expired_directory(folder: Path) -> None:
    """A log of which retention keeps nothing."""
    append(broker_dir(folder / "expired", 1, 1, running=False), config("orders.00", "retention.ms", "1000"))


def uncleaned_directory(folder: Path) -> None:
    """A compacted log that no cleaner cleans."""
    data = broker_dir(folder / "uncleaned", 1, 1, running=False)
    append(data, config("orders.00", "cleanup.policy", "compact"))
    *closed, active = sorted((data / "orders.00-0").glob("*.log"))
    written_ns = active.stat().st_mtime_ns
    for log in closed:
        os.utime(log, ns=(written_ns, written_ns - 2 * 86_400 * 10**9))


def expiring_directory(folder: Path) -> None:
    """A group whose offsets expired long ago."""
    made = broker(folder, batch(0, commit(4)), name="expiring")
    for name, number in (("fares-0", 5), (f"{CONSUMER_OFFSETS}-0", 6)):
        (made / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(number)}")


def odd_directory(folder: Path) -> None:
    """A partition that contains a directory, and a log that a broker does not load."""
    data = broker_dir(folder / "odd", 1, 2)
    (data / "orders.00-0" / "lost+found").mkdir()
    bad_length_small(max((data / "orders.00-1").glob("*.log")), batch=0)
    (data / "orders.00-1" / "partition.metadata").write_bytes(bytes(43))
