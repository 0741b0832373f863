"""One segment of a log while a broker loads it, and the segments of a log by base offset.

A segment is opened by its name alone: a missing `.log` is created, and its indexes are not read before they are
needed (`index_files`). Lookups go through the offset index, whatever it contains, and then from batch to batch
(`broker_walk`). Source: Kafka's LogSegment, LogSegments.
"""

import bisect
from collections.abc import Iterator
from typing import NamedTuple

from kseg.recovery.loading.broker_walk import LogWalk, WalkedBatch
from kseg.recovery.loading.index_files import TimeIndexFile, TxnIndexFile, offset_index_file
from kseg.recovery.loading.kafka_exceptions import ILLEGAL_ARGUMENT, KAFKA, BrokerException
from kseg.recovery.loading.load_state import LoadState, numbered
from kseg.recovery.policy import LoadSettings
from kseg.segment import layout as L
from kseg.segment.partition.names import SUFFIX_BY_ROLE, Role
from kseg.segment.sidecar.index import TimeIndexEntry
from kseg.segment.sidecar.index_writer import can_index_offset


class LogRange(NamedTuple):
    """Bytes of a `.log` that a read returns. base_offset: that of the first batch in them."""

    position: int
    end: int
    base_offset: int


class OrderedRange(NamedTuple):
    """First and last offset and leader epoch of a segment (an epoch of -1: none)."""

    first_offset: int
    last_offset: int
    first_epoch: int
    last_epoch: int


class LoadedSegment:
    """One segment. suffix: of all its files (".swap", ".cleaned" or none).

    checked_bytes: this many bytes of the log are known to be batches with valid checksums. ordered_range: set when the whole log
    consists of such batches, offsets increase and leader epochs never decrease; None when that is false or unknown.
    """

    def __init__(
        self, load_state: LoadState, base_offset: int, settings: LoadSettings, suffix: str = ""
    ) -> None:
        self.load_state = load_state
        self.base_offset = base_offset
        self.settings = settings
        self.log_name = numbered(base_offset, L.LOG_SUFFIX + suffix)
        most = settings.segment_index_bytes
        self.offset_index = offset_index_file(
            load_state, numbered(base_offset, L.OFFSET_INDEX_SUFFIX + suffix), base_offset, most
        )
        self.time_index = TimeIndexFile(
            load_state, numbered(base_offset, L.TIME_INDEX_SUFFIX + suffix), base_offset, most
        )
        self.txn_index = TxnIndexFile(
            load_state, numbered(base_offset, L.TXN_INDEX_SUFFIX + suffix), base_offset
        )
        self.checked_bytes = 0
        self.ordered_range: OrderedRange | None = None
        self._largest: TimeIndexEntry | None = None
        if self.log_name not in load_state.image:
            load_state.write(self.log_name, b"", "an empty segment, created because there was none")
        if self.size_bytes > L.MAX_SEGMENT_BYTES:
            raise BrokerException(KAFKA, f"{self.log_name} is larger than 2 GiB")

    # --- what it holds

    @property
    def size_bytes(self) -> int:
        return self.load_state.size_bytes(self.log_name)

    @property
    def view(self) -> memoryview:
        """The bytes of the `.log`."""
        return self.load_state.view(self.log_name)

    @property
    def walk(self) -> LogWalk:
        return LogWalk(self.view, self.log_name)

    def can_hold(self, offset: int) -> bool:
        """Whether an index of this segment can represent the offset. Opens the offset index, as a broker does."""
        self.offset_index.open()
        return can_index_offset(offset, self.base_offset)

    def find(self, offset: int) -> WalkedBatch | None:
        """The batch that contains `offset`, else the first one after it (Kafka: translateOffset)."""
        return self.walk.search(offset, max(0, self.offset_index.reader.lookup(offset).position))

    def read(self, offset: int, max_bytes: int, end: int) -> LogRange | None:
        """The range from the batch of `offset` on, at most `max_bytes`, up to `end` (Kafka: read)."""
        found = self.find(offset)
        if found is None:
            return None
        length = min(end - found.position, max_bytes)
        if length < 0:
            sentence = f"offset {offset} is at position {found.position} of {self.log_name}, beyond {end}"
            raise BrokerException(ILLEGAL_ARGUMENT, sentence)
        end = min(found.position + length, self.size_bytes)
        return LogRange(found.position, end, found.base_offset)

    def next_offset(self) -> int:
        """The offset after the last batch; the base offset if there is none (Kafka: readNextOffset)."""
        size = self.size_bytes
        found = self.read(self.offset_index.reader.last_entry.offset, size, size)
        last = None if found is None else self.walk.last_offset(found.position, found.end)
        return self.base_offset if last is None else L.as_int64(last + 1)

    def has_overflow(self) -> bool:
        """Whether its last batch is too far from the base offset (Kafka: hasOverflow)."""
        next_offset = self.next_offset()
        return next_offset > self.base_offset and not self.can_hold(next_offset - 1)

    @property
    def largest(self) -> TimeIndexEntry:
        """The largest timestamp that a broker assumes: that of the last time index entry."""
        if self._largest is None:
            self._largest = self.time_index.reader.last_entry
        return self._largest

    @largest.setter
    def largest(self, entry: TimeIndexEntry | None) -> None:
        self._largest = entry

    # --- what changes it

    def cut(self, size_bytes: int, why: str) -> None:
        """Keep the first bytes of the log."""
        if size_bytes < self.size_bytes:
            self.load_state.truncate(self.log_name, size_bytes, why)
            self.checked_bytes = min(self.checked_bytes, size_bytes)

    def truncate_to(self, offset: int, why: str) -> int:
        """Remove everything at and above `offset`; returns the number of bytes removed from the log (Kafka: truncateTo)."""
        found = self.find(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.offset_index.resize_to_full()
        self.time_index.resize_to_full()
        before = self.size_bytes
        if found is not None:
            self.cut(found.position, why)
        if self.largest.timestamp_ms >= 0:
            self.largest = self._largest_in_log()
        return before - self.size_bytes

    def _largest_in_log(self) -> TimeIndexEntry:
        last = self.time_index.reader.last_entry
        position = self.offset_index.reader.lookup(last.offset).position
        timestamp, offset = self.walk.largest_timestamp(position)
        return TimeIndexEntry(timestamp, offset) if timestamp > last.timestamp_ms else last

    def close(self) -> None:
        """Close the files as a clean shutdown does."""
        if self._largest is not None:
            self.time_index.append_at_close(self._largest)
        self.offset_index.close()
        self.time_index.close()

    def delete(self, why: str) -> None:
        """Remove its files. A broker first renames them to `.deleted`, replacing files of that name, and deletes those."""
        for role in (Role.LOG, Role.OFFSET_INDEX, Role.TIME_INDEX, Role.TXN_INDEX):
            name = numbered(self.base_offset, SUFFIX_BY_ROLE[role])
            for each in (name, name + L.DELETED_SUFFIX):
                if each in self.load_state.image:
                    self.load_state.remove(each, why)


class LoadedSegments:
    """The segments of a log by base offset."""

    def __init__(self) -> None:
        self._by_base: dict[int, LoadedSegment] = {}
        self._bases: list[int] = []

    def __len__(self) -> int:
        return len(self._bases)

    def __iter__(self) -> Iterator[LoadedSegment]:
        """The segments from the oldest to the newest, as a copy of the current list."""
        return iter([self._by_base[base] for base in self._bases])

    @property
    def bases(self) -> list[int]:
        return list(self._bases)

    def newest_bases(self, count: int) -> list[int]:
        return self._bases[-count:]

    def __contains__(self, base_offset: int) -> bool:
        return base_offset in self._by_base

    def add(self, segment: LoadedSegment) -> None:
        """Add a segment; it replaces one with the same base offset."""
        if segment.base_offset not in self._by_base:
            bisect.insort(self._bases, segment.base_offset)
        self._by_base[segment.base_offset] = segment

    def remove(self, base_offset: int) -> None:
        if self._by_base.pop(base_offset, None) is not None:
            self._bases.remove(base_offset)

    def close_all(self) -> None:
        for segment in self:
            segment.close()

    def clear(self) -> None:
        self._by_base.clear()
        self._bases.clear()

    @property
    def first(self) -> LoadedSegment:
        return self._by_base[self._bases[0]]

    @property
    def last(self) -> LoadedSegment:
        return self._by_base[self._bases[-1]]

    def floor(self, offset: int) -> LoadedSegment | None:
        """The segment with the largest base offset that is not above `offset`."""
        at = bisect.bisect_right(self._bases, offset)
        return self._by_base[self._bases[at - 1]] if at else None

    def above(self, base_offset: int) -> LoadedSegment | None:
        """The segment with the smallest base offset above this one."""
        at = bisect.bisect_right(self._bases, base_offset)
        return self._by_base[self._bases[at]] if at < len(self._bases) else None

    def between(self, from_offset: int, to_offset: int) -> list[LoadedSegment]:
        """The segments from the one that can hold `from_offset` (else the first) to the last one that begins below `to_offset`."""
        if from_offset >= to_offset:
            return []
        first = max(0, bisect.bisect_right(self._bases, from_offset) - 1)
        return [
            self._by_base[base] for base in self._bases[first : bisect.bisect_left(self._bases, to_offset)]
        ]
