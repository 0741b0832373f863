"""Groups, transactions and the metadata log read while a real broker writes them: no run ends in a bug, none calls an ordinary transaction hanging
or a partition missing that was there before, and when the broker has stopped the answers are those of a copy that lies still."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any, Self

import pytest

if "CI" not in os.environ:  # there its absence is an error
    pytest.importorskip("confluent_kafka", reason="no broker is started: confluent-kafka is not installed")

from confluent_kafka import Consumer, TopicPartition

from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, commit_offsets
from tests.kafka.conftest import require_kafka

pytestmark = pytest.mark.kafka

ROUNDS = 8
COMMANDS = (
    ["groups"],
    ["transactions", "--max-transaction-timeout-ms", "3600000"],
    ["metadata"],
)


class Writing:
    """A producer of transactions, a committing group, and topics that come and go, until it is stopped."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.rounds = 0
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _write(self) -> None:
        try:
            producer = self._broker.producer(transactional_id="live", linger_ms=0)
            producer.init_transactions(CLIENT_LIMIT_S)
            consumer = Consumer(
                {
                    "bootstrap.servers": self._broker.bootstrap,
                    "group.id": "live",
                    "enable.auto.commit": False,
                    "log_level": 0,
                }
            )
            while not self._ends.is_set():
                producer.begin_transaction()
                for number in range(4):
                    producer.produce("fares", b"v" * 200, partition=number % 2)
                if self.rounds % 3:
                    producer.commit_transaction(CLIENT_LIMIT_S)
                else:
                    producer.flush(CLIENT_LIMIT_S)
                    producer.abort_transaction(CLIENT_LIMIT_S)
                commit_offsets(consumer, [TopicPartition("fares", 0, self.rounds)])
                if self.rounds % 20 == 0:
                    self._broker.create_topic(f"more-{self.rounds}", 2)
                self.rounds += 1
            consumer.close()
        except BaseException as error:  # noqa: BLE001  (told by the test)
            self.error = error


def _rows(
    capfd: pytest.CaptureFixture[str], command: list[str], path: Path
) -> tuple[int, list[dict[str, Any]]]:
    capfd.readouterr()
    status = run([*command, "--json", str(path)])
    return status, [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_reading_while_a_broker_writes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    require_kafka()
    broker = Broker(tmp_path / "broker")
    with broker:
        broker.create_topic("fares", 2)
        with Writing(broker) as writing:
            broker.wait_for("the first round", lambda: writing.rounds > 0 or writing.error is not None)
            for _ in range(ROUNDS):
                before = writing.rounds
                for command in COMMANDS:
                    status, rows = _rows(capfd, command, broker.data)
                    assert status in (0, 1, 5), (command, status)
                    assert not [row for row in rows if row.get("status") == "hanging"]
                    missing = {row["topic"] for row in rows if row.get("status") == "missing"}
                    # of a topic that is being made the metadata log knows before the disk does
                    assert all(name.startswith("more-") for name in missing)
                    assert rows[-1]["type"] == "summary"
                broker.wait_for("another round", lambda: writing.rounds > before or writing.error is not None)  # noqa: B023
        assert writing.error is None
    still = tmp_path / "still"
    shutil.copytree(broker.data, still / "data")
    shutil.move(broker.data, tmp_path / "data")  # so that both have the same name
    for command in COMMANDS:
        status, rows = _rows(capfd, command, tmp_path / "data")
        assert status == 0
        again_status, again = _rows(capfd, command, still / "data")
        assert again_status == status
        kinds = ("group", "offset", "transaction", "producer", "topic", "transactional_id")
        assert [row for row in rows if row["type"] in kinds] == [row for row in again if row["type"] in kinds]
        if command == ["groups"]:
            (offset,) = [row for row in rows if row["type"] == "offset"]
            assert offset["offset"] == writing.rounds - 1
        elif command[0] == "transactions":
            ended = [row for row in rows if row["type"] == "transaction"]
            assert len(ended) == 2 * writing.rounds
            assert sum(row["status"] == "aborted" for row in ended) == 2 * len(range(0, writing.rounds, 3))
        else:
            names = {row["topic"] for row in rows if row["type"] == "topic"}
            assert {f"more-{number}" for number in range(0, writing.rounds, 20)} <= names
