"""The batches of one copy of a log in offset order, a table at a time, for a comparison with another copy.

Every checksum is verified. Invalid bytes become a finding, and the offsets that they stand for are recorded: where the other copy
has records there, this one is damaged and not different. The CRC does not cover the base offset, so a batch whose offsets contradict both of its
neighbours counts as damaged too, and one of an unknown magic.
"""

from array import array
from collections.abc import Generator

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
from kseg.segment.scanning.damage_findings import damage_finding
from kseg.segment.scanning.decode import Decoder
from kseg.segment.scanning.scan import Scanner
from kseg.segment.values import dataclass

RANGES_TOLD = 200  # of a copy; more would not be read


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """first, last: offsets, both inclusive."""

    first: int
    last: int

    def meets(self, other: "OffsetSpan") -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class CopiedBatch:
    """A valid batch. data: its bytes. The other fields are those of its header."""

    data: bytes
    base_offset: int
    last_offset: int
    magic: int
    attributes: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int


class CopyBatches:
    """A cursor over the valid batches of a log. table, row: where it is; view: the bytes of that segment. batches: passed so far. damaged: offsets that
    cannot be read, in order. read_bytes: of the log, so far. Call `close` at the end."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._blocks = self._walk()
        self._last_offset = -1
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

    def batch(self) -> CopiedBatch:
        """The batch at the cursor, with a copy of its bytes."""
        position = self.at(C.POSITION)
        return CopiedBatch(
            bytes(self.view[position : position + self.at(C.SIZE)]),
            *map(self.at, (C.BASE_OFFSET, C.LAST_OFFSET, C.MAGIC, C.ATTRIBUTES)),
            *map(self.at, (C.LEADER_EPOCH, C.PRODUCER_ID, C.PRODUCER_EPOCH)),
        )

    def advance(self, rows: int) -> None:
        """Advance by this many rows, at most `left`."""
        self.row += rows
        self.batches += rows
        if self.row >= self.table.count:
            self._load()

    def drain(self) -> None:
        """Advance to the end."""
        while not self.is_done:
            self.advance(self.left)

    def is_damaged_in(self, offsets: OffsetSpan) -> bool:
        return any(each.meets(offsets) for each in self.damaged)

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
        for segment in self._log.segments:
            try:
                yield from self._of_segment(segment)
            except UnreadableInput as error:
                self._log.report(Finding("unreadable-file", segment.path, str(error)))
                self._damage(self._last_offset + 1, segment.next_base_offset)
            finally:
                self._release()

    def _of_segment(self, segment: LogSegment) -> Generator[Columns, None, None]:
        self._file = file = MappedFile(segment.path)
        scanner = Scanner.over(file, segment.base_offset, next_base=segment.following_base)
        walked = 0
        for block in scanner.blocks():
            if isinstance(block, Damage):
                self._report(segment, block)
                walked = block.position + block.length
                continue
            end = block.count - 1
            passed = block.at(C.POSITION, end) + block.at(C.SIZE, end)
            if min(block.column(C.MAGIC)) < L.MAGIC_V2:
                Decoder(file.view).note_sets(
                    block
                )  # the header of a compressed set says where it ends, not where it begins
            table = self._in_order(segment, block)
            if table.count:
                self._last_offset = table.at(C.LAST_OFFSET, table.count - 1)
                yield table
            self.read_bytes += passed - walked
            walked = passed
        self.read_bytes += file.size_bytes - walked

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
        """The table without batches whose offsets contradict their neighbours or whose magic is unknown. It is the same table where there is none."""
        stop = segment.next_base_offset
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
                said = (
                    f"says that it holds offsets {base} to {last}, which contradicts the batches next to it"
                )
                self._reject(segment, table, row, "altered-base-offset", said)
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

    def _reject(self, segment: LogSegment, table: Columns, row: int, finding_id: str, said: str) -> None:
        """Report a batch with a valid checksum whose other fields are altered."""
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        self.damaged_bytes += size
        self._log.report(
            Finding(
                finding_id,
                segment.path,
                f"the batch at position {position} {said}",
                position=position,
                length=size,
                first_offset=table.at(C.BASE_OFFSET, row),
                last_offset=table.at(C.LAST_OFFSET, row),
            )
        )
