"""What `doctor` says retention deletes in remote storage after a start, compared with what a real broker deletes then."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._resource import ResourceType

from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.test_tiered_broker import in_store, tiered
from tests.kafka.test_topic_settings import set_configs
from tests.support.command_rows import Rows, of_type, rows_of

pytestmark = pytest.mark.kafka

DAY_MS = 24 * 3600 * 1000
RECORDS, A_SEGMENT = 100, 10
KEEPING = {"log.retention.ms": "-1"}
# the limits of the second start
GIVEN = {"log.retention.bytes": "20000"}
SETTLED_S = 3

# by topic: its configuration, and the age in days of the first and the second half of its records
TOPICS: dict[str, tuple[dict[str, str], tuple[int, int]]] = {
    "expired": ({"local_retention_bytes": "1000000"}, (20, 20)),
    "expired-there": ({"local_retention_bytes": "1"}, (20, 20)),
    "expired-but-the-end": ({"local_retention_bytes": "1"}, (20, 0)),
    "partly": ({"local_retention_bytes": "1000000"}, (20, 0)),
    "fresh": ({"local_retention_bytes": "1"}, (0, 0)),
    "forever": ({"local_retention_bytes": "1", "retention_ms": "-1"}, (20, 20)),
    "large": ({"local_retention_bytes": "1", "retention_bytes": ""}, (0, 0)),
    "not-copied-any-more": ({"local_retention_bytes": "1"}, (20, 20)),
    "without-policy": ({"local_retention_bytes": "1"}, (20, 20)),
    # all of it is here as well
    "within": ({"local_retention_bytes": "60000", "retention_bytes": "60000"}, (0, 0)),
}
TWICE = "within"
# once their segments are in remote storage
CHANGES = {
    "not-copied-any-more": {"remote.log.copy.disable": "true", "local.retention.bytes": "-2"},
    "without-policy": {"cleanup.policy": ""},
}
EMPTIED = ["expired-0", "expired-there-0", "not-copied-any-more-0", "without-policy-0"]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a broker after a clean stop; all segments but the active ones are in remote storage."""
    require_kafka()
    root = tmp_path_factory.mktemp("before")
    with _broker(root, KEEPING) as broker:
        for topic, (config, _) in TOPICS.items():
            wanted: dict[str, Any] = {
                "remote_storage_enable": "true",
                "retention_ms": "",
                "retention_bytes": "-1",
                **config,
            }
            broker.create_topic(topic, **wanted)
        producer, now_ms = broker.producer(compression_type="none"), int(time.time() * 1000)
        for number in range(RECORDS):
            for topic, (_, ages) in TOPICS.items():
                age_ms = ages[number * 2 // RECORDS] * DAY_MS
                producer.produce(topic, b"x" * 500, partition=0, timestamp=now_ms - age_ms + number)
            if number % A_SEGMENT == A_SEGMENT - 1:
                assert producer.flush(CLIENT_LIMIT_S) == 0
        broker.wait_for("the uploads", lambda: all(len(in_store(root, topic)) >= 9 for topic in TOPICS))
        few = [topic for topic, (config, _) in TOPICS.items() if config["local_retention_bytes"] == "1"]
        broker.wait_for("local retention", lambda: all(len(_local(broker.data, each)) == 1 for each in few))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for topic, changes in CHANGES.items():
            set_configs(admin, ResourceType.TOPIC, topic, changes)
    return root


def _broker(root: Path, properties: dict[str, str]) -> Broker:
    broker = tiered(root)
    broker.properties.update({"log.initial.task.delay.ms": "500", **properties})
    return broker


def _local(data: Path, topic: str) -> set[str]:
    return {log.stem for log in (data / f"{topic}-0").glob("*.log")}


def _stored(root: Path) -> dict[str, int]:
    return {topic: len([path for path in in_store(root, topic) if "-0-" in str(path)]) for topic in TOPICS}


def _forecast(capfd: pytest.CaptureFixture[str], root: Path) -> Rows:
    file = root / "given.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in GIVEN.items()))
    words = ("--server-properties", file, root / "broker" / "data")
    return rows_of(capfd, "doctor", *words, status=0)


@pytest.mark.evidence("due-retention")
def test_broker_deletes_the_remote_segments_that_doctor_predicts(
    stopped: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(stopped, tmp_path / "root"))
    rows = _forecast(capfd, root)
    (told,) = of_type(rows, "retention")
    before = _stored(root)
    local = {topic: _local(root / "broker" / "data", topic) for topic in TOPICS}
    with _broker(root, GIVEN) as broker:

        def gone() -> dict[str, int]:
            return {topic: before[topic] - count for topic, count in _stored(root).items()}

        def certain() -> int:
            return sum(count for topic, count in gone().items() if topic != TWICE)

        broker.wait_for("retention", lambda: certain() >= told["remote_segments"])
        time.sleep(SETTLED_S)
        empty = [f"{topic}-0" for topic in sorted(TOPICS) if not broker.consume(topic)]
        deleted = {topic: local[topic] - _local(broker.data, topic) for topic in TOPICS if topic != TWICE}
    assert told["remote_segments"] == certain()
    # a broker counts its local copies as well in some of the starts
    assert gone()[TWICE] in (0, told["remote_segments_at_most"] - told["remote_segments"])
    assert told["remote_segments_at_most"] > told["remote_segments"]
    assert told["segments"] == sum(map(len, deleted.values()))
    assert empty == EMPTIED
    assert (told["partitions_emptied"], told["examples"]) == (len(empty), empty[:3])


def test_step_keeps_what_is_in_remote_storage(
    stopped: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the properties that the step names nothing is deleted, and nothing after the limits were raised."""
    root = Path(shutil.copytree(stopped, tmp_path / "root"))
    steps = of_type(_forecast(capfd, root), "step")
    named = dict(re.findall(r"([a-z]+\.[a-z.]+)=([\w.:]+)", " ".join(step["why"] for step in steps)))
    assert len(steps) == len(named) == 2 and steps[1]["why"].startswith(f"Of {TWICE}-0, ")
    before = _stored(root)
    with _broker(root, {**GIVEN, **named}) as broker:
        time.sleep(2 * SETTLED_S)
        assert _stored(root) == before
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for name in EMPTIED:
            set_configs(admin, ResourceType.TOPIC, name.removesuffix("-0"), {"retention.ms": "-1"})
        set_configs(admin, ResourceType.TOPIC, TWICE, {"retention.bytes": "120000"})
    capfd.readouterr()
    (told,) = of_type(_forecast(capfd, root), "retention")
    with _broker(root, GIVEN) as broker:
        broker.wait_for(
            "retention",
            lambda: sum(before.values()) - sum(_stored(root).values()) >= told["remote_segments"],
        )
        time.sleep(SETTLED_S)
        kept = {name: len(broker.consume(name.removesuffix("-0"))) for name in EMPTIED}
    assert kept == dict.fromkeys(EMPTIED, RECORDS) and told["partitions_emptied"] == 0
    assert (
        _stored(root)[TWICE] == before[TWICE] and told["remote_segments_at_most"] == told["remote_segments"]
    )
