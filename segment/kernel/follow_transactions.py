# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Transactions from batch headers: opened by data, ended by markers, recorded as rows of a table.

The state of each producer is a slot of int64 columns, the first nine as in `follow_producers`; the others hold the range of the open
transaction's data in the log so far, and the last marker. A marker as brokers write it (one uncompressed record, 78 bytes with its
batch) is read in place. Rare cases are left to the caller, one row at a time: a new producer, an impossible header, any other
control batch.

    record of such a marker   length 16 │ attributes │ timestamp delta 0 │ offset delta 0 │ key length 4 │ int16 version 0 │
                              int16 0 ABORT, 1 COMMIT │ value length 6 │ int16 version 0 │ int32 coordinator epoch │ 0 headers
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import arithmetic, buffer_access

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable

(
    DATA_FIRST,  # base offset of the first batch with records in the open transaction, -1 if there is none
    DATA_LAST,  # last offset of the last such batch, followed by its epoch and maximum timestamp
    DATA_EPOCH,
    DATA_TIMESTAMP,
    MARKER_OFFSET,  # offset of the last marker, -1 before the first
    MARKER_EPOCH,
    MARKER_TIMESTAMP,
) = range(9, 16)
TRANSACTION_WIDTH = 16

# columns of the table of ended transactions
(E_PRODUCER, E_EPOCH, E_FIRST, E_LAST, E_TIMESTAMP, E_MARKER, E_IS_ABORT) = range(7)
ENDED_WIDTH = 7

# last offset of the newest batch of magic 2; rows in the table of ended transactions
S_LAST, S_ENDED = range(2)


def follow_transactions(
    buf: Readable,
    cells: Readable,
    capacity: int,
    row: int,
    stop: int,
    slot_of: dict[int, int],
    slots: Writable,
    room: int,
    ended: Writable,
    most: int,
    state: Writable,
) -> int:
    """Process rows of a table of batches until one needs a closer look; returns that row, `stop` if none does.

    buf: the whole file. slot_of: slot by producer id. slots: the columns, `room` slots each. ended: a table of `most` rows, filled from
    row state[S_ENDED] on; once it is full, the next marker of a transaction with data is left to the caller. Every processed row of
    magic 2 sets state[S_LAST].
    """
    size = len(buf)
    source = buffer_access.bytes_in(buf)
    known = -1
    slot = -1
    done = state[S_ENDED]
    if (
        len(ended) < 7 * most
        or len(cells) < C.BATCH_WIDTH * capacity
        or len(slots) < 16 * room
        or stop > capacity
    ):
        raise ValueError("the tables are too small")
    while row < stop:
        if cells[C.MAGIC * capacity + row] < 2:
            row = row + 1
            continue
        base = cells[C.BASE_OFFSET * capacity + row]
        last = cells[C.LAST_OFFSET * capacity + row]
        producer = cells[C.PRODUCER_ID * capacity + row]
        if producer < 0:
            state[0] = last
            row = row + 1
            continue
        if base < 0 or last < base or last - base > 2147483646:
            break
        if producer != known:
            slot = slot_of.get(producer, -1)
            known = producer
        if slot < 0:
            break
        attributes = cells[C.ATTRIBUTES * capacity + row]
        if attributes & C.CONTROL_BIT:
            if cells[C.COUNT * capacity + row] == 0:
                state[0] = last
                row = row + 1
                continue
            p = cells[C.POSITION * capacity + row]
            if (
                cells[C.SIZE * capacity + row] != 78
                or cells[C.COUNT * capacity + row] != 1
                or attributes & C.CODEC_MASK
                or p + 78 > size
            ):
                break
            p = p + 61
            if not buffer_access.is_end_marker(source, p):
                break
            if slots[9 * room + slot] >= 0:
                if done >= most:
                    break
                ended[done] = producer
                ended[most + done] = slots[11 * room + slot]
                ended[2 * most + done] = slots[9 * room + slot]
                ended[3 * most + done] = slots[10 * room + slot]
                ended[4 * most + done] = slots[12 * room + slot]
                ended[5 * most + done] = base
                ended[6 * most + done] = 1 - buffer_access.int_at(source, p + 5)
                done = done + 1
                slots[9 * room + slot] = -1
            epoch = cells[C.PRODUCER_EPOCH * capacity + row]
            if epoch != slots[slot]:
                slots[slot] = epoch
                slots[room + slot] = -1
                slots[2 * room + slot] = -1
                slots[3 * room + slot] = 0
            timestamp = (
                cells[C.MAX_TIMESTAMP * capacity + row]
                if attributes & C.TIMESTAMP_TYPE_BIT
                else cells[C.BASE_TIMESTAMP * capacity + row]
            )
            slots[4 * room + slot] = timestamp
            slots[5 * room + slot] = buffer_access.int_at(source, p + 12)
            slots[6 * room + slot] = 0
            slots[7 * room + slot] = -1
            slots[13 * room + slot] = base
            slots[14 * room + slot] = epoch
            slots[15 * room + slot] = timestamp
        else:
            sequence = cells[C.BASE_SEQUENCE * capacity + row]
            if sequence < -1:
                break
            slots[slot] = cells[C.PRODUCER_EPOCH * capacity + row]
            if sequence >= 0:
                sequence = arithmetic.add_sequence(sequence, last - base)
            slots[room + slot] = sequence
            slots[2 * room + slot] = last
            slots[3 * room + slot] = last - base
            slots[4 * room + slot] = cells[C.MAX_TIMESTAMP * capacity + row]
            if attributes & C.TRANSACTIONAL_BIT:
                if slots[6 * room + slot] == 0:
                    slots[6 * room + slot] = 1
                    slots[7 * room + slot] = base
                if cells[C.COUNT * capacity + row] != 0:
                    if slots[9 * room + slot] < 0:
                        slots[9 * room + slot] = base
                    slots[10 * room + slot] = last
                    slots[11 * room + slot] = cells[C.PRODUCER_EPOCH * capacity + row]
                    slots[12 * room + slot] = cells[C.MAX_TIMESTAMP * capacity + row]
        state[0] = last
        row = row + 1
    state[1] = done
    return row
