"""Convert Arrow batches of rows to records in staged runs, in each task of a write.

1. The columns are those of Spark's own Kafka sink (`key`, `value`, `topic`, `partition`, `headers`), plus `timestamp`,
   `timestampType` and `offset` of its source. Others are ignored.
2. A row goes to the partition in its column, or without one to that of its key, as with Kafka's producer (`partitioner`). Rows
   without a key fill a batch in one partition, then one in the next, as with that producer.
3. Rows keep their order within a partition.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kseg.segment import layout as L
from kseg.segment.encoding.partitioner import partition_for_key
from kseg.segment.errors import UsageError
from kseg.segment.model import Headers, Record
from kseg.segment.partition.names import is_topic_name
from kseg.segment.values import dataclass
from kseg.spark.source.option_parsing import INT_MAX
from kseg.spark.source.source_schema import HEADERS_TYPE
from kseg.spark.source.write.options import WriteOptions
from kseg.spark.source.write.staged_runs import RunWriter

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_TYPES: Mapping[str, tuple[type[DataType], ...]] = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "offset": (LongType, IntegerType),
    "timestamp": (TimestampType, TimestampNTZType),
    "timestampType": (IntegerType,),
}
_SPELLED = {name.lower(): name for name in (*_TYPES, "headers")}
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The position of each known column in a row, by name."""

    at: Mapping[str, int]

    @classmethod
    def of(cls, schema: StructType, options: WriteOptions) -> "RowColumns":
        """The columns of a DataFrame to write. Raises UsageError for columns that cannot be written."""
        at: dict[str, int] = {}
        for number, column in enumerate(schema.fields):
            name = _SPELLED.get(column.name.lower())
            if name is None:
                continue
            if name in at:
                raise UsageError(f"the column {name} occurs twice")
            fits = (
                column.dataType.simpleString() == HEADERS_TYPE.simpleString()  # whichever parts are nullable
                if name == "headers"
                else isinstance(column.dataType, _TYPES[name])
            )
            if not fits:
                wanted = (
                    HEADERS_TYPE.simpleString()
                    if name == "headers"
                    else " or ".join(kind().simpleString() for kind in _TYPES[name])
                )
                raise UsageError(f"the column {name} is {wanted}, not {column.dataType.simpleString()}")
            at[name] = number
        if "value" not in at:
            raise UsageError("the column value is missing")
        if "topic" not in at and options.topic is None:
            raise UsageError("there is neither a topic column nor the option topic")
        if options.topic is not None:
            at.pop("topic", None)
        if not options.keep_offsets:
            at.pop("offset", None)
        return cls(at)


class RowWriter:
    """Writes the rows of one task. counts: the partition counts of existing topics. task: its number, which determines the partition
    of the first rows without a key."""

    def __init__(
        self,
        writer: RunWriter,
        columns: RowColumns,
        options: WriteOptions,
        counts: Mapping[str, int],
        task: int,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._writer, self._columns, self._options = writer, columns, options
        self._there = counts
        self._clock_ms = clock_ms
        self._task = task
        self._counts: dict[str, int] = {}
        self._sticky: dict[str, int] = {}
        self._by_key: dict[tuple[str, bytes], int] = {}

    def write(self, batches: Iterable["RecordBatch"]) -> None:
        """Raises UsageError for a row that cannot be a record."""
        for batch in batches:
            now_ms = self._clock_ms()
            for row in _rows_of(batch, self._columns.at):
                self._add(row, now_ms)

    def _add(self, row: Row, now_ms: int) -> None:
        key, value, topic, partition, offset, timestamp_us, timestamp_type, headers = row
        topic = self._options.topic or topic
        if topic not in self._counts:
            self._count(topic)
        timestamp_ms = now_ms if timestamp_us is None else timestamp_us // 1000
        if timestamp_ms < L.NO_TIMESTAMP:
            raise UsageError(f"{timestamp_ms} ms is not a valid Kafka timestamp")
        has_offset = offset is not None
        if has_offset and not 0 <= offset < L.INT64_MAX:
            raise UsageError(f"{offset} is not an offset")
        record = Record(offset if has_offset else 0, timestamp_ms, key, value, headers or ())
        where = (topic, self._partition(topic, partition, record))
        append_time = self._options.append_time
        if append_time is None:
            append_time = timestamp_type == 1
        self._writer.add(where, record, has_offset=has_offset, append_time=append_time)

    def _partition(self, topic: str, partition: int | None, record: Record) -> int:
        count = self._counts[topic]
        if partition is not None:
            if not 0 <= partition <= INT_MAX:
                raise UsageError(f"{partition} is not a valid partition")
            if self._options.partitions is not None and partition >= count:
                raise UsageError(
                    f"a row of {topic} is for partition {partition}, but the topic has only {count}"
                )
            return partition
        key = record.key
        if key is not None:
            found = self._by_key.get((topic, key))
            if found is None:
                if len(self._by_key) >= 100_000:
                    self._by_key.clear()
                found = self._by_key[topic, key] = partition_for_key(key, count)
            return found
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._task % count
        elif not self._writer.fits((topic, sticky), record):
            sticky = (sticky + 1) % count
        self._sticky[topic] = sticky
        return sticky

    def _count(self, topic: str | None) -> None:
        if topic is None:
            raise UsageError("a row has no topic; set the option topic to use one topic for all rows")
        if not is_topic_name(topic):
            raise UsageError(f"{topic!r} is not a valid topic name")
        self._counts[topic] = self._options.partitions or self._there.get(topic, 1)


def _rows_of(batch: "RecordBatch", at: Mapping[str, int]) -> Iterator[Row]:
    """(key, value, topic, partition, offset, timestamp in µs, timestamp type, headers) of each row; None for missing columns."""
    nothing: list[Any] = [None] * batch.num_rows

    def of(name: str, kind: "pa.DataType | None" = None) -> list[Any]:
        if name not in at:
            return nothing
        column = batch.column(at[name])
        values: list[Any] = (column if kind is None else column.cast(kind)).to_pylist()
        return values

    timestamps = nothing
    if "timestamp" in at:
        column = batch.column(at["timestamp"])
        timestamps = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    yield from zip(
        of("key", pa.binary()),
        of("value", pa.binary()),
        of("topic"),
        of("partition"),
        of("offset"),
        timestamps,
        of("timestampType"),
        map(_headers, of("headers")),
        strict=True,
    )


def _headers(found: list[dict[str, Any] | None] | None) -> Headers:
    if not found:
        return ()
    made = []
    for header in found:
        if header is None or header["key"] is None:
            raise UsageError("a header has no name")
        made.append((header["key"].encode(), header["value"]))
    return tuple(made)
