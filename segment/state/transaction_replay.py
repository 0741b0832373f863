"""The transactions in a log: which were committed or aborted, which are open, and the state of their producers.

It replays tables of batches like `ProducerState` (Kafka: ProducerStateManager, fact sheet §5.3), but to list transactions rather than to
check an index or a snapshot: it keeps the data range of each transaction, returns ended ones as columns, and creates no object per batch.

The data of a transaction are its batches with records. If the cleaner has emptied all of them it has none, and a marker without
data is not reported as a transaction. For a broker, an open transaction begins at its first batch, even an empty one.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import follow_transactions as T
from kseg.segment.kernel.follow_producers import (
    COORDINATOR_EPOCH,
    EPOCH,
    LAST_OFFSET,
    LAST_SEQUENCE,
    OFFSET_DELTA,
    TIMESTAMP,
)
from kseg.segment.scanning.decode import Decoder
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry
from kseg.segment.state.control import EndTransactionMarker
from kseg.segment.state.producer_table import ProducerTable
from kseg.segment.state.replay import marker_of

_ENDED_ROWS = 4096


class UnfinishedTransaction(NamedTuple):
    """A transaction without a marker. first_offset: as in a broker. The other fields are those of its last data batch; last_offset is None
    if the producer has no last batch."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int | None
    timestamp_ms: int


class LastMarker(NamedTuple):
    """The last marker of a producer."""

    offset: int
    producer_epoch: int
    timestamp_ms: int


class TransactionReplay:
    """The replay: apply tables of valid batches in log order, and take the transactions that ended.

    end_offset: after the last applied batch.
    """

    def __init__(self, end_offset: int = 0, entries: Iterable[ProducerSnapshotEntry] = ()) -> None:
        """entries: of the snapshot with `end_offset` in its name."""
        self.end_offset = end_offset
        self._known = ProducerTable(T.TRANSACTION_WIDTH)
        self._ended = Columns(T.ENDED_WIDTH, _ENDED_ROWS)
        self._state = memoryview(array("q", [end_offset - 1, 0]))
        self._replaced: dict[int, UnfinishedTransaction] = {}  # by first offset
        for entry in entries:
            self._load(entry)

    def follow(self, decoder: Decoder, table: Columns, first: int = 0) -> Iterator[Columns]:
        """Apply the rows from `first` on. Yields the table of ended transactions (columns `E_…` of the kernel) whenever it is full;
        the next rows reuse it."""
        known, ended, state = self._known, self._ended, self._state
        row = first
        while row < table.count:
            row = T.follow_transactions(
                decoder.view,
                *table.raw,
                row,
                table.count,
                known.slot_of,
                known.cells,
                known.room,
                *ended.raw,
                state,
            )
            if state[T.S_ENDED] == ended.capacity:
                yield from self.take_ended()
            elif row < table.count:
                self._closer_look(decoder, table, row)
                row += 1
        self.end_offset = state[T.S_LAST] + 1

    def take_ended(self) -> Iterator[Columns]:
        """The transactions that ended since the last call, as a table; yields nothing if there are none."""
        if self._state[T.S_ENDED]:
            self._ended.count, self._state[T.S_ENDED] = self._state[T.S_ENDED], 0
            yield self._ended

    def unfinished(self) -> list[UnfinishedTransaction]:
        """The transactions without a marker, by first offset."""
        known = self._known
        found = []
        for producer_id, slot in known.slot_of.items():
            first = known.transaction_first_offset(slot)
            if first is not None:
                found.append(self._unfinished(producer_id, slot, first))
        return sorted(found, key=_by_first_offset)

    def replaced(self) -> list[UnfinishedTransaction]:
        """By first offset: transactions from a snapshot entry that a later entry of the same producer replaced. A broker keeps them
        open, and no marker ends them (Kafka: ProducerStateManager.loadProducerEntry)."""
        return sorted(self._replaced.values(), key=_by_first_offset)

    def entries(self) -> list[ProducerSnapshotEntry]:
        """The state of each producer, by producer id."""
        return [self._entry(producer_id, slot) for producer_id, slot in sorted(self._known.slot_of.items())]

    def entry(self, producer_id: int) -> ProducerSnapshotEntry | None:
        """The state of one producer; None if it is unknown."""
        slot = self._known.slot_of.get(producer_id)
        return None if slot is None else self._entry(producer_id, slot)

    def _unfinished(self, producer_id: int, slot: int, first: int) -> UnfinishedTransaction:
        known = self._known
        last = known.get(slot, LAST_OFFSET)
        epoch, timestamp_ms = known.get(slot, EPOCH), known.get(slot, TIMESTAMP)
        return UnfinishedTransaction(producer_id, epoch, first, None if last < 0 else last, timestamp_ms)

    def _entry(self, producer_id: int, slot: int) -> ProducerSnapshotEntry:
        known = self._known
        return ProducerSnapshotEntry(
            producer_id=producer_id,
            producer_epoch=known.get(slot, EPOCH),
            last_sequence=known.get(slot, LAST_SEQUENCE),
            last_offset=known.get(slot, LAST_OFFSET),
            offset_delta=known.get(slot, OFFSET_DELTA),
            timestamp_ms=known.get(slot, TIMESTAMP),
            coordinator_epoch=known.get(slot, COORDINATOR_EPOCH),
            current_txn_first_offset=known.transaction_first_offset(slot),
        )

    def last_marker(self, producer_id: int) -> LastMarker | None:
        """The last marker of a producer; None if none was read. Markers that only a snapshot contains do not count."""
        slot = self._known.slot_of.get(producer_id)
        if slot is None or self._known.get(slot, T.MARKER_OFFSET) < 0:
            return None
        fields = (T.MARKER_OFFSET, T.MARKER_EPOCH, T.MARKER_TIMESTAMP)
        return LastMarker(*(self._known.get(slot, field) for field in fields))

    # --- the rare rows

    def _closer_look(self, decoder: Decoder, table: Columns, row: int) -> None:
        known, producer_id = self._known, table.at(C.PRODUCER_ID, row)
        slot = known.slot_of.get(producer_id)
        if slot is None:
            slot = known.add(producer_id)
        if not table.at(C.ATTRIBUTES, row) & L.CONTROL_BIT:
            self._data(table, row, slot)
        else:
            marker = marker_of(decoder, table, row)
            if marker is not None:
                self._marker(table, row, slot, marker)
        self._state[T.S_LAST] = table.at(C.LAST_OFFSET, row)

    def _data(self, table: Columns, row: int, slot: int) -> None:
        known = self._known
        base, last = table.at(C.BASE_OFFSET, row), table.at(C.LAST_OFFSET, row)
        epoch, timestamp_ms = table.at(C.PRODUCER_EPOCH, row), table.at(C.MAX_TIMESTAMP, row)
        sequence, delta = table.at(C.BASE_SEQUENCE, row), L.as_int32(last - base)
        known.set(slot, EPOCH, epoch)
        is_unset = sequence == L.NO_SEQUENCE
        known.set(slot, LAST_SEQUENCE, sequence if is_unset else L.increment_sequence(sequence, delta))
        known.set(slot, LAST_OFFSET, last)
        known.set(slot, OFFSET_DELTA, delta)
        known.set(slot, TIMESTAMP, timestamp_ms)
        if not table.at(C.ATTRIBUTES, row) & L.TRANSACTIONAL_BIT:
            return
        if known.transaction_first_offset(slot) is None:
            known.set_transaction(slot, base)
        if table.at(C.COUNT, row):
            if known.get(slot, T.DATA_FIRST) < 0:
                known.set(slot, T.DATA_FIRST, base)
            known.set(slot, T.DATA_LAST, last)
            known.set(slot, T.DATA_EPOCH, epoch)
            known.set(slot, T.DATA_TIMESTAMP, timestamp_ms)

    def _marker(self, table: Columns, row: int, slot: int, marker: EndTransactionMarker) -> None:
        known, base = self._known, table.at(C.BASE_OFFSET, row)
        epoch = table.at(C.PRODUCER_EPOCH, row)
        if known.get(slot, T.DATA_FIRST) >= 0:
            self._note_ended(table.at(C.PRODUCER_ID, row), slot, base, marker.is_abort)
        known.enter_epoch(slot, epoch)
        known.set(slot, COORDINATOR_EPOCH, marker.coordinator_epoch)
        known.set(slot, TIMESTAMP, marker.timestamp_ms)
        known.set_transaction(slot, None)
        known.set(slot, T.MARKER_OFFSET, base)
        known.set(slot, T.MARKER_EPOCH, epoch)
        known.set(slot, T.MARKER_TIMESTAMP, marker.timestamp_ms)

    def _note_ended(self, producer_id: int, slot: int, marker_offset: int, is_abort: bool) -> None:
        known, ended, at = self._known, self._ended, self._state[T.S_ENDED]
        values = (
            producer_id,
            known.get(slot, T.DATA_EPOCH),
            known.get(slot, T.DATA_FIRST),
            known.get(slot, T.DATA_LAST),
            known.get(slot, T.DATA_TIMESTAMP),
            marker_offset,
            int(is_abort),
        )
        for field, value in enumerate(values):
            ended.cells[field * ended.capacity + at] = value
        self._state[T.S_ENDED] = at + 1
        known.set(slot, T.DATA_FIRST, -1)

    def _load(self, entry: ProducerSnapshotEntry) -> None:
        known = self._known
        slot = known.slot_of.get(entry.producer_id)
        if slot is None:
            slot = known.add(entry.producer_id)
        elif (first := known.transaction_first_offset(slot)) is not None:
            self._replaced[first] = self._unfinished(entry.producer_id, slot, first)
        if entry.current_txn_first_offset is not None:
            self._replaced.pop(entry.current_txn_first_offset, None)
        known.forget_batch(slot)
        known.set(slot, EPOCH, entry.producer_epoch)
        known.set(slot, COORDINATOR_EPOCH, entry.coordinator_epoch)
        known.set(slot, TIMESTAMP, entry.timestamp_ms)
        known.set_transaction(slot, entry.current_txn_first_offset)
        if entry.last_offset >= 0:
            known.set(slot, LAST_SEQUENCE, entry.last_sequence)
            known.set(slot, LAST_OFFSET, entry.last_offset)
            known.set(slot, OFFSET_DELTA, entry.offset_delta)


def _by_first_offset(transaction: UnfinishedTransaction) -> tuple[int, int]:
    return transaction.first_offset, transaction.producer_id
