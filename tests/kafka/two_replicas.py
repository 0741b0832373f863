"""A cluster of one controller and two brokers, or more, with a replica of each partition on every broker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka.broker import CLIENT_LIMIT_S, Broker, free_ports

CONTROLLER = 9
BROKERS = (1, 2)
_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


class _Node(Broker):
    """A node of the cluster. node_id: CONTROLLER or a broker. replicas: of internal topics."""

    def __init__(self, root: Path, node_id: int, replicas: int) -> None:
        super().__init__(root / f"node-{node_id}")
        self.node_id = node_id
        self.replicas = replicas
        self.voters = ""

    def _differing(self, usual: dict[str, str]) -> dict[str, str | None]:
        is_controller = self.node_id == CONTROLLER
        place = self.voters.partition("@")[2]
        return {
            "process.roles": "controller" if is_controller else "broker",
            "node.id": str(self.node_id),
            "controller.quorum.voters": self.voters,
            "listeners": f"CONTROLLER://{place}" if is_controller else f"PLAINTEXT://{self.bootstrap}",
            "advertised.listeners": None,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            **{f"{topic}.replication.factor": str(self.replicas) for topic in _TOPICS},
        }


class TwoReplicas:
    """The cluster below `root`. It may be started again after its data directories were changed."""

    def __init__(self, root: Path, brokers: Sequence[int] = BROKERS) -> None:
        self.brokers = brokers
        self.nodes = {node_id: _Node(root, node_id, len(brokers)) for node_id in (CONTROLLER, *brokers)}

    def data(self, node_id: int) -> Path:
        return self.nodes[node_id].data

    def start(self) -> None:
        self.prepare()
        self.begin(*self.nodes)

    def begin(self, *node_ids: int) -> None:
        """Start nodes that are prepared."""
        for node_id in node_ids:
            self.nodes[node_id]._spawn()
        for node_id in node_ids:
            self.nodes[node_id]._await_start()

    def await_leader(self, topic: str, node_id: int) -> None:
        def leads() -> bool:
            admin = AdminClient({"bootstrap.servers": self.nodes[node_id].bootstrap, "log_level": 0})
            found = admin.list_topics(timeout=CLIENT_LIMIT_S).topics
            return topic in found and found[topic].partitions[0].leader == node_id

        self.nodes[CONTROLLER].wait_for("the leader", leads)

    def prepare(self) -> None:
        """Write the properties of the nodes, and format those that are not formatted."""
        (port,) = free_ports(1)
        for node in self.nodes.values():
            node.voters = f"{CONTROLLER}@127.0.0.1:{port}"
            node.root.mkdir(parents=True, exist_ok=True)
            node._configure()
            node._format()
            if node.node_id != CONTROLLER:
                self._join(node)

    def stop(self, *order: int) -> None:
        """Stop the brokers in this order, so that the last one stays in the ISR alone, and then the controller."""
        for node_id in (*order, CONTROLLER):
            self.nodes[node_id].stop()

    def await_in_sync(self, *topics: str) -> None:
        """Wait until all replicas of each topic are in sync."""

        def are_in_sync() -> bool:
            admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            found = admin.list_topics(timeout=CLIENT_LIMIT_S).topics
            return all(
                # a topic that was just created may be missing
                topic in found
                and all(len(each.isrs) == len(self.brokers) for each in found[topic].partitions.values())
                for topic in topics
            )

        self.nodes[CONTROLLER].wait_for("the replicas in sync", are_in_sync)

    def abandon(self) -> None:
        # a broker tells the controller that it is stopping
        for node_id in (*self.brokers, CONTROLLER):
            if self.nodes[node_id].is_running():
                self.nodes[node_id].abandon()

    def create_topic(self, name: str, **config: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic(name, 1, len(self.brokers), config=config)]).values():
            future.result(CLIENT_LIMIT_S)

    def delete_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for future in admin.delete_topics([name]).values():
            future.result(CLIENT_LIMIT_S)

    def produce(self, topic: str, count: int) -> None:
        """Produce records with acks=all."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0})
        for number in range(count):
            producer.produce(topic, b"value %d" % number, partition=0)
        assert producer.flush(CLIENT_LIMIT_S) == 0

    def consume(self, topic: str) -> int:
        """The number of records that a consumer receives."""
        return len(self.nodes[self.brokers[0]].consume(topic))

    @property
    def bootstrap(self) -> str:
        return ",".join(self.nodes[node_id].bootstrap for node_id in self.brokers)

    def _join(self, node: _Node) -> None:
        """Join the controller's cluster."""
        cluster = re.search(r"(?m)^cluster\.id=.*$", (self.data(CONTROLLER) / "meta.properties").read_text())
        assert cluster is not None
        file = node.data / "meta.properties"
        file.write_text(re.sub(r"(?m)^cluster\.id=.*$", cluster[0], file.read_text()))
