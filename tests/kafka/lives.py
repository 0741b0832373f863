"""Random histories of a broker ("lives"): topics of every kind, several clients, transactions, deletions of records and topics, changed
settings, clean stops and kills. The broker's housekeeping (retention, cleaning, deletion of files) runs all the time.

A life is drawn from its seed. The timing of the housekeeping is not, so a repeated life differs in details.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions

from tests.kafka.broker import CLIENT_LIMIT_S, Broker, commit_offsets, delete_records, watermarks
from tests.kafka.scenario import CODECS

INTERVAL = "1024"
# less than a segment
BATCH_BYTES = 1500
_SETTINGS: dict[str, tuple[str, ...]] = {
    "cleanup.policy": ("delete", "delete", "compact", "compact,delete"),
    "compression.type": ("producer", "producer", "producer", "gzip", "zstd", "lz4", "snappy", "uncompressed"),
    "message.timestamp.type": ("CreateTime", "CreateTime", "CreateTime", "LogAppendTime"),
    "internal.segment.bytes": ("2000", "6000", "20000"),
    "min.cleanable.dirty.ratio": ("0.01", "0.5"),
    "delete.retention.ms": ("0", "100", "86400000"),
    "min.compaction.lag.ms": ("0", "0", "1000"),
    "retention.bytes": ("-1", "-1", "10000"),
    "retention.ms": ("-1", "-1", "3000"),
    "file.delete.delay.ms": ("100", "60000"),
    "preallocate": ("false", "false", "false", "true"),
    "flush.messages": ("9223372036854775807", "1", "7"),
}
_ALTERABLE = ("cleanup.policy", "compression.type", "retention.bytes", "retention.ms", "delete.retention.ms")


class Life:
    """A broker with one or two data directories below `root`. done: the operations so far. partitions: the number of partitions of each
    topic."""

    def __init__(self, seed: int, root: Path) -> None:
        self.rng = rng = random.Random(f"life {seed}")
        self.is_killed = seed % 2 == 0
        self.log_dirs = [root / f"data{number}" for number in range(rng.choice((1, 1, 2)))]
        self.done: list[str] = []
        self.properties = {
            "log.dirs": ",".join(map(str, self.log_dirs)),
            "log.index.interval.bytes": INTERVAL,
            "log.flush.offset.checkpoint.interval.ms": rng.choice(("300", "60000")),
            "log.flush.start.offset.checkpoint.interval.ms": rng.choice(("300", "60000")),
        }
        self.broker = Broker(root / "broker", self.log_dirs[0], **self.properties)
        self.broker.is_apart |= self.is_killed
        self.partitions: dict[str, int] = {}
        self._named = 0
        self._open: list[Producer] = []

    def live(self) -> None:
        """Start, do a few operations, and end with a stop or a kill."""
        rng, first = self.rng, not self.done
        self.broker.start()
        for _ in range(rng.randint(2, 3) if first else 0):
            self._create_topic()
        for _ in range(rng.randint(6, 16)):
            step = rng.choices(*zip(*self._steps(), strict=True))[0]
            self.done.append(step.__name__.strip("_"))
            step()
        if self.is_killed and rng.random() < 0.7:
            self.done.append("killed")
            self._produce_on()
            self.broker.crash()
        else:
            self.done.append("stopped")
            self.broker.stop()
        for producer in self._open:
            producer.purge()
        self._open.clear()

    def _steps(self) -> list[tuple[Callable[[], None], int]]:
        return [
            (self._produce, 10),
            (self._transactions, 6),
            (self._open_transaction, 1),
            (self._delete_records, 3),
            (self._change_settings, 2),
            (self._create_topic, 1),
            (self._delete_topic, 1),
            (self._add_partitions, 1),
            (self._commit_offsets, 1),
        ]

    def _a_partition(self) -> tuple[str, int]:
        topic = self.rng.choice(sorted(self.partitions))
        return topic, self.rng.randrange(self.partitions[topic])

    # --- clients

    def _produce(self) -> None:
        """Produce with random client settings, and wait until everything is acknowledged."""
        rng = self.rng
        producer = self.broker.producer(
            compression_type=rng.choice(CODECS),
            enable_idempotence=rng.random() < 0.5,
            linger_ms=5,
            batch_num_messages=rng.choice((1, 7, 1000)),
            batch_size=BATCH_BYTES,
        )
        for _ in range(rng.choice((1, 1, 3))):
            self._send(producer, rng.choice((1, 5, 40, 120)))
            producer.flush(CLIENT_LIMIT_S)

    def _transactions(self) -> None:
        rng = self.rng
        producer = self._begun()
        for _ in range(rng.choice((1, 2, 5))):
            producer.begin_transaction()
            self._send(producer, rng.choice((0, 1, 5, 30)))
            producer.flush(CLIENT_LIMIT_S)
            if rng.random() < 0.4:
                producer.abort_transaction(CLIENT_LIMIT_S)
            else:
                producer.commit_transaction(CLIENT_LIMIT_S)

    def _open_transaction(self) -> None:
        """A transaction that is undecided when the broker ends. The broker aborts it when its producer comes back."""
        producer = self._begun()
        producer.begin_transaction()
        self._send(producer, 5)
        producer.flush(CLIENT_LIMIT_S)
        self._open.append(producer)

    def _produce_on(self) -> None:
        """Produce batches that may still be arriving when the broker is killed."""
        producer = self.broker.producer(linger_ms=1, batch_num_messages=5, compression_type="lz4")
        self._send(producer, self.rng.choice((0, 300)))
        producer.poll(self.rng.choice((0, 0.01, 0.05)))
        self._open.append(producer)

    def _begun(self) -> Producer:
        producer = self.broker.producer(
            transactional_id=f"tx-{self.rng.randrange(4)}",
            compression_type=self.rng.choice(CODECS),
            linger_ms=5,
            batch_size=BATCH_BYTES,
            transaction_timeout_ms=7_000_000,
        )
        producer.init_transactions(CLIENT_LIMIT_S)
        return producer

    def _send(self, producer: Producer, count: int) -> None:
        rng = self.rng
        topic, partition = self._a_partition()
        for _ in range(count):
            if rng.random() < 0.05:
                topic, partition = self._a_partition()
            value = (
                None if rng.random() < 0.15 else rng.randbytes(rng.choice((0, 10, 100))) * rng.choice((1, 3))
            )
            headers: list[tuple[str, str | bytes | None]] = [("h", rng.choice((None, b"", b"v")))]
            key = b"key-%d" % rng.randrange(12)
            producer.produce(topic, value, key, partition, headers=headers if rng.random() < 0.2 else [])

    def _commit_offsets(self) -> None:
        group = f"group-{self.rng.randrange(3)}"
        consumer = self.broker.consumer(group)
        commit_offsets(consumer, [TopicPartition(*self._a_partition(), self.rng.randrange(50))])
        consumer.close()

    # --- administration

    def _administer(self, ask: Callable[[AdminClient], Mapping[Any, Future[Any]]]) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        for future in ask(admin).values():
            future.result(CLIENT_LIMIT_S)

    def _delete_records(self) -> None:
        """Delete records before an existing offset: consumers cannot have seen any other."""
        topic, partition = self._a_partition()
        low, high = watermarks(self.broker.bootstrap, topic, partition)
        # fails for a compacted topic
        with suppress(KafkaException):
            delete_records(
                self.broker.bootstrap,
                topic,
                partition,
                self.rng.choice((low, high, self.rng.randint(low, high))),
            )

    def _change_settings(self) -> None:
        rng = self.rng
        topic, _ = self._a_partition()
        name = rng.choice(_ALTERABLE)
        entry = ConfigEntry(name, rng.choice(_SETTINGS[name]), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._administer(lambda admin: admin.incremental_alter_configs([resource]))

    def _create_topic(self) -> None:
        rng = self.rng
        chosen = {name.replace(".", "_"): rng.choice(values) for name, values in _SETTINGS.items()}
        topic = f"topic-{self._named}"
        self._named += 1
        self.partitions[topic] = rng.randint(1, 3)
        self.broker.create_topic(topic, self.partitions[topic], **chosen, index_interval_bytes="")

    def _delete_topic(self) -> None:
        if len(self.partitions) > 2:
            topic, _ = self._a_partition()
            del self.partitions[topic]
            self._administer(lambda admin: admin.delete_topics([topic]))

    def _add_partitions(self) -> None:
        topic, _ = self._a_partition()
        self.partitions[topic] += 1
        more = NewPartitions(topic, self.partitions[topic])
        self._administer(lambda admin: admin.create_partitions([more]))
