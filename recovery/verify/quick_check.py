"""Fast path: return the extent of the log if nothing is unusual, otherwise None, and the full check has to run.

Nearly every partition is ordinary, and the full check (`partition_check`) takes longest when it finds nothing. If the fast
path returns an extent, the full check would find nothing at all. The fast path calls the same kernels and gives up at the
first unusual thing, even a legal one. It requires all of the following:

1. Live files with names that Kafka writes, and no others: logs, both indexes of each, producer snapshots,
   leader-epoch-checkpoint, partition.metadata.
2. Every log consists of valid batches of magic 2 from the first byte to the last. Offsets have no gap, neither within nor between
   segments. No trace of a cleaner, no transaction marker, no broken sequence, no open transaction.
3. Index entries have the last offsets of their batches, and no slot is unused.
4. Snapshots, at base offsets and at the log end, equal those that a replay of the log writes; if there are producers, there
   is at least one.
5. Batches have the leader epoch that the checkpoint has for their offset, and the checkpoint has no epoch of segments before the first.
6. No header or body is such that a consumer may miss records of the batch (`unread_records`).
7. The offsets that the checkpoints of the data directory have for the partition are within the log.
"""

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.files import DISK, Reader
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel import verify_records
from kseg.segment.kernel.validate import next_doubtful
from kseg.segment.partition.names import FileState, Role, parse_file_name
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.scan import Scanner
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
    """The extent of a valid log: the base offset of its first segment, and its end (exclusive)."""

    first_offset: int
    end_offset: int


class KnownState(NamedTuple):
    """The values of the data directory. offsets: high watermark, recovery point, …; 0 counts as missing.
    log_start_offset: may be below the log. is_clean: the broker was shut down cleanly."""

    offsets: Sequence[int]
    log_start_offset: int
    is_clean: bool
    now_ms: int


class _Unusual(Exception):
    """Raised if something is unusual and the full check has to run."""


def quick_extent(
    directory: str, names: Iterable[str], known: KnownState, reader: Reader = DISK
) -> LogExtent | None:
    """The extent of the partition in `directory` if nothing is unusual. None: run the full check.

    names: of all its files. reader: opens them.
    """
    try:
        return _QuickCheck(directory, known, reader).run(names)
    except (_Unusual, FormatError, UnreadableInput):
        return None


class _QuickCheck:
    """One quick check; call `run` once. The chain of batches (`verify_records.next_suspect`) and the replay continue from log to log."""

    def __init__(self, directory: str, known: KnownState, reader: Reader) -> None:
        self._prefix = os.path.join(directory, "")
        self._reader = reader
        self._known = known
        self._chain = memoryview(array("q", bytes(8 * S.SEEN_WIDTH)))
        self._snapshots: dict[int, str] = {}
        self._has_snapshots = False
        self._history = EpochHistory()
        self._epoch = L.NO_LEADER_EPOCH
        self._producers: ProducerState | None = None

    def run(self, names: Iterable[str]) -> LogExtent:
        bases = self._sort(names)
        first = end = bases[0]
        if first:
            from kseg.segment.state.producer import ProducerState

            _require(first in self._snapshots)
            loaded = decode_snapshot(self._read(self._snapshots.pop(first)))
            _require(all(entry.last_offset < first for entry in loaded))
            self._producers = ProducerState.load(loaded, first)
        self._chain[S.SEEN_LAST] = first - 1
        self._chain[S.SEEN_EPOCH] = L.NO_LEADER_EPOCH
        for base in bases:
            _require(base == end)
            self._compare(base)
            end = self._segment(base, is_last=base == bases[-1])
        self._compare(end)
        self._end(first, end)
        return LogExtent(first, end)

    def _sort(self, names: Iterable[str]) -> list[int]:
        """The base offsets of the segments, in order; records the other files."""
        bases: dict[Role, set[int]] = {role: set() for role in _SEGMENT_ROLES}
        found = set()
        for text in names:
            name = parse_file_name(text)
            role, offset = name.role, name.base_offset
            _require(role in _ROLES and name.state is FileState.LIVE and name.is_well_formed)
            if offset is None:
                found.add(role)
            elif role is Role.PRODUCER_SNAPSHOT:
                self._snapshots[offset] = text
            else:
                _require(name.remote_segment_id is None)
                bases[role].add(offset)
        self._has_snapshots = bool(self._snapshots)
        logs, offset_indexes, time_indexes = bases.values()
        _require(len(found) == 2 and bool(logs) and logs == offset_indexes == time_indexes)
        decode_partition_metadata(self._read("partition.metadata"))
        entries = decode_leader_epochs(self._read("leader-epoch-checkpoint"))
        self._history = EpochHistory(entries)
        _require(self._history.entries == entries)
        return sorted(logs)

    def _read(self, name: str) -> bytes:
        return self._reader.read_small(self._prefix + name)

    # --- one segment

    def _segment(self, base: int, *, is_last: bool) -> int:
        """The end offset of a valid segment."""
        stem = f"{self._prefix}{base:020d}"
        sums = memoryview(array("q", bytes(8 * S.SUM_WIDTH)))
        sums[S.SUM_MAX_TIMESTAMP] = L.NO_TIMESTAMP
        with (
            self._reader.open(stem + L.LOG_SUFFIX) as log,
            self._reader.open(stem + L.OFFSET_INDEX_SUFFIX) as offset_index,
            self._reader.open(stem + L.TIME_INDEX_SUFFIX) as time_index,
        ):
            size = len(log.view)
            _require(0 < size <= L.MAX_SEGMENT_BYTES)
            offsets = _Index(offset_index.view, L.OFFSET_INDEX_ENTRY, verify_records.next_offset_entry, base)
            times = _Index(time_index.view, L.TIME_INDEX_ENTRY, verify_records.next_time_entry, base)
            scanner, position, fills = Scanner.over(log, base), 0, 0
            while position < size:
                table, fills = scanner.table_of(fills), fills + 1
                position, goes_on = scanner.fill_valid(table, position, size, size)
                _require(table.count > 0 and (goes_on or position == size))
                self._table(table, sums)
                _require(_is_read_whole(log.view, table, is_end=is_last and position == size))
                offsets.take(table)
                times.take(table)
            offsets.end()
            times.end()
            is_running = is_last and not self._known.is_clean
            _require(is_running or sums[S.SUM_MAX_TIMESTAMP] <= times.last_timestamp())
        last: int = self._chain[S.SEEN_LAST]
        unusual = S.SUM_GAPS, S.SUM_FUTURE, S.SUM_CLEANED
        _require(not any(sums[at] for at in unusual) and sums[S.SUM_MAGICS] == _MAGIC_2_ALONE)
        _require(last - base <= L.INT32_MAX)
        return last + 1

    def _table(self, table: Columns, sums: memoryview) -> None:
        cells, capacity, count, chain = table.cells, table.capacity, table.count, self._chain
        _require(table.at(C.BASE_OFFSET, 0) == chain[S.SEEN_LAST] + 1)
        row, epoch = 0, chain[S.SEEN_EPOCH]
        while (row := verify_records.next_suspect(cells, capacity, row, count, chain)) < count:
            _require(chain[S.SEEN_REASONS] == verify_records.EPOCH and chain[S.SEEN_EPOCH] > epoch)
            row, epoch = row + 1, chain[S.SEEN_EPOCH]
        before = sums[S.SUM_PRODUCERS]
        verify_records.tally(cells, capacity, 0, count, self._known.now_ms, sums)
        if self._producers is not None or sums[S.SUM_PRODUCERS] > before:
            self._replay(table)
        self._follow_epochs(table)

    def _replay(self, table: Columns) -> None:
        if self._producers is None:
            from kseg.segment.state.producer import ProducerState

            self._producers = ProducerState()
        state, row = self._producers, 0
        while (row := state.follow(table, row, table.count)) < table.count:
            _require(not table.at(C.ATTRIBUTES, row) & L.CONTROL_BIT)
            _require(not state.apply(batch_at(table, row)))
            row += 1

    def _follow_epochs(self, table: Columns) -> None:
        """Require that the batches of each epoch begin and end where the checkpoint says."""
        cells, capacity, count, history = table.cells, table.capacity, table.count, self._history
        row = 0
        while True:
            row = verify_records.next_epoch(cells, capacity, row, count, self._epoch)
            if row and self._epoch >= 0:
                _require(history.epoch_for_offset(table.at(C.BASE_OFFSET, row - 1)) == self._epoch)
            if row >= count:
                return
            self._epoch = table.at(C.LEADER_EPOCH, row)
            _require(history.epoch_for_offset(table.at(C.BASE_OFFSET, row)) == self._epoch)
            row += 1

    # --- between and after them

    def _compare(self, offset: int) -> None:
        """Check the snapshot at `offset`, if there is one, against the producers of everything below it."""
        name = self._snapshots.pop(offset, None)
        if name is not None:
            entries = () if self._producers is None else self._producers.snapshot()
            _require(self._read(name) == encode_snapshot(entries))

    def _end(self, first: int, end: int) -> None:
        known, history = self._known, self._history
        _require(not self._snapshots)
        if self._producers is not None:
            _require(not self._producers.open_transactions)
            _require(self._has_snapshots or not self._producers.snapshot())
        _require(history.latest is None or history.latest.start_offset <= end)
        _require(known.log_start_offset <= end)
        _require(not history.begins_below(first) or known.log_start_offset >= first)
        _require(all(offset == 0 or first <= offset <= end for offset in known.offsets))


class _Index:
    """An index, checked alongside the tables of its log."""

    def __init__(self, view: memoryview, width: int, kernel: Callable[..., int], base_offset: int) -> None:
        self._view, self._kernel, self._base = view, kernel, base_offset
        self._slots = len(view) // width
        self._width = width
        _require(not len(view) % width and (not self._slots or any(view[-width:])))
        self._state = memoryview(array("q", bytes(8 * S.ENTRY_WIDTH)))
        self._state[S.ENTRY_FORMER_SLOT] = -1
        self._state[S.ENTRY_SEEN] = base_offset - 1
        if width == L.TIME_INDEX_ENTRY:
            self._state[S.ENTRY_FORMER] = L.NO_TIMESTAMP

    def take(self, table: Columns) -> None:
        if self._slots:
            state = self._state
            state[S.ENTRY_ROW] = 0
            code = self._kernel(
                self._view, self._slots, self._base, table.cells, table.capacity, table.count, state
            )
            _require(code in (verify_records.IN_ORDER, verify_records.MORE))

    def end(self) -> None:
        """Require that every entry belongs to a batch and has its last offset."""
        _require(self._state[S.ENTRY_SLOT] == self._state[S.ENTRY_EXACT] == self._slots)

    def last_timestamp(self) -> int:
        """The last timestamp of a time index, NO_TIMESTAMP if it has no entry."""
        if not self._slots:
            return L.NO_TIMESTAMP
        start = len(self._view) - self._width
        return int.from_bytes(self._view[start : start + 8], "big", signed=True)


def _is_read_whole(view: memoryview, table: Columns, *, is_end: bool) -> bool:
    """Whether nothing in the batches of a table indicates records that a consumer misses. is_end: of the log."""
    count = table.count
    if next_doubtful(view, 0, count, table.cells, table.capacity, 1) < count:
        return False
    if not is_end or not count or not table.at(C.ATTRIBUTES, count - 1) & L.CODEC_MASK:
        return True
    from kseg.segment.scanning.record_validation import invalid_rows  # loads the codecs

    return not invalid_rows(view, table, (count - 1,))


def _require(is_usual: bool) -> None:
    if not is_usual:
        raise _Unusual
