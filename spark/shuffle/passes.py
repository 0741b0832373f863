"""The two passes of a compaction on a cluster: `Passes` whose map is a shuffle (`Rounds` asks for them).

1. Trace (one task for each segment): checksums, and what the segment does to the transactions (`trace`). The driver
   goes over the traces, and so knows what stands at the beginning of each segment and each group.
2. Keys (one task for each segment, `keys`) ─ by hash ─► verdicts (one for each part of the hash space, `fold`)
   ─ by group ─► a group's offsets that are superseded. What the tasks noted comes back to the driver here.
3. Rewriting (one task for each group, `rewriting`). What the second step has left on the disks of the executors is
   read, not made again; when an executor is lost Spark makes it again.

The first pass always comes to the end of the range: there is no map to be full. So the result is that of a local run whose
map has room for all keys.

Logs of which an offset does not tell one record, and segments to be split first, are left to `LocalPasses`.
"""

import os
import pickle
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kseg.compaction.cleaner.grouping import groups
from kseg.compaction.cleaner.mapping import start_position
from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.cleaner.passes import LocalPasses, LogAtWork, Second, SecondPass
from kseg.compaction.cleaner.reading import DamagedSegment, survey, tables
from kseg.compaction.cleaner.segments import Segment, aborted_in, between
from kseg.compaction.cleaner.splitting import Overflowed
from kseg.compaction.cleaner.transactions import Transactions
from kseg.segment.apply.scratch import ScratchFile
from kseg.segment.apply.workplace import Workplace
from kseg.segment.findings import Finding
from kseg.segment.kernel.batch_runs import declared_records
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.spark.shuffle.fold import verdicts_of
from kseg.spark.shuffle.keys import keys_of
from kseg.spark.shuffle.plan import (
    PART_BYTES_PER_ROW,
    GroupWork,
    Kind,
    Note,
    PassWork,
    SegmentWork,
    ShufflePlan,
    new_secret,
)
from kseg.spark.shuffle.rewriting import Rewritten, heaviest, rewritten
from kseg.spark.shuffle.trace import replay, trace

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.rdd import RDD

I = TypeVar("I")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Traced:
    """What the first step tells of a segment. of_dirty: the events that a first pass meets, None when they are the same."""

    events: bytes
    of_dirty: bytes | None
    records: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class _Learned:
    """What the second step has left on the cluster, by group."""

    plan: ShufflePlan
    groups: Sequence[GroupWork]
    verdicts: "RDD[tuple[int, bytes]]"


class ShuffledPasses:
    """On the cluster of `context`. workplace: where new logs are written, None when nothing is."""

    def __init__(
        self, context: "SparkContext", workplace: Workplace | None, settings: CleanSettings, dirty_bytes: int
    ) -> None:
        self._context = context
        self._workplace = workplace
        self._settings = settings
        self._dirty_bytes = dirty_bytes
        self._local: LocalPasses | None = None
        self._learned: _Learned | None = None
        self._traced: list[_Traced] = []
        self._keys = 0

    @property
    def map_keys(self) -> int:
        return self._keys if self._local is None else self._local.map_keys

    def close(self) -> None:
        if self._local is not None:
            self._local.close()

    # --- the first pass

    def first(self, log: LogAtWork, start_offset: int, end_offset: int, found: list[Finding] | None) -> int:
        if self._local is not None:
            return self._local.first(log, start_offset, end_offset, found)
        work = [segment for segment in log.segments if segment.base_offset < end_offset]
        self._traced = self._trace(log, work, start_offset)
        for segment, traced in zip(work, self._traced, strict=True):
            segment.is_whole = segment.is_whole or traced.is_whole
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
        """From now on in this process."""
        self._local = LocalPasses(self._settings, self._dirty_bytes)
        return self._local

    def _trace(self, log: LogAtWork, work: Sequence[Segment], start: int) -> list[_Traced]:
        every = sorted((entry for segment in log.segments for entry in segment.aborted), key=_first_offset)
        items = []
        for number, segment in enumerate(work):
            behind = log.segments[number + 1].base_offset
            at = bisect_left(every, segment.base_offset, key=_first_offset)
            begins = every[at : bisect_left(every, behind, key=_first_offset)]
            from_offset = start if segment.base_offset < start < behind else None
            items.append((segment, begins, from_offset))
        return self._over(items, _traced)

    def _segment_works(
        self, log: LogAtWork, count: int, start: int, end: int, *, finds: bool
    ) -> list[SegmentWork]:
        state = Transactions()
        state.add(aborted_in(log.segments, log.start_offset, start, end))
        first_dirty = between(log.segments, start, end)[0].base_offset
        works = []
        for number in range(count):
            segment, bound = log.segments[number], log.segments[number + 1].base_offset
            works.append(SegmentWork(number, segment, bound, start, state.as_met_below(bound), finds))
            if segment.base_offset >= first_dirty:
                traced = self._traced[number]
                replay(traced.events if traced.of_dirty is None else traced.of_dirty, state)
        return works

    def _refuse_damage(self, log: LogAtWork, dirty: Sequence[SegmentWork]) -> None:
        """Where batches are damaged: what a pass over the dirty range would have met first."""
        hurt = [at for at, work in enumerate(dirty) if not self._traced[work.number].is_whole]
        if hurt:
            for work, note in zip(dirty, self._over(dirty[: hurt[0] + 1], _first_damage), strict=False):
                if note is not None and note.findings:
                    raise DamagedSegment(log.segments[work.number], note.findings)

    # --- the shuffle

    def _shuffle(self, log: LogAtWork, works: Sequence[SegmentWork], end: int) -> _Learned:
        grouped = groups([work.segment for work in works], self._settings, end)
        rows = sum(traced.records for traced in self._traced)
        parts = max(
            self._context.defaultParallelism, -(-rows * PART_BYTES_PER_ROW // self._settings.map_bytes)
        )
        bases = tuple(group[0].base_offset for group in grouped)
        plan = ShufflePlan(new_secret(), parts, bases, self._settings, os.getcwd())
        keys = self._context.parallelize(works, len(works)).flatMap(_Keys(plan))
        verdicts = keys.partitionBy(parts, int).mapPartitions(_Verdicts(plan))
        by_group = verdicts.partitionBy(len(grouped) + 1, int)
        return _Learned(plan, self._group_works(log, grouped), by_group)

    def _group_works(self, log: LogAtWork, grouped: Sequence[Sequence[Segment]]) -> list[GroupWork]:
        state, number = Transactions(), 0
        works: list[GroupWork] = []
        for group in grouped:
            aborted = [log.aborted_in(segment) for segment in group]
            bound = log.segments[number + len(group)].base_offset
            begins = state.as_met_below(bound)
            works.append(GroupWork(len(works), number, tuple(group), bound, aborted, begins))
            for known in aborted:
                state.add(known)
                replay(self._traced[number].events, state)
                number += 1
        return works

    def _notes(self, learned: _Learned) -> tuple[list[Note], int]:
        """What the tasks of the second step noted, in the order of the segments; how many keys there are."""
        with self._named("keys"):
            values = self._context.runJob(learned.verdicts, _values, [learned.plan.notes_place])
        said = [pickle.loads(value) for value in values]
        notes = sorted((each for each in said if isinstance(each, Note)), key=lambda note: note.number)
        return notes, sum(each for each in said if isinstance(each, int))

    # --- the second pass

    def second(self, log: LogAtWork, work: SecondPass) -> Second:
        if self._local is not None:
            return self._local.second(log, work)
        learned = self._learned
        assert learned is not None
        due = [
            group
            for group in learned.groups
            if not any(log.segments[at].is_damaged for at in _numbers_of(group))
        ]
        done = {each.number: each for each in self._rewrite(log, work, learned, due)}
        self._raise_first(log, done.values())
        second = Second(groups_skipped=len(learned.groups) - len(due))
        for group in learned.groups:
            each = done.get(group.number)
            if each is not None:
                second.sums += each.sums
            old = [log.segments[at] for at in _numbers_of(group)]
            second.segments += old if each is None or each.made is None else [_taken(each, each.made)]
        second.top_keys = heaviest(done.values(), work.top_keys)
        return second

    def _rewrite(
        self, log: LogAtWork, work: SecondPass, learned: _Learned, due: Sequence[GroupWork]
    ) -> list[Rewritten]:
        workplace = self._workplace if work.is_written else None
        passed = PassWork(
            log.records,
            work.upper_offset,
            work.legacy_horizon_ms,
            work.top_keys,
            None if workplace is None else workplace.path,
        )
        packed = self._context.broadcast({group.number: pickle.dumps(group) for group in due})
        try:
            with self._named("rewriting"):
                rewriting = learned.verdicts.mapPartitionsWithIndex(_Rewriting(learned.plan, passed, packed))
                return self._context.runJob(rewriting, list, [group.number for group in due])
        finally:
            packed.destroy()

    def _raise_first(self, log: LogAtWork, done: Iterable[Rewritten]) -> None:
        """What a pass over the groups in their order would have met first."""
        for each in sorted(done, key=lambda each: each.number):
            if each.damaged is not None:
                raise DamagedSegment(log.segments[each.damaged], each.findings)
            if each.overflowed is not None:
                self._here()
                raise Overflowed(log.segments[each.overflowed])

    def survey(self, segments: Sequence[Segment]) -> list[Finding]:
        if self._local is not None:
            return self._local.survey(segments)
        found: list[Finding] = []
        for segment, findings in zip(segments, self._over(segments, survey), strict=True):
            segment.is_damaged = segment.is_damaged or bool(findings)
            found += findings
        return found

    # --- jobs

    def _over(self, items: Sequence[I], work: Callable[[I], R]) -> list[R]:
        """`work` of each item, in a task of its own."""
        with self._named(work.__name__.strip("_")):
            return (
                self._context.parallelize(items, max(1, len(items)))
                .map(_Standing(os.getcwd(), work))
                .collect()
            )

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Jobs that whatever ends the work cancels."""
        tag = f"kseg-shuffle-{what}-{id(self)}"
        self._context.addJobTag(tag)
        try:
            yield
        except BaseException:
            if self._context._jsc is not None:
                self._context.cancelJobsWithTag(tag)
            raise
        finally:
            self._context.removeJobTag(tag)


def _first_offset(entry: AbortedTxn) -> int:
    return entry.first_offset


def _numbers_of(group: GroupWork) -> range:
    return range(group.first_number, group.first_number + len(group.segments))


def _taken(each: Rewritten, made: Segment) -> Segment:
    """A segment that a task has made, with its log where it was left. Raises Refused."""
    if each.log_path is None:
        return made
    log = ScratchFile.found(each.log_path, made.size_bytes, each.crc)
    return replace(made, log=log, path=log.path)


# --- what runs on the executors


def _stand_in(directory: str) -> None:
    if os.getcwd() != directory:
        os.chdir(directory)


@dataclass(frozen=True, slots=True)
class _Standing:
    """Work in the driver's working directory."""

    directory: str
    work: Callable[[Any], Any]

    def __call__(self, item: Any) -> Any:
        _stand_in(self.directory)
        return self.work(item)


@dataclass(frozen=True, slots=True)
class _Keys:
    plan: ShufflePlan

    def __call__(self, work: SegmentWork) -> Iterator[tuple[int, Any]]:
        _stand_in(self.plan.directory)
        return keys_of(work, self.plan)


@dataclass(frozen=True, slots=True)
class _Verdicts:
    plan: ShufflePlan

    def __call__(self, messages: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, bytes]]:
        return verdicts_of(messages, self.plan)


@dataclass(frozen=True, slots=True)
class _Rewriting:
    plan: ShufflePlan
    work: PassWork
    packed: Any

    def __call__(self, number: int, verdicts: Iterable[tuple[int, bytes]]) -> Iterator[Rewritten]:
        from pyspark import TaskContext

        _stand_in(self.plan.directory)
        context = TaskContext.get()
        attempt = 0 if context is None else int(context.taskAttemptId())
        group: GroupWork = pickle.loads(self.packed.value[number])
        superseded = (offsets for _, offsets in verdicts)
        yield rewritten(group, self.work, self.plan, superseded, attempt)


def _values(pairs: Iterable[tuple[int, bytes]]) -> list[bytes]:
    return [value for _, value in pairs]


def _traced(item: tuple[Segment, Sequence[AbortedTxn], int | None]) -> _Traced:
    segment, begins, from_offset = item
    with segment.opened() as view:
        records = 0
        for table in tables(segment, view, 0, []):
            records += declared_records(table.cells, table.capacity, 0, table.count)
        events = trace(segment, view, 0, begins)
        of_dirty = None
        if from_offset is not None:
            of_dirty = trace(segment, view, start_position(segment, view, from_offset), begins)
        return _Traced(events, of_dirty, records, segment.is_whole)


def _first_damage(work: SegmentWork) -> Note | None:
    """What a first pass meets first in a segment."""
    plan = ShufflePlan(new_secret(), 1, (0,), _SMALL, os.getcwd())
    notes = [pickle.loads(data) for _, (kind, data) in keys_of(work, plan) if kind is Kind.NOTE]
    return notes[0] if notes else None


_SMALL = CleanSettings(now_ms=0, map_bytes=1 << 20)
