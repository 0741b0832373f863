"""The batches of one copy of a log in offset order, a table at a time, for a comparison with another copy.

Every checksum is verified. Invalid bytes become a finding, and their offsets are recorded: where the other copy has records there, this
one is damaged and not different. The CRC does not cover the base offset and the magic, so a batch whose offsets contradict both
adjacent batches counts as damaged too, and so does one with an unknown magic.
"""

from array import array
from bisect import bisect_right
from collections.abc import Generator
from typing import NamedTuple

from kseg.jobs.log_splitting import CannotSplit
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.findings import ERROR, Finding
from kseg.segment.header_tables import Columns
from kseg.segment.partition.header_walk import is_plausible
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding, undecodable
from kseg.segment.scanning.decode import Decoder, Problem
from kseg.segment.scanning.scan import Scanner
from kseg.segment.values import dataclass

RANGES_TOLD = 200  # limit per copy, to keep the output readable


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """first, last: offsets, both inclusive."""

    first: int
    last: int


class LogPlace(NamedTuple):
    """Where a batch begins. segment: the number of its segment in the log."""

    segment: int
    position: int


@dataclass(frozen=True, slots=True)
class LogStretch:
    """A part of a log between two batches, None for the ends of the log. It covers the offsets from `first_offset` to before
    `stop_offset`."""

    start: LogPlace | None = None
    stop: LogPlace | None = None
    first_offset: int = 0
    stop_offset: int | None = None


_WHOLE = LogStretch()


class CopyBatches:
    """A cursor over the valid batches of a log, or of a stretch of it.

    table, row: the current position; view: the bytes of that segment. batches: passed so far. damaged: offsets that cannot be read, in
    order. read_bytes: of the log, so far. Call `close` at the end. Raises CannotSplit when no batch ends at the end of the stretch.
    """

    def __init__(self, log: PartitionLog, stretch: LogStretch = _WHOLE) -> None:
        self._log = log
        self._stretch = stretch
        self._blocks = self._walk()
        self._last_offset = stretch.first_offset - 1
        self._segment: LogSegment | None = None
        self._file: MappedFile | None = None
        self.table = Columns(C.BATCH_WIDTH, 1)
        self.row = 0
        self.batches = 0
        self.read_bytes = 0
        self.damaged_bytes = 0
        self.damaged: list[OffsetSpan] = []
        self.is_done = False
        self._load()

    @property
    def end_offset(self) -> int:
        """The offset after the last valid batch passed, at least the base offset of the newest segment."""
        newest = self._log.segments[-1].base_offset if self._log.segments else 0
        return max(newest, self._last_offset + 1)

    @property
    def left(self) -> int:
        """Remaining rows of the table, including the current one."""
        return 0 if self.is_done else self.table.count - self.row

    @property
    def view(self) -> memoryview:
        assert self._file is not None
        return self._file.view

    def at(self, field: int) -> int:
        return self.table.at(field, self.row)

    def rows_to(self, offset: int) -> int:
        """How many of the remaining rows end at or before this offset; at least one."""
        ends = self.table.column(C.LAST_OFFSET)
        return max(1, bisect_right(ends, offset, self.row) - self.row)

    def advance(self, rows: int) -> None:
        """Advance by this many rows, at most `left`."""
        self.row += rows
        self.batches += rows
        if self.row >= self.table.count:
            self._load()

    @property
    def covers_to(self) -> int:
        """The offset up to which it is known whether the copy has a record, once the cursor is at the end."""
        stop = self._stretch.stop_offset
        return (self.end_offset if stop is None else stop) - 1

    def close(self) -> None:
        self._blocks.close()
        self._release()

    def _load(self) -> None:
        table = next(self._blocks, None)
        self.is_done = table is None
        self.row = 0
        if table is not None:
            self.table = table

    def _walk(self) -> Generator[Columns, None, None]:
        start, stop = self._stretch.start or LogPlace(0, 0), self._stretch.stop
        segments = self._log.segments
        for number in range(start.segment, len(segments) if stop is None else stop.segment + 1):
            segment = segments[number]
            first = start.position if number == start.segment else 0
            until = None if stop is None or number < stop.segment else stop.position
            if until == 0:
                return
            try:
                yield from self._of_segment(segment, first, until)
            except UnreadableInput as error:
                self._log.report(Finding("unreadable-file", segment.path, str(error)))
                self._damage(self._last_offset + 1, segment.next_base_offset)
            finally:
                self._release()

    def _of_segment(
        self, segment: LogSegment, start: int, until: int | None
    ) -> Generator[Columns, None, None]:
        self._file = file = MappedFile(segment.path)
        self._segment = segment
        scanner = Scanner.over(file, segment.base_offset, next_base=segment.following_base)
        walked = start
        for block in scanner.blocks(start, until=until):
            if isinstance(block, Damage):
                self._report(segment, block)
                walked = block.position + block.length
                continue
            end = block.count - 1
            passed = block.at(C.POSITION, end) + block.at(C.SIZE, end)
            if min(block.column(C.MAGIC)) < L.MAGIC_V2:
                # the header of a compressed set has its last offset, not its first
                Decoder(file.view).note_sets(block)
            table = self._in_order(segment, block)
            if table.count:
                self._last_offset = table.at(C.LAST_OFFSET, table.count - 1)
                yield table
            self.read_bytes += passed - walked
            walked = passed
        if until is not None and walked != until:
            raise CannotSplit(segment.path)
        self.read_bytes += (file.size_bytes if until is None else until) - walked

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # --- damage

    def _report(self, segment: LogSegment, damage: Damage) -> None:
        finding = damage_finding(segment.path, damage)
        self._log.report(finding)
        if finding.severity == ERROR:
            self.damaged_bytes += damage.length
            first = damage.lost.first_offset
            if first is not None:
                behind = damage.resumed_offset
                last = damage.lost.last_offset
                self._damage(first, behind if last is None else last + 1)

    def _damage(self, first: int, stop: int | None) -> None:
        """Offsets `first` to before `stop` cannot be read; None: up to the end, wherever that was."""
        last = L.INT64_MAX if stop is None else stop - 1
        if last >= first and len(self.damaged) < RANGES_TOLD:
            self.damaged.append(OffsetSpan(first, last))

    def _in_order(self, segment: LogSegment, table: Columns) -> Columns:
        """The table without batches whose offsets contradict adjacent batches or whose magic is unknown. Returns the same table if there
        are none."""
        stop = segment.next_base_offset if self._stretch.stop_offset is None else self._stretch.stop_offset
        if is_plausible(table, self._last_offset) and (
            stop is None or table.at(C.LAST_OFFSET, table.count - 1) < stop
        ):
            return table
        kept, before = list[int](), self._last_offset
        for row in range(table.count):
            base, last = table.at(C.BASE_OFFSET, row), table.at(C.LAST_OFFSET, row)
            following = table.at(C.BASE_OFFSET, row + 1) if row + 1 < table.count else stop
            is_beyond = following is not None and before < following <= last
            if not before < base <= last or is_beyond:
                reason = (
                    f"says that it holds offsets {base} to {last}, which contradicts the batches next to it"
                )
                self._reject(segment, table, row, "altered-base-offset", reason)
                expected = before + 1
                self._damage(expected, expected + last - base + 1 if following is None else following)
                continue
            before = last
            if L.MAGIC_V0 <= table.at(C.MAGIC, row) <= L.MAGIC_V2:
                kept.append(row)
            else:  # the CRC does not cover the magic
                self._reject(segment, table, row, "bad-magic", f"has magic {table.at(C.MAGIC, row)}")
                self._damage(base, last + 1)
        rest = Columns(C.BATCH_WIDTH, max(1, len(kept)))
        rest.count = len(kept)
        for field in range(C.BATCH_WIDTH):
            column = table.column(field)
            rest.column(field)[:] = memoryview(array("q", [column[row] for row in kept]))
        return rest

    def report_undecodable(self, table: Columns, problem: Problem) -> None:
        """Report a batch of the table with a valid checksum whose records cannot be decoded."""
        assert self._segment is not None
        self._log.report(undecodable(self._segment.path, table, problem))
        self.damaged_bytes += table.at(C.SIZE, problem.row)
        self._damage(table.at(C.BASE_OFFSET, problem.row), table.at(C.LAST_OFFSET, problem.row) + 1)

    def _reject(self, segment: LogSegment, table: Columns, row: int, finding_id: str, reason: str) -> None:
        """Report a batch with a valid checksum whose other fields are altered."""
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        self.damaged_bytes += size
        self._log.report(
            Finding(
                finding_id,
                segment.path,
                f"the batch at position {position} {reason}",
                position=position,
                length=size,
                first_offset=table.at(C.BASE_OFFSET, row),
                last_offset=table.at(C.LAST_OFFSET, row),
            )
        )
