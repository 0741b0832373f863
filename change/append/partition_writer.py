"""Writes a partition: turns a sequence of batches into the files that a 4.3 broker leaves after a clean shutdown.

Two layers, so that append, recovery and compaction can share the first and plan before they write:

    OpenPartition    pure: takes batches, decides when to roll, keeps indexes, producers and epochs; returns `FilePiece`s
    PartitionWriter  writes the pieces to a directory, new or existing (append, --output, tests)

For each append (Kafka: UnifiedLog.append, LocalLog.roll, LogSegment.append; fact sheet §4.1-4.3, §5.2, §6.5):

1. Read the headers; refuse what a broker would not append: damage, offsets below the log end.
2. Roll when the segment would exceed its bytes or its time, an index is full, or an offset does not fit 31 bits.
   The old segment ends: final time index entry, trimmed indexes. The new base offset is max(first offset, log end), and a
   producer snapshot with that name is written.
3. The bytes are appended to the log, each batch is added to the indexes, its epoch to the history, and the producer state is updated;
   an abort marker adds an entry to the transaction index of its segment.

A clean shutdown ends the last segment, takes a snapshot at the log end and writes the leader epochs. Every file but `.log` is a
single piece; a `.log` is written in consecutive pieces.
"""

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Self

from kseg.change.append.batch_set import SetEntry, entries_of, entry_of, least_first_offset
from kseg.change.append.file_writer import FilePiece, NoFiles, PieceFiles, PieceSink
from kseg.change.append.flush import FlushCounter, FlushRules
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.errors import UsageError
from kseg.segment.model import Batch, NewBatch
from kseg.segment.new_files import ensure_directory
from kseg.segment.partition.names import NAME_BY_ROLE, Role, segment_file_name
from kseg.segment.sidecar.checkpoint import encode_leader_epochs
from kseg.segment.sidecar.index_builder import SegmentIndexes
from kseg.segment.sidecar.index_writer import can_index_offset
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.sidecar.metadata_files import PartitionMetadata, encode_partition_metadata
from kseg.segment.sidecar.snapshot import encode_snapshot
from kseg.segment.sidecar.txn_index import AbortedTxn, encode_txn_index
from kseg.segment.state.producer import ProducerState
from kseg.segment.state.replay_events import CompletedTransaction
from kseg.segment.values import dataclass

DEFAULT_SEGMENT_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RollRules:
    """When a segment ends. segment_ms: None never rolls by time. The other names are Kafka's topic settings."""

    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    segment_ms: int | None = None
    segment_index_bytes: int = L.DEFAULT_SEGMENT_INDEX_BYTES
    index_interval_bytes: int = L.DEFAULT_INDEX_INTERVAL_BYTES

    def __post_init__(self) -> None:
        if not 0 < self.segment_bytes <= L.MAX_SEGMENT_BYTES:
            raise UsageError(f"a segment cannot have {self.segment_bytes} bytes")


class OpenSegment:
    """The active segment. indexes, aborted: the contents of its side files.

    first_timestamp_ms: maximum timestamp of the first batch, from which rolling by time counts (None while empty). created_ms:
    wall clock at creation, used instead when the first batch has no timestamp; None if unknown.
    """

    __slots__ = (
        "aborted",
        "base_offset",
        "created_ms",
        "first_timestamp_ms",
        "indexes",
        "rules",
        "size_bytes",
    )

    def __init__(self, base_offset: int, rules: RollRules, created_ms: int | None = None) -> None:
        self.base_offset = base_offset
        self.rules = rules
        self.created_ms = created_ms
        self.size_bytes = 0
        self.first_timestamp_ms: int | None = None
        self.indexes = SegmentIndexes(base_offset, rules.index_interval_bytes, rules.segment_index_bytes)
        self.aborted: list[AbortedTxn] = []

    def must_roll_before(
        self, size_bytes: int, max_timestamp_ms: int, last_offset: int, now_ms: int | None
    ) -> bool:
        """Whether a broker rolls before it appends this set (Kafka: LogSegment.shouldRoll)."""
        return (
            self.size_bytes > self.rules.segment_bytes - size_bytes
            or (self.size_bytes > 0 and self._has_waited_too_long(max_timestamp_ms, now_ms))
            or self.indexes.is_full
            or not can_index_offset(last_offset, self.base_offset)
        )

    def take(self, batch: Batch) -> None:
        """Add a batch to the size and the indexes. Raises UsageError if it cannot be indexed."""
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = batch.max_timestamp_ms
        refusal = self.indexes.add(
            self.size_bytes, batch.size_bytes, batch.last_offset, batch.max_timestamp_ms
        )
        if refusal is not None:
            raise UsageError(refusal.sentence)
        self.size_bytes += batch.size_bytes

    def end(self) -> Iterator[FilePiece]:
        """The segment's files as a roll or a clean shutdown leaves them; the piece of the log is empty, because its bytes are already
        written."""
        self.indexes.finish()
        yield FilePiece(self._name(L.LOG_SUFFIX), b"")
        yield FilePiece(self._name(L.OFFSET_INDEX_SUFFIX), self.indexes.offset_index.to_bytes())
        yield FilePiece(self._name(L.TIME_INDEX_SUFFIX), self.indexes.time_index.to_bytes())
        if self.aborted:
            yield FilePiece(self._name(L.TXN_INDEX_SUFFIX), encode_txn_index(self.aborted))

    def log_piece(self, data: bytes) -> FilePiece:
        return FilePiece(self._name(L.LOG_SUFFIX), data)

    def _name(self, suffix: str) -> str:
        return segment_file_name(self.base_offset, suffix)

    def _has_waited_too_long(self, max_timestamp_ms: int, now_ms: int | None) -> bool:
        if self.rules.segment_ms is None:
            return False
        if self.first_timestamp_ms is not None and self.first_timestamp_ms >= 0:
            return max_timestamp_ms - self.first_timestamp_ms > self.rules.segment_ms
        if now_ms is None or self.created_ms is None:
            return False
        return now_ms - self.created_ms > self.rules.segment_ms


class OpenPartition:
    """The state of a partition while batches are added to it; never touches the disk.

    A new partition starts at `start_offset`. To continue an existing one, pass its active segment, its producer state at the log
    end, its leader epochs, that of its last batch and the offset of its newest snapshot. next_offset: the log end offset. Methods that add
    data return pieces, to be written in order.
    """

    def __init__(
        self,
        start_offset: int = 0,
        rules: RollRules | None = None,
        *,
        active: OpenSegment | None = None,
        producers: ProducerState | None = None,
        epochs: EpochHistory | None = None,
        last_epoch: int = L.NO_LEADER_EPOCH,
        last_snapshot_offset: int | None = None,
        now_ms: int | None = None,
    ) -> None:
        self.rules = rules or RollRules()
        self.active = active or OpenSegment(start_offset, self.rules, now_ms)
        self.producers = producers or ProducerState(start_offset)
        self.epochs = epochs or EpochHistory()
        self._last_epoch = last_epoch
        self.next_offset = self.producers.end_offset
        self._last_snapshot_offset = start_offset if last_snapshot_offset is None else last_snapshot_offset

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch, -1 if there is none. The history may lack that of the last batch: where the log starts at its end, a
        load drops all epochs (Kafka: LogLoader.load)."""
        latest = self.epochs.latest
        return self._last_epoch if latest is None else max(latest.epoch, self._last_epoch)

    def append(self, data: NewBatch | bytes, now_ms: int | None = None) -> list[FilePiece]:
        """Add a batch, or the bytes of a set of batches in log format, which a roll never splits.

        now_ms: the wall clock, only for rolling segments whose batches have no timestamps. Raises UsageError for
        what `encode_batch` refuses, damaged bytes, offsets below the log end, and a batch outside
        its producer's open transaction (a broker could not load such a log).
        """
        content = encode_batch(data) if isinstance(data, NewBatch) else bytes(data)
        if isinstance(data, NewBatch) and data.magic >= L.MAGIC_V2:
            entries = [entry_of(data, content)]
        else:
            entries = entries_of(content)
        self._refuse(entries)
        last_offset = entries[-1].batch.last_offset
        max_timestamp_ms = max(entry.batch.max_timestamp_ms for entry in entries)
        pieces = []
        if self.active.must_roll_before(len(content), max_timestamp_ms, last_offset, now_ms):
            pieces = self.roll(least_first_offset(entries), now_ms)
        if not can_index_offset(last_offset, self.active.base_offset):
            raise UsageError(f"offset {last_offset} does not fit the segment at {self.active.base_offset}")
        pieces.append(self.active.log_piece(content))
        for entry in entries:
            self._take(entry)
        return pieces

    def roll(self, at_offset: int | None = None, now_ms: int | None = None) -> list[FilePiece]:
        """End the active segment and start one at max(at_offset, log end); does nothing if an empty one already starts there."""
        new_base = self.next_offset if at_offset is None else max(at_offset, self.next_offset)
        if not self.active.size_bytes and self.active.base_offset == new_base:
            return []
        pieces = list(self.active.end())
        self.active = OpenSegment(new_base, self.rules, now_ms)
        self.next_offset = new_base
        pieces.extend(self._snapshot())
        return pieces

    def close(self) -> list[FilePiece]:
        """What a clean shutdown writes. The partition must not be used afterwards."""
        epochs = self.epochs.entries
        return [
            *self.active.end(),
            *self._snapshot(),
            # the file exists from the start and stays empty until there is an epoch
            FilePiece(NAME_BY_ROLE[Role.LEADER_EPOCHS], encode_leader_epochs(epochs) if epochs else b""),
        ]

    def _take(self, entry: SetEntry) -> None:
        batch = entry.batch
        self.active.take(batch)
        self.epochs.append_batch(batch)
        for event in self.producers.apply(batch, entry.marker):
            if isinstance(event, CompletedTransaction) and event.index_entry is not None:
                self.active.aborted.append(event.index_entry)
        self.next_offset = batch.last_offset + 1

    def _snapshot(self) -> Iterator[FilePiece]:
        """The producer snapshot at the log end, unless there is one already (Kafka: takeSnapshot)."""
        self.producers.end_offset = self.next_offset
        if self.next_offset > self._last_snapshot_offset:
            self._last_snapshot_offset = self.next_offset
            name = segment_file_name(self.next_offset, L.SNAPSHOT_SUFFIX)
            yield FilePiece(name, encode_snapshot(self.producers.snapshot()))

    def _refuse(self, entries: list[SetEntry]) -> None:
        next_offset = self.next_offset
        for batch in (entry.batch for entry in entries):
            if batch.base_offset < next_offset or batch.last_offset < batch.base_offset:
                why = f"is below the log end {next_offset} (--no-keep-offsets renumbers)"
                raise UsageError(f"offset {batch.base_offset} {why}")
            if batch.last_offset == L.INT64_MAX:
                raise UsageError(f"offset {batch.last_offset} leaves no number for the log end")
            next_offset = batch.last_offset + 1
            if batch.producer_id < 0 or batch.is_control or batch.is_transactional:
                continue
            known = self.producers.entry(batch.producer_id)
            if known is not None and known.current_txn_first_offset is not None:
                raise UsageError(
                    f"producer {batch.producer_id} has a transaction open since {known.current_txn_first_offset}"
                )


class PartitionWriter:
    """Writes a partition directory; a context manager that closes it.

    directory: created if missing; existing files are never overwritten (Refused). topic_id: as Kafka writes the uuid; None writes
    no `partition.metadata` (a KRaft broker then renames the directory to -stray). fsync: sync at each roll and at the end. flush:
    when to sync in between. partition, existing: to continue an existing partition (see `reopen`), its state and the names of its
    files; its last log grows, its side files are replaced. announce: called with the name of each new file before it is created.
    rehearses: write nothing. bytes_appended: to logs. After an exception the directory is as a crashed broker leaves it: the last
    segment has no side files.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        topic_id: str | None = None,
        start_offset: int = 0,
        rules: RollRules | None = None,
        fsync: bool = False,
        flush: FlushRules | None = None,
        partition: OpenPartition | None = None,
        existing: Collection[str] = (),
        announce: Callable[[str], None] | None = None,
        rehearses: bool = False,
    ) -> None:
        self.directory = Path(directory)
        self.partition = partition or OpenPartition(start_offset, rules)
        self.segments_rolled = 0
        self.bytes_appended = 0
        self._unflushed = FlushCounter(flush or FlushRules(), self.partition.next_offset)
        self._closed = False
        self._files: PieceSink = NoFiles()
        if not rehearses:
            self._files = PieceFiles(self.directory, existing, fsync=fsync, announce=announce)
            ensure_directory(self.directory)
        name = NAME_BY_ROLE[Role.PARTITION_METADATA]
        if topic_id is not None and name not in existing:
            self._files.put([FilePiece(name, encode_partition_metadata(PartitionMetadata(topic_id)))])

    @property
    def next_offset(self) -> int:
        """The log end offset: the lowest that the next batch may have."""
        return self.partition.next_offset

    @property
    def planned_bytes(self) -> list[int]:
        """How many bytes a rehearsal would have written to each file."""
        return [*self._files.bytes_by_name.values()] if isinstance(self._files, NoFiles) else []

    @property
    def flushes(self) -> int:
        """How often a flush rule synced the log."""
        return self._unflushed.flushes

    def append(self, data: NewBatch | bytes, now_ms: int | None = None) -> int:
        """See `OpenPartition.append`; returns the number of bytes that the batches take."""
        base_offset = self.partition.active.base_offset
        pieces = self.partition.append(data, now_ms)
        self._files.put(pieces)
        size_bytes = len(pieces[-1].data)  # the last one is the batch
        self.bytes_appended += size_bytes
        self.segments_rolled += self.partition.active.base_offset != base_offset
        if self._unflushed.is_due(self.next_offset):
            self._files.sync()
            self._unflushed.flushed(self.next_offset)
        return size_bytes

    def roll(self, at_offset: int | None = None) -> None:
        """See `OpenPartition.roll`."""
        base_offset = self.partition.active.base_offset
        self._files.put(self.partition.roll(at_offset))
        self.segments_rolled += self.partition.active.base_offset != base_offset

    def close(self) -> None:
        """Write the side files of the last segment, as a clean shutdown does."""
        if self._closed:
            return
        self._closed = True
        self._files.put(self.partition.close())
        self._files.close()

    def release(self) -> None:
        """Close open files without writing side files."""
        self._closed = True
        self._files.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.release()
