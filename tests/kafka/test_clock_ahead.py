"""Segments that retention has deleted by a clock that was ahead: until the next start their files are there, and after the step of `doctor`
a broker serves their records again. The test takes more than ten seconds because the broker starts twice in a process of its own."""

from __future__ import annotations

import json
import os
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

# where CI is set, the imports below fail instead of skipping the tests
if "CI" not in os.environ:
    pytest.importorskip("confluent_kafka", reason="no broker is started: confluent-kafka is not installed")

from kseg.cli.main import run
from tests.kafka.broker import Broker
from tests.kafka.cluster_admin import ClusterAdmin
from tests.kafka.conftest import require_kafka

pytestmark = pytest.mark.kafka

TOPIC, RECORDS = "orders", 300
DAY_MS = 86_400_000


def steps_at(now_ms: int, data: Path, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """The commands of doctor that restore segments, on a machine with this time."""
    capfd.readouterr()
    assert run(["doctor", "--json", "--now", str(now_ms), str(data)]) in (0, 1)
    rows: list[dict[str, Any]] = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return [row["command"] for row in rows if row["type"] == "step" and "--unmark" in row["command"]]


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
        assert steps_at(now_ms, broker.data, capfd) == []
        (step,) = steps_at(now_ms - DAY_MS, broker.data, capfd)
        assert run(shlex.split(step)[1:]) == 0
        broker.start()
        found = broker.consume(TOPIC)
        assert [record.value for record in found] == [b"value %d" % number * 10 for number in range(RECORDS)]
    finally:
        if broker.is_running():
            broker.abandon()
