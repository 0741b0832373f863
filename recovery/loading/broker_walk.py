"""How a broker walks a `.log` to find an offset: by headers alone, without checksums.

The walk is that of FileLogInputStream (fact sheet §2.4), from any position that an index entry names, valid or not. It ends
silently where less than a header or less than a batch is left, and throws on a size field below the minimum. Callers
ask three questions about the batches on the way (FileRecords, AbstractRecords):

    search      the first batch that starts at the target; otherwise, at the first one after it, the previous one if that
                reaches the target; at the end, the last one if that does
    last        the last batch
    largest     the largest timestamp and the last offset of the first batch that has it

A truncated header of magic 2 can be walked over, but reading its fields throws (KafkaException).
"""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from kseg.recovery.loading.kafka_exceptions import CORRUPT, ILLEGAL_ARGUMENT, KAFKA, BrokerException
from kseg.recovery.loading.wrapper_offsets import first_offset
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import FULL, HEADER_CUT, TOO_SMALL, walk

_FIRST_TABLE = 32
_LARGEST_TABLE = 4096
_GROWTH = 8
_CUT = -2  # in VALID: the header of this row extends beyond the end of the file


class WalkedBatch(NamedTuple):
    """One batch of a walk. base_offset: as determined by a search, otherwise as stored. last_offset: None when its header is truncated."""

    base_offset: int
    position: int
    size_bytes: int
    last_offset: int | None


class LogWalk:
    """Walks over the bytes of one segment. view: the whole file. name: for messages."""

    def __init__(self, view: memoryview, name: str) -> None:
        self.view = view
        self.name = name

    def tables(self, position: int, end: int | None = None) -> Iterator[Columns]:
        """The batches from `position` to `end`; a table is valid until the next."""
        if position < 0:
            raise BrokerException(
                ILLEGAL_ARGUMENT, f"an index entry points to position {position} of {self.name}"
            )
        stop = len(self.view) if end is None else end
        capacity = _FIRST_TABLE
        table = Columns(C.BATCH_WIDTH, capacity)
        state = memoryview(array("q", [position, 0]))
        while True:
            reason = walk(self.view, stop, table.cells, table.capacity, state)
            table.count = state[S.BATCHES_COUNT]
            if table.count:
                yield table
            if reason == HEADER_CUT:
                yield self._cut_header(state[S.BATCHES_END])
                state[S.BATCHES_END] += L.ENTRY_OVERHEAD + self._size_field(state[S.BATCHES_END])
            elif reason == TOO_SMALL:
                sentence = f"{self.name} has a size field of {self._size_field(state[S.BATCHES_END])} at position {state[S.BATCHES_END]}"
                raise BrokerException(CORRUPT, sentence)
            elif reason != FULL:
                return
            if capacity < _LARGEST_TABLE:
                capacity *= _GROWTH
                table = Columns(C.BATCH_WIDTH, capacity)

    def search(self, target: int, position: int) -> WalkedBatch | None:
        """The batch from `position` on that contains `target`, else the first one after it."""
        before: WalkedBatch | None = None
        for table in self.tables(position):
            row = self._first_at_or_after(table, target)
            if row:
                before = _walked(table, row - 1, self.base_offset(table, row - 1))
            if row < table.count:
                found = _walked(table, row, self.base_offset(table, row))
                if found.base_offset == target or before is None or self._look_into(before) < target:
                    return found
                return before
        return before if before is not None and self._look_into(before) >= target else None

    def last_offset(self, position: int, end: int) -> int | None:
        """The last offset of the last batch, None when there is none."""
        last: WalkedBatch | None = None
        for table in self.tables(position, end):
            last = _walked(table, table.count - 1)
        return None if last is None else self._look_into(last)

    def largest_timestamp(self, position: int) -> tuple[int, int]:
        """(largest timestamp from `position` on, last offset of its batch); (-1, -1) if no timestamp exceeds -1."""
        largest, offset = L.NO_TIMESTAMP, -1
        for table in self.with_headers(position):
            for row, timestamp in enumerate(table.column(C.MAX_TIMESTAMP)):
                if timestamp > largest:
                    largest, offset = timestamp, table.at(C.LAST_OFFSET, row)
        return largest, offset

    def with_headers(self, position: int, end: int | None = None) -> Iterator[Columns]:
        """Like `tables`, for callers that read every header."""
        for table in self.tables(position, end):
            self._look_into(_walked(table, 0))
            yield table

    def base_offset(self, table: Columns, row: int) -> int:
        """The first offset. For a wrapper of an old format only its inner messages contain it, and reading them may throw."""
        if not _is_wrapper(table, row):
            return table.at(C.BASE_OFFSET, row)
        position = table.at(C.POSITION, row)
        message = self.view[position : position + table.at(C.SIZE, row)]
        return first_offset(message, f"the message at position {position} of {self.name}")

    def _first_at_or_after(self, table: Columns, target: int) -> int:
        """The first row whose first offset is not below `target`, or the row count. Determines the first offset of one row at a time."""
        bases = table.column(C.BASE_OFFSET)
        if min(table.column(C.MAGIC)) >= L.MAGIC_V2:
            if max(bases) < target:
                return table.count
            return next(row for row, base in enumerate(bases) if base >= target)
        for row in range(table.count):
            if self.base_offset(table, row) >= target:
                return row
        return table.count

    def _look_into(self, batch: WalkedBatch) -> int:
        if batch.last_offset is None:
            raise BrokerException(
                KAFKA, f"the batch header at position {batch.position} of {self.name} is truncated"
            )
        return batch.last_offset

    def _cut_header(self, position: int) -> Columns:
        table = Columns(C.BATCH_WIDTH, 1)
        table.count = 1
        table.cells[C.POSITION] = position
        table.cells[C.SIZE] = L.ENTRY_OVERHEAD + self._size_field(position)
        table.cells[C.MAGIC] = L.MAGIC_V2
        base = int.from_bytes(self.view[position : position + 8], "big", signed=True)
        table.cells[C.BASE_OFFSET] = base
        table.cells[C.VALID] = _CUT
        return table

    def _size_field(self, position: int) -> int:
        return self._int_at(position + 8)

    def _int_at(self, position: int) -> int:
        return int.from_bytes(self.view[position : position + 4], "big", signed=True)


def _walked(table: Columns, row: int, base_offset: int | None = None) -> WalkedBatch:
    return WalkedBatch(
        table.at(C.BASE_OFFSET, row) if base_offset is None else base_offset,
        table.at(C.POSITION, row),
        table.at(C.SIZE, row),
        None if table.at(C.VALID, row) == _CUT else table.at(C.LAST_OFFSET, row),
    )


def _is_wrapper(table: Columns, row: int) -> bool:
    return table.at(C.MAGIC, row) < L.MAGIC_V2 and bool(table.at(C.ATTRIBUTES, row) & L.CODEC_MASK)
