"""A broker loads its logs before it reads its dynamic properties, with those in server.properties, and `recover --policy kafka` leaves the
same indexes and producer snapshots. Takes some fifteen seconds: one broker that is killed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.cluster_admin import ClusterAdmin
from tests.kafka.conftest import require_kafka

pytestmark = pytest.mark.kafka

TOPIC = "fares"
DYNAMIC = {"producer.id.expiration.ms": "1", "log.index.interval.bytes": "100"}
EACH = 20


def produce(broker: Broker) -> None:
    """Send with another idempotent producer, one record a batch."""
    producer = broker.producer(enable_idempotence=True, linger_ms=0)
    for number in range(EACH):
        producer.produce(TOPIC, b"v" * 100, b"%d" % number, 0)
        producer.flush(CLIENT_LIMIT_S)


def side_files(partition: Path) -> dict[str, bytes]:
    """The side files, without the zeros of preallocated indexes."""
    return {
        path.name: path.read_bytes().rstrip(b"\0") if "index" in path.suffix else path.read_bytes()
        for path in sorted(partition.iterdir())
        if path.suffix in (".index", ".timeindex", ".snapshot")
    }


def test_policy_kafka_ignores_dynamic_properties_like_a_load(tmp_path: Path) -> None:
    require_kafka()
    broker = Broker(tmp_path / "broker", log_index_interval_bytes="2000")
    with broker:
        admin = ClusterAdmin(broker.bootstrap)
        assert admin.do("config", "BROKER", "", DYNAMIC) == {"ok": True}
        admin.close()
        broker.create_topic(TOPIC, internal_segment_bytes="", index_interval_bytes="")
        produce(broker)
    # this stop writes the snapshot from which producers expire
    broker.start()
    produce(broker)
    broker.crash()
    file, out = tmp_path / "server.properties", tmp_path / "out"
    shutil.copy(broker.root / "server.properties", file)
    words = ["--policy", "kafka", "--server-properties", str(file), "--topic", TOPIC, "--output", str(out)]
    assert run(["recover", "--quiet", *words, str(broker.data)]) == 0
    broker.start()
    loaded = side_files(broker.data / f"{TOPIC}-0")
    broker.crash()
    recovered = side_files(out / f"{TOPIC}-0")
    assert recovered == loaded
    newest = f"{2 * EACH:020d}.snapshot"
    assert newest in loaded and len(loaded[f"{0:020d}.index"]) < 2 * EACH * 8 / 4
