"""Generate partitions and load them with policy kafka."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fixtures.healthy import T0
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.change.plan.content import Fresh, Span
from kseg.change.plan.inputs import inputs_of
from kseg.recovery.loading.loader import load_as_broker
from kseg.recovery.policy import BrokerState, LoadSettings, Repair
from kseg.segment import layout as L
from kseg.segment.model import Batch, NewBatch, Record
from kseg.segment.partition.names import segment_file_name
from kseg.segment.scanning.batches import scan
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.index import OffsetIndex, TimeIndex
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from kseg.segment.sidecar.txn_index import AbortedTxn, TxnIndex
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.support.trees import unchanged

INTERVAL_BYTES = 200


@dataclass(frozen=True)
class Loaded:
    """A partition after the load and a clean shutdown. files: by name."""

    repair: Repair
    files: dict[str, bytes]

    def names(self, suffix: str) -> list[int]:
        """The offsets of the files of a kind."""
        return sorted(int(name.split(".")[0]) for name in self.files if name.endswith(suffix))

    @property
    def segments(self) -> list[int]:
        return self.names(L.LOG_SUFFIX)

    @property
    def snapshots(self) -> list[int]:
        return self.names(L.SNAPSHOT_SUFFIX)

    def file(self, base_offset: int, suffix: str) -> bytes:
        return self.files[segment_file_name(base_offset, suffix)]

    def batches(self) -> list[Batch]:
        """All batches of the log; fails on damage."""
        found = []
        for base in self.segments:
            for block in scan(self.file(base, L.LOG_SUFFIX), base):
                assert isinstance(block, Batch)
                found.append(block)
        return found

    def offset_index(self, base_offset: int) -> OffsetIndex:
        return OffsetIndex(self.file(base_offset, L.OFFSET_INDEX_SUFFIX), base_offset)

    def time_index(self, base_offset: int) -> TimeIndex:
        return TimeIndex(self.file(base_offset, L.TIME_INDEX_SUFFIX), base_offset)

    def aborted(self, base_offset: int) -> list[AbortedTxn]:
        name = segment_file_name(base_offset, L.TXN_INDEX_SUFFIX)
        return list(TxnIndex(self.files.get(name, b""), base_offset))

    def producers(self, offset: int) -> dict[int, ProducerSnapshotEntry]:
        """The producers in a snapshot."""
        return {entry.producer_id: entry for entry in decode_snapshot(self.file(offset, L.SNAPSHOT_SUFFIX))}

    @property
    def epochs(self) -> list[tuple[int, int]]:
        entries = decode_leader_epochs(self.files["leader-epoch-checkpoint"])
        return [(entry.epoch, entry.start_offset) for entry in entries]

    @property
    def findings(self) -> set[str]:
        return {finding.id for finding in self.repair.findings}


def load(
    directory: Path,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start: int = 0,
    now_ms: int = T0,
    rebuild: bool = False,
    index_bytes: int = 4000,
) -> Loaded:
    """Load a directory, check that it stays unchanged, and return the result."""
    around = BrokerState(is_clean=clean, recovery_point=recovery_point, log_start_offset=log_start)
    settings = LoadSettings(
        now_ms=now_ms, index_interval_bytes=INTERVAL_BYTES, segment_index_bytes=index_bytes
    )
    with unchanged(directory):
        repair = load_as_broker(str(directory), inputs_of(str(directory)), around, settings, rebuild=rebuild)
    return Loaded(repair, {name: _content(directory, repair, name) for name in repair.image})


def apply(directory: Path, loaded: Loaded) -> None:
    """Write the result of the load into the directory."""
    for path in directory.iterdir():
        path.unlink()
    for name, data in loaded.files.items():
        (directory / name).write_bytes(data)


def _content(directory: Path, repair: Repair, name: str) -> bytes:
    parts = []
    for piece in repair.image.content(name):
        if isinstance(piece, Span):
            parts.append((directory / piece.name).read_bytes()[piece.position : piece.end_position])
        else:
            assert isinstance(piece, Fresh)
            parts.append(piece.data)
    return b"".join(parts)


def partition(parent: Path, segments: dict[int, list[NewBatch]], name: str = "metro-0") -> Path:
    """A partition as after a clean shutdown, its segments by base offset."""
    directory = parent / name
    parent.mkdir(exist_ok=True)
    rules = RollRules(index_interval_bytes=INTERVAL_BYTES, segment_index_bytes=4000)
    first = min(segments, default=0)
    with PartitionWriter(directory, start_offset=first, rules=rules) as writer:
        for base, batches in sorted(segments.items()):
            if base != first:
                writer.roll(base)
            for batch in batches:
                writer.append(batch)
    return directory


def data(
    offset: int, count: int = 1, *, epoch: int = 0, time_ms: int | None = None, size: int = 60
) -> NewBatch:
    """A plain batch."""
    at = T0 + offset * 1000 if time_ms is None else time_ms
    records = tuple(
        Record(offset + row, at + row, b"k%d" % (offset % 3), b"v" * size) for row in range(count)
    )
    return NewBatch(records=records, leader_epoch=epoch)


def produced(
    offset: int,
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    producer_epoch: int = 0,
    transactional: bool = False,
    time_ms: int | None = None,
) -> NewBatch:
    """A batch of an idempotent or transactional producer."""
    at = T0 + offset * 1000 if time_ms is None else time_ms
    records = tuple(Record(offset + row, at, b"k", b"value") for row in range(count))
    return NewBatch(
        records=records,
        leader_epoch=0,
        transactional=transactional,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )


def marker(
    offset: int, producer_id: int, *, abort: bool, producer_epoch: int = 0, coordinator_epoch: int = 0
) -> NewBatch:
    """The end of a transaction."""
    end = EndTransactionMarker(abort, coordinator_epoch, T0 + offset * 1000)
    return end_transaction_batch(end, offset, producer_id, producer_epoch, 0)


def one_each(count: int, first: int = 0) -> dict[int, list[NewBatch]]:
    """Segments of one record each."""
    return {base: [data(base)] for base in range(first, first + count)}


def log_file(directory: Path, base_offset: int, suffix: str = L.LOG_SUFFIX) -> Path:
    return directory / segment_file_name(base_offset, suffix)


def damage(path: Path, position: int) -> None:
    """Overwrite some bytes."""
    content = bytearray(path.read_bytes())
    content[position : position + 4] = bytes(byte ^ 0xFF for byte in content[position : position + 4])
    path.write_bytes(content)


def remove(directory: Path, *suffixes: str) -> None:
    """Remove all files of these kinds."""
    for path in list(directory.iterdir()):
        if path.name.endswith(suffixes):
            path.unlink()


def two_segments(parent: Path) -> Path:
    """Offsets 0 to 19 in batches of two, 20 to 31 in batches of one."""
    return partition(
        parent,
        {0: [data(offset, 2) for offset in range(0, 20, 2)], 20: [data(offset) for offset in range(20, 32)]},
    )


def entry(
    producer_id: int, current_txn_first_offset: int | None = None, **changes: int
) -> ProducerSnapshotEntry:
    """A producer entry without batches, except for the given fields."""
    plain = ProducerSnapshotEntry(producer_id, 0, -1, -1, 0, T0, -1, current_txn_first_offset)
    return plain._replace(**changes)


def put_snapshot(directory: Path, offset: int, *entries: ProducerSnapshotEntry) -> Path:
    path = log_file(directory, offset, L.SNAPSHOT_SUFFIX)
    path.write_bytes(encode_snapshot(entries))
    return path
