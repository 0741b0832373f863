"""What consumers get from a planned partition directory: the reader by which the cost of policy kafka is counted.

The cost counts what even the most persistent consumer does not get: one that reads from the log start, takes one record at a time, and
seeks to the first and to the last offset of every batch that it did not receive. The rules are those of the broker and the Java consumer
of 4.3 (LocalLog.read, LogSegment.translateOffset, CompletedFetch.nextFetchedRecord); `tests/kafka/test_price_by_consumers.py` compares real
ones:

    a fetch    begins in the segment with the largest base offset that is not above its offset, at the batch that the headers
               lead to (`loading.broker_walk`), or else in the next segment; it returns the bytes up to the end of the segment
    walking    the consumer goes from batch to batch by size; a size below the minimum, an unknown magic or a wrong checksum
               is an exception, and nothing after it is returned without a seek
    skipping   records below the fetch position are silently skipped; the next fetch begins after the last batch
    the end    a fetch at or above the log end returns nothing; what an earlier fetch reaches there is returned

A record that is returned with an offset other than its own is not lost: a reader gets it. `verify.unread_batch` determines how much a
consumer gets of a batch whose records contradict its header; here a walk ends at a batch that causes an exception.
"""

import bisect
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from typing import Self

from kseg.change.plan.directory_image import DirectoryImage
from kseg.recovery.loading.broker_walk import LogWalk
from kseg.recovery.loading.kafka_exceptions import BrokerException
from kseg.recovery.salvage.image_reader import ImageReader
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import FULL
from kseg.segment.partition.names import Role, parse_file_name, segment_file_name
from kseg.segment.scanning.scan import BATCHES_PER_TABLE, Scanner
from kseg.segment.sidecar.index import OffsetIndex
from kseg.segment.values import dataclass

_FIRST_TABLE = 8
_GROWTH = 16

Content = tuple[int, int]  # checksum and size: the identity of a batch at any position and base offset


@dataclass(frozen=True, slots=True)
class LogName:
    base_offset: int
    name: str


def log_names(names: Iterable[str]) -> list[LogName]:
    """The `.log` files in use among the files of a partition, by base offset."""
    found = []
    for name in names:
        parsed = parse_file_name(name)
        if parsed.role is Role.LOG and parsed.is_live and parsed.base_offset is not None:
            found.append(LogName(parsed.base_offset, name))
    return sorted(found, key=lambda log: log.base_offset)


class ConsumerView:
    """A consumer of the partition `image`, of which the broker serves log_start … log_end − 1. Use as a context manager.

    logs: those that the broker has. identical: base offset → the first offset after the segment, for segments that a consumer is known
    to read completely; they are not opened. stops: batches in which a reader gets an exception. given: by batch content, base offset in the
    log → the first offset that was returned.
    """

    def __init__(
        self,
        directory: str,
        image: DirectoryImage,
        logs: list[LogName],
        bounds: tuple[int, int],
        identical: dict[int, int],
        stops: AbstractSet[Content] = frozenset(),
    ) -> None:
        self._image = image
        self._reader = ImageReader(directory, image)
        self._logs = logs
        self._bases = [log.base_offset for log in logs]
        self._start, self._end = bounds
        self._identical = identical
        self._stops = stops
        self._open: dict[int, _Segment] = {}
        self._files = ExitStack()
        self._fetched = set[int]()  # a second fetch from the same offset returns nothing new
        self.given: dict[Content, dict[int, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.clear()
        self._files.close()

    def read_from(self, offset: int) -> None:
        """Read on from an offset until nothing new is returned."""
        position = offset
        while self._start <= position < self._end and position not in self._fetched:
            self._fetched.add(position)
            after = self._fetch(position)
            if after is None:
                return
            position = after

    def _fetch(self, offset: int) -> int | None:
        """The offset of the next fetch; None when this one returned nothing new."""
        at = max(0, bisect.bisect_right(self._bases, offset) - 1)
        for log in self._logs[at:]:
            if log.base_offset in self._identical:
                after = self._identical[log.base_offset]
                if after > offset:
                    return after
                continue
            segment = self._segment(log)
            try:
                found = segment.walk.search(offset, max(0, segment.index.lookup(offset).position))
            except BrokerException:
                return None
            if found is not None:
                return self._consume(segment, found.position, offset)
        return None

    def _consume(self, segment: "_Segment", position: int, offset: int) -> int | None:
        last = None
        for table, row in segment.batches_from(position):
            first, last = table.at(C.BASE_OFFSET, row), table.at(C.LAST_OFFSET, row)
            if last < offset:
                continue
            content = table.at(C.CRC, row), table.at(C.SIZE, row)
            given = self.given.setdefault(content, {})
            before = given.get(first)
            if before is not None and before <= max(first, offset):
                return None
            given[first] = max(first, offset)
            if content in self._stops:
                return None
            offset = max(offset, _end_of_records(table, row))
        return None if last is None or segment.is_broken else last + 1

    def _segment(self, log: LogName) -> "_Segment":
        if log.base_offset not in self._open:
            index_name = segment_file_name(log.base_offset, L.OFFSET_INDEX_SUFFIX)
            entries = self._reader.read_small(index_name) if index_name in self._image else b""
            file = self._files.enter_context(self._reader.open(log.name))
            self._open[log.base_offset] = _Segment(
                log, file.view, OffsetIndex(entries, log.base_offset, as_kafka=True)
            )
        return self._open[log.base_offset]


def _end_of_records(table: Columns, row: int) -> int:
    """A lower bound of the offset after the last record of a batch: within a fetch the header's last offset does not count."""
    if table.at(C.MAGIC, row) < L.MAGIC_V2:
        return table.at(C.LAST_OFFSET, row) + 1
    return table.at(C.BASE_OFFSET, row) + max(0, table.at(C.COUNT, row))


class _Segment:
    """is_broken: the last walk ended with an exception in the consumer."""

    def __init__(self, log: LogName, view: memoryview, index: OffsetIndex) -> None:
        self.index = index
        self.walk = LogWalk(view, log.name)
        self.is_broken = False
        self._view = view
        self._base_offset = log.base_offset

    def batches_from(self, position: int) -> Iterator[tuple[Columns, int]]:
        """The batches that a consumer can read, as tables and rows, up to its first exception."""
        self.is_broken = True
        rows = _FIRST_TABLE
        while True:
            scanner = Scanner(self._view, self._base_offset, rows)
            reason = scanner.fill(position, len(self._view))
            table = scanner.table
            for row in range(table.count):
                if table.at(C.VALID, row) != 1 or table.at(C.MAGIC, row) > L.MAGIC_V2:
                    return
                yield table, row
            if table.count:
                position = table.at(C.POSITION, table.count - 1) + table.at(C.SIZE, table.count - 1)
            if reason != FULL or not table.count:
                break
            rows = min(rows * _GROWTH, BATCHES_PER_TABLE)
        # the consumer does not check a batch that is truncated
        size = int.from_bytes(self._view[position + 8 : position + L.ENTRY_OVERHEAD], "big", signed=True)
        is_whole_size = len(self._view) - position >= L.ENTRY_OVERHEAD
        self.is_broken = is_whole_size and size < L.MIN_LEGACY_SIZE_FIELD
