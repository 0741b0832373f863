"""Look up a key: its latest record, or all of them. No broker answers this; only the records themselves can.

1. Segments from the newest backwards; inside one, spans that begin at sound index entries, also backwards, so that a
   recent record is found without reading the log. The last match of the first span with one is the newest.
2. Records are decoded a table at a time; a table whose bytes do not contain the key is passed over.
3. Below the log start nothing counts; with read_committed nothing at or above the last stable offset, and nothing of an
   aborted transaction. Control records have no key of a user's.

The whole history goes the other way, oldest first.
"""

from collections import deque
from collections.abc import Iterator
from itertools import pairwise

from kseg.inspection.lookup.answer import Answer, at_record, not_found
from kseg.inspection.query import LookupQuery
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.model import Batch, Record
from kseg.segment.partition.derived_state import aborted_transactions, is_aborted, last_stable_offset
from kseg.segment.partition.header_walk import BatchWalk
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding, undecodable
from kseg.segment.scanning.decode import Chunk, Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from kseg.segment.sidecar.txn_index import AbortedTxn

_SPAN_BYTES = 4 * 1024 * 1024


class _KeyScan:
    """What counts as a match in one log."""

    def __init__(self, log: PartitionLog, query: LookupQuery) -> None:
        assert query.key is not None
        self.log = log
        self.key = query.key
        self.start_offset = log.start_offset
        self.stop_offset: int | None = None
        self.aborted: tuple[AbortedTxn, ...] = ()
        if query.read_committed:
            self.stop_offset = last_stable_offset(log)
            self.aborted = aborted_transactions(log, self.start_offset, L.INT64_MAX)

    def matches(self, segment: LogSegment, start: int, end: int) -> Iterator[tuple[Batch, Record]]:
        """The matching records between two batch boundaries, in order."""
        decoder = Decoder(segment.file.view)
        scanner = Scanner.over(segment.file, segment.base_offset, next_base=segment.following_base)
        for block in scanner.blocks(start, end):
            if isinstance(block, Damage):
                self.log.report(damage_finding(segment.path, block))
                continue
            self.log.meter.bytes_read += sum(block.column(C.SIZE))
            for chunk in decoder.chunks(block):
                if chunk.problem is not None:
                    self.log.report(undecodable(segment.path, block, chunk.problem))
                if not chunk.control:
                    yield from self._of_chunk(block, chunk)

    def _of_chunk(self, table: Columns, chunk: Chunk) -> Iterator[tuple[Batch, Record]]:
        records, key = chunk.records, self.key
        if not records.count or not self._may_hold(chunk):
            return
        body, cell = memoryview(chunk.body), records.at
        lengths = records.column(C.R_KEY_LENGTH)
        for at in range(records.count):
            if lengths[at] != len(key):
                continue
            start = cell(C.R_KEY_START, at)
            if body[start : start + len(key)] != key or not self._is_visible(cell(C.R_OFFSET, at)):
                continue
            batch = batch_at(table, cell(C.R_BATCH, at))
            if not is_aborted(batch, self.aborted):
                yield batch, record_at(chunk, at)

    def _may_hold(self, chunk: Chunk) -> bool:
        """Whether the key's bytes are in the chunk at all: one search instead of a comparison per record."""
        starts = [start for start in chunk.records.column(C.R_KEY_START) if start >= 0]
        if not starts:
            return False
        return bytes(memoryview(chunk.body)[min(starts) : max(starts) + len(self.key)]).find(self.key) >= 0

    def _is_visible(self, offset: int) -> bool:
        return offset >= self.start_offset and (self.stop_offset is None or offset < self.stop_offset)


def by_key(log: PartitionLog, query: LookupQuery) -> Iterator[Answer]:
    """The newest record with `query.key`, or every one of them from the oldest on."""
    scan = _KeyScan(log, query)
    answers = _every(scan) if query.every_version else _newest(scan)
    found = False
    for answer in answers:
        found = True
        yield answer
    if not found:
        yield not_found("no visible record has this key")


def _every(scan: _KeyScan) -> Iterator[Answer]:
    for segment in scan.log.from_floor(scan.start_offset):
        segment.scanned(0, segment.file.size_bytes)
        for batch, record in scan.matches(segment, 0, segment.file.size_bytes):
            yield at_record(segment, batch, record)


def _newest(scan: _KeyScan) -> Iterator[Answer]:
    lowest = max(0, scan.log.floor_index(scan.start_offset))
    for segment in reversed(scan.log.segments[lowest:]):
        for start, end in reversed(list(pairwise(_boundaries(scan.log, segment)))):
            segment.scanned(start, end)
            newest = deque(scan.matches(segment, start, end), maxlen=1)
            if newest:
                yield at_record(segment, *newest[0])
                return
        segment.close()


def _boundaries(log: PartitionLog, segment: LogSegment) -> list[int]:
    """0, batch boundaries at least a span apart that the offset index knows, and the end of the file."""
    size_bytes = segment.file.size_bytes
    boundaries = [0]
    index = segment.offset_index if log.use_index and size_bytes > _SPAN_BYTES else None
    walk: BatchWalk = segment.walk
    for entry in index or ():
        if boundaries[-1] + _SPAN_BYTES <= entry.position < size_bytes - _SPAN_BYTES // 2:
            batch = walk.valid_batch_at(entry.position)
            if batch is not None and batch.base_offset <= entry.offset:
                boundaries.append(entry.position)
    return [*boundaries, size_bytes]
