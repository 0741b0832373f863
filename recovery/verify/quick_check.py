"""A glance at a partition before anybody judges it: is everything in it as a broker leaves it on an ordinary day?

Nearly every partition is like that, and judging it (`partition_check`) takes longest where there is nothing to tell. The
glance says yes or nothing. A yes means that the judgement would find nothing at all; it asks the same kernels, and gives
up at the first thing out of the ordinary, be it sound. A yes takes all of this:

1. Live files that Kafka named, and no others: logs, both indexes of each, producer snapshots, leader-epoch-checkpoint,
   partition.metadata.
2. Every log is valid batches of magic 2 from its first byte to its last. Offsets go on without a gap, from one segment
   to the next as well. Nothing that only a cleaner leaves, no marker, no broken sequence, no open transaction.
3. Index entries name the last offsets of their batches, and no slot is left over.
4. Snapshots, at the bases of segments and at the log end, are those that a replay of the log writes; there is one where there
   are producers.
5. Batches are of the leader epoch that the checkpoint has there.
6. The offsets that the data directory has of the partition lie within the log.
"""

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.files import MappedFile, read_small
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import verify_records
from kseg.segment.partition.names import FileState, Role, parse_file_name
from kseg.segment.scanning.scan import Scanner, batch_at
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.sidecar.metadata_files import decode_partition_metadata
from kseg.segment.sidecar.snapshot import decode_snapshot, encode_snapshot

if TYPE_CHECKING:
    from kseg.segment.state.producer import ProducerState

_SEGMENT_ROLES = (Role.LOG, Role.OFFSET_INDEX, Role.TIME_INDEX)
_ROLES = frozenset((*_SEGMENT_ROLES, Role.PRODUCER_SNAPSHOT, Role.LEADER_EPOCHS, Role.PARTITION_METADATA))
_MAGIC_2_ALONE = 1 << L.MAGIC_V2


class LogExtent(NamedTuple):
    """What a sound log reaches over: the base offset of its first segment, and its end (exclusive)."""

    first_offset: int
    end_offset: int


class Known(NamedTuple):
    """What the data directory says. offsets: of the high watermark, the recovery point, …; 0 says nothing.
    log_start_offset: may lie before the log. is_clean: the broker was stopped in order."""

    offsets: Sequence[int]
    log_start_offset: int
    is_clean: bool
    now_ms: int


class _Unusual(Exception):
    """Something is not as on an ordinary day."""


def extent_at_a_glance(directory: str, names: Iterable[str], known: Known) -> LogExtent | None:
    """The extent of the partition in `directory` when all is as it should be. None: somebody has to look closely.

    names: of all its files.
    """
    try:
        return _Glance(directory, known).over(names)
    except (_Unusual, FormatError, UnreadableInput):
        return None


class _Glance:
    """One look; `over` once. The chain of batches (`verify_records.next_suspect`) and the replay go on from log to log."""

    def __init__(self, directory: str, known: Known) -> None:
        self._prefix = os.path.join(directory, "")
        self._known = known
        self._chain = memoryview(array("q", bytes(8 * verify_records.SEEN_WIDTH)))
        self._snapshots: dict[int, str] = {}
        self._has_snapshots = False
        self._history = EpochHistory()
        self._epoch = L.NO_LEADER_EPOCH
        self._producers: ProducerState | None = None

    def over(self, names: Iterable[str]) -> LogExtent:
        bases = self._sort(names)
        first = end = bases[0]
        if first:
            from kseg.segment.state.producer import ProducerState

            _demand(first in self._snapshots)
            loaded = decode_snapshot(self._read(self._snapshots.pop(first)))
            self._producers = ProducerState.load(loaded, first)
        self._chain[verify_records.SEEN_LAST] = first - 1
        self._chain[verify_records.SEEN_EPOCH] = L.NO_LEADER_EPOCH
        for base in bases:
            _demand(base == end)
            self._compare(base)
            end = self._segment(base, is_last=base == bases[-1])
        self._compare(end)
        self._end(first, end)
        return LogExtent(first, end)

    def _sort(self, names: Iterable[str]) -> list[int]:
        """The base offsets of the segments, in order; takes note of what lies beside them."""
        bases: dict[Role, set[int]] = {role: set() for role in _SEGMENT_ROLES}
        found = set()
        for text in names:
            name = parse_file_name(text)
            role, offset = name.role, name.base_offset
            _demand(role in _ROLES and name.state is FileState.LIVE and name.is_well_formed)
            if offset is None:
                found.add(role)
            elif role is Role.PRODUCER_SNAPSHOT:
                self._snapshots[offset] = text
            else:
                _demand(name.remote_segment_id is None)
                bases[role].add(offset)
        self._has_snapshots = bool(self._snapshots)
        logs, offset_indexes, time_indexes = bases.values()
        _demand(len(found) == 2 and bool(logs) and logs == offset_indexes == time_indexes)
        decode_partition_metadata(self._read("partition.metadata"))
        entries = decode_leader_epochs(self._read("leader-epoch-checkpoint"))
        self._history = EpochHistory(entries)
        _demand(self._history.entries == entries)
        return sorted(logs)

    def _read(self, name: str) -> bytes:
        return read_small(self._prefix + name)

    # --- one segment

    def _segment(self, base: int, *, is_last: bool) -> int:
        """The end offset of a sound segment."""
        stem = f"{self._prefix}{base:020d}"
        sums = memoryview(array("q", bytes(8 * verify_records.T_WIDTH)))
        sums[verify_records.T_MAX_TIMESTAMP] = L.NO_TIMESTAMP
        with (
            MappedFile(stem + L.LOG_SUFFIX) as log,
            MappedFile(stem + L.OFFSET_INDEX_SUFFIX) as offset_index,
            MappedFile(stem + L.TIME_INDEX_SUFFIX) as time_index,
        ):
            size = len(log.view)
            _demand(0 < size <= L.MAX_SEGMENT_BYTES)
            offsets = _Index(offset_index.view, L.OFFSET_INDEX_ENTRY, verify_records.next_offset_entry, base)
            times = _Index(time_index.view, L.TIME_INDEX_ENTRY, verify_records.next_time_entry, base)
            scanner, position = Scanner.over(log, base), 0
            while position < size:
                position, goes_on = scanner.fill_valid(scanner.table, position, size, size)
                _demand(scanner.table.count > 0 and (goes_on or position == size))
                self._table(scanner.table, sums)
                offsets.take(scanner.table)
                times.take(scanner.table)
            offsets.end()
            times.end()
            is_running = is_last and not self._known.is_clean
            _demand(is_running or sums[verify_records.T_MAX_TIMESTAMP] <= times.last_timestamp())
        last: int = self._chain[verify_records.SEEN_LAST]
        unusual = verify_records.T_GAPS, verify_records.T_FUTURE, verify_records.T_CLEANED
        _demand(not any(sums[at] for at in unusual) and sums[verify_records.T_MAGICS] == _MAGIC_2_ALONE)
        _demand(last - base <= L.INT32_MAX)
        return last + 1

    def _table(self, table: Columns, sums: memoryview) -> None:
        cells, capacity, count, chain = table.cells, table.capacity, table.count, self._chain
        _demand(table.at(C.BASE_OFFSET, 0) == chain[verify_records.SEEN_LAST] + 1)
        row, epoch = 0, chain[verify_records.SEEN_EPOCH]
        while (row := verify_records.next_suspect(cells, capacity, row, count, chain)) < count:
            _demand(
                chain[verify_records.SEEN_REASONS] == verify_records.EPOCH
                and chain[verify_records.SEEN_EPOCH] > epoch
            )
            row, epoch = row + 1, chain[verify_records.SEEN_EPOCH]
        before = sums[verify_records.T_PRODUCERS]
        verify_records.tally(cells, capacity, 0, count, self._known.now_ms, sums)
        if self._producers is not None or sums[verify_records.T_PRODUCERS] > before:
            self._replay(table)
        self._follow_epochs(table)

    def _replay(self, table: Columns) -> None:
        if self._producers is None:
            from kseg.segment.state.producer import ProducerState

            self._producers = ProducerState()
        state, row = self._producers, 0
        while (row := state.follow(table, row, table.count)) < table.count:
            _demand(not table.at(C.ATTRIBUTES, row) & L.CONTROL_BIT)
            _demand(not state.apply(batch_at(table, row)))
            row += 1

    def _follow_epochs(self, table: Columns) -> None:
        """Each run of batches of one epoch begins and ends where the checkpoint has it."""
        cells, capacity, count, history = table.cells, table.capacity, table.count, self._history
        row = 0
        while True:
            row = verify_records.next_epoch(cells, capacity, row, count, self._epoch)
            if row and self._epoch >= 0:
                _demand(history.epoch_for_offset(table.at(C.BASE_OFFSET, row - 1)) == self._epoch)
            if row >= count:
                return
            self._epoch = table.at(C.LEADER_EPOCH, row)
            _demand(history.epoch_for_offset(table.at(C.BASE_OFFSET, row)) == self._epoch)
            row += 1

    # --- between and behind them

    def _compare(self, offset: int) -> None:
        """The snapshot at `offset`, if there is one, with the producers after everything below it."""
        name = self._snapshots.pop(offset, None)
        if name is not None:
            entries = () if self._producers is None else self._producers.snapshot()
            _demand(self._read(name) == encode_snapshot(entries))

    def _end(self, first: int, end: int) -> None:
        known, history = self._known, self._history
        _demand(not self._snapshots)
        if self._producers is not None:
            _demand(not self._producers.open_transactions)
            _demand(self._has_snapshots or not self._producers.snapshot())
        _demand(history.latest is None or history.latest.start_offset <= end)
        _demand(known.log_start_offset <= end)
        _demand(all(offset == 0 or first <= offset <= end for offset in known.offsets))


class _Index:
    """An index beside the tables of its log."""

    def __init__(self, view: memoryview, width: int, kernel: Callable[..., int], base_offset: int) -> None:
        self._view, self._kernel, self._base = view, kernel, base_offset
        self._slots = len(view) // width
        self._width = width
        _demand(not len(view) % width and (not self._slots or any(view[-width:])))
        self._state = memoryview(array("q", bytes(8 * verify_records.I_WIDTH)))
        self._state[verify_records.I_FORMER_SLOT] = -1
        self._state[verify_records.I_SEEN] = base_offset - 1
        if width == L.TIME_INDEX_ENTRY:
            self._state[verify_records.I_FORMER] = L.NO_TIMESTAMP

    def take(self, table: Columns) -> None:
        if self._slots:
            state = self._state
            state[verify_records.I_ROW] = 0
            said = self._kernel(
                self._view, self._slots, self._base, table.cells, table.capacity, table.count, state
            )
            _demand(said in (verify_records.IN_ORDER, verify_records.MORE))

    def end(self) -> None:
        """Every entry met its batch, and named its last offset."""
        _demand(self._state[verify_records.I_SLOT] == self._state[verify_records.I_EXACT] == self._slots)

    def last_timestamp(self) -> int:
        """Of a time index, NO_TIMESTAMP when it has no entry."""
        if not self._slots:
            return L.NO_TIMESTAMP
        start = len(self._view) - self._width
        return int.from_bytes(self._view[start : start + 8], "big", signed=True)


def _demand(is_usual: bool) -> None:
    if not is_usual:
        raise _Unusual
