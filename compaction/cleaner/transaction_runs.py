"""Divide a table of batches into runs that a cleaner treats alike, while the state of transactions advances.

Both passes walk a log in this way, and so does a caller that only needs the state of transactions at some batch (`track`).
"""

from collections.abc import Iterator
from enum import IntEnum

from kseg.compaction.cleaner.cleaned_transactions import Transactions
from kseg.compaction.cleaner.segment_reader import DamagedSegment, control_kind
from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_runs import plain_stop, same_transaction
from kseg.segment.scanning.decode import Decoder

_CONTROL_RECORDS = 16


class Kind(IntEnum):
    """CONTROL: one control batch, which the caller passes on to `Transactions.on_control_batch`. ABORTED: data of an aborted
    transaction. DATA: everything else."""

    DATA = 0
    ABORTED = 1
    CONTROL = 2


def runs(table: Columns, state: Transactions) -> Iterator[tuple[Kind, int, int]]:
    """(kind, first row, end row) of the runs of a table, in order. `state` advances as they are consumed."""
    row = 0
    while row < table.count:
        stop = plain_stop(table.cells, table.capacity, row, table.count)
        if stop > row:
            yield Kind.DATA, row, stop
        row = stop
        if row >= table.count:
            break
        if table.at(C.ATTRIBUTES, row) & L.CONTROL_BIT:
            yield Kind.CONTROL, row, row + 1
            row += 1
            continue
        is_aborted = state.is_aborted(table.at(C.PRODUCER_ID, row), table.at(C.LAST_OFFSET, row))
        stop = same_transaction(table.cells, table.capacity, row, table.count, state.next_offset)
        stop = max(stop, row + 1)
        yield Kind.ABORTED if is_aborted else Kind.DATA, row, stop
        row = stop


def track(segment: CleanerSegment, view: memoryview, table: Columns, state: Transactions) -> None:
    """Advance `state` past a table of a segment's batches. A control batch that cannot be decoded changes nothing."""
    decoder = Decoder(view, _CONTROL_RECORDS)
    for kind, row, _ in runs(table, state):
        if kind is not Kind.CONTROL:
            continue
        try:
            control = control_kind(segment, view, decoder, table, row)
        except DamagedSegment:
            continue
        state.on_control_batch(table.at(C.PRODUCER_ID, row), table.at(C.LAST_OFFSET, row), control)
