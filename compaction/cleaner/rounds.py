"""Rounds of cleaning, one behind the other, until the whole range is clean (Kafka: Cleaner.doClean, again and again).

1. A round fills the map from the dirty offset on (`mapping`), as far as it takes keys.
2. It then goes over *all* segments below the offset that the map reaches to, in groups (`grouping`): each group becomes
   one new segment (`cleaning`). A group that comes out as it went in stays the segment it was.
3. The next round begins where the map ended. What the first round made is what the second one reads.

Damage: without `skips` the first one ends everything. With it, segments with damage are found first, then the groups that
they are in are left alone, and the rest is cleaned; damage in records below the dirty offset is seen only by the second
pass, which then begins again.

A segment whose offsets do not all fit its index is split first, as a broker splits it, and the cleaning begins again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kseg.compaction.cleaner.cleaning import Cleaning
from kseg.compaction.cleaner.grouping import groups
from kseg.compaction.cleaner.mapping import Mapping
from kseg.compaction.cleaner.new_log import NewLog, NotWritable
from kseg.compaction.cleaner.offset_map import OffsetMap
from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.cleaner.producers import LastRecords
from kseg.compaction.cleaner.reading import DamagedSegment, survey
from kseg.compaction.cleaner.segments import Segment, SideFiles, aborted_in, floor_at
from kseg.compaction.cleaner.splitting import Overflowed, split
from kseg.compaction.cleaner.top_keys import KeySketch, TopKey
from kseg.segment.apply.scratch import ScratchFile
from kseg.segment.findings import Finding
from kseg.segment.kernel import keymap as K
from kseg.segment.kernel import rewrite as W
from kseg.segment.sidecar.index_builder import OVERFLOW
from kseg.segment.sidecar.txn_index import AbortedTxn, encode_txn_index


@dataclass(slots=True)
class Tally:
    """What one round or several did. Bytes are of logs; records of what was read and what stays of it."""

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
    groups_skipped: int = 0


@dataclass(slots=True)
class Cleaned:
    """The log after all rounds. next_dirty_offset: what the cleaner checkpoint says then. horizons: tombstones that
    stay by when they may go. top_keys: those whose old values took most room, when that was asked for."""

    segments: list[Segment]
    next_dirty_offset: int
    tally: Tally
    findings: list[Finding] = field(default_factory=list)
    horizons: Counter[int] = field(default_factory=Counter)
    top_keys: list[TopKey] = field(default_factory=list)


class Rounds:
    """The cleaning of one log. segments: all of it, the active one last. scratch_directory: where new logs are written;
    None for a plan: then they are only counted, and where a later round has to read them they go where the system keeps
    temporary files. skips: damage is left alone. top_keys: how many keys to name, of the first round."""

    def __init__(
        self,
        segments: Sequence[Segment],
        settings: CleanSettings,
        log_start_offset: int,
        records: LastRecords,
        *,
        scratch_directory: str | None,
        skips: bool,
        top_keys: int = 0,
    ) -> None:
        self._segments = list(segments)
        self._settings = settings
        self._log_start = log_start_offset
        self._records = records
        self._directory = scratch_directory
        self._skips = skips
        self._wanted_keys = top_keys
        self._top_keys: list[TopKey] = []
        self._horizons: Counter[int] = Counter()
        self._findings: list[Finding] = []
        self._tally = Tally()

    def run(self, first_dirty_offset: int, upper_offset: int, dirty_bytes: int) -> Cleaned:
        """Raises DamagedSegment when damage is met and not skipped, Refused when nothing can be written."""
        offset_map = OffsetMap(self._settings, dirty_bytes)
        try:
            while True:
                try:
                    return self._all_rounds(offset_map, first_dirty_offset, upper_offset)
                except Overflowed as overflowed:
                    self._split(overflowed.segment)
        finally:
            offset_map.close()

    def _all_rounds(self, offset_map: OffsetMap, dirty: int, upper: int) -> Cleaned:
        self._tally = tally = Tally(bytes_before=_bytes_below(self._segments, upper))
        while dirty < upper:
            dirty = self._round(offset_map, dirty, upper)
        tally.bytes_after = _bytes_below(self._segments, upper)
        return Cleaned(self._segments, dirty, tally, self._findings, self._horizons, self._top_keys)

    def _round(self, offset_map: OffsetMap, first_dirty: int, upper: int) -> int:
        clean = [segment for segment in self._segments if segment.base_offset < first_dirty]
        retention_ms = self._settings.delete_retention_ms
        legacy_horizon_ms = clean[-1].mtime_ms - retention_ms if clean and first_dirty > 0 else 0
        found = self._findings if self._skips else None
        Mapping(self._segments, offset_map, self._log_start, found).run(first_dirty, upper)
        end = min(offset_map.latest_offset + 1, upper)  # a batch may claim to reach beyond its segment
        work = [segment for segment in self._segments if segment.base_offset < end]
        cleaning = self._second_pass(offset_map, legacy_horizon_ms, work, upper, is_last=end >= upper)
        self._count(cleaning, offset_map)
        return end

    def _second_pass(
        self,
        offset_map: OffsetMap,
        legacy_horizon_ms: int,
        work: list[Segment],
        upper: int,
        *,
        is_last: bool,
    ) -> Cleaning:
        while True:
            sketch = KeySketch() if self._wanted_keys and not self._tally.rounds else None
            cleaning = Cleaning(offset_map, self._settings, self._records, upper, legacy_horizon_ms, sketch)
            self._tally.groups_skipped = 0
            made: list[Segment] = []
            try:
                for group in groups(work, self._settings, upper):
                    made += self._group(cleaning, group, is_last=is_last)
            except BaseException as error:
                _discard(made, work)
                if not (isinstance(error, DamagedSegment) and self._skips):
                    raise
                self._survey(error, work)
            else:
                if sketch is not None:
                    self._top_keys = list(sketch.top(self._wanted_keys, work))
                _discard(work, made)
                self._segments[: len(work)] = made
                return cleaning

    def _survey(self, damaged: DamagedSegment, work: Sequence[Segment]) -> None:
        """Find all damage there is: the second pass begins again just once."""
        damaged.segment.is_damaged = True
        known = {(finding.path, finding.position) for finding in self._findings}
        found = list(damaged.findings)
        for segment in work:
            found += survey(segment)
        self._findings += [each for each in found if (each.path, each.position) not in known]

    def _group(self, cleaning: Cleaning, group: list[Segment], *, is_last: bool) -> list[Segment]:
        """The new segment; the old ones when they are left alone, or nothing would be different."""
        if any(segment.is_damaged for segment in group):
            self._tally.groups_skipped += 1
            for segment in group:
                cleaning.transactions.add(self._aborted(segment))
                cleaning.pass_over(segment)
            return group
        log = None
        if self._directory is not None or not is_last:
            log = ScratchFile(self._directory)
        interval = self._settings.index_interval_bytes
        new = NewLog(cleaning.buffers, group[0].base_offset, interval, log)
        entries: list[AbortedTxn] = []
        try:
            for segment in group:
                cleaning.transactions.add(self._aborted(segment))
                try:
                    cleaning.into(new, segment, entries)
                except NotWritable as refused:
                    raise _meaning(refused, segment) from refused
            new.indexes.finish()
            cleaning.add_counts(new)
        except BaseException:
            if log is not None:
                log.close()
            raise
        made = _made(new, group, entries, log)
        if len(group) == 1 and _is_same(new, group[0], made):
            if log is not None:
                log.close()
            return group
        if log is not None:
            log.let_go()
        return [made]

    def _aborted(self, segment: Segment) -> list[AbortedTxn]:
        behind = self._segments[floor_at(self._segments, segment.base_offset) + 1].base_offset
        return aborted_in(self._segments, self._log_start, segment.base_offset, behind)

    def _count(self, cleaning: Cleaning, offset_map: OffsetMap) -> None:
        tally, totals = self._tally, cleaning.totals
        self._horizons = cleaning.horizons
        tally.rounds += 1
        if tally.rounds == 1:
            tally.records_before = cleaning.records_read
        tally.map_keys += offset_map.size
        tally.live_keys = totals[K.J_LIVE]
        tally.superseded += totals[K.J_SUPERSEDED]
        tally.superseded_bytes += totals[K.J_SUPERSEDED_BYTES]
        tally.invalid_records += totals[K.J_INVALID]
        tally.tombstones_kept = totals[K.J_TOMBSTONES_KEPT]
        tally.tombstones_removed += totals[K.J_TOMBSTONES_REMOVED]
        tally.markers_kept = cleaning.markers_kept
        tally.markers_removed += cleaning.markers_removed
        tally.markers_stamped += cleaning.markers_stamped
        tally.records_after = cleaning.counts[W.S_RECORDS]
        tally.batches_kept = cleaning.counts[W.S_TAKEN]
        tally.batches_rebuilt += cleaning.counts[W.S_REBUILT]
        tally.batches_emptied += cleaning.counts[W.S_EMPTIED]
        tally.batches_removed += cleaning.counts[W.S_DROPPED]
        tally.legacy_emptied += cleaning.counts[W.S_EMPTIED_LEGACY]

    # --- segments whose offsets do not fit

    def _split(self, segment: Segment) -> None:
        at = self._segments.index(segment)
        parts = split(segment, self._settings, self._directory)
        bases = ", ".join(str(part.base_offset) for part in parts)
        message = f"{segment.name} is split into segments at the offsets {bases}"
        self._findings.append(Finding("offset-overflow", segment.path, message))
        self._segments[at : at + 1] = parts


def _bytes_below(segments: Sequence[Segment], offset: int) -> int:
    return sum(segment.size_bytes for segment in segments if segment.base_offset < offset)


def _discard(segments: Sequence[Segment], kept: Sequence[Segment]) -> None:
    """Let go of scratch files that nobody will read."""
    still = {id(segment) for segment in kept}
    for segment in segments:
        if segment.log is not None and id(segment) not in still:
            segment.log.close()


def _meaning(refused: NotWritable, segment: Segment) -> Exception:
    if refused.refusal.kafka_exception == OVERFLOW:
        return Overflowed(segment)
    finding = Finding("offset-not-monotonic", segment.path, refused.refusal.sentence)
    return DamagedSegment(segment, (finding,))


def _made(
    new: NewLog, group: Sequence[Segment], entries: Sequence[AbortedTxn], log: ScratchFile | None
) -> Segment:
    first, last = group[0], group[-1]
    indexes = new.indexes
    files = SideFiles(
        indexes.offset_index.to_bytes(), indexes.time_index.to_bytes(), encode_txn_index(entries)
    )
    largest = indexes.max_timestamp_ms
    return Segment(
        base_offset=first.base_offset,
        path=first.path if log is None else log.path,
        size_bytes=new.size_bytes,
        mtime_ms=last.mtime_ms,
        index_bytes=len(files.offset_index),
        time_index_bytes=len(files.time_index),
        largest_timestamp_ms=largest if largest >= 0 else last.mtime_ms,
        origins=tuple(origin for segment in group for origin in segment.origins),
        aborted=tuple(entries),
        log=log,
        side_files=files,
        is_whole=True,
        joins_previous=first.joins_previous,
        like=last.like,
    )


def _is_same(new: NewLog, old: Segment, made: Segment) -> bool:
    """Whether the new segment is the old one, byte for byte."""
    changes = (W.S_REBUILT, W.S_EMPTIED, W.S_DROPPED)
    if new.size_bytes != old.size_bytes or any(new.state[count] for count in changes):
        return False
    return made.side_files == old.stored_side_files()
