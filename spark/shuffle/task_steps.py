"""The steps of a shuffled compaction that run on executors (`shuffled_passes` has their order)."""

import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kseg.compaction.cleaner.first_pass import start_position
from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.cleaner.segment_reader import tables
from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment.errors import KsegError
from kseg.segment.kernel.batch_walk import declared_records
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.values import dataclass
from kseg.spark.shuffle.fold import verdicts_of
from kseg.spark.shuffle.keys import keys_of
from kseg.spark.shuffle.rewriting import Rewritten, rewritten
from kseg.spark.shuffle.task_messages import (
    GroupWork,
    Message,
    Note,
    PassWork,
    SegmentWork,
    ShufflePlan,
    WorkKind,
    enter_directory,
    new_secret,
)
from kseg.spark.shuffle.transaction_summary import trace

if TYPE_CHECKING:
    from pyspark import Broadcast

_SMALL = CleanSettings(now_ms=0, map_bytes=1 << 20)


@dataclass(frozen=True, slots=True)
class Traced:
    """The result of the first step for a segment. of_dirty: the transaction events of its dirty part, None if all of it is dirty.
    records: the number declared in the headers."""

    events: bytes
    of_dirty: bytes | None
    records: int
    is_whole: bool


def traced(item: tuple[CleanerSegment, Sequence[AbortedTxn], int | None]) -> Traced:
    """Check a segment and summarise its transactions. item: the segment, the aborted transactions that begin in it, and the first dirty
    offset if that is within it."""
    segment, begins, from_offset = item
    with segment.opened() as view:
        records = 0
        for table in tables(segment, view, 0, []):
            records += declared_records(table.cells, table.capacity, 0, table.count)
        events = trace(segment, view, 0, begins)
        of_dirty = None
        if from_offset is not None:
            of_dirty = trace(segment, view, start_position(segment, view, from_offset), begins)
        return Traced(events, of_dirty, records, segment.is_whole)


def first_damage(work: SegmentWork) -> Note | None:
    """The first damage that a first pass meets in a segment."""
    plan = ShufflePlan(new_secret(), 1, (0,), _SMALL, os.getcwd())
    notes = [pickle.loads(data) for _, (kind, data) in keys_of(work, plan) if kind is WorkKind.NOTE]
    return notes[0] if notes else None


@dataclass(frozen=True, slots=True)
class Keys:
    """Sends the keys of a segment to the parts of the hash space."""

    plan: ShufflePlan

    def __call__(self, work: SegmentWork) -> Iterator[tuple[int, Message]]:
        enter_directory(self.plan.directory)
        return keys_of(work, self.plan)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Sends the superseded offsets of a part of the hash space to the groups of segments."""

    plan: ShufflePlan

    def __call__(self, messages: Iterable[tuple[int, Message]]) -> Iterator[tuple[int, bytes]]:
        return verdicts_of(messages, self.plan)


def values_of(pairs: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """The values of (key, value) pairs."""
    return [value for _, value in pairs]


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Rewrites a group. packed: the pickled `GroupWork` of all groups, by number."""

    plan: ShufflePlan
    work: PassWork
    packed: "Broadcast[dict[int, bytes]]"

    def __call__(self, number: int, verdicts: Iterable[tuple[int, bytes]]) -> Iterator[Rewritten]:
        from pyspark import TaskContext

        enter_directory(self.plan.directory)
        context = TaskContext.get()
        attempt = 0 if context is None else int(context.taskAttemptId())  # unique within a session
        group: GroupWork = pickle.loads(self.packed.value[number])
        superseded = (offsets for _, offsets in verdicts)
        try:
            yield rewritten(group, self.work, self.plan, superseded, attempt)
        except KsegError as error:
            yield Rewritten(number, error=error)
