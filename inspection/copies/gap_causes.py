"""Determine why a copy lacks records that the other copy has: a cleaning removed them, or they are lost.

A record that the cleaner has removed is one of these (Kafka: Cleaner.shouldRetainRecord, buildOffsetMap):

- the copy that lacks it has a later record of its key, which is not aborted itself;
- the last record of its key is a tombstone, which is removed as well;
- it belongs to an aborted transaction, or is a transaction marker;
- it has no key. This counts only with a cleaner checkpoint: a compacted topic accepts no records without a key, so others are not
cleaned.

In addition, it must be below the cleaner checkpoint of one of the data directories, if that is known. Every other record is lost.

1. Put the newest offset of each key of the lacking copy into an offset map. When that is full, continue with 2, and repeat from there.
2. Compare the copies once more, and look up the missing records. Those that no map explains remain; their tombstones go into another map.
3. If there are any, compare again, for the records that those tombstones explain.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from kseg.inspection.copies.copy_batches import RANGES_TOLD, CopyBatches, OffsetSpan
from kseg.inspection.copies.log_comparison import LogComparison
from kseg.inspection.copies.record_stream import Missing
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import compare_records as K
from kseg.segment.partition.committed import transactions_around
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import LogTarget
from kseg.segment.scanning.decode import Chunk, Decoder
from kseg.segment.state.offset_map import SLOT_BYTES, OffsetMap
from kseg.segment.values import dataclass

_MAP_BYTES = 192 << 20
_MAP_SLOTS = _MAP_BYTES // SLOT_BYTES


@dataclass(frozen=True, slots=True)
class _MapLimits:
    map_slots: int

    @property
    def map_keys(self) -> int:
        return self.map_slots * 9 // 10


@dataclass(frozen=True, slots=True)
class GapCauses:
    """Records that a copy lacks, by cause."""

    damaged: Missing
    cleaned: Missing
    lost: Missing


class _Aborted:
    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._by_producer: dict[int, list[tuple[int, int]]] | None = None

    def includes(self, table: Columns, row: int) -> bool:
        if not table.at(C.ATTRIBUTES, row) & L.TRANSACTIONAL_BIT or table.at(C.MAGIC, row) < L.MAGIC_V2:
            return False
        if self._by_producer is None:
            self._by_producer = {}
            for each in transactions_around(self._log.segments[0].path)[0]:
                spans = self._by_producer.setdefault(each.producer_id, [])
                spans.append((each.first_offset, each.last_offset))
        spans = self._by_producer.get(table.at(C.PRODUCER_ID, row), [])
        offset = table.at(C.BASE_OFFSET, row)
        at = bisect_right(spans, (offset, L.INT64_MAX)) - 1
        return at >= 0 and offset <= spans[at][1]


class GapJudge:
    """holder, lacking: the copy with the records, and the copy without. damaged: offsets that cannot be read in the latter.
    cleaned_to: the highest cleaner checkpoint, None if there is none."""

    def __init__(
        self,
        holder: LogTarget,
        lacking: LogTarget,
        start_offset: int,
        damaged: Sequence[OffsetSpan],
        cleaned_to: int | None,
        map_slots: int = _MAP_SLOTS,
    ) -> None:
        self._holder, self._lacking = holder, lacking
        self._start = start_offset
        self._damaged_spans = damaged
        self._cleaned_to = cleaned_to
        self._newest = OffsetMap(_MapLimits(map_slots), _MAP_BYTES)
        self._tombstones = OffsetMap(_MapLimits(_MAP_SLOTS), 0, like=self._newest)
        self._tombstones.begin(0)
        self._left: list[bytes] = []  # flags of records that are not explained yet, chunk by chunk

    def run(self) -> Iterator[GapCauses | None]:
        """The causes, as the last value; before that None from time to time."""
        from_offset: int | None = self._start
        pass_number = 0
        while from_offset is not None:
            from_offset = self._map_newest(from_offset)
            yield None
            lookup = _Pass(self, pass_number, self._newest, by_itself=False)
            yield from lookup.run()
            pass_number += 1
        if self._tombstones.size:
            lookup = _Pass(self, pass_number, self._tombstones, by_itself=True)
            yield from lookup.run()
        self._newest.close()
        self._tombstones.close()
        yield lookup.causes

    def _map_newest(self, from_offset: int) -> int | None:
        """Put the keys from this offset on into the map; returns the offset at which it was full."""
        self._newest.begin(from_offset)
        with PartitionLog(self._lacking) as log:
            aborted = _Aborted(log)
            copy = CopyBatches(log)
            try:
                while not copy.is_done:
                    table = copy.table
                    if table.at(C.LAST_OFFSET, table.count - 1) >= from_offset:
                        full_at = self._map_table(copy, aborted, from_offset)
                        if full_at is not None:
                            return full_at
                    copy.advance(copy.left)
            finally:
                copy.close()
        return None

    def _map_table(self, copy: CopyBatches, aborted: _Aborted, from_offset: int) -> int | None:
        table, decoder = copy.table, Decoder(copy.view)
        self._newest.begin_table()
        for first, stop in _kept_runs(table, aborted):
            for chunk in decoder.chunks(table, first, stop):
                if chunk.control or not self._newest.hash(chunk):
                    continue
                full = self._newest.put(chunk, from_offset)
                if full is not None:
                    return chunk.records.at(C.R_OFFSET, full.record)
        return None


class _Pass:
    """One more comparison of the copies, in which missing records are looked up in a map."""

    def __init__(self, judge: GapJudge, number: int, offsets: OffsetMap, *, by_itself: bool) -> None:
        self._judge = judge
        self._number = number
        self._map = offsets
        self._by_itself = by_itself
        self._chunks = 0
        self.causes = GapCauses(*(Missing(RANGES_TOLD) for _ in range(3)))

    def run(self) -> Iterator[None]:
        judge = self._judge
        with PartitionLog(judge._holder) as log_a, PartitionLog(judge._lacking) as log_b:
            self._aborted = _Aborted(log_a)
            a, b = CopyBatches(log_a), CopyBatches(log_b)
            try:
                yield from LogComparison(a, b, judge._start, (_ignore, self._take)).run()
            finally:
                a.close()
                b.close()

    def _take(self, table: Columns, chunk: Chunk, flags: bytearray) -> None:
        """Look up the flagged records of a chunk of the holder."""
        judge, records = self._judge, chunk.records
        missing = bytes(flags[: records.count])
        left = bytearray(missing if not self._number else judge._left[self._chunks])
        if not self._number:
            self._settle_at_once(table, chunk, left)
        if left.find(1) >= 0 and self._map.hash(chunk):
            K.unflag_superseded(
                *(records.cells, records.capacity, records.count, self._map.hashes),
                *(self._map.slots, self._map.slot_count, int(self._by_itself), left),
            )
            self._restore_uncleaned(records, missing, left)
        self._keep(bytes(left))
        self._note(chunk, missing, left)
        if not self._by_itself:
            self._collect_tombstones(chunk, left)

    def _keep(self, left: bytes) -> None:
        if self._number:
            self._judge._left[self._chunks] = left
        else:
            self._judge._left.append(left)
        self._chunks += 1

    def _settle_at_once(self, table: Columns, chunk: Chunk, left: bytearray) -> None:
        """Clear the flags of records that the cleaner removes regardless of other records."""
        records = chunk.records
        if chunk.control:
            left[:] = bytes(len(left))
        elif self._judge._cleaned_to is not None and min(records.column(C.R_KEY_LENGTH), default=0) < 0:
            for row, length in enumerate(records.column(C.R_KEY_LENGTH)):
                if length < 0:
                    left[row] = 0
        aborted = {
            row for row in range(chunk.first_row, chunk.last_row + 1) if self._aborted.includes(table, row)
        }
        if aborted:
            for row, batch in enumerate(records.column(C.R_BATCH)):
                if batch in aborted:
                    left[row] = 0
        self._restore_uncleaned(records, bytes(left), left)

    def _restore_uncleaned(self, records: Columns, missing: bytes, left: bytearray) -> None:
        """Above the cleaner checkpoint no gap is explained by a cleaning."""
        limit = self._judge._cleaned_to
        if limit is not None and records.count and records.at(C.R_OFFSET, records.count - 1) >= limit:
            for row, offset in enumerate(records.column(C.R_OFFSET)):
                if offset >= limit:
                    left[row] = missing[row]

    def _note(self, chunk: Chunk, missing: bytes, left: bytearray) -> None:
        """Count the records under their cause: damaged, cleaned or lost."""
        records, spans = chunk.records, self._judge._damaged_spans
        flags = bytearray(missing)
        if spans and records.count:
            damaged = bytearray(records.count)
            for row, offset in enumerate(records.column(C.R_OFFSET)):
                if flags[row] and any(each.first <= offset <= each.last for each in spans):
                    damaged[row], flags[row], left[row] = 1, 0, 0
            self.causes.damaged.add_flagged(records, damaged)
        cleaned = _without(flags, left)
        self.causes.cleaned.add_flagged(records, cleaned)
        self.causes.lost.add_flagged(records, left)

    def _collect_tombstones(self, chunk: Chunk, left: bytearray) -> None:
        """Put the keys of unexplained tombstones into their map. It is used after the last map of keys."""
        records = chunk.records
        if left.find(1) < 0 or min(records.column(C.R_VALUE_LENGTH), default=0) >= 0:
            return
        keys, values = records.column(C.R_KEY_LENGTH), records.column(C.R_VALUE_LENGTH)
        limit = self._judge._cleaned_to
        offsets = records.column(C.R_OFFSET)
        for row in range(records.count):
            if not left[row] or values[row] >= 0 or (limit is not None and offsets[row] >= limit):
                keys[row] = -1
        tombstones = self._judge._tombstones
        if tombstones.hash(chunk):
            tombstones.put(chunk, 0)


def _without(flags: bytearray, others: bytearray) -> bytearray:
    """The flags without the others, which are a subset."""
    return bytearray(
        (int.from_bytes(flags, "big") ^ int.from_bytes(others, "big")).to_bytes(len(flags), "big")
    )


def _kept_runs(table: Columns, aborted: _Aborted) -> Iterator[tuple[int, int]]:
    """(first row, end row) of runs of batches that are not aborted."""
    if not any(attributes & L.TRANSACTIONAL_BIT for attributes in table.column(C.ATTRIBUTES)):
        yield 0, table.count
        return
    first = 0
    for row in range(table.count):
        if aborted.includes(table, row):
            if row > first:
                yield first, row
            first = row + 1
    if first < table.count:
        yield first, table.count


def _ignore(_table: Columns, _chunk: Chunk, _flags: bytearray) -> None:
    return None
