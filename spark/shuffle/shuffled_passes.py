"""The two passes of a compaction on a cluster: `Passes` (called by `Rounds`) in which a shuffle replaces the map.

1. Trace (one task for each segment): checksums, and the effect of the segment on transactions (`transaction_summary`). By replaying the
   traces the driver computes the transaction state at the beginning of each segment and each group.
2. Keys (one task for each segment, `keys`) ─ by hash ─► verdicts (one for each part of the hash space, `fold`)
   ─ by group ─► a group's superseded offsets. The counts and problems of the tasks return to the driver here.
3. Rewriting (one task for each group, `rewriting`), in several jobs, since the new indexes come back to the driver. The
   shuffle output of the second step is read from the executors' disks and not computed again, unless an executor
   is lost.

The first pass always reaches the end of the range, since no map can fill up. So the result is that of a local run whose map has room
for all keys.

Logs in which an offset does not identify one record, and segments that must be split first, are left to `LocalPasses`.
"""

import os
import pickle
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kseg.change.apply.scratch_file import ScratchFile
from kseg.compaction.cleaner.cleaned_transactions import Transactions
from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.cleaner.passes import LocalPasses, LogBeingCleaned, SecondPassRequest, SecondPassResult
from kseg.compaction.cleaner.segment_groups import groups
from kseg.compaction.cleaner.segment_reader import DamagedSegment, survey
from kseg.compaction.cleaner.segment_splitting import SegmentOverflow
from kseg.compaction.cleaner.segments import CleanerSegment, aborted_in, between
from kseg.compaction.cleaner.top_keys import heaviest
from kseg.segment.findings import Finding
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.values import dataclass
from kseg.spark.scheduling import MAX_SHARES
from kseg.spark.shuffle.driver import Jobs
from kseg.spark.shuffle.exchange_dir import ExchangeDir
from kseg.spark.shuffle.rewriting import Rewritten
from kseg.spark.shuffle.task_messages import (
    PART_BYTES_PER_ROW,
    GroupWork,
    Note,
    PassWork,
    SegmentWork,
    ShufflePlan,
    new_secret,
)
from kseg.spark.shuffle.task_steps import Keys, Rewriting, Traced, Verdicts, first_damage, traced, values_of
from kseg.spark.shuffle.transaction_summary import replay

if TYPE_CHECKING:
    from pyspark.core.rdd import RDD


JOB_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class _Learned:
    """The results of the second step, which stay on the cluster, by group."""

    plan: ShufflePlan
    groups: Sequence[GroupWork]
    verdicts: "RDD[tuple[int, bytes]]"


class ShuffledPasses:
    """Passes on the cluster of `jobs`. exchange_dir: for new logs, None if nothing is written."""

    def __init__(
        self, jobs: Jobs, exchange_dir: ExchangeDir | None, settings: CleanSettings, dirty_bytes: int
    ) -> None:
        self._jobs = jobs
        self._context = jobs.context
        self._exchange_dir = exchange_dir
        self._settings = settings
        self._dirty_bytes = dirty_bytes
        self._local: LocalPasses | None = None
        self._learned: _Learned | None = None
        self._traced: list[Traced] = []
        self._keys = 0

    @property
    def map_keys(self) -> int:
        return self._keys if self._local is None else self._local.map_keys

    def close(self) -> None:
        if self._local is not None:
            self._local.close()

    # --- the first pass

    def first(
        self, log: LogBeingCleaned, start_offset: int, end_offset: int, found: list[Finding] | None
    ) -> int:
        if self._local is not None:
            return self._local.first(log, start_offset, end_offset, found)
        work = [segment for segment in log.segments if segment.base_offset < end_offset]
        self._traced = self._trace(log, work, start_offset)
        for segment, seen in zip(work, self._traced, strict=True):
            segment.is_whole = segment.is_whole or seen.is_whole
        works = self._segment_works(log, len(work), start_offset, end_offset, finds=found is not None)
        dirty = [work for work in works if start_offset < work.bound]
        if found is None:
            self._refuse_damage(log, dirty)
        learned = self._shuffle(log, works, end_offset)
        notes, self._keys = self._notes(learned)
        if any(note.is_irregular for note in notes):
            return self._here().first(log, start_offset, end_offset, found)
        for note in notes:
            if found is None:
                raise DamagedSegment(log.segments[note.number], note.findings)
            log.segments[note.number].is_damaged = True
            found.extend(note.findings)
        self._learned = learned
        return end_offset

    def _here(self) -> LocalPasses:
        """Switch to passes in this process."""
        self._local = LocalPasses(self._settings, self._dirty_bytes)
        return self._local

    def _trace(self, log: LogBeingCleaned, work: Sequence[CleanerSegment], start: int) -> list[Traced]:
        every = sorted((entry for segment in log.segments for entry in segment.aborted), key=_first_offset)
        items = []
        for number, segment in enumerate(work):
            behind = log.segments[number + 1].base_offset
            at = bisect_left(every, segment.base_offset, key=_first_offset)
            begins = every[at : bisect_left(every, behind, key=_first_offset)]
            from_offset = start if segment.base_offset < start < behind else None
            items.append((segment, begins, from_offset))
        return self._jobs.over(items, traced)

    def _segment_works(
        self, log: LogBeingCleaned, count: int, start: int, end: int, *, finds: bool
    ) -> list[SegmentWork]:
        state = Transactions()
        state.add(aborted_in(log.segments, log.start_offset, start, end))
        first_dirty = between(log.segments, start, end)[0].base_offset
        works = []
        for number in range(count):
            segment, bound = log.segments[number], log.segments[number + 1].base_offset
            seen, here = self._traced[number], state.copy_below(bound)
            works.append(SegmentWork(number, segment, bound, start, seen.records, here, finds))
            if segment.base_offset >= first_dirty:
                replay(seen.events if seen.of_dirty is None else seen.of_dirty, state)
        return works

    def _refuse_damage(self, log: LogBeingCleaned, dirty: Sequence[SegmentWork]) -> None:
        """Raise for the first damage that a pass over the dirty range would meet."""
        hurt = [at for at, work in enumerate(dirty) if not self._traced[work.number].is_whole]
        if hurt:
            for work, note in zip(dirty, self._jobs.over(dirty[: hurt[0] + 1], first_damage), strict=False):
                if note is not None and note.findings:
                    raise DamagedSegment(log.segments[work.number], note.findings)

    # --- the shuffle

    def _shuffle(self, log: LogBeingCleaned, works: Sequence[SegmentWork], end: int) -> _Learned:
        grouped = groups([work.segment for work in works], self._settings, end)
        # a header may declare any number of records, but no more fit than there are offsets
        rows = sum(min(work.records, work.bound - work.segment.base_offset) for work in works)
        wanted = -(-rows * PART_BYTES_PER_ROW // self._settings.map_bytes)
        parts = max(self._context.defaultParallelism, min(wanted, MAX_SHARES))
        bases = tuple(group[0].base_offset for group in grouped)
        plan = ShufflePlan(new_secret(), parts, bases, self._settings, os.getcwd())
        keys = self._context.parallelize(works, len(works)).flatMap(Keys(plan))
        verdicts = keys.partitionBy(parts, int).mapPartitions(Verdicts(plan))
        by_group = verdicts.partitionBy(len(grouped) + 1, int)
        return _Learned(plan, self._group_works(log, grouped), by_group)

    def _group_works(
        self, log: LogBeingCleaned, grouped: Sequence[Sequence[CleanerSegment]]
    ) -> list[GroupWork]:
        state, number = Transactions(), 0
        works: list[GroupWork] = []
        for group in grouped:
            aborted = [log.aborted_in(segment) for segment in group]
            bound = log.segments[number + len(group)].base_offset
            begins = state.copy_below(bound)
            works.append(GroupWork(len(works), number, tuple(group), bound, aborted, begins))
            for known in aborted:
                state.add(known)
                replay(self._traced[number].events, state)
                number += 1
        return works

    def _notes(self, learned: _Learned) -> tuple[list[Note], int]:
        """The notes of the tasks of the second step in segment order, and the number of keys."""
        with self._jobs.running():
            values = self._context.runJob(learned.verdicts, values_of, [learned.plan.notes_place])
        said = [pickle.loads(value) for value in values]
        notes = sorted((each for each in said if isinstance(each, Note)), key=lambda note: note.number)
        return notes, sum(each for each in said if isinstance(each, int))

    # --- the second pass

    def second(self, log: LogBeingCleaned, request: SecondPassRequest) -> SecondPassResult:
        if self._local is not None:
            return self._local.second(log, request)
        learned = self._learned
        assert learned is not None
        due = [
            group
            for group in learned.groups
            if not any(log.segments[at].is_damaged for at in _numbers_of(group))
        ]
        done = {each.number: each for each in self._rewrite(log, request, learned, due)}
        self._raise_first(log, done.values())
        second = SecondPassResult(groups_skipped=len(learned.groups) - len(due))
        for group in learned.groups:
            each = done.get(group.number)
            if each is not None:
                second.pass_totals += each.pass_totals
            old = [log.segments[at] for at in _numbers_of(group)]
            second.segments += old if each is None or each.made is None else [_taken(each, each.made)]
        second.top_keys = heaviest((each.top_keys for each in done.values()), request.top_keys)
        return second

    def _rewrite(
        self, log: LogBeingCleaned, request: SecondPassRequest, learned: _Learned, due: Sequence[GroupWork]
    ) -> list[Rewritten]:
        exchange_dir = self._exchange_dir if request.is_written else None
        passed = PassWork(
            log.records,
            request.upper_offset,
            request.legacy_horizon_ms,
            request.top_keys,
            None if exchange_dir is None else exchange_dir.path,
        )
        packed = self._context.broadcast({group.number: pickle.dumps(group) for group in due})
        try:
            with self._jobs.running():
                rewriting = learned.verdicts.mapPartitionsWithIndex(Rewriting(learned.plan, passed, packed))
                done: list[Rewritten] = []
                for job in _jobs_of(due):
                    done += self._context.runJob(rewriting, list, [group.number for group in job])
                return done
        finally:
            packed.destroy()

    def _raise_first(self, log: LogBeingCleaned, done: Iterable[Rewritten]) -> None:
        """Raise for the first damage that a pass over the groups in order would meet, or for a task that could not read or write.

        Nothing that was written is kept then.
        """
        ended = [each for each in done if each.is_ended]
        if not ended:
            return
        for each in done:
            if each.made is not None:
                _close(_taken(each, each.made))
        first = min(ended, key=lambda each: each.number)
        if first.error is not None:
            raise first.error
        if first.damaged is not None:
            raise DamagedSegment(log.segments[first.damaged], first.findings)
        assert first.overflowed is not None
        self._here()
        raise SegmentOverflow(log.segments[first.overflowed])

    def survey(self, segments: Sequence[CleanerSegment]) -> list[Finding]:
        if self._local is not None:
            return self._local.survey(segments)
        found: list[Finding] = []
        for segment, findings in zip(segments, self._jobs.over(segments, survey), strict=True):
            segment.is_damaged = segment.is_damaged or bool(findings)
            found += findings
        return found


def _first_offset(entry: AbortedTxn) -> int:
    return entry.first_offset


def _jobs_of(groups: Sequence[GroupWork]) -> Iterator[list[GroupWork]]:
    """The groups of each job. Jobs are limited because their new indexes return to the driver (spark.driver.maxResultSize)."""
    job: list[GroupWork] = []
    room = JOB_BYTES
    for group in groups:
        size_bytes = sum(segment.index_bytes + segment.time_index_bytes for segment in group.segments)
        if job and size_bytes > room:
            yield job
            job, room = [], JOB_BYTES
        job.append(group)
        room -= size_bytes
    if job:
        yield job


def _numbers_of(group: GroupWork) -> range:
    return range(group.first_number, group.first_number + len(group.segments))


def _taken(each: Rewritten, made: CleanerSegment) -> CleanerSegment:
    """Adopt a segment that a task wrote, with its log in place. Raises Refused."""
    if each.log_path is None:
        return made
    log = ScratchFile.found(each.log_path, made.size_bytes, each.crc)
    return replace(made, log=log, path=log.path)


def _close(segment: CleanerSegment) -> None:
    if segment.log is not None:
        segment.log.close()
