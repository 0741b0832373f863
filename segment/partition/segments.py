"""Finding segments of a partition by offset (Kafka: LogSegments).

Everything is asked of the base offsets in ascending order, as `PartitionDirectory.segments` has them. A segment holds
the offsets from its base to the next base; so the one that can hold an offset is the *floor*: the greatest base not
above it.
"""

import bisect
from collections.abc import Sequence

from kseg.segment.partition.directory import SegmentFiles


def _base(segment: SegmentFiles) -> int:
    return segment.base_offset


def floor_segment(segments: Sequence[SegmentFiles], offset: int) -> SegmentFiles | None:
    """The segment with the greatest base offset <= `offset`, None below the first."""
    index = bisect.bisect_right(segments, offset, key=_base)
    return segments[index - 1] if index else None


def lower_segment(segments: Sequence[SegmentFiles], offset: int) -> SegmentFiles | None:
    """The segment with the greatest base offset < `offset`."""
    index = bisect.bisect_left(segments, offset, key=_base)
    return segments[index - 1] if index else None


def higher_segment(segments: Sequence[SegmentFiles], offset: int) -> SegmentFiles | None:
    """The segment with the smallest base offset > `offset`."""
    index = bisect.bisect_right(segments, offset, key=_base)
    return segments[index] if index < len(segments) else None


def segments_between(
    segments: Sequence[SegmentFiles], from_offset: int, to_offset: int
) -> Sequence[SegmentFiles]:
    """The segments that can hold from_offset <= offset < to_offset: from the floor of `from_offset` (else the first)
    up to the last base below `to_offset`; none when the range is empty (Kafka: LogSegments.values)."""
    if from_offset >= to_offset:
        return segments[:0]
    first = max(0, bisect.bisect_right(segments, from_offset, key=_base) - 1)
    return segments[first : bisect.bisect_left(segments, to_offset, key=_base)]
