"""`kseg diff` on the disks of two real brokers: a follower that lags, an unclean election, and the follower after it has truncated its
log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kseg.cli.main import run
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, commit_offsets, consumer_by_hand, free_ports
from tests.kafka.conftest import require_kafka
from tests.kafka.formatting import format_with_tool
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

UNCLEAN = {
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "1",
    "internal.segment.bytes": "6000",
}


ELECTED = "UNCLEAN partition change for t-0"
TRUNCATED = "Truncating to offset 300"


class Node(Broker):
    """A node of a cluster of two. Node 1 is the controller and, with `roles`, also a broker; node 2 is killed. Ports stay the same across
    restarts."""

    def __init__(self, root: Path, node_id: int, controller: str) -> None:
        super().__init__(
            root,
            node_id=str(node_id),
            replica_lag_time_max_ms="2000",
            offsets_topic_replication_factor="2",
            unclean_leader_election_enable="true",
        )
        self.is_apart = self.is_apart or node_id == 2
        self.node_id = node_id
        self.controller = controller
        self.roles = "broker,controller" if node_id == 1 else "broker"
        (port,) = free_ports(1)
        self.client = f"127.0.0.1:{port}"
        self.cluster_id = "Mz9XvQe1R0mU7bTq2LkP5w"

    def _differing(self, usual: dict[str, str]) -> dict[str, str | None]:
        self.bootstrap = self.client
        listeners = [f"PLAINTEXT://{self.client}"] if "broker" in self.roles else []
        if "controller" in self.roles:
            listeners.append(f"CONTROLLER://{self.controller}")
        return {
            "process.roles": self.roles,
            "controller.quorum.voters": f"1@{self.controller}",
            "listeners": ",".join(listeners),
            "advertised.listeners": f"PLAINTEXT://{self.client}" if "broker" in self.roles else None,
        }

    def _format(self) -> None:
        if not (self.data / "meta.properties").exists():
            format_with_tool(self.root / "server.properties", self.cluster_id)

    def create_topic_on_both(self) -> None:
        """Create a topic on both nodes, with node 1 as the preferred leader."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        topic = NewTopic("t", 1, replica_assignment=[[1, 2]], config=UNCLEAN)
        for future in admin.create_topics([topic]).values():
            future.result(CLIENT_LIMIT_S)

    def produce(self, word: str, count: int, acks: str) -> None:
        producer = self.producer(**{"acks": acks, "linger.ms": 0, "batch.num.messages": 10})
        for at in range(count):
            producer.produce("t", f"{word} {at}".encode(), b"key-%d" % at, partition=0)
            if at % 10 == 9:
                producer.flush(CLIENT_LIMIT_S)
        assert producer.flush(CLIENT_LIMIT_S) == 0

    def end_offset(self) -> int:
        with PartitionLog(PartitionTarget(str(self.data / "t-0")), is_live=True) as log:
            return log.end_offset


def compared(capfd: pytest.CaptureFixture[str], a: Path, b: Path) -> dict[str, Any]:
    capfd.readouterr()
    status = run(["diff", "--json", "--topic", "t", str(a), str(b)])
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    (row,) = [row for row in rows if row["type"] == "comparison"]
    assert status == (0 if row["verdict"] == "same" else 1)
    return dict(row)


def commit(node: Node, offset: int) -> None:
    consumer = consumer_by_hand(node, "riders")
    commit_offsets(consumer, [TopicPartition("t", 0, offset)])
    consumer.close()


def groups_with(capfd: pytest.CaptureFixture[str], *log_dirs: Path) -> tuple[int, int]:
    """The group's offset, and the log end offset of its partition: those of the last leader, not of the longest logs."""
    rows = rows_of(capfd, "groups", *log_dirs, status=0)
    (row,) = [row for row in rows if row["type"] == "offset"]
    return row["offset"], row["log_end_offset"]


def test_diff_finds_the_divergence_of_an_unclean_election(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    (port,) = free_ports(1)
    first, second = (Node(tmp_path / f"node-{number}", number, f"127.0.0.1:{port}") for number in (1, 2))
    with first, second:
        first.create_topic_on_both()
        first.produce("both have it", 300, "all")
        commit(first, 300)
        second.crash()
        first.produce("only the first leader has it", 60, "1")
        for offset in range(300, 360, 10):
            commit(first, offset)
        first.stop()
        row = compared(capfd, first.data, second.data)
        assert (row["verdict"], row["a"]["log_end_offset"], row["b"]["log_end_offset"]) == (
            "behind",
            360,
            300,
        )
        assert row["same_topic_id"] and row["epochs_differ_at"] is None

        first.roles = "controller"
        first.start()
        second.start()
        first.wait_for("an unclean election", lambda: ELECTED in first.log_text())
        second.produce("only the second leader has it", 25, "1")
        commit(second, 310)
        second.stop()
        first.stop()
        row = compared(capfd, first.data, second.data)
        assert (row["verdict"], row["differs_at"], row["epoch_caches_differ_at"]) == ("diverged", 300, 300)
        assert (row["a"]["log_end_offset"], row["b"]["log_end_offset"]) == (360, 325)
        assert not row["a"]["damaged_bytes"] and not row["b"]["damaged_bytes"]
        assert groups_with(capfd, first.data, second.data) == (310, 325)
        assert groups_with(capfd, second.data, first.data) == (310, 325)
        shutil.copytree(second.data, tmp_path / "before")

        first.roles = "broker,controller"
        first.start()
        first.wait_for("the first leader again, uncleanly", lambda: ELECTED in first.log_text())
        second.start()
        second.wait_for("the truncated replica to catch up", lambda: second.end_offset() == 360)
        assert TRUNCATED in second.log_text()
        second.stop()
        first.stop()
        row = compared(capfd, first.data, second.data)
        assert (row["verdict"], row["a"]["log_end_offset"]) == ("same", 360)
        row = compared(capfd, tmp_path / "before", second.data)
        assert (row["verdict"], row["differs_at"]) == ("diverged", 300)
