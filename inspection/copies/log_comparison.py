"""Compare two copies of a log by offset, regardless of their segments and batches.

1. Where both cursors are at the same batches (offsets, checksum, size), whole runs are compared as bytes, except partition leader epochs.
2. A batch with none of its offsets in the other copy is missing there.
3. Different batches that overlap are collected up to an offset where a batch ends in both copies, and compared record by record.
4. The copies diverge at the first offset where their records differ. The rest is only checked for damage.

Only offsets that both copies can have are compared: from the later log start to the earlier end.
"""

from collections.abc import Iterator

from kseg.inspection.copies.compared_records import compare_records
from kseg.inspection.copies.copy_batches import RANGES_TOLD, CopiedBatch, CopyBatches, OffsetSpan
from kseg.segment import header_tables as C
from kseg.segment import layout as L

_COMPARED_AT_ONCE_BYTES = 1 << 20
_STRETCH_BYTES = 64 << 20  # of batches that overlap and end at different offsets
_ALIKE = (C.BASE_OFFSET, C.LAST_OFFSET, C.CRC, C.SIZE, C.MAGIC)
_BEHIND_LEADER_EPOCH, _BEHIND_LEGACY_SIZE = L.MAGIC_POSITION, L.ENTRY_OVERHEAD


class Missing:
    """Offsets of records that one copy has and the other has not, gathered into ranges; the first so many ranges are kept."""

    def __init__(self) -> None:
        self.ranges: list[OffsetSpan] = []
        self.records = 0
        self.last: int | None = None

    def add(self, first: int, last: int, records: int) -> None:
        self.records += records
        if self.ranges and self.last is not None and self.last + 1 == first:
            self.ranges[-1] = OffsetSpan(self.ranges[-1].first, last)
        elif len(self.ranges) < RANGES_TOLD:
            self.ranges.append(OffsetSpan(first, last))
        else:
            return
        self.last = last


class LogComparison:
    """start_offset: where both copies have begun. After `run`: differs_at, the offset where they diverge; epochs_differ_at, the first offset that
    batches of both give another leader epoch; same_batches, and repacked_batches of A that hold the same records in other batches;
    missing_in_a, missing_in_b. to_offset: behind the last offset that was compared."""

    def __init__(self, a: CopyBatches, b: CopyBatches, start_offset: int) -> None:
        self._a, self._b = a, b
        self._start = start_offset
        self.differs_at: int | None = None
        self.epochs_differ_at: int | None = None
        self.same_batches = self.repacked_batches = 0
        self.missing_in_a, self.missing_in_b = Missing(), Missing()
        self._carried: tuple[list[CopiedBatch], list[CopiedBatch]] = [], []

    def run(self) -> Iterator[None]:
        """Compare the copies. Yields from time to time, so that the caller can report progress."""
        for copy in (self._a, self._b):
            while not copy.is_done and copy.at(C.LAST_OFFSET) < self._start:
                copy.advance(1)
        steps = 0
        while self.differs_at is None and not (self._a.is_done or self._b.is_done):
            same = 0 if any(self._carried) else self._same_run()
            if same:
                self.same_batches += same
                self._a.advance(same)
                self._b.advance(same)
                yield
            else:
                self._settle()
            steps += 1
            if steps % 1024 == 0:
                yield
        for copy in (self._a, self._b):
            while not copy.is_done:
                copy.advance(copy.left)
                yield

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
                return False  # batches between them were left out
        view_a, view_b = a.view, b.view
        for done in range(0, total, _COMPARED_AT_ONCE_BYTES):
            step = min(_COMPARED_AT_ONCE_BYTES, total - done)
            from_a, from_b = starts[0] + done, starts[1] + done
            if bytes(view_a[from_a : from_a + step]) != bytes(view_b[from_b : from_b + step]):
                return False
        return True

    def _same_but_for_epoch(self, at: int) -> bool:
        """Compares the batches `at` rows behind the cursors, and notes another leader epoch."""
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

    # --- others

    def _settle(self) -> None:
        a, b = self._a, self._b
        if any(self._carried):
            self._compare_stretch()
        elif a.at(C.LAST_OFFSET) < b.at(C.BASE_OFFSET):
            self._only_one_has(a, self.missing_in_b)
        elif b.at(C.LAST_OFFSET) < a.at(C.BASE_OFFSET):
            self._only_one_has(b, self.missing_in_a)
        else:
            self._compare_stretch()

    def _only_one_has(self, holder: CopyBatches, missing: Missing) -> None:
        first, last = holder.at(C.BASE_OFFSET), holder.at(C.LAST_OFFSET)
        count = holder.at(C.COUNT)
        if count:  # the cleaner leaves batches without records for their producer's sake
            missing.add(max(first, self._start), last, count if count > 0 else last - first + 1)
        holder.advance(1)

    def _compare_stretch(self) -> None:
        of_a, of_b = self._stretch()
        a_ends, b_ends = of_a[-1].last_offset, of_b[-1].last_offset
        # what reaches beyond the end of the other copy is not missing there: that copy is behind
        stop = min(
            [ends for ends, copy in ((a_ends, self._a), (b_ends, self._b)) if copy.is_done],
            default=L.INT64_MAX,
        )
        is_cut = any(self._carried)
        if is_cut:
            stop = min(a_ends, b_ends)
        found = compare_records(of_a, of_b, self._start, stop)
        self._start = self._start if stop == L.INT64_MAX else max(self._start, stop + 1)
        if found.epochs_differ_at is not None:
            self._note_epochs(found.epochs_differ_at)
        self.differs_at = found.differs_at
        for offset in found.only_in_a:
            self.missing_in_b.add(offset, offset, 1)
        for offset in found.only_in_b:
            self.missing_in_a.add(offset, offset, 1)
        if found.differs_at is None and not found.only_in_a and not found.only_in_b:
            self.repacked_batches += len(of_a) - len(self._carried[0])

    def _stretch(self) -> tuple[list[CopiedBatch], list[CopiedBatch]]:
        """Batches of both from the cursors on, up to an offset where both copies end one, or to one that the other has nothing at. The cursors are behind
        them then. Where that is too much at a time, the last batch of the longer one is carried over to the next stretch."""
        a, b = self._a, self._b
        of_a, of_b = (carried or [_taken(copy)] for carried, copy in zip(self._carried, (a, b), strict=True))
        self._carried = [], []
        held = sum(len(batch.data) for batch in (*of_a, *of_b))
        while of_a[-1].last_offset != of_b[-1].last_offset:
            is_a_shorter = of_a[-1].last_offset < of_b[-1].last_offset
            copy, taken, longer = (a, of_a, of_b[-1]) if is_a_shorter else (b, of_b, of_a[-1])
            if copy.is_done or copy.at(C.BASE_OFFSET) > longer.last_offset:
                break
            if held >= _STRETCH_BYTES:
                self._carried = ([], [longer]) if is_a_shorter else ([longer], [])
                break
            taken.append(_taken(copy))
            held += len(taken[-1].data)
        return of_a, of_b


def _taken(copy: CopyBatches) -> CopiedBatch:
    batch = copy.batch()
    copy.advance(1)
    return batch


def _common(a: memoryview, b: memoryview) -> int:
    """Length of the common prefix."""
    if a.tobytes() == b.tobytes():
        return len(a)
    return next((at for at, (left, right) in enumerate(zip(a, b, strict=True)) if left != right), len(a))
