"""Split a segment whose offsets overflow its index (fact sheet §6.4; Kafka: splitOverflowedSegment).

A part is named after the first offset of its first batch and takes batches while their last offsets fit.
"""

from kseg.change.apply.scratch_file import ScratchFile
from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.cleaner.segment_reader import tables
from kseg.compaction.cleaner.segments import CleanerSegment, SideFiles
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.sidecar.index_builder import OVERFLOW, SegmentIndexes
from kseg.segment.sidecar.txn_index import encode_txn_index
from kseg.segment.values import dataclass


class SegmentOverflow(Exception):
    """A segment must be split before it can be cleaned."""

    def __init__(self, segment: CleanerSegment) -> None:
        super().__init__(segment.path)
        self.segment = segment


@dataclass(slots=True)
class _Part:
    """One of the new segments while it is filled: consecutive batches of the old log."""

    base_offset: int
    position: int
    end: int
    indexes: SegmentIndexes

    def take(self, table: Columns, row: int) -> bool:
        """Add the next batch; False if its last offset does not fit."""
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        last, timestamp = table.at(C.LAST_OFFSET, row), table.at(C.MAX_TIMESTAMP, row)
        refusal = self.indexes.add(position - self.position, size, last, timestamp)
        if refusal is not None and refusal.kafka_exception == OVERFLOW:
            return False
        self.end = position + size
        return True


def split(segment: CleanerSegment, settings: CleanSettings, directory: str | None) -> list[CleanerSegment]:
    """The parts, in order of their offsets. Raises DamagedSegment, Refused."""
    parts: list[_Part] = []
    with segment.opened() as view:
        for table in tables(segment, view, 0):
            for row in range(table.count):
                if not parts or not parts[-1].take(table, row):
                    base, position = table.at(C.BASE_OFFSET, row), table.at(C.POSITION, row)
                    indexes = SegmentIndexes(base, settings.index_interval_bytes, L.INT32_MAX)
                    parts.append(_Part(base, position, position, indexes))
                    parts[-1].take(table, row)
        bounds = [*(part.base_offset for part in parts[1:]), L.INT64_MAX]
        return [
            _segment(segment, view, part, bound, directory) for part, bound in zip(parts, bounds, strict=True)
        ]


def _segment(
    old: CleanerSegment, view: memoryview, part: _Part, bound: int, directory: str | None
) -> CleanerSegment:
    is_first = not part.position
    part.indexes.finish()
    log = ScratchFile(directory)
    log.copy(old.path, view, part.position, part.end - part.position)
    log.release()
    # a broker's split loses the transaction index; here each part gets the entries whose markers it contains
    aborted = tuple(
        entry for entry in old.aborted if _is_in(entry.last_offset, part, bound, is_first=is_first)
    )
    files = SideFiles(
        part.indexes.offset_index.to_bytes(), part.indexes.time_index.to_bytes(), encode_txn_index(aborted)
    )
    largest = part.indexes.max_timestamp_ms
    return CleanerSegment(
        base_offset=part.base_offset,
        path=log.path,
        size_bytes=part.end - part.position,
        mtime_ms=old.mtime_ms,
        index_bytes=len(files.offset_index),
        time_index_bytes=len(files.time_index),
        largest_timestamp_ms=largest if largest >= 0 else old.mtime_ms,
        origins=old.origins if is_first else (),
        aborted=aborted,
        log=log,
        side_files=files,
        is_whole=True,
        like=old.like,
        joins_previous=not is_first,
    )


def _is_in(offset: int, part: _Part, bound: int, *, is_first: bool) -> bool:
    return offset < bound and (is_first or offset >= part.base_offset)
