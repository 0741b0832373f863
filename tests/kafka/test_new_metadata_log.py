"""The steps of `kseg doctor` for a node whose metadata log is lost or has a gap, run exactly as printed: with a copy from another node, and
for a single controller, of whose log there is no copy. Then a real broker starts with all records. Takes about a minute for six starts."""

from __future__ import annotations

import shlex
import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.command_line_tools import type_in, write_tools
from tests.kafka.conftest import require_kafka
from tests.kafka.start_cases import CASES
from tests.kafka.start_directories import METADATA
from tests.kafka.starting import SETTLE_S, PlainBroker, observed
from tests.kafka.test_doctor import ALL, WITHOUT_METADATA_LOG, Doctor, doctor, follow
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

__all__ = ["doctor"]  # a fixture

IDEMPOTENT = "gates-append"
# in partition 0
RECORDS = {"metro-none": 160, "metro-zstd": 160, "gates-append": 30}


def _steps(data: Path, doctor: Doctor) -> list[str]:
    return [row["command"] for row in doctor([data]) if row["type"] == "step"]


def _typed(root: Path, step: str) -> None:
    done = type_in(step, root)
    assert done.returncode == 0, (step, done.stdout, done.stderr)


@pytest.mark.parametrize("name", WITHOUT_METADATA_LOG)
def test_broker_starts_with_a_metadata_log_copied_from_another_node(
    name: str, capture_small: Path, tmp_path: Path, doctor: Doctor
) -> None:
    require_kafka()
    data = copy_tree(capture_small / "data", tmp_path / "node" / "data")
    CASES[name](data)
    shutil.copytree(capture_small / "data" / METADATA, tmp_path / "elsewhere" / METADATA)
    for step in _steps(data, doctor):
        if step.startswith("mv "):
            _typed(tmp_path, step)
        elif step.startswith("cp "):
            _typed(tmp_path, step.replace("PATH/", f"{tmp_path}/elsewhere/"))
            break
    seen = observed(tmp_path, [data])
    assert (seen.outcome, seen.strays, seen.made) == ("starts", set(), set()), seen.log[-3000:]


@pytest.mark.evidence("reissued-producer-ids")
@pytest.mark.parametrize("name", WITHOUT_METADATA_LOG if ALL else WITHOUT_METADATA_LOG[:1])
def test_only_controller_starts_with_a_new_metadata_log(
    name: str, capture_small: Path, tmp_path: Path, doctor: Doctor
) -> None:
    """Unless the steps prevent it, the new controller assigns producer ids from 0 on again: without them, the broker acknowledged and
    dropped the last record."""
    require_kafka()
    data = copy_tree(capture_small / "data", tmp_path / "node" / "data")
    _had_idempotent_producer(data, tmp_path)
    CASES[name](data)
    server = write_tools(tmp_path, data, [data])
    topics = {path.name.rpartition("-")[0] for path in data.iterdir() if path.is_dir()} - {METADATA[:-2]}
    steps = [step for step in _steps(data, doctor) if not step.startswith(("find ", "cp "))]
    for step in steps[: steps.index(f"kseg doctor {data}", len(steps) // 2)]:
        if step.startswith(("kseg doctor", "kseg list")):
            continue
        words = shlex.split(step)
        if words[0] == "kafka-topics.sh":
            # in the metadata log it is the address of the captured node
            words[2] = server
            topics.discard(words[words.index("--topic") + 1])
            step = shlex.join(words)
        if words[0] == "kafka-server-stop.sh":
            # the topics that one step names together
            _create(server, topics, data)
        _typed(tmp_path, step)
    typed, _ = follow([data], tmp_path, {}, doctor)
    broker = PlainBroker(tmp_path / "broker", data)
    broker.start(attempts=1)
    try:
        # the broker checks retention twice a second
        time.sleep(SETTLE_S)
        found = {topic: len(broker.consume(topic)) for topic in RECORDS}
        send_one(broker, IDEMPOTENT)
        values = [record.value for record in broker.consume(IDEMPOTENT)]
        log = broker.log_text()
    finally:
        broker.abandon()
    assert found == {**RECORDS, IDEMPOTENT: RECORDS[IDEMPOTENT] + 1}, typed
    assert values[-2:] == [b"of the first producer", b"new"], typed
    assert "marked stray" not in log


def _had_idempotent_producer(data: Path, root: Path) -> None:
    """Write a record to IDEMPOTENT as the first idempotent producer of the cluster. The new controller assigns its producer id again."""
    lines = root / "first.jsonl"
    lines.write_text('{"value":"of the first producer"}\n')
    words = ["append", "--apply", "--from", lines, "--producer-id", "0", "--producer-epoch", "0"]
    assert run([*map(str, words), "--base-sequence", "0", str(data / f"{IDEMPOTENT}-0")]) == 0


def send_one(broker: Broker, topic: str) -> None:
    """Send one record with a new idempotent producer; Java producers are idempotent by default."""
    acknowledged: list[bool] = []
    producer = broker.producer(enable_idempotence=True)
    producer.produce(
        topic, b"new", partition=0, on_delivery=lambda error, _: acknowledged.append(error is None)
    )
    producer.flush(CLIENT_LIMIT_S)
    assert acknowledged == [True]


def _create(server: str, topics: set[str], data: Path) -> None:
    """Create the topics without a JVM for each."""
    wanted = []
    for topic in sorted(topics):
        partitions = sum(path.name.rpartition("-")[0] == topic for path in data.iterdir())
        config = {"cleanup.policy": "compact"} if topic.startswith("__") else {"retention.ms": "-1"}
        wanted.append(NewTopic(topic, partitions, 1, config=config))
    admin = AdminClient({"bootstrap.servers": server, "log_level": 0})
    for future in admin.create_topics(wanted).values() if wanted else ():
        future.result(CLIENT_LIMIT_S)


def test_steps_format_an_empty_directory_of_a_dynamic_quorum(tmp_path: Path, doctor: Doctor) -> None:
    """The controllers of a dynamic quorum are in the metadata log, and kafka-storage.sh requires a flag that says that no initial
    controllers are to be written."""
    require_kafka()
    first, second = tmp_path / "first", tmp_path / "second"
    write_tools(tmp_path, first, [first, second])
    properties = tmp_path / "server.properties"
    properties.write_text(
        properties.read_text().replace("controller.quorum.voters=1@", "controller.quorum.bootstrap.servers=")
    )
    cluster = "--cluster-id Mz9XvQe1R0mU7bTq2LkP5w --config server.properties"
    _typed(tmp_path, f"kafka-storage.sh format --standalone {cluster}")
    shutil.rmtree(second)
    second.mkdir()
    (step,) = [
        row["command"] for row in doctor([first, second]) if "kafka-storage.sh" in str(row.get("command"))
    ]
    assert step == f"kafka-storage.sh format --ignore-formatted --no-initial-controllers {cluster}"
    _typed(tmp_path, step)
    _typed(tmp_path, "kafka-server-start.sh -daemon server.properties")
    _typed(tmp_path, "kafka-server-stop.sh")
