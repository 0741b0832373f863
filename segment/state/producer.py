"""What a broker remembers of producers and transactions, found by replaying the batches of a log.

The state is a map from producer id to its newest batch, its epochs and the start of its open transaction. Replay
(Kafka: ProducerStateManager, ProducerAppendInfo with origin REPLICATION; fact sheet §5.3) takes batches in log
order; nothing is validated, because what lies on disk was accepted once:

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
the high watermark. The last stable offset is that, or the high watermark when that is smaller.

A snapshot holds the map in the order in which Java's HashMap walks it, so that it equals a broker's file byte for
byte: by bucket of the hash, then by age. (A bucket of more than eight producers is ordered otherwise in Java; the
entries are the same.)
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kseg.segment import layout as L
from kseg.segment.model import Batch
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.state.control import EndTransactionMarker
from kseg.segment.state.open_transactions import OpenTransactions

DEFAULT_EXPIRATION_MS = 86_400_000
NO_COORDINATOR_EPOCH = -1
NO_OFFSET = -1

GAP = "gap"
DUPLICATE = "duplicate"

_SEQUENCES = 2**31
_HASH_CAPACITY = 16  # of an empty java.util.HashMap; it doubles when more than three quarters full


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction that a marker ended. first_offset: of its data. last_offset: of the marker.
    last_stable_offset: as a broker notes it in the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int

    @property
    def index_entry(self) -> AbortedTxn | None:
        """Its entry in the transaction index of the segment that holds the marker; None when it was committed."""
        if not self.is_aborted:
            return None
        return AbortedTxn(
            version=0,
            producer_id=self.producer_id,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            last_stable_offset=self.last_stable_offset,
        )


@dataclass(frozen=True, slots=True)
class SequenceBreak:
    """A data batch that does not continue its producer's sequence within one epoch. kind: GAP when it starts
    later than `expected`, DUPLICATE when earlier. distance: how far, in records."""

    kind: str
    producer_id: int
    producer_epoch: int
    base_offset: int
    expected: int
    found: int
    distance: int


@dataclass(frozen=True, slots=True)
class OutsideTransaction:
    """A data batch outside the open transaction of its producer: a broker's load dies of it
    (InvalidTxnStateException). Replay goes on, the transaction stays open."""

    producer_id: int
    base_offset: int
    last_offset: int
    transaction_first_offset: int


@dataclass(frozen=True, slots=True)
class LostTransaction:
    """A marker for a transaction whose place in the list of open ones another producer took, by a batch with the
    same base offset; a broker's load dies of it (IllegalArgumentException)."""

    producer_id: int
    first_offset: int
    last_offset: int


ReplayEvent = CompletedTransaction | SequenceBreak | OutsideTransaction | LostTransaction


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without a marker so far. last_offset, timestamp_ms: of the producer's newest batch."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class _Producer:
    """The mutable entry of one producer; field meanings are those of ProducerSnapshotEntry."""

    __slots__ = (
        "coordinator_epoch",
        "epoch",
        "last_offset",
        "last_sequence",
        "offset_delta",
        "timestamp_ms",
        "transaction_first_offset",
    )

    def __init__(self) -> None:
        self.epoch = L.NO_PRODUCER_EPOCH
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.timestamp_ms = L.NO_TIMESTAMP
        self.transaction_first_offset: int | None = None
        self.forget_batch()

    def forget_batch(self) -> None:
        self.last_sequence = L.NO_SEQUENCE
        self.last_offset = NO_OFFSET
        self.offset_delta = 0

    def enter_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.forget_batch()
            self.epoch = epoch

    def remember(self, batch: Batch) -> None:
        self.enter_epoch(batch.producer_epoch)
        self.last_sequence = batch.last_sequence
        self.last_offset = batch.last_offset
        self.offset_delta = L.as_int32(batch.last_offset_delta)
        self.timestamp_ms = batch.max_timestamp_ms

    def is_idle(self, now_ms: int, expiration_ms: int) -> bool:
        return self.transaction_first_offset is None and now_ms - self.timestamp_ms >= expiration_ms


class ProducerState:
    """The replay: feed it with the batches of a log in order, ask it in between.

    end_offset: the log offset up to which batches were seen, exclusive; a snapshot taken now is named by it.
    Batches of magic 0 and 1 do not move it, as in a broker's recovery: set it when the log's end is known.
    high_watermark: transactions whose marker lies at or above it stay unstable; None = all is replicated.
    """

    __slots__ = (
        "_first_unreplicated",
        "_hash_capacity",
        "_high_watermark",
        "_open",
        "_producers",
        "end_offset",
    )

    def __init__(self, end_offset: int = 0, high_watermark: int | None = None) -> None:
        self.end_offset = end_offset
        self._high_watermark = high_watermark
        self._producers: dict[int, _Producer] = {}
        self._hash_capacity = _HASH_CAPACITY
        self._open = OpenTransactions()
        self._first_unreplicated: int | None = None

    @classmethod
    def load(
        cls,
        entries: Iterable[ProducerSnapshotEntry],
        end_offset: int,
        now_ms: int | None = None,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
        high_watermark: int | None = None,
    ) -> "ProducerState":
        """The state a broker has after loading a snapshot. end_offset: the number in the snapshot's name.

        now_ms: producers idle for `expiration_ms` are left out as a broker does; None keeps them. Of several
        entries of one producer, which no broker writes, the last one counts.
        """
        state = cls(end_offset, high_watermark)
        for entry in entries:
            state._load_entry(entry, now_ms, expiration_ms)
        return state

    def apply(self, batch: Batch, marker: EndTransactionMarker | None = None) -> tuple[ReplayEvent, ...]:
        """Take in the next batch; what there is to say about it, mostly nothing.

        marker: what the first record of a control batch with a producer id says (`end_transaction_marker`), None
        when the batch has no record; not looked at for other batches.
        """
        if batch.magic < L.MAGIC_V2:
            return ()
        self.end_offset = batch.last_offset + 1
        if batch.producer_id <= L.NO_PRODUCER_ID:
            return ()
        producer = self._producer(batch.producer_id)
        if not batch.is_control:
            return self._apply_data(batch, producer)
        if marker is None:
            return ()
        return self._apply_marker(batch, marker, producer)

    def expire(self, now_ms: int, expiration_ms: int = DEFAULT_EXPIRATION_MS) -> tuple[int, ...]:
        """Drop producers without an open transaction that were idle for `expiration_ms`; the ids dropped."""
        idle = tuple(
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.is_idle(now_ms, expiration_ms)
        )
        for producer_id in idle:
            del self._producers[producer_id]
        return idle

    def snapshot(self) -> tuple[ProducerSnapshotEntry, ...]:
        """The entries a broker would write now, in its order."""
        in_order = sorted(self._producers, key=self._bucket)  # stable: within a bucket the older comes first
        return tuple(self._entry(producer_id) for producer_id in in_order)

    def entry(self, producer_id: int) -> ProducerSnapshotEntry | None:
        """What is known of one producer, None when nothing is."""
        return self._entry(producer_id) if producer_id in self._producers else None

    @property
    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """By first offset."""
        return tuple(self._open_transaction(*pair) for pair in self._open.in_order())

    @property
    def first_undecided_offset(self) -> int | None:
        """The smallest first offset of the open transactions, None when there are none."""
        return self._open.first()

    @property
    def first_unstable_offset(self) -> int | None:
        """The smallest first offset of what is undecided or decided above the high watermark, None if none is."""
        offsets = [offset for offset in (self._open.first(), self._first_unreplicated) if offset is not None]
        return min(offsets, default=None)

    def last_stable_offset(self, high_watermark: int, log_start_offset: int = 0) -> int:
        """Where a read_committed reader must stop (exclusive); never below the log start.

        high_watermark: of the log; offline usually its end offset. Source: Kafka's UnifiedLog, fact sheet §5.4.
        """
        unstable = self.first_unstable_offset
        if unstable is None:
            return high_watermark
        return min(max(unstable, log_start_offset), high_watermark)

    def _producer(self, producer_id: int) -> _Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer()
            if len(self._producers) > self._hash_capacity // 4 * 3:
                self._hash_capacity *= 2
        return producer

    def _apply_data(self, batch: Batch, producer: _Producer) -> tuple[ReplayEvent, ...]:
        events: tuple[ReplayEvent, ...] = ()
        if (
            batch.producer_epoch == producer.epoch
            and producer.last_sequence >= 0
            and batch.base_sequence >= 0
        ):
            events = _sequence_events(batch, producer.last_sequence)
        producer.remember(batch)
        first_offset = producer.transaction_first_offset
        if first_offset is None:
            if batch.is_transactional:
                producer.transaction_first_offset = batch.base_offset
                self._open.add(batch.base_offset, batch.producer_id)
        elif not batch.is_transactional:
            events += (
                OutsideTransaction(batch.producer_id, batch.base_offset, batch.last_offset, first_offset),
            )
        return events

    def _apply_marker(
        self, batch: Batch, marker: EndTransactionMarker, producer: _Producer
    ) -> tuple[ReplayEvent, ...]:
        first_offset = producer.transaction_first_offset
        producer.enter_epoch(batch.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.timestamp_ms = marker.timestamp_ms
        producer.transaction_first_offset = None
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
        last_stable_offset = marker_offset + 1 if next_open is None else next_open
        return (
            CompletedTransaction(
                batch.producer_id, first_offset, marker_offset, marker.is_abort, last_stable_offset
            ),
        )

    def _load_entry(self, entry: ProducerSnapshotEntry, now_ms: int | None, expiration_ms: int) -> None:
        loaded = _Producer()
        loaded.epoch = entry.producer_epoch
        loaded.coordinator_epoch = entry.coordinator_epoch
        loaded.timestamp_ms = entry.timestamp_ms
        loaded.transaction_first_offset = entry.current_txn_first_offset
        if entry.last_offset >= 0:
            loaded.last_sequence = entry.last_sequence
            loaded.last_offset = entry.last_offset
            loaded.offset_delta = entry.offset_delta
        if now_ms is not None and loaded.is_idle(now_ms, expiration_ms):
            return
        former = self._producer(entry.producer_id).transaction_first_offset
        if former is not None:
            self._open.remove(former)
        self._producers[entry.producer_id] = loaded
        if loaded.transaction_first_offset is not None:
            self._open.add(loaded.transaction_first_offset, entry.producer_id)

    def _entry(self, producer_id: int) -> ProducerSnapshotEntry:
        producer = self._producers[producer_id]
        return ProducerSnapshotEntry(
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_offset=producer.last_offset,
            offset_delta=producer.offset_delta,
            timestamp_ms=producer.timestamp_ms,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_first_offset=producer.transaction_first_offset,
        )

    def _open_transaction(self, first_offset: int, producer_id: int) -> OpenTransaction:
        producer = self._producers[producer_id]
        return OpenTransaction(
            producer_id, producer.epoch, first_offset, producer.last_offset, producer.timestamp_ms
        )

    def _bucket(self, producer_id: int) -> int:
        bits = producer_id & 0xFFFF_FFFF_FFFF_FFFF
        hash_code = (bits ^ bits >> 32) & 0xFFFF_FFFF
        return (hash_code ^ hash_code >> 16) & (self._hash_capacity - 1)


def _sequence_events(batch: Batch, last_sequence: int) -> tuple[SequenceBreak, ...]:
    expected = L.increment_sequence(last_sequence, 1)
    if batch.base_sequence == expected:
        return ()
    ahead = (batch.base_sequence - expected) % _SEQUENCES
    kind, distance = (GAP, ahead) if ahead < _SEQUENCES // 2 else (DUPLICATE, _SEQUENCES - ahead)
    return (
        SequenceBreak(
            kind,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_offset,
            expected,
            batch.base_sequence,
            distance,
        ),
    )
