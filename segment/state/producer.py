"""Producer state: what a broker knows of producers and transactions, determined by replaying the batches of a log.

The state is a map from producer id to its last batch, its epochs and the start of its open transaction. The replay
(Kafka: ProducerStateManager, ProducerAppendInfo with origin REPLICATION; fact sheet §5.3) takes batches in log
order and validates nothing, because the log accepted these batches once:

1. A batch without a producer id only moves the end of the state.
2. A data batch: an epoch other than the known one (also a lower one) discards the last batch; then store
   epoch, last sequence, last offset, offset delta and maximum timestamp.
     transactional, none open      -> a transaction opens at the batch's base offset
     not transactional, one open   -> a broker throws InvalidTxnStateException and cannot load the log
3. A control batch without records (cleaned): the producer becomes known, without a last batch.
4. A marker: its epoch as in 2, its coordinator epoch, its timestamp; the open transaction ends, if there is one. An aborted
   transaction adds an entry to the transaction index, whose last stable offset is
   the first offset of the oldest open transaction of another producer, else the marker's offset + 1.

First unstable offset: the smallest first offset of the open transactions, and of those whose marker is at or above
the high watermark. `last_stable_offset` is derived from it.

A snapshot has the map in the iteration order of Java's HashMap, so that it equals a broker's file byte for byte: by bucket of the hash,
then by age. (Java orders a bucket of more than eight producers differently; the entries are the same.)
"""

from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
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
_HASH_CAPACITY = 16  # initial capacity of java.util.HashMap, which doubles when more than 3/4 full


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without a marker so far. last_offset, timestamp_ms: of the producer's last batch. since_ms: the maximum timestamp of
    the first batch of the transaction that was read; of the last one if only a snapshot contains the transaction."""

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
    """The offset (exclusive) at which a read_committed reader stops. first_unstable: None if everything is decided. high_watermark: of the
    log; offline usually its end offset. begin_of_batch: the base offset of the batch that contains an offset or follows it, the log end if
    there is none.

    A broker that has loaded a log knows the first unstable offset without its position, and looks up its batch, or that of the log start if
    the transaction begins below it. Batches stay whole, so the result may be below the log start
    (Kafka: UnifiedLog.maybeIncrementFirstUnstableOffset, convertToOffsetMetadataOrThrow)."""
    if first_unstable is None:
        return high_watermark
    return min(begin_of_batch(max(first_unstable, log_start_offset)), high_watermark)


class ProducerState:
    """The replay: apply the batches of a log in order; the state can be read in between.

    end_offset: the log offset up to which batches were applied, exclusive; a snapshot taken now has it in its name.
    Batches of magic 0 and 1 do not move it, as in a broker's recovery: set it once the log end is known.
    high_watermark: transactions whose marker is at or above it stay unstable; None = everything is replicated.
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
        """The state of a broker after it has loaded a snapshot. end_offset: the number in the snapshot's name. are_replayed: the entries
        come from batches, not from a file; in a file, a negative last offset means that there is no last batch.

        now_ms: producers that were idle for `expiration_ms` are dropped, as by a broker; None keeps them. Of several
        entries of one producer, which no broker writes, the last one counts, but the transactions of the others stay open forever (Kafka:
        ProducerStateManager.loadProducerEntry).
        """
        state = cls(end_offset, high_watermark)
        for entry in entries:
            state._load_entry(entry, now_ms, expiration_ms, are_replayed)
        state._open.sort()
        return state

    def apply(self, batch: "Batch", marker: "EndTransactionMarker | None" = None) -> tuple[ReplayEvent, ...]:
        """Apply the next batch; returns the events that it causes, usually none.

        marker: the content of the first record of a control batch with a producer id (`end_transaction_marker`), None
        if the batch has no record; ignored for other batches.
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
        """Apply rows of a table of batches, like `apply`, as long as they cause no events, no transaction begins or ends, and the map needs
        no new entry. Returns the first row that is left to `apply`, `stop` if there is none."""
        return self._taken(*self._producers.follow(table, first, stop))

    def follow_transactions(
        self, view: "ReadableBuffer", table: Columns, first: int, stop: int
    ) -> tuple[int, list[PassedMarker]]:
        """Like `follow`, but including new producers, and transactions that begin and end. view: the bytes of the file. Returns the row
        that is left to `apply`, and the markers before it."""
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
            if markers.count:
                passed += zip(*(markers.column(field) for field in range(MARKER_WIDTH)), strict=True)
            if markers.count < markers.capacity and not self._adds_producer(table, row, stop):
                return row, passed

    def _adds_producer(self, table: Columns, row: int, stop: int) -> bool:
        """Add the producer of a batch with records if it is new in the map, so that the kernel, which adds none, can continue."""
        if row >= stop or table.at(C.MAGIC, row) < L.MAGIC_V2 or table.at(C.ATTRIBUTES, row) & L.CONTROL_BIT:
            return False
        producer_id = table.at(C.PRODUCER_ID, row)
        is_new = producer_id > L.NO_PRODUCER_ID and producer_id not in self._producers.slot_of
        if is_new:
            self._slot(producer_id)
        return is_new

    def _taken(self, row: int, last_offset: int | None) -> int:
        if last_offset is not None:
            self.end_offset = L.as_int64(last_offset + 1)
        return row

    def expire(self, now_ms: int, expiration_ms: int = DEFAULT_EXPIRATION_MS) -> tuple[int, ...]:
        """Drop producers without an open transaction that were idle for `expiration_ms`; returns their ids."""
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
        """Add a transaction that no entry of its producer contains any more."""
        self._open.add(first_offset, producer_id)
        self._open.sort()

    def snapshot(self) -> tuple[ProducerSnapshotEntry, ...]:
        """The entries that a broker would write now, in its order."""
        # the sort is stable: within a bucket the older entry comes first
        in_order = sorted(self._producers.slot_of, key=self._bucket)
        return tuple(self._entry(producer_id) for producer_id in in_order)

    @property
    def greatest_id(self) -> int:
        """The greatest producer id that is known, -1 for none."""
        return max(self._producers.slot_of, default=-1)

    def entry(self, producer_id: int) -> ProducerSnapshotEntry | None:
        """The state of one producer; None if it is unknown."""
        return self._entry(producer_id) if producer_id in self._producers.slot_of else None

    def batch_timestamp_ms(self, producer_id: int) -> int:
        """The maximum timestamp of the last batch of a known producer, -1 if none is remembered."""
        return self._producers.get(self._producers.slot_of[producer_id], BATCH_TIMESTAMP)

    @property
    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """The open transactions by first offset."""
        return tuple(self._open_transaction(place) for place in self._open.in_order())

    @property
    def first_undecided_offset(self) -> int | None:
        """The smallest first offset of the open transactions, None if there are none."""
        return self._open.first()

    @property
    def first_unstable_offset(self) -> int | None:
        """The smallest first offset of transactions that are undecided, or decided at or above the high watermark; None if there are
        none."""
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
        if slot is None:  # the producer's own entry has expired
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
    """How long a producer was idle, in Java's 64 bits: a timestamp far below 0 counts as one in the future."""
    return L.as_int64(now_ms - last_timestamp_ms)
