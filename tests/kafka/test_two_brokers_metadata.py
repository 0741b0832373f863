"""`kseg metadata` on a cluster of two brokers in unusual states: names that need quoting, reassignments in progress, a log dir that fails,
eligible leader replicas, a broker that is fenced and then unregistered. Every offset of the log is compared with the image of the real
classes, and each moment with what Admin said at that time, also from the last copy.

Takes about forty seconds: two brokers.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.cluster_admin import ClusterAdmin
from tests.kafka.conftest import require_kafka
from tests.kafka.joining import JoiningBroker
from tests.kafka.metadata_truth import assert_same, of_kind, real_images, rows_of
from tests.kafka.test_metadata_broker import REPORTED_FIELDS

pytestmark = pytest.mark.kafka

LOG = "__cluster_metadata-0"
# until a broker answers from its current metadata log; on a busy machine it answered twice with an older state
PUBLISHED_S = 1.0
ODD = 'Jörg "J" O\'Neill\t\\x <a&b> 😀, =;'
ADMIN_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
RESOURCES = [
    ["TOPIC", "fares"],
    ["TOPIC", "pair"],
    ["TOPIC", "Fares.and_more-1"],
    ["BROKER", "1"],
    ["BROKER", ""],
    ["GROUP", ODD],
    ["CLIENT_METRICS", "fleet-1"],
]
FIRST: list[list[Any]] = [
    ["create-on", "fares", {"0": [2], "1": [2], "2": [2], "3": [2]}, {}],
    ["create-on", "moving", {"0": [1], "1": [1]}, {}],
    ["create-on", "leaving", {"0": [1, 2], "1": [2, 1]}, {}],
    ["create-on", "pair", {"0": [1, 2], "1": [2, 1]}, {"min.insync.replicas": "2"}],
    ["create", "Fares.and_more-1", 1, {"follower.replication.throttled.replicas": "*"}],
    ["acl", "TOPIC", ODD, "LITERAL", f"User:{ODD}", "*", "READ", "ALLOW"],
    ["acl", "GROUP", ODD, "PREFIXED", "User:CN=a b,O=\"c\"", "::1", "READ", "DENY"],
    ["acl", "TRANSACTIONAL_ID", ODD, "LITERAL", "User:*", "*", "WRITE", "ALLOW"],
    ["acl", "USER", "User:x", "LITERAL", "User:y", "*", "CREATE_TOKENS", "ALLOW"],
    ["acl", "DELEGATION_TOKEN", "t", "LITERAL", "User:y", "*", "DESCRIBE", "ALLOW"],
    ["scram", ODD, "SCRAM-SHA-256", 4096],
    ["scram", ODD, "SCRAM-SHA-512", 8192],
    ["quota", {"user": ODD}, "request_percentage", 0.015],
    ["quota", {"user": ODD, "client-id": None}, "producer_byte_rate", 1e10],
    ["quota", {"user": ODD, "client-id": ODD}, "consumer_byte_rate", 12345678],
    ["quota", {"ip": None}, "connection_creation_rate", 7],
    ["config", "GROUP", ODD, {"consumer.session.timeout.ms": "50000", "share.auto.offset.reset": "earliest"}],
    ["config", "CLIENT_METRICS", "fleet-1", {"match": "client_id=[a-z]+.*,client_software_name=x"}],
    ["config", "BROKER", "", {"leader.replication.throttled.rate": "1000000"}],
    ["feature", "eligible.leader.replicas.version", 1, 1],
]  # fmt: skip


@dataclass
class Moment:
    copy: Path
    reported: dict[str, Any]


class TwoDisks(JoiningBroker):
    """Node 2 with a second log dir."""

    def _differing(self, usual: dict[str, str]) -> dict[str, str | None]:
        self.other = self.root / "other"
        return super()._differing(usual) | {"log.dirs": f"{self.data},{self.other}"}

    def _format(self) -> None:
        super()._format()
        self.other.mkdir(exist_ok=True)
        text = (self.data / "meta.properties").read_text()
        (self.other / "meta.properties").write_text(
            text.replace("Bz4QkN2vS1m0yXr9TtLw8A", "Cz4QkN2vS1m0yXr9TtLw8A")
        )


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Moment]]:
    require_kafka()
    root = tmp_path_factory.mktemp("two")
    more = {"authorizer.class.name": ADMIN_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    first = Broker(root / "one", None, **more)
    second = TwoDisks(first, root / "two")
    second.properties.update(more)
    found: dict[str, Moment] = {}
    with first:
        second.start()
        admin = ClusterAdmin(first.bootstrap)
        try:
            for name in _live(first, second, admin):
                found[name] = _moment(first, admin, root / name.replace(" ", "-"))
        finally:
            admin.close()
            if second.is_running():
                second.crash()
    found["stopped"] = Moment(shutil.copytree(first.data, root / "stopped"), {})
    yield found


def _live(first: Broker, second: TwoDisks, admin: ClusterAdmin) -> Iterator[str]:
    for request in FIRST:
        admin.do(*request)
    yield "made"
    _lose_a_disk(first, second)
    yield "a disk is lost"
    second.crash()
    first.wait_for(
        "fencing",
        lambda: any(
            row["type"] == "broker" and row["broker_id"] == 2 and row["fenced"]
            for row in admin.do("describe", [])["rows"]
        ),
    )
    admin.do("reassign", "moving", {"0": [2], "1": [1, 2]})
    admin.do("reassign", "leaving", {"0": [1]})
    admin.do("reassign", "fares", {"1": [1], "0": [2, 1]})
    admin.do("reassign", "pair", {"0": [2]})
    yield "reassigned"
    admin.do("reassign", "pair", {"0": []})
    admin.do("partitions", "Fares.and_more-1", 3)
    admin.do("remove-scram", ODD, "SCRAM-SHA-256")
    admin.do("quota", {"user": ODD, "client-id": None}, "producer_byte_rate", None)
    admin.do("unregister", 2)
    yield "unregistered"


def _lose_a_disk(first: Broker, second: TwoDisks) -> None:
    """Replace a log dir by a file, so that no segment can be created there. The broker notices when it rolls."""
    held = {path.parent.name: path.name for path in second.other.parent.glob("*/fares-[0-9]")}
    assert "other" in held, held
    gone = int(held["other"].removeprefix("fares-"))
    second.other.rename(second.other.with_name("gone"))
    second.other.write_text("not a directory")
    producer = first.producer(compression_type="none", message_timeout_ms=20_000)
    for number in range(30):
        producer.produce("fares", value=os.urandom(900), partition=gone)
        producer.poll(0)
        if number % 3 == 2:
            producer.flush(1)
    first.wait_for("the failure of the disk", lambda: "Stopping serving logs in dir" in second.log_text())


def _moment(first: Broker, admin: ClusterAdmin, copy: Path) -> Moment:
    reported: dict[str, Any] = {}

    def is_settled() -> bool:
        shutil.rmtree(copy, ignore_errors=True)
        before = admin.do("describe", RESOURCES)
        first.copy_data(copy)
        time.sleep(PUBLISHED_S)
        reported.update(admin.do("describe", RESOURCES))
        return {**reported, "log_dirs": 0} == {**before, "log_dirs": 0}

    first.wait_for("a settled copy", is_settled)
    return Moment(copy, reported)


NAMES = ["made", "a disk is lost", "reassigned", "unregistered"]


@pytest.mark.behaviour("M04", "M05")
@pytest.mark.parametrize("later", [False, True], ids=["then", "later"])
@pytest.mark.parametrize("name", NAMES)
def test_metadata_is_what_admin_describes_at_each_moment(
    name: str, later: bool, moments: dict[str, Moment], capfd: pytest.CaptureFixture[str]
) -> None:
    assert [*moments] == [*NAMES, "stopped"]
    moment = moments[name]
    rows = rows_of(capfd, moment.copy, status=None)
    if later:
        (end,) = [row for row in rows if row["type"] == "metadata"]
        last = moments["stopped"].copy
        for words in (("--offset", end["offset"]), ("--at", end["timestamp"])):
            rows = rows_of(capfd, *words, last, status=None)
            _agree(rows, moment.reported)
    else:
        _agree(rows, moment.reported)


def _agree(rows: list[dict[str, Any]], reported: dict[str, Any]) -> None:
    for kind, fields in REPORTED_FIELDS.items():
        if kind == "partition":
            fields = tuple(field for field in fields if field != "leader")
        assert of_kind(rows, kind, fields) == of_kind(reported["rows"], kind, fields), kind
    reassigned = [
        {name: row[name] for name in ("topic", "partition", "adding_replicas", "removing_replicas")}
        for row in rows
        if row["type"] == "partition" and (row["adding_replicas"] or row["removing_replicas"])
    ]
    assert _sorted(reassigned) == _sorted(reported["reassignments"])


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.behaviour("M01")
def test_metadata_at_every_offset_equals_the_image_of_the_real_classes(
    moments: dict[str, Moment], capfd: pytest.CaptureFixture[str]
) -> None:
    log = moments["stopped"].copy / LOG
    segments = sorted(map(str, log.glob("*.log")))
    (end,) = [row["offset"] for row in rows_of(capfd, log) if row["type"] == "metadata"]
    truth = real_images(None, 0, segments, [*range(end + 1)])
    statuses = set()
    for offset in range(end + 1):
        rows = rows_of(capfd, "--offset", offset, log)
        assert_same(rows, truth[offset])
        assert [row["offset"] for row in rows if row["type"] == "metadata"] == [offset]
        statuses |= {row["fenced"] for row in rows if row["type"] == "broker"}
    assert statuses == {True, False}
    kinds = {row["type"] for rows in truth.values() for row in rows}
    assert kinds >= set(REPORTED_FIELDS) and end > 80
