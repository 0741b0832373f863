"""Finds the slot of a key in a map (`keymap`): linear probing from the slot that its hash points to.

Compiled kernels take the functions from the `.pxd`, because a call into another module would cost as much as the search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable


def home_of(word: int, slot_count: int) -> int:
    # the upper 32 bits select the slot, as a fraction of the map
    low = 0x7FFFFFFF
    low = (low << 1) | 1
    return (((word >> 32) & low) * slot_count) >> 32


def wanted(slots: Readable, at: int) -> None:
    # prefetches this slot
    return None


def find_slot(slots: Readable, slot_count: int, first: int, second: int) -> int:
    # the slot with the key, or the empty slot for it; at least one slot is always empty
    at = 3 * home_of(first, slot_count)
    while slots[at + 2] != 0:
        if slots[at] == first and slots[at + 1] == second:
            break
        at = at + 3
        if at >= 3 * slot_count:
            at = 0
    return at


def touched(
    slots: Readable, slot_count: int, cells: Readable, capacity: int, row: int, stop: int, hashes: Readable
) -> int:
    # prefetches the slots of several records before they are searched
    total = 0
    while row < stop:
        if cells[C.R_KEY_LENGTH * capacity + row] >= 0:
            total = total ^ slots[3 * home_of(hashes[2 * row], slot_count) + 2]
        row = row + 1
    return total
