"""Nodes of a cluster that have lost their metadata logs, while another node has it. Every outcome was observed with 4.3.1."""

from __future__ import annotations

import shutil

import pytest

from kseg.segment.partition.names import METADATA_DIRECTORY
from tests.internal_topics.metadata_logs import write_snapshot
from tests.kafka.conftest import require_kafka
from tests.kafka.electing import BROKERS, CLICKS, ORDERS, Electing, ElectingCluster
from tests.kafka.two_replicas import CONTROLLER
from tests.support.compact_helpers import records

pytestmark = pytest.mark.kafka

# of the controller: ORDERS exists in it, CLICKS does not
SNAPSHOT = 28
# BeginTransactionRecord, EndTransactionRecord and AbortTransactionRecord, which a snapshot does not contain
OF_TRANSACTIONS = (23, 24, 25)


@pytest.mark.evidence("broker-start")
def test_nodes_without_metadata_logs_are_separate(electing: Electing) -> None:
    """None of them has registered as many log dirs as are examined."""
    cluster = electing("killed")
    for node_id in BROKERS:
        shutil.rmtree(cluster.data(node_id) / METADATA_DIRECTORY)
    starts = [row for row in cluster.asked("doctor") if row["type"] == "broker-start"]
    assert {row["node_id"]: row["outcome"] for row in starts} == dict.fromkeys(cluster.nodes, "starts")


@pytest.mark.evidence("controller-quorum")
@pytest.mark.parametrize("is_followed", [False, True])
def test_partition_that_is_newer_than_the_snapshot_of_the_controller_is_not_set_aside(
    electing: Electing, is_followed: bool
) -> None:
    """The broker is started first, and is ready to load its logs when the snapshot arrives: it sets CLICKS aside, and leads it with an
    empty log, since all nodes were killed; unless it has fetched the records after the snapshot before it looks, as on a busy machine.
    Nothing used to be said about it. Takes six seconds of processor time."""
    require_kafka()
    cluster = electing("killed")
    of_controller, gone = (cluster.data(node_id) / METADATA_DIRECTORY for node_id in (CONTROLLER, 1))
    shutil.rmtree(gone)
    assert not _behind(cluster)
    made = [each.value for each in records(of_controller) if each.offset < SNAPSHOT and each.key is None]
    write_snapshot(
        of_controller,
        SNAPSHOT,
        [each for each in made if each is not None and each[1] not in OF_TRANSACTIONS],
    )
    assert _behind(cluster) == [str(gone)]
    if is_followed:
        assert len(cluster.follow()) == 1
        assert not _behind(cluster)
    cluster.prepare()
    broker = cluster.nodes[1].apart()
    try:
        broker._spawn()
        if not is_followed:
            broker.wait_for("the wait", lambda: "acknowledge that we are caught up" in broker.log_text())
        cluster.begin(CONTROLLER)
        broker._await_start()
        cluster.await_leader(CLICKS, 1)
        strays = [path.name.partition(".")[0] for path in cluster.data(1).glob("*-stray")]
        assert strays in ([], [] if is_followed else [f"{CLICKS}-0"])
        # consumers get none of them from one replica, since min.insync.replicas is 2
        found = [len(records(cluster.data(1) / f"{topic}-0")) for topic in (ORDERS, CLICKS)]
        assert found == [100, 0 if strays else 100]
    finally:
        cluster.abandon()


def _behind(cluster: ElectingCluster) -> list[str]:
    return [row["path"] for row in cluster.asked("verify") if row.get("id") == "replica-behind"]
