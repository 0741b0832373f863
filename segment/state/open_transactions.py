"""The transactions that wait for their marker, ordered by their first offset (Kafka: a TreeMap).

Every marker asks for the oldest transaction of *another* producer. A sorted list would make a log with many open
transactions take quadratic time; so the offsets stand in a heap, those that ended stay there until they come up or
outnumber the others, and every call takes logarithmic time on average.
"""

import heapq


class OpenTransactions:
    """Producer ids by the first offset of their open transaction."""

    __slots__ = ("_heap", "_producer_ids")

    def __init__(self) -> None:
        self._producer_ids: dict[int, int] = {}
        self._heap: list[int] = []

    def add(self, first_offset: int, producer_id: int) -> None:
        if first_offset not in self._producer_ids:
            heapq.heappush(self._heap, first_offset)
        self._producer_ids[first_offset] = producer_id

    def remove(self, first_offset: int) -> bool:
        """Whether there was one."""
        if self._producer_ids.pop(first_offset, None) is None:
            return False
        if len(self._heap) > 64 + 2 * len(self._producer_ids):
            self._heap = list(self._producer_ids)
            heapq.heapify(self._heap)
        return True

    def first(self) -> int | None:
        while self._heap and self._heap[0] not in self._producer_ids:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def first_of_others(self, producer_id: int) -> int | None:
        """The smallest first offset of another producer; a producer has at most one."""
        smallest = self.first()
        if smallest is None or self._producer_ids[smallest] != producer_id:
            return smallest
        set_aside = heapq.heappop(self._heap)
        while self._heap and self._heap[0] == set_aside:
            heapq.heappop(self._heap)
        second = self.first()
        heapq.heappush(self._heap, set_aside)
        return second

    def in_order(self) -> list[tuple[int, int]]:
        return sorted(self._producer_ids.items())
