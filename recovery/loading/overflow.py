"""The split of a segment whose offsets do not all fit its indexes (fact sheet §6.4; Kafka: splitOverflowedSegment).

1. Only a segment whose last batch overflows may be split.
2. From the start: a new segment is named after the first offset of the next batch and takes batches while their last
   offsets fit. Checksums are not checked; bytes that cannot be walked over end the load.
3. The new segments are indexed as by appends, and replace the old one: they are renamed to `.swap` from the last to
   the first, the old one is deleted if the log has it, then they get their final names. An existing file of that name is
   replaced; other files, such as a transaction index, are kept.
"""

from kseg.change.plan.content import Span
from kseg.recovery.loading.broker_walk import LogWalk
from kseg.recovery.loading.kafka_exceptions import (
    CORRUPT,
    ILLEGAL_ARGUMENT,
    ILLEGAL_STATE,
    INDEX_OUT_OF_BOUNDS,
    NO_SUCH_ELEMENT,
    NO_SUCH_FILE,
    BrokerException,
)
from kseg.recovery.loading.segment import LoadedSegment, LoadedSegments
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.sidecar.index import TimeIndexEntry
from kseg.segment.sidecar.index_builder import OVERFLOW, SegmentIndexes

_TIMESTAMP_END = 43  # end of the max timestamp, the last field of a batch header that an append reads


class _SplitPart:
    """One new segment while it is filled: consecutive batches of the old log."""

    def __init__(self, base_offset: int, position: int, old: LoadedSegment) -> None:
        self.base_offset = base_offset
        self.position = position
        self.end = position
        settings = old.settings
        self.indexes = SegmentIndexes(
            base_offset, settings.index_interval_bytes, settings.segment_index_bytes
        )

    def take(self, table: Columns, row: int) -> bool:
        """Append the next batch; False if its last offset does not fit."""
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        refusal = self.indexes.add(
            position - self.position, size, table.at(C.LAST_OFFSET, row), table.at(C.MAX_TIMESTAMP, row)
        )
        if refusal is not None and refusal.kafka_exception == OVERFLOW:
            return False
        if not L.MAGIC_V0 <= table.at(C.MAGIC, row) <= L.MAGIC_V2:
            raise BrokerException(CORRUPT, f"a batch has magic {table.at(C.MAGIC, row)}")
        if table.at(C.MAGIC, row) == L.MAGIC_V2 and size < _TIMESTAMP_END:
            raise BrokerException(
                INDEX_OUT_OF_BOUNDS, f"the batch at position {position} ends inside its header"
            )
        if refusal is not None:
            raise BrokerException(refusal.kafka_exception, refusal.sentence)
        self.end = position + size
        return True


def split_overflowed(segment: LoadedSegment, segments: LoadedSegments) -> list[int]:
    """Split a segment and replace it by the parts; returns base offsets that no longer exist. Raises BrokerException."""
    if not segment.has_overflow():
        sentence = f"{segment.log_name} cannot be split: its last batch is in range"
        raise BrokerException(ILLEGAL_ARGUMENT, sentence)
    parts = _parts_of(segment)
    bases = [part.base_offset for part in parts]
    if len(set(bases)) < len(bases):
        raise BrokerException(NO_SUCH_FILE, f"two parts of {segment.log_name} start at the same offset")
    load_state = segment.load_state
    message = f"{segment.log_name} is split into segments at offsets {', '.join(map(str, sorted(bases)))}"
    load_state.report(Finding("offset-overflow", load_state.path(segment.log_name), message))
    is_known = segment.base_offset in segments
    source = load_state.source(segment.log_name)
    assert source is not None
    segment.offset_index.write_back("left as it was when the segment overflowed")
    segment.time_index.write_back("left as it was when the segment overflowed")
    if is_known:
        segment.delete("split into segments whose offsets fit their indexes")
    for part in parts:
        _place_part(part, source, segment, segments)
    if is_known and segment.base_offset != min(bases):
        # a broker adds the parts first, so the one that begins at the old base offset is not in its log until the next start
        segments.remove(segment.base_offset)
    return [segment.base_offset] if is_known and segment.base_offset not in bases else []


def _parts_of(segment: LoadedSegment) -> list[_SplitPart]:
    walk, size = segment.walk, segment.size_bytes
    parts: list[_SplitPart] = []
    position = 0
    while position < size:
        part = _next_part(walk, position, segment)
        finish = part.indexes.finish()
        if finish is not None:
            raise BrokerException(finish.kafka_exception, finish.sentence)
        parts.append(part)
        position = part.end
    return parts


def _next_part(walk: LogWalk, position: int, old: LoadedSegment) -> _SplitPart:
    part: _SplitPart | None = None
    for table in walk.with_headers(position):
        for row in range(table.count):
            if part is None:
                part = _SplitPart(walk.base_offset(table, row), position, old)
            if part.take(table, row):
                continue
            if part.end == position:
                sentence = f"the batch at position {position} of {walk.name} ends below its own first offset"
                raise BrokerException(ILLEGAL_STATE, sentence)
            return part
    if part is None:
        sentence = f"{walk.name} ends in a partial batch at position {position}, so it cannot be split"
        raise BrokerException(NO_SUCH_ELEMENT, sentence)
    return part


def _place_part(part: _SplitPart, source: Span, old: LoadedSegment, segments: LoadedSegments) -> None:
    load_state, indexes = old.load_state, part.indexes
    new = LoadedSegment(load_state, part.base_offset, old.settings)
    why = f"part of {old.log_name}, whose offsets do not all fit one index"
    span = Span(source.name, source.position + part.position, part.end - part.position)
    new.txn_index.forget_file()
    load_state.create_from(new.log_name, span, why)
    load_state.write(new.offset_index.name, indexes.offset_index.to_bytes(), why)
    load_state.write(new.time_index.name, indexes.time_index.to_bytes(), why)
    new.offset_index.open()
    new.time_index.open()
    new.largest = TimeIndexEntry(indexes.max_timestamp_ms, indexes.offset_of_max)
    segments.add(new)
