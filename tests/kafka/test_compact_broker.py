"""A real broker opens a compacted log: consumers get the same last value for each key as before, and producers continue."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.recovering import recovered_lines
from tests.support.forked_programs import run_kseg
from tests.support.trees import copy_tree

if TYPE_CHECKING:
    from tests.kafka.broker import Consumed
    from tests.kafka.scenario import Written

pytestmark = pytest.mark.kafka


def compact(data: Path, *words: str) -> list[dict[str, Any]]:
    """Run `kseg compact --apply` on a data directory; returns the results of its partitions."""
    done = run_kseg("compact", "--cleanup-policy", "compact", "--json", "--apply", *words, data)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [row for row in rows if row["type"] == "result" and "partition" in row]


def last_values(given: list[Consumed]) -> dict[bytes, tuple[int, bytes]]:
    """The table that a consumer has built at the end of the log."""
    table: dict[bytes, tuple[int, bytes]] = {}
    for record in given:
        if record.key is None:
            continue
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = (record.offset, record.value)
    return table


@pytest.mark.behaviour("C54")
@pytest.mark.behaviour("C59")
def test_broker_serves_and_extends_a_compacted_log(everything: Written, tmp_path: Path) -> None:
    data = copy_tree(everything.stopped, tmp_path / "data")
    results = compact(data, "--include-active", "--map-memory", "1MiB")
    assert sum(result["superseded_records"] for result in results) > 500
    with Broker(tmp_path / "broker", data) as broker:
        assert recovered_lines(broker) == []
        for (topic, partition), given in everything.committed.items():
            now = broker.consume(topic, partition, committed=True)
            assert last_values(now) == last_values(given), topic
            assert {record.offset for record in now} <= {record.offset for record in given}, topic
            producer = broker.producer()
            producer.produce(topic, b"on", b"a new key")
            assert producer.flush(CLIENT_LIMIT_S) == 0
            assert broker.consume(topic, partition)[-1].key == b"a new key"


def test_broker_serves_compacted_transactions_of_many_producers(tmp_path: Path) -> None:
    """Random transactions on a few keys, compacted three times with an advancing clock. The broker writes in between."""
    rng = random.Random(20)
    with Broker(tmp_path / "broker") as broker:
        broker.create_topic("table", internal_segment_bytes="3000")
        _write(broker, rng)
        given = broker.consume("table", committed=True)
        broker.stop()
        copy = broker.copy_data(tmp_path / "data-0")
    for number, now in enumerate(("2030-01-01", "2031-01-01", "2032-01-01")):
        compact(copy, "--topic", "table", "--include-active", "--now", now)
        with Broker(tmp_path / f"broker-{number}", copy) as broker:
            assert recovered_lines(broker) == []
            assert last_values(broker.consume("table", committed=True)) == last_values(given)
            _write(broker, rng)
            given = broker.consume("table", committed=True)
            broker.stop()
            copy = broker.copy_data(tmp_path / f"data-{number + 1}")


def _write(broker: Broker, rng: random.Random) -> None:
    producers = [
        broker.producer(transactional_id=f"tx-{n}", compression_type=codec)
        for n, codec in enumerate(("none", "lz4", "zstd"))
    ]
    for producer in producers:
        producer.init_transactions(CLIENT_LIMIT_S)
    for n in range(40):
        producer = rng.choice(producers)
        producer.begin_transaction()
        for _ in range(rng.randint(1, 6)):
            value = None if rng.random() < 0.15 else b"%d " % n + bytes(rng.randrange(60))
            producer.produce("table", value, b"key-%d" % rng.randrange(12))
        if rng.random() < 0.3:
            producer.abort_transaction(CLIENT_LIMIT_S)
        else:
            producer.commit_transaction(CLIENT_LIMIT_S)
