"""A replica that lost records while its broker was down, although the metadata log has it in sync: it is elected, and the others are
truncated to its end. `verify` and `doctor` report that if they are given the data directories of both nodes, and after the steps of
`doctor` the cluster has every record. Takes about a minute: two brokers, each story with and without the steps.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.segment.partition.names import METADATA_DIRECTORY
from tests.kafka.conftest import require_kafka
from tests.kafka.two_replicas import CONTROLLER, TwoReplicas
from tests.support.forked_programs import run_kseg

pytestmark = pytest.mark.kafka

# LATE is created after the backup
OLD, LATE = "old", "late"
# both of its replicas may lead
PAIR = "pair"
BEFORE, AFTER = 60, 40


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The stopped cluster, in which node 2 was the last one in sync, and `backup` from an earlier stop of node 2."""
    require_kafka()
    root = tmp_path_factory.mktemp("stopped")
    cluster = TwoReplicas(root / "cluster")
    cluster.start()
    try:
        cluster.create_topic(OLD)
        cluster.create_topic(PAIR, **{"min.insync.replicas": "2"})
        cluster.produce(OLD, BEFORE)
        cluster.produce(PAIR, BEFORE)
        cluster.stop(1, 2)
        shutil.copytree(cluster.data(2), root / "backup")
        cluster.start()
        cluster.create_topic(LATE)
        cluster.await_in_sync(OLD, LATE)
        cluster.produce(OLD, AFTER)
        cluster.produce(LATE, AFTER)
        cluster.stop(1, 2)
    finally:
        cluster.abandon()
    yield root


class Story:
    def __init__(self, stopped: Path, root: Path) -> None:
        shutil.copytree(stopped / "cluster", root / "cluster")
        self.root = root
        self.cluster = TwoReplicas(root / "cluster")
        self.backup = stopped / "backup"

    def restore_backup(self) -> None:
        shutil.rmtree(self.cluster.data(2))
        shutil.copytree(self.backup, self.cluster.data(2))

    def asked(self, command: str, *nodes: int) -> list[dict[str, Any]]:
        paths = [str(self.cluster.data(node)) for node in nodes]
        done = run_kseg(command, "--json", *paths)
        assert done.returncode in (0, 1), done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def found(self, *nodes: int) -> dict[str, tuple[str, int, int]]:
        """The replicas behind: finding, its end, and the end of the other replica."""
        return {
            str(Path(row["path"]).relative_to(self.cluster.nodes[1].root.parent)): (
                row["id"],
                row["end_offset"],
                row["other_end_offset"],
            )
            for row in self.asked("verify", *nodes)
            if row["type"] == "finding" and row["id"] in ("replica-behind", "metadata-log-outdated")
        }

    def diverged(self, *nodes: int) -> dict[str, tuple[int, int, int]]:
        """The replicas that their leader truncates: the leader, to which offset, and their end."""
        return {
            str(Path(row["path"]).relative_to(self.cluster.nodes[1].root.parent)): (
                row["node"],
                row["truncation_offset"],
                row["end_offset"],
            )
            for row in self.asked("verify", *nodes)
            if row["type"] == "finding" and row["id"] == "replica-diverged"
        }

    def steps(self, *nodes: int) -> list[str]:
        return [row["command"] for row in self.asked("doctor", *nodes) if row["type"] == "step"]

    def follow(self, *nodes: int) -> None:
        """Run the steps exactly as they are printed."""
        for step in self.steps(*nodes):
            if not step.startswith("kseg "):
                subprocess.run(step, shell=True, check=True, cwd=self.root)

    def left(self) -> dict[str, int]:
        """The records of each topic once the cluster has started."""
        self.cluster.start()
        try:
            return {topic: self.cluster.consume(topic) for topic in (OLD, LATE)}
        finally:
            self.cluster.abandon()


@pytest.mark.evidence("replica-behind")
@pytest.mark.parametrize("with_steps", [False, True], ids=["as-it-is", "after-the-steps"])
def test_steps_for_a_replica_restored_from_a_backup_lose_nothing(
    stopped: Path, tmp_path: Path, with_steps: bool
) -> None:
    story = Story(stopped, tmp_path)
    assert story.found(1, 2) == {}
    story.restore_backup()
    # nothing on this node alone reveals it
    assert story.found(2) == {}
    found = story.found(1, 2)
    assert found.pop("node-2/data/__cluster_metadata-0")[0] == "metadata-log-outdated"
    assert found == {
        "node-2/data/old-0": ("replica-behind", BEFORE, BEFORE + AFTER),
        "node-2/data/late-0": ("replica-behind", 0, AFTER),
    }
    if not with_steps:
        # on both replicas
        assert story.left() == {OLD: BEFORE, LATE: 0}
        return
    story.follow(1, 2)
    assert story.found(1, 2) == {}
    assert not [row["path"] for row in story.asked("verify", 1, 2) if row.get("severity") == "error"]
    assert [step.split()[:2] for step in story.steps(1, 2)] == [["kseg", "doctor"]] * 2
    assert story.left() == {OLD: BEFORE + AFTER, LATE: AFTER}


@pytest.mark.evidence("replica-behind")
def test_log_with_only_an_empty_newest_segment_is_behind_its_replicas(stopped: Path, tmp_path: Path) -> None:
    """XFS after a power loss, observed with 4.3.1: of the last segments there are the names, and nothing of the contents. Such a log must
    not be copied over one that ends earlier and has the records, but the other way round."""
    story = Story(stopped, tmp_path)
    lost, kept = (story.cluster.data(node) / f"{PAIR}-0" for node in (2, 1))
    os.truncate(lost / f"{0:020d}.log", 0)
    for suffix in ("log", "index", "timeindex"):
        (lost / f"{BEFORE + 20:020d}.{suffix}").touch()
    shutil.copy2(kept / "leader-epoch-checkpoint", lost)  # no leader was elected meanwhile
    behind = {f"node-2/data/{PAIR}-0": ("replica-behind", 0, BEFORE)}
    assert story.found(1, 2) == behind
    # node 1 has lost the end of its metadata log as well
    metadata_log = story.cluster.data(1) / METADATA_DIRECTORY
    shutil.rmtree(metadata_log)
    shutil.copytree(story.backup / METADATA_DIRECTORY, metadata_log)
    found = story.found(1, 2)
    assert found.pop(f"node-1/data/{METADATA_DIRECTORY}")[0] == "metadata-log-outdated"
    assert found == behind


@pytest.mark.evidence("replica-missing")
@pytest.mark.parametrize("with_steps", [False, True], ids=["as-it-is", "after-the-step"])
def test_steps_for_a_missing_last_in_sync_replica_name_another_node(
    stopped: Path, tmp_path: Path, with_steps: bool
) -> None:
    """The step names the node that has another replica, and says that it is emptied otherwise."""
    story = Story(stopped, tmp_path)
    gone = story.cluster.data(2) / f"{OLD}-0"
    shutil.rmtree(gone)
    rows = story.asked("doctor", 2)
    (finding,) = [row for row in rows if row.get("id") == "replica-missing"]
    assert (
        "the replicas on node 1 are not in sync, and lose what an empty leader does not have"
        in finding["message"]
    )
    (why,) = [row["why"] for row in rows if row["type"] == "step" and row["command"].startswith("find ")]
    assert "stop node 1 as well and copy the directory from there" in why
    if with_steps:
        shutil.copytree(story.cluster.data(1) / gone.name, gone)
    assert story.left() == {OLD: (BEFORE + AFTER) * with_steps, LATE: AFTER}


def forecast_strays(cluster: TwoReplicas, *nodes: int) -> list[str]:
    """The partitions of the last of these nodes that become stray at its next start, according to `verify` of all of these nodes."""
    paths = [str(cluster.data(node)) for node in nodes]
    done = run_kseg("verify", "--json", *paths)
    rows = map(json.loads, done.stdout.splitlines())
    (found,) = [row for row in rows if row["type"] == "broker-start" and row["node_id"] == nodes[-1]]
    return [*found["partitions_stray"]]


def assert_truncated(log: str, topic: str, offset: int) -> None:
    """Check that the log was truncated. The fetcher warns only if it has not adopted the leader's high watermark before, but the log always
    reports it."""
    assert re.search(rf"\[UnifiedLog partition={topic}-0, [^\]]*\] Truncating to offset {offset} ", log)


@pytest.mark.evidence("replica-missing")
def test_first_started_replica_leads_and_others_lose_records(stopped: Path, tmp_path: Path) -> None:
    """Node 1 has every record and is in sync as well, but loses all of them."""
    story = Story(stopped, tmp_path)
    cluster = story.cluster
    shutil.rmtree(cluster.data(2) / f"{PAIR}-0")
    (finding,) = [row for row in story.asked("verify", 2) if row.get("id") == "replica-missing"]
    assert (
        "no node leads it, node 1 may lead as well, and the one that starts first does" in finding["message"]
    )
    cluster.prepare()
    try:
        cluster.begin(CONTROLLER, 2)
        cluster.await_leader(PAIR, 2)
        cluster.begin(1)
        cluster.await_in_sync(PAIR)
        assert cluster.consume(PAIR) == 0
        assert_truncated(cluster.nodes[1].log_text(), PAIR, 0)
    finally:
        cluster.abandon()


def test_steps_for_several_nodes_examine_each_by_itself(stopped: Path, tmp_path: Path) -> None:
    """The steps for a path that contains all nodes do not repeat the given command."""
    story = Story(stopped, tmp_path)
    rows = story.asked("doctor", CONTROLLER, 1, 2)
    steps = [row["command"] for row in rows if row["type"] == "step"]
    assert steps == [f"kseg doctor {story.cluster.data(node)}" for node in (CONTROLLER, 1, 2)]
    story.restore_backup()
    lines = run_kseg("doctor", "--json", tmp_path / "cluster").stdout.splitlines()
    commands = [row["command"] for row in map(json.loads, lines) if row["type"] == "step"]
    # what is moved out of node 2's data directory is still below the given path
    data = " ".join(str(story.cluster.data(node)) for node in (1, 2, CONTROLLER))
    assert commands[-1] == f"kseg doctor {data}" and len(commands) == 4


@pytest.mark.evidence("newer-metadata-log")
def test_broker_waits_for_the_voters_the_forecast_names(stopped: Path, tmp_path: Path) -> None:
    """It fetches the end of the metadata log that it has lost in a power failure before it loads its logs, and sets none of them aside."""
    story = Story(stopped, tmp_path)
    data = story.cluster.data(1)
    (data / ".kafka_cleanshutdown").unlink()
    shutil.rmtree(data / METADATA_DIRECTORY)
    shutil.copytree(story.backup / METADATA_DIRECTORY, data / METADATA_DIRECTORY)  # before LATE was created
    for nodes in ((1,), (CONTROLLER, 1)):
        assert forecast_strays(story.cluster, *nodes) == []
    for nodes, awaited in (((1,), [CONTROLLER]), ((CONTROLLER,), [])):
        (row,) = [row for row in story.asked("verify", *nodes) if row["type"] == "broker-start"]
        assert (row["outcome"], row["voters_awaited"]) == ("starts", awaited)
    story.cluster.prepare()
    broker, controller = story.cluster.nodes[1], story.cluster.nodes[CONTROLLER]
    broker._spawn()
    try:
        broker.wait_for("its wait", lambda: "don't know the high water mark yet" in broker.log_text())
        assert "Kafka Server started" not in broker.log_text()
        controller._spawn()
        controller._await_start()
        broker._await_start()
        assert (data / f"{LATE}-0").is_dir() and not [*data.glob("*-stray")]
    finally:
        story.cluster.abandon()


@pytest.mark.evidence("newer-metadata-log", "replica-diverged")
def test_longer_log_of_a_former_leader_after_an_unclean_election_is_no_loss(tmp_path: Path) -> None:
    """The former leader has a longer log with committed records, but it is truncated, because the other replica leads and its own
    log is complete; the step of `doctor` saves these records. A topic deleted while the former leader was down becomes stray there, which
    its own metadata log does not tell."""
    require_kafka()
    cluster = TwoReplicas(tmp_path / "cluster")
    cluster.start()
    try:
        cluster.create_topic(OLD, **{"unclean.leader.election.enable": "true"})
        cluster.create_topic(LATE)
        cluster.await_in_sync(OLD, LATE)
        cluster.produce(OLD, BEFORE)
        cluster.nodes[2].stop()
        cluster.produce(OLD, AFTER)
        cluster.delete_topic(LATE)
        cluster.nodes[1].stop()
        assert forecast_strays(cluster, 2) == []
        told = run_kseg("verify", cluster.data(2)).stdout
        assert "and loads all of" in told and "sets aside what was deleted or moved away" in told
        assert forecast_strays(cluster, CONTROLLER, 2) == [f"{LATE}-0"]
        cluster.nodes[2].start()
        assert [*cluster.data(2).glob(f"{LATE}-0.*-stray")]
        cluster.produce(OLD, AFTER // 2)
        cluster.stop(2)
        story = Story(tmp_path, tmp_path / "copy")
        assert story.found(1, 2) == {}
        diverged = story.diverged(1, 2)
        assert diverged == {"node-1/data/old-0": (2, BEFORE, BEFORE + AFTER)}
        (export,) = (step for step in story.steps(1, 2) if step.startswith("kseg export "))
        subprocess.run(f"{sys.executable} -m {export}", shell=True, check=True, cwd=tmp_path)
        saved = [json.loads(line) for file in tmp_path.glob("old-0-60/**/*.json*") for line in file.open()]
        assert len(saved) == AFTER
        cluster.prepare()
        cluster.begin(CONTROLLER, 2)
        # otherwise the other one may be elected again
        cluster.await_leader(OLD, 2)
        cluster.begin(1)
        cluster.await_in_sync(OLD)
        assert cluster.consume(OLD) == BEFORE + AFTER // 2
        assert_truncated(cluster.nodes[1].log_text(), OLD, 60)
    finally:
        cluster.abandon()
