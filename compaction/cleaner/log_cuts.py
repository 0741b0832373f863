"""Cut a range of segments in two at the start of a batch, so that two processes can share a pass.

The cut depends only on sizes and offset indexes, never on the number of processes. An index entry is only provisional: the
process that reads up to a cut checks that a batch ends there.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.sidecar.index import OffsetIndex

# for a smaller range a second process costs more than it saves
MIN_BYTES = 16 << 20
# share of the range before the cut: the process behind it first has to read the headers before it
_FIRST_SHARE = 0.52
_LEAST_SHARE = 0.25


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
    """The parts between two cuts, segment by segment. None: the range begins or ends there."""
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


def middle(segments: Sequence[CleanerSegment], first_position: int = 0) -> Cut | None:
    """Where to cut a range of segments that is read from `first_position` of the first one on. None if it stays whole: it is
    small, or no index names a batch near the middle."""
    total_bytes = sum(segment.size_bytes for segment in segments) - first_position
    if total_bytes < MIN_BYTES:
        return None
    wanted, before, number = first_position + int(total_bytes * _FIRST_SHARE), 0, 0
    while wanted >= before + segments[number].size_bytes:
        before += segments[number].size_bytes
        number += 1
    segment = segments[number]
    position = _batch_start(segment, wanted - before)
    if not 0 < position < segment.size_bytes:
        is_nearer_to_end = 2 * (wanted - before) > segment.size_bytes
        number, position = number + is_nearer_to_end, 0
        before += segment.size_bytes if is_nearer_to_end else 0
    share = (before + position - first_position) / total_bytes
    return Cut(number, position) if _LEAST_SHARE <= share <= 1 - _LEAST_SHARE else None


def _batch_start(segment: CleanerSegment, wanted: int) -> int:
    """The first position at or behind `wanted` that the offset index has an entry for; 0 when there is none."""
    if segment.side_files is not None:
        return _entry_position(memoryview(segment.side_files.offset_index), wanted)
    path = segment.index_paths[0]
    if path is None:
        return 0
    try:
        with MappedFile(path) as file:
            return _entry_position(file.view, wanted)
    except UnreadableInput:
        return 0


def _entry_position(view: memoryview, wanted: int) -> int:
    index = OffsetIndex(view, 0)
    slot = index.slot_at(wanted)
    return index.entry(slot).position if slot < len(index) else 0
