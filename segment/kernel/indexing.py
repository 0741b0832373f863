# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Builds the index entries of a segment directly from a table of its batches (rules: `sidecar.index_builder`).

Entries have the format of the files: 8 bytes for the offset index, 12 for the time index, big-endian. At a
batch that a broker would reject, the walk stops before counting any of it, and the caller decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def put_int(out: Writable, at: int, value: int) -> int:
    out[at] = (value >> 24) & 255
    out[at + 1] = (value >> 16) & 255
    out[at + 2] = (value >> 8) & 255
    out[at + 3] = value & 255
    return 0


def put_long(out: Writable, at: int, value: int) -> int:
    put_int(out, at, value >> 32)
    put_int(out, at + 4, value)
    return 0


def index_rows(
    cells: Readable,
    capacity: int,
    row: int,
    stop: int,
    base: int,
    interval: int,
    most_offsets: int,
    most_times: int,
    offsets: bytearray,
    times: bytearray,
    state: Writable,
) -> int:
    """Process rows `row` … stop − 1; returns the first row that would be rejected, `stop` if none is.

    base: of the segment. interval: index.interval.bytes. most_offsets, most_times: number of entries at which an index is
    full. offsets, times: buffers for new entries, with room for one per row.
    """
    new_offsets = 0
    new_times = 0
    while row < stop:
        position = cells[C.POSITION * capacity + row]
        last = cells[C.LAST_OFFSET * capacity + row]
        if base < 0 or last < base or last - base > 2147483647 or position > 2147483647:
            break
        timestamp = cells[C.MAX_TIMESTAMP * capacity + row]
        largest = state[S.INDEX_MAX_TIMESTAMP]
        at_largest = state[S.INDEX_OFFSET_OF_MAX]
        if timestamp > largest:
            largest = timestamp
            at_largest = last
        if position - state[S.INDEX_COUNTED_FROM] > interval:
            if state[S.INDEX_OFFSET_ENTRIES] >= most_offsets or (
                state[S.INDEX_OFFSET_ENTRIES] > 0 and last <= state[S.INDEX_LAST_OFFSET]
            ):
                break
            if state[S.INDEX_TIME_ENTRIES] >= most_times or (
                state[S.INDEX_TIME_ENTRIES] > 0 and at_largest < state[S.INDEX_LAST_TIME_OFFSET]
            ):
                break
            put_int(offsets, 8 * new_offsets, last - base)
            put_int(offsets, 8 * new_offsets + 4, position)
            new_offsets = new_offsets + 1
            state[S.INDEX_OFFSET_ENTRIES] = state[S.INDEX_OFFSET_ENTRIES] + 1
            state[S.INDEX_LAST_OFFSET] = last
            if largest > state[S.INDEX_LAST_TIMESTAMP]:
                put_long(times, 12 * new_times, largest)
                put_int(times, 12 * new_times + 8, at_largest - base)
                new_times = new_times + 1
                state[S.INDEX_TIME_ENTRIES] = state[S.INDEX_TIME_ENTRIES] + 1
                state[S.INDEX_LAST_TIMESTAMP] = largest
                state[S.INDEX_LAST_TIME_OFFSET] = at_largest
            state[S.INDEX_COUNTED_FROM] = position
        state[S.INDEX_MAX_TIMESTAMP] = largest
        state[S.INDEX_OFFSET_OF_MAX] = at_largest
        state[S.INDEX_END_POSITION] = position + cells[C.SIZE * capacity + row]
        row = row + 1
    state[S.INDEX_NEW_OFFSET_ENTRIES] = new_offsets
    state[S.INDEX_NEW_TIME_ENTRIES] = new_times
    return row
