"""The offset map of a second pass over one group of segments, when other tasks have found the superseded records.

It has one bit for each offset of the group, set if the record is superseded. To a pass (`KeyJudge`) it looks like a map with a single
key, whose latest offset is above all others: `hash` gives that key to superseded records, and one that is not in the map to the
others. So the second pass needs no changes.

Memory: the offsets that a group spans, divided by eight; pages without superseded records cost nothing.
"""

from array import array

from kseg.segment import layout as L
from kseg.segment.kernel import key_exchange as R
from kseg.segment.memory import PrivateMemory
from kseg.segment.scanning.decode import RECORDS_PER_TABLE, Chunk

_MAX_OFFSETS = L.INT32_MAX + 1  # the maximum of one segment


class Survivors:
    """The map of the group with the offsets from `base_offset` to before `bound`.

    latest_offset: records above it are kept.
    """

    def __init__(self, base_offset: int, bound: int, latest_offset: int) -> None:
        self._base = base_offset
        self._memory = PrivateMemory(max(1, min(bound - base_offset, _MAX_OFFSETS) // 8 + 1))
        self.words = memoryview(array("q", bytes(16 * RECORDS_PER_TABLE)))
        self.slots = memoryview(array("q", [0, 0, 0, R.LATER, 0, L.INT64_MAX]))
        self.slot_count = 2
        self.latest_offset = latest_offset

    def supersede(self, offsets: bytes) -> None:
        """Mark the records at these offsets as superseded."""
        numbers = memoryview(offsets).cast("q")
        done = R.mark_offsets(numbers, len(numbers), self._base, self._memory.view)
        assert done == len(numbers)

    def hash(self, chunk: Chunk) -> bool:
        records = chunk.records
        cells, capacity, count = records.cells, records.capacity, records.count
        size = memoryview(chunk.body).nbytes
        done = R.look_up(size, cells, capacity, count, self._base, self._memory.view, self.words)
        return done == count

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()
