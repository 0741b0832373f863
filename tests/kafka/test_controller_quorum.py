"""Controllers of a dynamic quorum that were restored from a backup or formatted anew. Given the data directories of the nodes, `verify` and
`doctor` report what happens to the quorum. After the steps of `doctor`, the cluster has every topic and record.

Three controllers and a broker are started five times, which takes half a minute.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.conftest import require_kafka
from tests.kafka.electing import typed
from tests.kafka.test_new_metadata_log import send_one
from tests.kafka.three_controllers import BROKER, CONTROLLERS, ThreeControllers
from tests.support.forked_programs import run_kseg

pytestmark = pytest.mark.kafka

# LATE is created after the backup
OLD, LATE = "old", "late"
RECORDS = {OLD: 20, LATE: 30}
ABOUT_THE_QUORUM = ("replica-behind", "quorum-lost", "voter-replaced", "metadata-log-outdated")
LOG = "__cluster_metadata-0"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeControllers]:
    """The stopped cluster, with `backup-ID` of each controller beside it, copied before LATE was created."""
    require_kafka()
    root = tmp_path_factory.mktemp("stopped")
    cluster = ThreeControllers(root / "cluster")
    cluster.format()
    broker = cluster.nodes[BROKER]
    try:
        cluster.begin()
        broker.create_topic(OLD)
        cluster.produce(OLD, RECORDS[OLD])
        cluster.stop(BROKER)
        for node_id in CONTROLLERS:
            cluster.nodes[node_id].copy_data(root / f"backup-{node_id}")
        cluster.begin(BROKER)
        broker.create_topic(LATE)
        cluster.produce(LATE, RECORDS[LATE])
        cluster.stop()
    finally:
        cluster.abandon()
    yield cluster


class Story:
    def __init__(self, stopped: ThreeControllers, root: Path) -> None:
        kept = stopped.nodes[BROKER].root.parent
        shutil.copytree(kept, root / "cluster")
        self.root = root
        self.backups = kept.parent
        self.cluster = ThreeControllers(root / "cluster", stopped.places)

    def restore(self, *node_ids: int) -> None:
        for node_id in node_ids:
            (data,) = self.cluster.data(node_id)
            shutil.rmtree(data)
            shutil.copytree(self.backups / f"backup-{node_id}", data)

    def format_alone(self, node_id: int) -> None:
        shutil.rmtree(self.cluster.nodes[node_id].data)
        self.cluster.nodes[node_id].format("--standalone")

    def asked(self, command: str, *node_ids: int) -> list[dict[str, Any]]:
        paths = map(str, self.cluster.data(*node_ids))
        done = run_kseg(command, "--json", *paths)
        assert done.returncode in (0, 1), done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def found(self, *node_ids: int) -> set[tuple[str, str]]:
        """The findings of `verify` about the quorum, as (node, finding)."""
        return {
            (Path(row["path"]).parent.parent.name, row["id"])
            for row in self.asked("verify", *node_ids)
            if row["type"] == "finding" and row["id"] in ABOUT_THE_QUORUM
        }

    def append_as_first_producer(self) -> None:
        """Write a record with the producer id that the controllers allocate first."""
        lines = self.root / "first.jsonl"
        lines.write_text('{"value": "of the first producer"}\n')
        about = ("--producer-id", "0", "--producer-epoch", "0", "--base-sequence", "0")
        (data,) = self.cluster.data(BROKER)
        done = run_kseg("append", "--apply", "--from", lines, *about, data / f"{OLD}-0")
        assert done.returncode == 0, done.stderr

    def with_reissued_ids(self) -> set[int]:
        """The controllers that allocate producer ids again."""
        found = [row["path"] for row in self.asked("verify") if row.get("id") == "producer-ids-reissued"]
        return {int(Path(path).parent.parent.name.removeprefix("node-")) for path in found}

    def last_leader(self) -> int:
        states = [
            json.loads((data / LOG / "quorum-state").read_text()) for data in self.cluster.data(*CONTROLLERS)
        ]
        return int(max(states, key=lambda state: state["leaderEpoch"])["leaderId"])

    def steps(self) -> list[str]:
        return [row["command"] for row in self.asked("doctor") if row["type"] == "step"]

    def follow(self) -> None:
        """Run the steps before a node starts, exactly as they are printed."""
        for step in self.steps():
            if not step.startswith(("kseg doctor ", "kafka-")):
                typed(step).check_returncode()


@pytest.mark.evidence("controller-quorum")
def test_doctor_mends_a_quorum_with_two_of_three_controllers_restored(
    stopped: ThreeControllers, tmp_path: Path
) -> None:
    story = Story(stopped, tmp_path)
    assert story.found() == set()
    # the last leader ends without the epoch in which the others remember it
    leader = story.last_leader()
    one, other = sorted({*CONTROLLERS} - {leader})
    story.restore(one)
    # the other two are a majority that has every record
    assert story.found() == set()
    story.restore(other)
    assert story.found() == {(f"node-{node_id}", "replica-behind") for node_id in (one, other)}
    # the other one, which is not given, may have them
    assert story.found(leader, one, BROKER) == set()
    cluster, broker = story.cluster, story.cluster.nodes[BROKER]
    try:
        cluster.begin(one, other, BROKER)
        broker.wait_for("its end", lambda: any(broker.data.glob(f"{LATE}-0.*-stray")))
        assert len(broker.consume(OLD)) == RECORDS[OLD]
    finally:
        cluster.abandon()


@pytest.mark.evidence("controller-quorum")
def test_last_leader_without_its_metadata_log_ends_although_the_others_are_a_majority(
    stopped: ThreeControllers, tmp_path: Path
) -> None:
    """Observed with combined nodes: with the log of another one, it started at once."""
    story = Story(stopped, tmp_path)
    leader = story.last_leader()
    shutil.rmtree(story.cluster.nodes[leader].data / LOG)
    assert story.found() == {(f"node-{leader}", "replica-behind")}
    cluster, node = story.cluster, story.cluster.nodes[leader]
    try:
        # the others remember it until they have elected a leader
        cluster.begin(leader, is_awaited=False)
        node.wait_for("the quorum", lambda: "Completed transition to Unattached" in node.log_text())
        cluster.begin(*({*CONTROLLERS} - {leader}), is_awaited=False)
        node.wait_for("its end", lambda: "is inconsistent with current leader" in node.log_text())
    finally:
        cluster.abandon()
    shutil.rmtree(node.data / LOG)
    story.follow()
    assert story.found() == set()


@pytest.mark.evidence("controller-quorum")
def test_doctor_mends_a_quorum_with_two_of_three_controllers_formatted_anew(
    stopped: ThreeControllers, tmp_path: Path
) -> None:
    story = Story(stopped, tmp_path)
    cluster, lost = story.cluster, {(f"node-{node_id}", "quorum-lost") for node_id in (102, 103)}
    for node_id in (102, 103):
        cluster.format_without_voters(node_id)
    assert story.found() >= lost
    # copying the metadata log alone does not help
    for node_id in (102, 103):
        shutil.copytree(cluster.nodes[101].data / LOG, cluster.nodes[node_id].data / LOG)
    assert story.found() == lost
    assert story.found(103) == {("node-103", "voter-replaced")}
    first, broker = cluster.nodes[101], cluster.nodes[BROKER]
    try:
        cluster.begin(is_awaited=False)
        first.wait_for("two refusals", lambda: _refusals(first.log_text()) == {"102", "103"})
        assert all(node.is_running() for node in cluster.nodes.values())
        assert "Kafka Server started" not in broker.log_text()
    finally:
        cluster.abandon()


@pytest.mark.evidence("wrong-identity")
def test_controllers_with_the_directory_id_of_another_and_with_another_cluster_id(
    stopped: ThreeControllers, tmp_path: Path
) -> None:
    """The other one refuses to be elected without them. The step used to be to remove the voter whose directory id has gone."""
    story = Story(stopped, tmp_path)
    cluster, first = story.cluster, story.cluster.nodes[101]
    first_file, second_file, third_file = (data / "meta.properties" for data in cluster.data(*CONTROLLERS))
    right = second_file.read_text(), third_file.read_text()
    (copied,) = re.findall(r"(?m)^directory\.id=.*$", first_file.read_text())
    second_file.write_text(re.sub(r"(?m)^directory\.id=.*$", copied, right[0]))
    third_file.write_text(re.sub(r"(?m)^cluster\.id=.*$", "cluster.id=Kwqb6kzUTkW5aaNbfTAN_w", right[1]))
    try:
        cluster.begin(*CONTROLLERS, is_awaited=False)
        first.wait_for("its refusals", lambda: _refusals(first.log_text()) == {"102"})
        first.wait_for("the other cluster", lambda: "INCONSISTENT_CLUSTER_ID" in first.log_text())
        assert "Completed transition to Leader" not in first.log_text()
    finally:
        cluster.abandon()
    story.follow()
    assert (second_file.read_text(), third_file.read_text()) == right
    assert story.found() == set()
    try:
        cluster.begin()
    finally:
        cluster.abandon()


def _refusals(log: str) -> set[str]:
    """The nodes that refused a vote because it was requested under another directory id."""
    return {*re.findall(r"didn't match the receiver's replica key: \S+ \(id: (\d+) ", log)}


@pytest.mark.evidence("controller-quorum", "reissued-producer-ids")
def test_doctor_mends_a_cluster_that_lost_all_controllers(stopped: ThreeControllers, tmp_path: Path) -> None:
    """Only the broker still has a metadata log, which is older than a producer. After the steps the cluster has every record, and does not
    drop the first one of the next producer; without the last steps it did."""
    story = Story(stopped, tmp_path)
    story.append_as_first_producer()
    story.format_alone(101)
    story.cluster.format_without_voters(102)
    story.restore(103)
    assert story.found() == {
        *((f"node-{node_id}", "quorum-lost") for node_id in (101, 102)),
        *((f"node-{node_id}", "replica-behind") for node_id in CONTROLLERS),
    }
    story.follow()
    assert story.found() == set()
    assert story.with_reissued_ids() == {*CONTROLLERS}
    # one controller gets the record; a second doctor has the step for the others
    first, *others = [step for step in story.steps() if not step.startswith("kseg doctor ")]
    typed(first).check_returncode()
    assert len(story.with_reissued_ids()) == len(others) == 2
    story.follow()
    assert story.found() == set() and story.with_reissued_ids() == set()
    try:
        story.cluster.begin()
        broker = story.cluster.nodes[BROKER]
        assert {topic: len(broker.consume(topic)) for topic in RECORDS} == {**RECORDS, OLD: RECORDS[OLD] + 1}
        send_one(broker, OLD)
        broker.wait_for("the record", lambda: len(broker.consume(OLD)) == RECORDS[OLD] + 2)
    finally:
        story.cluster.abandon()


@pytest.mark.parametrize("starts", [0, 4])
def test_doctor_mends_a_controller_formatted_as_a_quorum_of_its_own(
    stopped: ThreeControllers, tmp_path: Path, starts: int
) -> None:
    """The steps move the controller's metadata log out of the way, and exchange the voter once the controllers run."""
    story = Story(stopped, tmp_path)
    story.format_alone(102)
    # it elects itself at each start, and so may reach later leader epochs than the cluster has
    for _ in range(starts):
        story.cluster.begin(102)
        story.cluster.stop(102)
    assert story.found() == {("node-102", "voter-replaced")}
    steps = story.steps()
    story.follow()
    assert story.found() == {("node-102", "voter-replaced")}
    (remove,) = [step.split()[3:] for step in steps if "remove-controller" in step]
    (add,) = [step.split()[3:] for step in steps if step.endswith("add-controller")]
    cluster = story.cluster
    try:
        cluster.begin(101, 103)
        cluster.quorum(*remove)
        cluster.begin(102)
        properties = str(cluster.nodes[102].root / "server.properties")
        cluster.quorum(*(properties if word == "server.properties" else word for word in add))
        cluster.stop(*CONTROLLERS)
    finally:
        cluster.abandon()
    assert story.found() == set()
