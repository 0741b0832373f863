"""Merge valid runs of several logs into one order: offsets strictly increase, and one copy of duplicate offsets is kept.

1. Valid runs sorted by first offset form groups whose ranges overlap. A group of one is kept as it is.
2. A group is merged like sorted lists. While only one run has the next offsets, its batches pass a table at a time.
3. Batches of several runs that overlap, directly or through others, are resolved together. The kept one is:
       a. byte-equal copies          the first: of the lower segment, in it the lower position
       b. different leader epochs    the higher epoch: what a later leader wrote is what the replicas agreed on
       c. equal epochs               the copy in the segment whose offset range it belongs to, else one that is in order
                                     with the other batches of its file (`file_order`), else the one in the longer run of
                                     batches without damage between them, which a reused block does not have, else one that
                                     is in order with its neighbours, else the first
       These rules come first: a batch that does not follow damage wins, then one that is not a copy of the previous batch with
       another offset, then one whose epoch is possible there: no later batch in its place has a lower epoch,
       and the leader-epoch checkpoint does not contradict it
   In that order, every batch is kept that overlaps none of those already kept. So a batch that loses only to one that is itself removed is
   kept, too.

`Superseded` records which batches are removed, and why.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from kseg.recovery.salvage.file_order import out_of_order
from kseg.recovery.salvage.logs import Logs, ValidRun, valid_run_of
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.values import dataclass

COPY, EPOCH, OWN_SEGMENT, FIRST = "equal-copy", "leader-epoch", "own-segment", "first-copy"
BELIEVED, ORIGINAL, POSSIBLE = "in-its-place", "no-altered-copy", "possible-epoch"
IN_ORDER = "in-order"
# At most this many overlapping batches are resolved together; more occur only in logs that no broker writes.
MAX_RESOLVED = 20_000


class OverlappingBatch(NamedTuple):
    first_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    log: int
    position: int
    size_bytes: int
    producer_id: int
    is_believed: bool
    is_inner: bool
    run_position: int

    @property
    def valid_run(self) -> ValidRun:
        epochs = self.leader_epoch, self.leader_epoch
        return ValidRun(
            self.log, self.position, self.size_bytes, self.first_offset, self.last_offset, 1, *epochs
        )


@dataclass(frozen=True, slots=True)
class Superseded:
    """Consecutive batches of one log that are removed because others have their offsets. rule: the one that decided. kept_log:
    number of the log with the kept copy."""

    valid_run: ValidRun
    rule: str
    kept_log: int


class MergeResult:
    """Collects the kept valid runs in order and the superseded ones."""

    def __init__(self) -> None:
        self.kept: list[ValidRun] = []
        self.superseded: list[Superseded] = []

    @property
    def last_offset(self) -> int:
        return self.kept[-1].last_offset if self.kept else -1

    def keep(self, valid_run: ValidRun) -> None:
        before = self.kept[-1] if self.kept else None
        if before is not None and _follows(before, valid_run):
            self.kept[-1] = before.joined(valid_run)
        else:
            self.kept.append(valid_run)

    def supersede(self, valid_run: ValidRun, rule: str, kept_log: int) -> None:
        before = self.superseded[-1] if self.superseded else None
        if (
            before is not None
            and (before.rule, before.kept_log) == (rule, kept_log)
            and _follows(before.valid_run, valid_run)
        ):
            self.superseded[-1] = replace(before, valid_run=before.valid_run.joined(valid_run))
        else:
            self.superseded.append(Superseded(valid_run, rule, kept_log))


def _follows(before: ValidRun, after: ValidRun) -> bool:
    return before.log == after.log and before.end_position == after.position


def in_order(logs: Logs, valid_runs: Sequence[ValidRun], epochs: EpochHistory | None) -> MergeResult:
    """Determine which of these valid runs are kept and which are superseded. epochs: the leader-epoch checkpoint, None if there is none or
    it is not trusted."""
    result = MergeResult()
    by_offset = sorted(valid_runs, key=lambda found: (found.first_offset, found.log, found.position))
    possible = _Epochs(logs, by_offset, epochs)
    misplaced = _Misplaced(logs, by_offset)
    start = 0
    while start < len(by_offset):
        stop, reach = start + 1, by_offset[start].last_offset
        while stop < len(by_offset) and by_offset[stop].first_offset <= reach:
            reach = max(reach, by_offset[stop].last_offset)
            stop += 1
        if stop == start + 1:
            result.keep(by_offset[start])
        else:
            _Merge(logs, result, possible, misplaced).run(by_offset[start:stop])
        start = stop
    return result


class _Stream:
    """The batches of one valid run, from the front."""

    def __init__(self, logs: Logs, valid_run: ValidRun) -> None:
        self._logs = logs
        self.valid_run = valid_run
        self._tables: Iterator[Columns] | None = None
        self._table = Columns(C.BATCH_WIDTH, 1)
        self._row = 0
        self.head = valid_run.first_offset

    def is_open(self) -> bool:
        """Whether there is a batch left; opens the valid run."""
        if self._tables is None:
            self._tables = self._logs.tables(self.valid_run)
        while self._row >= self._table.count:
            table = next(self._tables, None)
            if table is None:
                return False
            self._table, self._row = table, 0
        self.head = self._logs.first_offset(self.valid_run.log, self._table, self._row)
        return True

    def pop_below(self, limit: int) -> ValidRun | None:
        """The next batches that end below `limit`, up to the end of a table."""
        table, row = self._table, self._row
        stop = _first_reaching(table, row, limit)
        if stop == row:
            return None
        self._row = stop
        return valid_run_of(self.valid_run.log, table, row, stop)

    def pop(self) -> OverlappingBatch:
        at, row = self._table.at, self._row
        begin, end = at(C.POSITION, row), at(C.POSITION, row) + at(C.SIZE, row)
        self._row += 1
        epoch = at(C.LEADER_EPOCH, row) if at(C.MAGIC, row) >= L.MAGIC_V2 else L.NO_LEADER_EPOCH
        return OverlappingBatch(
            self.head,
            at(C.LAST_OFFSET, row),
            epoch,
            at(C.CRC, row),
            self.valid_run.log,
            at(C.POSITION, row),
            at(C.SIZE, row),
            at(C.PRODUCER_ID, row),
            self.valid_run.is_believed,
            self.valid_run.position < begin and end < self.valid_run.end_position,
            self.valid_run.position,
        )


def _first_reaching(table: Columns, row: int, limit: int) -> int:
    low, high = row, table.count
    while low < high:
        middle = (low + high) // 2
        if table.at(C.LAST_OFFSET, middle) < limit:
            low = middle + 1
        else:
            high = middle
    return low


class _Epochs:
    """Which leader epochs are possible at an offset: they never decrease."""

    def __init__(self, logs: Logs, by_offset: Sequence[ValidRun], history: EpochHistory | None) -> None:
        self._entries = () if history is None else history.entries
        self._starts: list[int] = []
        self._least: list[int] = []  # least epoch of the valid runs from that offset on
        least = L.INT32_MAX
        for valid_run in reversed(by_offset):
            is_in_own_segment = logs.is_in_own_segment(
                valid_run.log, valid_run.first_offset, valid_run.first_offset
            )
            if is_in_own_segment and valid_run.is_believed and valid_run.first_epoch >= 0:
                least = min(least, valid_run.first_epoch)
            self._starts.append(valid_run.first_offset)
            self._least.append(least)
        self._starts.reverse()
        self._least.reverse()

    def allow(self, candidate: "OverlappingBatch") -> bool:
        """Whether the leader epoch of this batch is possible at its offsets."""
        epoch = candidate.leader_epoch
        if epoch < 0:
            return True
        at = bisect_right(self._entries, candidate.first_offset, key=lambda entry: entry.start_offset)
        if (at and self._entries[at - 1].epoch > epoch) or (
            at < len(self._entries) and self._entries[at].epoch <= epoch
        ):
            return False
        at = bisect_right(self._starts, candidate.last_offset)
        return at == len(self._least) or epoch <= self._least[at]


class _Misplaced:
    """The batches that are out of order in their files, determined where it matters."""

    def __init__(self, logs: Logs, valid_runs: Sequence[ValidRun]) -> None:
        self._logs = logs
        self._valid_runs = valid_runs
        self._positions: dict[int, frozenset[int]] = {}
        self._around: dict[int, dict[int, int]] = {}

    def include(self, batch: OverlappingBatch) -> bool:
        if batch.log not in self._positions:
            own = [each for each in self._valid_runs if each.log == batch.log]
            self._positions[batch.log] = out_of_order(self._logs, own) if len(own) > 1 else frozenset()
        return batch.position in self._positions[batch.log]

    def batches_around(self, batch: OverlappingBatch) -> int:
        """The number of batches without damage between them, this one among them."""
        if batch.log not in self._around:
            self._around[batch.log] = _undamaged([each for each in self._valid_runs if each.log == batch.log])
        return self._around[batch.log][batch.run_position]


def _undamaged(valid_runs: Sequence[ValidRun]) -> dict[int, int]:
    """By position of a valid run: the number of batches in it and in those that adjoin it, directly or through others. valid_runs: those of
    one log."""
    joined: list[list[ValidRun]] = []
    for valid_run in sorted(valid_runs, key=lambda each: each.position):
        if joined and _follows(joined[-1][-1], valid_run):
            joined[-1].append(valid_run)
        else:
            joined.append([valid_run])
    counts = ((runs, sum(run.batches for run in runs)) for runs in joined)
    return {each.position: count for runs, count in counts for each in runs}


class _Merge:
    def __init__(self, logs: Logs, result: MergeResult, epochs: _Epochs, misplaced: _Misplaced) -> None:
        self._logs = logs
        self._result = result
        self._epochs = epochs
        self._misplaced = misplaced
        self._waiting: list[tuple[int, int, _Stream]] = []

    def run(self, valid_runs: Sequence[ValidRun]) -> None:
        self._waiting = [
            (valid_run.first_offset, number, _Stream(self._logs, valid_run))
            for number, valid_run in enumerate(valid_runs)
        ]
        heapq.heapify(self._waiting)
        while self._waiting:
            _, number, stream = heapq.heappop(self._waiting)
            if not stream.is_open():
                continue
            limit = self._waiting[0][0] if self._waiting else L.INT64_MAX
            if stream.head <= self._result.last_offset:  # only after a group was resolved in part
                candidate = stream.pop()
                self._result.supersede(candidate.valid_run, FIRST, self._result.kept[-1].log)
            elif (below := stream.pop_below(limit)) is not None:
                self._result.keep(below)
            else:
                first = stream.pop()
                self._put_back(number, stream)  # its next batches may overlap the others as well
                self._resolve(self._overlapping(first))
                continue
            self._put_back(number, stream)

    def _put_back(self, number: int, stream: _Stream) -> None:
        if stream.is_open():
            heapq.heappush(self._waiting, (stream.head, number, stream))

    def _overlapping(self, first: OverlappingBatch) -> list[OverlappingBatch]:
        """The batch and all that overlap it, or one that overlaps it, and so on."""
        found, reach = [first], first.last_offset
        while self._waiting and self._waiting[0][0] <= reach and len(found) < MAX_RESOLVED:
            _, number, stream = heapq.heappop(self._waiting)
            if not stream.is_open():
                continue
            candidate = stream.pop()
            found.append(candidate)
            reach = max(reach, candidate.last_offset)
            self._put_back(number, stream)
        return found

    def _resolve(self, batches: list[OverlappingBatch]) -> None:
        kept: list[OverlappingBatch] = []  # by offset; none overlaps another
        for candidate in sorted(self._without_copies(batches), key=self._rank):
            at = bisect_left(kept, candidate.first_offset, key=lambda each: each.last_offset)
            if at < len(kept) and kept[at].first_offset <= candidate.last_offset:
                self._result.supersede(candidate.valid_run, self._rule(kept[at], candidate), kept[at].log)
            else:
                kept.insert(at, candidate)
        for candidate in kept:
            self._result.keep(candidate.valid_run)

    def _without_copies(self, batches: list[OverlappingBatch]) -> Iterator[OverlappingBatch]:
        firsts: dict[tuple[int, int, int, int, int], OverlappingBatch] = {}
        for candidate in sorted(batches, key=lambda found: (found.log, found.position)):
            key = (
                candidate.first_offset,
                candidate.last_offset,
                candidate.leader_epoch,
                candidate.crc,
                candidate.size_bytes,
            )
            original = firsts.setdefault(key, candidate)
            if original is candidate or self._body(original) != self._body(candidate):
                yield candidate
            else:
                self._result.supersede(candidate.valid_run, COPY, original.log)

    def _body(self, candidate: OverlappingBatch) -> memoryview:
        """Everything that the key of a copy leaves out."""
        view = self._logs.view(candidate.log)
        return view[candidate.position + L.HEADER_TO_MAGIC : candidate.position + candidate.size_bytes]

    def _rank(self, candidate: OverlappingBatch) -> tuple[bool | int, ...]:
        is_against = (
            not candidate.is_believed,
            self._is_altered_copy(candidate),
            not self._epochs.allow(candidate),
        )
        is_elsewhere = (
            not self._is_in_own_segment(candidate),
            self._misplaced.include(candidate),
            -self._misplaced.batches_around(candidate),
            not candidate.is_inner,
        )
        return *is_against, -candidate.leader_epoch, *is_elsewhere, candidate.log, candidate.position

    def _is_altered_copy(self, candidate: OverlappingBatch) -> bool:
        """Whether the batch before it in the file is the same with another offset: a producer with an id never writes a batch twice."""
        start = candidate.position - candidate.size_bytes
        if start < 0 or candidate.producer_id < 0:
            return False
        view = self._logs.view(candidate.log)
        return view[start + L.HEADER_TO_MAGIC : candidate.position] == self._body(candidate)

    def _rule(self, kept: OverlappingBatch, superseded: OverlappingBatch) -> str:
        if kept.is_believed and not superseded.is_believed:
            return BELIEVED
        if not self._is_altered_copy(kept) and self._is_altered_copy(superseded):
            return ORIGINAL
        if self._epochs.allow(kept) and not self._epochs.allow(superseded):
            return POSSIBLE
        if kept.leader_epoch > superseded.leader_epoch:
            return EPOCH
        if self._is_in_own_segment(kept) and not self._is_in_own_segment(superseded):
            return OWN_SEGMENT
        is_first = (kept.log, kept.position) < (superseded.log, superseded.position)
        return FIRST if is_first else IN_ORDER

    def _is_in_own_segment(self, candidate: OverlappingBatch) -> bool:
        return self._logs.is_in_own_segment(candidate.log, candidate.first_offset, candidate.last_offset)
