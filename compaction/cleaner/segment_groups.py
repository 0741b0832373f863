"""Group adjacent segments that fit into one new segment (Kafka: Cleaner.groupSegmentsBySize; fact sheet §8.3)."""

from collections.abc import Sequence

from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment import layout as L


def groups(
    segments: Sequence[CleanerSegment], settings: CleanSettings, upper_offset: int
) -> list[list[CleanerSegment]]:
    """Adjacent segments whose logs, offset indexes and time indexes together fit the settings, and whose offsets fit one index.

    The last offset of a segment is estimated by the base of the next one, for the last segment by `upper_offset`. An empty
    segment has none.
    """
    found: list[list[CleanerSegment]] = []
    log_bytes = index_bytes = time_index_bytes = 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else upper_offset
        log_bytes += segment.size_bytes
        index_bytes += segment.index_bytes
        time_index_bytes += segment.time_index_bytes
        fits = (
            bool(found)
            and log_bytes <= settings.segment_bytes
            and max(index_bytes, time_index_bytes) <= settings.segment_index_bytes
            and (not segment.size_bytes or following - 1 - found[-1][0].base_offset <= L.INT32_MAX)
        )
        if fits:
            found[-1].append(segment)
        else:
            found.append([segment])
            log_bytes, index_bytes = segment.size_bytes, segment.index_bytes
            time_index_bytes = segment.time_index_bytes
    return found
