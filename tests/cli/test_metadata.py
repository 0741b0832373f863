"""`kseg metadata`: rows of every kind, earlier states, directories, secrets, filters, and damaged logs."""

from __future__ import annotations

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
)
from tests.support.command_lines import Capfd
from tests.support.metadata_rows import (
    ACL,
    BROKER,
    CREDENTIAL,
    LOG,
    TOKEN,
    of,
    one,
    partition_dir,
    quota,
    rows,
    setting,
)

MUTATIONS = int(os.environ.get("KSEG_METADATA_MUTATIONS", "2000"))
SEED = int(os.environ.get("KSEG_METADATA_MUTATIONS_SEED", "7"))


# --- every kind of record


def test_metadata_has_a_row_for_each_entity(tmp_path: Path, capfd: Capfd) -> None:
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


def test_metadata_has_no_rows_for_removed_entities(tmp_path: Path, capfd: Capfd) -> None:
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
def test_partition_change_records_update_only_their_fields(tmp_path: Path, capfd: Capfd) -> None:
    """Only the fields in a record change. The partition epoch counts all records (ClearElr is a change in the real TopicDelta as well), the
    leader epoch only those with a leader."""
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


# --- directories


def test_directories_have_every_status(tmp_path: Path, capfd: Capfd) -> None:
    """Every status. The topic of a directory is looked up by its id, as far back as the log goes."""
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
        lines[0]
        == "MISSING: 1 replica that the metadata log assigns to these directories is not there; 4 directories stray"
    )


def test_log_dirs_of_a_node_are_judged_together(tmp_path: Path, capfd: Capfd) -> None:
    """A replica in another log dir than the assigned one is not missing. The metadata log in one log dir is used for all."""
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
def test_replica_a_broker_does_not_keep_in_another_log_dir_is_missing(
    left: str, tmp_path: Path, capfd: Capfd
) -> None:
    """For example the directory of a topic that was deleted and created again, one that becomes stray, or the beginning of a move."""
    second = topic_id(77)
    write_meta_properties(tmp_path / "a")
    write_meta_properties(tmp_path / "b", directory=second)
    write_log(tmp_path / "a" / LOG, [BROKER, *topic("orders", topic_id(2), directories=[DIRECTORY])])
    name = "orders-0" if left != "future" else f"orders-0.{'0' * 32}-future"
    identity = {"old-id": topic_id(3), "no-id": None, "future": topic_id(2)}[left]
    partition_dir(tmp_path / "b", name, identity)
    statuses = {row["path"]: row["status"] for row in of(rows(capfd, tmp_path, status=1), "directory")}
    assert statuses[f"{tmp_path}/a/orders-0"] == "missing"


def test_data_directory_of_another_cluster_is_refused(tmp_path: Path, capfd: Capfd) -> None:
    write_meta_properties(tmp_path / "a")
    write_log(tmp_path / "a" / LOG, topic("orders", topic_id(1)))
    write_meta_properties(tmp_path / "b", cluster="Nz9XvQe1R0mU7bTq2LkP5w")
    partition_dir(tmp_path / "b", "orders-0", topic_id(1))
    assert run(["metadata", str(tmp_path / "a" / LOG), str(tmp_path / "b")]) == 4
    assert "belongs to cluster" in capfd.readouterr().err


# --- secrets, narrowing, history


def test_topic_id_that_cannot_be_read_is_reported(tmp_path: Path, capfd: Capfd) -> None:
    write_meta_properties(tmp_path)
    write_log(tmp_path / LOG, topic("orders", topic_id(1)))
    partition_dir(tmp_path, "orders-0", topic_id(1))
    file = tmp_path / "orders-0" / "partition.metadata"
    file.write_bytes(b"")
    assert run(["metadata", str(tmp_path)]) == 0
    assert f"{tmp_path}/orders-0: known: partition.metadata has 0 lines, it needs 2" in capfd.readouterr().out


@pytest.mark.behaviour("M08")
def test_metadata_shows_secrets_only_on_request(tmp_path: Path, capfd: Capfd) -> None:
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


def test_configurations_removed_in_4_0_are_not_redacted(tmp_path: Path, capfd: Capfd) -> None:
    """Observed after a migration from ZooKeeper with 3.9.1. The names are those of 3.9.1 that 4.3.1 does not know."""
    names = "format.version", "downconversion.enable", "timestamp.difference.max.ms"
    settings = [
        *(setting(2, "orders", f"message.{name}", "shown") for name in names),
        *(setting(4, "1", f"log.message.{name}", "shown") for name in names[1:]),
    ]
    write_log(tmp_path / LOG, settings)
    found = of(rows(capfd, tmp_path / LOG), "config")
    assert [(row["value"], row["sensitive"]) for row in found] == [("shown", False)] * 5


def test_metadata_can_be_limited_to_topics_partitions_and_nodes(capture_small: Path, capfd: Capfd) -> None:
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


def test_metadata_filters_that_match_nothing_say_so(capture_small: Path, capfd: Capfd) -> None:
    for name, sentence in (("no-such-topic", "kseg metadata: no entry matches\n"), ("fares", "")):
        assert run(["metadata", "--topic", name, str(capture_small / "data")]) == 0
        out, err = capfd.readouterr()
        assert (not out, err) == (bool(sentence), sentence)


@pytest.mark.parametrize(
    "words",
    [
        ["--at", "1", "--offset", "1", "PATH"],
        ["--history", "--kind", "acl", "PATH"],
        [],
        ["PATH/orders-0"],
    ],
)
def test_metadata_rejects_wrong_usage(words: list[str], tmp_path: Path, capfd: Capfd) -> None:
    partition_dir(tmp_path, "orders-0", None)
    assert run(["metadata", *(word.replace("PATH", str(tmp_path)) for word in words)]) == 2
    assert capfd.readouterr().out == ""


# --- damage


def test_damaged_metadata_log_proves_nothing_missing_or_stray(data: Path, capfd: Capfd) -> None:
    """Nothing that may be in the damaged part is reported as missing or stray, and the exit status is 1."""
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


def test_mutated_and_truncated_metadata_logs_are_no_bug(tmp_path: Path, capfd: Capfd) -> None:
    """Records of every type with changed or removed bytes under valid checksums, and files with changed or removed bytes."""
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
    """Some bytes are changed, removed, repeated or inserted."""
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
