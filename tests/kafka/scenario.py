"""Data of every kind that a broker writes, and what real consumers read from it.

`write_everything` fills a running broker, reads it back, copies the data directory while the broker runs, stops it cleanly and copies it
again. Any reader of logs can then be compared with the consumers, on a directory with preallocated indexes (live) and on a trimmed one
(stopped).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer, TopicPartition

from tests.kafka.broker import CLIENT_LIMIT_S, Broker, Consumed, commit_offsets

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_MS = 1_700_000_000_000
COMPACTED_KEYS = 20
SINGLE_TOPICS = (*(f"codec-{codec}" for codec in CODECS), "append-time", "transactions", "compacted")


@dataclass(frozen=True, slots=True)
class Written:
    """What the consumers received, by (topic, partition), and the two copies of the data directory."""

    uncommitted: Mapping[tuple[str, int], list[Consumed]]
    committed: Mapping[tuple[str, int], list[Consumed]]
    live: Path
    stopped: Path


def write_everything(broker: Broker, copies: Path) -> Written:
    """Fill the running `broker` and copy its data directory to `copies`/live and `copies`/stopped; leaves the broker stopped."""
    for codec in CODECS:
        _plain(broker, f"codec-{codec}", codec)
    _append_time(broker)
    open_producer = _transactions(broker)
    _compacted(broker)
    _commit_offsets(broker)
    uncommitted = {(topic, 0): broker.consume(topic) for topic in SINGLE_TOPICS}
    committed = {(topic, 0): broker.consume(topic, committed=True) for topic in SINGLE_TOPICS}
    live = broker.copy_data(copies / "live")
    broker.stop()
    # kept until here, because its transaction must still be open in both copies
    del open_producer
    return Written(uncommitted, committed, live, broker.copy_data(copies / "stopped"))


def _plain(broker: Broker, topic: str, codec: str) -> None:
    """Two hundred records in several segments: null and empty keys and values, headers with null values and repeated names."""
    broker.create_topic(topic)
    producer = broker.producer(compression_type=codec)
    for n in range(200):
        key = None if n % 31 == 7 else b"" if n % 31 == 8 else b"key-%d" % (n % 13)
        value = None if n % 37 == 3 else b"" if n % 37 == 4 else _text(n, n % 6 + 1)
        headers: list[tuple[str, str | bytes | None]] = []
        if n % 10 == 0:
            headers = [("trace", b"%d" % n), ("none", None), ("trace", "\u00fc\u20ac".encode()), ("", b"")]
        producer.produce(topic, value, key, 0, timestamp=FIRST_MS + n * 10, headers=headers)
        if n % 15 == 14:
            producer.flush(CLIENT_LIMIT_S)
    producer.flush(CLIENT_LIMIT_S)


def _text(seed: int, lines: int) -> bytes:
    """Text that compresses, but not to nothing; 65 bytes a line."""
    return b"".join(
        hashlib.sha256(b"%d.%d" % (seed, line)).hexdigest().encode() + b"\n" for line in range(lines)
    )


def _append_time(broker: Broker) -> None:
    """The broker sets the timestamps and therefore compresses again; the producer is idempotent."""
    broker.create_topic("append-time", message_timestamp_type="LogAppendTime", compression_type="lz4")
    producer = broker.producer(enable_idempotence=True)
    for n in range(60):
        producer.produce("append-time", b"value %d" % n * 5, b"key-%d" % n, 0, timestamp=FIRST_MS)
        if n % 7 == 6:
            producer.flush(CLIENT_LIMIT_S)
    producer.flush(CLIENT_LIMIT_S)


def _transactions(broker: Broker) -> Producer:
    """Two interleaved producers that commit and abort. A third one leaves its transaction open and is returned."""
    broker.create_topic("transactions", segment_ms="9223372036854775807")
    producers = [
        broker.producer(transactional_id=f"tx-{n}", linger_ms=5, transaction_timeout_ms=7_000_000)
        for n in range(3)
    ]
    for producer in producers:
        producer.init_transactions(CLIENT_LIMIT_S)
    for turn in range(8):
        for number, producer in enumerate(producers[:2]):
            producer.begin_transaction()
            for n in range(turn % 4 + 1):
                value = b"turn %d of %d " % (turn, number) * 8
                producer.produce("transactions", value, b"%d" % n, 0, timestamp=FIRST_MS + turn * 1000 + n)
            producer.flush(CLIENT_LIMIT_S)
        for number, producer in enumerate(producers[:2]):
            if (turn + number) % 3 == 0:
                producer.abort_transaction(CLIENT_LIMIT_S)
            else:
                producer.commit_transaction(CLIENT_LIMIT_S)
    producers[2].begin_transaction()
    producers[2].produce("transactions", b"never decided", b"open", 0, timestamp=FIRST_MS + 9000)
    producers[2].flush(CLIENT_LIMIT_S)
    plain = broker.producer()
    plain.produce("transactions", b"behind the open one", b"plain", 0, timestamp=FIRST_MS + 9001)
    plain.flush(CLIENT_LIMIT_S)
    return producers[2]


def _compacted(broker: Broker) -> None:
    """Few keys, each many times, some as tombstones. Returns when the cleaner has compacted them."""
    broker.create_topic(
        "compacted",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="86400000",
    )
    producer = broker.producer(compression_type="gzip")
    for n in range(600):
        value = None if n % 17 == 3 else _text(n, 2)
        producer.produce("compacted", value, b"key-%d" % (n * 7 % COMPACTED_KEYS), 0)
        if n % 8 == 7:
            producer.flush(CLIENT_LIMIT_S)
    producer.flush(CLIENT_LIMIT_S)

    def everything_cleaned() -> bool:
        active = max((broker.data / "compacted-0").glob("*.log"))
        return int(active.stem) > 0 and broker.cleaned_up_to("compacted") == int(active.stem)

    broker.wait_for("compaction", everything_cleaned)


def _commit_offsets(broker: Broker) -> None:
    """A group with committed offsets, so that __consumer_offsets exists."""
    consumer = broker.consumer("readers")
    commit_offsets(consumer, [TopicPartition("codec-none", 0, 42)])
    consumer.close()
