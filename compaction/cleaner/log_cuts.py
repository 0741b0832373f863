"""Cut a range of segments in two at the start of a batch, so that two processes can share a pass.

The cut depends only on sizes, offset indexes and the map, never on the number of processes. An index entry is only
provisional: the process that reads up to a cut checks that a batch ends there.

In a second pass a record that stays costs more than one that is removed (it is encoded, compressed and written), and most records that
stay are at the end of the log. So the range is cut where half of the work is done, not where half of the bytes are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment import layout as L
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.sidecar.index import OffsetIndex

# for a smaller range a second process costs more than it saves
MIN_BYTES = 16 << 20
# share of the work that lies before the cut: the process that works after the cut also has to read the headers before it and, in a first
# pass, to transfer its map
FIRST_PASS_SHARE = 0.56
_SHARE = 0.53
_LEAST_SHARE = 0.25
# the cost of keeping a record, in units of reading one: measured with and without compression
_COST_OF_KEPT = 1.5


class Cut(NamedTuple):
    """number: of the segment in the range. position: of the batch in it; 0: between this segment and the previous one."""

    number: int
    position: int


class SegmentPart(NamedTuple):
    """The part of a segment between two cuts. stop: None is the end of the segment."""

    number: int
    start: int
    stop: int | None


def parts(segments: Sequence[CleanerSegment], start: Cut | None, stop: Cut | None) -> Iterator[SegmentPart]:
    """The parts between two cuts, segment by segment. A cut of None is the beginning or the end of the range."""
    first = Cut(0, 0) if start is None else start
    behind = Cut(len(segments), 0) if stop is None else stop
    for number in range(first.number, len(segments)):
        begin = first.position if number == first.number else 0
        if Cut(number, begin) >= behind:
            break
        yield SegmentPart(number, begin, behind.position if number == behind.number else None)


def within(cut: Cut | None, first: int, count: int) -> Cut | None:
    """The cut of a range, relative to its segments `first` … first + count − 1; None when it is elsewhere."""
    if cut is None or not first <= cut.number < first + count:
        return None
    return Cut(cut.number - first, cut.position)


class KeptRecords(Protocol):
    """The number of records in a range of offsets that a second pass keeps."""

    def kept_below(self, offset: int) -> int:
        """The number of kept records below this offset."""


class _Work:
    """The work of reading the segments up to an entry of an offset index, in bytes."""

    def __init__(self, segments: Sequence[CleanerSegment], kept: KeptRecords | None) -> None:
        self._segments = segments
        self._kept = kept
        self._cost_of_kept = 0.0 if kept is None else _COST_OF_KEPT * _bytes_per_offset(segments)
        self._bytes_before = [0, *accumulate(segment.size_bytes for segment in segments)]

    def before(self, number: int, position: int, offset: int) -> float:
        """The work before a position in a segment, where the next batch begins at or above `offset`."""
        work = float(self._bytes_before[number] + position)
        if self._kept is not None:
            work += self._cost_of_kept * self._kept.kept_below(offset)
        return work

    def before_segment(self, number: int) -> float:
        """The work before a segment, or before the end of the last one."""
        is_end = number == len(self._segments)
        return self.before(number, 0, L.INT64_MAX if is_end else self._segments[number].base_offset)


def _bytes_per_offset(segments: Sequence[CleanerSegment]) -> float:
    """The greatest of all segments except the last: segments that were cleaned before lack most of their offsets."""
    return max(
        (
            segment.size_bytes / max(1, following.base_offset - segment.base_offset)
            for segment, following in pairwise(segments)
        ),
        default=0.0,
    )


def middle(
    segments: Sequence[CleanerSegment],
    first_position: int = 0,
    *,
    kept: KeptRecords | None = None,
    share: float = _SHARE,
) -> Cut | None:
    """Where to cut a range of segments that is read from `first_position` of the first one on. kept: for a second pass. None if the range
    is not cut: it is small, or no index has an entry near the middle."""
    if sum(segment.size_bytes for segment in segments) - first_position < MIN_BYTES:
        return None
    work = _Work(segments, kept)
    last = len(segments)
    total = work.before_segment(last) - first_position
    wanted = float(first_position + int(total * share))
    number = bisect_right(range(1, last), wanted, key=work.before_segment)
    position, reached = _batch_start(segments[number], number, work, wanted)
    if not 0 < position < segments[number].size_bytes:
        start, end = work.before_segment(number), work.before_segment(number + 1)
        is_nearer_to_end = 2 * wanted > start + end
        number, position, reached = number + is_nearer_to_end, 0, end if is_nearer_to_end else start
    return (
        Cut(number, position)
        if _LEAST_SHARE <= (reached - first_position) / total <= 1 - _LEAST_SHARE
        else None
    )


def _batch_start(segment: CleanerSegment, number: int, work: _Work, wanted: float) -> tuple[int, float]:
    """The first position in the offset index before which `wanted` work is done, and that work; 0 if there is none."""
    if segment.side_files is not None:
        return _entry_position(memoryview(segment.side_files.offset_index), segment, number, work, wanted)
    path = segment.index_paths[0]
    if path is None:
        return 0, 0.0
    try:
        with MappedFile(path) as file:
            return _entry_position(file.view, segment, number, work, wanted)
    except UnreadableInput:
        return 0, 0.0


def _entry_position(
    view: memoryview, segment: CleanerSegment, number: int, work: _Work, wanted: float
) -> tuple[int, float]:
    index = OffsetIndex(view, segment.base_offset)

    def before(slot: int) -> float:
        entry = index.entry(slot)
        return work.before(number, entry.position, entry.offset)

    slot = bisect_left(range(len(index)), wanted, key=before)
    return (index.entry(slot).position, before(slot)) if slot < len(index) else (0, 0.0)
