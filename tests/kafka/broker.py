"""A real broker: one KRaft node on free loopback ports with a data directory made for a test.

Plan of a start: 1. pick two free ports, 2. write the properties, 3. format the data directory unless it is formatted, 4. start the process,
5. wait for the log line that says that it is ready. A stop is SIGTERM (clean: indexes are trimmed, the marker file is written), a crash is
SIGKILL. Nodes share a Java process (`shared_java.py`), except those that a test kills or freezes. Only processes started here are ended, by
their own id.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka import jars, shared_java
from tests.kafka.formatting import format_log_dirs
from tests.kafka.shared_java import SharedNode, run_java, start_node

# limits that only a failure reaches: a busy machine takes many times as long as an idle one
START_LIMIT_S = 300.0
STOP_LIMIT_S = 300.0
CLIENT_LIMIT_S = 300.0
# tried one after the other, because a consumer that asks a starting broker occasionally waits five minutes for its metadata
CONSUMERS = 3
READ_LIMIT_S = 900.0
_COORDINATOR_SOON = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
# right after its start the broker does not know all of its partitions yet
_LEADER_SOON = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
)
# Linux uses the ports from 32768 on for outgoing connections
_SERVER_PORTS = 10_000, 32_768

# Keep the broker small and fast: one partition for the internal topics, small preallocated indexes, housekeeping every second, and a long
# limit for open transactions. The controller refuses a broker that was killed until its former session ends. Members of groups learn of a
# rebalance from their next heartbeat.
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
    "log.index.size.max.bytes": "262144",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "60000",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "transaction.max.timeout.ms": "7200000",
    "metadata.log.max.record.bytes.between.snapshots": "6000",
}


class BrokerFailed(Exception):
    """The broker did not start or exited by itself; the message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """A record as a real consumer received it. `timestamp_type`: 1 CreateTime, 2 LogAppendTime."""

    offset: int
    timestamp_type: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def consumer_by_hand(broker: Broker, group: str) -> Consumer:
    """A client that commits offsets for a group without a subscription."""
    return broker.consumer(group, enable_auto_commit=False)


def commit_offsets(consumer: Consumer, offsets: Sequence[TopicPartition] | None = None) -> None:
    """Commit, retrying while the broker elects or loads the group's coordinator. offsets: None for those consumed."""
    what = {} if offsets is None else {"offsets": [*offsets]}
    _until_ready(lambda: consumer.commit(asynchronous=False, **what), _COORDINATOR_SOON)


def watermarks(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    """Log start offset and high watermark, once the broker leads the partition."""
    place = TopicPartition(topic, partition)

    def ask() -> tuple[int, int]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "log_level": 0})
        try:
            low, high = consumer.get_watermark_offsets(place, CLIENT_LIMIT_S / CONSUMERS)
            return int(low), int(high)
        finally:
            consumer.close()

    low, high = _until_ready(ask, _LEADER_SOON)
    return low, high


def delete_records(bootstrap: str, topic: str, partition: int, before_offset: int) -> None:
    """Move the log start offset to `before_offset`, once the broker leads the partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def delete() -> None:
        for future in admin.delete_records([TopicPartition(topic, partition, before_offset)]).values():
            future.result(CLIENT_LIMIT_S)

    _until_ready(delete, _LEADER_SOON)


def _until_ready(ask: Callable[[], Any], not_yet: Sequence[int]) -> Any:
    """Call until the result is none of these errors."""
    deadline = time.monotonic() + CLIENT_LIMIT_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in not_yet or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


class Broker:
    """A broker with the data directory `root`/data, or with `data` if one exists already. Use as a context manager, or start and stop
    it."""

    def __init__(self, root: Path, data: Path | None = None, **properties: str) -> None:
        self.root = root
        self.is_apart = shared_java.ALWAYS_APART
        self.data = root / "data" if data is None else data
        self.properties = {name.replace("_", "."): value for name, value in properties.items()}
        self.bootstrap = ""
        self._process: subprocess.Popen[bytes] | SharedNode | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()

    def apart(self) -> Self:
        """Run in a separate process."""
        self.is_apart = True
        return self

    # --- life ----------------------------------------------------------------------------------------------

    def start(self, attempts: int = 3) -> None:
        """Start the broker; returns when it is ready. If a port was taken meanwhile, other ports are tried."""
        self.root.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, attempts + 1):
            self._configure()
            self._format()
            try:
                self._launch()
            except BrokerFailed:
                if attempt == attempts or "BindException" not in self.log_text():
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop cleanly."""
        process = self._taken()
        process.terminate()
        self._await_end(process)

    def crash(self) -> None:
        """End the node as SIGKILL does: what it wrote to files stays.

        A node that shares its process cannot be killed. Its files are copied while the process stands still, and the copies replace those
        that the node changes while it ends. Its clients and the other nodes of its cluster see an orderly end: where they are at work, it
        takes a process of its own."""
        if isinstance(self._process, SharedNode):
            # a disk that a test has taken away may be a file
            log_dirs = [path for path in self._log_dirs() if path.is_dir()]
            with self._process.frozen():
                copies = [shutil.copytree(path, _killed(path), symlinks=True) for path in log_dirs]
            self.abandon()
            for path, copy in zip(log_dirs, copies, strict=True):
                shutil.rmtree(path)
                copy.rename(path)
        else:
            self.abandon()

    def abandon(self) -> None:
        """End the node at once, without further log output. Its files are in the state of a crash only if it runs apart."""
        process = self._taken()
        process.kill()
        self._await_end(process)

    def is_running(self) -> bool:
        """Whether the node was started and has not exited by itself."""
        return self._process is not None and self._process.poll() is None

    def log_text(self) -> str:
        """What the broker has logged since its last start."""
        return (self.root / "broker.log").read_text(errors="replace")

    def _configure(self) -> None:
        client, controller = (f"127.0.0.1:{port}" for port in free_ports(2))
        self.bootstrap = client
        places = {
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{client}",
            "log.dirs": str(self.data),
        }
        usual = {**PROPERTIES, **places, **self.properties}
        lines = {**usual, **self._differing(usual)}
        text = "".join(f"{name}={value}\n" for name, value in lines.items() if value is not None)
        (self.root / "server.properties").write_text(text)

    def _differing(self, usual: dict[str, str]) -> dict[str, str | None]:
        """The properties of a node that differ from the usual ones; None for one that it lacks."""
        return {}

    def configured(self) -> dict[str, str]:
        """The server.properties of the last start."""
        lines = (self.root / "server.properties").read_text().splitlines()
        return dict(line.partition("=")[::2] for line in lines)

    def _format(self) -> None:
        if not (self.data / "meta.properties").exists():
            format_log_dirs(self.root / "server.properties")

    def _log_dirs(self) -> list[Path]:
        named = self.configured()
        places = [*named["log.dirs"].split(","), named.get("metadata.log.dir", "")]
        return sorted({Path(place) for place in places if place})

    def _launch(self) -> None:
        self._spawn()
        self._await_start()

    def _spawn(self) -> None:
        properties = self.root / "server.properties"
        with (self.root / "broker.log").open("wb") as log:
            if self.is_apart:
                command = jars.brief_java_command("-Dkseg.log.level=INFO", "kafka.Kafka", str(properties))
                self._process = subprocess.Popen(command, env=jars.java_environment(), stdout=log, stderr=log)
            else:
                self._process = start_node(properties, self.root / "broker.log")

    def _await_start(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_LIMIT_S
        while "Kafka Server started" not in self.log_text():
            if self._process.poll() is not None:
                self._process = None
                raise BrokerFailed(f"the broker ended\n{self.log_text()[-6000:]}")
            if time.monotonic() > deadline:
                self.abandon()
                raise BrokerFailed(f"the broker did not start in time\n{self.log_text()[-6000:]}")
            time.sleep(0.1)

    def _taken(self) -> subprocess.Popen[bytes] | SharedNode:
        if self._process is None:
            raise RuntimeError("the broker is not running")
        process, self._process = self._process, None
        return process

    def _await_end(self, process: subprocess.Popen[bytes] | SharedNode) -> None:
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    # --- use -----------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """`config`: topic properties, with underscores for dots; an empty value leaves a property unset. By default segments are small and
        there is no retention."""
        small = {"internal.segment.bytes": "6000", "retention.ms": "-1", "index.interval.bytes": "1024"}
        wanted = {**small, **{key.replace("_", "."): value for key, value in config.items()}}
        wanted = {name: value for name, value in wanted.items() if value}
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic(name, partitions, 1, config=wanted)]).values():
            future.result(CLIENT_LIMIT_S)

    def producer(self, **config: Any) -> Producer:
        """A producer that completes its batches only at flush(). `config`: with underscores for dots."""
        base = {"bootstrap.servers": self.bootstrap, "linger.ms": 500, "log_level": 0}
        return Producer({**base, **{key.replace("_", "."): value for key, value in config.items()}})

    def consumer(self, group: str, **config: Any) -> Consumer:
        """`config`: with underscores for dots."""
        base = {"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0}
        return Consumer({**base, **{key.replace("_", "."): value for key, value in config.items()}})

    def consume(
        self, topic: str, partition: int = 0, *, committed: bool = False, limit_s: float = CLIENT_LIMIT_S
    ) -> list[Consumed]:
        """Everything that a consumer receives from the start to the end. `committed`: with isolation level read_committed. Raises
        BrokerFailed if that takes longer than `limit_s`."""
        for _ in range(CONSUMERS):
            consumer = self.consumer(
                "nobody",
                enable_auto_commit=False,
                enable_partition_eof=True,
                fetch_wait_max_ms=50,
                isolation_level="read_committed" if committed else "read_uncommitted",
            )
            try:
                # otherwise the client knows no leader when it looks for the first offset, and tries again after half a second
                with suppress(KafkaException):
                    consumer.list_topics(topic, limit_s / CONSUMERS)
                consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
                records = _until_end(consumer, limit_s / CONSUMERS)
            finally:
                consumer.close()
            if records is not None:
                return records
        raise BrokerFailed(f"{CONSUMERS} consumers did not reach the end in time")

    def consume_patiently(self, partitions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the real Java consumer receives from damaged partitions (kseg.oracle.Consume, which has the fields)."""
        asked = {"bootstrap": self.bootstrap, "partitions": partitions}
        done = run_java("kseg.oracle.Consume", stdin=json.dumps(asked), limit_s=READ_LIMIT_S)
        if done.returncode:
            raise BrokerFailed(f"reading failed\n{done.stderr[-6000:]}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def wait_for(self, what: str, happened: Callable[[], bool], limit_s: float = CLIENT_LIMIT_S) -> None:
        """Poll until `happened` returns true. Raises BrokerFailed with `what` if it does not in time."""
        deadline = time.monotonic() + limit_s
        while not happened():
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{what}: not within {limit_s} s\n{self.log_text()[-6000:]}")
            time.sleep(0.1)

    def cleaned_up_to(self, topic: str, partition: int = 0) -> int:
        """The first dirty offset in the cleaner's checkpoint for a partition, 0 without an entry."""
        checkpoint = self.data / "cleaner-offset-checkpoint"
        text = checkpoint.read_text() if checkpoint.exists() else ""
        noted = re.search(rf"^{re.escape(topic)} {partition} (\d+)$", text, re.MULTILINE)
        return int(noted[1]) if noted else 0

    def copy_data(self, target: Path) -> Path:
        """Copy the data directory in its current state, with modification times, even while the broker runs (files may disappear
        meanwhile)."""
        return copy_tree_in_use(self.data, target)


def _killed(log_dir: Path) -> Path:
    return log_dir.with_name(f"{log_dir.name}.killed")


def copy_tree_in_use(tree: Path, target: Path) -> Path:
    """Copy a directory in its current state, with modification times; files may disappear meanwhile."""
    for source in [tree, *sorted(tree.rglob("*"))]:
        place = target / source.relative_to(tree)
        try:
            if source.is_dir():
                place.mkdir(parents=True)
            else:
                shutil.copy2(source, place)
        except FileNotFoundError:
            continue
    return target


def _until_end(consumer: Consumer, limit_s: float) -> list[Consumed] | None:
    """None if reading to the end takes longer than `limit_s`."""
    records: list[Consumed] = []
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return records
            raise BrokerFailed(str(error))
        kind, timestamp = message.timestamp()
        records.append(
            Consumed(
                _known(message.offset()),
                kind,
                timestamp,
                message.key(),
                message.value(),
                _headers(message.headers()),
            )
        )
    return None


def _known(offset: int | None) -> int:
    assert offset is not None
    return offset


def _headers(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, value) for name, value in headers or ())


def free_ports(count: int) -> Sequence[int]:
    """Ports that are free on loopback at this moment, that the kernel does not use for outgoing connections, and that no other test process
    picks. A broker may bind its port only after ten seconds: until then it waits for its former registration to expire."""
    ports: list[int] = []
    while len(ports) < count:
        port = next(_PORTS)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            ports.append(port)
    return ports


def _ports_of_this_process() -> Iterator[int]:
    """All server ports of this process of xdist, in turn, from a random one on: another gate may run on the machine."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = range(
        _SERVER_PORTS[0] + worker, _SERVER_PORTS[1], int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    )
    first = random.SystemRandom().randrange(len(ports))
    return itertools.cycle([*ports[first:], *ports[:first]])


_PORTS = _ports_of_this_process()
