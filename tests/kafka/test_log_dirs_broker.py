"""Several data directories of one broker: `verify` reports exactly those combinations with which it does not start."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

# where CI is set, the imports below fail instead of skipping the tests
if "CI" not in os.environ:
    pytest.importorskip("confluent_kafka", reason="no broker is started: confluent-kafka is not installed")

from kseg.cli.main import run
from tests.kafka.broker import Broker, BrokerFailed
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
    run(["verify", "--json", "--quick", str(first), str(second)])
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
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
    run(["verify", "--json", "--quick", str(first), str(second)])
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
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
