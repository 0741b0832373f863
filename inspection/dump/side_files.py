"""Print index files and snapshots as Kafka's tool does, and return the same entries as rows with findings.

Where the real tool throws (a missing or short log, a zero-tailed empty index, a corrupt entry) or writes (it
creates a missing `.index`), this prints what is there and adds a finding. Its lines (fact sheet §9.2):

    offset: 28 position: 4169                                      .index; `<path> is empty.` without any slot
    timestamp: 1700000000000 offset: 28                            .timeindex
    version: 0 producerId: 1 firstOffset: 5 lastOffset: 9 lastStableOffset: 10          .txnindex
    producerId: 1 producerEpoch: 0 … timestamp: 1700000000000      .snapshot

Kafka treats every slot as an entry and stops, after the first one, at an entry whose offset is the base offset:
this is how it recognizes the zeros after the last entry of an active index.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.sidecar.index import OffsetIndex, TimeIndex
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry, SnapshotCorrupt, decode_snapshot
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.segment.sidecar.txn_index import AbortedTxn, TxnIndex


@dataclass(frozen=True, slots=True)
class SideFileEntry:
    """One line of a side file: as Kafka prints it, and as the values of a JSON line."""

    line: str
    row: dict[str, object]


Item = SideFileEntry | Finding


def starts_preallocated(index: OffsetIndex) -> bool:
    """Whether the first entry is that of a preallocated index."""
    return bool(index.slots) and not any(index.content[: L.OFFSET_INDEX_ENTRY])


def no_batch_to_compare(path: str) -> Finding:
    """The finding for a preallocated index beside an empty log."""
    return _kafka_exception(path, "NoSuchElementException", "the index is preallocated and its log is empty")


def offset_index_lines(index: OffsetIndex) -> bytes:
    """The entries of a `.index` read as Kafka reads it (`as_kafka=True`)."""
    base, numbers = index.base_offset, list[int]()
    for relative, position in index.stored():
        if not relative and numbers:
            break
        numbers += (base + relative, position)
    _overflow(base, numbers, 0)
    return b"offset: %d position: %d\n" * (len(numbers) // 2) % tuple(numbers)


def _overflow(base: int, numbers: list[int], first: int) -> None:
    """Replace numbers by the result of a broker's sum, which overflows near 2^63."""
    if base > L.INT64_MAX - L.INT32_MAX:
        numbers[first::2] = map(L.as_int64, numbers[first::2])


def offset_index_rows(path: str, index: OffsetIndex) -> Iterator[dict[str, object]]:
    """The same entries as the values of JSON lines."""
    for slot, (offset, position) in enumerate(index):
        if slot and offset == index.base_offset:
            return
        yield {"type": "offset_index_entry", "file": path, "offset": offset, "position": position}


def time_index_lines(index: TimeIndex) -> bytes:
    """The entries of a `.timeindex` read as Kafka reads it (`as_kafka=True`)."""
    base, numbers = index.base_offset, list[int]()
    for timestamp_ms, relative in index.stored():
        if not relative and numbers:
            break
        numbers += (timestamp_ms, base + relative)
    _overflow(base, numbers, 1)
    return b"timestamp: %d offset: %d\n" * (len(numbers) // 2) % tuple(numbers)


def time_index_rows(path: str, index: TimeIndex) -> Iterator[dict[str, object]]:
    """The same entries as the values of JSON lines."""
    for slot, (timestamp_ms, offset) in enumerate(index):
        if slot and offset == index.base_offset:
            return
        yield {"type": "time_index_entry", "file": path, "timestamp": timestamp_ms, "offset": offset}


def txn_index(path: str, index: "TxnIndex") -> Iterator[Item]:
    """Entries of a `.txnindex`. A version above 0 is a finding; its entry is shown nevertheless."""
    for slot, entry in enumerate(index):
        if entry.version_as_kafka > 0:
            yield _kafka_exception(
                path, "KafkaException", f"entry {slot} has version {entry.version_as_kafka}"
            )
        yield SideFileEntry(
            _txn_line(entry), {"type": "transaction_index_entry", "file": path, **_txn_values(entry)}
        )
    if index.trailing_bytes:
        yield Finding(
            "txn-index-bad-size",
            path,
            f"{index.trailing_bytes} trailing bytes after the last complete entry",
            length=index.trailing_bytes,
            numbers={"trailing_bytes": index.trailing_bytes},
        )


def _txn_line(entry: "AbortedTxn") -> str:
    return (
        f"version: {entry.version_as_kafka} producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
        f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
    )


def _txn_values(entry: "AbortedTxn") -> dict[str, object]:
    return {
        "version": entry.version_as_kafka,
        "producer_id": entry.producer_id,
        "first_offset": entry.first_offset,
        "last_offset": entry.last_offset,
        "last_stable_offset": entry.last_stable_offset,
    }


def producer_snapshot(path: str, data: bytes) -> Iterator[Item]:
    """Producers of a `.snapshot` in the file's order; a corrupt one is a finding with Kafka's message."""
    try:
        entries = decode_snapshot(data)
    except SnapshotCorrupt as error:
        yield Finding(
            "snapshot-corrupt",
            path,
            str(error),
            position=0,
            length=len(data),
            numbers={"kafka": error.kafka_message},
        )
        return
    for entry in entries:
        yield SideFileEntry(_producer_line(entry), _producer_row(path, entry))


def _producer_line(entry: ProducerSnapshotEntry) -> str:
    first = entry.current_txn_first_offset
    open_since = "OptionalLong.empty" if first is None else f"OptionalLong[{first}]"
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {open_since} "
        f"lastTimestamp: {entry.timestamp_ms}"
    )
    if entry.has_batch:
        line += (
            f" firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence} "
            f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp_ms}"
        )
    return line


def _producer_row(path: str, entry: ProducerSnapshotEntry) -> dict[str, object]:
    return {
        "type": "producer_snapshot_entry",
        "file": path,
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_first_offset": entry.current_txn_first_offset,
        "last_timestamp": entry.timestamp_ms,
        "first_sequence": entry.first_sequence if entry.has_batch else None,
        "last_sequence": entry.last_sequence if entry.has_batch else None,
        "last_offset": entry.last_offset if entry.has_batch else None,
        "offset_delta": entry.offset_delta if entry.has_batch else None,
    }


def _kafka_exception(path: str, exception: str, why: str) -> Finding:
    return Finding(
        "official-tool-stops",
        path,
        f"Kafka's dump tool fails with {exception} here: {why}",
        numbers={"exception": exception},
    )
