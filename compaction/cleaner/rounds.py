"""Run cleaning rounds until the whole range is clean (Kafka: Cleaner.doClean, repeatedly).

1. A round fills the map from the dirty offset on (`first_pass`), until it is full.
2. It then rewrites *all* segments below the offset that the map reaches, in groups (`segment_groups`): each group becomes one new segment
   (`second_pass`). A group that would not change is kept.
3. The next round begins where the map ended, and reads the segments that the previous round made.

Damage: without `skip_damaged` the first damage ends the cleaning. With it, damaged segments are found first, the groups that contain them
are left unchanged, and the rest is cleaned. The first of them ends what counts as clean: old values after it are left for a later
cleaning, after the damage is repaired. Damage in records below the dirty offset is only found by the second pass, which then starts over.

A segment whose offsets do not all fit its index is split first, as a broker splits it, and the cleaning begins again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import field

from kseg.compaction.cleaner.active_producers import LastRecords
from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.cleaner.passes import (
    LocalPasses,
    LogBeingCleaned,
    MakePasses,
    Passes,
    SecondPassRequest,
    SecondPassResult,
    discard,
)
from kseg.compaction.cleaner.segment_reader import DamagedSegment
from kseg.compaction.cleaner.segment_splitting import SegmentOverflow, split
from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.compaction.cleaner.top_keys import TopKey
from kseg.segment.findings import Finding
from kseg.segment.kernel import state_fields as S
from kseg.segment.values import dataclass


@dataclass(slots=True)
class CleanerTally:
    """Counters of one or more rounds. Bytes are of logs; records are those read and those retained."""

    rounds: int = 0
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    live_keys: int = 0
    map_keys: int = 0
    superseded: int = 0
    superseded_bytes: int = 0
    invalid_records: int = 0
    aborted_records: int = 0
    tombstones_kept: int = 0
    tombstones_removed: int = 0
    markers_kept: int = 0
    markers_removed: int = 0
    markers_stamped: int = 0
    batches_kept: int = 0
    batches_rebuilt: int = 0
    batches_emptied: int = 0
    batches_removed: int = 0
    legacy_emptied: int = 0
    negative_rebuilt: int = 0
    groups_skipped: int = 0

    @property
    def tombstones_expired(self) -> int:
        """Expired tombstones that nothing superseded: the removed records that no other counter includes."""
        others = self.superseded + self.invalid_records + self.aborted_records + self.markers_removed
        return self.records_before - self.records_after - others


@dataclass(slots=True)
class Cleaned:
    """The log after all rounds. next_dirty_offset: the new entry of the cleaner checkpoint. horizons: retained tombstones by
    delete horizon. top_keys: those whose old values took most space, if requested."""

    segments: list[CleanerSegment]
    next_dirty_offset: int
    tally: CleanerTally
    findings: list[Finding] = field(default_factory=list)
    horizons: Counter[int] = field(default_factory=Counter)
    top_keys: list[TopKey] = field(default_factory=list)


class Rounds:
    """The cleaning of one log.

    segments: all of them, the active one last. scratch_directory: where new logs are written. None for a plan: then they are only
    counted, and written to the system's temporary directory only if a later round has to read them. skip_damaged: leave damaged
    segments unchanged. top_keys: how many keys to name, of the first round. passes: runs the passes.
    """

    def __init__(
        self,
        segments: Sequence[CleanerSegment],
        settings: CleanSettings,
        log_start_offset: int,
        records: LastRecords,
        *,
        scratch_directory: str | None,
        skip_damaged: bool,
        top_keys: int = 0,
        passes: MakePasses = LocalPasses,
    ) -> None:
        self._passes = passes
        self._segments = list(segments)
        self._settings = settings
        self._log_start = log_start_offset
        self._records = records
        self._directory = scratch_directory
        self._skip_damaged = skip_damaged
        self._requested_keys = top_keys
        self._top_keys: list[TopKey] = []
        self._horizons: Counter[int] = Counter()
        self._findings: list[Finding] = []
        self._tally = CleanerTally()
        self._first_skipped: int | None = None

    def run(self, first_dirty_offset: int, upper_offset: int, dirty_bytes: int) -> Cleaned:
        """Run all rounds. Raises DamagedSegment when damage is met and not skipped, Refused when nothing can be written."""
        passes = self._passes(self._settings, dirty_bytes)
        try:
            while True:
                try:
                    return self._all_rounds(passes, first_dirty_offset, upper_offset)
                except SegmentOverflow as overflowed:
                    self._split(overflowed.segment)
        finally:
            passes.close()

    def _all_rounds(self, passes: Passes, dirty: int, upper: int) -> Cleaned:
        self._tally = tally = CleanerTally(bytes_before=_bytes_below(self._segments, upper))
        end, self._first_skipped = dirty, None
        while end < upper:
            end = self._round(passes, end, upper)
        tally.bytes_after = _bytes_below(self._segments, upper)
        clean = end if self._first_skipped is None else max(dirty, min(end, self._first_skipped))
        return Cleaned(self._segments, clean, tally, self._findings, self._horizons, self._top_keys)

    def _round(self, passes: Passes, first_dirty: int, upper: int) -> int:
        clean = [segment for segment in self._segments if segment.base_offset < first_dirty]
        retention_ms = self._settings.delete_retention_ms
        found = self._findings if self._skip_damaged else None
        with_aborted = [segment for segment in self._segments if segment.aborted]
        log = LogBeingCleaned(self._segments, with_aborted, self._log_start, self._records, self._settings)
        end = passes.first(log, first_dirty, upper, found)
        end = min(end, upper)  # a batch header may claim to extend beyond its segment
        is_first = not self._tally.rounds
        request = SecondPassRequest(
            end_offset=end,
            upper_offset=upper,
            legacy_horizon_ms=clean[-1].mtime_ms - retention_ms if clean and first_dirty > 0 else 0,
            directory=self._directory,
            is_written=self._directory is not None or end < upper,
            top_keys=self._requested_keys if is_first else 0,
        )
        done = self._second_pass(passes, log, request)
        if is_first:
            self._top_keys = done.top_keys
        self._count(done, passes.map_keys)
        return end

    def _second_pass(
        self, passes: Passes, log: LogBeingCleaned, request: SecondPassRequest
    ) -> SecondPassResult:
        old = [segment for segment in self._segments if segment.base_offset < request.end_offset]
        while True:
            try:
                done = passes.second(log, request)
                break
            except DamagedSegment as damaged:
                if not self._skip_damaged:
                    raise
                self._survey(passes, damaged, old)
        self._note_skipped(request.groups(log))
        discard(old, done.segments)
        self._segments[: len(old)] = done.segments
        return done

    def _note_skipped(self, groups: Sequence[Sequence[CleanerSegment]]) -> None:
        for group in groups:
            if any(segment.is_damaged for segment in group):
                base = group[0].base_offset
                self._first_skipped = base if self._first_skipped is None else min(base, self._first_skipped)

    def _survey(self, passes: Passes, damaged: DamagedSegment, segments: Sequence[CleanerSegment]) -> None:
        """Find all damage, so that the second pass restarts only once."""
        damaged.segment.is_damaged = True
        known = {(finding.path, finding.position) for finding in self._findings}
        for finding in (*damaged.findings, *passes.survey(segments)):
            if (finding.path, finding.position) not in known:
                known.add((finding.path, finding.position))
                self._findings.append(finding)

    def _count(self, done: SecondPassResult, map_keys: int) -> None:
        tally, pass_totals = self._tally, done.pass_totals
        totals, counts = pass_totals.totals, pass_totals.counts
        self._horizons = pass_totals.horizons
        tally.rounds += 1
        # A later round reads the output of the previous one, and segments that no round has read.
        tally.records_before += pass_totals.records_read - tally.records_after
        tally.map_keys += map_keys
        tally.live_keys = totals[S.TOTAL_LIVE]
        tally.superseded += totals[S.TOTAL_SUPERSEDED]
        tally.superseded_bytes += totals[S.TOTAL_SUPERSEDED_BYTES]
        tally.invalid_records += totals[S.TOTAL_INVALID]
        tally.aborted_records += pass_totals.aborted_records
        tally.tombstones_kept = totals[S.TOTAL_TOMBSTONES_KEPT]
        tally.tombstones_removed += totals[S.TOTAL_TOMBSTONES_REMOVED]
        tally.markers_kept = pass_totals.markers_kept
        tally.markers_removed += pass_totals.markers_removed
        tally.markers_stamped += pass_totals.markers_stamped
        tally.records_after = counts[S.REWRITE_RECORDS]
        tally.batches_kept = counts[S.REWRITE_TAKEN]
        tally.batches_rebuilt += counts[S.REWRITE_REBUILT]
        tally.batches_emptied += counts[S.REWRITE_EMPTIED]
        tally.batches_removed += counts[S.REWRITE_DROPPED]
        tally.legacy_emptied += counts[S.REWRITE_EMPTIED_LEGACY]
        tally.negative_rebuilt += counts[S.REWRITE_NEGATIVE]
        tally.groups_skipped = done.groups_skipped

    # --- segments whose offsets do not fit

    def _split(self, segment: CleanerSegment) -> None:
        at = self._segments.index(segment)
        parts = split(segment, self._settings, self._directory)
        if not _are_ascending(parts):
            discard(parts, ())
            self._report_unsplittable(segment)
            return
        bases = ", ".join(str(part.base_offset) for part in parts)
        message = f"{segment.name} is split into segments at offsets {bases}"
        self._findings.append(Finding("offset-overflow", segment.path, message))
        self._segments[at : at + 1] = parts

    def _report_unsplittable(self, segment: CleanerSegment) -> None:
        """Report an overflowing segment for which Kafka's LogSegment.hasOverflow is false, so that the split fails. Raises DamagedSegment
        unless damage is skipped."""
        message = "it contains batches below its first offset, so it can be neither cleaned nor split"
        finding = Finding("offset-not-monotonic", segment.path, message)
        if not self._skip_damaged:
            raise DamagedSegment(segment, (finding,))
        segment.is_damaged = True
        self._findings.append(finding)


def _are_ascending(parts: Sequence[CleanerSegment]) -> bool:
    bases = [part.base_offset for part in parts]
    return len(parts) > 1 and bases == sorted(set(bases))


def _bytes_below(segments: Sequence[CleanerSegment], offset: int) -> int:
    return sum(segment.size_bytes for segment in segments if segment.base_offset < offset)
