"""States of share groups of which the group's coordinator knows nothing, in handmade directories. What a broker does with them, and with
the records that `doctor` appends, is in tests/kafka/test_forgotten_share_groups.py."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
from kseg.internal_topics.groups.share_state import SHARE_GROUP_STATE
from tests.internal_topics import metadata_logs as metadata
from tests.internal_topics.coordinator_logs import batch, key, value, write_segment
from tests.support.command_lines import Capfd
from tests.support.command_rows import of_type, rows_of
from tests.support.doctor_helpers import doctor
from tests.support.group_dirs import FARES, broker, commit

GROUP, OTHER = "riders", metadata.topic_id(9)
Record = tuple[bytes, bytes | None]


def _record(type_id: int, **fields: Any) -> Record:
    return key(CONSUMER_OFFSETS, type_id, groupId=GROUP), value(CONSUMER_OFFSETS, type_id, 0, **fields)


def _epoch(epoch: int) -> Record:
    return _record(11, epoch=epoch)


def _topics(**by_status: list[tuple[str, str, list[int]]]) -> Record:
    lists = {
        f"{status}Topics": [
            {"topicId": topic_id, "topicName": name}
            | ({} if status == "deleting" else {"partitions": numbers})
            for topic_id, name, numbers in by_status.get(status, [])
        ]
        for status in ("initializing", "initialized", "deleting")
    }
    return _record(15, **lists)


def _state(partition: int, epoch: int, *, start: int = 3, topic_id: str = FARES) -> Record:
    name = key(SHARE_GROUP_STATE, 0, groupId=GROUP, topicId=topic_id, partition=partition)
    fields = {"stateEpoch": epoch, "startOffset": start, "deliveryCompleteCount": 0, "stateBatches": []}
    return name, value(SHARE_GROUP_STATE, 0, 0, **fields)


def _directory(root: Path, offsets: list[Record], *states: Record) -> Path:
    log_dir = broker(root, *([batch(0, *offsets)] if offsets else []))
    write_segment(log_dir / f"{SHARE_GROUP_STATE}-0", batch(0, *states))
    (log_dir / "__cluster_metadata-0" / f"{0:020}.log").unlink()
    metadata.write_log(
        log_dir / "__cluster_metadata-0",
        metadata.topic("fares", FARES, 2),
        metadata.topic("rides", OTHER, 1),
        metadata.topic(CONSUMER_OFFSETS, metadata.topic_id(6), 1),
        metadata.topic(SHARE_GROUP_STATE, metadata.topic_id(7), 1),
    )
    return log_dir


def _statuses(capfd: Capfd, log_dir: Path) -> dict[tuple[str | None, int], str | None]:
    rows = of_type(rows_of(capfd, "groups", log_dir, status=0), "share_offset")
    return {(row["topic"], row["partition"]): row["status"] for row in rows}


KNOWN = [_epoch(2), _topics(initialized=[(FARES, "fares", [0, 1])])]


@pytest.mark.evidence("share-state")
@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        (KNOWN, None),
        ([], "forgotten"),
        ([commit(4, GROUP)], "forgotten"),
        ([_epoch(9)], "forgotten"),
        ([_epoch(9), _topics(initialized=[(FARES, "fares", [1])])], "forgotten"),
        # it was created again: its start offset is not reset yet
        ([_epoch(9), _topics(initializing=[(FARES, "fares", [0])])], "forgotten"),
        ([_epoch(9), _topics(deleting=[(FARES, "fares", [])])], None),
        ([*KNOWN, *((key(CONSUMER_OFFSETS, type_id, groupId=GROUP), None) for type_id in (12, 15, 11))], None),
    ],
    ids=["known", "nothing", "another-type", "group-only", "another-partition", "initializing", "deleting", "deleted"],
)  # fmt: skip
def test_state_is_forgotten_unless_its_group_has_it(
    offsets: list[Record], expected: str | None, tmp_path: Path, capfd: Capfd
) -> None:
    log_dir = _directory(tmp_path, offsets, _state(0, 5))
    assert _statuses(capfd, log_dir)["fares", 0] == expected
    run(["groups", str(log_dir)])
    assert ("records in __consumer_offsets are lost" in capfd.readouterr().out) == (expected is not None)


def test_state_that_is_being_created_is_not_forgotten(tmp_path: Path, capfd: Capfd) -> None:
    offsets = [_epoch(5), _topics(initializing=[(FARES, "fares", [0])])]
    assert _statuses(capfd, _directory(tmp_path, offsets, _state(0, 5, start=-1))) == {("fares", 0): None}


def test_nothing_is_concluded_without_the_whole_partition_of_the_group(tmp_path: Path, capfd: Capfd) -> None:
    """A record may be in what is damaged, in another replica, or in a partition that is not here."""
    log_dir = _directory(tmp_path, [], _state(0, 5), _state(0, 5, topic_id=metadata.topic_id(8)))
    assert _statuses(capfd, log_dir) == {("fares", 0): "forgotten", (None, 0): None}
    log = log_dir / f"{CONSUMER_OFFSETS}-0" / f"{0:020}.log"
    damaged = bytearray(batch(0, commit(4, "other")))
    damaged[-1] ^= 1
    log.write_bytes(damaged + batch(1, commit(4, "other")))
    rows = rows_of(capfd, "groups", log_dir, status=1)
    assert {row["status"] for row in of_type(rows, "share_offset")} == {None}
    log.write_bytes(b"")
    (log_dir / "__cluster_metadata-0" / f"{0:020}.log").unlink()
    metadata.write_log(
        log_dir / "__cluster_metadata-0",
        metadata.topic("fares", FARES, 2),
        metadata.topic(CONSUMER_OFFSETS, metadata.topic_id(6), 2),
        metadata.topic(SHARE_GROUP_STATE, metadata.topic_id(7), 1),
    )
    elsewhere = [_statuses(capfd, log_dir)["fares", 0]]
    log.parent.rename(log_dir / f"{CONSUMER_OFFSETS}-1")
    elsewhere.append(_statuses(capfd, log_dir)["fares", 0])
    assert sorted(elsewhere, key=str) == [None, "forgotten"]


@pytest.mark.evidence("share-state")
def test_step_of_doctor_adds_to_what_the_group_has(tmp_path: Path, capfd: Capfd) -> None:
    offsets = [
        _epoch(4),
        _topics(
            initializing=[(FARES, "fares", [1])],
            initialized=[(OTHER, "rides", [0])],
            deleting=[(metadata.topic_id(8), "gone", [])],
        ),
    ]
    log_dir = _directory(tmp_path, offsets, _state(0, 7), _state(1, 3), _state(0, 2, topic_id=OTHER))
    rows = doctor(capfd, log_dir, status=1)
    assert {row["partition"]: row["status"] for row in of_type(rows, "share_offset")} == {
        0: "forgotten",
        1: "forgotten",
    }
    (step,) = (row["command"] for row in of_type(rows, "step") if "printf" in row["command"])
    words = shlex.split(step)
    first = words.index("printf")
    run(words[1 : first - 1])
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(f"{line}\n" for line in words[first + 2 : words.index("|")]))
    assert run(["append", "--apply", "--from", str(lines), words[-1]]) == 0
    rows = rows_of(capfd, "groups", log_dir, status=0)
    assert not of_type(rows, "finding")
    (group,) = of_type(rows, "group")
    assert (group["group_type"], group["epoch"]) == ("share", 7)
    found = {(row["status"], row["topic"], *row["partitions"]) for row in of_type(rows, "share_topic")}
    assert found == {("initialized", "rides", 0), ("initialized", "fares", 0, 1), ("deleting", "gone")}
    assert {row["status"] for row in of_type(rows, "share_offset")} == {None}
