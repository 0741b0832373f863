"""The offsets of a streaming query over a growing directory: what the driver reads from the logs, and how far a batch extends.

    offsets    {"orders": {"0": 23, "1": 17}}, as in Spark's own Kafka source: the next record of each partition

A log ends after its last valid batch. Bytes after that do not count as damage here: a broker is writing them, or died while doing so.
With read_committed a log ends at its last stable offset. Partitions are listed again for each batch; a new one is read from its first
record, and if it starts above 0 that is data loss, as in Spark's source.

A broker may be running. If a file disappears between listing and opening, the directory is listed again.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from kseg.inspection.lookup.by_time import by_timestamp
from kseg.inspection.query import LookupQuery
from kseg.segment.errors import UnreadableInput, UsageError
from kseg.segment.moments import moment
from kseg.segment.partition.derived_state import last_stable_offset
from kseg.segment.partition.directory import OtherDirectory
from kseg.segment.partition.names import PartitionState, parse_partition_directory
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.recognition import list_directory
from kseg.segment.partition.targets import PartitionTarget, resolve_targets
from kseg.segment.values import dataclass
from kseg.spark.source.offset_range_limits import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtEnd,
    AtOffsets,
    AtTime,
    AtTimes,
    Bound,
    TopicPartition,
    shown,
)
from kseg.spark.source.options import SourceOptions
from kseg.spark.source.partitions import absolute_paths

Offsets = dict[TopicPartition, int]
Json = dict[str, dict[str, int]]
T = TypeVar("T")

ATTEMPTS = 5
PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class GrownExtent:
    """The readable offsets of a log, from its start up to, but not including, its end."""

    start_offset: int
    end_offset: int


def to_json(offsets: Mapping[TopicPartition, int]) -> Json:
    """The offsets as JSON, sorted because Spark compares the text."""
    made: Json = {}
    for (topic, partition), offset in sorted(offsets.items()):
        made.setdefault(topic, {})[str(partition)] = offset
    return made


def from_json(given: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Parse offsets. Raises UsageError for JSON that this source did not write."""
    try:
        return {
            (topic, int(partition)): int(offset)
            for topic, offsets in given.items()
            for partition, offset in offsets.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"the checkpoint does not contain offsets of kafka-log: {error}") from None


def again(work: Callable[[], T]) -> T:
    """The result of `work`, retried if a file disappears meanwhile."""
    for _ in range(ATTEMPTS - 1):
        try:
            return work()
        except UnreadableInput:
            time.sleep(PAUSE_S)
    return work()


class GrowingLogs:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> dict[TopicPartition, PartitionTarget]:
        """The live partitions that the query subscribes to. Raises UsageError for one that exists twice."""
        found: dict[TopicPartition, PartitionTarget] = {}
        for target in self._targets():
            name = parse_partition_directory(os.path.basename(target.path))
            where = name.topic, name.partition
            if name.state is not PartitionState.LIVE or not self._options.subscription.accepts(*where):
                continue
            if where in found and found[where].path != target.path:
                raise UsageError(f"{name.text} exists both in {found[where].path} and in {target.path}")
            found[where] = target
        return found

    def extents(
        self, partitions: Mapping[TopicPartition, PartitionTarget]
    ) -> dict[TopicPartition, GrownExtent]:
        """The current extent of each readable log."""
        return {where: again(lambda: self._extent(target)) for where, target in partitions.items()}  # noqa: B023

    def start_offset(self, target: PartitionTarget) -> int:
        """The current start offset of a log."""

        def start() -> int:
            with PartitionLog(target, is_live=True) as log:
                return log.start_offset

        return again(start)

    def starting(self) -> Offsets:
        """Start offsets of a query without a checkpoint. Raises UsageError if the option does not name exactly the partitions."""
        partitions = self.partitions()
        bound = self._options.starting
        if isinstance(bound, AtOffsets | AtTimes):
            _check_named(bound, partitions)
        extents = self.extents(partitions)
        return {where: self._start(where, target, extents[where]) for where, target in partitions.items()}

    def _targets(self) -> Iterator[PartitionTarget]:
        for path in absolute_paths(self._options.paths):
            if isinstance(again(lambda: list_directory(path)), OtherDirectory):  # noqa: B023
                continue  # nothing has been written yet
            for target in resolve_targets([path]):
                assert isinstance(target, PartitionTarget)  # directories have no other targets
                yield target

    def _extent(self, target: PartitionTarget) -> GrownExtent:
        with PartitionLog(target, is_live=True) as log:
            if log.is_kafka07:
                raise UsageError(
                    f"{target.path} is a Kafka 0.7 partition, which streaming reads do not support"
                )
            end_offset = log.end_offset
            if self._options.read_committed and log.segments:
                end_offset = min(end_offset, last_stable_offset(log))
            return GrownExtent(log.start_offset, max(end_offset, log.start_offset))

    def _start(self, where: TopicPartition, target: PartitionTarget, extent: GrownExtent) -> int:
        bound = self._options.starting
        match bound:
            case AtEnd():
                return extent.end_offset if bound.which == "latest" else extent.start_offset
            case AtOffsets():
                offset = bound.by_partition[where]
                ends = {EARLIEST_OFFSET: extent.start_offset, LATEST_OFFSET: extent.end_offset}
                return ends.get(offset, offset)
            case AtTime():
                return self._at_time(target, bound.timestamp_ms, extent)
            case AtTimes():
                return self._at_time(target, bound.by_partition[where], extent)

    def _at_time(self, target: PartitionTarget, timestamp_ms: int, extent: GrownExtent) -> int:
        query = LookupQuery(
            kind="timestamp", timestamp_ms=timestamp_ms, read_committed=self._options.read_committed
        )
        with PartitionLog(target, is_live=True) as log:
            answer = next(by_timestamp(log, query))
        if answer.offset is not None:
            return min(answer.offset, extent.end_offset)
        if self._options.latest_when_no_match:
            return extent.end_offset
        raise UsageError(
            f"{target.path} has no record at or after {moment(timestamp_ms)} "
            "(startingOffsetsByTimestampStrategy=latest starts after the last one)"
        )


def _check_named(bound: Bound, partitions: Iterable[TopicPartition]) -> None:
    assert isinstance(bound, AtOffsets | AtTimes)
    missing = sorted(set(partitions) ^ set(bound.by_partition))
    if missing:
        topic, partition = missing[0]
        what = "is not there" if (topic, partition) in bound.by_partition else "is not named"
        raise UsageError(
            f"starting offsets must name exactly the partitions that are read: {topic}-{partition} {what}"
        )


# --- how far a batch goes


@dataclass(frozen=True, slots=True)
class Step:
    """The extent of a batch: its end offsets, and the data losses that were noticed."""

    end: Offsets
    losses: tuple[str, ...]


def all_there_is(start: Offsets, extents: Mapping[TopicPartition, GrownExtent]) -> Step:
    """The batch that extends to the end of every log."""
    losses = [f"{shown(where)} is gone" for where in sorted(start.keys() - extents.keys())]
    end = {}
    for where, extent in sorted(extents.items()):
        begin = start.get(where)
        if begin is None and extent.start_offset > 0:
            losses.append(f"{shown(where)} is new and starts at offset {extent.start_offset} instead of 0")
        elif begin is not None and begin < extent.start_offset:
            losses += missed(where, begin, extent.start_offset)
        elif begin is not None and begin > extent.end_offset:
            losses.append(f"{shown(where)} ends at offset {extent.end_offset}, and {begin} is next")
        end[where] = extent.end_offset
    return Step(end, tuple(losses))


def limited(
    start: Offsets, end: Offsets, extents: Mapping[TopicPartition, GrownExtent], most: int
) -> Offsets:
    """End offsets of a batch of about `most` offsets, shared among the partitions in proportion to what each has (Spark:
    KafkaMicroBatchStream)."""
    begins = {where: max(start.get(where, 0), extents[where].start_offset) for where in end}
    sizes = {where: end[where] - begins[where] for where in end if end[where] > begins[where]}
    total = sum(sizes.values())
    if total <= most:
        return end
    made = dict(end)
    for where, size in sizes.items():
        share = most * size // total
        made[where] = begins[where] + max(1, share)
    return made


def available(start: Offsets, end: Offsets, extents: Mapping[TopicPartition, GrownExtent]) -> int:
    """The number of offsets that a batch would read."""
    return sum(max(0, end[where] - max(start.get(where, 0), extents[where].start_offset)) for where in end)


def missed(where: TopicPartition, next_offset: int, log_start: int) -> list[str]:
    """The message about data loss if a log starts after `next_offset`, where reading should continue; empty otherwise."""
    if log_start <= next_offset:
        return []
    return [f"{shown(where)} starts at offset {log_start}, and {next_offset} is next"]
