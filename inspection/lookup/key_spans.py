"""Byte spans of a log in which a key is looked up; each is searched separately, in this or another process."""

from collections import deque
from collections.abc import Iterator

from kseg.jobs.events import Event, Row
from kseg.segment import header_tables as C
from kseg.segment.findings import Finding
from kseg.segment.model import Batch, Record
from kseg.segment.partition.bounds import Bounds
from kseg.segment.partition.derived_state import is_aborted
from kseg.segment.partition.log_segment import LogSegment, Notes
from kseg.segment.partition.names import Role
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding, undecodable
from kseg.segment.scanning.decode import Chunk, record_at
from kseg.segment.scanning.keyed_records import KeyedRecords
from kseg.segment.scanning.scan import Scanner
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMatches:
    """What counts as a match. aborted: transactions whose records do not count. newest_only: the last match of a span is enough."""

    key: bytes
    bounds: Bounds
    aborted: tuple[AbortedTxn, ...] = ()
    newest_only: bool = False


@dataclass(frozen=True, slots=True)
class KeySpan:
    """The bytes start … stop − 1 of a `.log`, from one batch boundary to another. next_base_offset: of the following segment."""

    path: str
    base_offset: int
    next_base_offset: int | None
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Match:
    """A record that counts, or None at the end of a span. bytes_read: how many more have been read."""

    batch: Batch | None
    record: Record | None
    bytes_read: int


class SegmentSearch:
    """Searches one open segment. notes: receives damage, and the bytes that are read."""

    def __init__(self, segment: LogSegment, notes: Notes, wanted: KeyMatches) -> None:
        self._path = segment.path
        self._notes = notes
        self._wanted = wanted
        self._scanner = Scanner.over(segment.file, segment.base_offset, next_base=segment.following_base)
        bounds = wanted.bounds
        self._keyed = KeyedRecords(
            segment.file.view, wanted.key, bounds.from_offset, bounds.to_offset, bounds.from_ms
        )

    def matches(self, span: KeySpan) -> Iterator[tuple[Batch, Record]]:
        """In log order; only the last one if that is enough."""
        found = self._all(span)
        if self._wanted.newest_only:
            yield from deque(found, maxlen=1)
        else:
            yield from found

    def _all(self, span: KeySpan) -> Iterator[tuple[Batch, Record]]:
        """The matches; of each batch only the last one if that is enough."""
        for block in self._scanner.blocks(span.start, span.stop):
            if isinstance(block, Damage):
                self._notes.report(damage_finding(self._path, block))
                continue
            self._notes.meter.bytes_read += sum(block.column(C.SIZE))
            for chunk in self._keyed.chunks(block):
                if chunk.problem is not None:
                    self._notes.report(undecodable(self._path, block, chunk.problem))
                rows = [at for at in self._keyed.rows(chunk) if self._is_within(chunk, at)]
                for at in rows[-1:] if self._wanted.newest_only else rows:
                    batch = batch_at(block, chunk.records.at(C.R_BATCH, at))
                    if not is_aborted(batch, self._wanted.aborted):
                        yield batch, record_at(chunk, at)

    def _is_within(self, chunk: Chunk, at: int) -> bool:
        bounds, cell = self._wanted.bounds, chunk.records.at
        return (
            bounds.from_offset <= cell(C.R_OFFSET, at) < bounds.to_offset
            and bounds.from_ms <= cell(C.R_TIMESTAMP, at) < bounds.to_ms
        )


def search_span(span: KeySpan, wanted: KeyMatches) -> Iterator[Event]:
    """The search of one span as a unit of work: findings, and rows whose result is a `Match`."""
    notes = Notes()
    segment = LogSegment(notes, span.base_offset, {Role.LOG: span.path})
    segment.next_base_offset = span.next_base_offset
    try:
        for batch, record in SegmentSearch(segment, notes, wanted).matches(span):
            yield from _told(notes)
            yield _row(notes, batch, record)
        yield from _told(notes)
        yield _row(notes, None, None)
    finally:
        segment.close()


def _told(notes: Notes) -> Iterator[Finding]:
    yield from notes.findings
    notes.findings.clear()


def _row(notes: Notes, batch: Batch | None, record: Record | None) -> Row:
    bytes_read, notes.meter.bytes_read = notes.meter.bytes_read, 0
    return Row({}, Match(batch, record, bytes_read))
