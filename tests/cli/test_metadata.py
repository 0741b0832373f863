"""`kseg metadata`: rows of every kind, earlier states, directories, secrets, narrowing, and logs that are damaged."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.internal_topics.metadata_logs import (
    CLUSTER,
    DIRECTORY,
    T0,
    config,
    record,
    topic,
    topic_id,
    write_log,
    write_meta_properties,
    write_snapshot,
)

LOG = "__cluster_metadata-0"
MUTATIONS = int(os.environ.get("KSEG_METADATA_MUTATIONS", "2000"))
SEED = int(os.environ.get("KSEG_METADATA_MUTATIONS_SEED", "7"))
Row = dict[str, Any]

BROKER = record(
    "RegisterBrokerRecord",
    brokerId=1,
    incarnationId=topic_id(50),
    brokerEpoch=9,
    endPoints=[{"name": "PLAINTEXT", "host": "h", "port": 9092, "securityProtocol": 0}],
    features=[{"name": "metadata.version", "minSupportedVersion": 7, "maxSupportedVersion": 30}],
    rack="r",
    fenced=True,
    logDirs=[DIRECTORY],
)
CREDENTIAL = record(
    "UserScramCredentialRecord",
    name="alice",
    mechanism=1,
    salt=b"salt",
    storedKey=b"stored",
    serverKey=b"server",
    iterations=4096,
)
ACL = record(
    "AccessControlEntryRecord",
    id=topic_id(60),
    resourceType=2,
    resourceName="or",
    patternType=4,
    principal="User:alice",
    host="*",
    operation=3,
    permissionType=2,
)
TOKEN = record(
    "DelegationTokenRecord",
    owner="User:alice",
    requester="User:bob",
    renewers=["User:eve"],
    issueTimestamp=1,
    maxTimestamp=2,
    expirationTimestamp=3,
    tokenId="t",
)


def quota(entity: dict[str, str | None], key: str, value: float, *, remove: bool = False) -> bytes:
    parts = [{"entityType": kind, "entityName": name} for kind, name in entity.items()]
    return record("ClientQuotaRecord", entity=parts, key=key, value=value, remove=remove)


def setting(resource_type: int, resource_name: str, name: str, value: str | None) -> bytes:
    return record(
        "ConfigRecord", resourceType=resource_type, resourceName=resource_name, name=name, value=value
    )


def rows(capfd: pytest.CaptureFixture[str], *words: str | Path | int, status: int = 0) -> list[Row]:
    capfd.readouterr()
    assert run(["metadata", "--json", *map(str, words)]) == status
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def of(found: list[Row], kind: str) -> list[Row]:
    return [row for row in found if row["type"] == kind]


def one(found: list[Row], kind: str) -> Row:
    (row,) = of(found, kind)
    return row


def partition_dir(log_dir: Path, name: str, identity: str | None) -> Path:
    made = log_dir / name
    made.mkdir(parents=True)
    (made / f"{0:020}.log").write_bytes(b"")
    if identity is not None:
        (made / "partition.metadata").write_text(f"version: 0\ntopic_id: {identity}")
    return made


# --- every kind of record


def test_a_row_for_each_thing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_meta_properties(tmp_path)
    write_log(
        tmp_path / LOG,
        [record("FeatureLevelRecord", name="metadata.version", featureLevel=30)],
        [BROKER, record("BrokerRegistrationChangeRecord", brokerId=1, brokerEpoch=9, fenced=-1)],
        [record("RegisterControllerRecord", controllerId=1, incarnationId=topic_id(51))],
        topic("orders", topic_id(1), leaderEpoch=0, partitionEpoch=0),
        [config("orders", "retention.ms", "5"), setting(32, "readers", "consumer.session.timeout.ms", "1")],
        [setting(16, "fleet", "interval.ms", "7"), setting(4, "", "log.retention.ms", "9")],
        [quota({"user": "alice", "client-id": None}, "producer_byte_rate", 10.5), ACL, CREDENTIAL, TOKEN],
        [record("ProducerIdsRecord", brokerId=1, brokerEpoch=9, nextProducerId=2000)],
    )
    found = rows(capfd, tmp_path / LOG)
    reported = one(found, "metadata")
    assert (reported["offset"], reported["epoch"], reported["timestamp"], reported["cluster_id"]) == (
        14,
        1,
        T0,
        CLUSTER,
    )
    assert (reported["metadata_version"], reported["next_producer_id"], reported["certain"]) == (
        "4.3-IV0",
        2000,
        True,
    )
    broker = one(found, "broker")
    assert (broker["broker_id"], broker["epoch"], broker["rack"], broker["fenced"]) == (1, 9, "r", False)
    assert broker["listeners"] == [{"name": "PLAINTEXT", "host": "h", "port": 9092}]
    assert broker["log_dirs"] == [DIRECTORY]
    assert one(found, "controller")["controller_id"] == 1
    assert [(row["resource_type"], row["resource_name"], row["value"]) for row in of(found, "config")] == [
        ("TOPIC", "orders", "5"),
        ("BROKER", "", "9"),
        ("CLIENT_METRICS", "fleet", "7"),
        ("GROUP", "readers", "1"),
    ]
    assert one(found, "quota")["entity"] == {"client-id": None, "user": "alice"}
    acl = one(found, "acl")
    assert (acl["resource_type"], acl["pattern_type"], acl["operation"], acl["permission"]) == (
        "TOPIC",
        "PREFIXED",
        "READ",
        "DENY",
    )
    assert one(found, "scram") == {
        "type": "scram",
        "user": "alice",
        "mechanism": "SCRAM-SHA-256",
        "iterations": 4096,
    }
    assert one(found, "token")["renewers"] == ["User:eve"]
    assert one(found, "partition")["directories"] == [DIRECTORY]


def test_what_is_removed_is_gone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    user: dict[str, str | None] = {"user": "alice"}
    write_log(
        tmp_path / LOG,
        [BROKER, *topic("orders", topic_id(1)), config("orders", "retention.ms", "5")],
        [ACL, CREDENTIAL, TOKEN, quota(user, "producer_byte_rate", 1), quota(user, "request_percentage", 2)],
        [record("FeatureLevelRecord", name="group.version", featureLevel=1)],
        [record("RemoveAccessControlEntryRecord", id=topic_id(60))],
        [record("RemoveUserScramCredentialRecord", name="alice", mechanism=1)],
        [record("RemoveDelegationTokenRecord", tokenId="t")],
        [quota(user, "producer_byte_rate", 0, remove=True)],
        [record("FeatureLevelRecord", name="group.version", featureLevel=0)],
        [record("UnregisterBrokerRecord", brokerId=1, brokerEpoch=9)],
        [record("RemoveTopicRecord", topicId=topic_id(1))],
    )
    found = rows(capfd, tmp_path / LOG)
    assert {row["type"] for row in found} == {"metadata", "quota", "removed_topic", "directory", "summary"}
    assert one(found, "quota")["key"] == "request_percentage"
    removed = one(found, "removed_topic")
    assert (removed["topic"], removed["partitions"], removed["offset"]) == ("orders", 1, 16)


@pytest.mark.behaviour("M03")
def test_changes_of_a_partition(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Only what a record has is changed; the partition epoch counts all of them (ClearElr is a change to the real TopicDelta too), the leader
    epoch those with a leader."""
    change: dict[str, Any] = {"partitionId": 0, "topicId": topic_id(1)}
    write_log(
        tmp_path / LOG,
        topic("orders", topic_id(1), leaderEpoch=3, partitionEpoch=5),
        [record("PartitionChangeRecord", **change, isr=[], leader=-1, eligibleLeaderReplicas=[1])],
        [record("PartitionChangeRecord", **change, lastKnownElr=[1])],
        [record("PartitionChangeRecord", **change, replicas=[1, 2], addingReplicas=[2])],
        [record("PartitionChangeRecord", **change, leader=1, isr=[1], leaderRecoveryState=1)],
        [record("ClearElrRecord", topicName="orders")],
    )
    states = [one(rows(capfd, "--offset", offset, tmp_path / LOG), "partition") for offset in range(2, 7)]
    assert [(row["leader"], row["leader_epoch"], row["partition_epoch"]) for row in states] == [
        (-1, 4, 6),
        (-1, 4, 7),
        (-1, 4, 8),
        (1, 5, 9),
        (1, 5, 10),
    ]
    assert states[1]["elr"] == [1] and states[1]["last_known_elr"] == [1]
    assert states[2]["replicas"] == [1, 2] and states[2]["adding_replicas"] == [2]
    assert states[2]["directories"] == ["AAAAAAAAAAAAAAAAAAAAAA"] * 2
    assert states[3]["leader_recovery_state"] == "RECOVERING"
    assert states[4]["elr"] == states[4]["last_known_elr"] == []


# --- earlier states


def test_every_offset_of_a_brokers_log(capture_small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As of the snapshot's end the snapshot says the same; what a transaction has begun is not visible (fact sheet §12.3)."""
    log = capture_small / "data" / LOG
    assert of(rows(capfd, "--offset", 5, log), "feature") == []
    assert len(of(rows(capfd, "--offset", 10, log), "feature")) > 3
    (snapshot,) = log.glob("*.checkpoint")
    alone = rows(capfd, snapshot)
    at_68 = rows(capfd, "--offset", 68, log)
    assert one(alone, "metadata")["offset"] == one(at_68, "metadata")["offset"] == 68
    assert one(at_68, "metadata")["snapshot"] == str(snapshot)
    kinds = ("topic", "partition", "config", "broker", "feature")
    for kind in kinds:
        assert of(alone, kind) == of(at_68, kind)
    topics = [len(of(rows(capfd, "--offset", offset, log), "topic")) for offset in range(60, 140, 7)]
    assert topics == sorted(topics) and topics[-1] > topics[0]


def test_a_place_that_is_gone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The log starts at 4: what was before the oldest snapshot cannot be said, and the message says from where on it can."""
    log = tmp_path / LOG
    write_log(log, topic("later", topic_id(3)), topic("last", topic_id(4)), base_offset=4)
    write_snapshot(log, 4, topic("first", topic_id(1)))
    write_snapshot(log, 6, [*topic("first", topic_id(1)), *topic("later", topic_id(3))])
    assert [row["topic"] for row in of(rows(capfd, "--offset", 3, log), "topic")] == ["first"]
    assert [row["topic"] for row in of(rows(capfd, "--offset", 5, log), "topic")] == ["first", "later"]
    assert one(rows(capfd, "--offset", 99, log), "metadata")["offset"] == 7
    assert run(["metadata", "--offset", "2", str(log)]) == 3
    assert "from offset 3 on" in capfd.readouterr().err
    assert run(["metadata", "--at", str(T0 - 1), str(log)]) == 3
    assert f"from offset 3 on, time {T0}" in capfd.readouterr().err
    old = next(log.glob("*4-*.checkpoint"))
    old.rename(old.with_name(old.name + ".deleted"))
    assert [row["topic"] for row in of(rows(capfd, "--offset", 3, log), "topic")] == ["first"]


@pytest.mark.parametrize("place", [("--offset", "139"), ("--offset", "9999"), ("--at", "2100-01-01")])
def test_the_end_of_the_log_is_no_earlier_state(
    place: tuple[str, str], capture_small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def shown(*words: str) -> str:
        assert run(["metadata", *words, str(capture_small / "data")]) == 0
        return capfd.readouterr().out

    def state(*words: str) -> list[str]:
        return [line for line in shown("--json", *words).splitlines() if is_state(line)]

    def is_state(line: str) -> bool:
        return json.loads(line)["type"] not in ("finding", "summary")

    assert state(*place) == state()
    notes = [line for line in shown(*place).splitlines() if line not in shown().splitlines()]
    if place == ("--offset", "139"):
        assert notes == []
    else:
        (note,) = notes
        assert "the log ends at offset 139" in note and "not known here" in note
    assert shown("--json", "--offset", "138").count('"earlier":true') == 1


def test_a_time_at_the_end_of_the_log_is_not_behind_it(
    capture_small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A controller that is idle writes twice a second; who asks for a moment between two of its records asks for the end."""
    log = capture_small / "data" / LOG
    end_ms = one(rows(capfd, log), "metadata")["timestamp"]
    assert of(rows(capfd, "--at", end_ms + 400, log), "finding") == []
    (note,) = of(rows(capfd, "--at", end_ms + 60_000, log), "finding")
    assert (note["id"], note["severity"], note["first_offset"]) == ("metadata-log-note", "info", 139)


def test_before_the_first_record(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / LOG, topic("orders", topic_id(1)))
    found = rows(capfd, "--at", T0 - 1, tmp_path / LOG)
    reported = one(found, "metadata")
    assert (
        reported["offset"] is reported["epoch"] is reported["timestamp"] is None and of(found, "topic") == []
    )
    assert len(of(rows(capfd, "--at", T0, tmp_path / LOG), "topic")) == 1


@pytest.mark.parametrize("with_snapshots", [False, True])
def test_as_of_a_time_where_the_clock_went_back(
    with_snapshots: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All batches of that time or an earlier one count, and no others, whatever their order; a snapshot that contains another one
    does not, although its last record is early enough."""
    log, names = tmp_path / LOG, ["first", "ahead", "back", "later"]
    made = [topic(name, topic_id(number)) for number, name in enumerate(names, 1)]
    write_log(log, *made, times_ms=[T0, T0 + 900, T0 + 100, T0 + 901])
    if with_snapshots:
        write_snapshot(log, 2, made[0], time_ms=T0)
        write_snapshot(log, 6, [*made[0], *made[1], *made[2]], time_ms=T0 + 100)

    def at(time_ms: int) -> tuple[list[str], Any, Any]:
        found = rows(capfd, "--at", time_ms, log)
        state = one(found, "metadata")
        return [row["topic"] for row in of(found, "topic")], state["offset"], state["timestamp"]

    assert at(T0 + 99) == (["first"], 1, T0)
    assert at(T0 + 100) == (["back", "first"], 5, T0 + 100)
    assert at(T0 + 899) == (["back", "first"], 5, T0 + 100)
    assert at(T0 + 900) == (["ahead", "back", "first"], 5, T0 + 100)
    assert at(T0 + 901) == (["ahead", "back", "first", "later"], 7, T0 + 901)
    assert run(["metadata", "--at", str(T0 + 100), str(log)]) == 0
    reported = capfd.readouterr()
    assert "the clock went back: offsets 2 to 3" in reported.out + reported.err


def test_a_snapshot_with_a_later_batch_that_the_log_has_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing can take the later batch out of the snapshot, and nothing else says the state."""
    log = tmp_path / LOG
    made = [topic(name, topic_id(number)) for number, name in enumerate(["ahead", "back", "more"], 1)]
    write_log(log, *made, base_offset=2, times_ms=[T0 + 900, T0 + 100, T0 + 200])
    write_snapshot(log, 6, [*made[0], *made[1]], time_ms=T0 + 100)
    assert run(["metadata", "--at", str(T0 + 200), str(log)]) == 3
    capfd.readouterr()
    assert len(of(rows(capfd, "--at", T0 + 900, log), "topic")) == 3


@pytest.mark.parametrize(
    ("times", "first_seen"),
    [
        ([0, 1, 2, 3], 3),
        ([0, 3, 2, 1], 3),  # the topic is the latest of all
        ([3, 2, 1, 0], 2),  # it counts with its End, although its Begin is later
        ([2, 0, 1, 3], 3),  # of an unfinished transaction, although its Begin is later
    ],
)
def test_a_metadata_transaction_counts_from_its_end_on(
    times: list[int], first_seen: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Begin, a topic, something else, End: the topic is there as of the times at which both it and the End count."""
    log = tmp_path / LOG
    begin = record("BeginTransactionRecord", name="x")
    no_op, end = record("NoOpRecord"), record("EndTransactionRecord")
    write_log(
        log, [begin], topic("orders", topic_id(1), 0), [no_op], [end], times_ms=[T0 + at for at in times]
    )
    seen = [bool(of(rows(capfd, "--at", T0 + time, log), "topic")) for time in range(4)]
    assert seen == [time >= first_seen for time in range(4)]


# --- directories


def test_directories(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each status; the topic of a directory comes from its id as far as the log ever named it."""
    write_meta_properties(tmp_path)
    write_log(
        tmp_path / LOG,
        [BROKER, *topic("gone", topic_id(1)), record("RemoveTopicRecord", topicId=topic_id(1))],
        [*topic("orders", topic_id(2), 3), *topic("elsewhere", topic_id(3), directories=[topic_id(99)])],
    )
    digits = "0123456789abcdef" * 2
    partition_dir(tmp_path, f"cut-0.{digits}-delete", topic_id(1))
    partition_dir(tmp_path, f"orders-1.{digits}-future", topic_id(2))
    partition_dir(tmp_path, f"old-0.{digits}-stray", topic_id(9))
    partition_dir(tmp_path, "orders-0", topic_id(2))
    partition_dir(tmp_path, "orders-7", topic_id(2))
    partition_dir(tmp_path, "gone-0", topic_id(1))
    partition_dir(tmp_path, "nameless-0", None)
    found = of(rows(capfd, tmp_path, status=1), "directory")
    assert all(row["path"].startswith(f"{tmp_path}/") for row in found)
    reported = {Path(row["path"]).name.partition(".")[0]: (row["status"], row["topic"]) for row in found}
    assert reported == {
        LOG: ("known", "__cluster_metadata"),
        "cut-0": ("deleted", "gone"),
        "orders-1": ("future", "orders"),
        "old-0": ("stray", "old"),
        "orders-0": ("known", "orders"),
        "orders-7": ("stray", "orders"),
        "gone-0": ("stray", "gone"),
        "nameless-0": ("stray", "nameless"),
        "orders-2": ("missing", "orders"),
    }
    capfd.readouterr()
    assert run(["metadata", str(tmp_path)]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert (
        lines[0] == "MISSING: 1 replica that the metadata log places here is not there; 4 directories stray"
    )


def test_the_log_dirs_of_a_node_together(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A replica in another log dir than the assigned one is not missing; the metadata log of one is that of all."""
    second = topic_id(77)
    write_meta_properties(tmp_path / "a")
    write_meta_properties(tmp_path / "b", directory=second)
    write_log(
        tmp_path / "a" / LOG,
        [BROKER, *topic("orders", topic_id(2), 2), *topic("fares", topic_id(3), directories=[second])],
    )
    partition_dir(tmp_path / "b", "orders-0", topic_id(2))
    found = rows(capfd, tmp_path, status=1)
    missing = {row["path"] for row in of(found, "directory") if row["status"] == "missing"}
    assert missing == {f"{tmp_path}/a/orders-1", f"{tmp_path}/b/fares-0"}
    alone = of(rows(capfd, tmp_path / "b", status=1), "directory")
    assert {row["status"] for row in alone} == {"known", "missing"}
    copied = shutil.copytree(tmp_path / "a" / LOG, tmp_path / "copied" / LOG)
    both = of(rows(capfd, copied, tmp_path / "b", status=1), "directory")
    assert {row["path"] for row in both if row["status"] == "missing"} == {f"{tmp_path}/b/fares-0"}


@pytest.mark.parametrize("left", ["old-id", "no-id", "future"])
def test_what_a_broker_does_not_keep_in_another_log_dir_is_missing(
    left: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A directory of a topic that was deleted and made again, or that becomes stray, or the beginning of a move."""
    second = topic_id(77)
    write_meta_properties(tmp_path / "a")
    write_meta_properties(tmp_path / "b", directory=second)
    write_log(tmp_path / "a" / LOG, [BROKER, *topic("orders", topic_id(2), directories=[DIRECTORY])])
    name = "orders-0" if left != "future" else f"orders-0.{'0' * 32}-future"
    identity = {"old-id": topic_id(3), "no-id": None, "future": topic_id(2)}[left]
    partition_dir(tmp_path / "b", name, identity)
    statuses = {row["path"]: row["status"] for row in of(rows(capfd, tmp_path, status=1), "directory")}
    assert statuses[f"{tmp_path}/a/orders-0"] == "missing"


def test_another_cluster_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_meta_properties(tmp_path / "a")
    write_log(tmp_path / "a" / LOG, topic("orders", topic_id(1)))
    write_meta_properties(tmp_path / "b", cluster="Nz9XvQe1R0mU7bTq2LkP5w")
    partition_dir(tmp_path / "b", "orders-0", topic_id(1))
    assert run(["metadata", str(tmp_path / "a" / LOG), str(tmp_path / "b")]) == 4
    assert "belongs to cluster" in capfd.readouterr().err


# --- secrets, narrowing, history


@pytest.mark.behaviour("M08")
def test_secrets_are_shown_when_asked_for_only(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    secrets = {
        "ssl.keystore.password": "hidden-1",
        "listener.name.outside.plain.sasl.jaas.config": "hidden-2",
        "no.such.name": "hidden-3",
    }
    plain = {"log.retention.ms": "shown-1", "listener.name.outside.ssl.keystore.type": "shown-2"}
    settings = [setting(4, "1", name, value) for name, value in (secrets | plain).items()]
    write_log(tmp_path / LOG, [*settings, CREDENTIAL], [setting(2, "orders", "no.such.name", "hidden-4")])
    for words in (
        (),
        ("--verbose",),
        ("--json",),
        ("--history",),
        ("--history", "--json"),
        ("--kind", "config"),
    ):
        capfd.readouterr()
        assert run(["metadata", *words, str(tmp_path / LOG)]) == 0
        output = "".join(capfd.readouterr())
        assert "hidden" not in output and "c2FsdA" not in output and "c3RvcmVk" not in output
    found = rows(capfd, tmp_path / LOG)
    assert {row["value"] for row in of(found, "config")} == {"(redacted)", "shown-1", "shown-2"}
    found = rows(capfd, "--show-secrets", tmp_path / LOG)
    assert {f"hidden-{number}" for number in range(1, 5)} < {row["value"] for row in of(found, "config")}
    assert one(found, "scram")["stored_key"] == "c3RvcmVk"


def test_narrowing(capture_small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = capture_small / "data"
    found = rows(capfd, "--topic", "metro-*", "--partition", 0, data)
    assert {row["type"] for row in found} == {
        "metadata",
        "topic",
        "partition",
        "config",
        "directory",
        "summary",
    }
    assert {row["topic"] for row in of(found, "topic")} == {
        f"metro-{codec}" for codec in ("gzip", "lz4", "none", "snappy", "zstd")
    }
    found = rows(capfd, "--kind", "broker", "--kind", "feature", data)
    assert {row["type"] for row in found} == {"metadata", "broker", "feature", "summary"}
    assert len(of(rows(capfd, "--node", 1, data), "partition")) == 11
    assert of(rows(capfd, "--node", 2, data), "partition") == []


def test_history_of_a_brokers_log(capture_small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each event names the controller that wrote it: the leader of its epoch."""
    events = of(rows(capfd, "--history", capture_small / "data" / LOG), "event")
    assert {event["epoch"] for event in events} == {1, 2}
    assert {event["controller_id"] for event in events} == {1}


def test_history(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Who created, changed and deleted what, with the previous values; an aborted transaction has no author."""
    write_log(
        tmp_path / LOG,
        [*topic("orders", topic_id(1), 2), config("orders", "retention.ms", "5")],
        [config("orders", "retention.ms", "6"), config("orders", "retention.ms", None)],
        [record("PartitionChangeRecord", partitionId=1, topicId=topic_id(1), leader=2, isr=[2])],
        [record("BeginTransactionRecord"), *topic("never", topic_id(5)), record("AbortTransactionRecord")],
        [record("RemoveTopicRecord", topicId=topic_id(1))],
    )
    events = of(rows(capfd, "--history", tmp_path / LOG), "event")
    assert [(event["offset"], event["event"]) for event in events] == [
        (0, "topic-created"),
        (3, "config-set"),
        (4, "config-set"),
        (5, "config-removed"),
        (6, "leader-changed"),
        (11, "topic-deleted"),
    ]
    assert {event["topic"] for event in events} == {"orders"}
    assert events[0]["details"] == events[-1]["details"] == {"partitions": 2}
    assert [event["details"]["former_value"] for event in events[1:4]] == [None, "5", "6"]
    assert events[4]["details"]["before"]["leader"] == 1 and events[4]["nodes"] == [1, 2]
    assert len(of(rows(capfd, "--history", "--node", 2, tmp_path / LOG), "event")) == 1
    assert len(of(rows(capfd, "--history", "--offset", 4, tmp_path / LOG), "event")) == 3


@pytest.mark.parametrize(
    "words",
    [
        ["--at", "1", "--offset", "1", "PATH"],
        ["--history", "--kind", "acl", "PATH"],
        [],
        ["PATH/orders-0"],
    ],
)
def test_mistakes(words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    partition_dir(tmp_path, "orders-0", None)
    assert run(["metadata", *(word.replace("PATH", str(tmp_path)) for word in words)]) == 2
    assert capfd.readouterr().out == ""


# --- damage


def test_a_damaged_log_is_uncertain(
    capture_small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is called missing or stray for what may be in the damaged part; the exit status is 1."""
    data = shutil.copytree(capture_small / "data", tmp_path / "data")
    (snapshot,) = (data / LOG).glob("*.checkpoint")
    snapshot.unlink()
    path = max((data / LOG).glob("*.log"), key=lambda each: each.stat().st_size)
    content = bytearray(path.read_bytes())
    content[3000] ^= 0x40
    path.write_bytes(bytes(content))
    shutil.rmtree(data / "metro-none-0")
    found = rows(capfd, data, status=1)
    assert one(found, "metadata")["certain"] is False
    assert any(row["id"] == "metadata-log-doubtful" for row in of(found, "finding"))
    assert {row["status"] for row in of(found, "directory")} <= {"known", None}
    capfd.readouterr()
    assert run(["metadata", str(data)]) == 1
    assert capfd.readouterr().out.startswith("UNCERTAIN: the metadata log cannot be read to its end")


def test_mutated_and_truncated_logs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Records of every kind, their bytes changed or cut, under right checksums; and files whose bytes are changed or cut."""
    kinds = [
        *topic("orders", topic_id(1)),
        *(BROKER, CREDENTIAL, ACL, TOKEN, quota({"user": "a"}, "k", 1.5), config("orders", "a", "b")),
        record("FeatureLevelRecord", name="f", featureLevel=1),
        record("PartitionChangeRecord", partitionId=0, topicId=topic_id(1), leader=1, isr=[1]),
        record("BrokerRegistrationChangeRecord", brokerId=1, brokerEpoch=9, fenced=1),
        record("RegisterControllerRecord", controllerId=1, incarnationId=topic_id(51)),
        *(record(f"{kind}TransactionRecord") for kind in ("Begin", "End", "Abort")),
        record("RemoveTopicRecord", topicId=topic_id(1)),
        record("ClearElrRecord", topicName=""),
        record("ProducerIdsRecord", brokerId=1, nextProducerId=5),
    ]
    draw = random.Random(SEED)
    batch = 100
    before = 0
    for number in range(MUTATIONS // batch):
        log = tmp_path / f"{number}" / LOG
        made = [*kinds, *(mutated(draw, draw.choice(kinds)) for _ in range(batch)), *topic("z", topic_id(2))]
        write_log(log, *([each] for each in made))
        if number % 4 == 3:
            path = log / f"{0:020}.log"
            path.write_bytes(mutated(draw, path.read_bytes()))
        for words in (("--json",), ("--history",), ("--offset", str(draw.randrange(len(made)))), ("-v",)):
            assert run(["metadata", *words, str(log)]) in (0, 1, 3), (SEED, number, words)
            output = capfd.readouterr()
            assert "Traceback" not in output.err and "bug in kseg" not in output.err, (SEED, number, words)
        shutil.rmtree(log.parent)
        if number == 3:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 * 1024  # KiB


def mutated(draw: random.Random, data: bytes) -> bytes:
    """Some bytes changed, cut, doubled or put in."""
    content = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(content)) if content else 0
        match draw.randrange(5):
            case 0 | 1 if content:
                content[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
            case 2:
                del content[at:]
            case 3:
                content[at:at] = draw.randbytes(draw.randint(1, 6))
            case _:
                content[at:at] = content[at : at + 8]
    return bytes(content)


def test_a_long_history_and_a_copy_under_another_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """More events than are kept as they are, each once and in order; the directory is a copy of a metadata log."""
    copy = tmp_path / "copied"
    settings = [config("orders", "retention.ms", str(number)) for number in range(1200)]
    write_log(copy, topic("orders", topic_id(1), 3), *(settings[at : at + 50] for at in range(0, 1200, 50)))
    events = of(rows(capfd, "--history", copy), "event")
    assert [event["offset"] for event in events] == [0, *range(4, 1204)]
    assert events[0]["details"] == {"partitions": 3}
    assert [event["details"]["former_value"] for event in events[2:4]] == ["0", "1"]
    capfd.readouterr()
    assert run(["metadata", "--history", str(copy)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[1] == "1,201 events: 1,200 config-set, 1 topic-created" and len(lines) == 43
    assert lines[2] == "  the last 40; 1,161 earlier ones: --verbose shows all"
