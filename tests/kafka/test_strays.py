"""A real 4.3.1 broker renames those directories as stray that `verify` predicts; after recover it keeps them."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kseg.cli.main import run
from kseg.segment.partition.names import METADATA_DIRECTORY
from tests.cli.test_known_topics import STRAYS
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.support.command_rows import of_type, rows_of
from tests.support.doctor_helpers import commands
from tests.support.forked_programs import run_kseg
from tests.support.known_topics import FILE, ids, set_id

pytestmark = pytest.mark.kafka


def forecast(data: Path) -> dict[str, set[str]]:
    """The directories that `kseg verify` names, by finding."""
    done = run_kseg("verify", "--quick", "--json", data)
    found: dict[str, set[str]] = {}
    for row in map(json.loads, done.stdout.splitlines()):
        if row.get("id") in ("becomes-stray", "topic-id-conflict", "replica-missing"):
            found.setdefault(row["id"], set()).add(Path(row["path"]).name)
    return found


def directories(data: Path) -> set[str]:
    return {path.name for path in data.iterdir() if path.is_dir()}


@pytest.mark.evidence("metadata-log-outdated")
def test_partitions_newer_than_a_restored_metadata_log_keep_their_topic_ids(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A topic was deleted and created again after the backup, and each start has raised the leader epochs. kseg used to advise giving the
    new partitions the id of the deleted topic."""
    require_kafka()
    broker = Broker(tmp_path / "broker")
    with broker:
        for topic in ("kept", "again"):
            broker.create_topic(topic)
    data = broker.data
    shutil.copytree(data / METADATA_DIRECTORY, backup := tmp_path / "backup")
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for future in admin.delete_topics(["again"]).values():
            future.result(CLIENT_LIMIT_S)
        broker.create_topic("again")
        producer = broker.producer()
        for topic in ("kept", "again"):
            producer.produce(topic, b"a record", partition=0)
        producer.flush()
    assert not commands(rows_of(capfd, "doctor", data, status=0))
    newer = (data / METADATA_DIRECTORY).rename(tmp_path / "newer")
    shutil.copytree(backup, data / METADATA_DIRECTORY)
    rows = rows_of(capfd, "doctor", data, status=1)
    (outdated,) = [row for row in rows if row.get("id") == "metadata-log-outdated"]
    assert outdated["message"].startswith(
        "1 of 1 partition has later leader epochs than this metadata log (first: kept-0 has 2, "
    )
    assert commands(rows) == [
        r"find / -type d \( -name '__cluster_metadata-0*' -o -name '*-__cluster_metadata-0*' \) -not -empty -not -path '*.kseg-copying*'",
        f"kseg doctor {data}",
    ]
    shutil.copytree(data, stale := tmp_path / "stale")
    with Broker(tmp_path / "stale-broker", stale) as started:
        started.wait_for("the stray", lambda: "marked stray" in started.log_text())
        assert started.consume("again") == []
    shutil.rmtree(data / METADATA_DIRECTORY)
    newer.rename(data / METADATA_DIRECTORY)
    with broker:
        assert [record.value for record in broker.consume("again")] == [b"a record"]


@pytest.mark.evidence("topic-id-known", "replica-missing")
def test_broker_renames_the_strays_of_the_forecast(capture_small: Path, tmp_path: Path) -> None:
    """All cases in one directory. Two with a conflicting topic id are not renamed: one has the id of another topic, the other is a copy
    under a name that no topic has. One partition is missing, and the broker creates it."""
    require_kafka()
    data = shutil.copytree(capture_small / "data", tmp_path / "data")
    damaged = {make(data) for make in STRAYS}
    set_id(data / "fares-0", ids(data)["metro-snappy"])
    shutil.copytree(data / "metro-snappy-0", data / "renamed-0")
    gone = "__transaction_state-0"
    shutil.rmtree(data / gone)
    conflicts = {"fares-0", "renamed-0"}
    assert forecast(data) == {
        "becomes-stray": damaged,
        "topic-id-conflict": conflicts,
        "replica-missing": {gone},
    }
    before = directories(data)
    with Broker(tmp_path / "broker", data) as broker:
        broker.wait_for("the strays", lambda: "marked stray" in broker.log_text())
        # created again, empty
        made = {"metro-none-0", "metro-lz4-0", "stations-0", gone}
        broker.wait_for("the partitions", lambda: made <= directories(data))
        strays = {name for name in directories(data) if name.endswith("-stray")}
        assert {name.partition(".")[0] for name in strays} == {name.partition(".")[0] for name in damaged}
        assert len(strays) == len(damaged)
        assert before - directories(data) == damaged - made
        assert broker.consume("metro-none") == []
        assert [log.stat().st_size for log in (data / gone).glob("*.log")] == [0]
        assert "InconsistentTopicIdException" in broker.log_text()


@pytest.mark.evidence("replica-missing", "marker-without-epoch")
def test_broker_creates_a_missing_replica_despite_a_clean_marker(capture_small: Path, tmp_path: Path) -> None:
    """The state that recover leaves beside a missing replica: because of the marker, the other logs need no recovery, and the marker has no
    broker epoch."""
    require_kafka()
    data = shutil.copytree(capture_small / "data", tmp_path / "data")
    shutil.rmtree(data / "metro-zstd-0")
    (data / "metro-none-0" / f"{0:020}.index").unlink()
    assert run_kseg("recover", "--apply", "--mark-clean", "--quiet", data).returncode == 1
    with Broker(tmp_path / "broker", data) as broker:
        broker.wait_for("the replica", lambda: (data / "metro-zstd-0").exists())
        text = broker.log_text()
        assert "Skipping recovery of" in text and "Unable to read the broker epoch" in text
        assert broker.consume("metro-zstd") == [] and len(broker.consume("metro-none")) == 160


@pytest.mark.evidence("topic-id-missing")
def test_broker_serves_a_partition_whose_topic_id_recover_restored(
    capture_small: Path, tmp_path: Path
) -> None:
    require_kafka()
    data = shutil.copytree(capture_small / "data", tmp_path / "data")
    (data / "metro-none-0" / FILE).unlink()
    (data / "metro-lz4-0" / FILE).write_bytes(
        b""
    )  # a 4.3.1 broker fails on an empty one (NullPointerException)
    set_id(data / "metro-zstd-0", "CQkJCQkJCQkJCQkJCQkJCQ")
    recover = ("recover", "--apply", "--quiet")
    zstd = ("--topic-id", ids(data)["metro-zstd"], data / "metro-zstd-0")
    assert run_kseg(*recover, *zstd).returncode == 0
    assert run_kseg(*recover, data).returncode == 0
    assert forecast(data) == {}
    with Broker(tmp_path / "broker", data) as broker:
        for topic in ("metro-none", "metro-lz4", "metro-zstd"):
            assert len(broker.consume(topic)) == 160
        assert not [name for name in directories(data) if name.endswith("-stray")]


@pytest.mark.evidence("suffixed-directory")
def test_log_of_a_deleted_topic_is_served_under_another_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The topic was created again after its deletion. The step of doctor keeps the records of both."""
    broker = Broker(tmp_path / "broker")
    data = broker.data

    def send(topic: str, value: bytes) -> None:
        producer = broker.producer()
        producer.produce(topic, value)
        assert producer.flush(CLIENT_LIMIT_S) == 0

    with broker:
        broker.create_topic("orders")
        send("orders", b"old")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.delete_topics(["orders"])["orders"].result(CLIENT_LIMIT_S)
        for topic in ("orders", "former"):
            broker.create_topic(topic)
            send(topic, b"new")
    rows = rows_of(capfd, "doctor", data, status=0)
    (step,) = [row for row in of_type(rows, "step") if row["command"].startswith("mv ")]
    assert "create a topic with another name" in step["why"]
    _, deleted, place = shlex.split(step["command"])
    shutil.rmtree(data / "former-0")
    Path(deleted).rename(place)
    Path(place).rename(data / "former-0")
    rows = rows_of(capfd, "doctor", data, status=1)
    for command in commands(rows):
        if "--apply" in command:
            run(shlex.split(command)[1:])
    with broker:
        assert [[each.value for each in broker.consume(topic)] for topic in ("orders", "former")] == [
            [b"new"],
            [b"old"],
        ]
