"""Nodes of a cluster whose meta.properties has the cluster id of another cluster or the directory id of another node. The controller
refuses their registrations, and they end. After the steps of `doctor` they serve."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.electing import BROKERS, CLICKS, ORDERS, Electing, ElectingCluster
from tests.kafka.two_replicas import CONTROLLER

pytestmark = pytest.mark.kafka

ANOTHER = "Mz9XvQe1R0mU7bTq2LkP5w"
FAULTS = ("cluster-id-wrong", "directory-id-wrong")
ENDS = "Received a fatal error while waiting for the controller to acknowledge that we are caught up"


def _file(cluster: ElectingCluster, node_id: int) -> Path:
    return cluster.data(node_id) / "meta.properties"


def _read(cluster: ElectingCluster, node_id: int, key: str) -> str:
    (value,) = re.findall(rf"(?m)^{re.escape(key)}=(.*)$", _file(cluster, node_id).read_text())
    return str(value)


def _write(cluster: ElectingCluster, node_id: int, key: str, value: str) -> None:
    file = _file(cluster, node_id)
    file.write_text(re.sub(rf"(?m)^{re.escape(key)}=.*$", f"{key}={value}", file.read_text()))


def _found(cluster: ElectingCluster) -> set[tuple[str, str]]:
    rows = cluster.asked("doctor")
    return {(Path(row["path"]).parts[-3], row["id"]) for row in rows if row.get("id") in FAULTS}


def _has_ended(node: Broker) -> bool:
    return ENDS in node.log_text()


def _refused(cluster: ElectingCluster) -> set[int]:
    """The nodes that end according to the forecast."""
    rows = [row for row in cluster.asked("verify") if row["type"] == "broker-start"]
    ending = [row for row in rows if row["outcome"] == "does-not-start"]
    assert all(row["exception"] == "RuntimeException" and ENDS in row["message"] for row in ending)
    return {row["node_id"] for row in ending}


@pytest.mark.evidence("wrong-identity")
def test_nodes_with_a_wrong_cluster_or_directory_id_are_not_registered(electing: Electing) -> None:
    require_kafka()
    cluster = electing("stopped")
    before = {node_id: _file(cluster, node_id).read_bytes() for node_id in cluster.nodes}
    _write(cluster, 1, "cluster.id", ANOTHER)
    _write(cluster, 2, "directory.id", _read(cluster, 3, "directory.id"))
    assert _found(cluster) == {("node-1", "cluster-id-wrong"), ("node-2", "directory-id-wrong")}
    assert _refused(cluster) == {1, 2}
    # rewrites the cluster ids
    cluster.prepare()
    _write(cluster, 1, "cluster.id", ANOTHER)
    try:
        for node_id in (1, 2):
            cluster.nodes[node_id].properties["initial.broker.registration.timeout.ms"] = "4000"
            cluster.nodes[node_id]._configure()
        cluster.begin(CONTROLLER)
        for node_id, words in (
            (1, "INCONSISTENT_CLUSTER_ID"),
            (2, "Broker 3 is already registered with directory"),
        ):
            node = cluster.nodes[node_id]
            node._spawn()
            node.wait_for("the end", partial(_has_ended, node))
            assert words in node.log_text() + cluster.nodes[CONTROLLER].log_text()
        cluster.abandon()
        cluster.follow()
        assert {node_id: _file(cluster, node_id).read_bytes() for node_id in cluster.nodes} == before
        assert _found(cluster) == set() and _refused(cluster) == set()
        for node_id in (1, 2):
            del cluster.nodes[node_id].properties["initial.broker.registration.timeout.ms"]
        cluster.prepare()
        for node_id in (CONTROLLER, 3, 1, 2):
            cluster.begin(node_id)
        cluster.await_in_sync(ORDERS, CLICKS)
    finally:
        cluster.abandon()


@pytest.mark.evidence("wrong-identity")
def test_cluster_id_of_the_controller_alone_is_corrected_and_not_those_of_the_brokers(
    electing: Electing,
) -> None:
    """The controller starts; no broker is registered (observed with 4.3.1)."""
    cluster = electing("stopped")
    right = _read(cluster, CONTROLLER, "cluster.id")
    _write(cluster, CONTROLLER, "cluster.id", ANOTHER)
    assert _found(cluster) == {(f"node-{CONTROLLER}", "cluster-id-wrong")}
    assert _refused(cluster) == {*BROKERS}
    cluster.follow()
    assert _read(cluster, CONTROLLER, "cluster.id") == right
    assert _found(cluster) == set() and _refused(cluster) == set()


def test_whole_cluster_with_another_cluster_id_is_right(electing: Electing) -> None:
    """As after it was copied."""
    cluster = electing("stopped")
    for node_id in cluster.nodes:
        _write(cluster, node_id, "cluster.id", ANOTHER)
    assert _found(cluster) == set() and _refused(cluster) == set()


@pytest.mark.evidence("wrong-identity")
def test_cluster_id_that_a_file_lacks_is_that_of_the_other_nodes(electing: Electing) -> None:
    """Nothing used to be said about what is missing when all nodes are examined together."""
    cluster = electing("stopped")
    before = _file(cluster, 1).read_bytes()
    _file(cluster, 1).write_text(re.sub(r"(?m)^cluster\.id=.*\n", "", before.decode()))
    assert len(cluster.follow()) == 1
    assert _file(cluster, 1).read_bytes() == before


def test_file_of_another_node_is_not_only_called_a_copy_of_its_directory(electing: Electing) -> None:
    """All nodes have replicas of the same partitions, so nothing tells which of the two directories is that of node 1."""
    cluster = electing("stopped")
    own = _read(cluster, 1, "directory.id")
    _file(cluster, 1).write_bytes(_file(cluster, 2).read_bytes())
    (why,) = [row["why"] for row in cluster.asked("doctor") if "is a copy of" in row.get("why", "")]
    assert (
        f"is the directory of node 1, and only its meta.properties was copied, write node.id=1 and directory.id={own} "
        in why
    )
