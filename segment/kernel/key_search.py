# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Finds the batches that have a record with a given key. Records are walked in place, without writing rows for them.

A batch is skipped only if the record walk (`kernel.record_walk`) would accept it as well. So decoding only the remaining batches reports
the same undecodable records as decoding all of them. Keys are compared from their end, because the keys of a topic often share a prefix.

Columns are those of `kseg.segment.header_tables`. `limits` (LIMIT_…): LOWEST offset, the first offset ABOVE the range, EARLIEST timestamp;
a batch whose header excludes records within them is skipped without reading its records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access, validate
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable


def is_key_at(body: Readable, p: int, key: Readable, size: int) -> int:
    n = size - 1
    while n >= 0 and body[p + n] == key[n]:
        n = n - 1
    return 1 if n < 0 else 0


def needs_decoding(body: Readable, p: int, body_end: int, count: int, key: Readable, key_size: int) -> int:
    # whether one of `count` records at p has the key, or the record walk would reject it. key_size: -2 matches no key
    while count > 0:
        packed = buffer_access.varint(body, p, body_end)
        p = p + (packed & 15)
        size = packed >> 4
        if packed == 0 or size < 1 or size > body_end - p:
            return 1
        end = p + size
        p = p + 1
        size = 0
        while p < end and body[p] > 127:
            p = p + 1
            size = size + 1
        if p >= end or size > 9:
            return 1
        p = p + 1
        packed = buffer_access.varint(body, p, end)
        if packed == 0:
            return 1
        p = p + (packed & 15)
        packed = buffer_access.varint(body, p, end)
        p = p + (packed & 15)
        size = packed >> 4
        if packed == 0 or size > end - p:
            return 1
        if size == key_size and is_key_at(body, p, key, size):
            return 1
        if size > 0:
            p = p + size
        packed = buffer_access.varint(body, p, end)
        p = p + (packed & 15)
        size = packed >> 4
        if packed == 0 or size > end - p:
            return 1
        if size > 0:
            p = p + size
        packed = buffer_access.varint(body, p, end)
        p = p + (packed & 15)
        size = packed >> 4
        if packed == 0 or size < 0 or size > end - p:
            return 1
        if size > 0:
            p = validate.headers_end(body, p, end, size)
        if p != end:
            return 1
        count = count - 1
    return 1 if p != body_end else 0


def is_outside(batches: Readable, capacity: int, row: int, lowest: int, above: int, earliest: int) -> int:
    # by its header; that of a compressed set of an old format does not contain the first offset of its records
    if (
        batches[C.LAST_OFFSET * capacity + row] < lowest
        or batches[C.MAX_TIMESTAMP * capacity + row] < earliest
    ):
        return 1
    return batches[C.MAGIC * capacity + row] >= 2 and batches[C.BASE_OFFSET * capacity + row] >= above


def check_rows(batches: Readable, capacity: int, row: int, stop: int, limits: Readable) -> int:
    if capacity * C.BATCH_WIDTH > len(batches) or row < 0 or stop > capacity or len(limits) < S.LIMIT_WIDTH:
        raise ValueError("the table of batches is too small")
    return 0


def next_candidate(
    buf: Readable,
    body: Readable,
    bounds: Readable,
    first: int,
    row: int,
    stop: int,
    batches: Readable,
    capacity: int,
    limits: Readable,
    key: Readable,
) -> int:
    """The first of the rows `row` … stop − 1 that has to be decoded: a record in it has the key or is invalid, or its body is not
    available. `stop` if there is none.

    buf: the whole file. body, bounds: the decompressed body of row r is body[bounds[2i]:bounds[2i + 1]] with i = r − first; rows beyond
    `bounds` are not available, nor are those of magic 0 and 1. The records of a control batch have no key.
    """
    check_rows(batches, capacity, row, stop, limits)
    if first < 0 or first > row:
        raise ValueError("the rows lie outside the tables")
    table = buffer_access.cells_in(batches)
    wanted = buffer_access.bytes_in(key)
    key_size = len(key)
    lowest = limits[S.LIMIT_LOWEST]
    above = limits[S.LIMIT_ABOVE]
    earliest = limits[S.LIMIT_EARLIEST]
    while row < stop:
        if is_outside(table, capacity, row, lowest, above, earliest):
            row = row + 1
            continue
        start = table[C.POSITION * capacity + row]
        end = start + table[C.SIZE * capacity + row]
        count = table[C.COUNT * capacity + row]
        attributes = table[C.ATTRIBUTES * capacity + row]
        if table[C.MAGIC * capacity + row] != 2 or end - start < 61 or count < 0:
            break
        if start < 0 or end > len(buf):
            raise ValueError("a batch lies outside the buffer")
        if count > 0 and attributes & C.CODEC_MASK == 0:
            size = -2 if attributes & C.CONTROL_BIT else key_size
            if needs_decoding(buffer_access.bytes_in(buf), start + 61, end, count, wanted, size):
                break
        elif count > 0:
            if attributes & C.CONTROL_BIT or 2 * (row - first) + 2 > len(bounds):
                break
            start = bounds[2 * (row - first)]
            end = bounds[2 * (row - first) + 1]
            if start < 0 or start > end or end > len(body):
                raise ValueError("a body lies outside its buffer")
            if needs_decoding(buffer_access.bytes_in(body), start, end, count, wanted, key_size):
                break
        row = row + 1
    return row


def run_end(row: int, stop: int, batches: Readable, capacity: int, limits: Readable) -> int:
    """The end (exclusive) of the run of rows from `row` on whose records may matter and are either uncompressed or can be
    decompressed one after the other: batches of magic 2 within the limits."""
    check_rows(batches, capacity, row, stop, limits)
    table = buffer_access.cells_in(batches)
    while row < stop:
        attributes = table[C.ATTRIBUTES * capacity + row]
        if (
            table[C.MAGIC * capacity + row] != 2
            or table[C.SIZE * capacity + row] < 61
            or table[C.COUNT * capacity + row] < 1
        ):
            break
        if attributes & C.CONTROL_BIT and attributes & C.CODEC_MASK:
            break
        if is_outside(
            table, capacity, row, limits[S.LIMIT_LOWEST], limits[S.LIMIT_ABOVE], limits[S.LIMIT_EARLIEST]
        ):
            break
        row = row + 1
    return row


def next_of_key(body: Readable, records: Readable, capacity: int, at: int, count: int, key: Readable) -> int:
    """The first of the decoded records `at` … count − 1 that has the key; `count` when none has."""
    if capacity * C.RECORD_WIDTH > len(records) or at < 0 or count > capacity:
        raise ValueError("the table of records is too small")
    key_size = len(key)
    while at < count:
        if records[C.R_KEY_LENGTH * capacity + at] == key_size:
            start = records[C.R_KEY_START * capacity + at]
            if start < 0 or start > len(body) - key_size:
                raise ValueError("a key lies outside its buffer")
            if is_key_at(buffer_access.bytes_in(body), start, buffer_access.bytes_in(key), key_size):
                break
        at = at + 1
    return at
