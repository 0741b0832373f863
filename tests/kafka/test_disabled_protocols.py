"""group.version, share.version and streams.version are lowered to 0 while there are groups of these protocols: which clients can use them,
before and after the steps of `doctor`.

Takes half a minute: two brokers, and members of a share group in processes of their own.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.broker import CLIENT_LIMIT_S, Broker, commit_offsets
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients, share_broker
from tests.kafka.shared_java import run_java
from tests.support.command_rows import of_type, rows_of
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

FARES, READ = "fares", 10
PROTOCOLS = "group.coordinator.rebalance.protocols"
FEATURES = ("group.version", "share.version", "streams.version")


def _features(broker: Broker, *words: str) -> None:
    done = run_java("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", broker.bootstrap, *words)
    assert done.returncode == 0, done.stdout + done.stderr


def _produce(broker: Broker) -> None:
    producer = broker.producer()
    for number in range(READ):
        producer.produce(FARES, b"value %d" % number, partition=0)
    producer.flush()


def _consume(broker: Broker, group: str, protocol: str) -> list[int]:
    """The offsets that a new member gets, which it commits. Raises RuntimeError if it ends instead."""
    consumer = broker.consumer(
        group, group_protocol=protocol, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.subscribe([FARES])
    read: list[int] = []
    deadline = time.monotonic() + CLIENT_LIMIT_S
    try:
        while len(read) < READ and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            read.append(message.offset() or 0)
        commit_offsets(consumer)
    finally:
        consumer.close()
    return read


def _share(broker: Broker) -> list[int]:
    with GroupClients(broker.bootstrap, is_apart=True) as clients:
        read = clients.ask("share", group="sharing", topic=FARES, records=READ, rejected=[])["read"]
    return sorted(dict.fromkeys(read))


def _stream(broker: Broker) -> None:
    parts = [{"id": "0", "sources": [FARES]}]
    with GroupClients(broker.bootstrap) as clients:
        clients.ask("streams", group="streaming", members=["one"], state="Stable", subtopologies=parts)
        clients.ask("streams_leave", group="streaming", member="one")


def _failure(use: Callable[[], object]) -> str:
    with pytest.raises(RuntimeError) as failed:
        use()
    return str(failed.value)


@pytest.mark.evidence("group-protocol-disabled")
def test_groups_fail_at_level_0_until_the_steps_of_doctor(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    broker = share_broker(tmp_path)
    with broker:
        broker.create_topic(FARES)
        _produce(broker)
        assert _consume(broker, "modern", "consumer") == _consume(broker, "old", "classic") == [*range(READ)]
        assert _share(broker) == [*range(READ)]
        _stream(broker)
        _produce(broker)
    assert not of_type(rows_of(capfd, "groups", broker.data, status=0), "finding")
    with broker:
        for feature in FEATURES:
            _features(broker, "downgrade", "--feature", f"{feature}=0")
    found = of_type(rows_of(capfd, "groups", broker.data, status=1), "finding")
    assert [(row["id"], row["groups"], row["message"].split()[0]) for row in found] == [
        ("group-protocol-disabled", 1, feature) for feature in FEATURES
    ]
    rows = rows_of(capfd, "doctor", broker.data, status=1)
    steps = [row["command"] for row in of_type(rows, "step") if row["due"]]
    copy = Broker(tmp_path / "other", copy_tree(broker.data, tmp_path / "copy"))
    with copy:
        assert "API version not supported" in _failure(lambda: _consume(copy, "modern", "consumer"))
        capfd.readouterr()
        _failure(lambda: _share(copy))
        assert "does not support the share group protocol" in capfd.readouterr().err
        assert "errorCode=35" in _failure(lambda: _stream(copy))  # UNSUPPORTED_VERSION
        assert _consume(copy, "old", "classic") == [*range(READ, 2 * READ)]
        # what the step says of these consumers
        assert _consume(copy, "modern", "classic") == [*range(READ, 2 * READ)]
    left = of_type(rows_of(capfd, "groups", copy.data, status=1), "finding")
    assert [row["message"].split()[0] for row in left] == [*FEATURES[1:]]
    with broker:
        for step in steps:
            _features(broker, *shlex.split(step)[3:])
        assert _consume(broker, "modern", "consumer") == [*range(READ, 2 * READ)]
        assert _share(broker)[-READ:] == [*range(READ, 2 * READ)]
        _stream(broker)
    assert not of_type(rows_of(capfd, "groups", broker.data, status=0), "finding")
    # consumer and streams groups also depend on a property of the broker, share groups do not
    broker.properties[PROTOCOLS] = "classic"
    with broker:
        _produce(broker)
        assert "API version not supported" in _failure(lambda: _consume(broker, "modern", "consumer"))
        assert "errorCode=35" in _failure(lambda: _stream(broker))
        assert _share(broker)
    file = broker.root / "server.properties"
    rows = rows_of(capfd, "doctor", "--server-properties", file, broker.data, status=1)
    found = [row for row in of_type(rows, "finding") if row["id"] == "group-protocol-disabled"]
    assert [row["message"].split(",")[0] for row in found] == [
        f"{PROTOCOLS} lacks {protocol}" for protocol in ("consumer", "streams")
    ]
    (step,) = [row["command"] for row in of_type(rows, "step") if row["due"]]
    subprocess.run(step, shell=True, check=True)
    broker.properties[PROTOCOLS] = file.read_text().partition(f"{PROTOCOLS}=")[2].splitlines()[0]
    with broker:
        assert _consume(broker, "modern", "consumer") == [*range(2 * READ, 3 * READ)]
        _stream(broker)
