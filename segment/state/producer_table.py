"""The producer map as columns: an entry for each producer id, in int64 columns for the kernel.

Field names are those of `kernel.follow_producers`; their meaning is that of a snapshot's entry. The map keeps the order in
which producers became known, as Java's HashMap does within a bucket.
"""

from array import array
from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import follow_producers as P
from kseg.segment.kernel.follow_producers import (
    BATCH_TIMESTAMP,
    COORDINATOR_EPOCH,
    EPOCH,
    FIRST_OFFSET,
    IS_OPEN,
    LAST_OFFSET,
    LAST_SEQUENCE,
    OFFSET_DELTA,
    TIMESTAMP,
)

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import ReadableBuffer
    from kseg.segment.state.open_transactions import OpenTransactions

NO_COORDINATOR_EPOCH = -1
NO_OFFSET = -1

_FIRST_ROOM = 16
_UNSET = -L.INT64_MAX - 1


class ProducerTable:
    """Slots by producer id, and the fields of each slot. width: number of fields; those that the kernel does not use begin at -1."""

    __slots__ = ("_free", "_width", "cells", "room", "slot_of")

    def __init__(self, width: int = P.WIDTH) -> None:
        self.slot_of: dict[int, int] = {}
        self._width = width
        self.room = _FIRST_ROOM
        self.cells = memoryview(array("q", bytes(8 * width * _FIRST_ROOM)))
        self._free = list(range(_FIRST_ROOM))

    def get(self, slot: int, field: int) -> int:
        value: int = self.cells[field * self.room + slot]
        return value

    def fields(self, slot: int) -> list[int]:
        """All fields of a slot, by name."""
        return self.cells[slot :: self.room].tolist()

    def set(self, slot: int, field: int, value: int) -> None:
        self.cells[field * self.room + slot] = value

    def add(self, producer_id: int) -> int:
        """Add an empty slot for a new producer."""
        if not self._free:
            self._grow()
        slot = self.slot_of[producer_id] = self._free.pop()
        self.set(slot, EPOCH, L.NO_PRODUCER_EPOCH)
        self.set(slot, COORDINATOR_EPOCH, NO_COORDINATOR_EPOCH)
        self.set(slot, TIMESTAMP, L.NO_TIMESTAMP)
        self.set(slot, IS_OPEN, 0)
        self.set(slot, FIRST_OFFSET, NO_OFFSET)
        self.forget_batch(slot)
        for field in range(P.WIDTH, self._width):
            self.set(slot, field, -1)
        return slot

    def drop(self, producer_id: int) -> None:
        self._free.append(self.slot_of.pop(producer_id))

    def forget_batch(self, slot: int) -> None:
        self.set(slot, LAST_SEQUENCE, L.NO_SEQUENCE)
        self.set(slot, LAST_OFFSET, NO_OFFSET)
        self.set(slot, OFFSET_DELTA, 0)
        self.set(slot, BATCH_TIMESTAMP, L.NO_TIMESTAMP)

    def enter_epoch(self, slot: int, epoch: int) -> None:
        """Change the epoch, which discards the last batch."""
        if epoch != self.get(slot, EPOCH):
            self.forget_batch(slot)
            self.set(slot, EPOCH, epoch)

    def transaction_first_offset(self, slot: int) -> int | None:
        """First offset of the open transaction, None if none is open."""
        return self.get(slot, FIRST_OFFSET) if self.get(slot, IS_OPEN) else None

    def set_transaction(self, slot: int, first_offset: int | None, *, is_seen: bool = True) -> None:
        """is_seen: one of its batches was read."""
        self.set(slot, IS_OPEN, 0 if first_offset is None else 1 if is_seen else 2)
        self.set(slot, FIRST_OFFSET, NO_OFFSET if first_offset is None else first_offset)

    def follow(self, table: Columns, first: int, stop: int) -> tuple[int, int | None]:
        """Apply the rows of a table of batches while known producers simply continue; the caller handles the start and end of transactions.

        Returns the first row that needs a closer look (`stop` if none does) and the last offset of the newest batch
        of magic 2 before it, None if there was none.
        """
        state = memoryview(array("q", (_UNSET, *bytes(P.S_WIDTH - 1))))
        row = P.follow(
            b"", *table.raw, first, stop, self.slot_of, self.cells, self.room, state, 0, state, 0, 0, state
        )
        return row, _last_offset(table, first, row, state[P.S_LAST])

    def follow_transactions(
        self,
        view: "ReadableBuffer",
        table: Columns,
        first: int,
        stop: int,
        opened: "OpenTransactions",
        markers: Columns,
        replicated: int,
        state: memoryview,
    ) -> tuple[int, int | None]:
        """Like `follow`, but including transactions that begin and end. view: the whole file. opened: the queue of open ones, with its
        ends in `state`. markers: filled from row `markers.count` on (columns `M_…` of the kernel). replicated: markers at or above it are
        left to the caller."""
        state[P.S_LAST], state[P.S_MARKERS] = _UNSET, markers.count
        row = P.follow(
            view,
            *table.raw,
            first,
            stop,
            self.slot_of,
            self.cells,
            self.room,
            opened.cells,
            opened.room,
            *markers.raw,
            replicated,
            state,
        )
        markers.count = state[P.S_MARKERS]
        return row, _last_offset(table, first, row, state[P.S_LAST])

    def _grow(self) -> None:
        room = 2 * self.room
        cells = memoryview(array("q", bytes(8 * self._width * room)))
        for field in range(self._width):
            cells[field * room : field * room + self.room] = self.cells[
                field * self.room : (field + 1) * self.room
            ]
        self._free = list(range(self.room, room))
        self.cells, self.room = cells, room


def _last_offset(table: Columns, first: int, stop: int, last: int) -> int | None:
    """What the kernel has noted as the last offset, None if no row in the range is of magic 2; a damaged batch may claim the offset that
    stands for "none"."""
    if last != _UNSET or max(table.column(C.MAGIC)[first:stop], default=-1) >= L.MAGIC_V2:
        return last
    return None
