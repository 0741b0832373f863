"""Second pass of a cleaning round: rewrite segments into new segments (Kafka: Cleaner.cleanInto; fact sheet §8.4 to §8.7).

For each batch, in this order:

1. Control batches and transactional data change the state of `transactions`, which decides whether they can be discarded.
2. Batches of an aborted transaction are removed.
3. A discardable marker is removed once its delete horizon has passed; one without a horizon gets one now. Others stay.
4. Records of other batches are looked up in the map (`kernel.key_verdicts`); each batch is rebuilt from those that stay
   (`kernel.filter_batches`).
5. A batch that loses all records is kept as a header if it ends the round or is the last one of its producer.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field

from kseg.compaction.cleaner.active_producers import LastRecords
from kseg.compaction.cleaner.cleaned_transactions import Transactions
from kseg.compaction.cleaner.new_log import Buffers, NewLog, Rules
from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.cleaner.segment_reader import control_kind, headers, outside, problem_of, tables
from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.compaction.cleaner.top_keys import KeySketch
from kseg.compaction.cleaner.transaction_runs import Kind, runs, track
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import batch_runs as B
from kseg.segment.kernel import filter_batches as W
from kseg.segment.kernel import key_verdicts as K
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import declared_records
from kseg.segment.scanning.decode import RECORDS_PER_TABLE, Chunk, Decoder
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.state.offset_map import KeyLookup
from kseg.segment.values import dataclass

_MARKER_BYTES = 78  # size of a batch with one end-transaction marker, as brokers write it


@dataclass(frozen=True, slots=True)
class PassTotals:
    """Counters, which add up, so groups of segments can be cleaned separately.

    totals: of filtered records (`key_verdicts.J_…`). counts: of new segments (`filter_batches.S_…`). records_read: as declared
    in the headers. aborted_records: data of aborted transactions, which are not looked up in the map. horizons: number of
    retained tombstones by delete horizon."""

    totals: tuple[int, ...] = (0,) * S.TOTAL_WIDTH
    counts: tuple[int, ...] = (0,) * S.REWRITE_WIDTH
    records_read: int = 0
    aborted_records: int = 0
    markers_kept: int = 0
    markers_removed: int = 0
    markers_stamped: int = 0
    horizons: Counter[int] = field(default_factory=Counter)

    def __add__(self, other: "PassTotals") -> "PassTotals":
        return PassTotals(
            _added(self.totals, other.totals),
            _added(self.counts, other.counts),
            self.records_read + other.records_read,
            self.aborted_records + other.aborted_records,
            self.markers_kept + other.markers_kept,
            self.markers_removed + other.markers_removed,
            self.markers_stamped + other.markers_stamped,
            self.horizons + other.horizons,
        )


def _added(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    return tuple(sum(pair) for pair in zip(left, right, strict=True))


class SegmentCleaner:
    """One second pass, or the part of it for one group. sketch: counts superseded values. `pass_totals` has the counters."""

    def __init__(
        self,
        offset_map: KeyLookup,
        settings: CleanSettings,
        last_records: LastRecords,
        upper_offset: int,
        legacy_horizon_ms: int,
        sketch: KeySketch | None = None,
    ) -> None:
        self._map = offset_map
        self._now_ms = settings.now_ms
        self._last_records = last_records
        self._legacy_horizon_ms = legacy_horizon_ms
        horizon_ms = settings.now_ms + settings.delete_retention_ms
        # Java's sum overflows to a negative number, so the batch is written without a delete horizon and is never removed
        if horizon_ms > L.INT64_MAX:
            horizon_ms = L.NO_TIMESTAMP
        self.rules = Rules(upper_offset, horizon_ms, last_records.data_offsets)
        self.buffers = Buffers(self.rules)
        self.transactions = Transactions()
        self.totals = memoryview(array("q", bytes(8 * S.TOTAL_WIDTH)))
        self.counts = [0] * S.REWRITE_WIDTH
        self.horizons: Counter[int] = Counter()
        self.records_read = self.aborted_records = 0
        self.markers_kept = self.markers_removed = self.markers_stamped = 0
        self.sketch = sketch
        self._runs = memoryview(array("q"))
        self._refilter_tallies = memoryview(array("q", bytes(8 * S.TOTAL_WIDTH)))
        self._flags = bytearray(RECORDS_PER_TABLE)
        self._keeps_legacy = True
        self._segment: CleanerSegment
        self._view = self._room = memoryview(b"")
        self._decoder: Decoder
        self._new: NewLog
        self._entries: list[AbortedTxn] = []

    def clean_into(
        self,
        new: NewLog,
        segment: CleanerSegment,
        entries: list[AbortedTxn],
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        """Clean one segment, or the part between two positions of it. entries: receives the entries of the new transaction index. Raises
        DamagedSegment, NotJoined when no batch ends at `stop`."""
        self._segment, self._new, self._entries = segment, new, entries
        self._keeps_legacy = segment.mtime_ms > self._legacy_horizon_ms
        with segment.opened() as view:
            self._view, self._decoder = view, Decoder(view)
            new.begin(segment.path, view)
            for table in tables(segment, view, start, stop=stop):
                self._table(table)
            new.end()
            self._view = memoryview(b"")
            del self._decoder

    @property
    def pass_totals(self) -> PassTotals:
        """Counters so far."""
        return PassTotals(
            tuple(self.totals),
            tuple(self.counts),
            self.records_read,
            self.aborted_records,
            self.markers_kept,
            self.markers_removed,
            self.markers_stamped,
            self.horizons,
        )

    def add_counts(self, new: NewLog) -> None:
        """Add the counts of a complete new segment."""
        self.counts = [sum(pair) for pair in zip(self.counts, new.state, strict=True)]

    def skip(self, segment: CleanerSegment) -> None:
        """Track the transactions of a segment that is skipped."""
        with segment.opened() as view:
            for table in tables(segment, view, 0, []):
                track(segment, view, table, self.transactions)

    def skip_headers(self, segment: CleanerSegment, stop: int | None) -> None:
        """Track the transactions of a segment up to a position; another process verifies the checksums."""
        with segment.opened() as view:
            for table in headers(view, 0, stop):
                track(segment, view, table, self.transactions)

    # --- a table of batches

    def _table(self, table: Columns) -> None:
        self.records_read += declared_records(table.cells, table.capacity, 0, table.count)
        tallies = self._tallies(table)
        W.clear_tallies(tallies, table.capacity, 0, table.count)
        state = self.transactions
        for kind, row, stop in runs(table, state):
            if kind is Kind.DATA:
                self._filter_batches(table, tallies, row, stop)
            elif kind is Kind.ABORTED:
                self.aborted_records += declared_records(table.cells, table.capacity, row, stop)
                self._new.drop(table, tallies, row, stop)
            else:
                self._control(table, tallies, row)
        state.advance_to(table.at(C.LAST_OFFSET, table.count - 1))

    def _tallies(self, table: Columns) -> memoryview:
        if len(self._room) < C.TALLY_WIDTH * table.capacity:
            self._room = _tallies_of(table)
        return self._room

    def _filter_batches(self, table: Columns, tallies: memoryview, row: int, stop: int) -> None:
        """Filter batches whose records are looked up in the map."""
        max_rows = self._decoder.records.capacity
        while row < stop:
            end = B.fitting_run(table.cells, table.capacity, row, stop, max_rows)
            if end > row:
                tombstones = self.totals[S.TOTAL_TOMBSTONES_KEPT]
                for chunk in self._decoder.chunks(table, row, end):
                    self._filter_chunk(table, tallies, chunk, self.totals)
                    self._new.emit(chunk, self._flags, table, tallies)
                if self.totals[S.TOTAL_TOMBSTONES_KEPT] > tombstones:
                    self._note_horizons(table, tallies, row, end)
                row = end
            else:
                self._large(table, tallies, row)
                self._note_horizons(table, tallies, row, row + 1)
                row += 1

    def _filter_chunk(self, table: Columns, tallies: memoryview, chunk: Chunk, totals: memoryview) -> None:
        if chunk.problem is not None or not self._map.hash(chunk):
            raise problem_of(self._segment, table, chunk.problem or outside(chunk.last_row))
        records = chunk.records
        K.judge_rows(
            *records.raw,
            records.count,
            self._map.words,
            self._map.slots,
            self._map.slot_count,
            self._map.latest_offset,
            self._now_ms,
            int(self._keeps_legacy),
            *table.raw,
            self._flags,
            tallies,
            totals,
        )
        if self.sketch is not None and totals is self.totals:
            self.sketch.count(chunk, self._flags, table, self._segment.base_offset)

    def _note_horizons(self, table: Columns, tallies: memoryview, row: int, stop: int) -> None:
        if len(self._runs) < 2 * table.capacity:
            self._runs = memoryview(array("q", bytes(16 * table.capacity)))
        runs = B.horizon_runs(
            table.cells, table.capacity, row, stop, tallies, self.rules.new_horizon_ms, self._runs
        )
        for at in range(runs):
            self.horizons[self._runs[2 * at]] += self._runs[2 * at + 1]

    def _large(self, table: Columns, tallies: memoryview, row: int) -> None:
        """One batch that may have more records than a table: filtered as a whole, and decoded once more if necessary."""
        declared = table.at(C.COUNT, row)
        for chunk in self._decoder.chunks(table, row, row + 1):
            self._filter_chunk(table, tallies, chunk, self.totals)
            if declared < 0:
                self.records_read += chunk.records.count
            if chunk.complete and tallies[C.T_RECORDS * table.capacity + row] == chunk.records.count:
                self._new.emit(chunk, self._flags, table, tallies)
                return
        kept = tallies[C.T_KEPT * table.capacity + row]
        is_legacy = table.at(C.MAGIC, row) < L.MAGIC_V2
        if not kept:
            self._new.drop(table, tallies, row, row + 1)
        elif not is_legacy and kept == declared and not self._is_horizon_due(table, tallies, row):
            self._new.take(table, tallies, row, row + 1)
        else:
            self._new.rebuild(table, tallies, row, self._refiltered(table, row))

    @staticmethod
    def _is_horizon_due(table: Columns, tallies: memoryview, row: int) -> bool:
        has_horizon = table.at(C.ATTRIBUTES, row) & L.DELETE_HORIZON_BIT
        return not has_horizon and tallies[C.T_TOMBSTONES * table.capacity + row] > 0

    def _refiltered(self, table: Columns, row: int) -> Iterator[tuple[Chunk, bytearray]]:
        tallies = _tallies_of(table)
        for chunk in self._decoder.chunks(table, row, row + 1):
            self._filter_chunk(table, tallies, chunk, self._refilter_tallies)
            yield chunk, self._flags

    # --- control batches

    def _control(self, table: Columns, tallies: memoryview, row: int) -> None:
        producer, last = table.at(C.PRODUCER_ID, row), table.at(C.LAST_OFFSET, row)
        kind = control_kind(self._segment, self._view, self._decoder, table, row)
        verdict = self.transactions.on_control_batch(producer, last, kind)
        if verdict.kept_entry is not None:
            self._entries.append(verdict.kept_entry)
        has_horizon = bool(table.at(C.ATTRIBUTES, row) & L.DELETE_HORIZON_BIT)
        has_passed = has_horizon and table.at(C.BASE_TIMESTAMP, row) <= self._now_ms
        if kind is None or (verdict.can_discard and has_passed):
            self.markers_removed += kind is not None
            if self._last_records.is_last_marker(producer, table.at(C.PRODUCER_EPOCH, row)):
                self._new.empty(table, tallies, row)
            else:
                self._new.drop(table, tallies, row, row + 1)
        elif not has_horizon and (verdict.can_discard or self._has_tombstone(table, row)):
            self.markers_kept += 1
            self.markers_stamped += 1
            self._stamp(table, tallies, row)
        else:
            self.markers_kept += 1
            self._new.take(table, tallies, row, row + 1)

    def _has_tombstone(self, table: Columns, row: int) -> bool:
        """Whether a record of a control batch has no value, so that a cleaner takes it for a tombstone, too."""
        if table.at(C.COUNT, row) == 1 and table.at(C.SIZE, row) == _MARKER_BYTES:
            return False
        for chunk in self._decoder.chunks(table, row, row + 1):
            lengths = chunk.records.column(C.R_VALUE_LENGTH)[: chunk.records.count]
            if any(length < 0 for length in lengths):
                return True
        return False

    def _stamp(self, table: Columns, tallies: memoryview, row: int) -> None:
        """Rewrite a marker with a delete horizon; all of its records stay."""
        capacity = table.capacity
        for chunk in self._decoder.chunks(table, row, row + 1):
            if chunk.problem is not None or not chunk.complete:
                raise problem_of(self._segment, table, chunk.problem or outside(row))
            records = chunk.records
            self._flags[: records.count] = b"\1" * records.count
            tallies[C.T_RECORDS * capacity + row] = tallies[C.T_KEPT * capacity + row] = records.count
            tallies[C.T_TOMBSTONES * capacity + row] = 1
            times = records.column(C.R_TIMESTAMP)
            tallies[C.T_MAX_TIMESTAMP * capacity + row] = max(times)
            tallies[C.T_FIRST_TIMESTAMP * capacity + row] = times[0]
            tallies[C.T_NEGATIVE * capacity + row] = sum(time < L.NO_TIMESTAMP for time in times)
            self._new.emit(chunk, self._flags, table, tallies)


def _tallies_of(table: Columns) -> memoryview:
    return memoryview(array("q", bytes(8 * C.TALLY_WIDTH * table.capacity)))
