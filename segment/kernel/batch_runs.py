# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Groups the rows of a table of batches for a cleaning, and computes their totals.

Rows are those of `header_tables`; only the table is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def fitting_run(cells: Readable, capacity: int, row: int, stop: int, most: int) -> int:
    """The end of the run of rows from `row` on that together declare at most `most` records; wrappers declare none."""
    records = 0
    while row < stop:
        declared = cells[C.COUNT * capacity + row]
        if declared < 0 or declared > most - records:
            break
        records = records + declared
        row = row + 1
    return row


def packed_stop(cells: Readable, capacity: int, row: int, stop: int) -> int:
    """The end of the run of rows from `row` on that are compressed batches of magic 2 with records."""
    while (
        row < stop
        and cells[C.MAGIC * capacity + row] >= 2
        and cells[C.ATTRIBUTES * capacity + row] & C.CODEC_MASK
    ):
        if cells[C.COUNT * capacity + row] == 0:
            break
        row = row + 1
    return row


def plain_stop(cells: Readable, capacity: int, row: int, stop: int) -> int:
    """The first row from `row` on that is a control batch or part of a transaction."""
    while row < stop:
        if cells[C.MAGIC * capacity + row] >= 2 and cells[C.ATTRIBUTES * capacity + row] & 48:
            break
        row = row + 1
    return row


def same_transaction(cells: Readable, capacity: int, row: int, stop: int, next_offset: int) -> int:
    """The end of the run of data batches with the producer and type of `row` that end below `next_offset`."""
    producer = cells[C.PRODUCER_ID * capacity + row]
    while row < stop:
        attributes = cells[C.ATTRIBUTES * capacity + row]
        if cells[C.MAGIC * capacity + row] < 2 or attributes & 48 != 16:
            break
        if (
            cells[C.PRODUCER_ID * capacity + row] != producer
            or cells[C.LAST_OFFSET * capacity + row] >= next_offset
        ):
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
    """Count the tombstones per delete horizon, in rows of judged batches: write runs of (horizon, tombstones) into
    `pairs`, which has room for one per row; return the number of runs."""
    if (
        row < 0
        or stop > capacity
        or C.BATCH_WIDTH * capacity > len(batches)
        or C.TALLY_WIDTH * capacity > len(tallies)
    ):
        raise ValueError("the rows lie outside their tables")
    if 2 * (stop - row) > len(pairs):
        raise ValueError("there is no room for the horizons")
    runs = 0
    while row < stop:
        if tallies[C.T_TOMBSTONES * capacity + row] > 0:
            horizon_ms = new_horizon_ms
            if (
                batches[C.MAGIC * capacity + row] >= 2
                and batches[C.ATTRIBUTES * capacity + row] & C.DELETE_HORIZON_BIT
            ):
                horizon_ms = batches[C.BASE_TIMESTAMP * capacity + row]
            if runs == 0 or pairs[2 * runs - 2] != horizon_ms:
                pairs[2 * runs] = horizon_ms
                pairs[2 * runs + 1] = 0
                runs = runs + 1
            pairs[2 * runs - 1] = pairs[2 * runs - 1] + tallies[C.T_TOMBSTONES * capacity + row]
        row = row + 1
    return runs
