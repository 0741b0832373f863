"""Check the transaction index of a segment against its markers (fact sheet §4.3, §8.5).

1. The entries alone: complete, of a known version, with increasing marker offsets, none below the segment.
2. The marker of an entry: its last offset is that of an ABORT of the producer. No batch at all is legal there, since compaction
   removes markers; another batch is not.
3. The first and last stable offsets of an entry equal those of the replay if the replay is exact: compaction removes first
   batches, damage hides markers. A follower, and a replica that moves to another log dir, appends several batches at a time and knows all
   transactions that begin in them before it completes one (Kafka: UnifiedLog.append, ProducerStateManager.lastStableOffset): with no other
   one open, the last stable offset may also be the start of the next transaction of another producer.
4. Every aborted transaction of the replay has an entry. The replay does not see transactions whose data are compacted away, except one
   that began below the log; the cleaner drops the entry of that one too (Kafka: CleanedTransactionMetadata.onControlBatchRead). A
   transaction that begins with a batch that the cleaner emptied has no records; brokers whose partitions move between log dirs were
   observed to have no entry for it.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

from kseg.recovery.verify.producer_check import ProducerReplay, covering_row
from kseg.recovery.verify.segment_check import SegmentFacts
from kseg.recovery.verify.totals import Totals
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import counted
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import next_equal
from kseg.segment.sidecar.txn_index import CURRENT_VERSION, AbortedTxn, TxnIndex

# No log has this many aborted transactions; later entries are not checked individually.
MAX_ENTRIES = 1_000_000


class _LastData:
    """Where the last transactional batches of producers other than a given one begin."""

    def __init__(self) -> None:
        self._producer_id = self._offset = self._offset_of_others = -1

    def note(self, offset: int, producer_id: int) -> None:
        if producer_id != self._producer_id:
            self._producer_id, self._offset_of_others = producer_id, self._offset
        self._offset = offset

    def of_others(self, producer_id: int) -> int:
        """Where the last batch of any other producer begins; -1 if there is none."""
        return self._offset_of_others if producer_id == self._producer_id else self._offset


class TxnIndexCheck:
    """A `Consumer` for one `.txnindex`; must come after the replay in the list of consumers.

    path: of the file, present or not. view: its content, None when there is none.
    """

    def __init__(
        self, path: str, view: memoryview | None, base_offset: int, replay: ProducerReplay, totals: Totals
    ) -> None:
        self._path = path
        self._replay = replay
        self._totals = totals
        self._base_offset = base_offset
        self._size = None if view is None else len(view)
        self._index = TxnIndex(view if view is not None else b"", base_offset)
        self._entries = tuple(islice(self._index, MAX_ENTRIES))
        self._wanted = sorted({entry.last_offset for entry in self._entries})
        self._covered: set[int] = set()
        self._ahead: dict[int, list[AbortedTxn]] = {}
        for entry in self._entries:
            if entry.last_stable_offset > entry.last_offset + 1:
                self._ahead.setdefault(entry.last_stable_offset, []).append(entry)
        self._confirmed_ahead: set[AbortedTxn] = set()
        self._last_data = _LastData()
        self._emptied: set[tuple[int, int]] = set()  # producer and base offset of batches without records

    def take(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        """Record which of the wanted offsets belong to a batch."""
        low = bisect_left(self._wanted, table.at(C.BASE_OFFSET, first))
        high = bisect_left(self._wanted, table.at(C.LAST_OFFSET, stop - 1) + 1)
        for offset in self._wanted[low:high]:
            if covering_row(table, first, stop, offset) is not None:
                self._covered.add(offset)
        row = first
        while (row := next_equal(*table.raw, C.COUNT, row, stop, 0)) < stop:
            self._emptied.add((table.at(C.PRODUCER_ID, row), table.at(C.BASE_OFFSET, row)))
            row += 1
        if self._ahead:
            self._follow_data(table, first, stop)
        return iter(())

    def _follow_data(self, table: Columns, first: int, stop: int) -> None:
        """Find the entries whose last stable offset is where the next transaction of another producer begins."""
        columns = (C.BASE_OFFSET, C.PRODUCER_ID, C.ATTRIBUTES)
        rows = zip(*(table.column(column)[first:stop].tolist() for column in columns), strict=True)
        for offset, producer_id, attributes in rows:
            if attributes & (L.TRANSACTIONAL_BIT | L.CONTROL_BIT) != L.TRANSACTIONAL_BIT:
                continue
            self._confirmed_ahead.update(
                entry
                for entry in self._ahead.get(offset, ())
                if producer_id != entry.producer_id
                and self._last_data.of_others(entry.producer_id) < entry.last_offset
            )
            self._last_data.note(offset, producer_id)

    def finish(self, facts: SegmentFacts) -> Iterator[Finding]:
        bad = 0
        previous: int | None = None
        expected = {(entry.producer_id, entry.last_offset): entry for entry in self._replay.aborted}
        for slot, entry in enumerate(self._entries):
            finding = self._check_entry(slot, entry, previous, expected, facts)
            if finding is not None:
                bad += 1
                yield finding
            previous = entry.last_offset if previous is None else max(previous, entry.last_offset)
        yield from self._missing(expected)
        trailing = self._index.trailing_bytes
        if trailing:
            position = self._index.entries * L.TXN_INDEX_ENTRY
            message = f"the size of {counted(self._size or 0, 'byte')} is not a multiple of {L.TXN_INDEX_ENTRY}, the size of an entry"
            yield Finding("txn-index-bad-size", self._path, message, position, trailing)
        if self._size is not None:
            self._totals.account(self._path, self._size, bad * L.TXN_INDEX_ENTRY + trailing)

    def _check_entry(
        self,
        slot: int,
        entry: AbortedTxn,
        previous: int | None,
        expected: dict[tuple[int, int], AbortedTxn],
        facts: SegmentFacts,
    ) -> Finding | None:
        if entry.version_as_kafka > CURRENT_VERSION or entry.version != CURRENT_VERSION:
            expected.pop((entry.producer_id, entry.last_offset), None)
            return self._report("txn-index-bad-version", slot, entry, f"has version {entry.version}")
        if entry.last_offset < self._base_offset:
            message = f"ends at offset {entry.last_offset}, below the base offset of the segment"
            return self._report("txn-index-below-base", slot, entry, message)
        if previous is not None and entry.last_offset <= previous:
            expected.pop((entry.producer_id, entry.last_offset), None)
            message = f"ends at offset {entry.last_offset}, but the previous one at {previous}"
            return self._report("txn-index-not-sorted", slot, entry, message)
        wrong = self._against_log(entry, expected, facts)
        return self._report("txn-index-wrong-entry", slot, entry, wrong) if wrong else None

    def _against_log(
        self, entry: AbortedTxn, expected: dict[tuple[int, int], AbortedTxn], facts: SegmentFacts
    ) -> str:
        """What is wrong with an entry, as text; empty if nothing is."""
        marker = self._replay.markers.get(entry.last_offset)
        known = expected.pop((entry.producer_id, entry.last_offset), None)
        if marker is None:
            if entry.last_offset >= facts.end_offset and not facts.damage:
                return f"ends at offset {entry.last_offset}, beyond the end of the segment"
            if entry.last_offset in self._covered:
                return f"ends at offset {entry.last_offset}, where no transaction ends"
            return ""
        producer_id, is_aborted = marker
        if producer_id != entry.producer_id:
            expected.pop((producer_id, entry.last_offset), None)
            return (
                f"has producer {entry.producer_id}, but the marker at {entry.last_offset} is of {producer_id}"
            )
        if not is_aborted:
            return f"has a transaction that was committed at offset {entry.last_offset}"
        if entry.first_offset > entry.last_offset:
            return f"starts at offset {entry.first_offset}, above its end {entry.last_offset}"
        if known is None:
            return ""
        if not self._replay.is_exact:
            return ""
        if entry.first_offset != known.first_offset:
            return f"starts at offset {entry.first_offset}, but in the log at {known.first_offset}"
        is_ahead = known.last_stable_offset == entry.last_offset + 1 and entry in self._confirmed_ahead
        if entry.last_stable_offset != known.last_stable_offset and not is_ahead:
            stable, replayed = entry.last_stable_offset, known.last_stable_offset
            return f"has the last stable offset {stable}, a replay of the log {replayed}"
        return ""

    def _report(self, kind: str, slot: int, entry: AbortedTxn, what: str) -> Finding:
        return Finding(
            kind,
            self._path,
            f"entry {slot} {what}",
            slot * L.TXN_INDEX_ENTRY,
            L.TXN_INDEX_ENTRY,
            entry.first_offset,
            entry.last_offset,
            {"slot": slot, "producer_id": entry.producer_id},
        )

    def _missing(self, expected: dict[tuple[int, int], AbortedTxn]) -> Iterator[Finding]:
        for entry in expected.values():
            if entry.last_offset in self._replay.without_data and not self._replay.is_exact:
                continue
            if (entry.producer_id, entry.first_offset) in self._emptied:
                continue
            message = (
                f"the transaction of producer {entry.producer_id} from offset {entry.first_offset}, aborted at "
                f"{entry.last_offset}, is not in the index"
            )
            yield Finding(
                "txn-index-missing-entry",
                self._path,
                message,
                first_offset=entry.first_offset,
                last_offset=entry.last_offset,
                numbers={"producer_id": entry.producer_id, "last_stable_offset": entry.last_stable_offset},
            )
