"""`kseg list --remote`: local, remote and missing offsets of a partition, and dangling objects in the store."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.internal_topics import metadata_logs as metadata
from tests.internal_topics.coordinator_logs import batch, write_segment
from tests.internal_topics.metadata_logs import T0, topic_id, write_meta_properties
from tests.internal_topics.remote_logs import (
    DELETED,
    DELETING,
    FINISHED,
    delete_partition,
    update,
    upload,
    write_remote_log,
)
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.doctor_helpers import commands
from tests.support.group_dirs import commit

ORDERS = ("orders", topic_id(1), 0)
FARES = ("fares", topic_id(2), 4)
SEGMENTS = [topic_id(number) for number in range(100, 120)]


def finished(
    place: tuple[str, str, int], number: int, start: int, end: int, epochs: dict[int, int]
) -> list[bytes]:
    segment = SEGMENTS[number]
    return [upload(place, segment, start, end, epochs), update(place, segment, FINISHED)]


def log_dir(root: Path, *more: bytes) -> Path:
    """orders-0 has offsets 100 to 149 on disk, a log start of 10, and epoch 1 from 60 on. Offsets 10 to 119 were uploaded, and the next
    segment is being uploaded."""
    write_meta_properties(root)
    local = root / "orders-0"
    local.mkdir()
    records = tuple(Record(offset, T0, None, b"x") for offset in range(100, 150))
    (local / f"{100:020}.log").write_bytes(encode_batch(NewBatch(records=records, leader_epoch=1)))
    (local / "leader-epoch-checkpoint").write_text("0\n2\n0 10\n1 60\n")
    (local / "partition.metadata").write_text(f"version: 0\ntopic_id: {ORDERS[1]}")
    (root / "log-start-offset-checkpoint").write_text("0\n1\norders 0 10\n")
    records_of_topic = [
        *finished(ORDERS, 0, 0, 39, {0: 0}),
        *finished(ORDERS, 1, 40, 79, {0: 40, 1: 60}),
        *finished(ORDERS, 2, 80, 119, {1: 80}),
        upload(ORDERS, SEGMENTS[3], 120, 139, {1: 120}),
        *more,
    ]
    write_remote_log(root / "__remote_log_metadata-7", records_of_topic)
    return root


def remote_rows(capfd: Capfd, *words: str | Path, status: int = 0) -> list[dict[str, Any]]:
    return rows_of(capfd, "list", "--remote", *words, status=status)


def of_partition(found: list[dict[str, Any]]) -> dict[str, Any]:
    (row,) = [each for each in found if each["type"] == "remote_partition"]
    return row


def test_list_remote_shows_local_and_remote_offset_ranges(tmp_path: Path, capfd: Capfd) -> None:
    found = remote_rows(capfd, log_dir(tmp_path))
    row = of_partition(found)
    assert row["log_start_offset"] == 10 and row["local_log_start_offset"] == 100
    assert row["log_end_offset"] == 150 and row["topic_id"] == ORDERS[1]
    assert row["local"] == [[100, 149]] and row["remote"] == [[10, 119]]
    assert row["both"] == [[100, 119]] and row["remote_only"] == [[10, 99]] and row["missing"] == []
    assert (row["segments"], row["dangling"], row["bytes"]) == (4, 1, 14_000)
    segments = {each["segment_id"]: each for each in found if each["type"] == "remote_segment"}
    assert {each["state"] for each in segments.values()} == {"COPY_SEGMENT_FINISHED", "COPY_SEGMENT_STARTED"}
    assert [key for key, each in segments.items() if each["dangling"]] == [SEGMENTS[3]]


def test_remote_segment_being_deleted_leaves_a_gap(tmp_path: Path, capfd: Capfd) -> None:
    found = remote_rows(capfd, log_dir(tmp_path, update(ORDERS, SEGMENTS[1], DELETING)), status=1)
    row = of_partition(found)
    assert row["missing"] == [[40, 79]] and row["missing_offsets"] == 40 and row["dangling"] == 2
    capfd.readouterr()
    assert run(["list", "--remote", str(tmp_path)]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == (
        "MISSING: 40 offsets of 1 partition are neither local nor remote; 2 dangling segments"
    )
    assert "orders-0" in lines[2] and "40-79" in lines[2]


def test_remote_segment_of_a_foreign_epoch_serves_no_offsets(tmp_path: Path, capfd: Capfd) -> None:
    """A deposed leader uploaded offsets 60 to 99 of epoch 0, which ended at 59."""
    root = log_dir(
        tmp_path,
        *(update(ORDERS, SEGMENTS[2], state) for state in (DELETING, DELETED)),
        *finished(ORDERS, 4, 80, 99, {0: 80}),
    )
    assert of_partition(remote_rows(capfd, root, status=1))["missing"] == [[80, 99]]


def test_list_remote_shows_partitions_that_are_elsewhere_or_deleted(tmp_path: Path, capfd: Capfd) -> None:
    root = log_dir(tmp_path, *finished(FARES, 5, 0, 9, {0: 0}), *finished(FARES, 6, 20, 29, {0: 20}))
    row = of_partition(remote_rows(capfd, root, "--topic", "fares", status=1))
    assert row["directory"] is None and row["local"] == [] and row["log_end_offset"] is None
    assert row["remote"] == [[0, 9], [20, 29]] and row["missing"] == [[10, 19]]
    root = log_dir(tmp_path / "second", *finished(FARES, 5, 0, 9, {0: 0}), delete_partition(FARES, 2))
    assert [each for each in remote_rows(capfd, root, "--topic", "fares") if each["type"] != "summary"] == []


def test_list_remote_uses_the_broker_that_is_further_ahead(tmp_path: Path, capfd: Capfd) -> None:
    """A follower lags in the topic and in the partition. A third broker has an earlier topic with this name."""
    log_dir(tmp_path / "1")
    records = [*finished(ORDERS, 0, 0, 39, {0: 0}), *finished(ORDERS, 1, 40, 79, {0: 40, 1: 60})]
    write_remote_log(tmp_path / "0" / "__remote_log_metadata-7", records)
    write_meta_properties(tmp_path / "0", node=2)
    write_meta_properties(tmp_path / "2", node=3)
    for place, end, topic in (("0", 105, 1), ("2", 500, 9)):
        local = tmp_path / place / "orders-0"
        local.mkdir()
        behind = tuple(Record(offset, T0, None, b"x") for offset in range(100, end))
        (local / f"{100:020}.log").write_bytes(encode_batch(NewBatch(records=behind, leader_epoch=1)))
        (local / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(topic)}")
    row = of_partition(remote_rows(capfd, *(tmp_path / place for place in "012")))
    assert row["directory"] == f"{tmp_path}/1/orders-0" and row["remote"] == [[10, 119]]


def test_list_remote_accepts_single_segments_of_the_metadata_topic(tmp_path: Path, capfd: Capfd) -> None:
    place = tmp_path / "__remote_log_metadata-7"
    write_remote_log(place, finished(FARES, 5, 0, 9, {0: 0}))
    write_remote_log(place, finished(FARES, 6, 10, 29, {0: 10}), base_offset=2)
    row = of_partition(remote_rows(capfd, *sorted(place.iterdir(), reverse=True)))
    assert row["remote"] == [[0, 29]]


def test_unreadable_remote_log_metadata_record_is_named(tmp_path: Path, capfd: Capfd) -> None:
    found = remote_rows(capfd, log_dir(tmp_path, b"\x01\x00\x00garbage"), status=1)
    (finding,) = [each for each in found if each["type"] == "finding"]
    assert finding["id"] == "remote-log-metadata-unreadable" and finding["first_offset"] == 7
    assert of_partition(found)["missing"] == []


def test_list_remote_without_its_metadata_topic_fails(tmp_path: Path, capfd: Capfd) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(b"")
    assert run(["list", "--remote", str(tmp_path)]) != 0
    out, err = capfd.readouterr()
    assert out == "" and "__remote_log_metadata" in err


def test_topic_deleted_segment_by_segment_is_gone_from_remote(tmp_path: Path, capfd: Capfd) -> None:
    """Brokers of 4.3 delete a topic like this: no record says that the partition is deleted. One deletion is still in progress."""
    gone = [update(FARES, SEGMENTS[number], state) for state in (DELETING, DELETED) for number in (4, 5)]
    uploads = [*finished(FARES, 4, 0, 9, {0: 0}), *finished(FARES, 5, 10, 19, {0: 10})]
    root = log_dir(tmp_path, *uploads, *gone)
    assert {row["topic"] for row in remote_rows(capfd, root) if row["type"] != "summary"} == {"orders"}
    write_remote_log(root / "__remote_log_metadata-7", [*uploads, *gone[:3]])
    (partition,) = [row for row in remote_rows(capfd, root) if row["type"] == "remote_partition"]
    assert (partition["topic"], partition["segments"], partition["dangling"]) == ("fares", 1, 1)


def test_lookups_of_the_ends_of_remote_storage(tmp_path: Path, capfd: Capfd) -> None:
    """Offsets 10 to 119 were uploaded. tests/kafka/test_lookups.py asks UnifiedLog."""
    data = log_dir(tmp_path)
    tiered = metadata.config("orders", "remote.storage.enable", "true")
    metadata.write_log(data / "__cluster_metadata-0", metadata.topic("orders", ORDERS[1], 1), [tiered])
    for kind, offset in (("earliest-local", 100), ("latest-tiered", 119), ("earliest-pending-upload", 120)):
        capfd.readouterr()
        assert run(["lookup", f"--{kind}", str(data / "orders-0")]) == 0
        assert capfd.readouterr().out.startswith(f"orders-0: offset {offset}, leader epoch 1\n")
    shutil.rmtree(data / "__remote_log_metadata-7")
    assert run(["lookup", "--latest-tiered", str(data / "orders-0")]) == 1
    assert "is not known without the records of __remote_log_metadata" in capfd.readouterr().out


@pytest.mark.parametrize(("offset", "is_remote"), [(9, False), (10, True), (99, True)])
def test_offset_below_the_local_log_may_be_in_remote_storage(
    tmp_path: Path, capfd: Capfd, offset: int, is_remote: bool
) -> None:
    words = (
        f"by its checkpoint the log starts at 10, so with tiered storage offset {offset} is in remote storage"
    )
    local = str(log_dir(tmp_path) / "orders-0")
    for command in ("lookup", "read"):
        assert run([command, "--offset", str(offset), local]) == 1
        captured = capfd.readouterr()
        assert (words in captured.out + captured.err) is is_remote
    assert run(["lookup", "--earliest", local]) == 0
    assert capfd.readouterr().out == "orders-0: offset 10, leader epoch 0\n"
    shutil.rmtree(tmp_path / "__remote_log_metadata-7")
    assert run(["lookup", "--earliest", local]) == 0
    captured = capfd.readouterr()
    assert captured.out.startswith("orders-0: offset 100, leader epoch 0\n")
    assert "starts at 10, which is its earliest offset with tiered storage" in captured.out + captured.err


@pytest.mark.parametrize("is_configured", [False, True])
def test_groups_with_offsets_in_the_remote_log_get_no_reset(
    tmp_path: Path, capfd: Capfd, is_configured: bool
) -> None:
    """Their offsets are in the remote log, and a reset would skip what they have not read. Either the topic's configuration or the segments
    in remote storage tell whether it is tiered."""
    data = log_dir(tmp_path)
    commits = [
        commit(offset, group, topic="orders") for offset, group in ((9, "out"), (10, "in"), (99, "too"))
    ]
    write_segment(data / "__consumer_offsets-0", batch(0, *commits))
    if is_configured:
        shutil.rmtree(data / "__remote_log_metadata-7")
        tiered = metadata.config("orders", "remote.storage.enable", "true")
        metadata.write_log(data / "__cluster_metadata-0", metadata.topic("orders", ORDERS[1], 1), [tiered])
    listed = rows_of(capfd, "groups", data, status=0)
    status = {row["group"]: row["status"] for row in listed if row["type"] == "offset"}
    assert status == {"out": "below-log-start", "in": "ok", "too": "ok"}
    examined = rows_of(capfd, "doctor", data, status=1)
    (reset,) = [step for step in commands(examined) if step.startswith("kafka-consumer-groups.sh")]
    assert "--group out --topic orders:0 --reset-offsets --to-earliest" in reset
