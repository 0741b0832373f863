"""The end of an ordinary log and the last entries of its indexes, from a few reads: for commands that need only these from many partitions.

`partition_log` and `largest_timestamp` return the same for every log, with a map and an object for each file. Here nothing is
mapped and no object is created for a file: the last entry of the newest offset index leads to the last batches, and the last entry of a
time index has the timestamp. Every batch on which a result is based has a valid checksum. Anything unusual, even if legal, raises
`Unusual`, UnreadableInput or OSError, and the caller falls back to the general way.
"""

import struct
from array import array
from collections.abc import Callable
from functools import lru_cache

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.crc import crc32c
from kseg.segment.errors import UnreadableInput
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import bad_pages
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import walk
from kseg.segment.partition.header_walk import is_plausible
from kseg.segment.probe import Probe
from kseg.segment.scanning.preallocated_tail import has_preallocated_size

_LONGEST_READ_BYTES = 1 << 20
_PAGE_BYTES = 4096
_ROWS = 512  # upper bound for batches between two index entries, or after the last
_OFFSET_SLOT, _TIME_SLOT = struct.Struct(">ii"), struct.Struct(">qi")


class Unusual(Exception):
    """Something is unusual: use the general way."""


def require(is_usual: bool) -> None:
    if not is_usual:
        raise Unusual


def batches_to_the_end(log: Probe, index_path: str, base_offset: int) -> Columns:
    """The batches from the last entry of the offset index to the end of a log that is not empty."""
    slot = _last_slot(index_path, _OFFSET_SLOT.size)
    relative, position = (0, 0) if slot is None else _OFFSET_SLOT.unpack(slot)
    require(position >= 0)
    table = batches(log, position, None)
    # otherwise the general way rejects the index
    require(slot is None or table.at(C.BASE_OFFSET, 0) <= base_offset + relative)
    return table


def quick_end(log_path: str, index_path: str, base_offset: int) -> int | None:
    """The log end offset, from the last segment of a log; None: use the general way."""
    try:
        with Probe(log_path, is_surely_regular=True) as log:
            require(not has_preallocated_size(log.size_bytes))
            if not log.size_bytes:
                return base_offset
            table = batches_to_the_end(log, index_path, base_offset)
        require(not bad_pages.count())  # a page that cannot be read reads as zeros
        return table.at(C.LAST_OFFSET, table.count - 1) + 1
    except (Unusual, OSError, UnreadableInput):
        return None


def last_time_ms(path: str) -> int:
    """The timestamp in the last used entry of a time index; NO_TIMESTAMP if there is none."""
    slot = _last_slot(path, _TIME_SLOT.size)
    return L.NO_TIMESTAMP if slot is None else int(_TIME_SLOT.unpack(slot)[0])


def batches(log: Probe, position: int, number: int | None) -> Columns:
    """This many batches from `position` on, or all; the first and the last have valid checksums. Valid until the next call."""
    left = log.size_bytes - position
    require(left > 0)
    data = log.read(position, min(left, _PAGE_BYTES))
    wanted = left
    if number == 1:
        require(len(data) >= L.BATCH_HEADER)
        wanted = L.ENTRY_OVERHEAD + int.from_bytes(data[8:12], "big", signed=True)
    require(L.BATCH_HEADER <= wanted <= min(left, _LONGEST_READ_BYTES))
    if len(data) < wanted:
        data += log.read(position + len(data), wanted - len(data))
    table, state = _room()
    state[S.BATCHES_END] = 0
    walk(data, min(wanted, len(data)), table.cells, table.capacity, state)
    table.count = state[S.BATCHES_COUNT]
    require(state[S.BATCHES_END] == wanted and is_plausible(table, -1))
    for row in {0, table.count - 1}:
        start = table.at(C.POSITION, row)
        end = start + table.at(C.SIZE, row)
        require(table.at(C.MAGIC, row) == L.MAGIC_V2 and end - start >= L.BATCH_HEADER)
        body = memoryview(data)[start + L.ATTRIBUTES_POSITION : end]
        require(crc32c(body) == table.at(C.CRC, row))
    return table


@lru_cache(maxsize=1)
def _room() -> tuple[Columns, memoryview]:
    """A table and the state of a walk, reused for each log."""
    return Columns(C.BATCH_WIDTH, _ROWS), memoryview(array("q", (0, 0)))


def _last_slot(path: str, width: int) -> bytes | None:
    """The last used slot of an index, None if there is none; zeros after it are preallocated."""
    with Probe(path, is_surely_regular=True) as index:
        slots = index.size_bytes // width
        if not slots:
            return None
        if index.size_bytes > _PAGE_BYTES:
            last = index.read((slots - 1) * width, width)
            if any(last):
                return last
            if not index.is_hole_from(_PAGE_BYTES):  # a copy of a sparse file
                return _last_before_zeros(lambda slot: index.read(slot * width, width), slots - 1)
        head = index.read(0, min(_PAGE_BYTES, slots * width))
    last = head[(slots - 1) * width : slots * width]
    if slots == 1 or any(last):
        return last
    used_bytes = len(head.rstrip(b"\0"))
    require(used_bytes == 0 or -(-used_bytes // width) * width <= len(head))
    return _last_before_zeros(lambda slot: head[slot * width : (slot + 1) * width], slots - 1)


def _last_before_zeros(slot_at: Callable[[int], bytes], slots: int) -> bytes | None:
    """Binary search as in `sidecar.index`, which finds the same slot in a damaged index."""
    low, high, last = 0, slots, None
    while low < high:
        middle = (low + high) // 2
        slot = slot_at(middle)
        if any(slot):
            low, last = middle + 1, slot
        else:
            high = middle
    return last
