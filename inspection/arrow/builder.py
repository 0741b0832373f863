"""Build Arrow batches from chunks of records, bounded in rows and in bytes.

1. Rows of chunks are appended to the requested columns, chunk after chunk, so that one Arrow batch holds many small
   compressed Kafka batches.
2. Before rows are appended the kernel counts how many still fit. When none fits, the batch is emitted and the next
   one starts. A record larger than the bound gets a batch of its own, as large as it needs.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kseg.inspection.arrow import batch_columns as A
from kseg.inspection.arrow.arrow_schema import HEADERS_TYPE, META
from kseg.inspection.arrow.batch_columns import BatchOrigin, Column, Rows, allocate, allocate_zeroed
from kseg.segment import header_tables as C
from kseg.segment.kernel import arrow_gather as G
from kseg.segment.kernel import arrow_headers as H
from kseg.segment.layout import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from kseg.segment.header_tables import Columns
    from kseg.segment.scanning.decode import Chunk


class BatchBuilder:
    """Makes batches of one file's records. schema: columns of RECORD_SCHEMA, `_meta` with any of its members.

    max_rows, max_bytes: of a batch; the bytes are those of keys and values, and again those of headers.
    """

    def __init__(self, schema: pa.Schema, origin: BatchOrigin, max_rows: int, max_bytes: int) -> None:
        self.schema = schema
        self._max_rows = max_rows
        self._max_bytes = min(max_bytes, INT32_MAX)
        self._columns = [_column(field, origin) for field in schema]
        self._with_key = schema.get_field_index("key") >= 0
        self._with_value = schema.get_field_index("value") >= 0
        self._headers = next((column for column in self._columns if isinstance(column, HeadersColumn)), None)
        self._count = 0
        self._has_started = False
        self._remaining_bytes = memoryview(array("q", [0]))

    def append_rows(self, chunk: "Chunk", table: "Columns", count: int) -> Iterator[pa.RecordBatch]:
        """Append the first `count` rows of a chunk, whose batches are rows of `table`; yields full batches."""
        records = chunk.records
        first = 0
        while first < count:
            if not self._has_started:
                self._start(self._max_bytes)
            stop = min(count, first + self._max_rows - self._count)
            stop = self._within(Rows(chunk, table, first, stop))
            if stop == first:
                if self._count:
                    yield self._finished()
                else:
                    self._start(self._size_of(records, first))
                    self._append(Rows(chunk, table, first, first + 1))
                    first += 1
                    yield self._finished()
                continue
            self._append(Rows(chunk, table, first, stop))
            first = stop
            if self._count == self._max_rows:
                yield self._finished()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The last batch, if any rows remain."""
        if self._count:
            yield self._finished()

    def _start(self, room_bytes: int) -> None:
        for column in self._columns:
            column.start(self._max_rows, room_bytes)
        self._count, self._has_started = 0, True
        self._remaining_bytes[0] = room_bytes

    def _within(self, rows: Rows) -> int:
        if self._headers is not None:
            rows = replace(rows, stop=self._headers.within(rows))
        return G.rows_within(rows.of_kernel, self._with_key, self._with_value, self._remaining_bytes)

    def _size_of(self, records: "Columns", row: int) -> int:
        key = max(0, records.at(C.R_KEY_LENGTH, row)) if self._with_key else 0
        value = max(0, records.at(C.R_VALUE_LENGTH, row)) if self._with_value else 0
        return key + value

    def _append(self, rows: Rows) -> None:
        for column in self._columns:
            column.append_rows(rows, self._count)
        self._count += rows.stop - rows.first

    def _finished(self) -> pa.RecordBatch:
        arrays = [column.array(self._count) for column in self._columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self._count, self._has_started = 0, False
        return batch


class StructColumn(Column):
    """`_meta`: a struct of columns, never null."""

    def __init__(self, fields: Sequence[pa.Field], columns: Sequence[Column]) -> None:
        self._fields = list(fields)
        self._columns = columns

    def start(self, capacity: int, max_value_bytes: int) -> None:
        for column in self._columns:
            column.start(capacity, 0)

    def append_rows(self, rows: Rows, at: int) -> None:
        for column in self._columns:
            column.append_rows(rows, at)

    def array(self, count: int) -> pa.Array:
        arrays = [column.array(count) for column in self._columns]
        return pa.StructArray.from_arrays(arrays, fields=self._fields)


def _column(field: pa.Field, origin: BatchOrigin) -> Column:
    match field.name:
        case "key":
            return A.BytesColumn(C.R_KEY_START)
        case "value":
            return A.BytesColumn(C.R_VALUE_START)
        case "topic":
            return A.ConstantColumn(pa.string(), A.printable(origin.topic))
        case "partition":
            return A.ConstantColumn(pa.int32(), origin.partition)
        case "offset":
            return A.of_records(C.R_OFFSET, pa.int64())
        case "timestamp":
            return A.times(field.type)
        case "timestampType":
            return A.time_types()
        case "headers":
            return HeadersColumn()
        case name if name == META:
            members = list(field.type)
            return StructColumn(members, [A.meta_column(member.name, origin) for member in members])
    raise ValueError(f"unknown column: {field.name}")


class HeadersColumn(Column):
    """The headers of the rows of a batch, an array for each chunk that they came from."""

    def __init__(self) -> None:
        self._sums = memoryview(array("q", [0, 0, 0]))
        self._measured = 0, 0  # first and stop of the rows that were summed

    def start(self, capacity: int, max_value_bytes: int) -> None:
        self._parts: list[pa.Array] = []
        self._remaining_bytes = max_value_bytes

    def within(self, rows: Rows) -> int:
        """The end of the leading rows whose headers still fit. These rows are appended next, as far as their other columns fit."""
        return self._measure(rows, self._remaining_bytes)

    def append_rows(self, rows: Rows, at: int) -> None:
        body = rows.chunk.body
        if self._measured != (rows.first, rows.stop):
            self._measure(rows, INT64_MAX)
        count, name_bytes, value_bytes = self._sums
        self._remaining_bytes -= name_bytes + value_bytes
        if not count:
            self._parts.append(pa.nulls(rows.stop - rows.first, HEADERS_TYPE))
            return
        ends, end_view = allocate(4 * (rows.stop - rows.first + 1))
        names, name_view = allocate(name_bytes)
        name_ends, name_end_view = allocate(4 * (count + 1))
        values, value_view = allocate(value_bytes)
        value_ends, value_end_view = allocate(4 * (count + 1))
        value_flags, value_flag_view = allocate_zeroed((count + 7) // 8)
        H.gather_headers(
            body,
            rows.of_kernel,
            end_view.cast("i"),
            name_view,
            name_end_view.cast("i"),
            value_view,
            value_end_view.cast("i"),
            value_flag_view,
        )
        members = [
            _as_text(pa.Array.from_buffers(pa.binary(), count, [None, name_ends, names], 0)),
            pa.Array.from_buffers(pa.binary(), count, [value_flags, value_ends, values]),
        ]
        pairs = pa.StructArray.from_arrays(members, fields=list(HEADERS_TYPE.value_type))
        self._parts.append(
            pa.Array.from_buffers(
                HEADERS_TYPE, rows.stop - rows.first, [_present(rows), ends], children=[pairs]
            )
        )

    def _measure(self, rows: Rows, max_bytes: int) -> int:
        stop = H.measure_headers(rows.chunk.body, rows.of_kernel, max_bytes, self._sums)
        self._measured = rows.first, stop
        return stop

    def array(self, count: int) -> pa.Array:
        if len(self._parts) == 1:
            return self._parts[0]
        return pa.concat_arrays(self._parts) if self._parts else pa.array([], HEADERS_TYPE)


def _present(rows: Rows) -> pa.Buffer:
    counts = rows.chunk.records.column(C.R_HEADER_COUNT)[rows.first : rows.stop]
    return pa.array([count > 0 for count in counts], pa.bool_()).buffers()[1]


def _as_text(names: pa.Array) -> pa.Array:
    text = names.view(pa.string())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
    return text
