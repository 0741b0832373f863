"""A dynamic quorum (KIP-853) of which some data directory is from before a voter was added. Given the data directories of all nodes,
`verify` reports the controllers that may be elected although they lack records, and no other. The real nodes are started on each state.

Two controllers and a broker are started five times, which takes twenty seconds of processor time.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import BrokerFailed
from tests.kafka.conftest import require_kafka
from tests.kafka.three_controllers import BROKER, QuorumNode, ThreeControllers
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

FIRST, ADDED = 101, 102
# LATE is created once there are two voters
OLD, LATE = "old", "late"
RECORDS = {OLD: 10, LATE: 20}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeControllers]:
    """The stopped cluster, with `before` beside it: its state when FIRST was the only voter and ADDED was formatted."""
    require_kafka()
    root = tmp_path_factory.mktemp("added")
    cluster = ThreeControllers(root / "cluster")
    broker = cluster.nodes[BROKER]
    cluster.nodes[FIRST].format("--standalone")
    for node_id in (ADDED, BROKER):
        cluster.nodes[node_id].format("--no-initial-controllers")
    try:
        cluster.begin(FIRST, BROKER)
        broker.create_topic(OLD)
        cluster.produce(OLD, RECORDS[OLD])
        cluster.stop(BROKER, FIRST)
        shutil.copytree(root / "cluster", root / "before")
        cluster.begin(FIRST, BROKER)
        cluster.begin(ADDED)
        properties = str(cluster.nodes[ADDED].root / "server.properties")
        cluster.quorum("--command-config", properties, "add-controller")
        broker.create_topic(LATE)
        cluster.produce(LATE, RECORDS[LATE])
        # the last leader stops last: otherwise ADDED may be elected
        cluster.stop(BROKER, ADDED, FIRST)
    finally:
        cluster.abandon()
    yield cluster


@pytest.fixture
def cluster(stopped: ThreeControllers, tmp_path: Path) -> Iterator[ThreeControllers]:
    kept = stopped.nodes[BROKER].root.parent
    shutil.copytree(kept, tmp_path / "cluster")
    shutil.copytree(kept.with_name("before"), tmp_path / "before")
    copy = ThreeControllers(tmp_path / "cluster", stopped.places)
    try:
        yield copy
    finally:
        copy.abandon()


def restore(cluster: ThreeControllers, node_id: int) -> None:
    data = cluster.nodes[node_id].data
    shutil.rmtree(data)
    shutil.copytree(data.parents[2] / "before" / data.parent.name / data.name, data)


def asked(cluster: ThreeControllers, capfd: pytest.CaptureFixture[str], command: str) -> list[dict[str, Any]]:
    return rows_of(capfd, command, *cluster.data(FIRST, ADDED, BROKER))


def behind(cluster: ThreeControllers, capfd: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The messages of the findings about the metadata logs, by node."""
    rows = asked(cluster, capfd, "verify")
    found = [row for row in rows if row["type"] == "finding" and row["severity"] == "error"]
    assert {row["id"] for row in found} <= {"replica-behind"}
    return {Path(row["path"]).parts[-3]: row["message"] for row in found}


def consumed(cluster: ThreeControllers) -> dict[str, int]:
    broker = cluster.nodes[BROKER]
    return {topic: len(broker.consume(topic)) for topic in RECORDS}


def assert_steps_keep_everything(cluster: ThreeControllers, capfd: pytest.CaptureFixture[str]) -> None:
    """Follow the steps of doctor, and start all nodes."""
    for command in [row["command"] for row in asked(cluster, capfd, "doctor") if row["type"] == "step"]:
        if not command.startswith("kseg "):
            subprocess.run(command, shell=True, check=True)
    assert behind(cluster, capfd) == {}
    cluster.begin(FIRST, ADDED, BROKER)
    assert consumed(cluster) == RECORDS


@pytest.mark.evidence("controller-quorum")
def test_voter_restored_from_before_others_were_added_elects_itself(
    cluster: ThreeControllers, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without the step, a broker that asks it first follows it, and sets aside what was created since."""
    assert behind(cluster, capfd) == {}
    restore(cluster, FIRST)
    ((node, message),) = behind(cluster, capfd).items()
    assert node == f"node-{FIRST}"
    assert (
        f"According to it the only voter is node {FIRST}: node {FIRST} can be elected without voters"
        in message
    )
    shutil.copytree(tmp_path / "cluster", tmp_path / "kept")
    broker = cluster.nodes[BROKER]
    cluster.begin(FIRST, BROKER)
    broker.wait_for("the stray", lambda: any(broker.data.glob(f"{LATE}-0.*-stray")))
    cluster.abandon()
    shutil.rmtree(tmp_path / "cluster")
    (tmp_path / "kept").rename(tmp_path / "cluster")
    assert_steps_keep_everything(cluster, capfd)


@pytest.mark.evidence("controller-quorum")
def test_added_voter_without_its_metadata_log_votes_for_the_other_one(
    cluster: ThreeControllers, capfd: pytest.CaptureFixture[str]
) -> None:
    """It names no voters, so it is no candidate."""
    restore(cluster, ADDED)
    assert behind(cluster, capfd) == {}
    first, added = cluster.nodes[FIRST], cluster.nodes[ADDED]

    def is_elected() -> bool:
        if not added.is_running():  # it exits if it learns of the former leader (`quorum_steps`)
            cluster.begin(ADDED, is_awaited=False)
        return "Completed transition to Leader" in first.log_text()

    cluster.begin(FIRST, ADDED, is_awaited=False)
    first.wait_for("its election", is_elected)
    added.wait_for("its start", lambda: is_elected() and "Kafka Server started" in added.log_text())
    cluster.begin(BROKER)
    assert consumed(cluster) == RECORDS


@pytest.mark.evidence("controller-quorum")
def test_last_leader_without_its_metadata_log_ends_and_needs_the_other_one(
    cluster: ThreeControllers, capfd: pytest.CaptureFixture[str]
) -> None:
    restore(cluster, ADDED)
    first, added = cluster.nodes[FIRST], cluster.nodes[ADDED]
    # as after an election of ADDED
    state = first.data / "__cluster_metadata-0" / "quorum-state"
    known = json.loads(state.read_text())
    known |= {"leaderId": ADDED, "leaderEpoch": known["leaderEpoch"] + 1}
    state.write_text(json.dumps(known))
    ((node, message),) = behind(cluster, capfd).items()
    assert node == f"node-{ADDED}"
    assert f"Other voters remember node {ADDED} as the leader of an epoch that it has lost" in message
    fault = f"Received request or response with leader OptionalInt[{ADDED}] and epoch {known['leaderEpoch']}"
    cluster.begin(FIRST, ADDED, is_awaited=False)
    added.wait_for("its end", lambda: fault in added.log_text())
    cluster.abandon()
    assert_steps_keep_everything(cluster, capfd)


def advised(node: QuorumNode, capfd: pytest.CaptureFixture[str]) -> str:
    """The step of doctor about the addresses of the controllers."""
    file = node.root / "server.properties"
    rows = rows_of(capfd, "doctor", "--server-properties", file, node.data, status=0)
    (step,) = [row for row in rows if row["type"] == "step"]
    assert step["why"].startswith("The metadata log has the controllers at 127.0.0.1:")
    return str(step["command"])


def test_controllers_and_brokers_ask_the_recorded_addresses(
    stopped: ThreeControllers, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All nodes are started with other ports. Two controllers elect no leader. One does, and a broker reaches it after the step."""
    kept = stopped.nodes[BROKER].root.parent
    shutil.copytree(kept, tmp_path / "cluster")
    shutil.copytree(kept.with_name("before"), tmp_path / "before")
    two, one = ThreeControllers(tmp_path / "cluster"), ThreeControllers(tmp_path / "before")
    broker = one.nodes[BROKER]
    properties = broker.root / "server.properties"
    broker.properties["initial.broker.registration.timeout.ms"] = "2000"
    one.nodes[FIRST]._configure()
    broker._configure()
    named = properties.read_text()
    voters = f"controller.quorum.voters={FIRST}@{one.places[FIRST]}"
    properties.write_text(re.sub(r"(?m)^controller\.quorum\.bootstrap\.servers=.*", voters, named))
    try:
        for node_id in (FIRST, ADDED):
            two.nodes[node_id]._configure()
            assert advised(two.nodes[node_id], capfd) == "getent hosts 127.0.0.1"
        two.begin(FIRST, ADDED)
        one.nodes[FIRST]._spawn()
        broker._spawn()
        with pytest.raises(BrokerFailed):
            broker._await_start()
        for node_id in (FIRST, ADDED):
            assert "Completed transition to Leader" not in two.nodes[node_id].log_text()
        subprocess.run(advised(broker, capfd), shell=True, check=True)
        properties.write_text(properties.read_text().replace("timeout.ms=2000", "timeout.ms=60000"))
        broker._spawn()
        broker._await_start()
        assert f"controller.quorum.bootstrap.servers={one.places[FIRST]}\n" in properties.read_text()
        assert len(broker.consume(OLD)) == RECORDS[OLD]
    finally:
        two.abandon()
        one.abandon()
