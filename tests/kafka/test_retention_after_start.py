"""What `doctor` says retention deletes right after a start, compared with what a real broker deletes then."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint, encode_offset_checkpoint
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.support.command_rows import of_type, rows_of

pytestmark = pytest.mark.kafka

DAY_MS = 24 * 3600 * 1000
LATER = {
    "log_initial_task_delay_ms": "3600000",
    "log_retention_check_interval_ms": "3600000",
    # the cleaner also deletes from topics that are compacted
    "log_cleaner_enable": "false",
}
SOON = {"log_initial_task_delay_ms": "500", "log_retention_check_interval_ms": "300"}
SETTLED_S = 2
ROLLS = {"internal_segment_bytes": "", "segment_ms": str(DAY_MS // 2)}

# by topic: its configuration, and the age of its records in days
TOPICS: dict[str, tuple[dict[str, str], tuple[int, ...]]] = {
    "expired": ({"retention_ms": ""}, (40, 30, 20)),
    "partly": ({"retention_ms": ""}, (40, 20, 0)),
    "fresh": ({"retention_ms": ""}, (0, 0)),
    "forever": ({"retention_ms": "-1"}, (40, 20)),
    "of-an-hour": ({"retention_ms": "3600000"}, (3, 2, 1)),
    "compacted": ({"retention_ms": "", "cleanup_policy": "compact"}, (40, 20)),
    "both": ({"retention_ms": str(10 * DAY_MS), "cleanup_policy": "compact,delete"}, (40, 20, 1)),
    "both-expired": ({"retention_ms": str(10 * DAY_MS), "cleanup_policy": "compact,delete"}, (40, 20)),
    "limited": ({"retention_ms": "-1", "retention_bytes": "200"}, (40, 20, 0)),
    "empty": ({"retention_ms": ""}, ()),
}
EMPTIED = ("both-expired", "expired", "of-an-hour")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir after a clean stop, with the high watermarks of a backup that was begun before the records arrived. Records that are days
    apart are in different segments."""
    with Broker(tmp_path_factory.mktemp("before"), None, **LATER) as broker:
        now_ms = int(time.time() * 1000)
        for topic, (config, ages) in TOPICS.items():
            broker.create_topic(topic, 1, **{**ROLLS, **config})
            producer = broker.producer()
            for number, days in enumerate(ages):
                producer.produce(topic, b"v" * 100, key=str(number), timestamp=now_ms - days * DAY_MS)
                assert producer.flush(CLIENT_LIMIT_S) == 0
    high_watermarks = broker.data / "replication-offset-checkpoint"
    entries = decode_offset_checkpoint(high_watermarks.read_bytes())
    high_watermarks.write_bytes(encode_offset_checkpoint([each._replace(offset=0) for each in entries]))
    return broker.data


def segments(data: Path) -> dict[str, set[str]]:
    """The live segments of each topic by base offset."""
    return {topic: {log.stem for log in (data / f"{topic}-0").glob("*.log")} for topic in TOPICS}


@pytest.mark.evidence("due-retention")
@pytest.mark.parametrize(
    ("given", "emptied"),
    [
        ({}, ["both-expired", "expired", "of-an-hour"]),
        ({"log.retention.ms": "-1"}, ["both-expired", "of-an-hour"]),
        ({"log.retention.hours": "600"}, ["both-expired", "of-an-hour"]),
        (
            {
                "log.retention.bytes": "150",
                "log.cleaner.enable": "false",
            },  # then nothing deletes from compact,delete topics
            ["expired", "of-an-hour"],
        ),
    ],
)
def test_broker_deletes_the_segments_that_doctor_predicts(
    stopped: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    given: dict[str, str],
    emptied: list[str],
) -> None:
    data = tmp_path / "data"
    shutil.copytree(stopped, data)
    file = tmp_path / "given.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    words = ("--server-properties", file) if given else ()
    rows = rows_of(capfd, "doctor", *words, data, status=0)
    (told,) = of_type(rows, "retention")
    before = segments(data)
    with Broker(tmp_path / "broker", data, **given, **SOON) as broker:

        def deleted() -> dict[str, set[str]]:
            return {topic: gone for topic, names in segments(data).items() if (gone := before[topic] - names)}

        broker.wait_for("retention", lambda: sum(map(len, deleted().values())) >= told["segments"])
        time.sleep(SETTLED_S)
        gone = deleted()
        # without the active segment that a broker creates when it deletes all others
        empty = sorted(topic for topic in gone if before[topic] == gone[topic] and not broker.consume(topic))
    assert (told["partitions"], told["segments"]) == (len(gone), sum(map(len, gone.values())))
    assert (told["partitions_emptied"], told["examples"]) == (len(empty), [f"{topic}-0" for topic in empty])
    assert empty == emptied
    assert told["assumes_default"] is (not given)
    (step,) = of_type(rows, "step")
    assert not step["due"]
    assert all(f"{topic}-0" in step["why"] for topic in empty) and step["command"].startswith("kseg retain ")


def test_properties_of_the_step_delay_retention_for_an_hour(
    stopped: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the properties that the step names, nothing is deleted, although retention and the cleaner would run every 300 ms."""
    data = tmp_path / "data"
    shutil.copytree(stopped, data)
    (step,) = of_type(rows_of(capfd, "doctor", data, status=0), "step")
    named = re.findall(r"(log\.[a-z.]+)=(\w+)", step["why"])
    assert [name for name, _ in named] == ["log.initial.task.delay.ms", "log.cleaner.enable"]
    before = segments(data)
    with Broker(
        tmp_path / "broker", data, **{**SOON, **{name.replace(".", "_"): value for name, value in named}}
    ):
        time.sleep(2 * SETTLED_S)
        assert segments(data) == before


def test_retain_unmark_restores_segments_deleted_before_the_stop(
    stopped: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The broker deleted before it was stopped: `retain --unmark` restores what it marked, active segments included."""
    data = tmp_path / "data"
    shutil.copytree(stopped, data)
    before = segments(data)
    with Broker(tmp_path / "broker", data, **SOON) as broker:
        broker.wait_for("retention", lambda: all(before[topic] - segments(data)[topic] for topic in EMPTIED))
    for topic in EMPTIED:
        rows_of(capfd, "retain", "--unmark", "--apply", data / f"{topic}-0", status=0)
    with Broker(tmp_path / "broker", data, **LATER) as broker:
        for topic in EMPTIED:
            offsets = [record.offset for record in broker.consume(topic)]
            assert offsets == list(range(len(TOPICS[topic][1])))
