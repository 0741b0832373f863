"""Record headers as an Arrow column: a list of (name, value) per record, null for a record without headers.

Names are text in Arrow and bytes in Kafka's format. Invalid UTF-8 is decoded as Java decodes it, with replacement characters;
such names are rare enough to be handled one by one.
"""

from array import array

import pyarrow as pa

from kseg.inspection.arrow.arrow_schema import HEADERS_TYPE
from kseg.inspection.arrow.batch_columns import Column, Rows, allocate, allocate_zeroed
from kseg.segment import header_tables as C
from kseg.segment.kernel import arrow_headers as H
from kseg.segment.layout import INT64_MAX


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
