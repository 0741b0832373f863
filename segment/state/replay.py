"""Apply a segment's batches to the producer state, for every command that needs transactions.

Only batches with a producer id matter; of control batches the first record is decoded. Damage is skipped: it cannot be
replayed, and commands that report damage do so elsewhere.
"""

from collections.abc import Iterable, Iterator

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import FormatError
from kseg.segment.files import OpenFile
from kseg.segment.header_tables import Columns
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from kseg.segment.state.control import EndTransactionMarker, end_transaction_marker
from kseg.segment.state.producer import ProducerState
from kseg.segment.state.replay_events import CompletedTransaction, PassedMarker, ReplayEvent


def replay_segment(log: OpenFile, base_offset: int, state: ProducerState) -> Iterator[ReplayEvent]:
    """Apply all batches of one segment to `state`, in order; yields the resulting events."""
    decoder = Decoder(log.view, capacity=16)
    for block in Scanner.over(log, base_offset).blocks():
        if not isinstance(block, Damage):
            yield from replay_table(decoder, block, state)


def replay_table(decoder: Decoder, table: Columns, state: ProducerState) -> Iterator[ReplayEvent]:
    """Apply the rows of one table of valid batches, whose bytes are in `decoder.view`."""
    row = 0
    while True:
        row, markers = state.follow_transactions(decoder.view, table, row, table.count)
        yield from completed(markers)
        if row >= table.count:
            break
        batch = batch_at(table, row)
        yield from state.apply(batch, marker_of(decoder, table, row) if batch.is_control else None)
        row += 1
    if table.count:
        state.end_offset = max(state.end_offset, L.as_int64(table.at(C.LAST_OFFSET, table.count - 1) + 1))


def completed(markers: Iterable[PassedMarker]) -> Iterator[CompletedTransaction]:
    """The transactions ended by markers that `ProducerState.follow_transactions` has passed."""
    for offset, producer_id, is_abort, first_offset, last_stable_offset in markers:
        if first_offset >= 0:
            yield CompletedTransaction(producer_id, first_offset, offset, bool(is_abort), last_stable_offset)


def marker_of(decoder: Decoder, table: Columns, row: int) -> EndTransactionMarker | None:
    """The marker in the first record of a control batch; None if there is no record or it does not end a transaction."""
    for chunk in decoder.chunks(table, row, row + 1):
        if chunk.records.count:
            try:
                return end_transaction_marker(record_at(chunk, 0))
            except FormatError:
                return None
    return None
