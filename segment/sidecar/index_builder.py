"""The index entries that a 4.x broker writes for a segment, computed from its batches.

For each batch, in file order (Kafka: LogSegment.recover and LogSegment.append; fact sheet §4.1, §4.2, §6.3):

1. A last offset outside base … base + 2^31 - 1 is an overflow: the batch belongs to another segment.
2. A timestamp greater than the maximum so far becomes the maximum, its offset is the batch's *last* offset.
3. If more than `interval_bytes` lie between the batch that has the last entry (or the start) and this one, add an
   offset entry (last offset, position) and a time entry (maximum so far, its offset). The test precedes counting the
   batch, so the batch at position 0 never has an entry.
4. When the segment ends, one more time entry with the maximum; it alone may take the last slot.

Recovery and an uninterrupted sequence of appends produce the same entries. A restart makes them differ: it closes
the segment (step 4) and counts bytes from its end (step 3); `reopen` simulates that.
"""

from array import array

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import indexing
from kseg.segment.kernel import state_fields as S
from kseg.segment.sidecar.index_writer import OffsetIndexBuilder, TimeIndexBuilder, can_index_offset
from kseg.segment.values import dataclass

OVERFLOW = "LogSegmentOffsetOverflowException"
OUT_OF_ORDER = "InvalidOffsetException"
FULL = "IllegalArgumentException"


@dataclass(frozen=True, slots=True)
class IndexRefusal:
    """An entry that cannot be written. kafka_exception: what a broker's recovery throws there: OVERFLOW makes it
    split the segment, OUT_OF_ORDER makes it truncate the segment to 0 bytes, FULL fails the load of the log."""

    kafka_exception: str
    sentence: str


class SegmentIndexes:
    """Builds offset index and time index of one segment from its batches.

    base_offset: from the file name. interval_bytes: Kafka's index.interval.bytes. max_index_bytes: Kafka's
    segment.index.bytes. max_timestamp_ms, offset_of_max: the greatest batch timestamp so far (-1 while there is
    none) and the last offset of the first batch that has it (the base offset while there is none).
    offset_index, time_index: the builders, for their entries and `to_bytes`.
    """

    __slots__ = (
        "_counted_from",
        "_end_position",
        "base_offset",
        "interval_bytes",
        "max_timestamp_ms",
        "offset_index",
        "offset_of_max",
        "time_index",
    )

    def __init__(
        self,
        base_offset: int,
        interval_bytes: int = L.DEFAULT_INDEX_INTERVAL_BYTES,
        max_index_bytes: int = L.DEFAULT_SEGMENT_INDEX_BYTES,
    ) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.offset_index = OffsetIndexBuilder(base_offset, max_index_bytes)
        self.time_index = TimeIndexBuilder(base_offset, max_index_bytes)
        self.max_timestamp_ms = L.NO_TIMESTAMP
        self.offset_of_max = base_offset
        self._counted_from = 0
        self._end_position = 0

    def resume(self, offset_index: bytes, time_index: bytes, end_position: int) -> None:
        """Continue with the indexes of a segment of `end_position` bytes as the files have them after a clean stop.

        A broker trusts the files: its maximum timestamp is then that of the last time index entry (Kafka: LogSegment.
        readMaxTimestampAndOffsetSoFar), and it counts bytes from the end.
        """
        self.offset_index.resume(offset_index)
        self.time_index.resume(time_index)
        self.max_timestamp_ms, self.offset_of_max = self.time_index.last_entry
        self._counted_from = self._end_position = end_position

    @property
    def is_full(self) -> bool:
        """Whether a broker would roll before the next append (one of the two rules of fullness)."""
        return self.offset_index.is_full or self.time_index.is_full

    def add(
        self, position: int, size_bytes: int, last_offset: int, max_timestamp_ms: int
    ) -> IndexRefusal | None:
        """Add the next batch. position: of its first byte in the segment file.

        A refusal names the omitted entry and the reason; the builder continues. A batch that overflows is not counted at all.
        """
        if not can_index_offset(last_offset, self.base_offset):
            sentence = f"offset {last_offset} does not fit a segment that starts at {self.base_offset}"
            return IndexRefusal(OVERFLOW, sentence)
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.offset_of_max = last_offset
        self._end_position = position + size_bytes
        if position - self._counted_from <= self.interval_bytes:
            return None
        self._counted_from = position
        return self._add_entries(last_offset, position)

    def add_rows(self, table: Columns, first: int, stop: int) -> tuple[int, IndexRefusal] | None:
        """`add` for the rows first … stop - 1 of a table of batches; returns None, or the row that was refused.

        The refused row is counted as by `add`; the caller continues after it.
        """
        row = self._add_good_rows(table, first, stop)
        while row < stop:
            refusal = self.add(
                table.at(C.POSITION, row),
                table.at(C.SIZE, row),
                table.at(C.LAST_OFFSET, row),
                table.at(C.MAX_TIMESTAMP, row),
            )
            if refusal is not None:
                return row, refusal
            row = self._add_good_rows(table, row + 1, stop)
        return None

    def _add_good_rows(self, table: Columns, first: int, stop: int) -> int:
        offset_index, time_index = self.offset_index, self.time_index
        state = memoryview(array("q", bytes(8 * S.INDEX_WIDTH)))
        state[S.INDEX_COUNTED_FROM] = self._counted_from
        state[S.INDEX_MAX_TIMESTAMP] = self.max_timestamp_ms
        state[S.INDEX_OFFSET_OF_MAX] = self.offset_of_max
        state[S.INDEX_END_POSITION] = self._end_position
        state[S.INDEX_OFFSET_ENTRIES] = offset_index.entries
        state[S.INDEX_LAST_OFFSET] = offset_index.last_offset
        state[S.INDEX_TIME_ENTRIES] = time_index.entries
        state[S.INDEX_LAST_TIMESTAMP], state[S.INDEX_LAST_TIME_OFFSET] = time_index.last_entry
        offsets = bytearray(L.OFFSET_INDEX_ENTRY * (stop - first))
        times = bytearray(L.TIME_INDEX_ENTRY * (stop - first))
        row = indexing.index_rows(
            *table.raw,
            first,
            stop,
            self.base_offset,
            self.interval_bytes,
            offset_index.max_entries,
            time_index.max_entries - 1,
            offsets,
            times,
            state,
        )
        self._counted_from = state[S.INDEX_COUNTED_FROM]
        self.max_timestamp_ms = state[S.INDEX_MAX_TIMESTAMP]
        self.offset_of_max = state[S.INDEX_OFFSET_OF_MAX]
        self._end_position = state[S.INDEX_END_POSITION]
        offset_index.extend(offsets, state[S.INDEX_NEW_OFFSET_ENTRIES])
        time_index.extend(times, state[S.INDEX_NEW_TIME_ENTRIES])
        return row

    def finish(self) -> IndexRefusal | None:
        """The segment ends here (rolled, closed, or recovered): add the final time index entry."""
        return self._add_time_entry(at_end=True)

    def _add_entries(self, last_offset: int, position: int) -> IndexRefusal | None:
        index = self.offset_index
        if index.is_full:
            return IndexRefusal(FULL, f"the offset index is full with {index.entries} entries")
        if index.entries and last_offset <= index.last_offset:
            sentence = f"offset {last_offset} at position {position} is not above {index.last_offset}"
            return IndexRefusal(OUT_OF_ORDER, sentence)
        index.append(last_offset, position)
        return self._add_time_entry()

    def _add_time_entry(self, at_end: bool = False) -> IndexRefusal | None:
        index = self.time_index
        if index.is_full and not at_end:
            return IndexRefusal(FULL, f"the time index is full with {index.entries} entries")
        if index.entries and self.offset_of_max < index.last_entry.offset:
            sentence = (
                f"the maximum timestamp is at offset {self.offset_of_max}, below {index.last_entry.offset}"
            )
            return IndexRefusal(OUT_OF_ORDER, sentence)
        index.maybe_append(self.max_timestamp_ms, self.offset_of_max, skip_full_check=at_end)
        return None
