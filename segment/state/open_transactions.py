"""The transactions that wait for their marker, ordered by their first offset (Kafka: a TreeMap).

Every marker needs the oldest open transaction of *another* producer. A batch that begins a transaction comes after all others, so the
transactions form a queue of columns, which `kernel.follow_producers` updates. Only in a damaged log can one begin before another that
was opened earlier. Those are in a heap, where ended ones stay until they reach the top or outnumber the others, so every call takes
logarithmic time on average.
"""

import heapq
from array import array
from bisect import bisect_left
from typing import NamedTuple

from kseg.segment import layout as L
from kseg.segment.kernel.follow_producers import (
    O_FIRST,
    O_IS_OPEN,
    O_PRODUCER,
    O_SINCE,
    OPEN_WIDTH,
    S_HEAD,
    S_TAIL,
)

UNSEEN_MS = -L.INT64_MAX - 1
_FIRST_ROOM = 16


class OpenPlace(NamedTuple):
    """An open transaction. since_ms: the maximum timestamp of the first batch of it that was read, UNSEEN_MS if none was."""

    first_offset: int
    producer_id: int
    since_ms: int


class OpenTransactions:
    """Producers by the first offset of their open transaction. cells, room: the queue (columns `O_…` of the kernel), whose head and tail
    are in `state`. is_in_order: whether all are in the queue."""

    __slots__ = ("_heap", "_late", "_state", "cells", "room")

    def __init__(self, state: memoryview) -> None:
        self._state = state
        self.room = 0
        self.cells = memoryview(array("q"))
        self._late: dict[int, OpenPlace] = {}
        self._heap: list[int] = []

    @property
    def is_in_order(self) -> bool:
        return not self._late

    def reserve(self) -> None:
        """Make room in the queue, more than half of it if it was full."""
        head, tail, room = self._state[S_HEAD], self._state[S_TAIL], self.room
        if tail < room:
            return
        rows = [row for row in range(head, tail) if self._cell(O_IS_OPEN, row)]
        wider = max(_FIRST_ROOM, room if 2 * len(rows) <= room else 2 * room)
        cells = memoryview(array("q", bytes(8 * OPEN_WIDTH * wider)))
        for field in range(OPEN_WIDTH):
            for at, row in enumerate(rows):
                cells[field * wider + at] = self._cell(field, row)
        self.cells, self.room = cells, wider
        self._state[S_HEAD], self._state[S_TAIL] = 0, len(rows)

    def add(self, first_offset: int, producer_id: int, since_ms: int = UNSEEN_MS) -> None:
        """Add an open transaction; it replaces one with the same first offset."""
        head, tail = self._state[S_HEAD], self._state[S_TAIL]
        row = self._row(first_offset)
        if row is not None:
            self._put(row, first_offset, producer_id, since_ms)
        elif not self._late and (head == tail or first_offset > self._cell(O_FIRST, tail - 1)):
            self.reserve()
            row = self._state[S_TAIL]
            self._put(row, first_offset, producer_id, since_ms)
            self._state[S_TAIL] = row + 1
        else:
            if first_offset not in self._late:
                heapq.heappush(self._heap, first_offset)
            self._late[first_offset] = OpenPlace(first_offset, producer_id, since_ms)

    def sort(self) -> None:
        """Put all transactions into the queue; those of a snapshot are unordered."""
        if self._late:
            places = self.in_order()
            self._late, self._heap = {}, []
            self._state[S_HEAD] = self._state[S_TAIL] = 0
            for place in places:
                self.add(*place)

    def see(self, first_offset: int, since_ms: int) -> None:
        """Record a batch of the transaction that begins at `first_offset`; only its first batch has an effect."""
        place = self.at(first_offset)
        if place is not None and place.since_ms == UNSEEN_MS:
            self.add(first_offset, place.producer_id, since_ms)

    def at(self, first_offset: int) -> OpenPlace | None:
        row = self._row(first_offset)
        return self._late.get(first_offset) if row is None else self._place(row)

    def remove(self, first_offset: int) -> bool:
        """Remove a transaction; returns whether there was one."""
        row = self._row(first_offset)
        if row is not None:
            self.cells[O_IS_OPEN * self.room + row] = 0
            self._settle_head()
            return True
        if self._late.pop(first_offset, None) is None:
            return False
        if len(self._heap) > 64 + 2 * len(self._late):
            self._heap = list(self._late)
            heapq.heapify(self._heap)
        return True

    def first(self) -> int | None:
        return self._first_but(None)

    def first_of_others(self, producer_id: int) -> int | None:
        """The smallest first offset of another producer; a producer has at most one."""
        return self._first_but(producer_id)

    def _first_but(self, producer_id: int | None) -> int | None:
        late = self._first_late(producer_id)
        for row in range(self._state[S_HEAD], self._state[S_TAIL]):
            if self._cell(O_IS_OPEN, row) and self._cell(O_PRODUCER, row) != producer_id:
                queued = self._cell(O_FIRST, row)
                return queued if late is None else min(queued, late)
        return late

    def _first_late(self, producer_id: int | None) -> int | None:
        heap, late = self._heap, self._late
        while heap and heap[0] not in late:
            heapq.heappop(heap)
        if not heap or late[heap[0]].producer_id != producer_id:
            return heap[0] if heap else None
        set_aside = heapq.heappop(heap)
        while heap and (heap[0] == set_aside or heap[0] not in late):
            heapq.heappop(heap)
        second = heap[0] if heap else None
        heapq.heappush(heap, set_aside)
        return second

    def in_order(self) -> list[OpenPlace]:
        rows = range(self._state[S_HEAD], self._state[S_TAIL])
        queued = [self._place(row) for row in rows if self._cell(O_IS_OPEN, row)]
        return sorted((*queued, *self._late.values()))

    def _row(self, first_offset: int) -> int | None:
        """The row of the queue with a transaction."""
        tail = self._state[S_TAIL]
        column = self.cells[O_FIRST * self.room : O_FIRST * self.room + tail]
        row = bisect_left(column, first_offset, self._state[S_HEAD])
        is_there = row < tail and column[row] == first_offset and self._cell(O_IS_OPEN, row)
        return row if is_there else None

    def _settle_head(self) -> None:
        """Drop ended transactions from the head of the queue."""
        head, tail = self._state[S_HEAD], self._state[S_TAIL]
        while head < tail and not self._cell(O_IS_OPEN, head):
            head += 1
        self._state[S_HEAD], self._state[S_TAIL] = (0, 0) if head == tail else (head, tail)

    def _cell(self, field: int, row: int) -> int:
        value: int = self.cells[field * self.room + row]
        return value

    def _place(self, row: int) -> OpenPlace:
        return OpenPlace(*(self._cell(field, row) for field in (O_FIRST, O_PRODUCER, O_SINCE)))

    def _put(self, row: int, first_offset: int, producer_id: int, since_ms: int) -> None:
        for field, value in enumerate((first_offset, producer_id, since_ms, 1)):
            self.cells[field * self.room + row] = value
