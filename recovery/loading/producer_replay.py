"""Build producer state from batches, in the two ways in which a broker does it (fact sheet §5.3).

one by one   when it recovers a segment (Kafka: LogSegment.updateProducerState): the state is right after each batch
together     when it replays a segment it does not recover (Kafka: UnifiedLog.loadProducersFromRecords): what each
             producer did in the segment is gathered first, then the producers enter the map in the order of another
             hash map, then the completed transactions are removed from the list of open ones

The two differ for an inconsistent log: a producer that falls back to an earlier epoch within a segment keeps its last batch only
when replayed together; a transaction that begins twice at one offset ends the load only when replayed together.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from kseg.recovery.loading.kafka_exceptions import (
    ILLEGAL_ARGUMENT,
    INDEX_OUT_OF_BOUNDS,
    INVALID_RECORD,
    KAFKA,
    BrokerException,
)
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import counted
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.follow_producers import next_control
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.decode import Chunk, Decoder, record_at
from kseg.segment.sidecar.snapshot import NO_OFFSET, ProducerSnapshotEntry
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.state.control import EndTransactionMarker, end_transaction_marker
from kseg.segment.state.kraft_messages import ControlRecordError
from kseg.segment.state.producer import ProducerState
from kseg.segment.state.replay import completed
from kseg.segment.state.replay_events import CompletedTransaction, LostTransaction, OutsideTransaction
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import ReadableBuffer

INVALID_TXN_STATE = "InvalidTxnStateException"


def rows_of_producers(table: Columns, stop: int) -> list[int]:
    """The control batches of producers among the first rows."""
    producer_ids = table.column(C.PRODUCER_ID)[:stop]
    if not stop or max(producer_ids) < 0:
        return []
    attributes, magics = table.column(C.ATTRIBUTES), table.column(C.MAGIC)
    return [
        row
        for row, producer_id in enumerate(producer_ids)
        if producer_id >= 0 and attributes[row] & L.CONTROL_BIT and magics[row] >= L.MAGIC_V2
    ]


def rows_to_read(view: "ReadableBuffer", table: Columns, stop: int) -> Iterator[int]:
    """The rows whose marker has to be read: all except transaction markers that look exactly as brokers write them, which cannot be
    invalid. view: the bytes of the file."""
    row = next_control(view, table.cells, table.capacity, 0, stop)
    while row < stop:
        yield row
        row = next_control(view, table.cells, table.capacity, row + 1, stop)


def read_marker(decoder: Decoder, table: Columns, row: int) -> EndTransactionMarker | None:
    """The content of the first record of a producer's control batch, None when it has no record. Raises BrokerException."""
    location = f"the control batch at position {table.at(C.POSITION, row)}"
    if table.at(C.SIZE, row) < L.BATCH_HEADER:
        # a broker reads the other fields from the file, but the record count from the bytes of the batch alone
        raise BrokerException(INDEX_OUT_OF_BOUNDS, f"{location} ends inside its header")
    count = table.at(C.COUNT, row)
    codec = table.at(C.ATTRIBUTES, row) & L.CODEC_MASK
    if not count:
        return None
    if codec > L.ZSTD:
        raise BrokerException(ILLEGAL_ARGUMENT, f"{location} has an unknown codec")
    if count < 0:
        raise BrokerException(INVALID_RECORD, f"{location} declares {counted(count, 'record')}")
    first: Chunk | None = None
    marker: EndTransactionMarker | None = None
    refusal: ControlRecordError | None = None
    for chunk in decoder.chunks(table, row, row + 1):
        # an uncompressed batch is read record by record, a compressed one as a whole
        if chunk.problem is not None and (codec or count == 1 or not (first or chunk.records.count)):
            thrown = KAFKA if chunk.problem.code is None else INVALID_RECORD
            raise BrokerException(thrown, f"{location}: {chunk.problem.sentence}")
        if first is None and chunk.records.count:
            first = chunk
            try:
                marker = end_transaction_marker(record_at(chunk, 0))
            except ControlRecordError as error:
                refusal = error
        if first is not None and not codec:
            break
    if refusal is not None:
        raise BrokerException(refusal.kafka_exception, f"{location}: {refusal}")
    return marker


def apply_rows(
    state: ProducerState,
    decoder: Decoder,
    table: Columns,
    stop: int,
    markers: Mapping[int, EndTransactionMarker | None],
) -> list[AbortedTxn]:
    """One by one: apply the first `stop` rows; returns the entries for the transaction index. markers: those of the rows to read.

    Raises BrokerException where a broker's recovery ends.
    """
    aborted: list[AbortedTxn] = []
    row = 0
    while True:
        row, passed = state.follow_transactions(decoder.view, table, row, stop)
        aborted += (event.index_entry for event in completed(passed) if event.index_entry is not None)
        if row >= stop:
            return aborted
        batch = batch_at(table, row)
        marker = None
        if batch.is_control and batch.producer_id >= 0 and batch.magic >= L.MAGIC_V2:
            marker = markers[row] if row in markers else read_marker(decoder, table, row)
        for event in state.apply(batch, marker):
            match event:
                case CompletedTransaction() if event.index_entry is not None:
                    aborted.append(event.index_entry)
                case OutsideTransaction():
                    raise _outside(event.producer_id, event.base_offset)
                case LostTransaction():
                    raise _lost(event.producer_id, event.first_offset)
        row += 1


def _outside(producer_id: int, offset: int) -> BrokerException:
    sentence = f"producer {producer_id} wrote at offset {offset} outside its open transaction"
    return BrokerException(INVALID_TXN_STATE, sentence)


def _lost(producer_id: int, first_offset: int) -> BrokerException:
    sentence = f"the transaction of producer {producer_id} from offset {first_offset} ends twice"
    return BrokerException(ILLEGAL_ARGUMENT, sentence)


@dataclass(slots=True)
class SegmentReplay:
    """The appends of all producers in one segment. before: the state at the start of the segment."""

    before: ProducerState
    _appends: ProducerState = field(default_factory=ProducerState)
    _open: dict[int, int | None] = field(default_factory=dict)
    _changed: set[int] = field(default_factory=set)
    _marked: set[int] = field(default_factory=set)
    started: list[tuple[int, int]] = field(default_factory=list)  # (first offset, producer id)
    completed: list[tuple[int, int]] = field(default_factory=list)  # (first offset, offset of the marker)

    def take(self, decoder: Decoder, table: Columns) -> None:
        """Add the next table of batches. Raises BrokerException where a broker's replay would fail."""
        if max(table.column(C.PRODUCER_ID)) < 0:
            return
        row = self._appends.follow(table, 0, table.count)
        while row < table.count:
            if table.at(C.PRODUCER_ID, row) >= 0 and table.at(C.MAGIC, row) >= L.MAGIC_V2:
                self._take_row(decoder, table, row)
            row = self._appends.follow(table, row + 1, table.count)

    def _take_row(self, decoder: Decoder, table: Columns, row: int) -> None:
        batch = batch_at(table, row)
        producer_id = batch.producer_id
        if producer_id not in self._open:
            known = self.before.entry(producer_id)
            self._open[producer_id] = None if known is None else known.current_txn_first_offset
        first_offset = self._open[producer_id]
        if batch.is_control:
            marker = read_marker(decoder, table, row)
            self._appends.apply(batch, marker)
            if marker is None:
                return
            self._marked.add(producer_id)
            if first_offset is not None:
                self.completed.append((first_offset, batch.base_offset))
            self._open[producer_id] = None
        else:
            self._appends.apply(batch)
            if first_offset is not None and not batch.is_transactional:
                raise _outside(producer_id, batch.base_offset)
            if first_offset is None and batch.is_transactional:
                self._open[producer_id] = batch.base_offset
                self.started.append((batch.base_offset, producer_id))
        self._changed.add(producer_id)

    def merged(self) -> list[ProducerSnapshotEntry]:
        """The resulting producers, in the order in which a broker inserts them into its hash map."""
        entries = {entry.producer_id: entry for entry in self.before.snapshot()}
        gathered = {entry.producer_id: entry for entry in self._appends.snapshot()}
        for producer_id in _in_hash_order(list(self._open)):
            entries[producer_id] = self._merge(entries.get(producer_id), gathered[producer_id])
        return list(entries.values())

    def _merge(
        self, known: ProducerSnapshotEntry | None, gathered: ProducerSnapshotEntry
    ) -> ProducerSnapshotEntry:
        producer_id = gathered.producer_id
        if producer_id not in self._changed:
            return known or gathered
        merged = gathered._replace(current_txn_first_offset=self._open[producer_id])
        if known is None:
            return merged
        if producer_id not in self._marked:
            merged = merged._replace(coordinator_epoch=known.coordinator_epoch)
        has_batch = (gathered.last_sequence, gathered.last_offset) != (L.NO_SEQUENCE, NO_OFFSET)
        if not has_batch and known.producer_epoch == gathered.producer_epoch:
            merged = merged._replace(
                last_sequence=known.last_sequence,
                last_offset=known.last_offset,
                offset_delta=known.offset_delta,
            )
        return merged


def _in_hash_order(producer_ids: list[int]) -> list[int]:
    """The iteration order of Kafka's map of producers, from the order of insertion.

    It is filled by HashMap.computeIfAbsent, which inserts a new key at the head of its bucket and resizes the table only on the
    next insertion.
    """
    capacity = 16
    while len(producer_ids) - 1 > capacity // 4 * 3:
        capacity *= 2
    newest_first = producer_ids[::-1]
    return sorted(newest_first, key=lambda producer_id: _bucket(producer_id, capacity))


def _bucket(producer_id: int, capacity: int) -> int:
    bits = producer_id & 0xFFFF_FFFF_FFFF_FFFF
    hash_code = (bits ^ bits >> 32) & 0xFFFF_FFFF
    return (hash_code ^ hash_code >> 16) & (capacity - 1)
