"""Read while a real broker writes. For groups, transactions and the metadata log: no run ends as a bug, none reports an ordinary
transaction as hanging or an existing partition as missing, and when the broker has stopped, the answers equal those for a copy. For logs
that the broker rolls, cleans and deletes meanwhile: none is reported as damaged."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, commit_offsets
from tests.kafka.conftest import require_kafka
from tests.support.command_rows import of_type, rows_of
from tests.support.doctor_helpers import commands

pytestmark = pytest.mark.kafka

ROUNDS = 8
COMMANDS = (
    ["groups"],
    ["transactions", "--max-transaction-timeout-ms", "3600000"],
    ["metadata"],
)


class Writing:
    """A producer of transactions, a group that commits, and topics that are created and deleted, until stopped."""

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
            consumer = self._broker.consumer("live", enable_auto_commit=False)
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


def test_commands_read_correctly_while_a_broker_writes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
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
                    # the metadata log contains a new topic before its directories exist
                    assert all(name.startswith("more-") for name in missing)
                    assert rows[-1]["type"] == "summary"
                broker.wait_for("another round", lambda: writing.rounds > before or writing.error is not None)  # noqa: B023
        assert writing.error is None
    still = tmp_path / "still"
    shutil.copytree(broker.data, still / "data")
    # so that both have the same name
    shutil.move(broker.data, tmp_path / "data")
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


DELETED = {"retention_bytes": "20000", "file_delete_delay_ms": "200"}
CLEANED = {"min_cleanable_dirty_ratio": "0.01", "segment_ms": "1000", "file_delete_delay_ms": "200"}


class Rolling(Writing):
    """A transactional producer that makes logs roll, and topics that are deleted as soon as they have records."""

    def _write(self) -> None:
        try:
            producer = self._broker.producer(transactional_id="rolling", linger_ms=0)
            producer.init_transactions(CLIENT_LIMIT_S)
            admin = AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
            while not self._ends.is_set():
                producer.begin_transaction()
                for number in range(12):
                    topic = ("deleted", "cleaned", "both")[number % 3]
                    producer.produce(topic, b"v" * 300, key=b"%d" % (self.rounds % 7), partition=number % 2)
                if self.rounds % 3:
                    producer.commit_transaction(CLIENT_LIMIT_S)
                else:
                    producer.flush(CLIENT_LIMIT_S)
                    producer.abort_transaction(CLIENT_LIMIT_S)
                if self.rounds % 10 == 0:
                    self._broker.create_topic(f"short-lived-{self.rounds}")
                elif self.rounds % 10 == 5:
                    for future in admin.delete_topics([f"short-lived-{self.rounds - 5}"]).values():
                        future.result(CLIENT_LIMIT_S)
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001  (told by the test)
            self.error = error


def test_files_that_a_running_broker_changes_are_not_damage(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    broker = Broker(
        tmp_path / "broker",
        log_segment_delete_delay_ms="300",
        log_retention_check_interval_ms="200",
        log_cleaner_backoff_ms="50",
        log_initial_task_delay_ms="100",
    )
    with broker:
        broker.create_topic("deleted", 2, **DELETED)
        broker.create_topic("cleaned", 2, cleanup_policy="compact", **CLEANED)
        broker.create_topic("both", 2, cleanup_policy="compact,delete", **{**DELETED, **CLEANED})
        with Rolling(broker) as rolling:
            for number in range(1, 5):
                # so that segments are deleted and cleaned
                enough = 30 * number
                broker.wait_for("records", lambda: rolling.rounds > enough or rolling.error is not None)  # noqa: B023
                for level in ([], ["--deep"], ["--quick"], ["--jobs", "2"]):
                    status, rows = _rows(capfd, ["verify", *level], broker.data)
                    told = [
                        row
                        for row in rows
                        if row["type"] == "error" or row.get("severity") in ("error", "warning")
                    ]
                    assert (status, told) == (0, []), level
        assert rolling.error is None
    assert not [*(broker.data / "deleted-0").glob(f"{0:020d}.log")], "nothing was deleted meanwhile"


@pytest.mark.evidence("segment-missing")
def test_log_that_was_deleted_under_a_running_broker_is_copied_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The broker serves it as long as it runs. `verify` and `doctor` used to say nothing before it had stopped, and then nothing had the
    records."""
    require_kafka()
    broker, records = Broker(tmp_path / "broker"), [f"{number:02d}" * 200 for number in range(60)]
    with broker:
        broker.create_topic("fares", 1, index_interval_bytes="400")
        producer = broker.producer(batch_num_messages=2)
        for value in records:
            producer.produce("fares", value, partition=0)
        producer.flush(CLIENT_LIMIT_S)
        partition = broker.data / "fares-0"
        first, second, *_ = sorted(partition.glob("*.log"))
        size, mtime_ns = first.stat().st_size, first.stat().st_mtime_ns
        first.unlink()
        rows = rows_of(capfd, "doctor", broker.data, status=1)
        (lost,) = (row for row in of_type(rows, "finding") if row["id"] == "segment-missing")
        assert (lost["first_offset"], lost["last_offset"]) == (0, int(second.stem) - 1)
        copy, stop, *_ = commands(rows)
        assert copy.startswith("find /proc/") and stop.startswith("kafka-server-stop.sh")
        # a disk that becomes full: what has been copied is not taken for the log
        subprocess.run(f"trap '' XFSZ; ulimit -f 1; {copy}", shell=True, check=True)
        assert not first.exists()
        assert commands(rows_of(capfd, "doctor", broker.data, status=1))[0] == copy
        subprocess.run(copy, shell=True, check=True)
        assert (first.stat().st_size, first.stat().st_mtime_ns) == (size, mtime_ns)
        assert [path.name for path in partition.iterdir() if "copying" in path.name] == []
        assert commands(rows_of(capfd, "doctor", broker.data, status=0)) == []
    with broker:
        assert [record.value for record in broker.consume("fares")] == [each.encode() for each in records]
