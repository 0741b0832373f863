"""`what-if` against brokers: the bytes of logs that a real broker and a real producer make with the settings that it names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kseg.cli.main import run
from tests.inspection.test_what_if import records
from tests.kafka.conftest import require_kafka

if TYPE_CHECKING:
    from tests.kafka.broker import Broker

pytestmark = pytest.mark.kafka

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "none": {"compression_type": "uncompressed"},
    "gzip": {"compression_type": "gzip"},
    "gzip:1": {"compression_type": "gzip", "compression_gzip_level": "1"},
    "snappy": {"compression_type": "snappy"},
    "lz4": {"compression_type": "lz4"},
    "lz4:12": {"compression_type": "lz4", "compression_lz4_level": "12"},
    "zstd": {"compression_type": "zstd"},
    "zstd:9": {"compression_type": "zstd", "compression_zstd_level": "9"},
}
BATCHES, OF = 60, 40


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic for each setting, with the same records in the same batches; and one whose producer lingers."""
    require_kafka()
    pytest.importorskip("confluent_kafka")
    import random

    from tests.kafka.broker import Broker

    root = tmp_path_factory.mktemp("what-if")
    made = [*records(random.Random(5), 0, BATCHES * OF, 0.8)]
    large: dict[str, Any] = {"internal_segment_bytes": "", "segment_bytes": "104857600"}
    with Broker(root / "broker") as broker:
        broker.create_topic("now", **large)
        for name, config in SETTINGS.items():
            broker.create_topic(f"then-{name.replace(':', '-')}", **large, **config)
        broker.create_topic("large", **large)
        topics = ["now", *(f"then-{name.replace(':', '-')}" for name in SETTINGS)]
        for topic in topics:
            _produce(broker, topic, made, OF)
        _produce(
            broker, "large", made, len(made), batch_size=65536, linger_ms=60_000, batch_num_messages=100_000
        )
    return broker.data


def _produce(broker: Broker, topic: str, made: list[Any], flushed_each: int, **config: Any) -> None:
    producer = broker.producer(enable_idempotence=True, **config)
    for at, record in enumerate(made, 1):
        producer.produce(topic, record.value, record.key, partition=0, timestamp=record.timestamp_ms)
        if at % flushed_each == 0:
            producer.flush()
    producer.flush()


def _log_bytes(data: Path, topic: str) -> int:
    return sum(log.stat().st_size for log in (data / f"{topic}-0").glob("*.log"))


def _weighed(data: Path, capfd: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capfd.readouterr()
    assert run(["what-if", "--json", "--jobs", "1", "--topic", "now", *words, str(data)]) == 0
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return [line for line in told if line["type"] == "setting" and line["kind"] != "retention"]


def test_a_broker_compresses_to_what_was_said(written: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Java's libraries are other releases than Python's: two per cent."""
    codecs = [word for name in SETTINGS for word in ("--codec", name)]
    told = _weighed(written, capfd, *codecs)
    assert len(told) == len(SETTINGS)
    now = _log_bytes(written, "now")
    differences = {}
    for (name, config), line in zip(SETTINGS.items(), told, strict=True):
        assert line["exact"]
        assert line["bytes_now"] == now
        assert line["properties"] == {key.replace("_", "."): value for key, value in config.items()}
        true = _log_bytes(written, f"then-{name.replace(':', '-')}")
        differences[name] = line["bytes"] / true - 1
    assert all(abs(each) < 0.02 for each in differences.values()), differences
    assert differences["none"] == 0


def test_a_producer_with_larger_batches_sends_what_was_said(
    written: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told = _weighed(written, capfd, "--batch-size", "64KiB", "--linger", "60s")
    (line,) = [each for each in told if each["kind"] == "batching" and each["codec"] is None]
    true, now = _log_bytes(written, "large"), _log_bytes(written, "now")
    assert true < now
    assert line["properties"] == {"batch.size": "65536", "linger.ms": "60000"}
    # of what is saved, the headers; how many batches there are hangs on where each became full
    assert abs(line["bytes"] - true) < 0.1 * (now - true)
