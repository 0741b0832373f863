"""Run both passes of a round in this process: build the offset map, then rewrite group after group with it.

Another implementation of `Passes` may run them elsewhere: `rounds` requests a first pass, then a second one over all segments
below the offset that the first one reached.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Protocol

from kseg.change.apply.scratch_file import ScratchFile
from kseg.compaction.cleaner.active_producers import LastRecords
from kseg.compaction.cleaner.first_pass import OffsetMapBuilder
from kseg.compaction.cleaner.latest_offsets import LatestOffsets, fastest_lookup
from kseg.compaction.cleaner.log_cuts import Cut, middle, parts, within
from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.cleaner.rewrite_group import GroupRewriter, skip_group
from kseg.compaction.cleaner.second_pass import PassTotals, SegmentCleaner
from kseg.compaction.cleaner.segment_groups import groups
from kseg.compaction.cleaner.segment_reader import NotJoined, survey
from kseg.compaction.cleaner.segments import CleanerSegment, aborted_from, floor_at
from kseg.compaction.cleaner.top_keys import KeySketch, TopKey, heaviest
from kseg.segment.findings import Finding
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.state.offset_map import KeyLookup, OffsetMap
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class LogBeingCleaned:
    """A log between two passes. segments: all of them. with_aborted: those with aborted transactions. records: the last ones of its
    producers."""

    segments: Sequence[CleanerSegment]
    with_aborted: Sequence[CleanerSegment]
    start_offset: int
    records: LastRecords
    settings: CleanSettings

    def aborted_in(self, segment: CleanerSegment) -> list[AbortedTxn]:
        """Aborted transactions of a segment that a second pass knows before it reads the segment."""
        following = self.segments[floor_at(self.segments, segment.base_offset) + 1].base_offset
        first = bisect_left(self.with_aborted, segment.base_offset, key=lambda each: each.base_offset)
        later = (self.with_aborted[at] for at in range(first, len(self.with_aborted)))
        return aborted_from(later, self.start_offset, following)


@dataclass(frozen=True, slots=True)
class SecondPassRequest:
    """Parameters of a second pass.

    end_offset: segments that begin below it are cleaned; upper_offset: of the whole range. directory: where new logs are written,
    None for the system's temporary directory; is_written: False if counting is enough. top_keys: how many to name.
    """

    end_offset: int
    upper_offset: int
    legacy_horizon_ms: int
    directory: str | None
    is_written: bool
    top_keys: int

    def segments(self, log: LogBeingCleaned) -> list[CleanerSegment]:
        return [segment for segment in log.segments if segment.base_offset < self.end_offset]

    def groups(self, log: LogBeingCleaned) -> list[list[CleanerSegment]]:
        """The segments to clean, in groups; each becomes one segment."""
        return groups(self.segments(log), log.settings, self.upper_offset)

    def cut(self, log: LogBeingCleaned, key_lookup: KeyLookup) -> Cut | None:
        """Where two processes divide the segments to clean."""
        kept = key_lookup if isinstance(key_lookup, LatestOffsets) else None
        return middle(self.segments(log), kept=kept)

    def cleaner(self, log: LogBeingCleaned, key_lookup: KeyLookup) -> SegmentCleaner:
        """The object that rewrites the segments, or some of them, in their order."""
        return SegmentCleaner(
            key_lookup,
            log.settings,
            log.records,
            self.upper_offset,
            self.legacy_horizon_ms,
            self.new_sketch(),
        )

    def new_sketch(self) -> KeySketch | None:
        return KeySketch() if self.top_keys else None


@dataclass(slots=True)
class SecondPassResult:
    """Output of a second pass: the segments that replace those to clean. groups_skipped: left unchanged because of damage."""

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
        """Find the latest offset of each key of start_offset <= offset < end_offset; returns the offset that the map covers up to. found:
        collects damage; None makes it an exception. Raises DamagedSegment."""

    def second(self, log: LogBeingCleaned, request: SecondPassRequest) -> SecondPassResult:
        """Create new segments from the result of the first pass. Segments marked as damaged, and those that would be merged with them, are
        left unchanged. Raises DamagedSegment, Overflowed; then nothing is kept."""

    def survey(self, segments: Sequence[CleanerSegment]) -> list[Finding]:
        """Find all damage of these segments, and mark them."""

    def close(self) -> None:
        """Release everything except the new segments."""


MakePasses = Callable[[CleanSettings, int], Passes]


class LocalPasses:
    """The passes in this process, with one map. dirty_bytes: of the log that will go into it."""

    def __init__(self, settings: CleanSettings, dirty_bytes: int) -> None:
        self._settings = settings
        self._dirty_bytes = dirty_bytes
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
        # one sketch for each side of the cut, as when two processes share the pass, so that both name the same keys
        key_lookup = fastest_lookup(self._map, log.segments[0].base_offset)
        cut = request.cut(log, key_lookup) if request.top_keys else None
        try:
            try:
                return self._second(log, request, key_lookup, cut)
            except NotJoined:
                return self._second(log, request, key_lookup, None)
        finally:
            if isinstance(key_lookup, LatestOffsets):
                key_lookup.close()

    def _second(
        self, log: LogBeingCleaned, request: SecondPassRequest, key_lookup: KeyLookup, cut: Cut | None
    ) -> SecondPassResult:
        cleaner = request.cleaner(log, key_lookup)
        sketches = [cleaner.sketch]
        done = SecondPassResult()
        cleaned: list[CleanerSegment] = []
        try:
            for group in request.groups(log):
                here = within(cut, len(cleaned), len(group))
                cleaned += group
                aborted = [log.aborted_in(segment) for segment in group]
                if any(segment.is_damaged for segment in group):
                    done.groups_skipped += 1
                    skip_group(cleaner, group, aborted)
                    done.segments += group
                    continue
                scratch = ScratchFile(request.directory) if request.is_written else None
                interval_bytes = log.settings.index_interval_bytes
                rewriter = GroupRewriter(cleaner, group, aborted, interval_bytes, scratch)
                rewriter.clean(parts(group, None, here))
                if here is not None:
                    sketches.append(request.new_sketch())
                    cleaner.sketch = sketches[-1]
                    rewriter.clean(parts(group, here, None))
                made = rewriter.finish()
                done.segments += group if made is None else [made]
        except BaseException:
            discard(done.segments, cleaned)
            raise
        done.pass_totals = cleaner.pass_totals
        named = [sketch.named(request.top_keys, cleaned) for sketch in sketches if sketch is not None]
        done.top_keys = heaviest(named, request.top_keys)
        return done

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
