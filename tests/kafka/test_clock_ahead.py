"""What a clock that was ahead leaves: segments that retention has deleted, whose files are there until the next start, and transactions
that time out in the far future. After the steps of `doctor` a broker serves the records again, and consumers do not wait for the
transaction. The tests take more than ten seconds because the broker starts twice in a process of its own."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.cluster_admin import ClusterAdmin
from tests.kafka.conftest import require_kafka
from tests.kafka.shared_java import run_java
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

TOPIC, RECORDS = "orders", 300
DAY_MS = 86_400_000


def steps_at(now_ms: int, data: Path, capfd: pytest.CaptureFixture[str], word: str) -> list[str]:
    """The commands of doctor with this word, on a machine with this time."""
    rows = rows_of(capfd, "doctor", "--now", now_ms, data)
    return [row["command"] for row in rows if row["type"] == "step" and word in row["command"]]


@pytest.mark.evidence("deleted-early")
def test_doctor_restores_what_retention_deleted_by_a_clock_that_was_ahead(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    broker = Broker(tmp_path / "broker").apart()
    partition = broker.data / f"{TOPIC}-0"
    try:
        broker.start()
        broker.create_topic(TOPIC)
        producer = broker.producer()
        for number in range(RECORDS):
            producer.produce(TOPIC, b"value %d" % number * 10)
            if number % 30 == 29:
                producer.flush()
        admin = ClusterAdmin(broker.bootstrap)
        try:
            # as if a day had passed for the broker, and for nobody else
            admin.do("config", "TOPIC", TOPIC, {"retention.ms": "1"})
            broker.wait_for("the deletion", lambda: [*partition.glob("0*0.log.deleted")] != [])
            admin.do("config", "TOPIC", TOPIC, {"retention.ms": "-1"})
        finally:
            admin.close()
        broker.crash()
        now_ms = int(time.time() * 1000)
        assert steps_at(now_ms, broker.data, capfd, "--unmark") == []
        (step,) = steps_at(now_ms - DAY_MS, broker.data, capfd, "--unmark")
        assert run(shlex.split(step)[1:]) == 0
        broker.start()
        found = broker.consume(TOPIC)
        assert [record.value for record in found] == [b"value %d" % number * 10 for number in range(RECORDS)]
    finally:
        if broker.is_running():
            broker.abandon()


def test_doctor_ends_a_transaction_that_began_in_the_future(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    broker = Broker(tmp_path / "broker").apart()
    command = "forceTerminateTransaction"
    try:
        broker.start()
        broker.create_topic(TOPIC)
        producer = broker.producer(transactional_id="billing", transaction_timeout_ms=3_600_000)
        producer.init_transactions(CLIENT_LIMIT_S)
        producer.begin_transaction()
        producer.produce(TOPIC, b"open", partition=0)
        producer.flush()
        broker.crash()
        now_ms = int(time.time() * 1000)
        assert steps_at(now_ms, broker.data, capfd, command) == []
        # as on a machine whose clock is right, while that of the broker was a day ahead
        (step,) = steps_at(now_ms - DAY_MS, broker.data, capfd, command)
        broker.start()
        _, _, _, *words = shlex.split(step)
        main = "org.apache.kafka.tools.TransactionsCommand"
        broker.wait_for(
            "the coordinator",
            lambda: not run_java(main, "--bootstrap-server", broker.bootstrap, *words).returncode,
        )
        after = broker.producer()
        after.produce(TOPIC, b"after", partition=0)
        after.flush()
        broker.wait_for(
            "the abort", lambda: [each.value for each in broker.consume(TOPIC, committed=True)] == [b"after"]
        )
    finally:
        if broker.is_running():
            broker.abandon()
