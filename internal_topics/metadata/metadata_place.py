"""A place in the metadata log, by offset or by time: the state as of it is what all before it comes to.

As of offset N: every record up to N. As of time T: every batch before the first one that was appended after T. The leader
stamps each batch with its own clock when it appends it, so a log has its batches in the order of time unless a clock was set back or
two leaders' clocks differ; a batch that is earlier than one before it does not count by itself.
"""

from collections.abc import Sequence

from kseg.segment import header_tables as C
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import Scanner
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class AsOf:
    """One of both. offset: the last record that counts. time_ms: batches that were appended later do not count."""

    offset: int | None = None
    time_ms: int | None = None

    @property
    def words(self) -> str:
        return f"offset {self.offset}" if self.offset is not None else f"time {self.time_ms}"


def offset_at(segments: Sequence[tuple[int, str]], as_of: AsOf) -> int | None:
    """The offset behind the last record that counts; None for all that there is. segments: base offset and path."""
    if as_of.time_ms is None:
        return None if as_of.offset is None else as_of.offset + 1
    for base_offset, path in segments:
        try:
            with MappedFile(path) as file:
                found = _first_after(file.view, base_offset, as_of.time_ms)
        except UnreadableInput:
            continue  # the reader of the log has more to say about it
        if found is not None:
            return found
    return None


def _first_after(view: memoryview, base_offset: int, time_ms: int) -> int | None:
    for block in Scanner(view, base_offset).blocks():
        if not isinstance(block, Damage):
            for row in range(block.count):
                if block.at(C.MAX_TIMESTAMP, row) > time_ms:
                    return block.at(C.BASE_OFFSET, row)
    return None
