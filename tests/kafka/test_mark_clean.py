"""The clean-shutdown marker and the checkpoints of a data directory, both checked by a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.broker import Broker, BrokerFailed
from tests.kafka.killed import TOPICS, Killed
from tests.kafka.recovering import damage, recover, recovered_lines
from tests.support.trees import copy_tree, unchanged

pytestmark = pytest.mark.kafka

MARKER = ".kafka_cleanshutdown"
RECOVERY = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"


def _entries(checkpoint: Path) -> dict[str, int]:
    lines = checkpoint.read_text().splitlines()[2:]
    return {"-".join(line.split()[:2]): int(line.split()[2]) for line in lines}  # by partition


def _consumed(broker: Broker, killed: Killed, topic: str) -> bool:
    given = {record.offset: record.value for record in broker.consume(topic)}
    return killed.acknowledged[topic].items() <= given.items()


def _complete_rolls(data: Path) -> None:
    """Create the indexes of a segment in whose roll the broker was killed, which may happen or not. Behind a marker kseg does not ask for
    the indexes of an empty segment, and a broker recovers it, which changes nothing."""
    for log in data.glob("*/*.log"):
        if not log.stat().st_size:
            for suffix in (".index", ".timeindex"):
                log.with_suffix(suffix).touch()


@pytest.mark.evidence("clean-marker", "marker-without-epoch")
def test_broker_does_not_recover_a_directory_marked_clean(killed: Killed, tmp_path: Path) -> None:
    """A killed, recovered and marked directory: the broker trusts the marker, and the logs are valid."""
    data = copy_tree(killed.data, tmp_path / "data")
    assert not (data / MARKER).exists()
    rows = recover("--apply", "--mark-clean", data)
    ends = {
        row["partition"]: row["log_end_offset"]
        for row in rows
        if row["type"] == "result" and "partition" in row and row["partition"] != "__cluster_metadata-0"
    }
    assert _entries(data / RECOVERY) == ends
    with Broker(tmp_path / "broker", data) as broker:
        text = broker.log_text()
        assert f"Skipping recovery of {len(ends)} logs" in text
        assert "since no clean shutdown file was found" not in text
        assert recovered_lines(broker) == []
        # the marker has no broker epoch, so the controller does not take the stop for a clean one (KIP-966)
        assert "Unable to read the broker epoch" in text
        assert all(_consumed(broker, killed, topic) for topic in TOPICS)


@pytest.mark.parametrize("policy", ["kafka", "salvage"])
def test_log_killed_during_a_roll_gets_its_missing_indexes(
    killed: Killed, tmp_path: Path, policy: str
) -> None:
    """The files of a new segment are created one after the other: log and snapshot exist, the indexes do not."""
    data = copy_tree(killed.data, tmp_path / "data")
    recover("--apply", "--mark-clean", data)
    (data / MARKER).unlink()
    for topic in TOPICS:
        partition = data / f"{topic}-0"
        end = _entries(data / RECOVERY)[f"{topic}-0"]
        # unless the broker was killed during a roll itself: then it replays the segment before
        assert (partition / f"{end:020}.snapshot").exists() or (partition / f"{end:020}.log").exists()
        (partition / f"{end:020}.log").touch()
        for suffix in ("index", "timeindex"):
            (partition / f"{end:020}.{suffix}").unlink(missing_ok=True)
    rows = recover("--policy", policy, "--apply", "--mark-clean", data)
    created = {row["file"] for row in rows if row["type"] == "step" and row["partition"] == f"{TOPICS[0]}-0"}
    assert {Path(name).suffix for name in created} == {".index", ".timeindex"}
    with Broker(tmp_path / "broker", data) as broker:
        assert recovered_lines(broker) == []
        assert all(_consumed(broker, killed, topic) for topic in TOPICS)


@pytest.mark.evidence("false-marker")
def test_marker_of_a_crashed_directory_is_true_after_the_repair(killed: Killed, tmp_path: Path) -> None:
    """Somebody put the marker into a directory after a crash, and a broker would read the zeros in the indexes."""
    data = copy_tree(killed.data, tmp_path / "data")
    _complete_rolls(data)
    damage(data)
    (data / MARKER).write_bytes(b'{"version":0,"brokerEpoch":7}')
    rows = recover("--apply", data)
    assert any(row["type"] == "result" and row.get("log_dir") for row in rows)
    assert (data / MARKER).read_bytes() == b""
    with Broker(tmp_path / "broker", data) as broker:
        assert recovered_lines(broker) == []
        assert _consumed(broker, killed, TOPICS[0])


def test_mark_clean_of_one_partition_alone_is_refused(killed: Killed, tmp_path: Path) -> None:
    """The run is refused with a list of the partitions that were not checked, and nothing is written."""
    data = copy_tree(killed.data, tmp_path / "data")
    with unchanged(data):
        recover("--apply", "--mark-clean", "--topic", TOPICS[0], data, status=4)


def test_planning_mark_clean_writes_nothing(killed: Killed, tmp_path: Path) -> None:
    data = copy_tree(killed.data, tmp_path / "data")
    with unchanged(data):
        rows = recover("--mark-clean", data, status=1)
    steps = [row["file"] for row in rows if row["type"] == "step" and "offset-checkpoint" in row["file"]]
    # a broker that is killed while it writes a checkpoint also leaves a .tmp file; one that is killed within five seconds has not written
    # high watermarks yet
    empty = {HIGH_WATERMARK} if not (data / HIGH_WATERMARK).stat().st_size else set[str]()
    assert {name for name in steps if not name.endswith(".tmp")} == {RECOVERY} | empty


@pytest.mark.evidence("checkpoint-unreadable")
@pytest.mark.parametrize("name", [RECOVERY, HIGH_WATERMARK])
def test_unreadable_checkpoint_stops_a_broker_until_it_is_recovered(
    killed: Killed, tmp_path: Path, name: str
) -> None:
    data = copy_tree(killed.data, tmp_path / "data")
    (data / name).write_text("0\n9\ntx-none 0 1\n")
    broken = Broker(tmp_path / "broken", copy_tree(data, tmp_path / "copy"))
    with pytest.raises(BrokerFailed):
        broken.start(attempts=1)
    assert "Error while reading checkpoint file" in broken.log_text()
    rows = recover("--apply", data)
    assert "checkpoint-corrupt" in [row["id"] for row in rows if row["type"] == "finding"]
    with Broker(tmp_path / "broker", data) as broker:
        assert _consumed(broker, killed, TOPICS[0])


@pytest.mark.evidence("recovery-point", "log-start", "checkpoint-orphan")
def test_repaired_checkpoints_equal_those_a_broker_writes(killed: Killed, tmp_path: Path) -> None:
    """Recovery points beyond the end, in the middle of the log, and of a missing partition; and a log start inside a segment."""
    data = copy_tree(killed.data, tmp_path / "data")
    damage(data)
    points = {"tx-none": 5, "tx-gzip": 10_000, "tx-snappy": 30, "gone": 7}
    lines = "".join(f"{topic} 0 {offset}\n" for topic, offset in points.items())
    (data / RECOVERY).write_text(f"0\n{len(points)}\n{lines}")
    (data / "log-start-offset-checkpoint").write_text("0\n2\ntx-lz4 0 3\ntx-zstd 0 0\n")
    theirs = copy_tree(data, tmp_path / "theirs")
    recover("--policy", "kafka", "--apply", data)
    broker = Broker(tmp_path / "broker", theirs)
    broker.start()
    broker.wait_for("checkpoints", lambda: "gone-0" not in _entries(theirs / RECOVERY))
    broker.wait_for(
        "checkpoints", lambda: "tx-zstd-0" not in _entries(theirs / "log-start-offset-checkpoint")
    )
    broker.crash()
    theirs_now = _entries(theirs / RECOVERY)
    ours = _entries(data / RECOVERY)
    assert {name: ours.get(name, 0) for name in theirs_now} == theirs_now
    assert ours.keys() <= theirs_now.keys() and 5 < ours["tx-gzip-0"] < 10_000
    starts = _entries(data / "log-start-offset-checkpoint")
    assert {name: offset for name, offset in starts.items() if offset} == {"tx-lz4-0": 3}
    assert _entries(theirs / "log-start-offset-checkpoint") == {"tx-lz4-0": 3}
