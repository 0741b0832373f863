"""Column builders of one Arrow batch: each appends rows of a chunk and returns an array.

Buffers are allocated for the maximum number of rows of a batch and handed to Arrow without a copy; the unused part is never touched, so it
takes no memory. A column whose values are the same for a whole file is one array, of which each batch takes a slice.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from struct import calcsize
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import arrow_gather as G
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.segment.scanning.decode import Chunk


@dataclass(frozen=True, slots=True)
class BatchOrigin:
    """What all records of a file share. path: as shown, topic: as the directory names it."""

    path: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows first … stop − 1 of a chunk's records; their batches are in `table`."""

    chunk: "Chunk"
    table: Columns
    first: int
    stop: int

    @property
    def of_kernel(self) -> G.RecordRows:
        """The same rows in the form that kernels expect."""
        table, records = self.table, self.chunk.records
        return G.RecordRows(
            table.cells, table.capacity, records.cells, records.capacity, self.first, self.stop
        )


# a kernel that fills a column, called with the rows, the view, and the number of values already there
Fill = Callable[[Rows, memoryview, int], int]
Code = Literal["B", "i", "q"]


class Column(ABC):
    """One column of a batch. `capacity`: the most rows it can hold."""

    @abstractmethod
    def start(self, capacity: int, max_value_bytes: int) -> None:
        """Begin a new batch. max_value_bytes: the most bytes of keys and values together."""

    @abstractmethod
    def append_rows(self, rows: Rows, at: int) -> None:
        """Append rows after the first `at` rows."""

    @abstractmethod
    def array(self, count: int) -> pa.Array:
        """The array of all `count` rows."""


def allocate(size_bytes: int) -> tuple[pa.Buffer, memoryview]:
    """Allocate an Arrow buffer and return it with a view to fill it."""
    buffer = pa.allocate_buffer(size_bytes)
    return buffer, memoryview(buffer).cast("B")


def allocate_zeroed(size_bytes: int) -> tuple[pa.Buffer, memoryview]:
    buffer, view = allocate(size_bytes)
    view[:] = bytes(size_bytes)
    return buffer, view


class ConstantColumn(Column):
    """A constant value for all rows of a file."""

    def __init__(self, arrow_type: pa.DataType, value: object) -> None:
        self._kind = arrow_type
        self._value = value
        self._repeated = pa.array([], arrow_type)

    def start(self, capacity: int, max_value_bytes: int) -> None:
        pass

    def append_rows(self, rows: Rows, at: int) -> None:
        pass

    def array(self, count: int) -> pa.Array:
        if count > len(self._repeated):
            self._repeated = pa.repeat(pa.scalar(self._value, self._kind), count)
        return self._repeated.slice(0, count)


class NumberColumn(Column):
    """Numbers of fixed width, written by a kernel. fill: takes the rows, the view and the row at which to continue."""

    def __init__(self, arrow_type: pa.DataType, code: Code, fill: Fill) -> None:
        self._kind = arrow_type
        self._code: Code = code
        self._fill = fill
        self._width = calcsize(code)

    def start(self, capacity: int, max_value_bytes: int) -> None:
        self._buffer, view = allocate(self._width * capacity)
        self._view = view.cast(self._code)

    def append_rows(self, rows: Rows, at: int) -> None:
        self._fill(rows, self._view, at)

    def array(self, count: int) -> pa.Array:
        return pa.Array.from_buffers(self._kind, count, [None, self._buffer.slice(0, self._width * count)], 0)


class BooleanColumn(Column):
    """Booleans, one bit each."""

    def __init__(self, fill: Fill) -> None:
        self._fill = fill

    def start(self, capacity: int, max_value_bytes: int) -> None:
        self._buffer, self._view = allocate_zeroed((capacity + 7) // 8)

    def append_rows(self, rows: Rows, at: int) -> None:
        self._fill(rows, self._view, at)

    def array(self, count: int) -> pa.Array:
        return pa.Array.from_buffers(pa.bool_(), count, [None, self._buffer], 0)


class CodecColumn(Column):
    """Codec names. Most batches have only one."""

    def __init__(self) -> None:
        self._numbers = NumberColumn(
            pa.uint8(), "B", lambda rows, out, at: G.spread_codecs(rows.of_kernel, out, at)
        )
        self._names = pa.array([L.codec_name(codec) for codec in range(L.CODEC_MASK + 1)])
        self._same = [ConstantColumn(pa.string(), name) for name in self._names.to_pylist()]

    def start(self, capacity: int, max_value_bytes: int) -> None:
        self._numbers.start(capacity, max_value_bytes)

    def append_rows(self, rows: Rows, at: int) -> None:
        self._numbers.append_rows(rows, at)

    def array(self, count: int) -> pa.Array:
        numbers = self._numbers.array(count)
        codes = numbers.buffers()[1].to_pybytes() if count else b""
        if codes and codes.count(codes[0]) == count:
            return self._same[codes[0]].array(count)
        return pa.DictionaryArray.from_arrays(numbers, self._names).dictionary_decode()


class BytesColumn(Column):
    """Keys or values. field: the column of the table of records that has their positions."""

    def __init__(self, field: int) -> None:
        self._field = field

    def start(self, capacity: int, max_value_bytes: int) -> None:
        self._filled = 0
        self._data, self._view = allocate(max_value_bytes)
        self._flags, self._flag_view = allocate_zeroed((capacity + 7) // 8)
        self._ends, ends = allocate(4 * (capacity + 1))
        self._end_view = ends.cast("i")
        self._end_view[0] = 0

    def append_rows(self, rows: Rows, at: int) -> None:
        self._filled = G.gather_bytes(
            rows.chunk.body,
            rows.of_kernel,
            self._field,
            self._view,
            self._filled,
            self._end_view,
            self._flag_view,
            at,
        )

    def array(self, count: int) -> pa.Array:
        buffers = [self._flags, self._ends.slice(0, 4 * (count + 1)), self._data.slice(0, self._filled)]
        return pa.Array.from_buffers(pa.binary(), count, buffers)


# --- filled by kernels


def of_records(field: int, arrow_type: pa.DataType) -> NumberColumn:
    """A column with one number per record."""
    is_long = arrow_type == pa.int64()
    gather = G.gather_longs if is_long else G.gather_ints
    return NumberColumn(
        arrow_type, "q" if is_long else "i", lambda rows, out, at: gather(rows.of_kernel, field, out, at)
    )


def of_batches(field: int, arrow_type: pa.DataType) -> NumberColumn:
    """A column with one number per batch, repeated for its records."""
    is_long = arrow_type == pa.int64()
    spread = G.spread_longs if is_long else G.spread_ints
    return NumberColumn(
        arrow_type,
        "q" if is_long else "i",
        lambda rows, out, at: spread(rows.of_kernel, field, out, at),
    )


def times(arrow_type: pa.DataType) -> NumberColumn:
    return NumberColumn(arrow_type, "q", lambda rows, out, at: G.gather_times(rows.of_kernel, out, at))


def time_types() -> NumberColumn:
    return NumberColumn(pa.int32(), "i", lambda rows, out, at: G.spread_time_types(rows.of_kernel, out, at))


def checksums() -> NumberColumn:
    return NumberColumn(pa.int64(), "q", lambda rows, out, at: G.spread_checksums(rows.of_kernel, out, at))


def attribute(bit: int) -> BooleanColumn:
    return BooleanColumn(lambda rows, out, at: G.spread_flags(rows.of_kernel, bit, out, at))


def validity() -> BooleanColumn:
    return BooleanColumn(lambda rows, out, at: G.spread_validity(rows.of_kernel, out, at))


def printable(text: str) -> str:
    """A path or name as text that can be written as UTF-8, whatever bytes the file system had for it."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def meta_column(name: str, origin: BatchOrigin) -> Column:
    """The member `name` of `_meta`."""
    makers: dict[str, Callable[[], Column]] = {
        "file": lambda: ConstantColumn(pa.string(), printable(origin.path)),
        "position": lambda: of_batches(C.POSITION, pa.int64()),
        "base_offset": lambda: of_batches(C.BASE_OFFSET, pa.int64()),
        "leader_epoch": lambda: of_batches(C.LEADER_EPOCH, pa.int32()),
        "producer_id": lambda: of_batches(C.PRODUCER_ID, pa.int64()),
        "producer_epoch": lambda: of_batches(C.PRODUCER_EPOCH, pa.int32()),
        "sequence": lambda: of_records(C.R_SEQUENCE, pa.int32()),
        "transactional": lambda: attribute(L.TRANSACTIONAL_BIT),
        "control": lambda: attribute(L.CONTROL_BIT),
        "codec": CodecColumn,
        "crc": checksums,
        "valid": validity,
    }
    return makers[name]()
