"""Producer snapshots as older brokers wrote them after a marker. Before 2.4, `timestamp_ms` is that of the producer's newest batch; before
1.0, `last_offset` is that of the marker.

The entries are those that real brokers left for such a log at a clean stop and when they rolled, with other timestamps: 2.1.1 and 1.1.1,
and 0.11.0.3. A 2.4.1 broker writes the time of the marker and the offset of the batch.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.support.verify_helpers import judge

T0 = 1_700_000_000_000
DATA_MS, MARKER_MS = T0 + 99, T0 + 540


def data(offset: int, epoch: int = 0) -> bytes:
    records = tuple(Record(offset + at, T0 + at, b"k", b"v") for at in range(100))
    fields = {"transactional": True, "producer_id": 8, "producer_epoch": epoch, "base_sequence": 0}
    return encode_batch(NewBatch(records=records, leader_epoch=0, **fields))  # type: ignore[arg-type]


def marker(offset: int, epoch: int = 0) -> bytes:
    return encode_batch(end_transaction_batch(EndTransactionMarker(False, 0, MARKER_MS), offset, 8, epoch, 0))


def partition(directory: Path, timestamp_ms: int, batches: bytes, entry: ProducerSnapshotEntry) -> Path:
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(batches)
    snapshot = encode_snapshot([entry._replace(timestamp_ms=timestamp_ms)])
    (directory / f"{101:020d}.snapshot").write_bytes(snapshot)
    assert decode_snapshot(snapshot)[0].timestamp_ms == timestamp_ms
    return directory


def warnings(directory: Path) -> set[str]:
    return judge(directory).ids("error", "warning") & {"snapshot-mismatch"}


ENDED = ProducerSnapshotEntry(8, 0, 99, 99, 99, 0, 0, None)


@pytest.mark.parametrize(
    ("timestamp_ms", "found"),
    [(DATA_MS, set()), (MARKER_MS, set()), (DATA_MS + 1, {"snapshot-mismatch"}), (-1, {"snapshot-mismatch"})],
)
def test_snapshot_may_have_the_timestamp_of_the_batch_before_a_marker(
    tmp_path: Path, timestamp_ms: int, found: set[str]
) -> None:
    directory = partition(tmp_path / "tx-0", timestamp_ms, data(0) + marker(100), ENDED)
    assert warnings(directory) == found


@pytest.mark.parametrize(
    ("timestamp_ms", "found"),
    [(-1, set()), (MARKER_MS, set()), (DATA_MS, {"snapshot-mismatch"})],
)
def test_snapshot_without_a_batch_of_the_markers_epoch_may_lack_a_timestamp(
    tmp_path: Path, timestamp_ms: int, found: set[str]
) -> None:
    """The marker of a new epoch, as for a fenced producer, removes the batches of its entry. Without a batch, the time in such a broker's
    entry is -1."""
    fenced = ENDED._replace(producer_epoch=1, last_sequence=-1, last_offset=-1, offset_delta=0)
    directory = partition(tmp_path / "tx-0", timestamp_ms, data(0) + marker(100, epoch=1), fenced)
    assert warnings(directory) == found


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, set()),
        ({"last_offset": 98}, {"snapshot-mismatch"}),
        ({"offset_delta": 99}, {"snapshot-mismatch"}),
        ({"last_sequence": 98}, {"snapshot-mismatch"}),
        ({"coordinator_epoch": 7}, {"snapshot-mismatch"}),
    ],
)
def test_snapshot_may_have_a_marker_as_the_last_batch(
    tmp_path: Path, change: dict[str, int], found: set[str]
) -> None:
    entry = ENDED._replace(last_offset=100, offset_delta=0)._replace(**change)
    directory = partition(tmp_path / "tx-0", MARKER_MS, data(0) + marker(100), entry)
    assert warnings(directory) == found
