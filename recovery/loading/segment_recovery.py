"""Recovery of one segment (Kafka: LogSegment.recover; fact sheet §6.3).

1. Empty all three indexes.
2. Read batch after batch while length and checksum are valid. For each: its last offset must fit
   the segment (otherwise the segment overflows); the indexes get their entries (an offset that does not increase, or a
   full index, throws); a new leader epoch is recorded; the producer state is updated, and an aborted transaction is recorded.
3. The first invalid batch, partial batch, or unreadable control record ends the walk. The log is truncated after the
   last valid batch (a batch whose control record cannot be read is kept).
4. The time index gets its final entry; the indexes are trimmed.

Nothing is decompressed, counted or compared with adjacent batches.
"""

from array import array
from collections.abc import Iterator

from kseg.recovery.loading.epoch_cache import LoadedEpochs
from kseg.recovery.loading.kafka_exceptions import ILLEGAL_ARGUMENT, INVALID_RECORD, KAFKA, BrokerException
from kseg.recovery.loading.loss_report import report_truncation
from kseg.recovery.loading.producer_replay import apply_rows, read_marker, rows_of_producers, rows_to_read
from kseg.recovery.loading.producer_snapshots import LoadedProducers
from kseg.recovery.loading.segment import LoadedSegment, OrderedRange
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel import verify_records
from kseg.segment.kernel.batch_walk import FULL, first_invalid, walk
from kseg.segment.kernel.validate import next_doubtful
from kseg.segment.scanning.decode import Decoder
from kseg.segment.scanning.preallocated_tail import PREALLOCATED
from kseg.segment.sidecar.index import TimeIndexEntry
from kseg.segment.sidecar.index_builder import IndexRefusal, SegmentIndexes
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.state.control import EndTransactionMarker

_REBUILT = "rebuilt from the log"


def recover(segment: LoadedSegment, producers: LoadedProducers, epochs: LoadedEpochs) -> int:
    """Recover a segment; returns the number of bytes truncated from its log. Raises BrokerException, leaving the indexes as far
    as they were built."""
    return _Recovery(segment, producers, epochs).run()


class _Recovery:
    def __init__(self, segment: LoadedSegment, producers: LoadedProducers, epochs: LoadedEpochs) -> None:
        self._segment = segment
        self._producers = producers
        self._epochs = epochs
        self._view = segment.view
        self._scanner = segment.load_state.scanner(segment.log_name, segment.base_offset)
        self._indexes = SegmentIndexes(
            segment.base_offset, segment.settings.index_interval_bytes, segment.settings.segment_index_bytes
        )
        self._decoder = Decoder(self._view, capacity=16)
        self._valid_bytes = 0
        self._next_offset: int | None = None
        self._cause: Finding | None = None
        self._first: tuple[int, int] | None = None  # offset and leader epoch
        self._seen = memoryview(array("q", bytes(8 * S.SEEN_WIDTH)))
        self._seen[S.SEEN_LAST] = max(segment.base_offset, -L.INT64_MAX) - 1
        self._is_in_order = True

    def run(self) -> int:
        segment = self._segment
        segment.offset_index.reset()
        segment.time_index.reset()
        segment.txn_index.reset()
        segment.largest = None
        try:
            for table, good in self._tables():
                if not self._take(table, good):
                    break
        finally:
            self._store_indexes()
        segment.checked_bytes = self._valid_bytes
        removed = self._cut()
        if not removed and self._is_in_order:
            first, epoch = (segment.base_offset, L.NO_LEADER_EPOCH) if self._first is None else self._first
            last, last_epoch = self._seen[S.SEEN_LAST], self._seen[S.SEEN_EPOCH]
            segment.ordered_range = OrderedRange(first, last, epoch, last_epoch)
        segment.offset_index.trim()
        refusal = self._indexes.finish()
        self._store_indexes()
        if refusal is not None:
            raise BrokerException(refusal.kafka_exception, refusal.sentence)
        segment.offset_index.finish(_REBUILT)
        segment.time_index.finish(_REBUILT)
        return removed

    def _tables(self) -> Iterator[tuple[Columns, int]]:
        """Tables of batches, and how many of their leading rows are valid; the last one ends the walk."""
        view, position = self._view, 0
        scanner = self._scanner
        state = memoryview(array("q", [0, 0]))
        is_checked = self._segment.checked_bytes == len(view)
        while True:
            if is_checked:
                table = scanner.table
                state[S.BATCHES_END] = position
                reason = walk(view, len(view), table.cells, table.capacity, state)
                table.count = good = state[S.BATCHES_COUNT]
            else:
                reason = scanner.fill(position, len(view))
                table = scanner.table  # a new array: the first one is small
                good = first_invalid(table.cells, table.capacity, table.count)
            if good:
                yield table, good
                position = table.at(C.POSITION, good - 1) + table.at(C.SIZE, good - 1)
            if good < table.count or reason != FULL:
                return

    def _take(self, table: Columns, good: int) -> bool:
        """Apply the valid rows of a table; False if recovery stops within them."""
        stop, unread, markers, thrown = self._read_markers(table, good)
        refused = self._indexes.add_rows(table, 0, stop)
        taken = stop if refused is None else refused[0]
        applied = min(taken, unread)
        refused_epoch = self._note_epochs(table, taken)
        ends = [end for end, _ in filter(None, (thrown, refused_epoch))]
        aborted = self._apply(table, min(applied, stop, *ends), markers)
        self._segment.txn_index.append(aborted)
        if refused_epoch is not None and (thrown is None or refused_epoch[0] <= thrown[0]):
            raise refused_epoch[1]
        if thrown is not None and thrown[0] < taken:
            raise thrown[1]
        if refused is not None:
            raise self._refusal(table, *refused)
        if taken:
            self._note_order(table, taken)
            self._valid_bytes = table.at(C.POSITION, taken - 1) + table.at(C.SIZE, taken - 1)
            self._next_offset = table.at(C.LAST_OFFSET, taken - 1) + 1
        return unread >= good

    def _note_order(self, table: Columns, stop: int) -> None:
        """Record whether offsets increase. A broker does not notice decreases between index entries; the comparison of the policies
        does."""
        if self._first is None:
            epoch = table.at(C.LEADER_EPOCH, 0) if table.at(C.MAGIC, 0) >= L.MAGIC_V2 else L.NO_LEADER_EPOCH
            self._first = table.at(C.BASE_OFFSET, 0), epoch
            self._seen[S.SEEN_EPOCH] = epoch
        if next_doubtful(self._view, 0, stop, table.cells, table.capacity, 1) < stop:
            self._is_in_order = False  # consumers may miss records of it; salvage determines which
        row, seen = 0, self._seen
        while self._is_in_order and row < stop:
            epoch = seen[S.SEEN_EPOCH]
            row = verify_records.next_suspect(table.cells, table.capacity, row, stop, seen)
            is_wrong = (
                seen[S.SEEN_REASONS] & (verify_records.OFFSET | verify_records.COUNT)
                or seen[S.SEEN_EPOCH] < epoch
            )
            self._is_in_order = row >= stop or not is_wrong
            row += 1

    def _read_markers(
        self, table: Columns, good: int
    ) -> tuple[int, int, dict[int, EndTransactionMarker | None], tuple[int, BrokerException] | None]:
        """(rows that are applied, the row whose control record cannot be read or `good`, the markers of the rows to read, the exception
        that ends the load and its row)."""
        markers: dict[int, EndTransactionMarker | None] = {}
        for row in rows_to_read(self._view, table, good):
            try:
                markers[row] = read_marker(self._decoder, table, row)
            except BrokerException as thrown:
                if thrown.kafka_exception != INVALID_RECORD:
                    return good, good, markers, (row, thrown)
                self._cause = self._bad_control_record(table, row, thrown)
                return row + 1, row, markers, None
        return good, good, markers, None

    def _note_epochs(self, table: Columns, stop: int) -> tuple[int, BrokerException] | None:
        """The row whose epoch cannot be recorded, and the exception that the broker throws there."""
        epochs = table.column(C.LEADER_EPOCH)[:stop]
        latest = self._epochs.latest_epoch
        if not stop or max(epochs) <= latest:
            return None
        bases = table.column(C.BASE_OFFSET)
        refused = None
        for row, epoch in enumerate(epochs):
            if epoch > latest:
                try:
                    self._epochs.assign(epoch, bases[row])
                except BrokerException as thrown:
                    refused = row, thrown
                    break
                latest = epoch
        self._epochs.save()
        return refused

    def _apply(
        self, table: Columns, stop: int, markers: dict[int, EndTransactionMarker | None]
    ) -> list[AbortedTxn]:
        producers = self._producers
        if producers.lost:
            self._check_lost_transactions(table, stop)
        return apply_rows(producers.state, self._decoder, table, stop, markers)

    def _check_lost_transactions(self, table: Columns, stop: int) -> None:
        """A marker of a transaction that is missing from the list of open ones ends the load."""
        state = self._producers.state
        for row in rows_of_producers(table, stop):
            known = state.entry(table.at(C.PRODUCER_ID, row))
            if known is not None and known.current_txn_first_offset in self._producers.lost:
                raise BrokerException(
                    ILLEGAL_ARGUMENT,
                    f"the transaction from offset {known.current_txn_first_offset} ends twice",
                )

    def _store_indexes(self) -> None:
        """Store the indexes in the segment, as far as they are built."""
        segment, indexes = self._segment, self._indexes
        segment.offset_index.replace_entries(indexes.offset_index.to_bytes())
        segment.time_index.replace_entries(indexes.time_index.to_bytes())
        segment.largest = TimeIndexEntry(indexes.max_timestamp_ms, indexes.offset_of_max)
        segment.txn_index.write_back()

    def _cut(self) -> int:
        segment = self._segment
        removed = len(self._view) - self._valid_bytes
        if removed:
            self._raise_if_unreadable()
            cause_id = report_truncation(
                segment.load_state,
                segment.log_name,
                segment.base_offset,
                self._valid_bytes,
                self._next_offset,
                self._cause,
            )
            why = f"a broker truncates the log at the first damage ({cause_id})"
            if cause_id == PREALLOCATED:
                why = "a broker cuts off what was preallocated"
            segment.cut(self._valid_bytes, why)
        return removed

    def _raise_if_unreadable(self) -> None:
        """Raises BrokerException where the next batch is not invalid but unreadable for a broker: it reads length and magic byte first,
        then the whole batch (Kafka: FileLogInputStream, FileChannelRecordBatch.loadBatchWithSize)."""
        start = self._valid_bytes
        stop = start + L.HEADER_TO_MAGIC
        if not self._scanner.unreadable(start, stop):
            size = int.from_bytes(self._view[start + 8 : start + L.ENTRY_OVERHEAD], "big", signed=True)
            end = start + L.ENTRY_OVERHEAD + size
            stop = end if end <= len(self._view) else stop
        bad = self._scanner.unreadable(start, stop)
        if bad:
            many = f"{bad[0].length} bytes at position {bad[0].position} cannot be read ({bad[0].words})"
            raise BrokerException(
                KAFKA, f"{self._segment.log_name}: {many}; a broker fails with the same error"
            )

    def _refusal(self, table: Columns, row: int, refusal: IndexRefusal) -> BrokerException:
        position = table.at(C.POSITION, row)
        return BrokerException(
            refusal.kafka_exception, f"{self._segment.log_name}, position {position}: {refusal.sentence}"
        )

    def _bad_control_record(self, table: Columns, row: int, thrown: BrokerException) -> Finding:
        return Finding(
            "bad-control-record",
            self._segment.load_state.path(self._segment.log_name),
            f"{thrown.sentence}; a broker keeps this batch and truncates the log after it",
            position=table.at(C.POSITION, row),
            length=table.at(C.SIZE, row),
            first_offset=table.at(C.BASE_OFFSET, row),
            last_offset=table.at(C.LAST_OFFSET, row),
        )
