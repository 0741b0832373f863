"""The settings that kseg finds for each topic are those that a real broker describes, including the source of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.admin._resource import ResourceType

from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.shared_java import run_java
from tests.support.forked_programs import run_kseg

pytestmark = pytest.mark.kafka

SERVER = {
    "log.cleanup.policy": "compact,delete",
    "log.retention.hours": "30",
    "log.retention.minutes": "90",
    "log.retention.bytes": "123456789",
    "log.cleaner.delete.retention.ms": "1111",
    "log.cleaner.min.compaction.lag.ms": "2222",
    "log.index.interval.bytes": "3333",
}
DEFAULTS = {
    "log.cleaner.delete.retention.ms": "4444",
    "log.segment.delete.delay.ms": "5555",
    "log.retention.ms": "7000000",
}
OWN = {"log.cleaner.min.compaction.lag.ms": "6666", "log.segment.delete.delay.ms": "7777"}
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "own": {"cleanup.policy": "compact", "retention.ms": "-1", "delete.retention.ms": "8888"},
    "empty": {"cleanup.policy": "delete", "min.compaction.lag.ms": "1", "index.interval.bytes": "999"},
}
COMPARED = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "index.interval.bytes",
    "file.delete.delay.ms",
)
SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value: "topic-config",
    ConfigSource.DYNAMIC_BROKER_CONFIG.value: "broker-config",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value: "default-broker-config",
    ConfigSource.STATIC_BROKER_CONFIG.value: "server-properties",
    ConfigSource.DEFAULT_CONFIG.value: "built-in-default",
}


def set_configs(admin: AdminClient, kind: ResourceType, name: str, values: dict[str, str]) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in values.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(CLIENT_LIMIT_S)


def set_defaults(broker: Broker, values: dict[str, str]) -> None:
    """Set configurations for all brokers, which librdkafka cannot do."""
    words = ["kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, "--entity-type", "brokers"]
    words += ["--entity-default", "--alter", "--add-config", ",".join(f"{k}={v}" for k, v in values.items())]
    done = run_java(*words)
    assert done.returncode == 0, done.stdout + done.stderr


def described(admin: AdminClient, topic: str) -> dict[str, tuple[str, str]]:
    """Value and source of each setting, according to the broker."""
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    found = future.result(CLIENT_LIMIT_S)
    return {name: (found[name].value, SOURCES[found[name].source]) for name in COMPARED}


def settings(data: Path, server_properties: Path) -> dict[str, dict[str, Any]]:
    """Value and source of each setting for each topic's partition 0, according to `kseg retain`."""
    words = ["retain", "--json", "--server-properties", str(server_properties), str(data)]
    done = run_kseg(*words)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    results = [row for row in rows if row["type"] == "result" and "partition" in row]
    return {
        row["partition"][:-2]: {
            name: (each["value"], each["source"]) for name, each in row["settings"].items()
        }
        for row in results
    }


@pytest.mark.evidence("topic-policy")
def test_topic_settings_are_those_a_broker_describes(tmp_path: Path) -> None:
    require_kafka()
    properties: dict[str, Any] = {name.replace(".", "_"): value for name, value in SERVER.items()}
    with Broker(tmp_path / "broker", **properties) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for name, values in TOPICS.items():
            broker.create_topic(name)
            unset = [
                ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
                for key in ("retention.ms", "index.interval.bytes", "internal.segment.bytes")
            ]
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=unset)
            for future in admin.incremental_alter_configs([resource]).values():
                future.result(CLIENT_LIMIT_S)
            if values:
                set_configs(admin, ResourceType.TOPIC, name, values)
        set_defaults(broker, DEFAULTS)
        set_configs(admin, ResourceType.BROKER, "1", OWN)
        broker.wait_for(
            "the configurations",
            lambda: (
                described(admin, "plain")["file.delete.delay.ms"][0] == "7777"
                and described(admin, "plain")["retention.ms"][0] == "7000000"
            ),
        )
        reported = {name: described(admin, name) for name in TOPICS}
    found = settings(broker.data, tmp_path / "broker" / "server.properties")
    for name in TOPICS:
        assert {key: found[name][key] for key in COMPARED} == reported[name], name
