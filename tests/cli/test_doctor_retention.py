"""`doctor` names what retention deletes right after a start; tests/kafka/test_retention_after_start.py asks a broker."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.diseases import bad_crc
from kseg.compaction.retention.due import DueDeletion, due_deletion
from kseg.compaction.retention.options import Limits, RetainOptions
from kseg.jobs.events import Row
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.partition.topic_settings import Setting, Source, TopicSettings
from tests.internal_topics.metadata_logs import config, topic_id
from tests.internal_topics.remote_logs import FINISHED, update, upload, write_remote_log
from tests.support.command_lines import Capfd
from tests.support.command_rows import of_type, rows_of
from tests.support.doctor_helpers import NOW, doctor, text_of
from tests.support.known_topics import append
from tests.support.lock_holders import child, running_broker

EXPIRING = ("fares", "metro-gzip", "metro-lz4")


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    """A log dir in which the records of three topics are older than their limit."""
    made = Path(shutil.copytree(capture_small / "data", tmp_path / "data"))
    append(made, *(config(topic, "retention.ms", "1000") for topic in EXPIRING))
    return made


@pytest.mark.evidence("due-retention")
def test_doctor_names_partitions_that_retention_deletes_completely(data: Path, capfd: Capfd) -> None:
    rows = doctor(capfd, data, status=0)
    names = [f"{topic}-0" for topic in EXPIRING]
    logs = [log for name in names for log in (data / name).glob("*.log")]
    assert of_type(rows, "retention") == [
        {
            "type": "retention",
            "log_dir": str(data),
            "partitions": 3,
            "segments": sum(log.stat().st_size > 0 for log in logs),
            "bytes": sum(log.stat().st_size for log in logs),
            "remote_segments": 0,
            "remote_segments_at_most": 0,
            "remote_bytes": 0,
            "partitions_emptied": 3,
            "examples": names,
            "assumes_default": False,
        }
    ]
    (step,) = of_type(rows, "step")
    assert not step["due"] and ", ".join(names) in step["why"]
    assert step["command"] == f"kseg retain --server-properties server.properties {data}"
    text = text_of(capfd, data)
    assert text[text.index("what retention deletes after it:") + 1].endswith(
        "of 3 partitions; everything in fares-0, metro-gzip-0, metro-lz4-0"
    )
    planned = rows_of(capfd, "retain", *NOW, data, status=1)
    assert {row["partition"] for row in of_type(planned, "result") if row.get("deleted")} == set(names)


def test_partition_that_keeps_records_needs_no_retention_step(data: Path, capfd: Capfd) -> None:
    append(data, *(config(topic, "retention.ms", "-1") for topic in EXPIRING))
    assert not of_type(doctor(capfd, data, status=0), "retention")
    append(data, config("metro-none", "retention.bytes", "5000"))
    rows = doctor(capfd, data, status=0)
    (told,) = of_type(rows, "retention")
    assert (told["partitions"], told["partitions_emptied"], told["examples"]) == (1, 0, [])
    assert not of_type(rows, "step")


def test_damaged_partition_is_not_counted_for_retention(data: Path, capfd: Capfd) -> None:
    """What is left of it depends on the repair. The next examination counts it."""
    bad_crc(max((data / "metro-gzip-0").glob("*.log")))
    (told,) = of_type(doctor(capfd, data, status=1), "retention")
    assert told["examples"] == ["fares-0", "metro-lz4-0"]


def test_running_broker_gets_no_retention_forecast(data: Path, capfd: Capfd) -> None:
    with child(running_broker(data)) as other:
        assert other.output() == "in"
        assert not of_type(doctor(capfd, data, status=0), "retention")
    assert of_type(doctor(capfd, data, status=0), "retention")


def test_unknown_cleanup_policy_gets_no_retention_forecast(data: Path, capfd: Capfd) -> None:
    """Without a metadata log it is unknown whether a topic is compacted."""
    shutil.rmtree(data / "__cluster_metadata-0")
    assert not of_type(doctor(capfd, data, status=0), "retention")


def test_retention_of_segments_in_remote_storage_loses_no_records(data: Path, capfd: Capfd) -> None:
    """Local copies of segments in remote storage are deleted, but no records are lost. Segments not known to be there are kept."""
    target = PartitionTarget(str(data / "fares-0"), str(data))
    values = {"cleanup.policy": "delete", "remote.storage.enable": "true", "retention.ms": "1000"}
    tiered = TopicSettings({name: Setting(value, Source.TOPIC) for name, value in values.items()})

    def due(known: TopicSettings) -> list[object]:
        options = RetainOptions(limits=Limits(), now_ms=int(NOW[1]), topics={target.path: known})
        return [event.result for event in due_deletion(target, options) if isinstance(event, Row)]

    end = max(int(path.stem) for path in (data / "fares-0").glob("*.snapshot"))
    (found,) = due(replace(tiered, remote_end_offset=end))
    assert isinstance(found, DueDeletion) and found.segments and not found.is_everything
    assert due(tiered) == due(replace(tiered, remote_end_offset=0)) == []
    # -2 means the value of retention.ms
    for local, source, is_by_default in (
        ("-2", Source.TOPIC, True),
        ("-2", Source.BUILT_IN, True),
        ("1000", Source.TOPIC, False),
    ):
        settings = {**tiered.settings, "local.retention.ms": Setting(local, source)}
        settings["retention.ms"] = Setting("1000", Source.BUILT_IN)
        (found,) = due(TopicSettings(settings, remote_end_offset=end))
        assert isinstance(found, DueDeletion) and found.is_by_default is is_by_default
    append(data, config("fares", "remote.storage.enable", "true"))
    (told,) = of_type(doctor(capfd, data, status=0), "retention")
    assert told["examples"] == ["metro-gzip-0", "metro-lz4-0"]


def test_doctor_names_what_retention_deletes_in_remote_storage(data: Path, capfd: Capfd) -> None:
    """tests/kafka/test_tiered_expiry.py asks a broker. Here the topic of the remote segments lacks its side files."""
    identity = (data / "fares-0" / "partition.metadata").read_text().split("topic_id: ")[1].strip()
    place, segment = ("fares", identity, 0), topic_id(100)
    logs = sorted((data / "fares-0").glob("*.log"))
    end = int(logs[1].stem)
    copied = [upload(place, segment, 0, end - 1, {0: 0}), update(place, segment, FINISHED)]
    write_remote_log(data / "__remote_log_metadata-0", copied)
    append(data, config("fares", "remote.storage.enable", "true"))
    rows = doctor(capfd, data, status=1)
    (told,) = of_type(rows, "retention")
    assert (told["remote_segments"], told["remote_bytes"]) == (1, end * 100)
    assert told["examples"] == [f"{topic}-0" for topic in EXPIRING]
    (step,) = [each for each in of_type(rows, "step") if not each["due"]]
    assert "for fares-0, start all brokers with rlmm.config." in step["why"]
    assert any(" and 1 in remote storage (" in line for line in text_of(capfd, data))
    # the newest records stay, and so does the log
    append(data, config("fares", "retention.ms", "-1"), config("fares", "retention.bytes", "0"))
    (told,) = of_type(doctor(capfd, data, status=1), "retention")
    assert told["remote_segments"] == 1 and "fares-0" not in told["examples"]
    # within the limit, unless the local copy is counted as well
    within = end * 100 + sum(log.stat().st_size for log in logs[1:])
    append(data, config("fares", "retention.bytes", str(within)))
    rows = doctor(capfd, data, status=1)
    (told,) = of_type(rows, "retention")
    assert (told["remote_segments"], told["remote_segments_at_most"]) == (0, 0)
    append(data, config("fares", "retention.bytes", str(within - end * 100 + logs[0].stat().st_size)))
    (told,) = of_type(rows := doctor(capfd, data, status=1), "retention")
    assert (told["remote_segments"], told["remote_segments_at_most"]) == (0, 1), told
    *_, step = of_type(rows, "step")
    assert step["why"].startswith("Of fares-0, a broker may delete") and "--remote" in step["command"]
    assert any(" and up to 1 in remote storage of " in line for line in text_of(capfd, data))
