# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""The producer map while nothing remarkable happens: a known producer goes on with its next sequence.

Almost every batch of a log is such a one. The map's entries are columns of int64, a slot for each producer, so that a
table of batches passes by without an object for each; what is more than going on (an unknown producer, another epoch,
a transaction that opens, a marker, a broken sequence, a header that cannot be true) is left to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment.kernel.arithmetic import add_sequence

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable

(
    EPOCH,
    LAST_SEQUENCE,
    LAST_OFFSET,
    OFFSET_DELTA,
    TIMESTAMP,
    COORDINATOR_EPOCH,
    IS_OPEN,  # 1 while a transaction waits for its marker
    FIRST_OFFSET,  # of that transaction
) = range(8)
WIDTH = 8
S_LAST = 0  # the state's only place: the last offset of the newest batch of magic 2
S_WIDTH = 1


def follow(
    cells: Readable,
    capacity: int,
    row: int,
    stop: int,
    slot_of: dict[int, int],
    slots: Writable,
    room: int,
    state: Writable,
) -> int:
    """Take in rows until one needs a closer look; that row, `stop` when none does.

    slot_of: slot by producer id. slots: the columns named above, `room` slots each. state[S_LAST] is set by every
    row of magic 2 that was taken in.
    """
    known = -1
    slot = -1
    while row < stop:
        if cells[2 * capacity + row] >= 2:
            base = cells[3 * capacity + row]
            last = cells[4 * capacity + row]
            producer = cells[11 * capacity + row]
            if producer >= 0:
                attributes = cells[6 * capacity + row]
                if attributes & 32 or base < 0 or last < base or last - base > 2147483646:
                    break
                if producer != known:
                    slot = slot_of.get(producer, -1)
                    known = producer
                if slot < 0 or cells[12 * capacity + row] != slots[slot]:
                    break
                if (attributes >> 4) & 1 != slots[6 * room + slot]:
                    break
                sequence = cells[13 * capacity + row]
                former = slots[room + slot]
                if sequence < -1 or (sequence >= 0 and former >= 0 and sequence != add_sequence(former, 1)):
                    break
                if sequence >= 0:
                    sequence = add_sequence(sequence, last - base)
                slots[room + slot] = sequence
                slots[2 * room + slot] = last
                slots[3 * room + slot] = last - base
                slots[4 * room + slot] = cells[10 * capacity + row]
            state[0] = last
        row = row + 1
    return row
