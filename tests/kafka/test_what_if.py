"""`what-if` compared with brokers: the size of logs that a real broker and a real producer write with the settings it names."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kseg.inspection.what_if.candidates import read_candidate
from kseg.inspection.what_if.log_places import Stretch
from kseg.inspection.what_if.measuring import sampled_batches
from kseg.inspection.what_if.rebatching import RatioEstimator, SampledBatch, joined
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.codecs.codec import compress
from kseg.segment.files import MappedFile
from kseg.segment.header_tables import Columns
from kseg.segment.scanning.scan import Scanner
from tests.inspection.test_what_if import records
from tests.kafka.conftest import require_kafka
from tests.kafka.shared_java import run_java
from tests.support.command_rows import rows_of

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
    """A topic for each setting with the same records in the same batches, and one whose producer lingers."""
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
    reported = rows_of(capfd, "what-if", "--jobs", "1", "--topic", "now", *words, data, status=0)
    return [line for line in reported if line["type"] == "setting" and line["kind"] != "retention"]


def test_broker_compresses_to_the_forecast_size(written: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Java uses other releases of the compression libraries than Python, so sizes may differ by two per cent."""
    codecs = [word for name in SETTINGS for word in ("--codec", name)]
    reported = _weighed(written, capfd, *codecs)
    assert len(reported) == len(SETTINGS)
    now = _log_bytes(written, "now")
    differences = {}
    for (name, config), line in zip(SETTINGS.items(), reported, strict=True):
        assert line["exact"]
        assert line["bytes_now"] == now
        assert line["properties"] == {key.replace("_", "."): value for key, value in config.items()}
        true = _log_bytes(written, f"then-{name.replace(':', '-')}")
        differences[name] = line["bytes"] / true - 1
    assert all(abs(each) < 0.02 for each in differences.values()), differences
    assert differences["none"] == 0


def test_producer_with_larger_batches_sends_the_forecast_size(
    written: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reported = _weighed(written, capfd, "--batch-size", "64KiB", "--linger", "60s")
    (line,) = [each for each in reported if each["kind"] == "batching" and each["codec"] is None]
    true, now = _log_bytes(written, "large"), _log_bytes(written, "now")
    assert true < now
    assert line["properties"] == {"batch.size": "65536", "linger.ms": "60000"}
    # this producer is librdkafka, which has its own rule for filling a batch: the number of batches, nine in total, may differ by one
    assert abs(line["bytes"] - true) < 2 * L.BATCH_HEADER < 0.2 * (now - true)


JAVA_SIZES = (16384, 65536)
JAVA_CODECS = ("none", "gzip", "snappy", "zstd")
JAVA_RECORDS = 12_000


@pytest.fixture(scope="module")
def by_java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic for each batch.size and codec of a Java producer that lingers until batches are full, and one, `now`, with small batches."""
    require_kafka()
    pytest.importorskip("confluent_kafka")
    import random

    from tests.kafka.broker import Broker

    made = [*records(random.Random(8), 0, JAVA_RECORDS, 0.6)]
    content = struct.pack(">i", len(made))
    for record in made:
        key, value = record.key or b"", record.value or b""
        content += struct.pack(">qi", record.timestamp_ms, len(key)) + key
        content += struct.pack(">i", len(value)) + value
    settings = {"now": ("none", 2000)} | {
        f"then-{codec}-{size}": (codec, size) for codec in JAVA_CODECS for size in JAVA_SIZES
    }
    words: list[str] = []
    with Broker(tmp_path_factory.mktemp("java") / "broker") as broker:
        for topic, (codec, size) in settings.items():
            broker.create_topic(topic, internal_segment_bytes="", segment_bytes="104857600")
            words += [*(("--",) if words else ()), topic, f"compression.type={codec}", f"batch.size={size}"]
            words += ["linger.ms=60000"]
        run_java("kseg.oracle.Produce", broker.bootstrap, *words, stdin=content).check_returncode()
    return broker.data


def _sizes_and_counts(data: Path, topic: str) -> list[tuple[int, int]]:
    (log,) = (data / f"{topic}-0").glob("*.log")
    with MappedFile(log) as file:
        return [
            size_and_count
            for table in Scanner.over(file).blocks()
            if isinstance(table, Columns)
            for size_and_count in zip(table.column(C.SIZE), table.column(C.COUNT), strict=True)
        ]


class _Starts(RatioEstimator):
    """Each batch starts with the next of these ratios."""

    def __init__(self, ratios: Iterable[float | None]) -> None:
        self._ratios = iter(ratios)

    @property
    def ratio(self) -> float | None:  # type: ignore[override]  # it is read once for each batch
        return next(self._ratios)


def _first_sizes(sampled: Sequence[SampledBatch], codec: str, size: int, early: Collection[int]) -> list[int]:
    """The sizes of kseg's first three batches. early: those that are sent before the next one starts, so that their ratio is known (Kafka:
    ProducerBatch.close)."""
    codec_id, first = read_candidate(codec).codec, None if codec == "none" else 1.0
    assert codec_id is not None
    starts, ratios, sizes = [first], list[float](), list[int]()
    for number in range(3):
        blocks = joined(sampled, size, 60_000, _Starts(chain(starts, repeat(first))))
        (block,) = islice(blocks, number, number + 1)
        packed = compress(codec_id, L.MAGIC_V2, block.content)
        sizes.append(L.BATCH_HEADER + len(packed))
        known = RatioEstimator(first)
        for ratio in ratios:
            known.learn(ratio)
        ratios.append(len(packed) / len(block.content))
        if number in early:
            known.learn(ratios[-1])
        starts.append(known.ratio)
    return sizes


@pytest.mark.parametrize("size", JAVA_SIZES)
@pytest.mark.parametrize("codec", JAVA_CODECS)
def test_simulated_batches_are_filled_as_by_the_java_producer(by_java: Path, codec: str, size: int) -> None:
    """From its first batch on, when nothing is known about the compression ratio. The next batch starts before or after a full one is sent,
    depending on the producer's threads."""
    (log,) = (by_java / "now-0").glob("*.log")
    with MappedFile(log) as file:
        sampled = [
            batch
            for table in Scanner.over(file).blocks()
            if isinstance(table, Columns)
            for batch in sampled_batches(Stretch(file.view, table, range(table.count)), wants_records=True)
        ]
    estimator = RatioEstimator(None if codec == "none" else 1.0)
    output = []
    codec_id = read_candidate(codec).codec
    assert codec_id is not None
    for block in joined(sampled, size, 60_000, estimator):
        packed = compress(codec_id, L.MAGIC_V2, block.content)
        estimator.learn(len(packed) / len(block.content))
        output.append(L.BATCH_HEADER + len(packed))
    true = _sizes_and_counts(by_java, f"then-{codec}-{size}")
    sent = sum(each for each, _ in true)
    assert abs(len(output) - len(true)) <= 0.03 * len(true)
    assert abs(sum(output) - sent) <= 0.015 * sent
    # for these codecs the bytes are those of Java's library
    if codec in ("none", "gzip"):
        early = ((), (0,), (1,), (0, 1)) if codec == "gzip" else ((),)
        assert [each for each, _ in true[:3]] in [_first_sizes(sampled, codec, size, each) for each in early]
    if codec == "none":
        assert output == [each for each, _ in true]
