"""`spark.readStream.format("kafka-log")`: a directory that grows, each record once.

1. The driver tracks offsets (`growing_logs`), as Spark's own Kafka source does; the checkpoint contains nothing else.
2. A batch is a range of offsets of each partition. A task opens the log of its range just before it reads: a file position planned
   earlier would be invalid once a cleaner has replaced the file.
3. The same range returns the same records again, unless the broker has deleted some in between. That is data loss, which ends the query
   or is skipped (`failOnDataLoss`).
"""

import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kseg.inspection.arrow.log_ranges import LogPiece
from kseg.segment.errors import UnreadableInput, UsageError, cannot_read
from kseg.segment.findings import ERROR, Finding
from kseg.segment.partition.bounds import Bounds
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.values import dataclass
from kseg.spark.source.growing_logs import (
    ATTEMPTS,
    PAUSE_S,
    GrowingLogs,
    Offsets,
    all_there_is,
    available,
    from_json,
    limited,
    missed,
    to_json,
)
from kseg.spark.source.offset_range_limits import shown
from kseg.spark.source.option_parsing import Words
from kseg.spark.source.options import FINDINGS, SourceOptions, read_options
from kseg.spark.source.reader import columns_of, reading_of, results_of
from kseg.spark.source.source_schema import check_schema
from kseg.spark.source.splits import DataLoss, check_number
from kseg.spark.visibility import DirectorySample, check_directory_sample, directory_sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyarrow import RecordBatch, Schema

_LOG = logging.getLogger("kseg.spark")
_DEFAULT_DELAY_MS = 15 * 60 * 1000
# units in which Spark accepts a duration; a number without a unit is in milliseconds
_UNITS_US = {
    "us": 1,
    "": 1000,
    "ms": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


@dataclass
class OffsetRange(InputPartition):
    """The work of a task: the records with first_offset ≤ offset < end_offset."""

    topic: str
    partition: int
    target: PartitionTarget
    first_offset: int
    end_offset: int
    directory_sample: DirectorySample


@dataclass(frozen=True, slots=True)
class Triggers:
    """How much a batch reads. most, least: numbers of offsets, None for no limit. delay_ms: how long a batch may wait for `least`."""

    most: int | None
    least: int | None
    delay_ms: int

    @classmethod
    def of(cls, given: "Mapping[str, str]") -> "Triggers":
        """Raises UsageError."""
        words = Words(given)
        most, least = words.number("maxOffsetsPerTrigger"), words.number("minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise UsageError("minOffsetsPerTrigger is above maxOffsetsPerTrigger")
        return cls(most, least, _duration_ms(words))


def _duration_ms(words: Words) -> int:
    text = words.get("maxTriggerDelay")
    if text is None:
        return _DEFAULT_DELAY_MS
    read = re.fullmatch(r"([0-9]{1,12})([a-z]*)", text.strip().lower())
    if read is None or read[2] not in _UNITS_US:
        raise UsageError(f"the option maxTriggerDelay must be a duration such as 15m or 900s, not {text!r}")
    return int(read[1]) * _UNITS_US[read[2]] // 1000


class KafkaLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. Raises UsageError for invalid options or columns."""

    def __init__(self, schema: StructType, given: "Mapping[str, str]") -> None:
        self._options = read_options(given, streaming=True)
        if self._options.table == FINDINGS:
            raise UsageError("table=findings is available in batch queries only")
        self._triggers = Triggers.of(given)
        check_schema(schema, self._options)
        self._schema = schema
        self._logs = GrowingLogs(self._options)
        self._pinned: Offsets | None = None
        self._newest: Offsets | None = None
        self._last_batch_s = time.monotonic()

    # --- on the driver

    def initialOffset(self) -> dict[str, Any]:
        return to_json(self._logs.starting())

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._triggers.most
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        extents = self._logs.extents(self._logs.partitions())
        self._pinned = {where: extent.end_offset for where, extent in extents.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = from_json(start)
        extents = self._logs.extents(self._logs.partitions())
        if self._pinned is not None:
            extents = {where: extent for where, extent in extents.items() if where in self._pinned}
        step = all_there_is(begin, extents)
        self._tell(step.losses)
        end = step.end
        if self._pinned is not None:
            end = {where: min(offset, self._pinned[where]) for where, offset in end.items()}
        self._newest = end
        waiting = available(begin, end, extents)
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, extents, limit.max_rows)
        if self._pinned is None and self._holds_back(waiting):
            return start
        if waiting:
            self._last_batch_s = time.monotonic()
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._newest is None else to_json(self._newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, stop = from_json(start), from_json(end)
        there = self._logs.partitions()
        ranges, losses = [], []
        for where, offset in sorted(stop.items()):
            first, target = begin.get(where, 0), there.get(where)
            if target is None:
                losses.append(f"{shown(where)} is gone")
                continue
            if offset > first:  # an empty range has nothing to lose
                log_start = self._logs.start_offset(target)
                losses += missed(where, first, log_start)
                first = max(first, log_start)
            if offset > first:
                seen = directory_sample(target.log_dir or os.path.dirname(target.path))
                ranges.append(OffsetRange(*where, target, first, offset, seen))
        self._tell(losses)
        return _divided(ranges, self._options)

    def _holds_back(self, waiting: int) -> bool:
        least = self._triggers.least
        waited_ms = (time.monotonic() - self._last_batch_s) * 1000
        return least is not None and waiting < least and waited_ms < self._triggers.delay_ms

    def _tell(self, losses: Sequence[str]) -> None:
        if losses and self._options.fail_on_data_loss:
            more = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
            raise DataLoss(
                f"records are lost: {losses[0]}{more}; with failOnDataLoss=false the query continues with the available records"
            )
        for loss in losses:
            _LOG.warning("records are lost: %s", loss)

    # --- in a task

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        assert isinstance(partition, OffsetRange)
        check_directory_sample(partition.directory_sample)
        return _RangeReader(partition, self._options, columns_of(self._schema)).batches()


def _divided(ranges: Sequence[OffsetRange], options: SourceOptions) -> list[OffsetRange]:
    """Divide the ranges according to minPartitions and maxRecordsPerPartition. Raises UsageError."""
    total = sum(each.end_offset - each.first_offset for each in ranges)
    made: list[OffsetRange] = []
    for each in ranges:
        size = each.end_offset - each.first_offset
        parts = 1
        if options.records_per_partition is not None:
            parts = -(-size // options.records_per_partition)
        if options.min_partitions is not None and options.min_partitions > len(ranges):
            parts = max(parts, round(options.min_partitions * size / total))
        parts = max(1, min(parts, size))
        check_number(len(made) + parts, options)
        edges = [each.first_offset + size * number // parts for number in range(parts + 1)]
        for first, end in pairwise(edges):
            made.append(
                OffsetRange(each.topic, each.partition, each.target, first, end, each.directory_sample)
            )
    return made


class _RangeReader:
    """Reads one range. If a file is replaced or removed meanwhile, it looks the log up again."""

    def __init__(self, work: OffsetRange, options: SourceOptions, schema: "Schema") -> None:
        self._work, self._options, self._schema = work, options, schema
        self._next_offset = work.first_offset
        self._reading = reading_of(options)

    def batches(self) -> "Iterator[RecordBatch]":
        for attempt in range(ATTEMPTS):
            try:
                pieces = self._pieces()
                for number, (piece, identity) in enumerate(pieces):
                    yield from self._read(piece, identity)
                    if number + 1 < len(pieces):
                        self._next_offset = max(self._next_offset, pieces[number + 1][0].base_offset)
                return
            except DataLoss:
                raise
            except UnreadableInput:
                if attempt == ATTEMPTS - 1:
                    raise
                time.sleep(PAUSE_S)

    def _pieces(self) -> list[tuple[LogPiece, tuple[int, int]]]:
        from kseg.inspection.arrow.planning import ReadPlanOptions, segment_reads

        work, options = self._work, self._options
        with PartitionLog(work.target, is_live=True) as log:
            before = {
                segment.path: _identity(segment.path)
                for segment in log.segments[max(0, log.floor_index(self._next_offset)) :]
                if segment.base_offset < work.end_offset
            }
            if log.start_offset > self._next_offset and self._next_offset < work.end_offset:
                self._lost(f"starts at offset {log.start_offset}, and {self._next_offset} is next")
            if log.end_offset < work.end_offset:
                self._lost(
                    f"ends at offset {log.end_offset}, and records up to {work.end_offset - 1} are read"
                )
            plan_options = ReadPlanOptions(
                read_committed=options.read_committed,
                trust_transactions=True,
                checks_markers=False,  # a broker at work writes the index after the log
                use_indexes=options.use_indexes,
            )
            bounds = Bounds(from_offset=max(self._next_offset, log.start_offset), to_offset=work.end_offset)
            stretches = segment_reads(log, work.topic, work.partition, bounds, plan_options)
        return [(stretch.piece, before[stretch.piece.path]) for stretch in stretches]

    def _read(self, piece: LogPiece, identity: tuple[int, int]) -> "Iterator[RecordBatch]":
        """Read a piece, after checking that its positions refer to the opened file."""
        items = results_of(piece, self._reading, self._schema, checks_headers=self._options.check_headers)
        is_checked = False
        for item in items:
            if not is_checked and _identity(piece.path) != identity:
                raise _Exchanged(f"cannot read {piece.path}: it was replaced during every attempt")
            is_checked = True
            if not isinstance(item, Finding):
                yield item
            elif item.severity == ERROR:
                self._lost(f"is damaged: {item.message}")
        if not is_checked and _identity(piece.path) != identity:
            raise _Exchanged(f"cannot read {piece.path}: it was replaced during every attempt")

    def _lost(self, what: str) -> None:
        where = shown((self._work.topic, self._work.partition))
        if self._options.fail_on_data_loss:
            raise DataLoss(f"records are lost: {where} {what} (failOnDataLoss)")
        _LOG.warning("records are lost: %s %s", where, what)


class _Exchanged(UnreadableInput):
    """Another file has taken the name of a planned one."""


def _identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise cannot_read(path, error) from error
    return status.st_dev, status.st_ino
