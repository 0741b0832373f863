"""`kseg metadata` against a real broker with two log dirs, compared with what Admin reports at several moments, what the real MetadataDelta
does with each record, and what the broker does to the directories at its next start.

One broker goes through all of it, because a start costs seconds: changes of every kind, a copy of its directories, more changes, a second
copy, a stop; then directories are removed and renamed, and it is started again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.cluster_admin import ClusterAdmin
from tests.kafka.conftest import require_kafka
from tests.kafka.metadata_truth import Row, assert_same, of_kind, real_images, rows_of

pytestmark = pytest.mark.kafka

LOG = "__cluster_metadata-0"
RESOURCES = [
    *(["TOPIC", name] for name in ("orders", "fares", "moved", "held", "gone")),
    *(["BROKER", "1"], ["BROKER", ""], ["GROUP", "readers"], ["CLIENT_METRICS", "fleet"]),
]
FIRST: list[list[Any]] = [
    ["create", "orders", 3, {"retention.ms": "86400000", "cleanup.policy": "compact"}],
    ["create", "fares", 2, {}],
    ["create", "gone", 2, {"retention.bytes": "1000"}],
    ["create", "moved", 1, {}],
    ["create", "held", 1, {}],
    ["config", "TOPIC", "fares", {"max.message.bytes": "65536", "retention.ms": "-1"}],
    ["config", "BROKER", "1", {"log.cleaner.threads": "2"}],
    ["config", "BROKER", "", {"log.retention.ms": "7000000", "message.max.bytes": "2000000"}],
    ["config", "GROUP", "readers", {"consumer.session.timeout.ms": "50000"}],
    ["config", "CLIENT_METRICS", "fleet", {"interval.ms": "60000", "metrics": "org.apache.kafka.producer."}],
    ["acl", "TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW"],
    ["acl", "TOPIC", "or", "PREFIXED", "User:bob", "127.0.0.1", "WRITE", "DENY"],
    ["acl", "GROUP", "*", "LITERAL", "User:*", "*", "ALL", "ALLOW"],
    ["acl", "CLUSTER", "kafka-cluster", "LITERAL", "User:alice", "*", "IDEMPOTENT_WRITE", "ALLOW"],
    ["acl", "TRANSACTIONAL_ID", "tx", "LITERAL", "User:alice", "*", "DESCRIBE", "ALLOW"],
    ["scram", "alice", "SCRAM-SHA-256", 8192],
    ["scram", "alice", "SCRAM-SHA-512", 4096],
    ["scram", "bob", "SCRAM-SHA-512", 4097],
    ["quota", {"user": "alice"}, "producer_byte_rate", 1048576],
    ["quota", {"user": None, "client-id": "loader"}, "consumer_byte_rate", 1e7],
    ["quota", {"client-id": None}, "request_percentage", 12.5],
    ["quota", {"ip": "127.0.0.9"}, "connection_creation_rate", 10],
]
THEN: list[list[Any]] = [
    ["delete", "gone"],
    ["create", "gone", 1, {"retention.bytes": "2000"}],
    ["partitions", "orders", 4],
    ["config", "TOPIC", "orders", {"cleanup.policy": None, "retention.ms": "5"}],
    ["config", "BROKER", "", {"log.retention.ms": None}],
    ["config", "GROUP", "readers", {"consumer.session.timeout.ms": None}],
    ["remove-acl", "GROUP", "*", "LITERAL", "User:*", "*", "ALL", "ALLOW"],
    ["remove-scram", "bob", "SCRAM-SHA-512"],
    ["scram", "alice", "SCRAM-SHA-256", 9000],
    ["quota", {"client-id": None}, "request_percentage", None],
    ["quota", {"user": "alice"}, "producer_byte_rate", 5],
    ["feature", "transaction.version", 1, 2],
]
# the fields that Admin reports for each kind
REPORTED_FIELDS = {
    "topic": ("topic", "topic_id", "partitions"),
    "partition": ("topic", "topic_id", "partition", "leader", "replicas", "isr", "elr", "last_known_elr"),
    "config": ("resource_type", "resource_name", "name", "value", "sensitive"),
    "feature": ("name", "level"),
    "broker": ("broker_id", "rack", "fenced", "host", "port"),
    "acl": (
        *("resource_type", "resource_name", "pattern_type"),
        *("principal", "host", "operation", "permission"),
    ),
    "scram": ("user", "mechanism", "iterations"),
    "quota": ("entity", "key", "value"),
}


class Story:
    """The history of the broker. moments: the copies, and Admin's answer at each."""

    def __init__(self, root: Path, broker: Broker) -> None:
        self.root, self.broker = root, broker
        self.log_dirs = [root / "data" / name for name in ("a", "b")]
        self.moments: list[tuple[Path, dict[str, Any]]] = []


def state(rows: Sequence[Row]) -> list[str]:
    """The rows of a state, without those about its source and about the current directories."""
    without = ("metadata", "directory", "summary", "finding", "removed_topic")
    return sorted(json.dumps(row, sort_keys=True) for row in rows if row["type"] not in without)


def snapshot_of(broker: Broker, root: Path, name: str) -> Path:
    copy = root / name
    for log_dir in sorted((root / "data").iterdir()):
        shutil.copytree(log_dir, copy / log_dir.name, ignore=shutil.ignore_patterns(".lock"))
    return copy


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    require_kafka()
    root = tmp_path_factory.mktemp("metadata")
    log_dirs = [root / "data" / name for name in ("a", "b")]
    broker = Broker(
        root / "broker",
        log_dirs[0],
        log_dirs=",".join(map(str, log_dirs)),
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
        broker_rack="r1",
    )
    reported = Story(root, broker)
    with broker:
        admin = ClusterAdmin(broker.bootstrap)
        for request in FIRST:
            admin.do(*request)
        producer = broker.producer(compression_type="none")
        for number in range(200):
            producer.produce("held", value=os.urandom(10_000), partition=0, key=str(number))
        producer.produce("moved", value=b"x", partition=0)
        producer.flush()
        reported.moments.append(settled(admin, broker, root, "first"))
        for request in THEN:
            admin.do(*request)
        move(admin, broker, log_dirs, "moved", slowly=False)
        move(admin, broker, log_dirs, "held", slowly=True)
        reported.moments.append(settled(admin, broker, root, "second"))
        admin.close()
    reported.moments.append((snapshot_of(broker, root, "stopped"), {}))
    yield reported


def move(admin: ClusterAdmin, broker: Broker, log_dirs: Sequence[Path], topic: str, *, slowly: bool) -> None:
    """Move partition 0 to the other log dir. slowly: the move is not complete when the broker stops."""
    here = next(each for each in log_dirs if (each / f"{topic}-0").is_dir())
    there = log_dirs[1 - log_dirs.index(here)]
    if slowly:
        admin.do("config", "BROKER", "1", {"replica.alter.log.dirs.io.max.bytes.per.second": "1000"})
    admin.do("move", topic, 0, 1, str(there))
    if slowly:
        broker.wait_for("the future log", lambda: bool([*there.glob(f"{topic}-0.*-future")]))
    else:
        broker.wait_for(
            "the move",
            lambda: (there / f"{topic}-0").is_dir() and not (here / f"{topic}-0").is_dir(),
        )


def settled(admin: ClusterAdmin, broker: Broker, root: Path, name: str) -> tuple[Path, dict[str, Any]]:
    """A copy made between two equal answers, so that nothing changed in the meantime except the broker's NoOp records."""
    while True:
        before = admin.do("describe", RESOURCES)
        copy = snapshot_of(broker, root, name)
        if admin.do("describe", RESOURCES)["rows"] == before["rows"]:
            return copy, before
        shutil.rmtree(copy)


@pytest.mark.behaviour("M04")
@pytest.mark.parametrize("moment", [0, 1])
def test_metadata_is_what_admin_describes_at_each_moment(
    story: Story, moment: int, capfd: pytest.CaptureFixture[str]
) -> None:
    copy, reported = story.moments[moment]
    rows = rows_of(capfd, copy)
    assert rows[0]["type"] == "metadata" and rows[0]["cluster_id"] == reported["cluster_id"]
    for kind, fields in REPORTED_FIELDS.items():
        assert of_kind(rows, kind, fields) == of_kind(reported["rows"], kind, fields), kind


@pytest.mark.behaviour("M05")
@pytest.mark.parametrize("moment", [0, 1])
def test_later_copy_gives_the_same_metadata_for_an_earlier_moment(
    story: Story, moment: int, capfd: pytest.CaptureFixture[str]
) -> None:
    then = rows_of(capfd, story.moments[moment][0])
    later = story.moments[2][0]
    by_offset = rows_of(capfd, "--offset", then[0]["offset"], later, status=None)
    by_time = rows_of(capfd, "--at", then[0]["timestamp"], later, status=None)
    assert state(by_offset) == state(by_time) == state(then)
    for name in ("offset", "epoch", "timestamp"):
        assert by_offset[0][name] == then[0][name]


@pytest.mark.behaviour("M01")
def test_each_metadata_record_has_the_effect_of_the_real_delta(
    story: Story, capfd: pytest.CaptureFixture[str]
) -> None:
    """Compare at every tenth offset and at the last ones, and starting from each snapshot. The log is complete from offset 0."""
    log = story.moments[2][0] / "a" / LOG
    segments = sorted(map(str, log.glob("*.log")))
    (end,) = [row["offset"] for row in rows_of(capfd, log) if row["type"] == "metadata"]
    offsets = sorted({*range(0, end, 10), *range(end - 12, end + 1)})
    truth = real_images(None, 0, segments, offsets)
    assert set(truth) == {*offsets, None}
    for offset in offsets:
        assert_same(rows_of(capfd, "--offset", offset, log), truth[offset])
    snapshots = sorted(log.glob("*.checkpoint"))
    assert snapshots
    for snapshot in snapshots:
        from_offset = int(snapshot.name[:20])
        real = real_images(str(snapshot), from_offset, segments, [])
        assert_same(rows_of(capfd, log), real[None])
        assert_same(rows_of(capfd, snapshot), truth_at(segments, from_offset - 1))


def truth_at(segments: Sequence[str], offset: int) -> list[Row]:
    return real_images(None, 0, segments, [offset])[offset]


@pytest.mark.behaviour("M06")
def test_directory_statuses_match_what_a_started_broker_does(
    story: Story, capfd: pytest.CaptureFixture[str]
) -> None:
    data = story.root / "data"
    rows = [row for row in rows_of(capfd, data) if row["type"] == "directory"]
    found = {os.path.relpath(row["path"], data): row for row in rows}
    statuses = {row["status"] for row in rows}
    assert statuses == {"known", "deleted", "future"}
    assert {path.name for path in data.glob("*/*-future")} == {
        Path(path).name for path, row in found.items() if row["status"] == "future"
    }
    assert len([row for row in rows if row["status"] == "deleted" and row["topic"] == "gone"]) == 2
    live = [path for path in data.glob("*/*-[0-9]") if path.is_dir()]
    assert {str(path.relative_to(data)) for path in live} == {
        path for path, row in found.items() if row["status"] == "known"
    }

    (orders,) = data.glob("*/orders-0")
    (fares,) = data.glob("*/fares-1")
    (third,) = data.glob("*/orders-3")
    shutil.rmtree(orders)
    (fares / "partition.metadata").write_text("version: 0\ntopic_id: CQkJCQkJCQkJCQkJCQkJCQ")
    third.rename(third.with_name("orders-9"))
    rows = [row for row in rows_of(capfd, data, status=1) if row["type"] == "directory"]
    missing = {row["path"] for row in rows if row["status"] == "missing"}
    stray = {row["path"] for row in rows if row["status"] == "stray"}
    assert missing == {str(orders), str(third)}
    assert stray == {str(fares), str(third.with_name("orders-9"))}
    story.broker.start()
    try:
        # fares-1 is created again under its name, because its topic still has that partition
        anew = {*missing, str(fares)}
        story.broker.wait_for("the partitions", lambda: all(Path(path).is_dir() for path in anew))
        set_aside = {path.name.partition(".")[0] for path in data.glob("*/*-stray")}
        assert set_aside == {Path(path).name for path in stray}
    finally:
        story.broker.stop()
    rows = [row for row in rows_of(capfd, data) if row["type"] == "directory"]
    assert {row["path"] for row in rows if row["status"] == "stray"} == set(map(str, data.glob("*/*-stray")))


def test_history_lists_the_changes_in_order(story: Story, capfd: pytest.CaptureFixture[str]) -> None:
    """Events are in order, with the topic ids that Admin returned before and after."""
    rows = rows_of(capfd, "--history", "--topic", "gone", story.moments[2][0])
    first, second = (
        next(row["topic_id"] for row in reported["rows"] if row["type"] == "topic" and row["topic"] == "gone")
        for _, reported in story.moments[:2]
    )
    events = [row for row in rows if row["type"] == "event"]
    kinds = [(row["event"], row["topic_id"]) for row in events]
    made = [each for each in kinds if each[0] in ("topic-created", "topic-deleted")]
    assert made == [("topic-created", first), ("topic-deleted", first), ("topic-created", second)]
    assert [row["details"]["partitions"] for row in events if row["event"] == "topic-created"] == [2, 1]
    assert [row["offset"] for row in events] == sorted(row["offset"] for row in events)
    values = [row["details"]["value"] for row in events if row["event"] == "config-set"]
    assert values == ["1000", "2000"]
