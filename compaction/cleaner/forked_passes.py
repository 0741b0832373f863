"""Share both passes of a round between two processes: `LocalPasses` with a forked helper that works after a cut of the log.

First pass. This process puts the records before the cut into its map; the helper puts those after it into a map of its own, with the same
secret. Merged, the maps equal that of a pass in one process: the greater offset of each key wins.

Second pass. Each process rewrites its side of the cut with the same map. The helper writes new bytes to a spool and notes about their
batches to another scratch file; this process appends them to the new segments and builds the indexes, so the result is the same as from one
process.

The helper needs the transactions that are open at the cut, and reads the headers before it, whose checksums this process verifies.

The result does not depend on which process does what. Anything unusual (damage, a map that becomes full, offsets out of order, an index
entry that points between batches, a helper that dies) makes this process start over alone; if only the helper's map becomes full, only its
share is discarded. Memory: the helper's map takes at most half of what the settings allow, in addition to this one's.
"""

import os
from collections.abc import Sequence
from dataclasses import replace

from kseg.change.apply.scratch_file import ScratchFile
from kseg.compaction.cleaner.first_pass import OffsetMapBuilder, start_position
from kseg.compaction.cleaner.latest_offsets import LatestOffsets, fastest_lookup
from kseg.compaction.cleaner.log_cuts import FIRST_PASS_SHARE, Cut, middle, parts, within
from kseg.compaction.cleaner.new_log import NewLog, RowNotes, WrittenPart
from kseg.compaction.cleaner.passes import (
    LocalPasses,
    LogBeingCleaned,
    SecondPassRequest,
    SecondPassResult,
    discard,
)
from kseg.compaction.cleaner.rewrite_group import GroupRewriter
from kseg.compaction.cleaner.second_pass import PassTotals, SegmentCleaner
from kseg.compaction.cleaner.segment_reader import DamagedSegment, NotJoined
from kseg.compaction.cleaner.segment_splitting import SegmentOverflow
from kseg.compaction.cleaner.segments import CleanerSegment, between
from kseg.compaction.cleaner.top_keys import TopKey, heaviest
from kseg.jobs.forked_answer import ForkedAnswer, NoAnswer
from kseg.jobs.forked_worker import can_fork, has_free_processor
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.memory import shared_memory
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.state.offset_map import SLOT_BYTES, KeyLookup, OffsetMap
from kseg.segment.values import dataclass


class _Alone(Exception):
    """This process must do the pass alone."""


_NOT_SHARED = (_Alone, NoAnswer, DamagedSegment, SegmentOverflow, NotJoined, KsegError)


@dataclass(frozen=True, slots=True)
class _Learned:
    """What the helper found after the cut. keys: in the shared memory; None when its map became full. boundary: the last offset
    before the cut."""

    keys: int | None
    boundary: int
    latest_offset: int
    is_ordered: bool
    skipped_ranges: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """The helper's output after the cut: a part for each group, starting with the group that contains the cut."""

    parts: list[WrittenPart]
    spool_bytes: int
    notes_bytes: int
    totals: PassTotals
    top_keys: list[TopKey]


def can_share() -> bool:
    """Whether a second process can be forked and has a processor to run on."""
    return can_fork() and has_free_processor()


class ForkedPasses(LocalPasses):
    """The passes of this process and of one that it forks for each pass over a large range."""

    def first(
        self, log: LogBeingCleaned, start_offset: int, end_offset: int, found: list[Finding] | None
    ) -> int:
        dirty = between(log.segments, start_offset, end_offset)
        if dirty and can_share() and not any(segment.is_damaged for segment in dirty):
            try:
                return self._first(log, dirty, start_offset, end_offset)
            except _NOT_SHARED:
                _forget_damage(dirty)
        return super().first(log, start_offset, end_offset, found)

    def _first(
        self, log: LogBeingCleaned, dirty: Sequence[CleanerSegment], start_offset: int, end_offset: int
    ) -> int:
        """Raises one of _NOT_SHARED."""
        with dirty[0].opened() as view:
            first_position = start_position(dirty[0], view, start_offset)
        cut = middle(dirty, first_position, share=FIRST_PASS_SHARE)
        if cut is None:
            raise _Alone
        builder = OffsetMapBuilder(log.segments, self._map, log.start_offset, None)
        builder.begin(start_offset, end_offset)
        settings = replace(self._settings, map_bytes=self._settings.map_bytes // 2)
        if settings.map_keys < 1:
            raise _Alone
        room = shared_memory(SLOT_BYTES * settings.map_slots).cast("q")
        parent = os.getpid()

        def learn() -> _Learned:
            offset_map = _HelperMap(settings, self._dirty_bytes, like=self._map)
            offset_map.parent = parent
            own = OffsetMapBuilder(log.segments, offset_map, log.start_offset, None)
            own.begin(start_offset, end_offset)
            boundary = own.track(cut)
            offset_map.expect_above(boundary)
            is_full = own.fill(cut, None)
            return _Learned(
                None if is_full else offset_map.pack(room),
                boundary,
                offset_map.latest_offset,
                offset_map.is_ordered,
                offset_map.skipped_ranges,
            )

        with ForkedAnswer(learn) as helper:
            if builder.fill(None, cut):
                return self._map.latest_offset + 1
            learned = helper.answer()
            is_ordered = self._map.is_ordered and learned.is_ordered
            is_ordered = is_ordered and self._map.last_offset <= learned.boundary
            # joined while the helper exits, which takes a while with a large map
            is_joined = is_ordered and learned.keys is not None and self._map.join(room, learned.keys)
        if not is_joined:
            builder.fill(cut, None)
            return self._map.latest_offset + 1
        for first_offset, last_offset in learned.skipped_ranges:
            self._map.skip(first_offset, last_offset)
        self._map.update_latest_offset(learned.latest_offset)
        for segment in dirty[cut.number :]:
            # the two processes together have verified the whole segment, unless the range begins inside it
            segment.is_whole = segment.is_whole or segment is not dirty[0] or not first_position
        return self._map.latest_offset + 1

    def second(self, log: LogBeingCleaned, request: SecondPassRequest) -> SecondPassResult:
        segments = request.segments(log)
        if can_share() and not any(segment.is_damaged for segment in segments):
            key_lookup = fastest_lookup(self._map, log.segments[0].base_offset)
            try:
                cut = request.cut(log, key_lookup)
                if cut is not None:
                    return self._shared(log, request, cut, key_lookup)
            except _NOT_SHARED:
                _forget_damage(segments)
            finally:
                if isinstance(key_lookup, LatestOffsets):
                    key_lookup.close()
        return super().second(log, request)

    def _shared(
        self, log: LogBeingCleaned, request: SecondPassRequest, cut: Cut, key_lookup: KeyLookup
    ) -> SecondPassResult:
        """Raises one of _NOT_SHARED; then nothing is kept."""
        spool = ScratchFile(request.directory) if request.is_written else None
        notes = ScratchFile(None)
        done = SecondPassResult()
        cleaned: list[CleanerSegment] = []
        try:
            later = _LaterParts(log, request, cut, key_lookup, spool, notes)
            with ForkedAnswer(later.rewrite) as helper:
                cleaner = request.cleaner(log, key_lookup)
                written: list[WrittenPart] | None = None
                for group in request.groups(log):
                    here = within(cut, len(cleaned), len(group))
                    cleaned += group
                    scratch = ScratchFile(request.directory) if request.is_written else None
                    rewriter = _rewriter(log, cleaner, group, scratch)
                    if written is None:
                        rewriter.clean(parts(group, None, here))
                    if here is not None:
                        answer = helper.answer()
                        written = answer.parts[::-1]
                        notes.filled(answer.notes_bytes)
                        if spool is not None:
                            spool.filled(answer.spool_bytes)
                    if written is not None:
                        rewriter.join(written.pop(), notes.view.cast("q"), spool)
                    made = rewriter.finish()
                    done.segments += group if made is None else [made]
        except BaseException:
            discard(done.segments, cleaned)
            raise
        finally:
            notes.close()
            if spool is not None:
                spool.close()
        done.pass_totals = cleaner.pass_totals + answer.totals
        if cleaner.sketch is not None:
            own = cleaner.sketch.named(request.top_keys, cleaned)
            done.top_keys = heaviest((own, answer.top_keys), request.top_keys)
        for segment in cleaned[cut.number :]:
            segment.is_whole = True
        return done


@dataclass(frozen=True, slots=True)
class _LaterParts:
    """The helper's share of a second pass."""

    log: LogBeingCleaned
    request: SecondPassRequest
    cut: Cut
    key_lookup: KeyLookup
    spool: ScratchFile | None
    notes: ScratchFile

    def rewrite(self) -> _Rewritten:
        """Raises DamagedSegment, Refused."""
        log, cut = self.log, self.cut
        cleaner = self.request.cleaner(log, self.key_lookup)
        notes = RowNotes(self.notes)
        written: list[WrittenPart] = []
        number = 0
        segments = self.request.segments(log)
        for group in self.request.groups(log):
            here = within(cut, number, len(group))
            aborted = [log.aborted_in(segment) for segment in group]
            if number + len(group) <= cut.number or here is not None:
                for part in parts(group, None, here):
                    cleaner.transactions.add(aborted[part.number])
                    cleaner.skip_headers(group[part.number], part.stop)
            if number + len(group) > cut.number:
                written.append(self._written(cleaner, group, aborted, here, notes))
            number += len(group)
        named = [] if cleaner.sketch is None else cleaner.sketch.named(self.request.top_keys, segments)
        spool_bytes = 0 if self.spool is None else self.spool.size_bytes
        return _Rewritten(written, spool_bytes, self.notes.size_bytes, cleaner.pass_totals, named)

    def _written(
        self,
        cleaner: SegmentCleaner,
        group: Sequence[CleanerSegment],
        aborted: Sequence[Sequence[AbortedTxn]],
        start: Cut | None,
        notes: RowNotes,
    ) -> WrittenPart:
        entries: list[AbortedTxn] = []
        log_at = 0 if self.spool is None else self.spool.size_bytes
        rows_at = notes.rows
        new = NewLog(cleaner.buffers, notes, self.spool)
        for part in parts(group, start, None):
            if not part.start:
                cleaner.transactions.add(aborted[part.number])
            cleaner.clean_into(new, group[part.number], entries, part.start, part.stop)
        rows = notes.rows - rows_at
        return WrittenPart(log_at, new.size_bytes, rows_at, rows, tuple(new.state), tuple(entries))


def _rewriter(
    log: LogBeingCleaned,
    cleaner: SegmentCleaner,
    group: Sequence[CleanerSegment],
    scratch: ScratchFile | None,
) -> GroupRewriter:
    aborted = [log.aborted_in(segment) for segment in group]
    return GroupRewriter(cleaner, group, aborted, log.settings.index_interval_bytes, scratch)


def _forget_damage(segments: Sequence[CleanerSegment]) -> None:
    """Reset what was found; the pass that reports it will find it again."""
    for segment in segments:
        segment.is_damaged = False


class _HelperMap(OffsetMap):
    """A map in a helper, which exits when its parent is gone."""

    parent = 0

    def begin_table(self) -> None:
        super().begin_table()
        if os.getppid() != self.parent:
            os._exit(1)
