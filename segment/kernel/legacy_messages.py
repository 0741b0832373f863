# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""The walk over messages of magic 0 and 1: from entries of a `.log` and from wrappers to a table of records (fact sheet §2.2).

    message   crc │ magic │ attributes │ timestamp (magic 1) │ key length, key │ value length, value
    set       (offset │ size │ message)…, the decompressed value of a wrapper

State, outcomes and error codes are those of `kernel.record_walk`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.record_walk import (
    BODY_BAD,
    BODY_DONE,
    BODY_FULL,
    EMPTY_SET,
    INNER_COMPRESSED,
    INNER_TOO_SMALL,
    MESSAGE_TOO_SHORT,
    OK,
    VALUE_BEYOND_MESSAGE,
    check_tables,
)

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def read_message(
    body: Readable,
    p: int,
    size: int,
    row: int,
    offset: int,
    cells: Writable,
    capacity: int,
    at: int,
) -> int:
    """Decode the magic 0/1 message of `size` bytes whose crc field is at body[p] into row `at`; 0 or −(error)."""
    magic = body[p + 4]
    if magic > 127:
        magic = magic - 256
    wide = 0 if magic == 0 else 8
    if size < 10 + wide:
        return -MESSAGE_TOO_SHORT
    cells[C.R_BATCH * capacity + at] = row
    cells[C.R_OFFSET * capacity + at] = offset
    if magic == 0:
        cells[C.R_TIMESTAMP * capacity + at] = -1
    else:
        cells[C.R_TIMESTAMP * capacity + at] = buffer_access.long_at(body, p + 6)
    length = buffer_access.int_at(body, p + 6 + wide)
    cells[C.R_KEY_START * capacity + at] = p + 10 + wide
    cells[C.R_KEY_LENGTH * capacity + at] = length
    if length < 0:
        length = 0
    if length > size - 14 - wide:
        return -MESSAGE_TOO_SHORT
    q = p + 10 + wide + length
    length = buffer_access.int_at(body, q)
    cells[C.R_VALUE_START * capacity + at] = q + 4
    cells[C.R_VALUE_LENGTH * capacity + at] = length
    cells[C.R_HEADERS_START * capacity + at] = 0
    cells[C.R_HEADER_COUNT * capacity + at] = 0
    cells[C.R_SEQUENCE * capacity + at] = -1
    cells[C.R_CRC * capacity + at] = buffer_access.crc_at(body, p)
    cells[C.R_VALID * capacity + at] = -1
    if length > p + size - q - 4:
        cells[C.R_VALUE_START * capacity + at] = -1
        return -VALUE_BEYOND_MESSAGE
    return 0


def read_messages(
    buf: Readable,
    last_row: int,
    batches: Readable,
    batch_capacity: int,
    cells: Writable,
    capacity: int,
    state: Writable,
) -> int:
    """Decode consecutive uncompressed messages, rows state[WALK_ROW] … last_row, whose bytes are in `buf` itself.

    Returns like `read_body`; on BODY_BAD state[WALK_ROW] is the bad message, on BODY_DONE it is last_row + 1.
    """
    check_tables(batches, batch_capacity, cells, capacity, state)
    if last_row >= batch_capacity:
        raise ValueError("the last row lies outside the table of batches")
    source = buffer_access.bytes_in(buf)
    while state[S.WALK_ROW] <= last_row:
        row = state[S.WALK_ROW]
        p = batches[C.POSITION * batch_capacity + row]
        size = batches[C.SIZE * batch_capacity + row]
        if p < 0 or size < 26 or p > len(buf) - size:
            raise ValueError("a message lies outside the buffer")
        if state[S.WALK_COUNT] >= capacity:
            return BODY_FULL
        offset = batches[C.BASE_OFFSET * batch_capacity + row]
        after = read_message(
            source,
            p + 12,
            size - 12,
            row,
            offset,
            buffer_access.table_in(cells),
            capacity,
            state[S.WALK_COUNT],
        )
        if after == 0 or after == -VALUE_BEYOND_MESSAGE:
            cells[C.R_VALID * capacity + state[S.WALK_COUNT]] = batches[C.VALID * batch_capacity + row]
            state[S.WALK_COUNT] = state[S.WALK_COUNT] + 1
        if after < 0:
            state[S.WALK_ERROR] = -after
            state[S.WALK_ERROR_AT] = p
            return BODY_BAD
        state[S.WALK_ROW] = row + 1
        state[S.WALK_NEXT] = 0
        state[S.WALK_DONE] = 0
    return BODY_DONE


def count_messages(body: Readable) -> tuple[int, int]:
    """Walk a decompressed message set: (messages, last inner offset) or (−error, position).

    A truncated last entry ends the set silently (Kafka: DataLogInputStream).
    """
    source = buffer_access.bytes_in(body)
    p = 0
    end = len(body)
    count = 0
    last_offset = 0
    while p + 12 <= end:
        size = buffer_access.int_at(source, p + 8)
        if size < 14:
            return -INNER_TOO_SMALL, p
        if size > end - p - 12:
            break
        last_offset = buffer_access.long_at(source, p)
        count = count + 1
        p = p + 12 + size
    if count == 0:
        return -EMPTY_SET, 0
    return count, last_offset


def read_message_set(
    body: Readable,
    base_offset: int,
    batches: Readable,
    batch_capacity: int,
    cells: Writable,
    capacity: int,
    state: Writable,
) -> int:
    """Decode the messages of a decompressed wrapper, batch row state[WALK_ROW]; returns like `read_body`.

    base_offset: added to every inner offset (0 for magic 0 wrappers, whose inner offsets are absolute).
    R_HEADERS_START and R_VALID of each row are left as the range of the message's checksum.
    """
    check_tables(batches, batch_capacity, cells, capacity, state)
    source = buffer_access.bytes_in(body)
    row = state[S.WALK_ROW]
    p = state[S.WALK_NEXT]
    end = len(body)
    is_append_time = (
        batches[C.MAGIC * batch_capacity + row] == 1
        and batches[C.ATTRIBUTES * batch_capacity + row] & C.TIMESTAMP_TYPE_BIT
    )
    while p + 12 <= end:
        size = buffer_access.int_at(source, p + 8)
        if size < 14 or size > end - p - 12:
            break
        if state[S.WALK_COUNT] >= capacity:
            state[S.WALK_NEXT] = p
            return BODY_FULL
        if body[p + 17] & C.CODEC_MASK:
            state[S.WALK_ERROR] = INNER_COMPRESSED
            state[S.WALK_ERROR_AT] = p
            return BODY_BAD
        after = read_message(
            source,
            p + 12,
            size,
            row,
            buffer_access.add_long(base_offset, buffer_access.long_at(source, p)),
            buffer_access.table_in(cells),
            capacity,
            state[S.WALK_COUNT],
        )
        if after == 0 or after == -VALUE_BEYOND_MESSAGE:
            if is_append_time and body[p + 16] != 0:
                cells[C.R_TIMESTAMP * capacity + state[S.WALK_COUNT]] = batches[
                    C.MAX_TIMESTAMP * batch_capacity + row
                ]
            # the range of the message's checksum, which the caller verifies
            cells[C.R_HEADERS_START * capacity + state[S.WALK_COUNT]] = p + 16
            cells[C.R_VALID * capacity + state[S.WALK_COUNT]] = p + 12 + size
            state[S.WALK_COUNT] = state[S.WALK_COUNT] + 1
        if after < 0:
            state[S.WALK_ERROR] = -after
            state[S.WALK_ERROR_AT] = p
            # Kafka lists such a message and continues until the value is read
            if after != -VALUE_BEYOND_MESSAGE:
                return BODY_BAD
        p = p + 12 + size
        state[S.WALK_NEXT] = p
        state[S.WALK_DONE] = state[S.WALK_DONE] + 1
    if state[S.WALK_ERROR] != OK:
        return BODY_BAD
    return BODY_DONE
