"""Compare two copies of a large log in several processes: cut both at the same offsets, and compare each stretch separately.

1. The indexes of A locate batches about `STRETCH_BYTES` apart. From each of them on, the batch headers of both copies are followed until no
   batch of either contains the offset with which one begins: that is a cut. If there is no such place, there is no cut.
2. `fanout` compares the stretches, and the results are added up in order. From the first stretch in which the copies diverge, only the
   bytes read count.
3. A stretch must begin and end where the adjacent ones do, and must be free of damage. Otherwise one process compares both logs from the
   beginning.
"""

from array import array
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

from kseg.inspection.copies.copy_batches import CopyBatches, LogPlace, LogStretch
from kseg.inspection.copies.log_comparison import LogComparison
from kseg.inspection.copies.record_stream import Missing
from kseg.jobs import fanout
from kseg.jobs.events import Advance, Event, Failure, Row
from kseg.jobs.log_splitting import CannotSplit, index_cuts
from kseg.segment import header_tables as C
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import FULL, walk
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import LogTarget
from kseg.segment.storage import places
from kseg.segment.values import dataclass

STRETCH_BYTES = 16 << 20
_MIN_STRETCHES = 3
_HEADERS_TRIED = 2000  # limit of a search for a cut


@dataclass(frozen=True, slots=True)
class StretchPair:
    """The same stretch of two copies. start_offset: the later of the two log starts."""

    targets: tuple[LogTarget, LogTarget]
    stretches: tuple[LogStretch, LogStretch]
    start_offset: int

    @property
    def path(self) -> str:
        return self.targets[0].path


@dataclass(slots=True)
class CopyCounts:
    """What was read of one copy."""

    missing: Missing
    batches: int
    read_bytes: int
    end_offset: int


@dataclass(slots=True)
class Compared:
    """The result for a stretch, or for the logs. The fields are those of `LogComparison`."""

    differs_at: int | None
    epochs_differ_at: int | None
    same_batches: int
    repacked_batches: int
    a: CopyCounts
    b: CopyCounts

    def add(self, later: "Compared") -> None:
        """Add the result of the next stretch."""
        if self.differs_at is None:
            self.differs_at = later.differs_at
            if self.epochs_differ_at is None:
                self.epochs_differ_at = later.epochs_differ_at
            self.same_batches += later.same_batches
            self.repacked_batches += later.repacked_batches
            self.a.missing.extend(later.a.missing)
            self.b.missing.extend(later.b.missing)
        for mine, of_it in ((self.a, later.a), (self.b, later.b)):
            mine.batches += of_it.batches
            mine.read_bytes += of_it.read_bytes
            mine.end_offset = max(mine.end_offset, of_it.end_offset)


def result_of(comparison: LogComparison, a: CopyBatches, b: CopyBatches) -> Compared:
    """The result of a comparison that has ended."""
    counts = (
        CopyCounts(missing, copy.batches, copy.read_bytes, copy.end_offset)
        for missing, copy in ((comparison.missing_in_a, a), (comparison.missing_in_b, b))
    )
    return Compared(
        *(comparison.differs_at, comparison.epochs_differ_at),
        *(comparison.same_batches, comparison.repacked_batches),
        *counts,
    )


def compared_in_stretches(
    targets: tuple[LogTarget, LogTarget], start_offset: int, jobs: int
) -> Generator[Advance, None, Compared | None]:
    """The result by up to `jobs` processes, None if that is impossible or does not pay; yields progress."""
    stretches = _stretches(targets, start_offset) if jobs > 1 else []
    if len(stretches) < _MIN_STRETCHES:
        return None
    total: Compared | None = None
    done = 0
    with closing(fanout.run(compare_stretch, stretches, None, jobs)) as events:
        for event in events:
            if isinstance(event, Advance):
                yield event
            elif isinstance(event, (Finding, Failure)):
                return None
            elif isinstance(event, Row):
                assert isinstance(event.result, Compared)
                done += 1
                if total is None:
                    total = event.result
                else:
                    total.add(event.result)
    return total if done == len(stretches) else None


def compare_stretch(pair: StretchPair, _options: object) -> Iterator[Event]:
    """One row, whose result is a `Compared`; findings or a failure if the stretch is not as it should be. Raises UnreadableInput."""
    with PartitionLog(pair.targets[0]) as log_a, PartitionLog(pair.targets[1]) as log_b:
        a = CopyBatches(log_a, pair.stretches[0])
        b = CopyBatches(log_b, pair.stretches[1])
        try:
            comparison = LogComparison(a, b, max(pair.start_offset, pair.stretches[0].first_offset))
            for _ in comparison.run():
                pass
        except CannotSplit:
            yield Failure(pair.path, "", UnreadableInput.exit_status)
            return
        finally:
            a.close()
            b.close()
        yield from log_a.findings
        yield from log_b.findings
        for target, copy in zip(pair.targets, (a, b), strict=True):
            yield Advance(target.path, copy.read_bytes)
        yield Row({"type": "stretch"}, result_of(comparison, a, b))


# --- where to cut


def _stretches(targets: tuple[LogTarget, LogTarget], start_offset: int) -> list[StretchPair]:
    """The stretches; none if the logs are not cut."""
    if any(places.is_elsewhere(target.path) for target in targets):
        return []  # each process would fetch the whole log
    found: list[StretchPair] = []
    begins = LogStretch(), LogStretch()
    with PartitionLog(targets[0]) as log_a, PartitionLog(targets[1]) as log_b:
        try:
            for offset, ends in _cuts(log_a, log_b, start_offset):
                of_both = _until(begins[0], ends[0], offset), _until(begins[1], ends[1], offset)
                found.append(StretchPair(targets, of_both, start_offset))
                begins = LogStretch(ends[0], first_offset=offset), LogStretch(ends[1], first_offset=offset)
        except (UnreadableInput, CannotSplit):
            return []
    return [*found, StretchPair(targets, begins, start_offset)]


def _until(begin: LogStretch, stop: LogPlace, offset: int) -> LogStretch:
    return LogStretch(begin.start, stop, begin.first_offset, offset)


def _cuts(
    a: PartitionLog, b: PartitionLog, start_offset: int
) -> Iterator[tuple[int, tuple[LogPlace, LogPlace]]]:
    """(offset, the places in both) of each cut, in order."""
    before = LogPlace(0, 0), LogPlace(0, 0)
    for place in _candidates(a):
        if place <= before[0]:
            continue
        found = _common_place(a, b, place)
        if found is None:
            continue
        offset, ends = found
        if offset > start_offset and ends[0] > before[0] and ends[1] > before[1]:
            yield offset, ends
            before = ends


def _candidates(log: PartitionLog) -> Iterator[LogPlace]:
    """Places about `STRETCH_BYTES` apart, as far as index entries exist."""
    held = 0
    for number, segment in enumerate(log.segments):
        size = places.stat(segment.path).st_size
        for cut in index_cuts(segment.path, STRETCH_BYTES):
            if cut or (number and held >= STRETCH_BYTES):
                held = -cut
                yield LogPlace(number, cut)
        held += size


def _common_place(
    a: PartitionLog, b: PartitionLog, place: LogPlace
) -> tuple[int, tuple[LogPlace, LogPlace]] | None:
    """The first offset from there on at which a batch of A begins and that is not inside a batch of B."""
    of_a = _Headers(a, place)
    of_b = _Headers(b, _place_of(b, of_a.base_offset))
    for _ in range(_HEADERS_TRIED):
        if of_a.is_done or of_b.is_done:
            return None
        if of_b.last_offset < of_a.base_offset:
            of_b.advance()
        elif of_b.base_offset >= of_a.base_offset:
            return of_a.base_offset, (of_a.place, of_b.place)
        else:
            of_a.advance()
    return None


def _place_of(log: PartitionLog, offset: int) -> LogPlace:
    """A place before the first batch that contains or follows the offset, from the index."""
    number = max(0, log.floor_index(offset))
    if not log.segments:
        raise CannotSplit
    segment = log.segments[number]
    return LogPlace(number, segment.start_for(offset) if segment.base_offset < offset else 0)


class _Headers:
    """The batch headers of a log from a place on, by their length fields. Raises CannotSplit when those lead nowhere."""

    def __init__(self, log: PartitionLog, place: LogPlace) -> None:
        self._log = log
        self._segment = place.segment
        self._table = Columns(C.BATCH_WIDTH, 64)
        self._state = memoryview(array("q", [place.position, 0]))
        self._row = 0
        self.is_done = False
        self._load()

    @property
    def place(self) -> LogPlace:
        return LogPlace(self._segment, self._table.at(C.POSITION, self._row))

    @property
    def base_offset(self) -> int:
        return self._table.at(C.BASE_OFFSET, self._row)

    @property
    def last_offset(self) -> int:
        return self._table.at(C.LAST_OFFSET, self._row)

    def advance(self) -> None:
        self._row += 1
        if self._row >= self._table.count:
            self._load()

    def _load(self) -> None:
        segments: Sequence[object] = self._log.segments
        self._row = self._table.count = 0
        while not self._table.count:
            if self._segment >= len(segments):
                self.is_done = True
                return
            view = self._log.segments[self._segment].file.sparse_view
            if self._state[S.BATCHES_END] >= len(view):
                self._log.segments[self._segment].close()
                self._segment += 1
                self._state[S.BATCHES_END] = 0
                continue
            reason = walk(view, len(view), self._table.cells, self._table.capacity, self._state)
            self._table.count = self._state[S.BATCHES_COUNT]
            if min(self._table.column(C.MAGIC), default=0) < 2 or (
                reason != FULL and self._state[S.BATCHES_END] != len(view)
            ):
                raise CannotSplit
