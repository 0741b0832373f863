"""Summarize a log for `list`: from all batch headers, or from its first and last segment.

counted     every batch header is read (first and last offsets, times, codecs, formats, epochs, the number of records), no
            record; columns are aggregated a table at a time. Transactions come from the newest producer snapshot and
            the batches after it.
estimated   the first batch that has a timestamp (the cleaner leaves empty batches without one), and the batches after the
            last index entry: a few KiB of a log of any size. The number of records is estimated from the offsets, which
            is too high for compacted and transactional logs.
"""

from collections.abc import Callable
from itertools import chain, islice

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import declared_records, first_uncounted
from kseg.segment.model import Batch
from kseg.segment.partition.derived_state import producer_state, stable_offset
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.log_shape import ShapeTaker, hides_first_time
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.damage import Damage

# Batches to search for the first timestamp: message format v0 has none at all.
MAX_TIMELESS_BATCHES = 100


class _HeaderTotals:
    """Totals over all batch headers of a log."""

    def __init__(self) -> None:
        self.batches = 0
        self.records: int | None = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        self.earliest_ms: int | None = None
        self.latest_ms: int | None = None
        self.attributes: set[tuple[int, int]] = set()
        self.epochs: set[int] = set()

    def take(self, table: Columns, first_offset_of: Callable[[Columns], int]) -> None:
        """Headers of batches. first_offset_of: the first offset of the table's first batch."""
        self.batches += table.count
        if self.first_offset is None:
            self.first_offset = first_offset_of(table)
        self.last_offset = table.at(C.LAST_OFFSET, table.count - 1)
        cells, capacity = table.cells, table.capacity
        if first_uncounted(cells, capacity, table.count) < table.count:
            self.records = None  # the header of an old compressed set has no count
        elif self.records is not None:
            self.records += declared_records(cells, capacity, 0, table.count)
        attributes = set(zip(table.column(C.MAGIC), table.column(C.ATTRIBUTES), strict=True))
        self.attributes.update(attributes)
        self._take_times(table, any(hides_first_time(magic, bits) for magic, bits in attributes))
        self.epochs.update(table.column(C.LEADER_EPOCH))

    def _take_times(self, table: Columns, hides_first: bool) -> None:
        first_field = C.MAX_TIMESTAMP if hides_first else C.BASE_TIMESTAMP
        firsts = [time for time in set(table.column(first_field)) if time >= 0]
        latest = max(table.column(C.MAX_TIMESTAMP))
        if firsts:
            self.earliest_ms = min(firsts if self.earliest_ms is None else (self.earliest_ms, *firsts))
        if latest >= 0:
            self.latest_ms = latest if self.latest_ms is None else max(self.latest_ms, latest)

    @property
    def codecs(self) -> list[str]:
        return [L.codec_name(codec) for codec in sorted({bits & L.CODEC_MASK for _, bits in self.attributes})]

    @property
    def magics(self) -> list[int]:
        return sorted({magic for magic, _ in self.attributes})

    @property
    def timestamp_types(self) -> list[str]:
        return sorted({L.timestamp_type_name(magic, bits) for magic, bits in self.attributes})


def counted_summary(log: PartitionLog, now_ms: int, taker: ShapeTaker | None = None) -> dict[str, object]:
    """The fields of a `partition` row, from every batch header. taker: receives the headers too."""
    totals = _HeaderTotals()
    for segment in log.segments:
        _add_segment(log, segment, totals, taker)
        segment.close()
    state = producer_state(log, as_loaded=True)
    return {
        "batches": totals.batches,
        "records": totals.records,
        "records_estimated": max(0, log.end_offset - log.start_offset),
        "log_start_offset": log.start_offset,
        "log_end_offset": log.end_offset,
        "high_watermark": log.high_watermark,
        "last_stable_offset": stable_offset(log, state.first_unstable_offset),
        "first_offset": totals.first_offset,
        "last_offset": totals.last_offset,
        "earliest_timestamp": totals.earliest_ms,
        "latest_timestamp": totals.latest_ms,
        "is_future": totals.latest_ms is not None and totals.latest_ms > now_ms,
        "timestamp_types": totals.timestamp_types,
        "codecs": totals.codecs,
        "magics": totals.magics,
        "leader_epochs": sorted(epoch for epoch in totals.epochs if epoch >= 0),
        "open_transactions": [
            {
                "producer_id": transaction.producer_id,
                "producer_epoch": transaction.producer_epoch,
                "first_offset": transaction.first_offset,
                "last_offset": transaction.last_offset,
                "timestamp": transaction.timestamp_ms,
            }
            for transaction in state.open_transactions
        ],
    }


def _add_segment(
    log: PartitionLog, segment: LogSegment, totals: _HeaderTotals, taker: ShapeTaker | None
) -> None:
    if taker is not None:
        taker.begin(segment.base_offset)
    try:
        for block in segment.walk.blocks():
            if isinstance(block, Damage):
                segment.report_damage(block)
            else:
                totals.take(block, lambda table: segment.first_offset_of(batch_at(table, 0)))
                if taker is not None:
                    taker.take(block, 0, block.count)
        if taker is not None:
            taker.end(segment.file.size_bytes, segment.file.view)
    except UnreadableInput as error:
        log.report(Finding("unreadable-file", segment.path, str(error)))


def estimated_summary(log: PartitionLog, now_ms: int) -> dict[str, object]:
    """The same fields from both ends of the log; None for fields that require all headers."""
    begin = _begin(log)
    first, last = next(iter(begin), None), log.last_batch
    ends = [*begin, *(() if last is None else (last,))]
    earliest_ms = _first_time_ms(begin[-1]) if begin else None
    latest_ms = max(
        (time for time in (*_indexed_times_ms(log), *(b.max_timestamp_ms for b in ends)) if time >= 0),
        default=None,
    )
    return {
        "batches": None,
        "records": None,
        "records_estimated": max(0, log.end_offset - log.start_offset),
        "log_start_offset": log.start_offset,
        "log_end_offset": log.end_offset,
        "high_watermark": log.high_watermark,
        "last_stable_offset": None,
        "first_offset": None if first is None else first.base_offset,
        "last_offset": None if last is None else last.last_offset,
        "earliest_timestamp": earliest_ms,
        "latest_timestamp": latest_ms,
        "is_future": latest_ms is not None and latest_ms > now_ms,
        "timestamp_types": sorted({batch.timestamp_type for batch in ends}),
        "codecs": sorted({L.codec_name(batch.codec) for batch in ends}),
        "magics": sorted({batch.magic for batch in ends}),
        "leader_epochs": sorted({batch.leader_epoch for batch in ends if batch.leader_epoch >= 0}),
        "open_transactions": None,
    }


def _begin(log: PartitionLog) -> list[Batch]:
    """The batches up to the first one that has a timestamp, at most MAX_TIMELESS_BATCHES."""
    holding = (segment for segment in log.segments if segment.file.size_bytes)
    begin = []
    for batch in islice(
        chain.from_iterable(segment.reaching(0, 0) for segment in holding), MAX_TIMELESS_BATCHES
    ):
        begin.append(batch)
        if _first_time_ms(batch) is not None:
            break
    return begin


def _first_time_ms(batch: Batch) -> int | None:
    hidden = hides_first_time(batch.magic, batch.attributes)
    time_ms = batch.max_timestamp_ms if hidden else batch.base_timestamp_ms
    return time_ms if time_ms >= 0 else None


def _indexed_times_ms(log: PartitionLog) -> list[int]:
    """The greatest timestamps in the time indexes of the last two segments."""
    found = []
    for segment in log.segments[-2:]:
        index = segment.time_index
        if index is not None and len(index):
            found.append(index.last_entry.timestamp_ms)
    return found
