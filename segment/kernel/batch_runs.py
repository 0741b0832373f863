# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Groups the rows of a table of batches for a cleaning, and computes their totals.

Rows are those of `header_tables`; only the table is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def fitting_run(cells: Readable, capacity: int, row: int, stop: int, most: int) -> int:
    """The end of the run of rows from `row` on that declare at most `most` records together; wrappers declare none."""
    records = 0
    while row < stop:
        declared = cells[5 * capacity + row]
        if declared < 0 or declared > most - records:
            break
        records = records + declared
        row = row + 1
    return row


def packed_stop(cells: Readable, capacity: int, row: int, stop: int) -> int:
    """The end of the run of rows from `row` on that are compressed batches of magic 2 with records."""
    while row < stop and cells[2 * capacity + row] >= 2 and cells[6 * capacity + row] & 7:
        if cells[5 * capacity + row] == 0:
            break
        row = row + 1
    return row


def plain_stop(cells: Readable, capacity: int, row: int, stop: int) -> int:
    """The first row from `row` on that is a control batch or part of a transaction."""
    while row < stop:
        if cells[2 * capacity + row] >= 2 and cells[6 * capacity + row] & 48:
            break
        row = row + 1
    return row


def same_transaction(cells: Readable, capacity: int, row: int, stop: int, next_offset: int) -> int:
    """The end of the run of data batches of the producer and kind of `row` that end below `next_offset`."""
    producer = cells[11 * capacity + row]
    while row < stop:
        attributes = cells[6 * capacity + row]
        if cells[2 * capacity + row] < 2 or attributes & 48 != 16:
            break
        if cells[11 * capacity + row] != producer or cells[4 * capacity + row] >= next_offset:
            break
        row = row + 1
    return row


def horizon_runs(
    batches: Readable,
    capacity: int,
    row: int,
    stop: int,
    tallies: Readable,
    new_horizon_ms: int,
    pairs: Writable,
) -> int:
    """How many tombstones wait for which delete horizon, in rows of judged batches: runs of (horizon, tombstones) into
    `pairs`, which has room for one a row; how many runs there are."""
    if row < 0 or stop > capacity or 15 * capacity > len(batches) or 8 * capacity > len(tallies):
        raise ValueError("the rows lie outside their tables")
    if 2 * (stop - row) > len(pairs):
        raise ValueError("there is no room for the horizons")
    runs = 0
    while row < stop:
        if tallies[2 * capacity + row] > 0:
            horizon_ms = new_horizon_ms
            if batches[2 * capacity + row] >= 2 and batches[6 * capacity + row] & 64:
                horizon_ms = batches[9 * capacity + row]
            if runs == 0 or pairs[2 * runs - 2] != horizon_ms:
                pairs[2 * runs] = horizon_ms
                pairs[2 * runs + 1] = 0
                runs = runs + 1
            pairs[2 * runs - 1] = pairs[2 * runs - 1] + tallies[2 * capacity + row]
        row = row + 1
    return runs
