"""State derived from a whole log: leader epochs, producers, aborted transactions, the last stable offset.

leader epochs   leader-epoch-checkpoint, truncated to the log as a broker does when it loads the log. If it is missing or
                unreadable, from the batches: a segment is walked batch by batch only if the first epochs of two adjacent segments differ
producers       the newest readable snapshot, then a replay of the batches after it
aborted         the transaction indexes from the segment of the first offset on, into later segments until an
                entry says that nothing more can come (Kafka: LocalLog.collectAbortedTransactions)
"""

import os
from collections.abc import Iterable, Iterator, Sequence

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import FormatError
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.model import Batch
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Decoder
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry, decode_snapshot
from kseg.segment.sidecar.txn_index import AbortedTxn, TxnIndex
from kseg.segment.state import producer
from kseg.segment.state.producer import ProducerState
from kseg.segment.state.replay import marker_of
from kseg.segment.storage import places


def epoch_history(log: PartitionLog, start_offset: int | None = None) -> EpochHistory:
    """The leader epochs that a broker has after loading the log. start_offset: below which they are dropped; None for the checkpointed log
    start, which may be below the first segment with or without tiered storage, and is 0 without an entry (Kafka: LogLoader.load)."""
    if log.is_emptied:
        return EpochHistory()
    history = _checkpointed_epochs(log)
    if history is None:
        history = epochs_of_batches(log.segments, log.last_batch)
        if history.entries and not any(finding.id == "leader-epoch-file-corrupt" for finding in log.findings):
            path = log.side_file_path(Role.LEADER_EPOCHS)
            log.report(
                Finding(
                    "leader-epoch-file-missing",
                    path,
                    "there is no leader-epoch checkpoint; the epochs of the batches are used",
                )
            )
    history.truncate_from_end(log.end_offset)
    history.truncate_from_start(log.known_start or 0 if start_offset is None else start_offset)
    return history


def latest_known_epoch(log: PartitionLog) -> int:
    """The leader epoch of the last batch; of a log without batches, the latest in its checkpoint, even if a load drops it because it begins
    at the log end. -1 if there is none."""
    if (last := log.newest_batch) is not None:
        return last.leader_epoch
    history = _checkpointed_epochs(log)
    latest = None if history is None else history.latest
    return L.NO_LEADER_EPOCH if latest is None else latest.epoch


def producer_state(log: PartitionLog, *, as_loaded: bool = False) -> ProducerState:
    """Producers and open transactions at the log end, including those below a log start that was moved. as_loaded: without those that a
    broker drops when it starts with the directory."""
    snapshot = snapshot_in_memory(log) if as_loaded else newest_snapshot(log) or _below_start(log)
    state = (
        ProducerState(log.start_offset) if snapshot is None else ProducerState.load(snapshot[1], snapshot[0])
    )
    if state.end_offset >= log.end_offset:
        return state
    for segment in log.from_floor(state.end_offset):
        decoder = Decoder(segment.file.view, capacity=16)
        start = segment.start_for(state.end_offset) if segment.base_offset <= state.end_offset else 0
        for block in segment.walk.blocks(start):
            if not isinstance(block, Damage):
                _replay(decoder, block, state)
        segment.scanned(start, segment.file.size_bytes)
    return state


def _replay(decoder: Decoder, table: Columns, state: ProducerState) -> None:
    """Apply the rows at and after the state's end."""
    begin, lasts = state.end_offset, table.column(C.LAST_OFFSET)
    for row, producer_id in enumerate(table.column(C.PRODUCER_ID)):
        if producer_id >= 0 and lasts[row] >= begin:
            batch = batch_at(table, row)
            state.apply(batch, marker_of(decoder, table, row) if batch.is_control else None)
    state.end_offset = max(state.end_offset, lasts[-1] + 1)


def last_stable_offset(log: PartitionLog) -> int:
    """The offset at which a read_committed reader stops if the high watermark is the log end (fact sheet §5.4)."""
    return stable_offset(log, producer_state(log).first_unstable_offset)


def stable_offset(log: PartitionLog, first_unstable: int | None, high_watermark: int | None = None) -> int:
    """The last stable offset, given the first undecided offset of the log (None: all are decided). high_watermark: None for the log end."""
    bound = log.end_offset if high_watermark is None else high_watermark
    return producer.last_stable_offset(
        first_unstable, log.start_offset, bound, lambda offset: _begin_of_batch(log, offset)
    )


def _begin_of_batch(log: PartitionLog, offset: int) -> int:
    for segment in log.from_floor(offset):
        for batch in segment.reaching(offset):
            return batch.base_offset
    return log.end_offset


def aborted_transactions(log: PartitionLog, from_offset: int, to_offset: int) -> tuple[AbortedTxn, ...]:
    """The aborted transactions that overlap from_offset ≤ offset < to_offset, from the transaction indexes."""
    found: list[AbortedTxn] = []
    for segment in log.segments[max(0, log.floor_index(from_offset)) :]:
        path = segment.paths.get(Role.TXN_INDEX)
        if path is None:
            continue
        search = TxnIndex(log.read_file(path), segment.base_offset).collect_aborted(from_offset, to_offset)
        found.extend(search.aborted)
        if search.is_complete:
            break
    return tuple(found)


def is_aborted(batch: Batch, aborted: Iterable[AbortedTxn]) -> bool:
    """Whether a consumer with read_committed drops the batch (Kafka: CompletedFetch.isBatchAborted)."""
    return (
        batch.is_transactional
        and not batch.is_control
        and any(
            txn.producer_id == batch.producer_id and txn.first_offset <= batch.base_offset <= txn.last_offset
            for txn in aborted
        )
    )


def _checkpointed_epochs(log: PartitionLog) -> EpochHistory | None:
    data = log.read_side_file(Role.LEADER_EPOCHS)
    if data is None:
        return None
    try:
        return EpochHistory(decode_leader_epochs(data))
    except FormatError as error:
        path = log.side_file_path(Role.LEADER_EPOCHS)
        log.report(
            Finding(
                "leader-epoch-file-corrupt",
                path,
                f"the leader-epoch checkpoint cannot be read ({error}); the epochs of the batches are used",
            )
        )
        return None


def epochs_of_batches(segments: Sequence[LogSegment], following: Batch | None) -> EpochHistory:
    """The leader epochs of the batches of some segments. following: the first batch after them, or their
    last one: a segment is not walked if its first batch and the following one have the same epoch."""
    history = EpochHistory()
    pairs = []  # (segment, its first batch, the first batch after it)
    for segment in reversed(segments):
        first = first_batch(segment)
        pairs.append((segment, first, following))
        following = first or following
    for segment, first, following in reversed(pairs):
        if first is None:
            continue
        if following is not None and following.leader_epoch == first.leader_epoch:
            history.recover_batch(first)
            continue
        for batch in _headers(segment):
            history.recover_batch(batch)
        segment.close()
    return history


def first_batch(segment: LogSegment) -> Batch | None:
    """The first batch of a segment, None when it has none."""
    batch = next(_headers(segment), None)
    segment.close()
    return batch


def _headers(segment: LogSegment) -> Iterator[Batch]:
    for block in segment.walk.blocks():
        if not isinstance(block, Damage):
            yield from (batch_at(block, row) for row in range(block.count))


def loaded_snapshot(log: PartitionLog) -> tuple[int, tuple[ProducerSnapshotEntry, ...]] | None:
    """(offset, entries) of the snapshot from which a broker continues if it is started on the directory in its current state. None if
    there is none, so that the broker reads the whole log. After a clean shutdown without any snapshot it does not read the log: it
    begins at the log end, without producers (Kafka: UnifiedLog.rebuildProducerState)."""
    if log.is_directory and log.segments and not _kept_snapshots(log) and was_stopped_cleanly(log):
        return log.end_offset, ()
    return newest_snapshot(log)


def snapshot_in_memory(
    log: PartitionLog, *, is_running: bool = False
) -> tuple[int, tuple[ProducerSnapshotEntry, ...]] | None:
    """(offset, entries) from which a replay yields the producers that a broker has in memory; None for the log start. is_running: a broker
    is using the data directory now.

    After a clean shutdown the state is that of a restart. A broker that is running or has crashed still has the producers below a log start
    that was moved into a segment: records are deleted, producers are not, and recovery reads whole segments (Kafka:
    LogLoader.recoverSegment). If the log start is the log end, only a running broker has them: a load deletes the snapshots up to the log
    start, takes none at it, and has nothing to replay (Kafka: ProducerStateManager.truncateAndReload, takeSnapshot)."""
    loaded = loaded_snapshot(log)
    if loaded is not None or not log.is_directory or was_stopped_cleanly(log):
        return loaded
    if log.start_offset == log.end_offset and not (is_running and _has_run_since_last_batch(log)):
        return log.end_offset, ()
    return _below_start(log)


def _has_run_since_last_batch(log: PartitionLog) -> bool:
    """Whether the leader epoch of the last batch is the newest. A replica that is loaded again gets a new epoch if it is the only one
    or its leader is loaded again."""
    epochs, last = _checkpointed_epochs(log), log.last_batch
    return (
        epochs is None
        or not epochs.entries
        or (last is not None and epochs.entries[-1].epoch <= last.leader_epoch)
    )


def _below_start(log: PartitionLog) -> tuple[int, tuple[ProducerSnapshotEntry, ...]] | None:
    """(offset, entries) of the newest snapshot at or below the log start; without one, the start of its segment and no entries. None
    without a segment."""
    if not log.segments:
        return None
    below = [offset for offset in _kept_snapshots(log) if offset <= log.start_offset]
    base_offset = log.segments[max(0, log.floor_index(log.start_offset))].base_offset
    return _first_readable(log, below) or (base_offset, ())


def newest_snapshot(log: PartitionLog) -> tuple[int, tuple[ProducerSnapshotEntry, ...]] | None:
    """(offset, entries) of the newest readable snapshot (Kafka: ProducerStateManager.loadFromSnapshot); None if there is none."""
    kept = _kept_snapshots(log)
    return _first_readable(log, [offset for offset in kept if log.start_offset < offset <= log.end_offset])


def _first_readable(
    log: PartitionLog, offsets: Sequence[int]
) -> tuple[int, tuple[ProducerSnapshotEntry, ...]] | None:
    for offset in offsets:
        path = log.snapshots[offset]
        try:
            return offset, tuple(decode_snapshot(log.read_file(path)))
        except FormatError as error:
            log.report(Finding("snapshot-corrupt", path, f"the producer snapshot cannot be read: {error}"))
    return None


def _kept_snapshots(log: PartitionLog) -> list[int]:
    """The offsets of the snapshots that a broker keeps at a load, newest first: those at base offsets of segments, and the newest other
    one unless it is below the last segment (Kafka: ProducerStateManager.removeStraySnapshots)."""
    bases = {segment.base_offset for segment in log.segments}
    strays = log.snapshots.keys() - bases
    last_stray = {max(strays)} if strays and max(strays) >= max(bases, default=0) else set()
    return sorted((log.snapshots.keys() & bases) | last_stray, reverse=True)


def was_stopped_cleanly(log: PartitionLog) -> bool:
    """Whether the data directory of a partition has the marker of a clean shutdown."""
    return is_marked_clean(log.directory)


def is_marked_clean(directory: str) -> bool:
    """The same for the directory of a partition."""
    parent = os.path.dirname(places.abspath(directory))
    return places.lexists(os.path.join(parent, NAME_BY_ROLE[Role.CLEAN_SHUTDOWN]))
