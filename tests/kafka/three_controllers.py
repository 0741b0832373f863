"""A cluster of three controllers that form a dynamic quorum, and a broker."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

from confluent_kafka import Producer

from tests.kafka.broker import CLIENT_LIMIT_S, Broker, free_ports
from tests.kafka.formatting import format_with_tool, new_identity
from tests.kafka.shared_java import run_java

CONTROLLERS = (101, 102, 103)
BROKER = 1
CLUSTER = "Mz9XvQe1R0mU7bTq2LkP5w"
_NOT_YET = (
    "BROKER_NOT_AVAILABLE",
    "Direct-to-controller communication is not supported",
    "is not ready to receive requests",
    "since it is lagging behind",
)


class QuorumNode(Broker):
    """A node of the cluster. places: the addresses of the controllers, by id."""

    def __init__(self, root: Path, node_id: int, places: dict[int, str]) -> None:
        super().__init__(root / f"node-{node_id}")
        self.node_id = node_id
        self.places = places

    def _differing(self, usual: dict[str, str]) -> dict[str, str | None]:
        is_controller = self.node_id in self.places
        place = self.places.get(self.node_id)
        return {
            "process.roles": "controller" if is_controller else "broker",
            "node.id": str(self.node_id),
            "controller.quorum.bootstrap.servers": ",".join(self.places.values()),
            "controller.quorum.voters": None,
            "listeners": f"CONTROLLER://{place}" if is_controller else f"PLAINTEXT://{self.bootstrap}",
            "advertised.listeners": None if is_controller else usual["advertised.listeners"],
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }

    def _format(self) -> None:
        return

    def format(self, *flags: str) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self._configure()
        format_with_tool(self.root / "server.properties", CLUSTER, *flags)

    def identify(self, directory_id: str) -> None:
        """Rewrite the meta.properties of another node for this one."""
        file = self.data / "meta.properties"
        text = re.sub(r"(?m)^node\.id=.*$", f"node.id={self.node_id}", file.read_text())
        file.write_text(re.sub(r"(?m)^directory\.id=.*$", f"directory.id={directory_id}", text))


class ThreeControllers:
    """The cluster below `root`. It may be started again after its data directories were changed or copied elsewhere."""

    def __init__(self, root: Path, places: dict[int, str] | None = None) -> None:
        self.places = {} if places is None else places
        if places is None:
            ports = free_ports(len(CONTROLLERS))
            self.places |= {
                node_id: f"127.0.0.1:{port}" for node_id, port in zip(CONTROLLERS, ports, strict=True)
            }
        self.nodes = {node_id: QuorumNode(root, node_id, self.places) for node_id in (*CONTROLLERS, BROKER)}

    def data(self, *node_ids: int) -> list[Path]:
        return [self.nodes[node_id].data for node_id in node_ids or self.nodes]

    def format(self) -> None:
        """The tool runs for the first controller; the others get its files with their own ids."""
        ids = {node_id: new_identity() for node_id in CONTROLLERS}
        voters = ",".join(f"{node_id}@{place}:{ids[node_id]}" for node_id, place in self.places.items())
        first = self.nodes[CONTROLLERS[0]]
        first.format("--initial-controllers", voters)
        for node_id in CONTROLLERS[1:]:
            shutil.copytree(first.data, self.nodes[node_id].data)
            self.nodes[node_id].identify(ids[node_id])
        self.format_without_voters(BROKER)

    def format_without_voters(self, node_id: int) -> None:
        """Format in place as the tool does with --no-initial-controllers."""
        data, first = self.nodes[node_id].data, self.nodes[CONTROLLERS[0]].data
        if data.exists():
            shutil.rmtree(data)
        data.mkdir(parents=True)
        for name in ("meta.properties", "bootstrap.checkpoint"):
            shutil.copy(first / name, data)
        self.nodes[node_id].identify(new_identity())

    def begin(self, *node_ids: int, is_awaited: bool = True) -> None:
        nodes = [self.nodes[node_id] for node_id in node_ids or self.nodes]
        for node in nodes:
            node._configure()
            node._spawn()
        for node in nodes if is_awaited else ():
            node._await_start()

    def stop(self, *node_ids: int) -> None:
        for node_id in node_ids or (BROKER, *CONTROLLERS):
            self.nodes[node_id].stop()

    def abandon(self) -> None:
        for node_id in (BROKER, *CONTROLLERS):
            if self.nodes[node_id].is_running():
                self.nodes[node_id].abandon()

    def produce(self, topic: str, count: int) -> None:
        producer = Producer(
            {"bootstrap.servers": self.nodes[BROKER].bootstrap, "acks": "all", "log_level": 0}
        )
        for number in range(count):
            producer.produce(topic, b"value %d" % number, partition=0)
        assert producer.flush(CLIENT_LIMIT_S) == 0

    def quorum(self, *words: str, node_id: int = CONTROLLERS[0]) -> None:
        """Run `kafka-metadata-quorum.sh`. Retries while the leader has no connection to a controller that is to be added, or that one
        lags behind, or the queried node has not read its feature level."""
        main = "org.apache.kafka.tools.MetadataQuorumCommand"
        deadline = time.monotonic() + CLIENT_LIMIT_S
        while True:
            done = run_java(main, "--bootstrap-controller", self.places[node_id], *words)
            said = done.stdout + done.stderr
            if done.returncode == 0:
                return
            assert any(word in said for word in _NOT_YET) and time.monotonic() < deadline, said
