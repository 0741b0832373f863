"""verify finds no damage in directories of a real broker, whether it is running, stopped or killed."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kseg.cli.main import run
from kseg.compaction.cleaner.options import CleanSettings
from kseg.segment.sidecar.snapshot import decode_snapshot
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, delete_records, watermarks
from tests.kafka.cleaning import real_clean
from tests.kafka.cluster_admin import ClusterAdmin
from tests.kafka.conftest import require_kafka
from tests.kafka.oracle import Oracle
from tests.support.verify_helpers import judge

if TYPE_CHECKING:
    from tests.kafka.scenario import Written

pytestmark = pytest.mark.kafka

CLEANED_OFTEN: dict[str, Any] = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}


@pytest.mark.parametrize("level", ["quick", "default", "deep"])
def test_stopped_broker_leaves_no_errors_or_warnings(everything: Written, level: str) -> None:
    verdict = judge(everything.stopped, level, now_ms=2**42)
    assert verdict.output("error", "warning") == set()


@pytest.mark.parametrize("level", ["quick", "default", "deep"])
def test_copy_of_a_running_broker_is_unclean_but_undamaged(everything: Written, level: str) -> None:
    verdict = judge(everything.live, level, now_ms=2**42)
    assert verdict.output("error", "warning") == set()
    assert "unclean-shutdown" in verdict.ids()
    if level != "quick":
        assert {"index-preallocated", "open-transaction"} <= verdict.ids()


@pytest.mark.evidence("snapshot-missing")
def test_partition_with_all_records_deleted_is_undamaged(tmp_path: Path) -> None:
    """A stopping broker writes no producer snapshot at the log start; if there is a record left, it does."""
    require_kafka()
    with Broker(tmp_path / "broker") as broker:
        broker.create_topic("fares", 2)
        producer = broker.producer(enable_idempotence=True)
        for number in range(10):
            producer.produce("fares", b"%d" % number, partition=number % 2)
        producer.flush()
        for partition, offset in enumerate((5, 4)):
            delete_records(broker.bootstrap, "fares", partition, offset)
    assert [len([*(broker.data / f"fares-{number}").glob("*.snapshot")]) for number in (0, 1)] == [0, 1]
    assert judge(broker.data).ids("error", "warning") == set()
    # after a load the broker knows no producers below the log start, and writes a snapshot without them
    broker.start()
    broker.stop()
    assert [len([*(broker.data / f"fares-{number}").glob("*.snapshot")]) for number in (0, 1)] == [1, 1]
    assert judge(broker.data).ids("error", "warning") == set()
    (broker.data / "fares-1" / f"{5:020d}.snapshot").unlink()
    assert judge(broker.data).output("error", "warning") == {("snapshot-missing", "fares-1")}


@pytest.mark.evidence("recovery-point")
def test_broker_killed_after_deleting_segments_leaves_no_damage(tmp_path: Path) -> None:
    """The recovery point in the checkpoint and the snapshot of the previous stop are then below the first segment. The high watermark of a
    topic that was deleted and created again is beyond the end of its log, as is the cleaner's offset after a life without a cleaner."""
    require_kafka()
    broker = Broker(
        tmp_path / "broker",
        log_flush_offset_checkpoint_interval_ms="3600000",
        replica_high_watermark_checkpoint_interval_ms="3600000",
    )

    def send(number: int, topic: str = "fares") -> None:
        producer = broker.producer(enable_idempotence=True)
        for _ in range(number):
            producer.produce(topic, b"value" * 20, b"key")
            producer.flush()

    broker.start()
    broker.create_topic("fares", 1, internal_segment_bytes="2000")
    broker.create_topic("again", internal_segment_bytes="500", **CLEANED_OFTEN)
    send(13)
    send(13, "again")
    broker.wait_for("the cleaner", lambda: broker.cleaned_up_to("again") > 1)
    broker.stop()
    broker.properties["log.cleaner.enable"] = "false"
    broker.start()
    send(40)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.delete_topics(["again"])["again"].result(CLIENT_LIMIT_S)
    broker.create_topic("again", **CLEANED_OFTEN)
    send(1, "again")
    ends = sorted(int(path.stem) for path in (broker.data / "fares-0").glob("*.log"))
    delete_records(broker.bootstrap, "fares", 0, ends[-1])
    broker.wait_for("the deletion", lambda: len([*(broker.data / "fares-0").glob("*.log")]) == 1)
    broker.crash()
    assert (broker.data / "fares-0" / f"{13:020d}.snapshot").exists()
    verdict = judge(broker.data)
    assert verdict.ids("error", "warning") == set()
    assert {"checkpoint-below-log", "snapshot-leftover", "deleted-directory"} <= verdict.ids()
    high_watermarks = (broker.data / "replication-offset-checkpoint").read_text()
    assert "again 0 13" in high_watermarks
    (deleted,) = broker.data.glob("again-0.*-delete")
    shutil.rmtree(deleted)
    verdict = judge(broker.data)
    assert verdict.output("error") == {("checkpoint-beyond-log", "replication-offset-checkpoint")}
    assert verdict.output("warning") == {("dirty-offset-reset", "cleaner-offset-checkpoint")}
    dirty = broker.cleaned_up_to("again")
    broker.properties["log.cleaner.enable"] = "true"
    with broker:
        reset = f"partition again-0 is {dirty}, which is larger than the log end offset 1. Resetting"
        broker.wait_for("the reset", lambda: reset in broker.log_text())
    assert judge(broker.data).ids("error", "warning") == set()


@pytest.mark.evidence("index-missing")
def test_topic_with_expired_records_is_undamaged(tmp_path: Path) -> None:
    """The indexes of a new active segment do not exist before their first use or a clean stop."""
    require_kafka()
    with Broker(tmp_path / "broker") as broker:
        broker.create_topic("fares", retention_ms="1")
        producer = broker.producer()
        producer.produce("fares", b"expired", timestamp=1)
        producer.flush()
        broker.wait_for("the expiry", lambda: watermarks(broker.bootstrap, "fares", 0) == (1, 1))
        running = broker.copy_data(tmp_path / "running")
    suffixes = {file.suffix for file in (running / "fares-0").glob("*1.*")}
    assert suffixes - {".timeindex"} == {".log", ".snapshot"}
    assert judge(running).ids("error", "warning") == set()
    assert (broker.data / "fares-0" / f"{1:020d}.index").exists()


def test_transactional_offset_commits_are_no_damage(tmp_path: Path) -> None:
    """The coordinator writes each commit with sequence 0."""
    require_kafka()
    with Broker(tmp_path / "broker") as broker:
        broker.create_topic("fares")
        group = broker.consumer("board")
        producer = broker.producer(transactional_id="till")
        producer.init_transactions(CLIENT_LIMIT_S)
        for offset in range(3):
            producer.begin_transaction()
            places = [TopicPartition("fares", 0, offset)]
            producer.send_offsets_to_transaction(places, group.consumer_group_metadata(), CLIENT_LIMIT_S)
            producer.commit_transaction(CLIENT_LIMIT_S)
        group.close()
    assert judge(broker.data / "__consumer_offsets-0").ids() == set()


@pytest.mark.evidence("producer-snapshot")
def test_cleaned_batch_with_an_earlier_timestamp_is_no_mismatch(oracle: Oracle, tmp_path: Path) -> None:
    """The cleaner removes the latest record of a batch; the snapshot after it still has the timestamp of that record."""
    newest_ms = 1_700_000_000_000
    steps: list[dict[str, Any]] = []
    for sequence, keys in ((0, (b"a", b"b")), (2, (b"a", b"c"))):
        records = [{"key": key, "value": b"v" * 99, "timestamp": newest_ms - n} for n, key in enumerate(keys)]
        batch = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence, "records": records}
        steps += [{"what": "append", "batches": oracle.make(batch)}, {"what": "roll"}]
    directory = tmp_path / "accounts-0"
    directory.mkdir()
    oracle.partition(directory, steps, in_place=True, now=newest_ms)
    settings = CleanSettings(now_ms=newest_ms + 1, segment_bytes=300, segment_index_bytes=1 << 20)
    cleaned = real_clean(oracle, directory, settings, None).directory
    (entry,) = decode_snapshot((cleaned / f"{2:020}.snapshot").read_bytes())
    verdict = judge(cleaned)
    assert (entry.timestamp_ms, verdict.sums["records"]) == (newest_ms, 3)
    assert verdict.ids("error", "warning") == set()


@pytest.mark.evidence("producer-snapshot")
def test_producers_expired_within_a_second_are_no_mismatch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The dynamic property is only in the metadata log."""
    require_kafka()
    with Broker(tmp_path / "broker", producer_id_expiration_check_interval_ms="100") as broker:
        admin = ClusterAdmin(broker.bootstrap)
        assert admin.do("config", "BROKER", "", {"producer.id.expiration.ms": "500"}) == {"ok": True}
        admin.close()
        broker.create_topic("fares", 1, internal_segment_bytes="400")
        for _ in range(2):
            producer = broker.producer(enable_idempotence=True)
            for _ in range(4):
                producer.produce("fares", b"value" * 30)
                producer.flush()
            time.sleep(1.5)
    newest = max((broker.data / "fares-0").glob("*.snapshot"))
    # although the log contains all batches of both producers
    assert decode_snapshot(newest.read_bytes()) == ()
    capfd.readouterr()
    assert run(["verify", "--json", str(broker.data)]) == 0
    rows = map(json.loads, capfd.readouterr().out.splitlines())
    assert [row for row in rows if row["type"] == "finding" and row["severity"] != "info"] == []
