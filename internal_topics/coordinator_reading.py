"""Which batches a coordinator reads, where segments have batches of others: they were swapped, or copied over one another.

A coordinator reads on at the offset after the chunk that it has read, at most a segment: in the last segment that begins at or below this
offset, and there from the first batch on that ends at or above it (Kafka: CoordinatorLoaderImpl, LocalLog.read, LogSegment.read). So

1. it passes over batches that it is past. If no segment that it has read has their offsets, its state lacks them;
2. it reads a segment again whose last batch ends below an earlier one: endlessly, or until it fails because the last offset does not
   increase;
3. it ends its load where a segment ends at the log end or beyond it, and passes over all segments after it. Beyond it, the coordinators of
   groups and share groups answer no request then: they have no state for the high watermark.

A segment is taken for one chunk. Every chunk ends as the segment does if the offsets of the segment increase.
"""

from collections.abc import Iterator

from kseg.segment import header_tables as C
from kseg.segment.counted import offsets_words
from kseg.segment.header_tables import Columns
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.partition_log import PartitionLog

# kinds of a problem: the cases above
PASSED_OVER, ENDLESS, BEYOND_THE_END = "passed-over", "endless", "beyond-the-end"


class CoordinatorReading:
    """Which batches of each segment a coordinator reads. Call `enter` and `leave` around the tables of each segment, in order."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._start = self._next = log.start_offset
        self._read: list[range] = []  # what was read of each segment
        self._is_ended = False

    def enter(self, segment: LogSegment) -> None:
        following = segment.next_base_offset
        self._segment = segment
        self._is_past = self._is_ended or (following is not None and following <= self._next)
        self._passed = self._now = range(0)
        self._highest = -1
        self._has_begun = False  # whether a batch of the segment was read

    def first_row(self, table: Columns) -> int:
        """The first row of a table that is read; the number of its rows if none is."""
        lasts, row = table.column(C.LAST_OFFSET), 0
        if not self._has_begun:
            at = (row for row in range(table.count) if lasts[row] >= self._next)
            row = table.count if self._is_past else next(at, table.count)
            self._has_begun = row < table.count
            passed = [at for at in range(row) if lasts[at] >= self._start]
            if passed:
                first = self._passed.start if self._passed else table.at(C.BASE_OFFSET, passed[0])
                self._passed = range(first, lasts[passed[-1]] + 1)
        if row < table.count:
            first = self._now.start if self._now else table.at(C.BASE_OFFSET, row)
            self._now = range(first, lasts[table.count - 1] + 1)
            self._highest = max(self._highest, *lasts[row:])
        return row

    def leave(self) -> Iterator[tuple[str, int, str]]:
        """The problems of the segment: kind, first offset, and message."""
        base, following, end = self._segment.base_offset, self._segment.next_base_offset, self._now.stop
        passed = self._passed
        if passed and not any(each.start <= passed.start and passed.stop <= each.stop for each in self._read):
            how = (
                f"and a coordinator ends its load before that, at offset {self._next}"
                if self._is_ended
                else f"which a coordinator reads from offset {self._next} on"
            )
            message = (
                f"{offsets_words(passed.start, passed.stop - 1)} {'is' if len(passed) == 1 else 'are'} in the segment from offset {base} on, "
                + how
            )
            yield PASSED_OVER, passed.start, message
        if not self._now:
            return
        # beyond the log end there is nothing to read: this is reported after the last batch
        is_beyond = following is not None and max(end - 1, self._highest) >= following
        log_end = self._log.end_offset
        self._is_ended = following is not None and end >= log_end
        if not self._is_ended and is_beyond and self._highest >= log_end:
            return
        if self._is_ended and end > log_end:
            yield (
                BEYOND_THE_END,
                end,
                f"the segment ends at offset {end - 1}, beyond the log end offset {log_end}",
            )
        if following is not None and end <= self._highest and end < following:
            message = f"the segment has offset {self._highest}, but its last batch ends at {end - 1}"
            yield ENDLESS, end, message
        else:
            self._read.append(self._now)
            self._next = end
