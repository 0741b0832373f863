"""Several data directories of one broker: `verify` reports exactly those combinations with which it does not start."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, BrokerFailed
from tests.kafka.shared_java import run_java
from tests.support.command_rows import of_type, rows_of
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

IDENTITY = {"node.id": "1", "cluster.id": "Mz9XvQe1R0mU7bTq2LkP5w", "directory.id": "AsCu_Qd6HlJL_AROE7wUxg"}
FUTURE = f"fares-0.{'0123456789abcdef' * 2}-future"


def _second(root: Path, first: Path, partition: str, **identity: str) -> Path:
    made = root / "second"
    shutil.copytree(first / "fares-0", made / partition)
    values = IDENTITY | {key.replace("_", "."): value for key, value in identity.items()}
    (made / "meta.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in (values | {"version": "1"}).items())
    )
    return made


@pytest.mark.evidence("partition-twice", "directory-id-twice", "log-dirs-mixed")
@pytest.mark.parametrize(
    ("kind", "partition", "identity", "word"),
    [
        ("partition-twice", "fares-0", {}, "Duplicate log directories for fares-0"),
        (
            "directory-id-twice",
            "other-0",
            {"directory_id": "UsCu_Qd6HlJL_AROE7wUxg"},
            "Duplicate directory ID",
        ),
        ("log-dirs-mixed", "other-0", {"node_id": "2"}, "doesn't match previous node id"),
        ("log-dirs-mixed", "other-0", {"cluster_id": "Nz9XvQe1R0mU7bTq2LkP5w"}, "Invalid cluster.id"),
        ("", FUTURE, {}, ""),
    ],
)
def test_verify_reports_log_dirs_with_which_the_broker_does_not_start(
    kind: str,
    partition: str,
    identity: dict[str, str],
    word: str,
    capture_small: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    first = copy_tree(capture_small / "data", tmp_path / "first")
    second = _second(tmp_path, first, partition, **identity)
    rows = rows_of(capfd, "verify", "--quick", first, second)
    kinds = ("partition-twice", "directory-id-twice", "log-dirs-mixed")
    assert [row["id"] for row in rows if row.get("id") in kinds] == [kind] * bool(kind)
    broker = Broker(tmp_path / "broker", first, log_dirs=f"{first},{second}")
    if not word:
        with broker:
            return
    with pytest.raises(BrokerFailed):
        broker.start(attempts=1)
    assert word in broker.log_text()


@pytest.mark.evidence("partition-twice")
def test_link_to_a_partition_of_another_log_dir_counts_as_a_duplicate(
    capture_small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = copy_tree(capture_small / "data", tmp_path / "first")
    second = _second(tmp_path, first, "fares-0")
    shutil.rmtree(second / "fares-0")
    (second / "fares-0").symlink_to(first / "fares-0")
    rows = rows_of(capfd, "verify", "--quick", first, second)
    assert [row["path"] for row in rows if row.get("id") == "partition-twice"] == [str(second / "fares-0")]
    assert [
        row["path"] for row in rows if str(row.get("path")).endswith("fares-0") and row["type"] == "verified"
    ] == [str(first / "fares-0")]
    assert any(
        "Duplicate log directories for fares-0" in _failed_start(first, second, tmp_path / f"{attempt}")
        for attempt in range(3)
    )


def _failed_start(first: Path, second: Path, place: Path) -> str:
    """The log of a broker that does not start with copies of two log dirs. Its threads load both at once. If they share a log, the first
    may delete a file that the other has listed, and that log dir is offline before the broker sees the partition twice."""
    dirs = [copy_tree(each, place / each.name) for each in (first, second)]
    link = dirs[1] / "fares-0"
    link.unlink()
    link.symlink_to(dirs[0] / "fares-0")
    broker = Broker(place / "broker", dirs[0], log_dirs=",".join(map(str, dirs)))
    with suppress(BrokerFailed), broker:
        pass
    return broker.log_text()


@pytest.mark.evidence("checkpoint-lost")
def test_new_broker_without_topics_leaves_valid_log_dirs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A clean stop writes no high watermarks if there are no replicas, so that file stays empty."""
    places = [tmp_path / "first", tmp_path / "second"]
    with Broker(tmp_path / "broker", places[0], log_dirs=",".join(map(str, places))):
        pass
    for place in places:
        assert (place / ".kafka_cleanshutdown").exists()
        assert not (place / "replication-offset-checkpoint").stat().st_size
        assert run(["verify", str(place)]) == 0, capfd.readouterr().out
    assert run(["recover", *map(str, places)]) == 0, capfd.readouterr().out


@pytest.mark.evidence("broker-start")
def test_partition_in_another_log_dir_than_the_lost_one_has_no_leader_until_the_step_of_doctor(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One of the partitions of the second log dir was moved to the first one by hand; then that disk failed."""
    first, second = tmp_path / "first", tmp_path / "second"
    broker = Broker(tmp_path / "broker", first, log_dirs=f"{first},{second}")

    def led() -> set[str]:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        found = admin.list_topics("fares", timeout=CLIENT_LIMIT_S).topics["fares"].partitions
        return {f"fares-{number}" for number, partition in found.items() if partition.leader == 1}

    def reported() -> dict[str, int]:
        """In which of the log dirs the controller knows each partition."""
        rows = of_type(rows_of(capfd, "metadata", "--topic", "fares", first, status=0), "partition")
        known = {f"fares-{row['partition']}": row["directories"][0] for row in rows}
        return {name: ids.index(at) for name, at in known.items() if at in ids}

    with broker:
        broker.create_topic("fares", 4)
        files = [log_dir / "meta.properties" for log_dir in (first, second)]
        ids = [file.read_text().partition("directory.id=")[2].split()[0] for file in files]
        broker.wait_for("the reports of the log dirs", lambda: len(reported()) == 4)
    moved, lost = sorted(place.name for place in second.glob("fares-*"))
    (second / moved).rename(first / moved)
    second.rename(tmp_path / "failed")
    second.touch()
    given = ("--server-properties", tmp_path / "broker" / "server.properties", first, second)
    rows = rows_of(capfd, "doctor", *given, status=1)
    (start,) = of_type(rows, "broker-start")
    assert (start["partitions_leaderless"], start["partitions_offline"]) == ([moved], [lost])
    (step,) = [row for row in of_type(rows, "step") if "elect" in row["command"]]
    assert f"elect a leader for {moved}. " in step["why"]
    with broker:
        there = {f"fares-{number}" for number in range(4)} - {moved, lost}
        broker.wait_for("the leaders", lambda: there <= led())
        broker.wait_for("the report of the other log dir", lambda: reported().get(moved) == 0)
        # it may come before the controller lets the broker lead
        is_led = moved in led()
        words = step["command"].split()[3:]
        done = run_java(
            "org.apache.kafka.tools.LeaderElectionCommand", "--bootstrap-server", broker.bootstrap, *words
        )
        assert is_led or f"(PREFERRED) for partitions {moved}" in done.stdout, done
        broker.wait_for("the last leader", lambda: led() == there | {moved})
