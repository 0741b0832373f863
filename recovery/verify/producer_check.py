"""Replay the producers and transactions of a whole partition, and check side files against the result.

The replay (`segment.state.producer`) sees every batch with a producer id. The kernel passes those with which a known
producer simply continues; the others are applied one by one. Checked against it:

    sequences       gaps are reported once per segment (legal at rest: compaction, followers); repetitions are suspicious. In
                    `__consumer_offsets` a coordinator writes each commit of a transaction with the sequence 0
    snapshots       at each base offset and at the log end (`compare`)
    transactions    those that are open at the end of the log

A replay is complete only while the log is: from offset 0, or from a snapshot that could be loaded, without a gap, a
trace of cleaning or damage. Then it is *exact*, and any difference is reported. Otherwise a difference is reported only
if no deletion, compaction or expiration can explain it.

A broker that loads the log reads it from the log start on, which may be within a segment, and drops snapshots at or below it (Kafka:
ProducerStateManager.truncateAndReload). So what a snapshot lacks of batches below the log start is no difference.
"""

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kseg.recovery.verify.segment_check import SegmentFacts
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import offsets_words
from kseg.segment.errors import FormatError
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.model import Batch
from kseg.segment.moments import moment
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import CONSUMER_OFFSETS_TOPIC
from kseg.segment.partition.topic_settings import TopicSettings
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.state.producer import ProducerState
from kseg.segment.state.replay_events import (
    DUPLICATE,
    CompletedTransaction,
    LostTransaction,
    OutsideTransaction,
    ReplayEvent,
    SequenceBreak,
)
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.segment.state.control import EndTransactionMarker

# A producer that was idle for less than this cannot have expired: brokers expire producers after hours or days, unless
# producer.id.expiration.ms is known to be shorter.
_NEVER_EXPIRED_MS = 3_600_000
_EXPIRATION = "producer.id.expiration.ms"


@dataclass(slots=True)
class _Breaks:
    count: int = 0
    first: SequenceBreak | None = None


class ProducerReplay:
    """A `Consumer` for all segments of a partition; call `begin` before each segment.

    aborted: transactions that markers of this segment ended. markers: offset → (producer id, whether it aborts) of the markers
    in this segment. without_data: offsets of markers that end a transaction without data in this log. is_exact, log_start_offset: see the
    module. never_expired_ms: producers that are younger than this cannot have expired.
    """

    def __init__(
        self,
        start: ProducerState | None,
        is_exact: bool,
        log_start_offset: int = 0,
        never_expired_ms: int = _NEVER_EXPIRED_MS,
    ) -> None:
        self.state = start or ProducerState()
        self.is_exact = is_exact
        self._log_start_offset = log_start_offset
        self._never_expired_ms = never_expired_ms
        self.aborted: list[AbortedTxn] = []
        self.markers: dict[int, tuple[int, bool]] = {}
        self._last_marker: dict[int, int] = {}
        self._inherited = {each.producer_id for each in self.state.open_transactions}
        self.without_data: set[int] = set()
        self._is_excused = False
        self._has_restarts = False
        self._view = memoryview(b"")
        self._path = ""
        self._decoder: Decoder | None = None
        self._gaps = _Breaks()
        self._repeats = _Breaks()

    def begin(self, path: str, view: memoryview) -> None:
        self._path, self._view = path, view
        name = own_partition_name(os.path.dirname(path))
        self._has_restarts = name is not None and name.topic == CONSUMER_OFFSETS_TOPIC
        self._decoder = None
        self.aborted, self.markers = [], {}
        self._gaps, self._repeats = _Breaks(), _Breaks()

    def take(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        if self._inherited:
            self._settle_inherited(table, first, stop)
        row, markers, last_marker = first, self.markers, self._last_marker
        while True:
            row, passed = self.state.follow_transactions(self._view, table, row, stop)
            for offset, producer_id, is_abort, first_offset, last_stable_offset in passed:
                markers[offset] = producer_id, is_abort == 1
                last_marker[producer_id] = offset
                if is_abort and first_offset >= 0:
                    self.aborted.append(AbortedTxn(0, producer_id, first_offset, offset, last_stable_offset))
            if row >= stop:
                return
            yield from self._apply(table, row)
            row += 1

    def finish(self, facts: SegmentFacts) -> Iterator[Finding]:
        if (
            not facts.has_valid_crc
            or facts.gaps
            or facts.cleaned
            or facts.first_offset not in (None, facts.base_offset)
            # a batch that the cleaner has rewritten has another maximum timestamp
            or (not facts.sets_not_opened and facts.records < facts.end_offset - facts.base_offset)
        ):
            self.is_exact = False
        self.state.end_offset = max(self.state.end_offset, facts.end_offset)
        self._is_excused |= bool(facts.damage)
        yield from self._break_findings()

    def _settle_inherited(self, table: Columns, first: int, stop: int) -> None:
        """Determine whether the transactions that began below the log have data in it: a control batch comes first if not."""
        producers = table.column(C.PRODUCER_ID)[first:stop].tolist()
        for producer_id in sorted(self._inherited & {*producers}):
            self._inherited.discard(producer_id)
            row = first + producers.index(producer_id)
            if table.at(C.ATTRIBUTES, row) & L.CONTROL_BIT:
                self.without_data.add(table.at(C.LAST_OFFSET, row))

    # --- batches

    def _apply(self, table: Columns, row: int) -> Iterator[Finding]:
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
                self._last_marker[batch.producer_id] = batch.base_offset
        for event in self.state.apply(batch, marker):
            yield from self._event(batch, event)

    def _marker(self, table: Columns, row: int) -> "EndTransactionMarker | None":
        """The marker in a control batch; None if the cleaner has emptied the batch."""
        # the kernel handles ordinary markers, so this is rarely needed
        from kseg.segment.state.control import end_transaction_marker

        if self._decoder is None:
            self._decoder = Decoder(self._view, 16)
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
                if event.found == 0 and self._has_restarts:
                    return
                # clients of 1.1 to 2.4 restarted at 0 when the broker had expired the producer
                is_repeat = event.kind == DUPLICATE and event.found != 0
                breaks = self._repeats if is_repeat else self._gaps
                breaks.count += 1
                breaks.first = breaks.first or event
            case OutsideTransaction():
                message = (
                    f"producer {event.producer_id} wrote {offsets_words(event.base_offset, event.last_offset)} outside the "
                    f"transaction it opened at {event.transaction_first_offset}"
                )
                yield self._at(batch, "non-transactional-in-transaction", message)
            case LostTransaction():
                message = f"the transaction of producer {event.producer_id} starts at the same offset as another transaction"
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
                continue  # damage explains the records missing after it
            times = "once" if breaks.count == 1 else f"{breaks.count} times"
            message = (
                f"sequences {words} {times}, first of producer {first.producer_id} at offset {first.base_offset}: "
                f"{first.found} where {first.expected} was expected"
            )
            numbers = {
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
            message = (
                f"producer {opened.producer_id} (epoch {opened.producer_epoch}) has a transaction open from offset "
                f"{opened.first_offset}, since {moment(opened.since_ms)}; read_committed consumers stop there"
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
                    "since_ms": opened.since_ms,
                    "last_written_ms": opened.timestamp_ms,
                },
            )

    def compare(
        self, path: str, offset: int, entries: Iterable[ProducerSnapshotEntry], mtime_ms: int
    ) -> Iterator[Finding]:
        """Compare a snapshot named by `offset` with the replay, which has reached that offset."""
        seen = set()
        for entry in entries:
            seen.add(entry.producer_id)
            found = self.state.entry(entry.producer_id)
            wrong = self._difference(entry, found, offset)
            if wrong:
                yield _mismatch(path, offset, entry.producer_id, wrong)
        for entry in self.state.snapshot() if self.is_exact else ():
            is_known = entry.last_offset >= self._log_start_offset and self._cannot_have_expired(
                entry, mtime_ms
            )
            if entry.producer_id not in seen and is_known:
                wrong = (
                    f"it is not in the snapshot, but the log has its batches up to offset {entry.last_offset}"
                )
                yield _mismatch(path, offset, entry.producer_id, wrong)

    def _as_once_written(
        self, entry: ProducerSnapshotEntry, found: ProducerSnapshotEntry
    ) -> ProducerSnapshotEntry:
        """What the replay found, as the broker that wrote `entry` would have had it. That broker may have read the log only from its start
        offset on, or have expired the producer before a later marker without data. After a marker, brokers before 2.4 kept the timestamp of
        the newest batch, and brokers before 1.0 took the marker for the last batch in everything but its sequence."""
        if entry == found:
            return found
        opened = found.current_txn_first_offset
        if opened is not None and opened < self._log_start_offset:
            found = found._replace(current_txn_first_offset=entry.current_txn_first_offset)
        idle_ms = entry.timestamp_ms - self.state.batch_timestamp_ms(entry.producer_id)
        is_forgotten = found.last_offset < self._log_start_offset or idle_ms >= self._never_expired_ms
        if is_forgotten and not entry.has_batch:
            found = found._replace(last_sequence=-1, last_offset=-1, offset_delta=0)
        if entry.timestamp_ms == self.state.batch_timestamp_ms(entry.producer_id):
            return found._replace(timestamp_ms=entry.timestamp_ms)
        marker = self._last_marker.get(entry.producer_id, -1)
        if entry.last_offset == marker > found.last_offset:
            sequence = found.last_sequence if found.has_batch else entry.last_sequence
            return found._replace(last_sequence=sequence, last_offset=marker, offset_delta=0)
        return found

    def _cannot_have_expired(self, entry: ProducerSnapshotEntry, mtime_ms: int) -> bool:
        if entry.current_txn_first_offset is not None:
            return True
        return 0 <= mtime_ms - entry.timestamp_ms < self._never_expired_ms

    def _difference(
        self, entry: ProducerSnapshotEntry, found: ProducerSnapshotEntry | None, offset: int
    ) -> str:
        """What is wrong with an entry of a snapshot, as text; empty if nothing is wrong or it is unknown."""
        if entry.last_offset >= offset:
            return _above(entry)
        if found is None:
            return "the log has no batch of it" if self.is_exact else ""
        if self.is_exact:
            return _exact_difference(entry, self._as_once_written(entry, found))
        if entry.producer_epoch == found.producer_epoch and 0 <= entry.last_offset < found.last_offset:
            return f"the snapshot has it up to offset {entry.last_offset}, the log up to {found.last_offset}"
        if entry.last_offset == found.last_offset >= 0 and entry.producer_epoch == found.producer_epoch:
            return _field_difference(entry, found, ("last_sequence", "offset_delta"))
        return ""


def above_their_snapshot(
    path: str, offset: int, entries: Iterable[ProducerSnapshotEntry]
) -> Iterator[Finding]:
    """The entries of a snapshot whose last batch is not below the offset that names it. No broker writes one: such a snapshot belongs to
    another log, or to this one before it was truncated."""
    for entry in entries:
        if entry.last_offset >= offset:
            yield _mismatch(path, offset, entry.producer_id, _above(entry))


def _above(entry: ProducerSnapshotEntry) -> str:
    return f"the snapshot has its last batch at offset {entry.last_offset}, above the snapshot's own offset"


def _mismatch(path: str, offset: int, producer_id: int, wrong: str) -> Finding:
    message = f"producer {producer_id} at offset {offset}: {wrong}"
    return Finding(
        "snapshot-mismatch", path, message, last_offset=offset, numbers={"producer_id": producer_id}
    )


def never_expired_ms(topic: TopicSettings) -> int:
    """How long a producer must have been idle before a broker can have expired it, by its current settings and those of its last start."""
    values = [each[_EXPIRATION].value for each in (topic.settings, topic.after_load) if _EXPIRATION in each]
    return min([_NEVER_EXPIRED_MS, *(int(value) for value in values if value.isdecimal())])


def _exact_difference(entry: ProducerSnapshotEntry, found: ProducerSnapshotEntry) -> str:
    if entry == found:  # usually true for all but a few of thousands of producers
        return ""
    fields = ["producer_epoch", "last_offset", "timestamp_ms", "current_txn_first_offset"]
    if entry.has_batch or found.has_batch:
        fields += ["last_sequence", "offset_delta"]
    # a producer that expired in between has lost its coordinator epoch
    if entry.coordinator_epoch >= 0:
        fields.append("coordinator_epoch")
    return _field_difference(entry, found, fields)


def _field_difference(
    entry: ProducerSnapshotEntry, found: ProducerSnapshotEntry, fields: Iterable[str]
) -> str:
    for field in fields:
        filed, replayed = getattr(entry, field), getattr(found, field)
        if filed != replayed:
            return f"the snapshot has {field} {filed}, a replay of the log {replayed}"
    return ""


def covering_row(table: Columns, first: int, stop: int, offset: int) -> int | None:
    """The row of the batch that contains `offset`, None if none does."""
    row = bisect_left(table.column(C.LAST_OFFSET), offset, first, stop)
    return row if row < stop and table.at(C.BASE_OFFSET, row) <= offset else None
