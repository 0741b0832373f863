# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""The fast path of the producer map: a known producer continues or begins a transaction, or a marker ends one.

Almost every batch of a log is of this kind. The entries of the map are int64 columns with a slot for each producer, so a table
of batches needs no objects. Everything else (an unknown producer, a broken sequence, data outside an open transaction, a
control batch that is not a marker as brokers write it, an impossible header) is left to the caller, one row at a time.

Open transactions are queued by first offset, because a batch that opens one comes after all others. Rows of ended transactions
stay until they reach the head or the queue is full: a marker skips them only if its own transaction is at the
head, and removes them then, so the time is linear.

    record of a marker        length 16 │ attributes │ timestamp delta 0 │ offset delta 0 │ key length 4 │ int16 version 0 │
                              int16 0 ABORT, 1 COMMIT │ value length 6 │ int16 version 0 │ int32 coordinator epoch │ 0 headers
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import arithmetic, buffer_access

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable

(
    EPOCH,
    LAST_SEQUENCE,
    LAST_OFFSET,
    OFFSET_DELTA,
    TIMESTAMP,
    COORDINATOR_EPOCH,
    IS_OPEN,  # 1 while a transaction waits for its marker; 2 if none of its batches was seen
    FIRST_OFFSET,  # of that transaction
    BATCH_TIMESTAMP,  # of the remembered batch; TIMESTAMP may be that of a marker after it
) = range(9)
WIDTH = 9

# columns of the queue of open transactions. O_IS_OPEN: 0 once it has ended. O_SINCE: the maximum timestamp of its first batch
(O_FIRST, O_PRODUCER, O_SINCE, O_IS_OPEN) = range(4)
OPEN_WIDTH = 4

# columns of the table of markers. M_FIRST: first offset of the ended transaction, -1 for none. M_STABLE: the last stable offset then
(M_OFFSET, M_PRODUCER, M_IS_ABORT, M_FIRST, M_STABLE) = range(5)
MARKER_WIDTH = 5

S_LAST = 0  # the last offset of the newest batch of magic 2
S_HEAD = 1  # of the queue: its first row that is open, and the end of its rows
S_TAIL = 2
S_MARKERS = 3  # rows in the table of markers
S_WIDTH = 4


def row_of_open(opened: Readable, room: int, head: int, tail: int, first: int, producer: int) -> int:
    # the row of the open transaction of `producer` that begins at `first`, -1 if there is none
    low = head
    high = tail
    while low < high:
        middle = (low + high) // 2
        if opened[middle] < first:
            low = middle + 1
        else:
            high = middle
    if low >= tail or opened[low] != first or opened[room + low] != producer or opened[3 * room + low] == 0:
        return -1
    return low


def next_open(opened: Readable, room: int, row: int, tail: int) -> int:
    # the first row from `row` on whose transaction is open, `tail` if there is none
    while row < tail and opened[3 * room + row] == 0:
        row = row + 1
    return row


def compacted(opened: Writable, room: int, head: int, tail: int) -> int:
    # moves the open rows to the front of the queue; returns their number
    kept = 0
    while head < tail:
        if opened[3 * room + head]:
            opened[kept] = opened[head]
            opened[room + kept] = opened[room + head]
            opened[2 * room + kept] = opened[2 * room + head]
            opened[3 * room + kept] = 1
            kept = kept + 1
        head = head + 1
    return kept


def is_plain_marker(source: Readable, size: int, cells: Readable, capacity: int, row: int) -> int:
    # whether a control batch is the end of a transaction as brokers write it; size: of the file
    p = cells[C.POSITION * capacity + row]
    if (
        cells[C.SIZE * capacity + row] != 78
        or cells[C.COUNT * capacity + row] != 1
        or cells[C.ATTRIBUTES * capacity + row] & C.CODEC_MASK
    ):
        return 0
    if p < 0 or p + 78 > size:
        return 0
    return buffer_access.is_end_marker(source, p + 61)


def next_control(buf: Readable, cells: Readable, capacity: int, row: int, stop: int) -> int:
    """The next row from `row` on with a producer's control batch that is not the end of a transaction as brokers write it; `stop` if
    there is none. buf: the whole file."""
    if len(cells) < C.BATCH_WIDTH * capacity or row < 0 or stop > capacity:
        raise ValueError("the table is too small")
    size = len(buf)
    source = buffer_access.bytes_in(buf)
    while row < stop:
        if (
            cells[C.ATTRIBUTES * capacity + row] & C.CONTROL_BIT
            and cells[C.MAGIC * capacity + row] >= 2
            and cells[C.PRODUCER_ID * capacity + row] >= 0
            and not is_plain_marker(source, size, cells, capacity, row)
        ):
            break
        row = row + 1
    return row


def follow(
    buf: Readable,
    cells: Readable,
    capacity: int,
    row: int,
    stop: int,
    slot_of: dict[int, int],
    slots: Writable,
    room: int,
    opened: Writable,
    open_room: int,
    markers: Writable,
    most: int,
    replicated: int,
    state: Writable,
) -> int:
    """Process rows until one needs a closer look; returns that row, `stop` if none does.

    buf: the whole file. slot_of: slot by producer id. slots: the columns named above, `room` slots each. opened: the queue of
    `open_room` rows; 0 leaves the start and the end of every transaction to the caller. markers: a table of `most` rows, filled from
    row state[S_MARKERS] on; once it is full, the next marker is left to the caller. replicated: markers at or above this offset are
    left to the caller, too. Every processed row of magic 2 sets state[S_LAST].
    """
    size = len(buf)
    source = buffer_access.bytes_in(buf)
    known = -1
    slot = -1
    head = state[1]
    tail = state[2]
    done = state[3]
    if (
        len(opened) < 4 * open_room
        or len(markers) < 5 * most
        or len(cells) < C.BATCH_WIDTH * capacity
        or len(slots) < 9 * room
        or stop > capacity
        or head < 0
        or tail > open_room
        or head > tail
        or done < 0
    ):
        raise ValueError("the tables are too small")
    while row < stop:
        if cells[C.MAGIC * capacity + row] >= 2:
            base = cells[C.BASE_OFFSET * capacity + row]
            last = cells[C.LAST_OFFSET * capacity + row]
            producer = cells[C.PRODUCER_ID * capacity + row]
            if producer >= 0:
                attributes = cells[C.ATTRIBUTES * capacity + row]
                if base < 0 or last < base or last - base > 2147483646:
                    break
                if producer != known:
                    slot = slot_of.get(producer, -1)
                    known = producer
                if slot < 0:
                    break
                if attributes & C.CONTROL_BIT:
                    if done >= most or not is_plain_marker(source, size, cells, capacity, row):
                        break
                    p = cells[C.POSITION * capacity + row]
                    first = -1
                    stable = -1
                    if slots[6 * room + slot]:
                        first = slots[7 * room + slot]
                        at = row_of_open(opened, open_room, head, tail, first, producer)
                        if at < 0 or first < 0 or base >= replicated:
                            break
                        # the oldest of the others: a producer has at most one
                        stable = base + 1
                        other = head if at != head else next_open(opened, open_room, head + 1, tail)
                        if other < tail:
                            stable = opened[other]
                        opened[3 * open_room + at] = 0
                        if at == head:
                            head = other
                        if head == tail:
                            head = 0
                            tail = 0
                        slots[6 * room + slot] = 0
                        slots[7 * room + slot] = -1
                    markers[done] = base
                    markers[most + done] = producer
                    markers[2 * most + done] = 1 - buffer_access.int_at(source, p + 66)
                    markers[3 * most + done] = first
                    markers[4 * most + done] = stable
                    done = done + 1
                    epoch = cells[C.PRODUCER_EPOCH * capacity + row]
                    if epoch != slots[slot]:
                        slots[slot] = epoch
                        slots[room + slot] = -1
                        slots[2 * room + slot] = -1
                        slots[3 * room + slot] = 0
                        slots[8 * room + slot] = -1
                    timestamp = (
                        cells[C.MAX_TIMESTAMP * capacity + row]
                        if attributes & C.TIMESTAMP_TYPE_BIT
                        else cells[C.BASE_TIMESTAMP * capacity + row]
                    )
                    slots[4 * room + slot] = timestamp
                    slots[5 * room + slot] = buffer_access.int_at(source, p + 73)
                else:
                    sequence = cells[C.BASE_SEQUENCE * capacity + row]
                    former = slots[room + slot]
                    if sequence < -1:
                        break
                    if cells[C.PRODUCER_EPOCH * capacity + row] == slots[slot]:
                        if sequence >= 0 and former >= 0 and sequence != arithmetic.add_sequence(former, 1):
                            break
                    elif open_room == 0:
                        break
                    if (attributes >> 4) & 1 != slots[6 * room + slot]:
                        if slots[6 * room + slot] or open_room == 0:
                            break
                        if tail == open_room:
                            tail = compacted(opened, open_room, head, tail)
                            head = 0
                            if 2 * tail > open_room:
                                break
                        if tail > head and base <= opened[tail - 1]:
                            break
                        opened[tail] = base
                        opened[open_room + tail] = producer
                        opened[2 * open_room + tail] = cells[C.MAX_TIMESTAMP * capacity + row]
                        opened[3 * open_room + tail] = 1
                        tail = tail + 1
                        slots[6 * room + slot] = 1
                        slots[7 * room + slot] = base
                    if sequence >= 0:
                        sequence = arithmetic.add_sequence(sequence, last - base)
                    slots[slot] = cells[C.PRODUCER_EPOCH * capacity + row]
                    slots[room + slot] = sequence
                    slots[2 * room + slot] = last
                    slots[3 * room + slot] = last - base
                    slots[4 * room + slot] = cells[C.MAX_TIMESTAMP * capacity + row]
                    slots[8 * room + slot] = cells[C.MAX_TIMESTAMP * capacity + row]
            state[0] = last
        row = row + 1
    state[1] = head
    state[2] = tail
    state[3] = done
    return row
