"""A topic with preallocate=true on a real broker that is killed: its active segments end in zeros, which are not damage, and verify's
forecast of the next start comes true, even if a marker claims that the stop was clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.starting import assert_as_foretold, foretold, observed, observed_until_killed
from tests.support.command_rows import rows_of
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

SEGMENT_BYTES = 1 << 20
LOG = f"{0:020d}.log"
MARKER = b'{"version":0,"brokerEpoch":17}'
RECORDS = 50


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a killed broker: partition 0 has records, partition 1 has none."""
    require_kafka()
    root = tmp_path_factory.mktemp("preallocated")
    broker = Broker(root / "broker", root / "node" / "data")

    def is_made(partition: int) -> bool:
        names = {path.name for path in (broker.data / f"ahead-{partition}").glob("*")}
        return {LOG, "leader-epoch-checkpoint", "partition.metadata"} <= names and not any(
            name.endswith(".tmp") for name in names
        )

    broker.start()
    try:
        broker.create_topic(
            "ahead", 2, preallocate="true", segment_bytes=f"{SEGMENT_BYTES}", internal_segment_bytes=""
        )
        producer = broker.producer()
        for number in range(RECORDS):
            producer.produce("ahead", b"value %d" % number, b"key", 0)
        producer.flush(CLIENT_LIMIT_S)
        # a topic is acknowledged when the controller has it; the broker creates the partitions and writes their ids later
        broker.wait_for("the files of both partitions", lambda: all(map(is_made, (0, 1))))
    finally:
        broker.crash()
    return root / "node" / "data"


@pytest.mark.evidence("zero-tail")
def test_preallocated_zeros_are_no_damage(
    killed: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = copy_tree(killed, tmp_path / "node" / "data")
    for partition in (0, 1):
        assert (data / f"ahead-{partition}" / LOG).stat().st_size == SEGMENT_BYTES
        for command in (
            "verify",
            "verify --deep",
            "dump",
            "list",
            "lookup --latest",
            "retain --retention-bytes 1000",
        ):
            rows = rows_of(capfd, *command.split(), data / f"ahead-{partition}", status=0)
            found = {row["id"]: row["severity"] for row in rows if row["type"] == "finding"}
            assert found.get("segment-preallocated", "info") == "info", command
            assert "error" not in found.values(), command
    reported = foretold([data])
    assert reported.node["partitions_truncated"] == []
    assert_as_foretold(reported, observed_until_killed(tmp_path, [data]))
    assert (data / "ahead-0" / LOG).stat().st_size < SEGMENT_BYTES


def test_simulated_load_does_not_scan_preallocated_zeros(killed: Path, tmp_path: Path) -> None:
    """A file that is marked as deleted makes kseg simulate the load."""
    data = copy_tree(killed, tmp_path / "node" / "data")
    (data / "ahead-0" / f"{LOG}.deleted").write_bytes(b"")
    reported = foretold([data])
    start = reported.partitions[data / "ahead-0"]
    assert 0 < start["bytes_to_scan"] < SEGMENT_BYTES and start["outcome"] == "recovered"
    assert_as_foretold(reported, observed_until_killed(tmp_path, [data]))


def test_recover_leaves_preallocated_logs_like_a_broker(killed: Path, tmp_path: Path) -> None:
    ours = copy_tree(killed, tmp_path / "ours" / "data")
    theirs = copy_tree(killed, tmp_path / "theirs" / "data")
    assert run(["recover", "--quiet", "--apply", str(ours)]) == 0
    observed_until_killed(tmp_path / "theirs", [theirs])
    for partition in (0, 1):
        assert (ours / f"ahead-{partition}" / LOG).read_bytes() == (
            theirs / f"ahead-{partition}" / LOG
        ).read_bytes()
    assert run(["undo", "--quiet", str(ours)]) == 0
    assert (ours / "ahead-0" / LOG).read_bytes() == (killed / "ahead-0" / LOG).read_bytes()


def test_preallocated_zeros_under_a_clean_marker_are_an_error(killed: Path, tmp_path: Path) -> None:
    """A broker that trusts the marker reads the zeros as the last batch."""
    data = copy_tree(killed, tmp_path / "node" / "data")
    (data / ".kafka_cleanshutdown").write_bytes(MARKER)
    assert run(["verify", "--quiet", str(data / "ahead-0")]) == 1
    assert_as_foretold(foretold([data]), observed(tmp_path, [data]))
