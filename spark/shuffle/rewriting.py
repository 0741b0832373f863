"""Rewrite one group of segments on an executor, by the local second pass with `Survivors` as its map.

The name of a new log contains the group and the attempt. So two attempts at the same group never write to the same file; the driver
uses only the one that Spark counts, and the other files are removed with the exchange directory.
"""

import os
from array import array
from collections.abc import Iterable
from dataclasses import field, replace

from kseg.change.apply.scratch_file import ScratchFile
from kseg.compaction.cleaner.rewrite_group import clean_group
from kseg.compaction.cleaner.second_pass import PassTotals, SegmentCleaner
from kseg.compaction.cleaner.segment_reader import DamagedSegment
from kseg.compaction.cleaner.segment_splitting import SegmentOverflow
from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.compaction.cleaner.top_keys import KeySketch, TopKey
from kseg.segment import layout as L
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.kernel import key_exchange as R
from kseg.segment.memory import PrivateMemory
from kseg.segment.scanning.decode import RECORDS_PER_TABLE, Chunk
from kseg.segment.values import dataclass
from kseg.spark.shuffle.task_messages import GroupWork, PassWork, ShufflePlan

_MAX_OFFSETS = L.INT32_MAX + 1  # the maximum of one segment


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The outcome of rewriting a group. made: the new segment, None if nothing would change. log_path, crc: of its log, None if records
    were only counted. damaged, overflowed: the number of the segment that ended the rewriting. findings: the damage. error: why the task
    could not read or write."""

    number: int
    pass_totals: PassTotals = field(default_factory=PassTotals)
    made: CleanerSegment | None = None
    log_path: str | None = None
    crc: int = 0
    top_keys: tuple[TopKey, ...] = ()
    damaged: int | None = None
    findings: tuple[Finding, ...] = ()
    overflowed: int | None = None
    error: KsegError | None = None

    @property
    def is_ended(self) -> bool:
        """Whether something kept the group from being rewritten."""
        return not (self.damaged is None and self.overflowed is None and self.error is None)


def rewritten(
    group: GroupWork, work: PassWork, plan: ShufflePlan, superseded: Iterable[bytes], attempt: int
) -> Rewritten:
    """Rewrite a group. superseded: the offsets of superseded records, in pieces. Raises Refused."""
    sketch = KeySketch() if work.top_keys else None
    base = group.segments[0].base_offset
    survivors = Survivors(base, group.bound, work.upper_offset - 1)
    try:
        for offsets in superseded:
            survivors.supersede(offsets)
        horizon_ms = work.legacy_horizon_ms
        segment_cleaner = SegmentCleaner(
            survivors, plan.settings, work.records, work.upper_offset, horizon_ms, sketch
        )
        segment_cleaner.transactions = group.transactions
        return _cleaned(group, work, plan, segment_cleaner, sketch, attempt)
    finally:
        survivors.close()


def _cleaned(
    group: GroupWork,
    work: PassWork,
    plan: ShufflePlan,
    segment_cleaner: SegmentCleaner,
    sketch: KeySketch | None,
    attempt: int,
) -> Rewritten:
    log = None
    if work.exchange_path is not None:
        log = ScratchFile(work.exchange_path, name=f"{group.number}-{attempt}")
    interval = plan.settings.index_interval_bytes
    try:
        made = clean_group(segment_cleaner, group.segments, group.aborted, interval, log)
    except DamagedSegment as damaged:
        number = group.first_number + group.segments.index(damaged.segment)
        return Rewritten(group.number, damaged=number, findings=damaged.findings)
    except SegmentOverflow as overflowed:
        number = group.first_number + group.segments.index(overflowed.segment)
        return Rewritten(group.number, overflowed=number)
    keys: tuple[TopKey, ...] = ()
    if sketch is not None:
        keys = tuple(sketch.named(work.top_keys, group.segments))
    if made is None or log is None or work.exchange_path is None:
        return Rewritten(group.number, segment_cleaner.pass_totals, made, top_keys=keys)
    crc = log.crc
    log.leave()
    path = os.path.join(work.exchange_path, f"{group.number}-{attempt}")
    return Rewritten(group.number, segment_cleaner.pass_totals, replace(made, log=None), path, crc, keys)


class Survivors:
    """The offset map of a second pass over a group of segments whose superseded records other tasks have determined. base_offset, bound: of
    the group. latest_offset: records above it are kept.

    It has one bit for each offset of the group, set if the record is superseded. To a pass (`KeyJudge`) it looks like a map with a
    single key, whose latest offset is above all others: `hash` gives that key to superseded records, and one that is not in the map to
    the others. So the second pass needs no changes. Pages without superseded records cost no memory.
    """

    def __init__(self, base_offset: int, bound: int, latest_offset: int) -> None:
        self._base = base_offset
        self._memory = PrivateMemory(max(1, min(bound - base_offset, _MAX_OFFSETS) // 8 + 1))
        self.words = memoryview(array("q", bytes(16 * RECORDS_PER_TABLE)))
        self.slots = memoryview(array("q", [0, 0, 0, R.LATER, 0, L.INT64_MAX]))
        self.slot_count = 2
        self.latest_offset = latest_offset

    def supersede(self, offsets: bytes) -> None:
        """Mark the records at these offsets as superseded."""
        numbers = memoryview(offsets).cast("q")
        done = R.mark_offsets(numbers, len(numbers), self._base, self._memory.view)
        assert done == len(numbers)

    def hash(self, chunk: Chunk) -> bool:
        records = chunk.records
        cells, capacity, count = records.cells, records.capacity, records.count
        size = memoryview(chunk.body).nbytes
        done = R.look_up(size, cells, capacity, count, self._base, self._memory.view, self.words)
        return done == count

    def close(self) -> None:
        self._memory.close()
