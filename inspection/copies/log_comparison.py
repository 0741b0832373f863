"""Compare two copies of a log by offset, regardless of their segments and batches.

1. While both cursors are at the same batches (offsets, checksum, size), whole runs are compared as bytes, except partition leader epochs.
2. A batch with none of its offsets in the other copy is missing there.
3. Different batches that overlap are decoded and compared record by record (`kernel.compare_records`), up to the next batch that both have.
4. The copies diverge at the first offset where their records differ. The rest is only checked for damage.

Only offsets that both copies can have are compared: from the later log start to the earlier end.
"""

from array import array
from collections.abc import Iterator

from kseg.inspection.copies.copy_batches import RANGES_TOLD, CopyBatches
from kseg.inspection.copies.record_stream import Missing, RecordStream, TakeGaps
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import compare_records as K
from kseg.segment.kernel import state_fields as S
from kseg.segment.scanning.decode import Chunk

_COMPARED_AT_ONCE_BYTES = 1 << 20
_LONGEST_RUN = 256  # batches of A
_ALIKE = (C.BASE_OFFSET, C.LAST_OFFSET, C.CRC, C.SIZE, C.MAGIC)
_BEHIND_LEADER_EPOCH, _BEHIND_LEGACY_SIZE = L.MAGIC_POSITION, L.ENTRY_OVERHEAD


class LogComparison:
    """start_offset: the later of the two log starts. After `run`: differs_at, the offset at which the copies diverge;
    epochs_differ_at, the first offset to which their batches give different leader epochs; same_batches, and repacked_batches:
    of A, whose records B has in other batches; missing_in_a, missing_in_b.

    take_gaps: two callbacks, for the records that A lacks and for those that B lacks. They also receive batches that are
    completely in such a gap, decoded; without them those count by their headers.
    """

    def __init__(
        self,
        a: CopyBatches,
        b: CopyBatches,
        start_offset: int,
        take_gaps: tuple[TakeGaps, TakeGaps] | None = None,
    ) -> None:
        self._a, self._b = a, b
        self._start = start_offset
        self.differs_at: int | None = None
        self.epochs_differ_at: int | None = None
        self.same_batches = 0
        self.missing_in_a, self.missing_in_b = Missing(RANGES_TOLD), Missing(RANGES_TOLD)
        self._decodes_gaps = take_gaps is not None
        take_a, take_b = take_gaps or (self._gap_in_a, self._gap_in_b)
        self._records_a, self._records_b = RecordStream(a, take_b), RecordStream(b, take_a)
        self._state = memoryview(array("q", bytes(8 * S.PAIR_WIDTH)))
        self._state[S.PAIR_FIRST], self._state[S.PAIR_LAST], self._state[S.PAIR_EPOCHS] = (
            start_offset,
            L.INT64_MAX,
            -1,
        )

    @property
    def repacked_batches(self) -> int:
        return self._state[S.PAIR_WHOLE]

    def run(self) -> Iterator[None]:
        """Compare the copies. Yields from time to time, so that the caller can report progress."""
        for copy in (self._a, self._b):
            while not copy.is_done and copy.at(C.LAST_OFFSET) < self._start:
                copy.advance(1)
        steps = 0
        while self.differs_at is None and self._step():
            steps += 1
            if steps % 256 == 0:
                yield
        for copy in (self._a, self._b):
            while not copy.is_done:
                copy.advance(copy.left)
                yield

    def _step(self) -> bool:
        """Compare some batches; False when one of the copies is at its end."""
        if self._records_a.chunk is not None or self._records_b.chunk is not None:
            self._compare_records()
            return True
        a, b = self._a, self._b
        if a.is_done and b.is_done:
            return False
        if a.is_done or b.is_done:
            return self._only_one_goes_on()
        same = self._same_run()
        if same:
            self.same_batches += same
            a.advance(same)
            b.advance(same)
        elif a.at(C.LAST_OFFSET) < b.at(C.BASE_OFFSET):
            self._only_one_has(a)
        elif b.at(C.LAST_OFFSET) < a.at(C.BASE_OFFSET):
            self._only_one_has(b)
        else:
            self._open_run()
        return True

    # --- batches that are the same

    def _same_run(self) -> int:
        """Number of identical batches from the cursors on."""
        a, b = self._a, self._b
        count = min(a.left, b.left)
        for field in _ALIKE:
            count = _common(
                a.table.column(field)[a.row : a.row + count], b.table.column(field)[b.row : b.row + count]
            )
            if not count:
                return 0
        if self._same_bytes(count):
            return count
        for at in range(count):
            if not self._same_but_for_epoch(at):
                return at
        return count

    def _same_bytes(self, count: int) -> bool:
        a, b = self._a, self._b
        sizes = a.table.column(C.SIZE)[a.row : a.row + count]
        total = sum(sizes)
        starts = a.at(C.POSITION), b.at(C.POSITION)
        for copy, start in zip((a, b), starts, strict=True):
            last = copy.row + count - 1
            if copy.table.at(C.POSITION, last) + copy.table.at(C.SIZE, last) - start != total:
                return False  # batches between them were skipped
        view_a, view_b = a.view, b.view
        for done in range(0, total, _COMPARED_AT_ONCE_BYTES):
            step = min(_COMPARED_AT_ONCE_BYTES, total - done)
            from_a, from_b = starts[0] + done, starts[1] + done
            if bytes(view_a[from_a : from_a + step]) != bytes(view_b[from_b : from_b + step]):
                return False
        return True

    def _same_but_for_epoch(self, at: int) -> bool:
        """Compare the batches `at` rows after the cursors, and record a different leader epoch."""
        a, b = self._a, self._b
        row_a, row_b = a.row + at, b.row + at
        skip = _BEHIND_LEADER_EPOCH if a.table.at(C.MAGIC, row_a) >= L.MAGIC_V2 else _BEHIND_LEGACY_SIZE
        size = a.table.at(C.SIZE, row_a)
        from_a, from_b = a.table.at(C.POSITION, row_a), b.table.at(C.POSITION, row_b)
        if bytes(a.view[from_a + skip : from_a + size]) != bytes(b.view[from_b + skip : from_b + size]):
            return False
        if a.table.at(C.LEADER_EPOCH, row_a) != b.table.at(C.LEADER_EPOCH, row_b):
            self._note_epochs(a.table.at(C.BASE_OFFSET, row_a))
        return True

    def _note_epochs(self, offset: int) -> None:
        if self.epochs_differ_at is None:
            self.epochs_differ_at = offset

    # --- batches that only one copy has

    def _only_one_goes_on(self) -> bool:
        """The other copy is at its end: it lacks the records that it could still have had, and is behind on the rest. Returns False in the
        latter case."""
        holder, other = (self._b, self._a) if self._a.is_done else (self._a, self._b)
        if holder.at(C.BASE_OFFSET) > other.covers_to:
            return False
        if holder.at(C.LAST_OFFSET) <= other.covers_to:
            self._only_one_has(holder)
        else:
            stream = self._records_b if holder is self._b else self._records_a
            stream.open(1)
            stream.flag_rest(self._start, other.covers_to)
        return True

    def _only_one_has(self, holder: CopyBatches) -> None:
        if not self._decodes_gaps or not holder.at(C.COUNT):
            first, last = holder.at(C.BASE_OFFSET), holder.at(C.LAST_OFFSET)
            count = holder.at(C.COUNT)
            if count:  # the cleaner keeps empty batches for the state of their producer
                missing = self.missing_in_a if holder is self._b else self.missing_in_b
                missing.add(max(first, self._start), last, count if count > 0 else last - first + 1)
            holder.advance(1)
            return
        other = self._b if holder is self._a else self._a
        stream = self._records_b if holder is self._b else self._records_a
        stream.open(holder.rows_to(other.covers_to if other.is_done else other.at(C.BASE_OFFSET) - 1))
        stream.flag_rest(self._start, L.INT64_MAX)

    # --- different batches

    def _open_run(self) -> None:
        """Open the overlapping batches of both, up to the next batch that both have."""
        a, b = self._a, self._b
        rows_a = min(a.left, _LONGEST_RUN)
        rows_b = b.rows_to(a.table.at(C.LAST_OFFSET, a.row + rows_a - 1))
        common = set(_identities(b, rows_b))
        shared = (row for row, identity in enumerate(_identities(a, rows_a)) if row and identity in common)
        self._open_a(next(shared, rows_a))
        self._records_b.open(b.rows_to(self._records_a.last_offset))

    def _open_a(self, rows: int) -> None:
        self._state[S.PAIR_ROW] = -1
        self._records_a.open(rows)

    def _compare_records(self) -> None:
        a, b = self._records_a, self._records_b
        if a.chunk is None:
            self._reopen(a, self._a, b)
        elif b.chunk is None:
            self._reopen(b, self._b, a)
        if a.chunk is None or b.chunk is None:
            return
        state = self._state
        state[S.PAIR_A], state[S.PAIR_B] = a.row, b.row
        of_a, of_b = a.chunk.records, b.chunk.records
        outcome = K.compare_rows(
            *(a.chunk.body, a.table.cells, a.table.capacity, of_a.cells, of_a.capacity, of_a.count),
            *(b.chunk.body, b.table.cells, b.table.capacity, of_b.cells, of_b.capacity, of_b.count),
            *(a.flags, b.flags, state),
        )
        a.row, b.row = state[S.PAIR_A], state[S.PAIR_B]
        if state[S.PAIR_EPOCHS] >= 0:
            self._note_epochs(state[S.PAIR_EPOCHS])
        if outcome == K.DIFFERENT:
            self._diverge(a.chunk, b.chunk)
        a.skip_exhausted()
        b.skip_exhausted()

    def _reopen(self, stream: RecordStream, copy: CopyBatches, other: RecordStream) -> None:
        """The run of one copy has ended, that of the other has not: continue with the batches that overlap it, or count the rest as a
        gap."""
        if copy.is_done:
            other.flag_rest(self._start, copy.covers_to)
        elif copy.at(C.BASE_OFFSET) > other.last_offset:
            other.flag_rest(self._start, L.INT64_MAX)
        else:
            rows = copy.rows_to(other.last_offset)
            if copy is self._a:
                self._open_a(rows)
            else:
                stream.open(rows)

    def _diverge(self, a: Chunk, b: Chunk) -> None:
        """Both have a record at the current offset, and the records differ. Records flagged after it do not count."""
        self.differs_at = a.records.at(C.R_OFFSET, self._records_a.row)
        for stream, chunk in ((self._records_a, a), (self._records_b, b)):
            stream.row = chunk.records.count

    def _gap_in_a(self, _table: Columns, chunk: Chunk, flags: bytearray) -> None:
        self.missing_in_a.add_flagged(chunk.records, flags)

    def _gap_in_b(self, _table: Columns, chunk: Chunk, flags: bytearray) -> None:
        self.missing_in_b.add_flagged(chunk.records, flags)


def _identities(copy: CopyBatches, rows: int) -> Iterator[tuple[int, ...]]:
    """The fields that identical batches have in common, for the next few rows."""
    return zip(*(copy.table.column(field)[copy.row : copy.row + rows] for field in _ALIKE), strict=True)


def _common(a: memoryview, b: memoryview) -> int:
    """Length of the common prefix."""
    if a.tobytes() == b.tobytes():
        return len(a)
    return next((at for at, (left, right) in enumerate(zip(a, b, strict=True)) if left != right), len(a))
