"""One order from stretches of several places: offsets rise strictly, and of what is held twice one copy stays.

1. Stretches sorted by first offset fall into groups whose ranges overlap. A group of one stays as it is.
2. A group is merged like sorted lists. While only one stretch holds the next offsets, its batches pass by table-wise.
3. Where batches of several stretches overlap, those that hang together are settled at once:
       a. byte-equal copies          the first stays: of the lower segment, in it the one in front
       b. different leader epochs    the higher epoch stays: what a later leader wrote is what the replicas agreed on
       c. equal epochs               the copy in the segment whose name's range it belongs to, else one that stands
                                     between batches with which it is in order, else the first
       and before all these, one whose place in its file speaks for it, then one that is no copy of the batch in front
       of it under another offset, then one whose epoch is possible there: what lies behind it, where it belongs, is
       of no lower epoch, nor does the leader-epoch checkpoint know better
   By that rank, each batch stays that overlaps none that stays already. A batch that was beaten only by one that
   goes itself stays too.

Whoever goes, and why, is kept as `Beaten`.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from kseg.recovery.salvage.logs import Logs, ValidRun, stretch_of
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.sidecar.leader_epochs import EpochEntry, EpochHistory
from kseg.segment.values import dataclass

COPY, EPOCH, OWN_SEGMENT, FIRST = "equal-copy", "leader-epoch", "own-segment", "first-copy"
BELIEVED, ORIGINAL, POSSIBLE = "in-its-place", "no-altered-copy", "possible-epoch"
IN_ORDER = "in-order"
# So many batches that hang together are settled at once; more only where nothing is as a broker writes it.
MOST_SETTLED = 20_000


class Held(NamedTuple):
    """One batch."""

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

    @property
    def stretch(self) -> ValidRun:
        epochs = self.leader_epoch, self.leader_epoch
        return ValidRun(
            self.log, self.position, self.size_bytes, self.first_offset, self.last_offset, 1, *epochs
        )


@dataclass(frozen=True, slots=True)
class Beaten:
    """Batches that go, one behind the other in one log, because others hold their offsets. rule: by which. keeper:
    number of the log that holds the copy which stays."""

    stretch: ValidRun
    rule: str
    keeper: int


class Joiner:
    """Collects what stays in order and what goes."""

    def __init__(self) -> None:
        self.kept: list[ValidRun] = []
        self.beaten: list[Beaten] = []

    @property
    def last_offset(self) -> int:
        return self.kept[-1].last_offset if self.kept else -1

    def keep(self, stretch: ValidRun) -> None:
        before = self.kept[-1] if self.kept else None
        if before is not None and _follows(before, stretch):
            self.kept[-1] = before.joined(stretch)
        else:
            self.kept.append(stretch)

    def beat(self, stretch: ValidRun, rule: str, keeper: int) -> None:
        before = self.beaten[-1] if self.beaten else None
        if (
            before is not None
            and (before.rule, before.keeper) == (rule, keeper)
            and _follows(before.stretch, stretch)
        ):
            self.beaten[-1] = replace(before, stretch=before.stretch.joined(stretch))
        else:
            self.beaten.append(Beaten(stretch, rule, keeper))


def _follows(before: ValidRun, after: ValidRun) -> bool:
    return before.log == after.log and before.end_position == after.position


def in_order(logs: Logs, stretches: Sequence[ValidRun], epochs: EpochHistory | None) -> Joiner:
    """What stays of all these stretches, and what goes. epochs: the leader-epoch checkpoint, None when there is none to
    trust."""
    result = Joiner()
    by_offset = sorted(stretches, key=lambda found: (found.first_offset, found.log, found.position))
    possible = _Epochs(logs, by_offset, epochs)
    start = 0
    while start < len(by_offset):
        stop, reach = start + 1, by_offset[start].last_offset
        while stop < len(by_offset) and by_offset[stop].first_offset <= reach:
            reach = max(reach, by_offset[stop].last_offset)
            stop += 1
        if stop == start + 1:
            result.keep(by_offset[start])
        else:
            _Merge(logs, result, possible).run(by_offset[start:stop])
        start = stop
    return result


class _Stream:
    """The batches of one stretch, from the front."""

    def __init__(self, logs: Logs, stretch: ValidRun) -> None:
        self._logs = logs
        self.stretch = stretch
        self._tables: Iterator[Columns] | None = None
        self._table = Columns(C.BATCH_WIDTH, 1)
        self._row = 0
        self.head = stretch.first_offset

    def is_open(self) -> bool:
        """Whether there is a batch left; opens the stretch."""
        if self._tables is None:
            self._tables = self._logs.tables(self.stretch)
        while self._row >= self._table.count:
            table = next(self._tables, None)
            if table is None:
                return False
            self._table, self._row = table, 0
        self.head = self._logs.first_offset(self.stretch.log, self._table, self._row)
        return True

    def pop_below(self, limit: int) -> ValidRun | None:
        """The next batches that end below `limit`, up to the end of a table."""
        table, row = self._table, self._row
        stop = _first_reaching(table, row, limit)
        if stop == row:
            return None
        self._row = stop
        return stretch_of(self.stretch.log, table, row, stop)

    def pop(self) -> Held:
        """The next batch."""
        at, row = self._table.at, self._row
        begin, end = at(C.POSITION, row), at(C.POSITION, row) + at(C.SIZE, row)
        self._row += 1
        epoch = at(C.LEADER_EPOCH, row) if at(C.MAGIC, row) >= L.MAGIC_V2 else L.NO_LEADER_EPOCH
        return Held(
            self.head,
            at(C.LAST_OFFSET, row),
            epoch,
            at(C.CRC, row),
            self.stretch.log,
            at(C.POSITION, row),
            at(C.SIZE, row),
            at(C.PRODUCER_ID, row),
            self.stretch.is_believed,
            self.stretch.position < begin and end < self.stretch.end_position,
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
    """Which leader epochs are possible at an offset: they never sink."""

    def __init__(self, logs: Logs, by_offset: Sequence[ValidRun], history: EpochHistory | None) -> None:
        self._entries = () if history is None else history.entries
        self._starts: list[int] = []
        self._least: list[int] = []  # epoch of the stretches from there on
        least = L.INT32_MAX
        for stretch in reversed(by_offset):
            is_at_home = logs.is_at_home(stretch.log, stretch.first_offset, stretch.first_offset)
            if is_at_home and stretch.is_believed and stretch.first_epoch >= 0:
                least = min(least, stretch.first_epoch)
            self._starts.append(stretch.first_offset)
            self._least.append(least)
        self._starts.reverse()
        self._least.reverse()

    def allow(self, held: "Held") -> bool:
        """Whether this batch can be of its epoch."""
        epoch = held.leader_epoch
        if epoch < 0:
            return True
        at = bisect_right(self._entries, held.first_offset, key=_start_offset)
        if (at and self._entries[at - 1].epoch > epoch) or (
            at < len(self._entries) and self._entries[at].epoch <= epoch
        ):
            return False
        at = bisect_right(self._starts, held.last_offset)
        return at == len(self._least) or epoch <= self._least[at]


def _start_offset(entry: EpochEntry) -> int:
    return entry.start_offset


class _Merge:
    def __init__(self, logs: Logs, result: Joiner, epochs: _Epochs) -> None:
        self._logs = logs
        self._result = result
        self._epochs = epochs
        self._waiting: list[tuple[int, int, _Stream]] = []

    def run(self, stretches: Sequence[ValidRun]) -> None:
        self._waiting = [
            (stretch.first_offset, number, _Stream(self._logs, stretch))
            for number, stretch in enumerate(stretches)
        ]
        heapq.heapify(self._waiting)
        while self._waiting:
            _, number, stream = heapq.heappop(self._waiting)
            if not stream.is_open():
                continue
            limit = self._waiting[0][0] if self._waiting else L.INT64_MAX
            if stream.head <= self._result.last_offset:  # only behind a settlement that was cut short
                held = stream.pop()
                self._result.beat(held.stretch, FIRST, self._result.kept[-1].log)
            elif (below := stream.pop_below(limit)) is not None:
                self._result.keep(below)
            else:
                self._settle(self._hanging_together(stream.pop()))
            self._put_back(number, stream)

    def _put_back(self, number: int, stream: _Stream) -> None:
        if stream.is_open():
            heapq.heappush(self._waiting, (stream.head, number, stream))

    def _hanging_together(self, first: Held) -> list[Held]:
        """The batch and all that overlap it, or one that overlaps it, and so on."""
        found, reach = [first], first.last_offset
        while self._waiting and self._waiting[0][0] <= reach and len(found) < MOST_SETTLED:
            _, number, stream = heapq.heappop(self._waiting)
            if not stream.is_open():
                continue
            held = stream.pop()
            found.append(held)
            reach = max(reach, held.last_offset)
            self._put_back(number, stream)
        return found

    def _settle(self, batches: list[Held]) -> None:
        kept: list[Held] = []  # by offset; none overlaps another
        for held in sorted(self._without_copies(batches), key=self._rank):
            at = bisect_left(kept, held.first_offset, key=_last_offset)
            if at < len(kept) and kept[at].first_offset <= held.last_offset:
                self._result.beat(held.stretch, self._rule(kept[at], held), kept[at].log)
            else:
                kept.insert(at, held)
        for held in kept:
            self._result.keep(held.stretch)

    def _without_copies(self, batches: list[Held]) -> Iterator[Held]:
        firsts: dict[tuple[int, int, int, int, int], Held] = {}
        for held in sorted(batches, key=lambda found: (found.log, found.position)):
            key = held.first_offset, held.last_offset, held.leader_epoch, held.crc, held.size_bytes
            original = firsts.setdefault(key, held)
            if original is held or self._body(original) != self._body(held):
                yield held
            else:
                self._result.beat(held.stretch, COPY, original.log)

    def _body(self, held: Held) -> memoryview:
        """All that the key of a copy does not say."""
        view = self._logs.view(held.log)
        return view[held.position + L.HEADER_TO_MAGIC : held.position + held.size_bytes]

    def _rank(self, held: Held) -> tuple[bool, bool, bool, int, bool, bool, int, int]:
        is_against = not held.is_believed, self._is_altered_copy(held), not self._epochs.allow(held)
        is_elsewhere = not self._is_at_home(held), not held.is_inner
        return *is_against, -held.leader_epoch, *is_elsewhere, held.log, held.position

    def _is_altered_copy(self, held: Held) -> bool:
        """Whether the batch in front of it in the file is the same under another offset: a producer with an id never
        writes one twice."""
        start = held.position - held.size_bytes
        if start < 0 or held.producer_id < 0:
            return False
        view = self._logs.view(held.log)
        return view[start + L.HEADER_TO_MAGIC : held.position] == self._body(held)

    def _rule(self, kept: Held, beaten: Held) -> str:
        if kept.is_believed and not beaten.is_believed:
            return BELIEVED
        if not self._is_altered_copy(kept) and self._is_altered_copy(beaten):
            return ORIGINAL
        if self._epochs.allow(kept) and not self._epochs.allow(beaten):
            return POSSIBLE
        if kept.leader_epoch > beaten.leader_epoch:
            return EPOCH
        if self._is_at_home(kept) and not self._is_at_home(beaten):
            return OWN_SEGMENT
        is_first = (kept.log, kept.position) < (beaten.log, beaten.position)
        return FIRST if is_first else IN_ORDER

    def _is_at_home(self, held: Held) -> bool:
        return self._logs.is_at_home(held.log, held.first_offset, held.last_offset)


def _last_offset(held: Held) -> int:
    return held.last_offset
