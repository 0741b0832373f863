"""Apply a `Selection` to tables of batches and records, cheapest test first.

1. Batches are dropped by their headers alone, without decompression, if none of their records can be selected.
2. Records are tested one by one only in batches that remain and only when some record-level bound is set.
3. `limit` ends the work as soon as it is reached.

A record belongs to an aborted transaction when its batch is a transactional one of that producer and starts inside the transaction (first
offset … marker), which is how a consumer filters too (Kafka: CompletedFetch.isBatchAborted).
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kseg.inspection.record_filter import Selection
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns

if TYPE_CHECKING:
    from kseg.segment.scanning.decode import Chunk
    from kseg.segment.sidecar.txn_index import AbortedTxn


class BatchFilter:
    """Applies a selection and counts selected records against the limit.

    aborted, stable_offset: needed for `read_committed`: the aborted transactions that touch the file, and the last stable offset
    (None = no open transaction).
    """

    def __init__(
        self,
        selection: Selection,
        aborted: "Iterable[AbortedTxn]" = (),
        stable_offset: int | None = None,
    ) -> None:
        self.selection = selection
        self.everything = selection.selects_everything
        self.exhausted = selection.limit == 0
        self._remaining = selection.limit
        self._aborted: dict[int, list[AbortedTxn]] = {}
        for transaction in aborted:
            self._aborted.setdefault(transaction.producer_id, []).append(transaction)
        self._stable_offset = stable_offset
        self._keys = frozenset(selection.keys)
        self._pattern = None if selection.key_regex is None else re.compile(selection.key_regex)
        self.needs_records = bool(self._keys or self._pattern)
        self.tests_records = not self.everything and (
            self.needs_records
            or selection.from_offset is not None
            or selection.to_offset is not None
            or selection.from_time_ms is not None
            or selection.to_time_ms is not None
        )

    def rows(self, table: Columns) -> list[int]:
        """The batch rows in which something may be selected."""
        rows = [row for row in range(table.count) if self._batch_selected(table, row)]
        if not rows and self._is_behind(table):
            self.exhausted = True
        return rows

    def _is_behind(self, table: Columns) -> bool:
        # judged by a whole table, not by one batch: a damaged base offset must not end the dump
        bound = self.selection.to_offset
        return bound is not None and table.count > 1 and min(table.column(C.BASE_OFFSET)) >= bound

    def _batch_selected(self, table: Columns, row: int) -> bool:
        selection, at = self.selection, table.at
        magic, attributes = at(C.MAGIC, row), at(C.ATTRIBUTES, row)
        batch = magic >= L.MAGIC_V2
        if selection.from_offset is not None and at(C.LAST_OFFSET, row) < selection.from_offset:
            return False
        # the base offset of a legacy wrapper is not in its header
        if selection.to_offset is not None and batch and at(C.BASE_OFFSET, row) >= selection.to_offset:
            return False
        if selection.from_time_ms is not None and at(C.MAX_TIMESTAMP, row) < selection.from_time_ms:
            return False
        if selection.producer_id is not None and at(C.PRODUCER_ID, row) != selection.producer_id:
            return False
        if selection.leader_epoch is not None and at(C.LEADER_EPOCH, row) != selection.leader_epoch:
            return False
        control = batch and bool(attributes & L.CONTROL_BIT)
        if selection.control is not None and control != selection.control:
            return False
        return not selection.read_committed or self._committed(table, row, control)

    def _committed(self, table: Columns, row: int, control: bool) -> bool:
        base = table.at(C.BASE_OFFSET, row)
        if control or (self._stable_offset is not None and base >= self._stable_offset):
            return False
        if not (table.at(C.MAGIC, row) >= L.MAGIC_V2 and table.at(C.ATTRIBUTES, row) & L.TRANSACTIONAL_BIT):
            return True
        transactions = self._aborted.get(table.at(C.PRODUCER_ID, row), ())
        return not any(txn.first_offset <= base <= txn.last_offset for txn in transactions)

    def take_batches(self, table: Columns, rows: list[int]) -> list[int]:
        """The selected batches of a dump without records, counted against the limit. to_time_ms selects those whose first record is older,
        because the time of the oldest one is not in the header."""
        until_ms = self.selection.to_time_ms
        if until_ms is not None:
            rows = [row for row in rows if _first_time_ms(table, row) < until_ms]
        return rows[: self._take(len(rows))]

    def take_records(self, chunk: "Chunk") -> list[int]:
        """The selected records of a chunk, counted against the limit."""
        records = chunk.records
        if self.tests_records:
            chosen = [at for at in range(records.count) if self._record_selected(chunk, at)]
        else:
            chosen = list(range(records.count))
        return chosen[: self._take(len(chosen))]

    def _take(self, wanted: int) -> int:
        if self._remaining is None:
            return wanted
        taken = min(wanted, self._remaining)
        self._remaining -= taken
        self.exhausted = self._remaining == 0
        return taken

    def _record_selected(self, chunk: "Chunk", at: int) -> bool:
        selection, cell = self.selection, chunk.records.at
        offset, timestamp = cell(C.R_OFFSET, at), cell(C.R_TIMESTAMP, at)
        if selection.from_offset is not None and offset < selection.from_offset:
            return False
        if selection.to_offset is not None and offset >= selection.to_offset:
            return False
        if selection.from_time_ms is not None and timestamp < selection.from_time_ms:
            return False
        if selection.to_time_ms is not None and timestamp >= selection.to_time_ms:
            return False
        return not self.needs_records or self._key_selected(chunk, at)

    def _key_selected(self, chunk: "Chunk", at: int) -> bool:
        start, length = chunk.records.at(C.R_KEY_START, at), chunk.records.at(C.R_KEY_LENGTH, at)
        if length < 0:
            return False
        key = bytes(memoryview(chunk.body)[start : start + length])
        if self._keys and key not in self._keys:
            return False
        return self._pattern is None or self._pattern.search(key) is not None


def _first_time_ms(table: Columns, row: int) -> int:
    """The timestamp of the first record of a batch, or -1 if it is not in the header."""
    attributes = table.at(C.ATTRIBUTES, row)
    if attributes & L.TIMESTAMP_TYPE_BIT:
        return table.at(C.MAX_TIMESTAMP, row)
    if table.at(C.MAGIC, row) < L.MAGIC_V2:
        return -1 if attributes & L.CODEC_MASK else table.at(C.MAX_TIMESTAMP, row)
    return -1 if attributes & L.DELETE_HORIZON_BIT else table.at(C.BASE_TIMESTAMP, row)
