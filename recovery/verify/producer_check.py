"""Replay of producers and transactions over a whole partition, and what side files say about it.

The replay (`segment.producer`) sees every batch with a producer id; a run in which one producer simply continues is
found by the kernel and applied by its first and last batch. Judged against it:

    sequences       jumps are told once per segment (legal at rest: compaction, followers); repetitions are suspicious
    snapshots       at each segment base and at the log end (`compare`)
    open ones       at the end of the log

A replay knows everything only while the log still holds everything: from offset 0, or from a snapshot that could be
loaded, without a gap, a trace of cleaning or damage. Then it is *exact*, and any difference counts. Otherwise only
what no deletion, compaction or expiration can explain does.
"""

from collections.abc import Iterable, Iterator

from kseg.recovery.verify.segment_check import SegmentFacts
from kseg.segment import header_tables as C
from kseg.segment.errors import FormatError
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import verify_records
from kseg.segment.model import Batch
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import batch_at
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.state.control import EndTransactionMarker, end_transaction_marker
from kseg.segment.state.producer import (
    DUPLICATE,
    CompletedTransaction,
    LostTransaction,
    OutsideTransaction,
    ProducerState,
    ReplayEvent,
    SequenceBreak,
)
from kseg.segment.values import dataclass

# An idle producer is forgotten after hours or days; one this young was surely not.
SURELY_REMEMBERED_MS = 3_600_000


@dataclass(slots=True)
class _Breaks:
    count: int = 0
    first: SequenceBreak | None = None


class ProducerReplay:
    """A `Consumer` that lives as long as its partition; `begin` before each segment.

    aborted: transactions that markers of this segment ended. markers: offset → (producer id, aborted) of the markers
    in this segment. is_exact: see the module.
    """

    def __init__(self, start: ProducerState | None, is_exact: bool) -> None:
        self.state = start or ProducerState()
        self.is_exact = is_exact
        self.aborted: list[AbortedTxn] = []
        self.markers: dict[int, tuple[int, bool]] = {}
        self._opened_ms: dict[int, int] = {}
        self._is_excused = False
        self._view = memoryview(b"")
        self._path = ""
        self._decoder = Decoder(self._view, 16)
        self._gaps = _Breaks()
        self._repeats = _Breaks()

    def begin(self, path: str, view: memoryview) -> None:
        self._path, self._view = path, view
        self._decoder = Decoder(view, 16)
        self.aborted, self.markers = [], {}
        self._gaps, self._repeats = _Breaks(), _Breaks()

    def take(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        cells, capacity = table.cells, table.capacity
        row = verify_records.next_producer(cells, capacity, first, stop)
        while row < stop:
            yield from self._apply(table, row, False)
            run_end = verify_records.steady_run(cells, capacity, row, stop)
            if run_end > row:
                yield from self._apply(table, run_end, True)
            row = verify_records.next_producer(cells, capacity, run_end + 1, stop)

    def finish(self, facts: SegmentFacts) -> Iterator[Finding]:
        if (
            not facts.is_sound
            or facts.gaps
            or facts.cleaned
            or facts.first_offset not in (None, facts.base_offset)
        ):
            self.is_exact = False
        self.state.end_offset = max(self.state.end_offset, facts.end_offset)
        self._is_excused |= bool(facts.damage)
        yield from self._break_findings()

    # --- batches

    def _apply(self, table: Columns, row: int, is_run_end: bool) -> Iterator[Finding]:
        batch = batch_at(table, row)
        marker = None
        if batch.is_control:
            try:
                marker = self._marker(table, row)
            except FormatError as error:
                self.is_exact = False
                yield self._at(
                    batch, "bad-control-record", f"the control batch at position {batch.position}: {error}"
                )
                return
            if marker is not None:
                self.markers[batch.base_offset] = batch.producer_id, marker.is_abort
                self._opened_ms.pop(batch.producer_id, None)
        elif batch.is_transactional:
            self._opened_ms.setdefault(batch.producer_id, batch.max_timestamp_ms)
        for event in self.state.apply(batch, marker):
            if not (is_run_end and isinstance(event, SequenceBreak)):
                yield from self._event(batch, event)

    def _marker(self, table: Columns, row: int) -> EndTransactionMarker | None:
        """The marker in a control batch; None when it was emptied by the cleaner."""
        for chunk in self._decoder.chunks(table, row, row + 1):
            if chunk.records.count:  # a broker reads the first record only
                return end_transaction_marker(record_at(chunk, 0))
            if chunk.problem is not None:
                raise FormatError(chunk.problem.sentence)
        return None

    def _event(self, batch: Batch, event: ReplayEvent) -> Iterator[Finding]:
        match event:
            case CompletedTransaction():
                if event.index_entry is not None:
                    self.aborted.append(event.index_entry)
            case SequenceBreak():
                # a client of 1.1 to 2.4 began again at 0 when the broker had forgotten it
                is_repeat = event.kind == DUPLICATE and event.found != 0
                breaks = self._repeats if is_repeat else self._gaps
                breaks.count += 1
                breaks.first = breaks.first or event
            case OutsideTransaction():
                message = (
                    f"producer {event.producer_id} wrote offsets {event.base_offset} to {event.last_offset} outside the "
                    f"transaction it opened at {event.transaction_first_offset}"
                )
                yield self._at(batch, "non-transactional-in-transaction", message)
            case LostTransaction():
                message = f"the transaction of producer {event.producer_id} began at an offset another one's began at"
                yield self._at(batch, "transaction-collision", message)

    def _at(self, batch: Batch, kind: str, message: str) -> Finding:
        return Finding(
            kind,
            self._path,
            message,
            batch.position,
            batch.size_bytes,
            batch.base_offset,
            batch.last_offset,
            {"producer_id": batch.producer_id},
        )

    def _break_findings(self) -> Iterator[Finding]:
        for kind, breaks, words in (
            ("sequence-gap", self._gaps, "are not continued"),
            ("sequence-duplicate", self._repeats, "repeat"),
        ):
            first = breaks.first
            if first is None or (kind == "sequence-gap" and self._is_excused):
                continue  # damage explains what is missing behind it
            times = "once" if breaks.count == 1 else f"{breaks.count} times"
            message = (
                f"sequences {words} {times}, first of producer {first.producer_id} at offset {first.base_offset}: "
                f"{first.found} where {first.expected} was next"
            )
            numbers: dict[str, int | str | bool | None] = {
                "times": breaks.count,
                "producer_id": first.producer_id,
                "producer_epoch": first.producer_epoch,
                "expected_sequence": first.expected,
                "found_sequence": first.found,
            }
            yield Finding(kind, self._path, message, first_offset=first.base_offset, numbers=numbers)

    # --- the end of the log

    def open_transactions(self, path: str) -> Iterator[Finding]:
        for opened in self.state.open_transactions:
            since = self._opened_ms.get(opened.producer_id, opened.timestamp_ms)
            message = (
                f"producer {opened.producer_id} (epoch {opened.producer_epoch}) has a transaction open from offset "
                f"{opened.first_offset}, since {since} ms; readers of committed data stop there"
            )
            yield Finding(
                "open-transaction",
                path,
                message,
                first_offset=opened.first_offset,
                last_offset=opened.last_offset,
                numbers={
                    "producer_id": opened.producer_id,
                    "producer_epoch": opened.producer_epoch,
                    "since_ms": since,
                    "last_written_ms": opened.timestamp_ms,
                },
            )

    def compare(
        self, path: str, offset: int, entries: Iterable[ProducerSnapshotEntry], mtime_ms: int
    ) -> Iterator[Finding]:
        """A snapshot named by `offset` against the replay, which stands at that offset."""
        seen = set()
        for entry in entries:
            seen.add(entry.producer_id)
            found = self.state.entry(entry.producer_id)
            wrong = self._difference(entry, found, offset)
            if wrong:
                yield self._mismatch(path, offset, entry.producer_id, wrong)
        for entry in self.state.snapshot() if self.is_exact else ():
            if entry.producer_id not in seen and self._must_be_remembered(entry, mtime_ms):
                wrong = f"it is not in the snapshot, the log has its batch up to offset {entry.last_offset}"
                yield self._mismatch(path, offset, entry.producer_id, wrong)

    @staticmethod
    def _mismatch(path: str, offset: int, producer_id: int, wrong: str) -> Finding:
        message = f"producer {producer_id} at offset {offset}: {wrong}"
        return Finding(
            "snapshot-mismatch", path, message, last_offset=offset, numbers={"producer_id": producer_id}
        )

    @staticmethod
    def _must_be_remembered(entry: ProducerSnapshotEntry, mtime_ms: int) -> bool:
        if entry.current_txn_first_offset is not None:
            return True
        return 0 <= mtime_ms - entry.timestamp_ms < SURELY_REMEMBERED_MS

    def _difference(
        self, entry: ProducerSnapshotEntry, found: ProducerSnapshotEntry | None, offset: int
    ) -> str:
        """What is wrong with a snapshot's entry, in words; empty when nothing is or nothing can be told."""
        if entry.last_offset >= offset:
            return f"the snapshot has its last batch at offset {entry.last_offset}, behind its own end"
        if found is None:
            return "the log has nothing of it" if self.is_exact else ""
        if self.is_exact:
            return _exact_difference(entry, found)
        if entry.producer_epoch == found.producer_epoch and 0 <= entry.last_offset < found.last_offset:
            return f"the snapshot knows it up to offset {entry.last_offset}, the log has {found.last_offset}"
        if entry.last_offset == found.last_offset >= 0 and entry.producer_epoch == found.producer_epoch:
            return _field_difference(entry, found, ("last_sequence", "offset_delta"))
        return ""


def _exact_difference(entry: ProducerSnapshotEntry, found: ProducerSnapshotEntry) -> str:
    fields = ["producer_epoch", "last_offset", "timestamp_ms", "current_txn_first_offset"]
    if entry.has_batch or found.has_batch:
        fields += ["last_sequence", "offset_delta"]
    # a producer that was forgotten in between has lost its coordinator's epoch
    if entry.coordinator_epoch >= 0:
        fields.append("coordinator_epoch")
    return _field_difference(entry, found, fields)


def _field_difference(
    entry: ProducerSnapshotEntry, found: ProducerSnapshotEntry, fields: Iterable[str]
) -> str:
    for field in fields:
        filed, replayed = getattr(entry, field), getattr(found, field)
        if filed != replayed:
            return f"the snapshot says {field} {filed}, a replay of the log {replayed}"
    return ""


def covering_row(table: Columns, first: int, stop: int, offset: int) -> int | None:
    """The row of the batch that holds `offset`, None when none of these rows does."""
    low, high = first, stop
    while low < high:
        middle = (low + high) // 2
        if table.at(C.LAST_OFFSET, middle) < offset:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and table.at(C.BASE_OFFSET, low) <= offset else None
