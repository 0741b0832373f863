"""What a broker remembers of producers and transactions, found by replaying the batches of a log.

The state is a map from producer id to its newest batch, its epochs and the start of its open transaction. Replay
(Kafka: ProducerStateManager, ProducerAppendInfo with origin REPLICATION; fact sheet §5.3) takes batches in log
order; nothing is validated, because what is on disk was accepted once:

1. A batch without a producer id only moves the end of the state.
2. A data batch: an epoch other than the known one (lower ones too) forgets the remembered batch; then remember
   epoch, last sequence, last offset, offset delta and maximum timestamp.
     transactional, none open      -> a transaction opens at the batch's base offset
     not transactional, one open   -> a broker throws InvalidTxnStateException and cannot load the log
3. A control batch without records (cleaned): the producer becomes known, with nothing remembered.
4. A marker: its epoch as in 2, its coordinator epoch, its timestamp; the open transaction ends. Without an open
   transaction nothing ends. An aborted one yields an entry of the transaction index, whose last stable offset is
   the first offset of the oldest transaction of another producer still open, else the marker's offset + 1.

First unstable offset: the smallest first offset of the open transactions, and of those whose marker is not below
the high watermark. `last_stable_offset` follows from it.

A snapshot holds the map in the order in which Java's HashMap walks it, so that it equals a broker's file byte for
byte: by bucket of the hash, then by age. (A bucket of more than eight producers is ordered otherwise in Java; the
entries are the same.)
"""

from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.follow_producers import (
    BATCH_TIMESTAMP,
    COORDINATOR_EPOCH,
    EPOCH,
    FIRST_OFFSET,
    IS_OPEN,
    LAST_OFFSET,
    LAST_SEQUENCE,
    MARKER_WIDTH,
    OFFSET_DELTA,
    S_WIDTH,
    TIMESTAMP,
)
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry
from kseg.segment.state.open_transactions import UNSEEN_MS, OpenPlace, OpenTransactions
from kseg.segment.state.producer_table import ProducerTable
from kseg.segment.state.replay_events import (
    CompletedTransaction,
    LostTransaction,
    OutsideTransaction,
    PassedMarker,
    ReplayEvent,
    sequence_breaks,
)
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import ReadableBuffer
    from kseg.segment.model import Batch
    from kseg.segment.state.control import EndTransactionMarker

DEFAULT_EXPIRATION_MS = 86_400_000

_MARKER_ROWS = 512
_HASH_CAPACITY = 16  # of an empty java.util.HashMap; it doubles when more than three quarters full


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without a marker so far. last_offset, timestamp_ms: of the producer's newest batch. since_ms: the maximum timestamp of
    the transaction's first batch that was seen; of the newest where a snapshot alone knows of it."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    timestamp_ms: int
    since_ms: int


def last_stable_offset(
    first_unstable: int | None,
    log_start_offset: int,
    high_watermark: int,
    begin_of_batch: Callable[[int], int],
) -> int:
    """Where a read_committed reader stops (exclusive). first_unstable: None when everything is decided. high_watermark: of the log;
    offline usually its end offset. begin_of_batch: the base offset of the batch that holds an offset or follows it, the log end if there is none.

    A broker that has loaded a log knows the first unstable offset without its position, and looks for its batch, or for that of the
    log start where the transaction begins below it. Batches stay whole, so the answer may be below the log start
    (Kafka: UnifiedLog.maybeIncrementFirstUnstableOffset, convertToOffsetMetadataOrThrow)."""
    if first_unstable is None:
        return high_watermark
    return min(begin_of_batch(max(first_unstable, log_start_offset)), high_watermark)


class ProducerState:
    """The replay: feed it with the batches of a log in order, ask it in between.

    end_offset: the log offset up to which batches were seen, exclusive; a snapshot taken now is named by it.
    Batches of magic 0 and 1 do not move it, as in a broker's recovery: set it when the log's end is known.
    high_watermark: transactions whose marker is at or above it stay unstable; None = all is replicated.
    """

    __slots__ = (
        "_first_unreplicated",
        "_hash_capacity",
        "_high_watermark",
        "_markers",
        "_open",
        "_producers",
        "_state",
        "end_offset",
    )

    def __init__(self, end_offset: int = 0, high_watermark: int | None = None) -> None:
        self.end_offset = end_offset
        self._high_watermark = high_watermark
        self._producers = ProducerTable()
        self._hash_capacity = _HASH_CAPACITY
        self._state = memoryview(array("q", bytes(8 * S_WIDTH)))
        self._open = OpenTransactions(self._state)
        self._markers: Columns | None = None
        self._first_unreplicated: int | None = None

    @classmethod
    def load(
        cls,
        entries: Iterable[ProducerSnapshotEntry],
        end_offset: int,
        now_ms: int | None = None,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
        high_watermark: int | None = None,
        *,
        are_replayed: bool = False,
    ) -> "ProducerState":
        """The state a broker has after loading a snapshot. end_offset: the number in the snapshot's name. are_replayed: the entries come from
        batches and not from a file, which forgets a batch whose last offset is negative.

        now_ms: producers idle for `expiration_ms` are left out as a broker does; None keeps them. Of several
        entries of one producer, which no broker writes, the last one counts, but the transactions of the others stay open forever (Kafka:
        ProducerStateManager.loadProducerEntry).
        """
        state = cls(end_offset, high_watermark)
        for entry in entries:
            state._load_entry(entry, now_ms, expiration_ms, are_replayed)
        state._open.sort()
        return state

    def apply(self, batch: "Batch", marker: "EndTransactionMarker | None" = None) -> tuple[ReplayEvent, ...]:
        """Take in the next batch; what there is to say about it, mostly nothing.

        marker: what the first record of a control batch with a producer id says (`end_transaction_marker`), None
        when the batch has no record; not looked at for other batches.
        """
        if batch.magic < L.MAGIC_V2:
            return ()
        self.end_offset = L.as_int64(batch.last_offset + 1)
        if batch.producer_id <= L.NO_PRODUCER_ID:
            return ()
        slot = self._slot(batch.producer_id)
        if not batch.is_control:
            return self._apply_data(batch, slot)
        if marker is None:
            return ()
        return self._apply_marker(batch, marker, slot)

    def follow(self, table: Columns, first: int, stop: int) -> int:
        """Take in rows of a table of batches, as by `apply`, while there is nothing to say about them, no transaction begins or ends, and
        the map need not change its shape; the first row that is left to `apply`, `stop` when none is."""
        return self._taken(*self._producers.follow(table, first, stop))

    def follow_transactions(
        self, view: "ReadableBuffer", table: Columns, first: int, stop: int
    ) -> tuple[int, list[PassedMarker]]:
        """The same with the transactions that begin and end. view: the bytes of the file. Returns the row that is left to `apply`, and the
        markers that were passed before it."""
        if not self._open.is_in_order:
            return self.follow(table, first, stop), []
        if self._markers is None:
            self._markers = Columns(MARKER_WIDTH, _MARKER_ROWS)
        self._open.reserve()
        markers, passed, row = self._markers, list[PassedMarker](), first
        replicated = L.INT64_MAX if self._high_watermark is None else self._high_watermark
        while True:
            markers.count = 0
            row = self._taken(
                *self._producers.follow_transactions(
                    view, table, row, stop, self._open, markers, replicated, self._state
                )
            )
            passed += zip(*(markers.column(field) for field in range(MARKER_WIDTH)), strict=True)
            if markers.count < markers.capacity:
                return row, passed

    def _taken(self, row: int, last_offset: int | None) -> int:
        if last_offset is not None:
            self.end_offset = L.as_int64(last_offset + 1)
        return row

    def expire(self, now_ms: int, expiration_ms: int = DEFAULT_EXPIRATION_MS) -> tuple[int, ...]:
        """Drop producers without an open transaction that were idle for `expiration_ms`; the ids dropped."""
        known = self._producers
        idle = tuple(
            producer_id
            for producer_id, slot in known.slot_of.items()
            if known.transaction_first_offset(slot) is None
            and idle_ms(known.get(slot, TIMESTAMP), now_ms) >= expiration_ms
        )
        for producer_id in idle:
            known.drop(producer_id)
        return idle

    def keep_open(self, first_offset: int, producer_id: int) -> None:
        """Add a transaction that no entry of its producer has any more."""
        self._open.add(first_offset, producer_id)
        self._open.sort()

    def snapshot(self) -> tuple[ProducerSnapshotEntry, ...]:
        """The entries a broker would write now, in its order."""
        in_order = sorted(
            self._producers.slot_of, key=self._bucket
        )  # stable: within a bucket the older comes first
        return tuple(self._entry(producer_id) for producer_id in in_order)

    def entry(self, producer_id: int) -> ProducerSnapshotEntry | None:
        """The state of one producer; None when it is unknown."""
        return self._entry(producer_id) if producer_id in self._producers.slot_of else None

    def batch_timestamp_ms(self, producer_id: int) -> int:
        """The maximum timestamp of the newest batch of a producer that is known, -1 when none is remembered."""
        return self._producers.get(self._producers.slot_of[producer_id], BATCH_TIMESTAMP)

    @property
    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """By first offset."""
        return tuple(self._open_transaction(place) for place in self._open.in_order())

    @property
    def first_undecided_offset(self) -> int | None:
        """The smallest first offset of the open transactions, None when there are none."""
        return self._open.first()

    @property
    def first_unstable_offset(self) -> int | None:
        """The smallest first offset of what is undecided or decided above the high watermark, None if none is."""
        offsets = [offset for offset in (self._open.first(), self._first_unreplicated) if offset is not None]
        return min(offsets, default=None)

    def _slot(self, producer_id: int) -> int:
        known = self._producers
        slot = known.slot_of.get(producer_id)
        if slot is None:
            slot = known.add(producer_id)
            if len(known.slot_of) > self._hash_capacity // 4 * 3:
                self._hash_capacity *= 2
        return slot

    def _apply_data(self, batch: "Batch", slot: int) -> tuple[ReplayEvent, ...]:
        known = self._producers
        events: tuple[ReplayEvent, ...] = ()
        last_sequence = known.get(slot, LAST_SEQUENCE)
        if batch.producer_epoch == known.get(slot, EPOCH) and last_sequence >= 0 and batch.base_sequence >= 0:
            events = sequence_breaks(batch, last_sequence)
        known.set(slot, EPOCH, batch.producer_epoch)
        known.set(slot, LAST_SEQUENCE, batch.last_sequence)
        known.set(slot, LAST_OFFSET, batch.last_offset)
        known.set(slot, OFFSET_DELTA, L.as_int32(batch.last_offset_delta))
        known.set(slot, TIMESTAMP, batch.max_timestamp_ms)
        known.set(slot, BATCH_TIMESTAMP, batch.max_timestamp_ms)
        first_offset = known.transaction_first_offset(slot)
        if first_offset is None:
            if batch.is_transactional:
                known.set_transaction(slot, batch.base_offset)
                self._open.add(batch.base_offset, batch.producer_id, batch.max_timestamp_ms)
        elif batch.is_transactional:
            known.set_transaction(slot, first_offset)
            self._open.see(first_offset, batch.max_timestamp_ms)
        else:
            events += (
                OutsideTransaction(batch.producer_id, batch.base_offset, batch.last_offset, first_offset),
            )
        return events

    def _apply_marker(
        self, batch: "Batch", marker: "EndTransactionMarker", slot: int
    ) -> tuple[ReplayEvent, ...]:
        known = self._producers
        first_offset = known.transaction_first_offset(slot)
        known.enter_epoch(slot, batch.producer_epoch)
        known.set(slot, COORDINATOR_EPOCH, marker.coordinator_epoch)
        known.set(slot, TIMESTAMP, marker.timestamp_ms)
        known.set_transaction(slot, None)
        if first_offset is None:
            return ()
        marker_offset = batch.base_offset
        next_open = self._open.first_of_others(batch.producer_id)
        if not self._open.remove(first_offset):
            return (LostTransaction(batch.producer_id, first_offset, marker_offset),)
        if self._high_watermark is not None and marker_offset >= self._high_watermark:
            unreplicated = self._first_unreplicated
            self._first_unreplicated = (
                first_offset if unreplicated is None else min(unreplicated, first_offset)
            )
        last_stable_offset = L.as_int64(marker_offset + 1) if next_open is None else next_open
        return (
            CompletedTransaction(
                batch.producer_id, first_offset, marker_offset, marker.is_abort, last_stable_offset
            ),
        )

    def _load_entry(
        self, entry: ProducerSnapshotEntry, now_ms: int | None, expiration_ms: int, is_replayed: bool
    ) -> None:
        first_offset = entry.current_txn_first_offset
        if (
            now_ms is not None
            and first_offset is None
            and idle_ms(entry.timestamp_ms, now_ms) >= expiration_ms
        ):
            return
        known, slot = self._producers, self._slot(entry.producer_id)
        known.forget_batch(slot)
        known.set(slot, EPOCH, entry.producer_epoch)
        known.set(slot, COORDINATOR_EPOCH, entry.coordinator_epoch)
        known.set(slot, TIMESTAMP, entry.timestamp_ms)
        known.set_transaction(slot, first_offset, is_seen=False)
        if entry.last_offset >= 0 or is_replayed:
            known.set(slot, LAST_SEQUENCE, entry.last_sequence)
            known.set(slot, LAST_OFFSET, entry.last_offset)
            known.set(slot, OFFSET_DELTA, entry.offset_delta)
            known.set(slot, BATCH_TIMESTAMP, entry.timestamp_ms)
        if first_offset is not None:
            self._open.add(first_offset, entry.producer_id)

    def _entry(self, producer_id: int) -> ProducerSnapshotEntry:
        known = self._producers.fields(self._producers.slot_of[producer_id])
        return ProducerSnapshotEntry(
            producer_id=producer_id,
            producer_epoch=known[EPOCH],
            last_sequence=known[LAST_SEQUENCE],
            last_offset=known[LAST_OFFSET],
            offset_delta=known[OFFSET_DELTA],
            timestamp_ms=known[TIMESTAMP],
            coordinator_epoch=known[COORDINATOR_EPOCH],
            current_txn_first_offset=known[FIRST_OFFSET] if known[IS_OPEN] else None,
        )

    def _open_transaction(self, place: OpenPlace) -> OpenTransaction:
        known = self._producers
        slot = known.slot_of.get(place.producer_id)
        if slot is None:  # of one whose other entry has expired
            return OpenTransaction(place.producer_id, -1, place.first_offset, -1, -1, -1)
        timestamp_ms = known.get(slot, TIMESTAMP)
        return OpenTransaction(
            place.producer_id,
            known.get(slot, EPOCH),
            place.first_offset,
            known.get(slot, LAST_OFFSET),
            timestamp_ms,
            timestamp_ms if place.since_ms == UNSEEN_MS else place.since_ms,
        )

    def _bucket(self, producer_id: int) -> int:
        bits = producer_id & 0xFFFF_FFFF_FFFF_FFFF
        hash_code = (bits ^ bits >> 32) & 0xFFFF_FFFF
        return (hash_code ^ hash_code >> 16) & (self._hash_capacity - 1)


def idle_ms(last_timestamp_ms: int, now_ms: int) -> int:
    """How long a producer was idle, in Java's 64 bits: a timestamp far below 0 is taken for one in the future."""
    return L.as_int64(now_ms - last_timestamp_ms)
