"""The split of a segment whose offsets do not all fit its indexes (fact sheet §6.4; Kafka: splitOverflowedSegment).

1. Only a segment whose last batch overflows may be split.
2. From the beginning: a new segment is named by the first offset of the next batch and takes batches while their last
   offsets fit. Checksums are not looked at; what cannot be walked over ends the load.
3. The new segments are indexed as by appends, and take the place of the old one: renamed to `.swap` from the last to
   the first, the old one deleted if it is known to the log, then renamed to their final names. A file of that name is
   replaced; one that is not, like a transaction index, stays.
"""

from kseg.change.plan.content import Span
from kseg.recovery.loading.broker_walk import LogWalk
from kseg.recovery.loading.kafka_exceptions import (
    CORRUPT,
    ILLEGAL_ARGUMENT,
    ILLEGAL_STATE,
    NO_SUCH_ELEMENT,
    NO_SUCH_FILE,
    KafkaThrows,
)
from kseg.recovery.loading.segment import LoadedSegment, LoadedSegments
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.sidecar.index import TimeIndexEntry
from kseg.segment.sidecar.index_builder import OVERFLOW, SegmentIndexes


class _Part:
    """One new segment while it is filled: a stretch of the old log."""

    def __init__(self, base_offset: int, position: int, old: LoadedSegment) -> None:
        self.base_offset = base_offset
        self.position = position
        self.end = position
        settings = old.settings
        self.indexes = SegmentIndexes(
            base_offset, settings.index_interval_bytes, settings.segment_index_bytes
        )

    def take(self, table: Columns, row: int) -> bool:
        """The next batch; False when its last offset does not fit."""
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        refusal = self.indexes.add(
            position - self.position, size, table.at(C.LAST_OFFSET, row), table.at(C.MAX_TIMESTAMP, row)
        )
        if refusal is not None and refusal.kafka_exception == OVERFLOW:
            return False
        if not L.MAGIC_V0 <= table.at(C.MAGIC, row) <= L.MAGIC_V2:
            raise KafkaThrows(CORRUPT, f"a batch has the magic {table.at(C.MAGIC, row)}")
        if refusal is not None:
            raise KafkaThrows(refusal.kafka_exception, refusal.sentence)
        self.end = position + size
        return True


def split_overflowed(segment: LoadedSegment, segments: LoadedSegments) -> list[int]:
    """Split a segment and put the parts into its place; base offsets of what is gone. Raises KafkaThrows."""
    if not segment.has_overflow():
        sentence = f"{segment.log_name} cannot be split: its last batch is in range"
        raise KafkaThrows(ILLEGAL_ARGUMENT, sentence)
    parts = _parts_of(segment)
    bases = [part.base_offset for part in parts]
    if len(set(bases)) < len(bases):
        raise KafkaThrows(NO_SUCH_FILE, f"two parts of {segment.log_name} begin at the same offset")
    place = segment.place
    message = f"{segment.log_name} is split into segments at the offsets {', '.join(map(str, sorted(bases)))}"
    place.report(Finding("offset-overflow", place.path(segment.log_name), message))
    is_known = segment.base_offset in segments
    source = place.source(segment.log_name)
    assert source is not None
    segment.offset_index.put_back("left as it was when the segment overflowed")
    segment.time_index.put_back("left as it was when the segment overflowed")
    if is_known:
        if segment.base_offset != min(bases):
            segments.remove(segment.base_offset)
        segment.delete("split into segments whose offsets fit their indexes")
    for part in parts:
        _place_part(part, source, segment, segments)
    return [segment.base_offset] if is_known and segment.base_offset not in bases else []


def _parts_of(segment: LoadedSegment) -> list[_Part]:
    walk, size = segment.walk, segment.size_bytes
    parts: list[_Part] = []
    position = 0
    while position < size:
        part = _next_part(walk, position, segment)
        finish = part.indexes.finish()
        if finish is not None:
            raise KafkaThrows(finish.kafka_exception, finish.sentence)
        parts.append(part)
        position = part.end
    return parts


def _next_part(walk: LogWalk, position: int, old: LoadedSegment) -> _Part:
    part: _Part | None = None
    for table in walk.with_headers(position):
        for row in range(table.count):
            if part is None:
                part = _Part(walk.base_offset(table, row), position, old)
            if part.take(table, row):
                continue
            if part.end == position:
                sentence = f"the batch at position {position} of {walk.name} ends below its own first offset"
                raise KafkaThrows(ILLEGAL_STATE, sentence)
            return part
    if part is None:
        sentence = f"{walk.name} ends in a partial batch at position {position}, so it cannot be split"
        raise KafkaThrows(NO_SUCH_ELEMENT, sentence)
    return part


def _place_part(part: _Part, source: Span, old: LoadedSegment, segments: LoadedSegments) -> None:
    place, indexes = old.place, part.indexes
    new = LoadedSegment(place, part.base_offset, old.settings)
    why = f"part of {old.log_name}, whose offsets do not all fit one index"
    span = Span(source.name, source.position + part.position, part.end - part.position)
    new.txn_index.forget_file()
    place.take_piece(new.log_name, span, why)
    place.write(new.offset_index.name, indexes.offset_index.to_bytes(), why)
    place.write(new.time_index.name, indexes.time_index.to_bytes(), why)
    new.offset_index.open()
    new.time_index.open()
    new.largest = TimeIndexEntry(indexes.max_timestamp_ms, indexes.offset_of_max)
    segments.add(new)
