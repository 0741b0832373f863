"""Finds the slot of a key in a map (`keymap`): linear probing from the slot that its hash points to.

Compiled kernels take the functions from the `.pxd`, because a call into another module would cost as much as the search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable


def home_of(word: int, slot_count: int) -> int:
    # the upper 32 bits say where, as a fraction of the map
    low = 0x7FFFFFFF
    low = (low << 1) | 1
    return (((word >> 32) & low) * slot_count) >> 32


def wanted(slots: Readable, at: int) -> None:
    # the processor may begin to load this slot
    return None


def find_slot(slots: Readable, slot_count: int, first: int, second: int) -> int:
    # where the key is, or the empty slot where it would be; one slot at least is always empty
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
    # looks at the slots of several records, so that they are at hand when they are searched
    total = 0
    while row < stop:
        if cells[C.R_KEY_LENGTH * capacity + row] >= 0:
            total = total ^ slots[3 * home_of(hashes[2 * row], slot_count) + 2]
        row = row + 1
    return total
