"""Look up a key: its latest record, or all of them. No broker answers this; only the records themselves can.

1. What cannot contain an answer is skipped: segments by their names and time indexes, bytes of a segment by its indexes
   (`partition.narrowing`), batches by their headers (`scanning.keyed_records`).
2. The rest is divided into spans that begin at valid index entries. For the newest record they are searched backwards, small ones first,
   and the search ends with the first span that has a match: its last one is the newest. The whole history is searched forwards.
3. With several jobs, spans are searched by worker processes (`jobs.fanout`), and their matches used in the same order. The first few MiB
   are always searched in this process: a recent record is found before a worker would have started.
4. Records below the log start do not count; with read_committed neither do records at or above the last stable offset or of an aborted
   transaction. Control records have no user key.
"""

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import pairwise

from kseg.inspection.lookup.answer import Answer, at_record, not_found
from kseg.inspection.lookup.by_time import start_for_time
from kseg.inspection.lookup.key_spans import KeyMatches, KeySpan, Match, SegmentSearch, search_span
from kseg.inspection.lookup.misplaced_segments import wrong_name
from kseg.inspection.query import LookupQuery
from kseg.jobs import fanout
from kseg.jobs.events import Failure, Row
from kseg.segment.errors import UnreadableInput, cannot_read
from kseg.segment.findings import Finding
from kseg.segment.layout import INT64_MAX
from kseg.segment.model import Batch, Record
from kseg.segment.partition.bounds import INT64_MIN, Bounds
from kseg.segment.partition.derived_state import aborted_transactions, last_stable_offset
from kseg.segment.partition.log_segment import LogSegment, Notes
from kseg.segment.partition.narrowing import segments_within, stop_for
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.storage import places
from kseg.segment.values import dataclass

# spans are searched backwards: the size of the last one, by which factor each earlier one is larger, and the maximum
FIRST_SPAN_BYTES = 256 * 1024
_GROWTH = 4
SPAN_BYTES = 4 * 1024 * 1024
# how much is searched in this process before workers start, and how much they get at a time
SERIAL_BYTES = 16 * 1024 * 1024
WAVE_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _SegmentSpans:
    """The spans to search in one segment, in the order of the search. notes: findings from determining them."""

    segment: LogSegment
    spans: list[KeySpan]
    notes: Notes

    @property
    def size_bytes(self) -> int:
        return sum(span.stop - span.start for span in self.spans)


Found = tuple[LogSegment, Batch, Record]


def by_key(log: PartitionLog, query: LookupQuery) -> Iterator[Answer]:
    """The newest record with `query.key`, or every one of them, oldest first."""
    wanted = _wanted(log, query)
    found = False
    with closing(_matches(log, wanted, query.jobs)) as matches:
        for match in _newest(matches) if wanted.newest_only else matches:
            found = True
            yield at_record(*match)
    if log.remote_start is not None and (not found or query.every_version):
        log.report_remote(
            f"so with tiered storage records below offset {log.start_offset} are in remote storage, and were not searched"
        )
    if not found:
        within = " within the given bounds" if query.bounds != Bounds() else ""
        yield not_found(f"no visible record{within} has this key")


def _newest(matches: Iterator[Found]) -> Iterator[Found]:
    """The newest of the matches: the first one, since the search goes backwards, unless its segment has the wrong name."""
    newest = next(matches, None)
    if newest is None:
        return
    if wrong_name(newest[0], newest[1]) is not None:
        newest = max([newest, *matches], key=lambda match: match[2].offset)
    yield newest


def _wanted(log: PartitionLog, query: LookupQuery) -> KeyMatches:
    assert query.key is not None
    bounds = query.bounds.within(Bounds(from_offset=log.start_offset))
    aborted: tuple[AbortedTxn, ...] = ()
    if query.read_committed:
        bounds = bounds.within(Bounds(to_offset=last_stable_offset(log)))
        aborted = aborted_transactions(log, bounds.from_offset, INT64_MAX)
    return KeyMatches(key=query.key, bounds=bounds, aborted=aborted, newest_only=not query.every_version)


def _matches(log: PartitionLog, wanted: KeyMatches, jobs: int) -> Generator[Found, None, None]:
    for number, wave in enumerate(_waves(log, wanted, jobs)):
        if jobs > 1 and number:
            yield from _by_workers(log, wave, wanted, jobs)
        else:
            for each in wave:
                yield from _here(log, each, wanted)


def _waves(log: PartitionLog, wanted: KeyMatches, jobs: int) -> Iterator[list[_SegmentSpans]]:
    """Spans that are searched together: few at first, more if the key was not found there."""
    wave: list[_SegmentSpans] = []
    size_bytes, limit_bytes = 0, SERIAL_BYTES
    segments = [] if wanted.bounds.is_empty else list(segments_within(log, wanted.bounds, log.use_index))
    for segment in reversed(segments) if wanted.newest_only else segments:
        spans = _spans_of(log, segment, wanted)
        if jobs <= 1:
            yield [spans]
            continue
        for part in _divided(spans, limit_bytes - size_bytes):
            wave.append(part)
            size_bytes += part.size_bytes
            if size_bytes >= limit_bytes:
                yield wave
                wave, size_bytes, limit_bytes = [], 0, WAVE_BYTES
    if wave:
        yield wave


def _divided(spans: _SegmentSpans, first_bytes: int) -> Iterator[_SegmentSpans]:
    """The leading spans that add up to `first_bytes`, and the rest."""
    size_bytes = number = 0
    while number < len(spans.spans) and size_bytes < first_bytes:
        size_bytes += spans.spans[number].stop - spans.spans[number].start
        number += 1
    yield _SegmentSpans(spans.segment, spans.spans[:number], spans.notes)
    if number < len(spans.spans):
        yield _SegmentSpans(spans.segment, spans.spans[number:], Notes())


# --- searching


def _here(log: PartitionLog, spans: _SegmentSpans, wanted: KeyMatches) -> Iterator[Found]:
    segment = spans.segment
    log.take_notes(spans.notes)
    search = None
    for span in spans.spans:
        if search is None:
            search = SegmentSearch(segment, log, wanted)
        segment.scanned(span.start, span.stop)
        for batch, record in search.matches(span):
            yield segment, batch, record
    segment.close()


def _by_workers(
    log: PartitionLog, wave: list[_SegmentSpans], wanted: KeyMatches, jobs: int
) -> Iterator[Found]:
    spans = [(part, span) for part in wave for span in part.spans]
    untold = deque(wave)
    number, is_begun = 0, False
    with closing(fanout.run(search_span, [span for _, span in spans], wanted, jobs)) as events:
        for event in events:
            part, span = spans[number]
            while untold and (not untold[0].spans or untold[0] is part):
                log.take_notes(untold.popleft().notes)
            if not is_begun:
                is_begun = True
                part.segment.scanned(span.start, span.stop)
            match event:
                case Finding():
                    log.report(event)
                case Failure():
                    raise UnreadableInput(event.sentence)
                case Row(result=Match() as match):
                    log.meter.bytes_read += match.bytes_read
                    if match.batch is not None and match.record is not None:
                        yield part.segment, match.batch, match.record
                    else:
                        number, is_begun = number + 1, False
    for part in untold:
        log.take_notes(part.notes)


# --- dividing


def _spans_of(log: PartitionLog, segment: LogSegment, wanted: KeyMatches) -> _SegmentSpans:
    """The spans of one segment. Findings are kept until the spans are searched."""
    notes = Notes(log.use_index)
    probe = LogSegment(notes, segment.base_offset, segment.paths)
    probe.next_base_offset = segment.next_base_offset
    try:
        start, stop = _range_of(notes, probe, wanted.bounds)
        edges = _edges_backwards(probe, start, stop) if log.use_index else [stop, start]
    finally:
        probe.close()
    spans = [
        KeySpan(segment.path, segment.base_offset, segment.next_base_offset, low, high)
        for high, low in pairwise(edges)
    ]
    if not wanted.newest_only:
        spans.reverse()
    # noted once: the file is opened by the process that searches the spans
    notes.path[:] = [step for step in notes.path if step["step"] != "open"]
    if spans:
        notes.note({"step": "open", "file": segment.path})
    return _SegmentSpans(segment, spans, notes)


def _range_of(notes: Notes, segment: LogSegment, bounds: Bounds) -> tuple[int, int]:
    """The byte range of a segment within the bounds, as far as the indexes show it."""
    try:
        size_bytes = places.stat(segment.path).st_size
    except OSError as error:
        raise cannot_read(segment.path, error) from error
    start, stop = 0, None
    if not notes.use_index or size_bytes <= FIRST_SPAN_BYTES:
        return start, size_bytes
    if bounds.from_ms > INT64_MIN:
        start = start_for_time(notes, segment, bounds.from_ms, bounds.from_offset)
    elif bounds.from_offset > segment.base_offset:
        start = segment.start_for(bounds.from_offset)
    following = segment.next_base_offset
    if bounds.to_offset < INT64_MAX and (following is None or following > bounds.to_offset):
        stop = stop_for(segment, bounds.to_offset, start)
    return start, size_bytes if stop is None else max(start, stop)


def _edges_backwards(segment: LogSegment, start: int, stop: int) -> list[int]:
    """`stop`, batch boundaries from the offset index, `start`: spans that grow towards the start."""
    edges = [stop]
    size_bytes = FIRST_SPAN_BYTES
    index = None
    while edges[-1] - start > 2 * size_bytes:
        index = index or segment.offset_index
        if index is None:
            break
        edge = None
        for slot in range(index.slot_at(edges[-1] - size_bytes), len(index)):
            entry = index.entry(slot)
            if not start < entry.position < edges[-1]:
                break
            batch = segment.walk.valid_batch_at(entry.position)
            if batch is not None and batch.base_offset <= entry.offset:
                edge = entry.position
                break
        if edge is not None:
            edges.append(edge)
            size_bytes = min(SPAN_BYTES, _GROWTH * size_bytes)
        elif size_bytes >= stop - start:
            break
        else:
            size_bytes *= 2
    return [*edges, start] if edges[-1] > start else edges
