"""Run both passes of a round in this process: build the offset map, then rewrite group after group with it.

Another implementation of `Passes` may run them elsewhere: `rounds` requests a first pass, then a second one over all segments
below the offset that the first one reached.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Protocol

from kseg.change.apply.scratch_file import ScratchFile
from kseg.compaction.cleaner.active_producers import LastRecords
from kseg.compaction.cleaner.cleaner_totals import PassTotals
from kseg.compaction.cleaner.first_pass import OffsetMapBuilder
from kseg.compaction.cleaner.latest_offsets import LatestOffsets, fastest_lookup
from kseg.compaction.cleaner.offset_map import OffsetMap
from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.cleaner.rewrite_group import clean_group, skip_group
from kseg.compaction.cleaner.second_pass import SegmentCleaner
from kseg.compaction.cleaner.segment_groups import groups
from kseg.compaction.cleaner.segment_reader import survey
from kseg.compaction.cleaner.segments import CleanerSegment, aborted_in, floor_at
from kseg.compaction.cleaner.top_keys import KeySketch, TopKey
from kseg.segment.findings import Finding
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class LogBeingCleaned:
    """A log between two passes. segments: all of it. records: of its producers."""

    segments: Sequence[CleanerSegment]
    start_offset: int
    records: LastRecords
    settings: CleanSettings

    def aborted_in(self, segment: CleanerSegment) -> list[AbortedTxn]:
        """Aborted transactions of a segment that a second pass knows before reading it."""
        following = self.segments[floor_at(self.segments, segment.base_offset) + 1].base_offset
        return aborted_in(self.segments, self.start_offset, segment.base_offset, following)


@dataclass(frozen=True, slots=True)
class SecondPassRequest:
    """Parameters of a second pass. end_offset: segments that begin below it are cleaned; upper_offset: of the whole
    range. directory: where new logs are written, None where the system keeps temporary files; is_written: False when
    it is enough to count. top_keys: how many to name."""

    end_offset: int
    upper_offset: int
    legacy_horizon_ms: int
    directory: str | None
    is_written: bool
    top_keys: int

    def groups(self, log: LogBeingCleaned) -> list[list[CleanerSegment]]:
        """The segments to clean, in groups that each become one segment."""
        to_clean = [segment for segment in log.segments if segment.base_offset < self.end_offset]
        return groups(to_clean, log.settings, self.upper_offset)


@dataclass(slots=True)
class SecondPassResult:
    """What a second pass has made: the segments in the place of those that it was to clean. groups_skipped: left alone
    because of damage."""

    segments: list[CleanerSegment] = field(default_factory=list)
    pass_totals: PassTotals = field(default_factory=PassTotals)
    groups_skipped: int = 0
    top_keys: list[TopKey] = field(default_factory=list)


class Passes(Protocol):
    """Runs the passes of one log, round after round. map_keys: keys found by the last first pass."""

    @property
    def map_keys(self) -> int: ...

    def first(
        self, log: LogBeingCleaned, start_offset: int, end_offset: int, found: list[Finding] | None
    ) -> int:
        """Find the latest offset of each key of start_offset <= offset < end_offset; returns the offset that it reached, beyond
        which nothing is known. found: takes damage; None makes it an exception. Raises DamagedSegment."""

    def second(self, log: LogBeingCleaned, request: SecondPassRequest) -> SecondPassResult:
        """Make new segments from the result of the first pass. Segments marked as damaged, and those that would be
        merged with them, are left alone. Raises DamagedSegment, Overflowed; then nothing is kept."""

    def survey(self, segments: Sequence[CleanerSegment]) -> list[Finding]:
        """Find all damage of these segments, and mark them."""

    def close(self) -> None:
        """Release everything except the new segments."""


MakePasses = Callable[[CleanSettings, int], Passes]


class LocalPasses:
    """In this process, with one map. dirty_bytes: of the log that will go into it."""

    def __init__(self, settings: CleanSettings, dirty_bytes: int) -> None:
        self._map = OffsetMap(settings, dirty_bytes)

    @property
    def map_keys(self) -> int:
        return self._map.size

    def first(
        self, log: LogBeingCleaned, start_offset: int, end_offset: int, found: list[Finding] | None
    ) -> int:
        OffsetMapBuilder(log.segments, self._map, log.start_offset, found).run(start_offset, end_offset)
        return self._map.latest_offset + 1

    def second(self, log: LogBeingCleaned, request: SecondPassRequest) -> SecondPassResult:
        sketch = KeySketch() if request.top_keys else None
        horizon_ms = request.legacy_horizon_ms
        key_lookup = fastest_lookup(self._map, log.segments[0].base_offset)
        segment_cleaner = SegmentCleaner(
            key_lookup, log.settings, log.records, request.upper_offset, horizon_ms, sketch
        )
        done = SecondPassResult()
        cleaned: list[CleanerSegment] = []
        try:
            for group in request.groups(log):
                cleaned += group
                done.segments += self._group(segment_cleaner, group, log, request, done)
        except BaseException:
            discard(done.segments, cleaned)
            raise
        finally:
            if isinstance(key_lookup, LatestOffsets):
                key_lookup.close()
        done.pass_totals = segment_cleaner.pass_totals
        if sketch is not None:
            done.top_keys = list(sketch.top(request.top_keys, cleaned))
        return done

    def _group(
        self,
        segment_cleaner: SegmentCleaner,
        group: list[CleanerSegment],
        log: LogBeingCleaned,
        request: SecondPassRequest,
        done: SecondPassResult,
    ) -> list[CleanerSegment]:
        """The new segment; the old ones when they are skipped or nothing would change."""
        aborted = [log.aborted_in(segment) for segment in group]
        if any(segment.is_damaged for segment in group):
            done.groups_skipped += 1
            skip_group(segment_cleaner, group, aborted)
            return group
        scratch = ScratchFile(request.directory) if request.is_written else None
        made = clean_group(segment_cleaner, group, aborted, log.settings.index_interval_bytes, scratch)
        return group if made is None else [made]

    def survey(self, segments: Sequence[CleanerSegment]) -> list[Finding]:
        return [finding for segment in segments for finding in survey(segment)]

    def close(self) -> None:
        self._map.close()


def discard(segments: Sequence[CleanerSegment], kept: Sequence[CleanerSegment]) -> None:
    """Close scratch files that are no longer needed."""
    still = {id(segment) for segment in kept}
    for segment in segments:
        if segment.log is not None and id(segment) not in still:
            segment.log.close()
