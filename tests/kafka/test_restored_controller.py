"""A controller that is restored from a copy made while the brokers ran, so that it lacks only changes of a topic that it has. Given the
data directories of all nodes, `verify` reports it, because brokers have applied the changes.

A controller and two brokers are started three times, which takes fifteen seconds of processor time.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.kafka.broker import CLIENT_LIMIT_S
from tests.kafka.conftest import require_kafka
from tests.kafka.two_replicas import BROKERS, CONTROLLER, TwoReplicas
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

TOPIC, ADDED = "orders", "orders-1"
RECORDS = 30


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TwoReplicas]:
    """Stopped, with the controller restored from before a partition was added."""
    require_kafka()
    cluster = TwoReplicas(tmp_path / "cluster")
    controller = cluster.data(CONTROLLER)
    try:
        cluster.start()
        cluster.create_topic(TOPIC)
        cluster.produce(TOPIC, 1)
        shutil.copytree(controller, tmp_path / "copy")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for future in admin.create_partitions([NewPartitions(TOPIC, 2)]).values():
            future.result(CLIENT_LIMIT_S)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"value %d" % number, partition=1)
        assert producer.flush(CLIENT_LIMIT_S) == 0
        cluster.stop(*BROKERS)
        shutil.rmtree(controller)
        (tmp_path / "copy").rename(controller)
        yield cluster
    finally:
        cluster.abandon()


def asked(cluster: TwoReplicas, capfd: pytest.CaptureFixture[str], command: str) -> list[dict[str, Any]]:
    return rows_of(capfd, command, *map(cluster.data, cluster.nodes))


@pytest.mark.evidence("controller-quorum")
@pytest.mark.parametrize("is_followed", [False, True])
def test_controller_that_lacks_an_added_partition(
    cluster: TwoReplicas, capfd: pytest.CaptureFixture[str], is_followed: bool
) -> None:
    (row,) = [row for row in asked(cluster, capfd, "verify") if row.get("severity") == "error"]
    assert (row["id"], row["path"]) == (
        "replica-behind",
        str(cluster.data(CONTROLLER) / "__cluster_metadata-0"),
    )
    assert f"because brokers have applied changes of {TOPIC}" in row["message"]
    if is_followed:
        for step in [row["command"] for row in asked(cluster, capfd, "doctor") if row["type"] == "step"]:
            if not step.startswith("kseg "):
                subprocess.run(step, shell=True, check=True)
    cluster.prepare()
    cluster.begin(*cluster.nodes)
    strays = [*cluster.data(BROKERS[0]).glob(f"{ADDED}.*-stray")]
    assert bool(strays) is not is_followed
    if is_followed:
        broker = cluster.nodes[BROKERS[0]]
        # the high watermark of a new leader begins at that of its checkpoint
        broker.wait_for("the records", lambda: len(broker.consume(TOPIC, 1)) == RECORDS)
