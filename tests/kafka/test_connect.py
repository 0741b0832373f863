"""The three topics of a real Connect worker are shown as JSON, with decoded keys and without secrets, and the newest record of each key is
what the worker's REST interface returned before it was stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.kafka import jars
from tests.kafka.broker import Broker, free_ports

pytestmark = pytest.mark.kafka

SECRET = "hunter2"
REBALANCE_LIMIT_S = 60.0
CONFIG = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "tasks.max": "1",
    "topic": "lines",
    "some.password": SECRET,
    "producer.override.client.id": "file-source",
}


SINK, PAUSED, STOPPED, GONE, FAILED = "sänk ü", "paused one", "stopped-7", "gone-0", "failed"


@dataclass
class Lived:
    """log_dir: of the broker. running: a copy from before the worker was stopped. reported: what the REST interface returned then, by
    connector."""

    log_dir: Path
    running: Path
    reported: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def log_dir(lived: Lived) -> Path:
    return lived.log_dir


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
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
            _more_connectors(broker, url, config | {"file": str(root / "more.txt")})
            reported = _settled_statuses(broker, url)
            running = broker.copy_data(root / "running")
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(300)
        broker.stop()
        yield Lived(broker.data, running, reported)


def _more_connectors(broker: Broker, url: str, source: dict[str, str]) -> None:
    """Connectors in every state to which an administrator can bring them, with offsets that were altered or reset."""
    Path(source["file"]).write_text("x\n\u2028Ä\n")
    sink = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "2",
        "topics": "lines",
    }
    made = {
        SINK: sink | {"file": f"{source['file']}.out"},
        FAILED: sink | {"file": "/nowhere/out"},
        STOPPED: source,
        GONE: source,
    }
    for name, config in made.items():
        _asked(f"{url}/connectors", {"name": name, "config": config})
    _asked(f"{url}/connectors", {"name": PAUSED, "config": source, "initial_state": "PAUSED"})
    for name in (STOPPED, GONE):
        place = f"{url}/connectors/{name}"
        broker.wait_for("an offset", lambda place=place: bool(_offsets(f"{place}/offsets")))  # type: ignore[misc]
        _asked(f"{place}/stop", {}, "PUT")
        broker.wait_for("the stop", lambda place=place: _state(place) == "STOPPED")  # type: ignore[misc]
    at = {"partition": {"filename": source["file"]}, "offset": {"position": 2}}
    _asked(f"{url}/connectors/{STOPPED}/offsets", {"offsets": [at]}, "PATCH")
    _asked(f"{url}/connectors/{GONE}/offsets", None, "DELETE")
    _asked(f"{url}/connectors/{GONE}", None, "DELETE")
    _asked(f"{url}/connectors/my-source/config", {"note": "changed", "some.password": SECRET}, "PATCH")
    _asked(f"{url}/connectors/my-source/restart?includeTasks=true", {})
    _asked(f"{url}/admin/loggers/org.example?scope=cluster", {"level": "DEBUG"}, "PUT")


def _state(place: str) -> str:
    return str((_asked(f"{place}/status") or {}).get("connector", {}).get("state"))


def _settled_statuses(broker: Broker, url: str) -> dict[str, dict[str, Any]]:
    """The answers, once they have been the same for two seconds."""
    reported: list[dict[str, dict[str, Any]]] = []

    def is_settled() -> bool:
        time.sleep(0.5)
        answer = _asked(f"{url}/connectors?expand=status&expand=info") or {}
        for name in answer:
            place = f"{url}/connectors/{urllib.parse.quote(name, safe='')}"
            answer[name]["offsets"] = _offsets(f"{place}/offsets")
            answer[name]["tasks"] = _asked(f"{place}/tasks")
        reported.append(answer)
        running = answer.get("my-source", {}).get("status", {}).get("tasks", [])
        is_running = [task["state"] for task in running] == ["RUNNING"]
        failed = answer.get(FAILED, {}).get("status", {}).get("tasks", [])
        has_failed = [task["state"] for task in failed] == ["FAILED"] * 2
        return is_running and has_failed and len(reported) > 4 and reported[-5:] == [answer] * 5

    broker.wait_for("the connectors to settle", is_settled)
    return reported[-1]


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


def _asked(url: str, body: object = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    deadline = time.monotonic() + REBALANCE_LIMIT_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            # a worker refuses every change while its group is rebalancing
            if error.code == HTTPStatus.CONFLICT and time.monotonic() < deadline:
                time.sleep(0.5)
                continue
            if body is not None or method is not None:
                raise
            return None
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if body is not None or method is not None:
                raise
            return None


def _offsets(url: str) -> list[Any]:
    answer = _asked(url)
    return answer["offsets"] if answer else []


def records(log_dir: Path, topic: str, capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert run(["dump", "--json", "--print-data-log", str(log_dir / f"{topic}-0")]) in (0, 1)
    found = map(json.loads, capfd.readouterr().out.splitlines())
    return [row for row in found if row["type"] == "record" and "control" not in row]


def test_connect_configs_are_decoded_without_secrets(
    log_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = records(log_dir, "connect-configs", capfd)
    by_type = {row["connect"]["type"]: row for row in found}
    assert {"connector", "task", "commit", "session-key"} <= by_type.keys()
    assert {"target-state", "restart", "logger"} <= by_type.keys()
    found = [row for row in found if row["connect"].get("connector") == "my-source"]
    by_type |= {row["connect"]["type"]: row for row in found}
    assert by_type["connector"]["connect"] == {"type": "connector", "connector": "my-source"}
    assert by_type["task"]["connect"] == {"type": "task", "connector": "my-source", "task": 0}
    assert by_type["connector"]["value"]["properties"]["some.password"] == "(redacted)"
    assert by_type["connector"]["value"]["properties"]["topic"] == "lines"
    assert by_type["task"]["value"]["properties"]["some.password"] == "(redacted)"
    assert by_type["commit"]["value"] == {"tasks": 1}
    assert by_type["session-key"]["value"]["key"] == "(redacted)"
    assert SECRET not in json.dumps(found)
    assert all(row["connect"]["type"] for row in found)


def test_connect_offsets_are_decoded(log_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = records(log_dir, "connect-offsets", capfd)
    newest = next(row for row in found[::-1] if row["connect"]["connector"] == "my-source")
    assert newest["connect"]["connector"] == "my-source"
    assert newest["key"][0] == "my-source" and newest["key"][1]["filename"].endswith("lines.txt")
    assert newest["value"] == {"position": len("one\ntwo\n")}


def test_connect_status_is_decoded(log_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = records(log_dir, "connect-status", capfd)
    kinds = {row["connect"]["type"] for row in found}
    assert {"connector-status", "task-status", "topic-status"} <= kinds and None not in kinds
    states = {
        row["value"]["state"] for row in found if row["connect"]["type"] == "task-status" and row["value"]
    }
    assert "RUNNING" in states
    topic = next(row for row in found if row["connect"]["type"] == "topic-status")
    assert (topic["connect"]["topic"], topic["connect"]["connector"]) == ("lines", "my-source")


def newest(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The value of the newest record of each key, without keys that were deleted."""
    found = {json.dumps(row["key"]): row["value"] for row in rows}
    return {key: value for key, value in found.items() if value is not None}


def plain(config: dict[str, str]) -> dict[str, str]:
    return {name: "(redacted)" if value == SECRET else value for name, value in config.items()}


def test_newest_connect_records_equal_what_rest_reports(
    lived: Lived, capfd: pytest.CaptureFixture[str]
) -> None:
    configs, statuses, offsets = (
        newest(records(lived.running, f"connect-{each}", capfd)) for each in ("configs", "status", "offsets")
    )
    assert {*lived.reported} == {"my-source", SINK, PAUSED, STOPPED, FAILED}
    expected_configs: dict[str, Any] = {}
    expected_statuses: dict[str, Any] = {}
    expected_offsets: dict[str, Any] = {}
    for name, reported in lived.reported.items():
        expected_configs[json.dumps(f"connector-{name}")] = plain(reported["info"]["config"])
        for task in reported["tasks"]:
            expected_configs[json.dumps(f"task-{name}-{task['id']['task']}")] = plain(task["config"])
        expected_statuses[json.dumps(f"status-connector-{name}")] = reported["status"]["connector"]
        for task in reported["status"]["tasks"]:
            expected_statuses[json.dumps(f"status-task-{name}-{task.pop('id')}")] = task
        for each in reported["offsets"] if reported["info"]["type"] == "source" else ():
            expected_offsets[json.dumps([name, each["partition"]])] = each["offset"]
    # task configurations of a stopped or deleted connector stay in the topic, unused
    shown = {key: value["properties"] for key, value in configs.items() if "properties" in value}
    unused = tuple(json.dumps(f"task-{name}-")[:-1] for name in (STOPPED, GONE))
    assert {key: value for key, value in shown.items() if not key.startswith(unused)} == expected_configs
    reported_statuses = {
        key: {part: each for part, each in value.items() if each is not None and part != "generation"}
        for key, value in statuses.items()
        if "topic" not in value
    }
    assert reported_statuses == expected_statuses
    assert offsets == expected_offsets
    assert configs[json.dumps(f"target-state-{STOPPED}")]["state.v2"] == "STOPPED"
    assert configs[json.dumps(f"target-state-{PAUSED}")]["state.v2"] == "PAUSED"
