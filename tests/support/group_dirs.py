"""Handmade data directories with groups: `__consumer_offsets` in a log dir with a metadata log and a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
from tests.internal_topics import metadata_logs as metadata
from tests.internal_topics.coordinator_logs import T0, batch, key, value, write_segment

FARES = metadata.topic_id(5)


def commit(
    offset: int | None, group: str = "billing", topic: str = "fares", partition: int = 0, **more: Any
) -> tuple[bytes, bytes | None]:
    """The key and value of a commit; None is a tombstone."""
    fields = {"offset": offset, "leaderEpoch": -1, "metadata": "", "commitTimestamp": T0, **more}
    version = 4 if "topicId" in more else 3
    content = None if offset is None else value(CONSUMER_OFFSETS, 1, version, **fields)
    return key(CONSUMER_OFFSETS, 1, group=group, topic=topic, partition=partition), content


def broker(root: Path, *batches: bytes, fares: int = 10, name: str = "broker") -> Path:
    """A log dir with these batches in `__consumer_offsets-0`, a metadata log, and this many records in fares-0."""
    log_dir = root / name
    write_segment(log_dir / f"{CONSUMER_OFFSETS}-0", *batches)
    write_segment(log_dir / "fares-0", batch(0, *[(None, b"v")] * fares))
    metadata.write_log(
        log_dir / "__cluster_metadata-0",
        metadata.topic("fares", FARES, 2),
        metadata.topic(CONSUMER_OFFSETS, metadata.topic_id(6), 1),
    )
    (log_dir / "meta.properties").write_text(
        f"version=1\nnode.id=1\ncluster.id={metadata.CLUSTER}\ndirectory.id={metadata.DIRECTORY}\n"
    )
    return log_dir


def went_back(root: Path) -> Path:
    """A group that was idle for a week, so that its offsets were deleted and its consumers started over; one whose offset is beyond the log
    end, one that was deleted, and one with an open transaction."""
    later = T0 + 7 * 86_400_000
    stable = value(
        CONSUMER_OFFSETS,
        2,
        3,
        protocolType="consumer",
        generation=7,
        protocol="range",
        leader="billing-1",
        currentStateTimestamp=later,
        members=[
            {
                "memberId": "billing-1",
                "groupInstanceId": None,
                "clientId": "billing",
                "clientHost": "/10.0.0.7",
                "rebalanceTimeout": 60000,
                "sessionTimeout": 45000,
                "subscription": b"",
                "assignment": bytes.fromhex("0003 00000001 0005")
                + b"fares"
                + bytes.fromhex("00000001 00000000 ffffffff"),
            }
        ],
    )
    return broker(
        root,
        batch(0, commit(912, topicId=FARES), commit(1000, "audit"), at_ms=T0),
        batch(2, commit(None), at_ms=later),
        batch(3, (key(CONSUMER_OFFSETS, 2, group="billing"), stable), at_ms=later + 120_000),
        batch(4, commit(40, topicId=FARES, commitTimestamp=later + 180_000), at_ms=later + 180_000),
        batch(5, commit(2000, "beyond"), at_ms=later),
        batch(
            6,
            commit(1, "old"),
            commit(None, "old"),
            (key(CONSUMER_OFFSETS, 2, group="old"), None),
            at_ms=later,
        ),
        batch(
            9,
            commit(900, "ledger"),
            producer_id=7,
            producer_epoch=3,
            base_sequence=0,
            transactional=True,
            at_ms=later,
        ),
        fares=1000,
        name="data",
    )
