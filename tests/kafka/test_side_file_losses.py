"""Side files lost after a clean shutdown: a real broker loses their information, and has it again after `recover`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.metadata_files import decode_meta_properties
from tests.kafka.broker import Broker, BrokerFailed, delete_records, watermarks
from tests.kafka.recovering import recover
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

START = 30
EPOCHS = "leader-epoch-checkpoint"
_ENTRY = 34  # bytes of an entry of a transaction index
LOG_STARTS = "log-start-offset-checkpoint"


def _stopped(capture: Path, root: Path) -> tuple[Path, list[int]]:
    """The capture after a real broker has deleted records of metro-none, and the offsets that were committed to fares-0."""
    data = copy_tree(capture / "data", root / "data")
    with Broker(root / "first", data) as broker:
        delete_records(broker.bootstrap, "metro-none", 0, START)
        committed = _committed(broker)
    assert f"metro-none 0 {START}" in (data / LOG_STARTS).read_text()
    return data, committed


def _committed(broker: Broker) -> list[int]:
    return [record.offset for record in broker.consume("fares", committed=True)]


def _lose(data: Path) -> None:
    (data / LOG_STARTS).write_bytes(b"")
    (data / "recovery-point-offset-checkpoint").write_bytes(b"")
    for snapshot in (data / "fares-0").glob("*.snapshot"):
        snapshot.unlink()
    (data / "fares-0" / EPOCHS).write_bytes(b"")
    _alter_producer(min((data / "fares-0").glob("*.txnindex")))


def _alter_producer(index: Path) -> None:
    """Give the first entry of a transaction index the producer id of the second one."""
    content = bytearray(index.read_bytes())
    first, second = slice(2, 10), slice(_ENTRY + 2, _ENTRY + 10)
    assert content[first] != content[second]
    content[first] = content[second]
    index.write_bytes(content)


def _earliest(broker: Broker) -> int:
    low, _ = watermarks(broker.bootstrap, "metro-none", 0)
    return low


def _written_producers(broker: Broker) -> list[str]:
    return re.findall(
        r"partition=fares-0\] Wrote producer snapshot at offset 117 with (\d+) producer ids",
        broker.log_text(),
    )


@pytest.mark.evidence(
    "snapshot-missing", "epochs-empty", "checkpoint-lost", "log-start-trace", "meta-properties"
)
def test_broker_has_lost_side_file_information_again_after_recover(
    capture_small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, committed = _stopped(capture_small, tmp_path)
    _lose(data)
    assert run(["doctor", str(data)]) == 1
    assert "get records of aborted transactions, and may miss committed ones" in capfd.readouterr().out
    harmed = copy_tree(data, tmp_path / "harmed")
    # without retention, which would delete the old records that have come back before the test reads them
    with Broker(tmp_path / "forgetful", harmed, log_retention_ms="-1") as broker:
        # the deleted records are back
        assert _earliest(broker) == 0
        seen = {*_committed(broker)}
        assert seen - {*committed} and {*committed} - seen
        assert _written_producers(broker) == ["0"]
    assert 0 not in {
        entry.start_offset for entry in decode_leader_epochs((harmed / "fares-0" / EPOCHS).read_bytes())
    }

    identity = decode_meta_properties((data / "meta.properties").read_bytes())
    (data / "meta.properties").write_bytes(b"\0garbage")
    with pytest.raises(BrokerFailed):
        Broker(tmp_path / "nobody", data).start(attempts=1)
    recover("--apply", "--node-id", str(identity.node_id), "--cluster-id", str(identity.cluster_id), data)
    assert run(["verify", "--json", str(data)]) == 0
    with Broker(tmp_path / "knowing", data, log_retention_ms="-1") as broker:
        assert _earliest(broker) == START
        # the broker has read the existing snapshots and written none
        assert _written_producers(broker) == []
        assert "partition=fares-0] Loading producer state from snapshot file" in broker.log_text()
        assert _committed(broker) == committed
    epochs = decode_leader_epochs((data / "fares-0" / EPOCHS).read_bytes())
    assert epochs[0].start_offset == 0
