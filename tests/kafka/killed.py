"""A broker that is killed with SIGKILL while it receives transactions in every codec, and what it acknowledged.

Plan: 1. a topic and a transactional producer for each codec; 2. rounds of transactions, every third one aborted; 3. each producer begins
one more transaction and produces without waiting; 4. the broker is killed while those batches arrive. The open transactions have a timeout
of two hours, longer than any test, so a broker that starts on a copy adds no markers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.scenario import CODECS, FIRST_MS

ROUNDS = 9
RECORDS_A_ROUND = 8
OPEN_RECORDS = 400
# The topic settings that recovery depends on, as options of `kseg recover`.
SETTINGS = ("--index-interval-bytes", "4096", "--segment-index-bytes", "262144")
TOPICS = tuple(f"tx-{codec}" for codec in CODECS)


@dataclass(frozen=True, slots=True)
class Killed:
    """data: the directory as the broker left it; copy before writing. acknowledged: by topic, offset → value of every acknowledged record.
    committed: by topic, the values of the committed transactions."""

    data: Path
    acknowledged: Mapping[str, Mapping[int, bytes]]
    committed: Mapping[str, frozenset[bytes]]


@dataclass(slots=True)
class _Notes:
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    committed: set[bytes] = field(default_factory=set)


def produce_and_kill(broker: Broker) -> Killed:
    """Fill the running `broker` and kill it."""
    notes = {topic: _Notes() for topic in TOPICS}
    producers = {topic: _begun(broker, topic) for topic in TOPICS}
    for number in range(ROUNDS):
        for topic, producer in producers.items():
            _round(producer, topic, number, notes[topic])
    for topic, producer in producers.items():
        producer.begin_transaction()
        for n in range(OPEN_RECORDS):
            _produce(producer, topic, b"open %d " % n + _filling(n), n, notes[topic])
    deadline = time.monotonic() + CLIENT_LIMIT_S
    while not all(len(note.acknowledged) > ROUNDS * RECORDS_A_ROUND for note in notes.values()):
        for producer in producers.values():
            producer.poll(0.005)
        assert time.monotonic() < deadline, "nothing of the open transactions arrives"
    broker.crash()
    for producer in producers.values():
        producer.poll(0.2)
        producer.purge()
    return Killed(
        broker.data,
        {topic: note.acknowledged for topic, note in notes.items()},
        {topic: frozenset(note.committed) for topic, note in notes.items()},
    )


def _begun(broker: Broker, topic: str) -> Producer:
    broker.create_topic(
        topic, internal_segment_bytes="20000", index_interval_bytes="4096", segment_ms=f"{2**63 - 1}"
    )
    producer = broker.producer(
        transactional_id=topic,
        compression_type=topic.removeprefix("tx-"),
        linger_ms=2,
        batch_num_messages=10,
        transaction_timeout_ms=7_000_000,
    )
    producer.init_transactions(CLIENT_LIMIT_S)
    return producer


def _round(producer: Producer, topic: str, number: int, note: _Notes) -> None:
    producer.begin_transaction()
    values = [b"round %d record %d " % (number, n) + _filling(n) for n in range(RECORDS_A_ROUND)]
    for n, value in enumerate(values):
        _produce(producer, topic, value, number * 100 + n, note)
    producer.flush(CLIENT_LIMIT_S)
    if number % 3 == 2:
        producer.abort_transaction(CLIENT_LIMIT_S)
    else:
        producer.commit_transaction(CLIENT_LIMIT_S)
        note.committed.update(values)


def _produce(producer: Producer, topic: str, value: bytes, time_ms: int, note: _Notes) -> None:
    def reported(error: object, message: object) -> None:
        if error is None:
            note.acknowledged[message.offset()] = message.value()  # type: ignore[attr-defined]

    producer.produce(topic, value, b"key", 0, timestamp=FIRST_MS + time_ms, on_delivery=reported)


def _filling(n: int) -> bytes:
    """A few hundred compressible bytes."""
    return (b"%d " % (n * 2654435761 % 2**32)) * (10 + n % 20)
