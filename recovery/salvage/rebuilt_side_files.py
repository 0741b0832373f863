"""Side files of salvaged logs, as a broker's unclean load from recovery point 0 writes them.

One pass over the headers of all planned segments, in order (`rebuild`), keeps only what is needed:

    indexes             `SegmentIndexes`, with the positions that the batches will have
    transaction index   the aborted transactions of the replay; an empty file only where one existed
    snapshots           at each base offset above the first and at the log end. A broker reads each of them back before
                        it recovers the next segment, and drops expired producers then (Kafka: LogLoader.recoverSegment,
                        ProducerStateManager.truncateAndReload); one written after a gap has been read back already
    leader epochs       a batch of magic 2 whose epoch is above the latest adds an entry

The replay starts from the newest readable snapshot at or below the first base offset, as the load does.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import field

from kseg.recovery.policy import LoadSettings
from kseg.recovery.salvage.logs import Logs
from kseg.recovery.salvage.segment_layout import PlannedSegment
from kseg.recovery.verify.producer_check import ProducerReplay
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import verify_records
from kseg.segment.partition.names import SUFFIX_BY_ROLE, Role, segment_file_name
from kseg.segment.sidecar.index_builder import SegmentIndexes
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.sidecar.snapshot import encode_snapshot
from kseg.segment.sidecar.txn_index import AbortedTxn, encode_txn_index
from kseg.segment.state.producer import OpenTransaction, ProducerState
from kseg.segment.values import dataclass

# At most this many transactions with a possibly lost marker are reported individually.
MAX_CUT = 100

Range = tuple[int, int]


def file_of(segment: PlannedSegment, role: Role) -> str:
    """The name of one of its files."""
    return segment_file_name(segment.base_offset, SUFFIX_BY_ROLE[role])


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be rebuilt. indexes: numbers of segments. snapshots_above: rebuild the snapshots of greater offsets (None: no such
    rule); snapshots: rebuild these as well. epochs: the history of leader epochs."""

    indexes: frozenset[int] = frozenset()
    snapshots_above: int | None = None
    snapshots: frozenset[int] = frozenset()
    epochs: bool = False


@dataclass(slots=True)
class Rebuilt:
    """files: contents by name. aborted: transactions of each segment. findings: those of the replay. epochs: the history of leader epochs,
    with the base offset of the last batch of each epoch in `epoch_ends`. producers: at the log end. cut: transactions that were open at
    offsets that are lost, with these offsets."""

    files: dict[str, bytes] = field(default_factory=dict)
    aborted: list[tuple[AbortedTxn, ...]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    epochs: EpochHistory = field(default_factory=EpochHistory)
    epoch_ends: dict[int, int] = field(default_factory=dict)
    producers: ProducerState = field(default_factory=ProducerState)
    cut: list[tuple[OpenTransaction, Range]] = field(default_factory=list)


def rebuild(
    logs: Logs,
    segments: Sequence[PlannedSegment],
    start: ProducerState,
    wanted: Wanted,
    settings: LoadSettings,
    log_start_offset: int,
    lost: Sequence[Range],
) -> Rebuilt:
    """Run the pass. start: the producers at the first base offset. log_start_offset: a load does not keep snapshots at or below
    it. lost: ranges of offsets that are lost, in order."""
    return _Rebuild(logs, start, wanted, settings, log_start_offset, lost).run(segments)


class _Rebuild:
    def __init__(
        self,
        logs: Logs,
        start: ProducerState,
        wanted: Wanted,
        settings: LoadSettings,
        log_start_offset: int,
        lost: Sequence[Range],
    ) -> None:
        self._logs = logs
        self._lost = deque(lost)
        self._wanted = wanted
        self._settings = settings
        self._log_start_offset = log_start_offset
        self._replay = ProducerReplay(start, is_exact=False)
        self._result = Rebuilt()
        self._replayed_to = 0

    def run(self, segments: Sequence[PlannedSegment]) -> Rebuilt:
        for number, segment in enumerate(segments):
            self._segment(number, segment)
            is_last = number + 1 == len(segments)
            self._boundary(segment.end_offset if is_last else segments[number + 1].base_offset)
        self._result.producers = self._replay.state
        self._note_cut(L.INT64_MAX)
        if segments:
            self._result.producers.end_offset = segments[-1].end_offset
        return self._result

    def _segment(self, number: int, segment: PlannedSegment) -> None:
        indexes = None
        if number in self._wanted.indexes:
            interval, most = self._settings.index_interval_bytes, self._settings.segment_index_bytes
            indexes = SegmentIndexes(segment.base_offset, interval, most)
        aborted: list[AbortedTxn] = []
        self._replayed_to, position = segment.base_offset, 0
        for valid_run in segment.valid_runs:
            self._note_cut(valid_run.first_offset)
            self._replay.begin(self._logs[valid_run.log].path, self._logs.view(valid_run.log))
            for table in self._logs.tables(valid_run):
                self._result.findings.extend(self._replay.take(table, 0, table.count))
                self._note_end(table)
                if self._wanted.epochs:
                    self._take_epochs(table)
                if indexes is not None:
                    _move(table, position - valid_run.position)
                    _fill(indexes, table)
            aborted += self._replay.aborted
            position += valid_run.length
        self._result.aborted.append(tuple(aborted))
        if indexes is not None:
            indexes.finish()
            self._result.files[file_of(segment, Role.OFFSET_INDEX)] = indexes.offset_index.to_bytes()
            self._result.files[file_of(segment, Role.TIME_INDEX)] = indexes.time_index.to_bytes()
            self._result.files[file_of(segment, Role.TXN_INDEX)] = encode_txn_index(aborted)

    def _note_cut(self, offset: int) -> None:
        """Determine which transactions are open at the offsets lost before `offset`."""
        while self._lost and self._lost[0][0] <= offset:
            lost = self._lost.popleft()
            if len(self._result.cut) < MAX_CUT:
                self._result.cut += [(opened, lost) for opened in self._replay.state.open_transactions]

    def _note_end(self, table: Columns) -> None:
        """The offset that a broker's producer state has reached; batches of old formats do not advance it."""
        for row in range(table.count - 1, -1, -1):
            if table.at(C.MAGIC, row) >= L.MAGIC_V2:
                self._replayed_to = table.at(C.LAST_OFFSET, row) + 1
                return

    def _take_epochs(self, table: Columns) -> None:
        history = self._result.epochs
        latest = history.latest
        row, epoch = 0, L.NO_LEADER_EPOCH if latest is None else latest.epoch
        while row < table.count:
            first = row
            row = verify_records.next_epoch(table.cells, table.capacity, row, table.count, epoch)
            if row > first and epoch >= 0 and table.at(C.LEADER_EPOCH, row - 1) == epoch:
                self._result.epoch_ends[epoch] = table.at(C.BASE_OFFSET, row - 1)
            if row < table.count and table.at(C.LEADER_EPOCH, row) > epoch:
                epoch = table.at(C.LEADER_EPOCH, row)
                history.assign(epoch, table.at(C.BASE_OFFSET, row))
            elif row < table.count:
                row += 1

    def _boundary(self, offset: int) -> None:
        """The end of a segment; `offset` is the next base offset, or the log end."""
        if self._replayed_to != offset:
            self._read_back(offset)
        above = self._wanted.snapshots_above
        is_wanted = offset in self._wanted.snapshots or (above is not None and offset > above)
        name = segment_file_name(offset, L.SNAPSHOT_SUFFIX)
        # an empty segment leaves the offset unchanged, and a broker does not write the same snapshot again
        if is_wanted and offset > self._log_start_offset and name not in self._result.files:
            self._result.files[name] = encode_snapshot(self._replay.state.snapshot())
        self._read_back(offset)

    def _read_back(self, offset: int) -> None:
        entries = self._replay.state.snapshot()
        expiration = self._settings.producer_id_expiration_ms
        self._replay.state = ProducerState.load(entries, offset, self._settings.now_ms, expiration)


def _move(table: Columns, delta: int) -> None:
    if delta:
        moved = array("q", [position + delta for position in table.column(C.POSITION)])
        table.cells[: table.count] = moved


def _fill(indexes: SegmentIndexes, table: Columns) -> None:
    row = 0
    while row < table.count:
        refused = indexes.add_rows(table, row, table.count)
        if refused is None:
            return
        row = refused[0] + 1  # a full index stays as it is


def missing_aborted(aborted: Sequence[AbortedTxn], entries: Iterable[AbortedTxn]) -> bool:
    """Whether a transaction index lacks one of the aborted transactions of its segment."""
    known = {(entry.producer_id, entry.last_offset) for entry in entries}
    return any((entry.producer_id, entry.last_offset) not in known for entry in aborted)
