"""`kseg groups` as a command: captures, handmade files, its output and exit statuses."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.internal_topics.groups.coordinator_partition import partition_for
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
from kseg.internal_topics.groups.share_state import SHARE_GROUP_STATE
from tests.internal_topics import metadata_logs as metadata
from tests.internal_topics.coordinator_logs import T0, batch, key, marker, value, write_segment
from tests.support.command_lines import Capfd
from tests.support.command_rows import of_type, rows_of
from tests.support.group_dirs import FARES, broker, commit

Rows = list[dict[str, Any]]


def groups(capfd: Capfd, *words: object, status: int = 0) -> Rows:
    return rows_of(capfd, "groups", *words, status=status)


def test_groups_of_a_real_broker_capture(capture_small: Path, capfd: Capfd) -> None:
    """The expectations are from the dump tool's text for the same log."""
    rows = groups(capfd, capture_small / "data")
    (group,) = of_type(rows, "group")
    assert (group["group"], group["group_type"], group["state"], group["epoch"]) == (
        "board",
        "classic",
        "Empty",
        2,
    )
    offsets = {row["topic"]: row for row in of_type(rows, "offset")}
    assert {name: row["offset"] for name, row in offsets.items()} == {"metro-none": 42, "metro-zstd": 86}
    assert [
        offsets["metro-none"][name] for name in ("leader_epoch", "metadata", "expire_timestamp", "lag")
    ] == [
        None,
        "by hand\0",
        None,
        118,
    ]
    assert {(row["group"], row["topic"], row["timestamp"]) for row in of_type(rows, "tombstone")} == {
        ("audit", topic, 1795250583176) for topic in (None, "metro-none", "metro-zstd")
    }
    before = groups(capfd, "--at", 1795250583175, capture_small / "data")
    assert {row["group"] for row in of_type(before, "group")} == {"audit", "board"}
    assert {row["log_end_offset"] for row in of_type(before, "offset")} == {None}


def test_groups_of_old_brokers(legacy_small: Path, capfd: Capfd) -> None:
    """0.9 wrote commits with an expiry time. 0.10 and 1.1 wrote other versions to the same log."""
    for state in ("0.9.0.1/2-compacted", "0.10.2.2/3-compacted", "1.1.1/4-compacted"):
        rows = groups(capfd, legacy_small / "data" / state)
        offsets = of_type(rows, "offset")
        assert offsets
        assert all(row["expire_timestamp"] - row["commit_timestamp"] == 86_400_000 for row in offsets)
        assert all(row["leader_epoch"] is None for row in offsets)
        assert not of_type(rows, "finding")


def test_group_deleted_by_a_broker_before_0_10_is_gone(tmp_path: Path, capfd: Capfd) -> None:
    """Messages of v0 have no timestamps, and the tombstone of the group is one of them."""
    gone = (key(CONSUMER_OFFSETS, 2, group="gone"), None)
    log_dir = broker(tmp_path, batch(0, commit(4)), batch(1, gone, at_ms=-1, leader_epoch=-1, magic=0))
    assert run(["groups", "--verbose", str(log_dir)]) == 0
    out = capfd.readouterr().out
    assert "gone: group deleted (no timestamp)" in out
    assert "1969" not in out


def test_groups_json_has_every_field_of_the_contract(tmp_path: Path, capfd: Capfd) -> None:
    log_dir = broker(
        tmp_path,
        batch(0, commit(4, topicId=FARES), commit(7, partition=1)),
        batch(2, commit(9), producer_id=7, producer_epoch=3, base_sequence=0, transactional=True),
        batch(
            3,
            commit(1, group="gone"),
            commit(None, group="gone"),
            (key(CONSUMER_OFFSETS, 2, group="gone"), None),
        ),
    )
    rows = groups(capfd, log_dir)
    fields = {
        "group": "group group_type state epoch",
        "offset": "group topic partition offset leader_epoch metadata commit_timestamp expire_timestamp log_end_offset lag",
        "pending_offset": "group topic partition offset leader_epoch metadata commit_timestamp producer_id producer_epoch",
        "tombstone": "group topic partition timestamp",
    }
    for kind, names in fields.items():
        found = of_type(rows, kind)
        assert found
        assert all(set(names.split()) <= set(row) for row in found)
    assert [(row["partition"], row["lag"], row["log_end_offset"]) for row in of_type(rows, "offset")] == [
        (0, 6, 10),
        (1, None, None),
    ]
    (pending,) = of_type(rows, "pending_offset")
    assert (pending["offset"], pending["producer_id"], pending["producer_epoch"]) == (9, 7, 3)
    assert [(row["group"], row["topic"]) for row in of_type(rows, "tombstone")] == [
        ("gone", None),
        ("gone", "fares"),
    ]
    ended = broker(tmp_path / "ended", batch(0, commit(4)), batch(1, commit(9), producer_id=7, producer_epoch=3, base_sequence=0, transactional=True), marker(2, 7, 3, at_ms=T0 + 50))  # fmt: skip
    assert [row["offset"] for row in of_type(groups(capfd, ended), "offset")] == [9]
    assert [row["offset"] for row in of_type(groups(capfd, "--at", T0 + 49, ended), "offset")] == [4]
    assert [row["offset"] for row in of_type(groups(capfd, "--at", T0 + 50, ended), "offset")] == [9]


def test_member_keeps_revoking_partitions_but_none_of_deleted_topics(tmp_path: Path, capfd: Capfd) -> None:
    """This is how a coordinator describes it: see tests/kafka/test_random_groups.py, and for the deleted topic test_groups_broker.py."""
    fares, gone = FARES, metadata.topic_id(8)
    part = {"assignmentEpochs": None}
    assigned = value(
        CONSUMER_OFFSETS,
        8,
        0,
        memberEpoch=2,
        previousMemberEpoch=1,
        state=1,
        assignedPartitions=[
            {"topicId": fares, "partitions": [0], **part},
            {"topicId": gone, "partitions": [1], **part},
        ],
        partitionsPendingRevocation=[{"topicId": fares, "partitions": [1], **part}],
    )
    member = value(
        CONSUMER_OFFSETS,
        5,
        0,
        clientId="c",
        clientHost="/h",
        subscribedTopicNames=["fares"],
        classicMemberMetadata=None,
    )
    names = {"groupId": "billing", "memberId": "m"}
    records = (key(CONSUMER_OFFSETS, 5, **names), member), (key(CONSUMER_OFFSETS, 8, **names), assigned)
    log_dir = broker(tmp_path, batch(0, *records))
    metadata.write_log(
        log_dir / "__cluster_metadata-0",
        metadata.topic("fares", FARES, 2),
        metadata.topic("gone", gone, 2),
        [metadata.record("RemoveTopicRecord", topicId=gone)],
        times_ms=[T0, T0, T0 + 60_000],
    )
    both = [("fares", 0), ("fares", 1)]
    for words, expected in (
        ((), both),
        (("--at", T0 + 60_000), both),
        (("--at", T0 + 59_999), [*both, ("gone", 1)]),
    ):
        # the metadata log is also found if only a partition or a segment is given
        partition = log_dir / f"{CONSUMER_OFFSETS}-0"
        for path in (log_dir, partition, partition / f"{0:020d}.log"):
            (row,) = of_type(groups(capfd, *words, path), "member")
            assert [(each["topic"], each["partition"]) for each in row["assignment"]] == expected


def test_groups_say_where_a_consumer_would_start(tmp_path: Path, capfd: Capfd) -> None:
    other = metadata.topic_id(9)
    log_dir = broker(
        tmp_path,
        batch(
            0,
            commit(4, "fine", topicId=FARES),
            commit(11, "beyond"),
            commit(3, "again", topicId=other),
            commit(3, "deleted", topic="gone", topicId=other),
        ),
    )
    assert {row["group"]: row["status"] for row in of_type(groups(capfd, log_dir), "offset")} == {
        "fine": "ok",
        "beyond": "beyond-log-end",
        "again": "topic-recreated",
        "deleted": "topic-deleted",
    }
    run(["groups", str(log_dir)])
    text = capfd.readouterr().out
    assert text.startswith("ATTENTION: 3 unusable offsets; 4 groups (4 Empty)")
    assert "1 offset beyond the log end" in text


def test_group_in_an_unexpected_partition_reveals_the_partition_count(tmp_path: Path, capfd: Capfd) -> None:
    """`g` hashes to partition 3 of 50. If it is found in another one, the topic does not have 50 partitions, and `my-group` may be in any
    of them."""
    here = tmp_path / f"{CONSUMER_OFFSETS}-1"
    write_segment(here, batch(0, commit(4, "g")))
    write_segment(tmp_path / f"{CONSUMER_OFFSETS}-12", batch(0, commit(4, "another")))
    rows = groups(capfd, "--group", "my-group", "--group", "g", tmp_path)
    (missing,) = of_type(rows, "missing_group")
    assert (missing["status"], missing["offsets_partition"], missing["offsets_partitions"]) == (
        "unknown",
        None,
        None,
    )
    run(["groups", str(tmp_path)])
    assert "how many there are is not known without a metadata log" in capfd.readouterr().out


def test_group_whose_offsets_partition_is_absent_is_unknown(tmp_path: Path, capfd: Capfd) -> None:
    """`my-group` hashes to partition 12 of 50, but with one partition, as the metadata log says, to that one."""
    log_dir = broker(tmp_path, batch(0, commit(4)))
    rows = groups(capfd, "--group", "my-group", log_dir, status=1)
    (missing,) = of_type(rows, "missing_group")
    assert (missing["status"], missing["offsets_partition"], missing["offsets_partitions"]) == (
        "absent",
        0,
        1,
    )
    alone = tmp_path / "alone"
    write_segment(alone / f"{CONSUMER_OFFSETS}-3", batch(0, commit(4, "g")))
    rows = groups(capfd, "--group", "my-group", "--group", "g", alone)
    (missing,) = of_type(rows, "missing_group")
    assert (missing["status"], missing["offsets_partition"], missing["offsets_partitions"]) == (
        "unknown",
        12,
        50,
    )
    assert [row["group"] for row in of_type(rows, "group")] == ["g"]
    run(["groups", "--group", "my-group", str(alone)])
    text = capfd.readouterr().out
    assert "group my-group is unknown: its partition __consumer_offsets-12 (of 50) is not under PATH" in text
    assert "1 of 50 partitions of __consumer_offsets under PATH" in text


@pytest.mark.behaviour("G13")
def test_reset_file_is_quoted_like_jackson_csv(tmp_path: Path, capfd: Capfd) -> None:
    """As jackson-csv writes it: text of more than 24 characters or with characters below `-` is quoted."""
    names = ["t", "my.topic-1_x", "a" * 24, "b" * 25]
    commits = [commit(at, group, name) for group in ('say "hi"', "a,b") for at, name in enumerate(names)]
    log_dir = broker(tmp_path, batch(0, *commits))
    several, one = tmp_path / "several.csv", tmp_path / "one.csv"
    groups(capfd, "--reset-csv", several, log_dir)
    tail = ["t,0,0", "my.topic-1_x,0,1", f"{'a' * 24},0,2", f'"{"b" * 25}",0,3']
    assert sorted(several.read_text().splitlines()) == sorted(
        f"{quoted},{line}" for quoted in ('"say ""hi"""', '"a,b"') for line in tail
    )
    groups(capfd, "--group", "a,b", "--reset-csv", one, log_dir)
    assert sorted(one.read_text().splitlines()) == sorted(tail)
    assert one.read_text().endswith("\n")
    assert run(["groups", "--reset-csv", str(one), str(log_dir)]) == 4
    assert "already exists" in capfd.readouterr().err
    empty = tmp_path / "empty.csv"
    assert run(["groups", "--group", "none", "--reset-csv", str(empty), str(log_dir)]) == 1
    assert capfd.readouterr().err == f"kseg groups: no offset to reset: {empty} is empty\n"


def test_reset_command_names_every_group_of_the_reset_file(tmp_path: Path, capfd: Capfd) -> None:
    """kafka-consumer-groups.sh --all-groups leaves out groups that the broker no longer has (tests/kafka/test_offsets_after_start.py)."""
    for count in (20, 21):
        names = [f"g{number:02}" for number in range(count)]
        log_dir = broker(tmp_path / str(count), batch(0, *(commit(1, name) for name in names)))
        capfd.readouterr()
        assert run(["groups", "--reset-csv", str(tmp_path / f"{count}.csv"), str(log_dir)]) == 0
        told = capfd.readouterr().err
        if count == 20:
            assert " --bootstrap-server HOST:PORT " + " ".join(f"--group {name}" for name in names) in told
        else:
            assert "(--group NAME for each that the broker no longer has)" in told and "--all-groups" in told


def test_history_shows_a_group_whose_offset_went_back(tmp_path: Path, capfd: Capfd) -> None:
    log_dir = broker(
        tmp_path,
        batch(0, commit(9), at_ms=T0),
        batch(1, commit(None), at_ms=T0 + 1000),
        batch(2, commit(2), at_ms=T0 + 2000),
    )
    (rewind,) = of_type(groups(capfd, "--history", log_dir), "rewind")
    assert (rewind["from_offset"], rewind["to_offset"]) == (9, 2)
    assert (rewind["from_timestamp"], rewind["deleted_timestamp"], rewind["timestamp"]) == (
        T0,
        T0 + 1000,
        T0 + 2000,
    )
    assert not of_type(groups(capfd, log_dir), "rewind")
    run(["groups", str(log_dir)])
    assert "offsets went back 1 time" in capfd.readouterr().out


def test_share_group_progress_is_shown(tmp_path: Path, capfd: Capfd) -> None:
    batches = [(3, 4, 0, 1), (5, 5, 4, 5), (6, 6, 2, 1)]
    state = value(
        SHARE_GROUP_STATE,
        0,
        0,
        snapshotEpoch=0,
        leaderEpoch=0,
        startOffset=3,
        deliveryCompleteCount=2,
        stateBatches=[
            {"firstOffset": first, "lastOffset": last, "deliveryState": state, "deliveryCount": count}
            for first, last, state, count in batches
        ],
    )
    log_dir = broker(
        tmp_path, batch(0, (key(CONSUMER_OFFSETS, 11, groupId="s"), value(CONSUMER_OFFSETS, 11, 0, epoch=2)))
    )
    name = key(SHARE_GROUP_STATE, 0, groupId="s", topicId=FARES, partition=0)
    write_segment(log_dir / f"{SHARE_GROUP_STATE}-0", batch(0, (name, state)))
    rows = groups(capfd, log_dir)
    (progress,) = of_type(rows, "share_offset")
    assert [progress[name] for name in ("group", "topic", "partition", "start_offset", "lag")] == [
        "s",
        "fares",
        0,
        3,
        5,
    ]
    assert [progress[name] for name in ("in_flight", "archived", "acknowledged")] == [2, 1, 1]
    assert [each["delivery_state"] for each in progress["batches"]] == [
        "AVAILABLE",
        "ARCHIVED",
        "ACKNOWLEDGED",
    ]


def test_share_state_in_another_partition_than_the_coordinators_is_unreachable(
    tmp_path: Path, capfd: Capfd
) -> None:
    """`__share_group_state` was given more partitions. A real 4.3.1 broker then answers for such a state like for none, and a member of the
    group reads nothing, until kafka-share-groups.sh has reset its offsets."""
    topics = {"initializedTopics": [{"topicId": FARES, "topicName": "fares", "partitions": [0]}]}
    metadata_of_group = value(CONSUMER_OFFSETS, 15, 0, initializingTopics=[], deletingTopics=[], **topics)
    log_dir = broker(
        tmp_path,
        batch(
            0,
            (key(CONSUMER_OFFSETS, 11, groupId="s"), value(CONSUMER_OFFSETS, 11, 0, epoch=2)),
            (key(CONSUMER_OFFSETS, 15, groupId="s"), metadata_of_group),
        ),
    )
    shutil.rmtree(log_dir / "__cluster_metadata-0")
    metadata.write_log(
        log_dir / "__cluster_metadata-0",
        metadata.topic("fares", FARES, 2),
        metadata.topic(CONSUMER_OFFSETS, metadata.topic_id(6), 1),
        metadata.topic(SHARE_GROUP_STATE, metadata.topic_id(7), 4),
    )
    home = partition_for(f"s:{FARES}:0", 4)
    name = key(SHARE_GROUP_STATE, 0, groupId="s", topicId=FARES, partition=0)
    state = value(SHARE_GROUP_STATE, 0, 0, startOffset=3, deliveryCompleteCount=0, stateBatches=[])
    write_segment(log_dir / f"{SHARE_GROUP_STATE}-{home}")
    write_segment(log_dir / f"{SHARE_GROUP_STATE}-{(home + 1) % 4}", batch(0, (name, state)))
    found = of_type(groups(capfd, log_dir), "share_offset")
    assert [(row["status"], row["start_offset"]) for row in found] == [("unreachable", 3), ("no-state", None)]
    run(["groups", str(log_dir)])
    text = capfd.readouterr().out
    assert text.startswith("ATTENTION: 1 unusable offset; ")
    assert "their members get no record (s fares-0)" in text


def test_groups_report_a_record_that_fails_the_load(tmp_path: Path, capfd: Capfd) -> None:
    log_dir = broker(tmp_path, batch(0, commit(4), (commit(4)[0], b"\0\3"), commit(5)))
    rows = groups(capfd, log_dir, status=1)
    (finding,) = of_type(rows, "finding")
    assert (finding["id"], finding["first_offset"]) == ("coordinator-load-fails", 1)
    assert [row["offset"] for row in of_type(rows, "offset")] == [5]
    assert run(["groups", str(log_dir)]) == 1
    assert capfd.readouterr().out.startswith("LOAD FAILS: 1 error; 1 group (1 Empty)")


@pytest.mark.parametrize("is_clean", [False, True], ids=["unclean", "clean"])
@pytest.mark.parametrize("where", ["middle", "end", "torn", "below the recovery point"])
def test_damage_that_a_start_removes_does_not_fail_the_load(
    where: str, is_clean: bool, tmp_path: Path, capfd: Capfd
) -> None:
    """For what a broker does, see tests/kafka/test_group_load.py."""
    parts = [batch(at, commit(at, f"group {at}")) for at in range(4)]
    hurt = 3 if where in ("end", "torn") else 1
    whole = parts[hurt]
    parts[hurt] = whole[:-20] if where == "torn" else bytes([*whole[:-1], whole[-1] ^ 1])
    log_dir = broker(tmp_path, *parts[:2])
    write_segment(log_dir / f"{CONSUMER_OFFSETS}-0", *parts[2:], base_offset=2)
    if is_clean:
        (log_dir / ".kafka_cleanshutdown").touch()
    if where == "below the recovery point":
        (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n1\n{CONSUMER_OFFSETS} 0 2\n")
    kind, head = {
        "middle": ("coordinator-log-truncated", "LOAD INCOMPLETE: a broker that starts truncates 1 log; "),
        "end": ("coordinator-log-torn", "LOADED: "),
        "torn": ("coordinator-log-torn", "LOADED: "),
    }.get(where, ("", ""))
    if where != "torn" and (is_clean or not kind):
        kind, head = "coordinator-load-fails", "LOAD FAILS: 1 error; "
    status = int(kind != "coordinator-log-torn")
    rows = groups(capfd, log_dir, status=status)
    (finding,) = of_type(rows, "finding")
    assert (finding["id"], finding["first_offset"]) == (kind, hurt)
    assert len(of_type(rows, "group")) == 3
    assert run(["groups", str(log_dir)]) == status
    text = capfd.readouterr().out
    assert text.startswith(head)
    assert ("does not load the 2 records after it" in text) == (kind == "coordinator-log-truncated")
    assert ("appends after it" in text) == (where == "torn" and is_clean)


@pytest.mark.parametrize(("at", "is_certain"), [(0, True), (9, False)], ids=["version", "leader epoch"])
def test_share_group_damage_that_fails_the_load_is_reported(
    at: int, is_certain: bool, tmp_path: Path, capfd: Capfd
) -> None:
    """Observed with a real broker: "Deserializing record … from __share_group_state-0 failed"."""
    fields = {"snapshotEpoch": 0, "stateEpoch": 1, "leaderEpoch": 2, "startOffset": 3, "stateBatches": []}
    times = {"deliveryCompleteCount": 0, "createTimestamp": T0, "writeTimestamp": T0}
    name = key(SHARE_GROUP_STATE, 0, groupId="s", topicId=FARES, partition=0)
    content = value(SHARE_GROUP_STATE, 0, 0, **fields, **times)
    whole = bytearray(batch(0, (name, content)))
    whole[whole.index(content) + at] ^= 1
    log_dir = broker(tmp_path, batch(0, commit(1)))
    write_segment(log_dir / f"{SHARE_GROUP_STATE}-0", bytes(whole), batch(1, (name, content)))
    (log_dir / ".kafka_cleanshutdown").touch()
    (finding,) = of_type(groups(capfd, log_dir, status=1), "finding")
    assert finding["id"] == "coordinator-load-fails"
    assert finding["message"].endswith("; a coordinator fails to load the partition") == is_certain


def test_ten_thousand_groups_fit_on_a_screen(tmp_path: Path, capfd: Capfd) -> None:
    commits = [commit(number % 10, f"group-{number:05}") for number in range(10_000)]
    log_dir = broker(
        tmp_path, *(batch(first, *commits[first : first + 500]) for first in range(0, 10_000, 500))
    )
    run(["groups", str(log_dir)])
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == (
        "LOADED: 10,000 groups (10,000 Empty); 10,000 behind, most group-00000: 10 records in fares-0"
    )
    assert len(lines) < 30
    assert "… and 9,980 more groups (--verbose shows all)" in lines


def test_groups_can_be_limited_to_some_offsets(tmp_path: Path, capfd: Capfd) -> None:
    commits = [commit(1, "g", topic, number) for topic in ("fares", "rides") for number in (0, 1)]
    log_dir = broker(tmp_path, batch(0, *commits))
    rows = groups(capfd, "--topic", "f*", "--partition", 1, log_dir)
    assert [(row["topic"], row["partition"]) for row in of_type(rows, "offset")] == [("fares", 1)]


def test_groups_use_the_replica_with_the_highest_end(tmp_path: Path, capfd: Capfd) -> None:
    ahead = broker(tmp_path / "1", batch(0, commit(1), commit(5)), fares=20)
    behind = broker(tmp_path / "2", batch(0, commit(1)))
    (offset,) = of_type(groups(capfd, behind, ahead), "offset")
    assert (offset["offset"], offset["log_end_offset"]) == (5, 20)


@pytest.mark.parametrize("words", [[], ["--group", "x"]])
def test_groups_without_a_coordinator_log_is_an_error(words: list[str], tmp_path: Path, capfd: Capfd) -> None:
    write_segment(tmp_path / "fares-0", batch(0, (None, b"v")))
    assert run(["groups", *words, str(tmp_path)]) == 2
    assert "no partition of __consumer_offsets" in capfd.readouterr().err
    assert run(["groups", *words, str(tmp_path / "none")]) == 3


def test_verify_names_records_that_fail_a_coordinator_load(tmp_path: Path, capfd: Capfd) -> None:
    log_dir = broker(tmp_path, batch(0, commit(4), (commit(4)[0], b"\0\3"), commit(5)))
    share = log_dir / f"{SHARE_GROUP_STATE}-0"
    write_segment(share, batch(0, (None, b"\0\0")))
    found = []
    for words, is_named in (([], True), (["--quick"], False)):
        rows = rows_of(capfd, "verify", *words, log_dir)
        found = [row for row in rows if row.get("id") == "coordinator-load-fails"]
        assert bool(found) == is_named
        (verified,) = [row for row in rows if row["type"] == "verified" and row["path"] == str(share)]
        if is_named:
            assert verified["errors"] >= 1
            places = {(Path(row["path"]).name, row["first_offset"]) for row in found}
            assert places == {(f"{CONSUMER_OFFSETS}-0", 1), (f"{SHARE_GROUP_STATE}-0", 0)}


def test_list_shows_the_lag_of_each_partition(tmp_path: Path, capfd: Capfd) -> None:
    log_dir = broker(tmp_path, batch(0, commit(4), commit(9, "fast")))
    rows = rows_of(capfd, "list", "--groups", log_dir)
    lags = {row["partition"]: row["groups"] for row in rows if row["type"] == "partition"}
    assert lags["fares-0"] == [
        {"group": "billing", "offset": 4, "lag": 6},
        {"group": "fast", "offset": 9, "lag": 1},
    ]
    assert lags[f"{CONSUMER_OFFSETS}-0"] == []
    run(["list", "--groups", "--sort", "lag", str(log_dir)])
    table = [line.split() for line in capfd.readouterr().out.splitlines()]
    (head,) = [at for at, cells in enumerate(table) if cells and cells[0] == "TOPIC"]
    assert table[head][-3:] == ["LAG", "OF", "GROUP"]
    assert (table[head + 1][0], table[head + 1][-2:]) == ("fares", ["6", "billing"])
    assert run(["list", "--sort", "lag", str(log_dir)]) == 2


@pytest.mark.parametrize("command", [["groups"], ["list", "--groups"]])
def test_coordinator_log_may_be_in_a_directory_that_cannot_be_read(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capfd
) -> None:
    write_segment(tmp_path / "fares-0", batch(0, (None, b"v")))
    unread = tmp_path / "unread"
    unread.mkdir()
    scandir = os.scandir

    def failing(path: Any = ".") -> Any:
        if str(path) == str(unread):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    assert run([*command, str(tmp_path / "fares-0"), str(unread)]) == 3
    error = capfd.readouterr().err
    assert error == f"kseg: cannot read {unread}: {os.strerror(errno.ESTALE)}\n"
