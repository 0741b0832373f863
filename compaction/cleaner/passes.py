"""The two passes of a round, here: the keys of the range into one map, then group after group by what the map says.

Somebody else may do them elsewhere (`Passes`): `rounds` asks for a first pass, then for a second one over all segments
below where the first one came to.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Protocol

from kseg.change.apply.scratch_file import ScratchFile
from kseg.compaction.cleaner.active_producers import LastRecords
from kseg.compaction.cleaner.cleaner_totals import Sums
from kseg.compaction.cleaner.first_pass import Mapping
from kseg.compaction.cleaner.latest_offsets import LatestOffsets, quicker
from kseg.compaction.cleaner.offset_map import OffsetMap
from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.cleaner.rewrite_group import clean_group, pass_over
from kseg.compaction.cleaner.second_pass import Cleaning
from kseg.compaction.cleaner.segment_groups import groups
from kseg.compaction.cleaner.segment_reader import survey
from kseg.compaction.cleaner.segments import CleanerSegment, aborted_in, floor_at
from kseg.compaction.cleaner.top_keys import KeySketch, TopKey
from kseg.segment.findings import Finding
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class LogAtWork:
    """A log between two passes. segments: all of it. records: of its producers."""

    segments: Sequence[CleanerSegment]
    start_offset: int
    records: LastRecords
    settings: CleanSettings

    def aborted_in(self, segment: CleanerSegment) -> list[AbortedTxn]:
        """What a second pass knows of a segment that is not the active one before it reads it."""
        behind = self.segments[floor_at(self.segments, segment.base_offset) + 1].base_offset
        return aborted_in(self.segments, self.start_offset, segment.base_offset, behind)


@dataclass(frozen=True, slots=True)
class SecondPass:
    """What a second pass is to do. end_offset: segments that begin below it are cleaned; upper_offset: of the whole
    range. directory: where new logs are written, None where the system keeps temporary files; is_written: False when
    it is enough to count. top_keys: how many to name."""

    end_offset: int
    upper_offset: int
    legacy_horizon_ms: int
    directory: str | None
    is_written: bool
    top_keys: int

    def groups(self, log: LogAtWork) -> list[list[CleanerSegment]]:
        """The segments that are cleaned, each group becoming one."""
        work = [segment for segment in log.segments if segment.base_offset < self.end_offset]
        return groups(work, log.settings, self.upper_offset)


@dataclass(slots=True)
class Second:
    """What a second pass has made: the segments in the place of those that it was to clean. groups_skipped: left alone
    because of damage."""

    segments: list[CleanerSegment] = field(default_factory=list)
    sums: Sums = field(default_factory=Sums)
    groups_skipped: int = 0
    top_keys: list[TopKey] = field(default_factory=list)


class Passes(Protocol):
    """Who does the passes of one log, round after round. map_keys: that the last first pass has found."""

    @property
    def map_keys(self) -> int: ...

    def first(self, log: LogAtWork, start_offset: int, end_offset: int, found: list[Finding] | None) -> int:
        """Learn the latest offset of each key of start_offset <= offset < end_offset; the offset that it came to, beyond
        which nothing is known. found: takes damage; None makes it an exception. Raises DamagedSegment."""

    def second(self, log: LogAtWork, work: SecondPass) -> Second:
        """Make new segments by what the first pass has learned. Segments marked as damaged, and those that would be
        joined with them, are left alone. Raises DamagedSegment, Overflowed; then nothing is kept."""

    def survey(self, segments: Sequence[CleanerSegment]) -> list[Finding]:
        """All damage of these segments, which are marked."""

    def close(self) -> None:
        """Let go of everything but the segments that were made."""


MakePasses = Callable[[CleanSettings, int], Passes]


class LocalPasses:
    """In this process, with one map. dirty_bytes: of the log that will go into it."""

    def __init__(self, settings: CleanSettings, dirty_bytes: int) -> None:
        self._map = OffsetMap(settings, dirty_bytes)

    @property
    def map_keys(self) -> int:
        return self._map.size

    def first(self, log: LogAtWork, start_offset: int, end_offset: int, found: list[Finding] | None) -> int:
        Mapping(log.segments, self._map, log.start_offset, found).run(start_offset, end_offset)
        return self._map.latest_offset + 1

    def second(self, log: LogAtWork, work: SecondPass) -> Second:
        sketch = KeySketch() if work.top_keys else None
        horizon_ms = work.legacy_horizon_ms
        judge = quicker(self._map, log.segments[0].base_offset)
        cleaning = Cleaning(judge, log.settings, log.records, work.upper_offset, horizon_ms, sketch)
        done = Second()
        cleaned: list[CleanerSegment] = []
        try:
            for group in work.groups(log):
                cleaned += group
                done.segments += self._group(cleaning, group, log, work, done)
        except BaseException:
            discard(done.segments, cleaned)
            raise
        finally:
            if isinstance(judge, LatestOffsets):
                judge.close()
        done.sums = cleaning.sums
        if sketch is not None:
            done.top_keys = list(sketch.top(work.top_keys, cleaned))
        return done

    def _group(
        self, cleaning: Cleaning, group: list[CleanerSegment], log: LogAtWork, work: SecondPass, done: Second
    ) -> list[CleanerSegment]:
        """The new segment; the old ones when they are left alone, or nothing would be different."""
        aborted = [log.aborted_in(segment) for segment in group]
        if any(segment.is_damaged for segment in group):
            done.groups_skipped += 1
            pass_over(cleaning, group, aborted)
            return group
        scratch = ScratchFile(work.directory) if work.is_written else None
        made = clean_group(cleaning, group, aborted, log.settings.index_interval_bytes, scratch)
        return group if made is None else [made]

    def survey(self, segments: Sequence[CleanerSegment]) -> list[Finding]:
        return [finding for segment in segments for finding in survey(segment)]

    def close(self) -> None:
        self._map.close()


def discard(segments: Sequence[CleanerSegment], kept: Sequence[CleanerSegment]) -> None:
    """Let go of scratch files that nobody will read."""
    still = {id(segment) for segment in kept}
    for segment in segments:
        if segment.log is not None and id(segment) not in still:
            segment.log.close()
