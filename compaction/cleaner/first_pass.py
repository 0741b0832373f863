"""First pass of a cleaning round: put the keys of the dirty range into the offset map (rules: `offset_map`)."""

from array import array
from collections.abc import Sequence

from kseg.compaction.cleaner.cleaned_transactions import Transactions
from kseg.compaction.cleaner.log_cuts import Cut, parts
from kseg.compaction.cleaner.segment_reader import (
    DamagedSegment,
    control_kind,
    headers,
    outside,
    problem_of,
    tables,
)
from kseg.compaction.cleaner.segments import CleanerSegment, aborted_in, between
from kseg.compaction.cleaner.transaction_runs import Kind, runs, track
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import keymap as K
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_runs import packed_stop
from kseg.segment.kernel.batch_walk import plain_run, walk
from kseg.segment.scanning.decode import Decoder, Problem
from kseg.segment.scanning.decompressed_runs import DecompressedRun, DecompressionBuffer
from kseg.segment.sidecar.index import OffsetIndex
from kseg.segment.state.offset_map import OffsetMap, batch_row

_NO_BOUNDS = memoryview(array("q"))


class OffsetMapBuilder:
    """One pass. segments: of the whole log. found: collects damage, and reading continues; None: damage raises."""

    def __init__(
        self,
        segments: Sequence[CleanerSegment],
        offset_map: OffsetMap,
        log_start_offset: int,
        found: list[Finding] | None,
    ) -> None:
        self._segments = segments
        self._map = offset_map
        self._log_start = log_start_offset
        self._found = found
        self._transactions = Transactions()
        self._bodies = DecompressionBuffer()
        self._start = 0
        self._dirty: list[tuple[CleanerSegment, int]] = []  # with the offset that limits it

    def run(self, start_offset: int, end_offset: int) -> None:
        """Fill the map with start_offset <= offset < end_offset, until the map is full. Raises DamagedSegment."""
        self.begin(start_offset, end_offset)
        self.fill(None, None)

    def begin(self, start_offset: int, end_offset: int) -> None:
        """Start a pass over start_offset <= offset < end_offset: clear the map."""
        self._map.begin(start_offset)
        self._start = start_offset
        dirty = between(self._segments, start_offset, end_offset)
        self._transactions.add(aborted_in(self._segments, self._log_start, start_offset, end_offset))
        bounds = [*(segment.base_offset for segment in dirty[1:]), end_offset]
        self._dirty = [*zip(dirty, bounds, strict=True)]

    def fill(self, start: Cut | None, stop: Cut | None) -> bool:
        """Put the records between two cuts of the range into the map; returns whether it became full. A cut of None is the beginning or the
        end of the range. Raises DamagedSegment, NotJoined when no batch ends at `stop`."""
        for part in parts([segment for segment, _ in self._dirty], start, stop):
            segment, bound = self._dirty[part.number]
            with segment.opened() as view:
                position = part.start or start_position(segment, view, self._start)
                if self._segment(segment, view, position, part.stop):
                    return True
            if part.stop is None:
                self._map.update_latest_offset(bound - 1)
        return False

    def track(self, stop: Cut) -> int:
        """Advance only the transaction state, up to a cut, by the headers of batches whose checksums another process verifies; returns the
        last offset before the cut."""
        last_offset = self._start - 1
        for part in parts([segment for segment, _ in self._dirty], None, stop):
            segment = self._dirty[part.number][0]
            with segment.opened() as view:
                position = start_position(segment, view, self._start)
                for table in headers(view, position, part.stop):
                    track(segment, view, table, self._transactions)
                    last_offset = table.at(C.LAST_OFFSET, table.count - 1)
        return last_offset

    def _segment(self, segment: CleanerSegment, view: memoryview, position: int, stop: int | None) -> bool:
        """Put a segment's records into the map; returns whether it is full."""
        decoder = Decoder(view)
        for table in tables(segment, view, position, self._found, stop):
            self._map.begin_table()
            if self._table(segment, view, decoder, table):
                return True
            last = table.at(C.LAST_OFFSET, table.count - 1)
            if last >= self._start:
                self._map.update_latest_offset(last)
        return False

    def _table(self, segment: CleanerSegment, view: memoryview, decoder: Decoder, table: Columns) -> bool:
        state = self._transactions
        for run, row, stop in runs(table, state):
            if run is Kind.DATA:
                if self._rows(segment, decoder, table, row, stop):
                    return True
            elif run is Kind.ABORTED:
                self._map.skip(table.at(C.BASE_OFFSET, row), table.at(C.LAST_OFFSET, stop - 1))
            else:
                try:
                    kind = control_kind(segment, view, decoder, table, row)
                except DamagedSegment as damaged:
                    self._report(damaged)
                else:
                    state.on_control_batch(table.at(C.PRODUCER_ID, row), table.at(C.LAST_OFFSET, row), kind)
        return False

    def _rows(self, segment: CleanerSegment, decoder: Decoder, table: Columns, row: int, stop: int) -> bool:
        """Put the records of these batches into the map; returns whether it is full."""
        while row < stop:
            if table.at(C.MAGIC, row) < L.MAGIC_V2:
                end = max(plain_run(table.cells, table.capacity, row, stop), row + 1)
                if self._decoded(segment, decoder, table, row, end):
                    return True
            elif table.at(C.ATTRIBUTES, row) & L.CODEC_MASK:
                end = packed_stop(table.cells, table.capacity, row, stop)
                if self._packed(segment, decoder, table, row, end):
                    return True
                end = max(end, row + 1)  # a batch without records
            else:
                end = plain_run(table.cells, table.capacity, row, stop)
                if self._put(segment, decoder, table, DecompressedRun(row, end, decoder.view, _NO_BOUNDS)):
                    return True
            row = end
        return False

    def _packed(
        self, segment: CleanerSegment, decoder: Decoder, table: Columns, first: int, stop: int
    ) -> bool:
        for run in self._bodies.runs(decoder.view, table, first, stop, decoder.limit_bytes):
            if run.problem is not None:
                self._report(problem_of(segment, table, Problem(run.first, None, run.problem)))
            elif self._put(segment, decoder, table, run):
                return True
        return False

    def _put(self, segment: CleanerSegment, decoder: Decoder, table: Columns, run: DecompressedRun) -> bool:
        row = run.first
        while row < run.stop:
            status = self._map.map_rows(run, table, row, self._start)
            if status == K.MAPPED:
                return False
            if status == K.FULL:
                self._update_latest_offset(table, self._map.stopped)
                return True
            row = self._map.stopped
            self._report_undecodable(segment, decoder, table, row)
            row += 1
        return False

    def _report_undecodable(
        self, segment: CleanerSegment, decoder: Decoder, table: Columns, row: int
    ) -> None:
        """Report a batch whose records cannot be decoded."""
        for chunk in decoder.chunks(table, row, row + 1):
            if chunk.problem is not None:
                self._report(problem_of(segment, table, chunk.problem))

    def _decoded(
        self, segment: CleanerSegment, decoder: Decoder, table: Columns, row: int, stop: int
    ) -> bool:
        """The messages of a batch with magic 0 or 1."""
        for chunk in decoder.chunks(table, row, stop):
            if chunk.problem is not None or not self._map.hash(chunk):
                problem = chunk.problem or outside(chunk.last_row)
                self._report(problem_of(segment, table, problem))
                if chunk.problem is None:
                    continue
            full = self._map.put(chunk, self._start)
            if full is not None:
                self._update_latest_offset(table, batch_row(chunk, full.record))
                return True
        return False

    def _update_latest_offset(self, table: Columns, row: int) -> None:
        """The map became full in batch `row`: update its latest offset."""
        last_put = self._map.last_put_offset(row)
        if last_put is not None:
            self._map.update_latest_offset(last_put)
        elif row and table.at(C.LAST_OFFSET, row - 1) >= self._start:
            self._map.update_latest_offset(table.at(C.LAST_OFFSET, row - 1))

    def _report(self, damaged: DamagedSegment) -> None:
        if self._found is None:
            raise damaged
        damaged.segment.is_damaged = True
        self._found.extend(damaged.findings)


def start_position(segment: CleanerSegment, view: memoryview, offset: int) -> int:
    """Where the pass begins in a segment. A broker trusts the index; kseg does so only if a batch starts there."""
    if offset <= segment.base_offset or not len(view):
        return 0
    position = _indexed_position(segment, offset)
    if not 0 < position < len(view):
        return 0
    probe = Columns(C.BATCH_WIDTH, 1)
    state = memoryview(array("q", [position, 0]))
    walk(view, len(view), probe.cells, 1, state)
    is_batch = state[S.BATCHES_COUNT] == 1 and segment.base_offset <= probe.at(C.BASE_OFFSET, 0) <= probe.at(
        C.LAST_OFFSET, 0
    )
    return position if is_batch else 0


def _indexed_position(segment: CleanerSegment, offset: int) -> int:
    if segment.side_files is not None:
        return OffsetIndex(segment.side_files.offset_index, segment.base_offset).lookup(offset).position
    path = segment.index_paths[0]
    if path is None:
        return 0
    with MappedFile(path) as file:
        return OffsetIndex(file.view, segment.base_offset).lookup(offset).position
