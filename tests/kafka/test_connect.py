"""A real Connect worker's three topics: shown as JSON, with decoded keys and without secrets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if "CI" not in os.environ:  # there its absence is an error
    pytest.importorskip("confluent_kafka", reason="no broker is started: confluent-kafka is not installed")

from kseg.cli.main import run
from tests.kafka import jars
from tests.kafka.broker import Broker, free_ports

pytestmark = pytest.mark.kafka

SECRET = "hunter2"
CONFIG = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "tasks.max": "1",
    "topic": "lines",
    "some.password": SECRET,
    "producer.override.client.id": "file-source",
}


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("connect")
    (root / "lines.txt").write_text("one\ntwo\n")
    with Broker(root / "broker") as broker:
        broker.create_topic("lines")
        (port,) = free_ports(1)
        worker = _start(root, broker.bootstrap, port)
        try:
            url = f"http://127.0.0.1:{port}"
            broker.wait_for("the worker serves", lambda: _asked(f"{url}/connectors") == [])
            config = CONFIG | {"file": str(root / "lines.txt")}
            _asked(f"{url}/connectors", {"name": "my-source", "config": config})
            broker.wait_for("an offset", lambda: bool(_offsets(f"{url}/connectors/my-source/offsets")))
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(300)
        broker.stop()
        yield broker.data


def _start(root: Path, bootstrap: str, port: int) -> subprocess.Popen[bytes]:
    names = {f"{kind}.storage.topic": f"connect-{topic}" for kind, topic in TOPICS.items()}
    factors = {f"{kind}.storage.replication.factor": "1" for kind in TOPICS}
    properties = {
        "bootstrap.servers": bootstrap,
        "group.id": "connect",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "offset.flush.interval.ms": "500",
        "plugin.discovery": "only_scan",
        **names,
        **factors,
    }
    path = root / "worker.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = jars.brief_java_command("org.apache.kafka.connect.cli.ConnectDistributed", str(path))
    with (root / "worker.log").open("wb") as log:
        return subprocess.Popen(command, env=jars.java_environment(), stdout=log, stderr=log)


TOPICS = {"offset": "offsets", "config": "configs", "status": "status"}


def _asked(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        if body is not None:
            raise
        return None


def _offsets(url: str) -> list[Any]:
    answer = _asked(url)
    return answer["offsets"] if answer else []


def records(log_dir: Path, topic: str, capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert run(["dump", "--json", "--print-data-log", str(log_dir / f"{topic}-0")]) in (0, 1)
    found = map(json.loads, capfd.readouterr().out.splitlines())
    return [row for row in found if row["type"] == "record" and "control" not in row]


def test_configs(log_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = records(log_dir, "connect-configs", capfd)
    by_type = {row["connect"]["type"]: row for row in found}
    assert {"connector", "task", "commit", "session-key"} <= by_type.keys()
    assert by_type["connector"]["connect"] == {"type": "connector", "connector": "my-source"}
    assert by_type["task"]["connect"] == {"type": "task", "connector": "my-source", "task": 0}
    assert by_type["connector"]["value"]["properties"]["some.password"] == "(redacted)"
    assert by_type["connector"]["value"]["properties"]["topic"] == "lines"
    assert by_type["task"]["value"]["properties"]["some.password"] == "(redacted)"
    assert by_type["commit"]["value"] == {"tasks": 1}
    assert by_type["session-key"]["value"]["key"] == "(redacted)"
    assert SECRET not in json.dumps(found)
    assert all(row["connect"]["type"] for row in found)


def test_offsets(log_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = records(log_dir, "connect-offsets", capfd)
    newest = found[-1]
    assert newest["connect"]["connector"] == "my-source"
    assert newest["key"][0] == "my-source" and newest["key"][1]["filename"].endswith("lines.txt")
    assert newest["value"] == {"position": len("one\ntwo\n")}


def test_status(log_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = records(log_dir, "connect-status", capfd)
    kinds = {row["connect"]["type"] for row in found}
    assert {"connector-status", "task-status", "topic-status"} <= kinds and None not in kinds
    states = {
        row["value"]["state"] for row in found if row["connect"]["type"] == "task-status" and row["value"]
    }
    assert "RUNNING" in states
    topic = next(row for row in found if row["connect"]["type"] == "topic-status")
    assert (topic["connect"]["topic"], topic["connect"]["connector"]) == ("lines", "my-source")
