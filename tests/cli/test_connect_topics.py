"""Kafka Connect's topics in `dump`, `lookup` and `read`: keys and values as JSON, without secrets.

The records are what Connect 4.3.1 writes (the prefixes are those of KafkaConfigBackingStore and KafkaStatusBackingStore)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.internal_topics.connect_topics import redacted
from tests.support.command_lines import Capfd
from tests.support.registry_dirs import partition

PROPERTIES = {
    "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
    "name": "jdbc",
    "connection.url": "jdbc:postgresql://db/shop?user=kc&password=hunter2",
    "connection.user": "kc",
    "connection.password": "hunter2",
    "mongo.uri": "mongodb://kc:hunter2@db/shop",
    "ssl.keystore.password": "${file:/etc/secrets:keystore}",
    "aws.secret.access.key": "hunter2",
    "producer.override.sasl.jaas.config": "… password=hunter2;",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "transforms.key.field": "id",
    "tasks.max": "1",
    "topics": "shop",
}
CONFIGS: list[tuple[str, Any]] = [
    ("connector-jdbc-source", {"properties": PROPERTIES}),
    ("task-jdbc-source-12", {"properties": PROPERTIES | {"task.class": "T"}}),
    ("commit-jdbc-source", {"tasks": 13}),
    ("target-state-jdbc-source", {"state": "PAUSED", "state.v2": "STOPPED"}),
    ("tasks-fencing-jdbc-source", {"task-count": 13}),
    ("session-key", {"key": "hunter2", "algorithm": "HmacSHA256", "creation-timestamp": 1}),
    ("restart-connector-jdbc-source", {"include-tasks": True, "only-failed": False}),
    ("connector-gone", None),
    ("connector-broken", "no json: hunter2"),
]


def encoded(entries: list[tuple[str, Any]]) -> list[tuple[bytes | None, bytes | None]]:
    return [
        (
            key.encode(),
            None
            if value is None
            else value.encode()
            if isinstance(value, str)
            else json.dumps(value, ensure_ascii=False).encode(),
        )
        for key, value in entries
    ]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    partition(tmp_path / "data" / "connect-configs-0", encoded(CONFIGS))
    offsets = [
        ('["jdbc-source",{"table":"orders"}]', {"incrementing": 7}),
        ('["jdbc-source",{"table":"old"}]', None),
    ]
    partition(tmp_path / "data" / "connect-offsets-0", encoded(offsets))
    status = [
        (
            "status-connector-jdbc-source",
            {"state": "RUNNING", "trace": None, "worker_id": "w:8083", "generation": 2},
        ),
        (
            "status-task-jdbc-source-0",
            {"state": "FAILED", "trace": "java…", "worker_id": "w:8083", "generation": 2},
        ),
        (
            "status-topic-shop:connector-jdbc-source",
            {"topic": {"name": "shop", "connector": "jdbc-source", "task": 0}},
        ),
    ]
    partition(tmp_path / "data" / "connect-status-0", encoded(status))
    return tmp_path / "data"


def rows(capfd: Capfd) -> list[dict[str, Any]]:
    found = map(json.loads, capfd.readouterr().out.splitlines())
    return [row for row in found if row["type"] == "record"]


def dumped(capfd: Capfd, *words: str) -> list[dict[str, Any]]:
    assert run(["dump", "--json", "--print-data-log", *words]) == 0
    return rows(capfd)


def test_connect_configs_are_shown_without_secrets(log_dir: Path, capfd: Capfd) -> None:
    found = dumped(capfd, str(log_dir / "connect-configs-0"))
    assert "hunter2" not in json.dumps(found)
    properties = found[0]["value"]["properties"]
    hidden = {name for name, value in properties.items() if value == "(redacted)"}
    assert hidden == {
        *("connection.url", "connection.password", "mongo.uri", "aws.secret.access.key"),
        "producer.override.sasl.jaas.config",
    }
    assert {name: value for name, value in properties.items() if name not in hidden} == {
        name: value for name, value in PROPERTIES.items() if name not in hidden
    }
    assert found[0]["connect"] == {"type": "connector", "connector": "jdbc-source"}
    assert found[1]["connect"] == {"type": "task", "connector": "jdbc-source", "task": 12}
    assert found[2]["value"] == {"tasks": 13}
    assert found[5]["value"] == {"key": "(redacted)", "algorithm": "HmacSHA256", "creation-timestamp": 1}
    assert found[7]["value"] is None
    assert found[8]["value"] == "(redacted)" and "not JSON" in found[8]["value_error"]
    assert [row["connect"]["type"] for row in found[2:7]] == [
        *("commit", "target-state", "tasks-fencing", "session-key", "restart"),
    ]


def test_connect_secrets_are_shown_on_request(log_dir: Path, capfd: Capfd) -> None:
    found = dumped(capfd, "--show-secrets", str(log_dir / "connect-configs-0"))
    assert found[0]["value"]["properties"] == PROPERTIES
    assert found[5]["value"]["key"] == "hunter2"


@pytest.mark.parametrize(
    "words", [["--raw"], ["--bytes", "base64"], ["--bytes", "hex"], ["--value-format", "json"]]
)
def test_no_bytes_option_shows_connect_secrets(log_dir: Path, words: list[str], capfd: Capfd) -> None:
    place = str(log_dir / "connect-configs-0")
    output = json.dumps(dumped(capfd, *words, place))
    assert "hunter2" not in output and b"hunter2".hex() not in output and "aHVudGVyMg" not in output
    assert "(redacted)" in output
    assert "tasks" in json.dumps(dumped(capfd, place))


def test_connect_offsets_and_status_are_decoded(log_dir: Path, capfd: Capfd) -> None:
    first, gone = dumped(capfd, str(log_dir / "connect-offsets-0"))
    assert first["key"] == ["jdbc-source", {"table": "orders"}] and first["value"] == {"incrementing": 7}
    assert first["key_encoding"] == first["value_encoding"] == "json"
    assert first["connect"] == {
        "type": "offset",
        "connector": "jdbc-source",
        "partition": {"table": "orders"},
    }
    assert gone["value"] is None
    connector, task, topic = dumped(capfd, str(log_dir / "connect-status-0"))
    assert connector["value"]["state"] == "RUNNING"
    assert task["connect"] == {"type": "task-status", "connector": "jdbc-source", "task": 0}
    assert topic["connect"] == {"type": "topic-status", "connector": "jdbc-source", "topic": "shop"}


def test_renamed_connect_topics_are_decoded_by_every_command(log_dir: Path, capfd: Capfd) -> None:
    (log_dir / "connect-configs-0").rename(log_dir / "eu-west.configs-0")
    place = str(log_dir / "eu-west.configs-0")
    assert isinstance(dumped(capfd, place)[0]["value"], str)
    named = ["--connect-topic", "eu-*", place]
    assert isinstance(dumped(capfd, *named)[0]["value"], dict)
    assert run(["lookup", "--json", "--offset", "0", *named]) == 0
    answer = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert answer["record"]["value"]["properties"]["connection.password"] == "(redacted)"
    assert run(["read", "--json", "--offset", "0", *named]) == 0
    assert rows(capfd)[0]["value"]["properties"]["connection.password"] == "(redacted)"
    assert run(["dump", "--format", "table", *named]) == 0
    assert "hunter2" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("database.password", True),
        ("sasl.client.secret", True),
        ("github.access.token", True),
        ("azure.account.key", True),
        ("ssl.key.password", True),
        ("ssl.keystore.key", True),
        ("api.key", True),
        ("basic.auth.user.info", True),
        ("key.converter", False),
        ("key.converter.schemas.enable", False),
        ("transforms.extract.key.field", False),
        ("pk.fields", False),
        ("sasl.oauthbearer.token.endpoint.url", False),
        ("ssl.truststore.location", False),
        ("message.key.columns", False),
        ("topics", False),
    ],
)
def test_property_names_of_secrets_are_recognized(name: str, is_secret: bool) -> None:
    assert (redacted({"properties": {name: "x"}})["properties"][name] == "(redacted)") is is_secret


def test_mirror_maker_topics_are_recognized_by_name(tmp_path: Path, capfd: Capfd) -> None:
    """A cluster alias may contain any character of a topic name. Offset syncs and checkpoints have their own formats."""
    task = ("task-MirrorSourceConnector-0", {"properties": {"tasks.max": "1"}})
    offset = ('["MirrorSourceConnector",{"cluster":"A.b","partition":1,"topic":"orders"}]', {"offset": 25})
    kinds = {
        "configs": task,
        "offsets": offset,
        "status": ("status-task-MirrorSourceConnector-0", {"state": "RUNNING"}),
    }
    for kind, record in kinds.items():
        partition(tmp_path / f"mm2-{kind}.A.b.internal-0", encoded([record]))
        (row,) = dumped(capfd, str(tmp_path / f"mm2-{kind}.A.b.internal-0"))
        assert row["connect"]["connector"] == "MirrorSourceConnector" and row["value"] == record[1]
    partition(tmp_path / "mm2-offset-syncs.A.internal-0", [(b"\0\1a\0\0\0\0", bytes(16))])
    (row,) = dumped(capfd, str(tmp_path / "mm2-offset-syncs.A.internal-0"))
    assert "connect" not in row
