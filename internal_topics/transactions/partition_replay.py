"""The transactions of one partition, from its log and its newest producer snapshot.

1. Every batch from the log start on goes through one replay, for the range of each transaction with data.
2. The producer state of a broker is the newest readable snapshot and the batches after it: a second replay. Without a snapshot it
   is the first replay, but after a clean shutdown it is empty: a broker does not read the log then. While a broker runs, or after
   a crash, it includes what is below the log start, too; where all records are deleted, only while it runs. Producers that were idle
   for long are kept, since it is unknown when a broker last expired them.
3. Damage is skipped, as in every replay, and reported: a lost marker changes the result for its transaction.

A transaction is open if the broker's state says so, and begins at the offset in that state. One that is open only according to the log (a
snapshot has lost it) does not hold back the last stable offset, and is returned separately.
"""

import os
from collections.abc import Iterator
from itertools import pairwise

from kseg.change.apply.lock import is_locked
from kseg.segment import header_tables as C
from kseg.segment.files import MappedFile
from kseg.segment.findings import ERROR, Finding
from kseg.segment.header_tables import Columns
from kseg.segment.partition.derived_state import snapshot_in_memory, stable_offset
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding, transaction_end_lost
from kseg.segment.scanning.decode import Decoder
from kseg.segment.scanning.scan import Scanner
from kseg.segment.state.transaction_replay import TransactionReplay, UnfinishedTransaction
from kseg.segment.storage import places

_DECODED_RECORDS = 16  # only markers are decoded, and their batches have one record


class PartitionReplay:
    """One partition. log: open as long as this is used.

    `ended` reads the log once; after that `state` is the producer state of the broker, and `whole` that of the log. state_from: the
    offset from which on the log was applied to `state`, that of the snapshot if there is one.
    """

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self.start_offset = log.start_offset
        self.end_offset = log.end_offset
        self.whole = TransactionReplay(self.start_offset)
        is_running = self.start_offset == self.end_offset and is_locked(
            os.path.dirname(places.abspath(log.directory))
        )
        snapshot = snapshot_in_memory(log, is_running=is_running)
        self.state_from = self.start_offset if snapshot is None else snapshot[0]
        self.state = self.whole if snapshot is None else TransactionReplay(*snapshot)
        # of `started_ms`: the segment's path, the offset, the position
        self._last_start: tuple[str, int, int] | None = None

    def ended(self, only_state: bool = False) -> Iterator[Columns | Finding]:
        """Tables of completed transactions (columns `E_…` of `kernel.follow_transactions`), valid until the next, and the damage between
        them. only_state: read only what `state` needs. Raises UnreadableInput."""
        first = self.state_from if only_state else min(self.state_from, self.start_offset)
        for segment, following in pairwise([*self._log.segments, None]):
            assert segment is not None
            if following is None or following.base_offset > first:
                yield from self._segment(segment, max(first, self.start_offset))
        yield from self.whole.take_ended()

    def last_stable_offset(self) -> tuple[int, int | None]:
        """(the last stable offset, the producer that holds it; None for the log end)."""
        open_ones = self.state.unfinished() + self.state.replaced()
        oldest = min(open_ones, default=None, key=lambda each: each.first_offset)
        if oldest is None:
            return self.end_offset, None
        return stable_offset(self._log, oldest.first_offset), oldest.producer_id

    def forgotten(self) -> list[UnfinishedTransaction]:
        """Transactions that are open in the log but absent from the broker's producer state."""
        if self.whole is self.state:
            return []
        known = {each.producer_id for each in self.state.unfinished()}
        return [each for each in self.whole.unfinished() if each.producer_id not in known]

    def started_ms(self, first_offset: int) -> int | None:
        """The first timestamp of a transaction; None if its first batch is no longer in the log. Fast if asked in offset order, also
        without an index: each search begins where the last one ended."""
        if first_offset < self.start_offset:
            return None
        for segment in self._log.from_floor(first_offset):
            position = segment.start_for(first_offset)
            if self._last_start is not None:
                path, offset, found = self._last_start
                if path == segment.path and offset <= first_offset:
                    position = max(position, found)
            for batch in segment.reaching(first_offset, position):
                self._last_start = segment.path, first_offset, batch.position
                return batch.base_timestamp_ms if batch.base_offset <= first_offset else None
        return None

    def epochs_of(self, found: UnfinishedTransaction) -> set[int]:
        """The epochs of the producer's data from the first offset of a transaction on; several if markers between them are lost."""
        return {
            batch.producer_epoch
            for segment in self._log.from_floor(found.first_offset)
            for batch in segment.reaching(found.first_offset)
            if batch.producer_id == found.producer_id and not batch.is_control
        }

    def _damage(self, path: str, damage: Damage) -> Iterator[Finding]:
        finding = damage_finding(path, damage)
        if finding.severity != ERROR:
            return
        yield finding
        if finding.first_offset is not None and finding.last_offset is not None:
            lost = finding.first_offset, finding.last_offset
            for each in self.whole.unfinished():
                producer, offsets = each[:2], (each.first_offset, each.last_offset)
                yield transaction_end_lost(self._log.directory, producer, offsets, lost)

    def _segment(self, segment: LogSegment, first: int) -> Iterator[Columns | Finding]:
        with MappedFile(segment.path) as file:
            decoder = Decoder(file.view, capacity=_DECODED_RECORDS)
            scanner = Scanner.over(file, segment.base_offset, next_base=segment.following_base)
            for block in scanner.blocks():
                if isinstance(block, Damage):
                    yield from self._damage(segment.path, block)
                    continue
                row = _row_at(block, first)
                if row < block.count:
                    yield from self.whole.follow(decoder, block, row)
                row = _row_at(block, self.state_from)
                if self.state is not self.whole and row < block.count:
                    for _ in self.state.follow(decoder, block, row):
                        pass  # `whole` has reported it


def _row_at(table: Columns, offset: int) -> int:
    """The first row whose last offset is at or above an offset."""
    lasts = table.column(C.LAST_OFFSET)
    if not table.count or lasts[0] >= offset:
        return 0
    if lasts[-1] < offset:
        return table.count
    return next(row for row in range(table.count) if lasts[row] >= offset)
