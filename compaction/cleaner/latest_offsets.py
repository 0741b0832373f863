"""A bitmap of the offsets in a full offset map: cheaper to query than the map when the map covers the whole log.

A record of the mapped range is the latest of its key if the map contains exactly its offset. So after the first pass one scan of
the map clears the bits of these offsets in a bitmap of ones; the second pass reads the bitmap sequentially, instead of hashing
every key again and probing the map at random.

The map itself still answers for records that were not put into it: batches next to those that the first pass treated as aborted. No
bitmap is built if there are records before the range (for whose keys the map has later offsets), if offsets were not put in
ascending order, if they are too sparse, or if the map is so small that scanning it costs more than it gains.
"""

from array import array
from bisect import bisect_left
from functools import cached_property
from itertools import accumulate

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.kernel import key_exchange as R
from kseg.segment.memory import PrivateMemory
from kseg.segment.scanning.decode import RECORDS_PER_TABLE, Chunk
from kseg.segment.state.offset_map import KeyLookup, OffsetMap

_MAX_BITMAP_BYTES = 32 << 20
_COUNTED_BYTES = 4096
_MIN_SHARE = 16  # at least one in this many slots must be in use


def fastest_lookup(offset_map: OffsetMap, first_offset: int) -> "KeyLookup | LatestOffsets":
    """The faster lookup for records from `first_offset` on: the map itself, or a bitmap built from it."""
    span_bytes = (offset_map.latest_offset - offset_map.start_offset) // 8 + 1
    if (
        offset_map.start_offset > first_offset
        or not offset_map.is_ordered
        or span_bytes > _MAX_BITMAP_BYTES
        or offset_map.size * _MIN_SHARE < offset_map.slot_count
    ):
        return offset_map
    bits = PrivateMemory(span_bytes)
    bits.view[:] = b"\xff" * span_bytes
    done = R.spare_latest(offset_map.slots, offset_map.slot_count, offset_map.start_offset, bits.view)
    if done < offset_map.slot_count:  # a record whose offset is beyond the end of its batch
        bits.close()
        return offset_map
    return LatestOffsets(offset_map, bits)


class LatestOffsets:
    """A `KeyLookup` that uses a bitmap where it covers the offsets, otherwise the map. bits: from the map's start offset on."""

    def __init__(self, offset_map: OffsetMap, bits: PrivateMemory) -> None:
        self._map = offset_map
        self._memory = bits
        self._base = offset_map.start_offset
        self._skipped = [last for _, last in offset_map.skipped_ranges]
        self._words = memoryview(array("q", bytes(16 * RECORDS_PER_TABLE)))
        self._two_slots = memoryview(array("q", [0, 0, 0, R.LATER, 0, L.INT64_MAX]))
        self.latest_offset = offset_map.latest_offset
        self.words, self.slots, self.slot_count = self._words, self._two_slots, 2

    def hash(self, chunk: Chunk) -> bool:
        records = chunk.records
        cells, capacity, count = records.cells, records.capacity, records.count
        if count and self._is_skipped(records.at(C.R_OFFSET, 0), records.at(C.R_OFFSET, count - 1)):
            probed = self._map
            self.words, self.slots, self.slot_count = probed.words, probed.slots, probed.slot_count
            return probed.hash(chunk)
        self.words, self.slots, self.slot_count = self._words, self._two_slots, 2
        size = memoryview(chunk.body).nbytes
        return R.look_up(size, cells, capacity, count, self._base, self._memory.view, self.words) == count

    def _is_skipped(self, first_offset: int, last_offset: int) -> bool:
        at = bisect_left(self._skipped, first_offset)
        return at < len(self._skipped) and self._map.skipped_ranges[at][0] <= last_offset

    def kept_below(self, offset: int) -> int:
        """The number of latest records of their keys that the map has below an offset."""
        bits = max(0, min(8 * len(self._memory.view), offset - self._base))
        blocks, rest = divmod(bits, 8 * _COUNTED_BYTES)
        start = blocks * _COUNTED_BYTES
        last = int.from_bytes(self._memory.view[start : start + _COUNTED_BYTES], "little") & ((1 << rest) - 1)
        return self._kept_before[blocks] + rest - last.bit_count()

    @cached_property
    def _kept_before(self) -> list[int]:
        """The number of kept records before each block of the bitmap."""
        view = self._memory.view
        blocks = (view[at : at + _COUNTED_BYTES] for at in range(0, len(view), _COUNTED_BYTES))
        kept = (8 * len(block) - int.from_bytes(block, "little").bit_count() for block in blocks)
        return [0, *accumulate(kept)]

    def close(self) -> None:
        """Free the memory."""
        self._memory.close()
