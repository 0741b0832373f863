"""A place in the metadata log, by offset or by time, and the records that belong to the state as of it.

As of offset N: every record up to N. As of time T: every batch that was appended at T or before, in log order. The leader stamps each batch
with its own clock when it appends it, so these are the first batches of the log, unless a clock was set back or two leaders' clocks differ.
Then a batch that is later than T is skipped although batches after it count, and no snapshot that contains it represents the state.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kseg.segment import header_tables as C
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.moments import moment
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import Scanner
from kseg.segment.values import dataclass

_IDLE_MS = 1000  # an active controller writes at least this often (metadata.max.idle.interval.ms: 500)


@dataclass(frozen=True, slots=True)
class AsOf:
    """One of the two. offset: the last record that counts. time_ms: batches that were appended later do not count."""

    offset: int | None = None
    time_ms: int | None = None

    @property
    def words(self) -> str:
        return f"offset {self.offset}" if self.offset is not None else f"time {self.time_ms}"

    def words_behind(self, last_offset: int, timestamp_ms: int) -> str:
        """The remark that the log, all of which counts, ends with this record, before the requested place; empty if it does not."""
        if self.offset is not None and self.offset > last_offset:
            asked = f"offset {self.offset} is beyond its end"
        elif self.time_ms is not None and 0 <= timestamp_ms < self.time_ms - _IDLE_MS:
            asked = f"{moment(self.time_ms)} is later"
        else:
            return ""
        when = f" ({moment(timestamp_ms)})" if timestamp_ms >= 0 else ""
        return f"the log ends at offset {last_offset}{when}, and {asked}: what happened in between is not known here"


class PlaceInLog(NamedTuple):
    """end_offset: after the last record that counts, None if all do. first_passed_over: the first offset that does not count,
    None without any; a snapshot that ends after it contains too much."""

    end_offset: int | None
    first_passed_over: int | None


def find_place(segments: Sequence[tuple[int, str]], as_of: AsOf) -> PlaceInLog:
    """Find where a state ends in a log. segments: base offset and path."""
    if as_of.time_ms is None:
        end_offset = None if as_of.offset is None else as_of.offset + 1
        return PlaceInLog(end_offset, end_offset)
    first: int | None = None
    end = segments[0][0] if segments else 0
    is_last_later = False
    for base_offset, path in segments:
        try:
            with MappedFile(path) as file:
                for offset, last_offset, is_later in _batches(file.view, base_offset, as_of.time_ms):
                    is_last_later = is_later
                    if not is_later:
                        end = last_offset + 1
                    elif first is None:
                        first = offset
        except UnreadableInput:
            continue  # the reader of the log reports it in detail
    return PlaceInLog(end if is_last_later else None, first)


def _batches(view: memoryview, base_offset: int, time_ms: int) -> Iterator[tuple[int, int, bool]]:
    """First and last offset of each batch, and whether it was appended later."""
    columns = (C.BASE_OFFSET, C.LAST_OFFSET, C.MAX_TIMESTAMP)
    for block in Scanner(view, base_offset).blocks():
        if not isinstance(block, Damage):
            for first, last, timestamp_ms in zip(*map(block.column, columns), strict=True):
                yield first, last, timestamp_ms > time_ms
