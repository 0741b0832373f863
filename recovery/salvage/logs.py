"""The original logs of a partition, and their valid parts.

A *valid run* is a sequence of valid batches that follow one another in one file with increasing offsets. Salvage moves
valid runs, not batches: a valid segment is a single run, and each damage or break in the order starts a new one.
Where single batches are needed, their headers are read again.

A correction of a header field outside the CRC is a `HeaderFix`, by the position of its batch. Readers of
a valid run see the batches as repaired; writers of it replace the first 17 bytes:

     0  base_offset   8  length   12  leader_epoch   16  magic          (magic 0 and 1: offset and length only)
"""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Self

from kseg.change.plan.content import Fresh, Piece, Span
from kseg.recovery.verify.header_plausibility import first_of, set_offset
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.files import DISK, OpenFile, Reader
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import walk
from kseg.segment.scanning.decode import Decoder
from kseg.segment.scanning.scan import BATCHES_PER_TABLE
from kseg.segment.values import dataclass

_MAX_OPEN = 8


@dataclass(frozen=True, slots=True)
class HeaderFix:
    """Corrections of a batch's header; None leaves a field as it is."""

    base_offset: int | None = None
    leader_epoch: int | None = None
    magic: int | None = None

    def over(self, previous: "HeaderFix | None") -> "HeaderFix":
        """Both corrections combined."""
        if previous is None:
            return self
        return HeaderFix(
            previous.base_offset if self.base_offset is None else self.base_offset,
            previous.leader_epoch if self.leader_epoch is None else self.leader_epoch,
            previous.magic if self.magic is None else self.magic,
        )


@dataclass(frozen=True, slots=True)
class FoundLog:
    """One `.log`. name: as found on disk. called: its name once leftovers are resolved. base_offset: from that name.
    fixes: by position of the batch; filled while the log is checked."""

    name: str
    called: str
    path: str
    base_offset: int
    size_bytes: int
    fixes: dict[int, HeaderFix] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ValidRun:
    """log: number of the found log. position, length: bytes in it. first_offset: for a compressed set of magic 0 or 1
    its only known offset, the last. first_epoch, last_epoch: leader epochs of its first and last batch. is_believed:
    False for a run after damage whose offsets do not continue from before it."""

    log: int
    position: int
    length: int
    first_offset: int
    last_offset: int
    batches: int
    first_epoch: int = L.NO_LEADER_EPOCH
    last_epoch: int = L.NO_LEADER_EPOCH
    is_believed: bool = True

    @property
    def end_position(self) -> int:
        return self.position + self.length

    def joined(self, after: "ValidRun") -> "ValidRun":
        """The two runs as one; `after` directly follows this one in the file."""
        return replace(
            self,
            length=self.length + after.length,
            last_offset=after.last_offset,
            batches=self.batches + after.batches,
            last_epoch=after.last_epoch,
        )


def valid_run_of(log: int, table: Columns, first: int, stop: int) -> ValidRun:
    """A valid run of the consecutive batches in rows first … stop - 1 of a table."""
    position = table.at(C.POSITION, first)
    length = table.at(C.POSITION, stop - 1) + table.at(C.SIZE, stop - 1) - position
    low, last = first_of(table, first), table.at(C.LAST_OFFSET, stop - 1)
    epochs = table.at(C.LEADER_EPOCH, first), table.at(C.LEADER_EPOCH, stop - 1)
    return ValidRun(log, position, length, low, last, stop - first, *epochs)


class Logs:
    """All found logs of a partition, by number; a context manager. Few are mapped at a time.

    Sources come after them: leftover logs whose batches replace damage. They have numbers, too, but are not logs of the
    partition (`len` does not count them).
    """

    def __init__(self, logs: Sequence[FoundLog], reader: Reader = DISK) -> None:
        self._logs = [*logs]
        self._own = len(logs)
        self._target_logs: list[int] = []
        self._reader = reader
        self._open: OrderedDict[int, OpenFile] = OrderedDict()
        self._fixed: dict[int, list[int]] = {}

    def __getitem__(self, number: int) -> FoundLog:
        return self._logs[number]

    def __len__(self) -> int:
        return self._own

    def add_source(self, source: FoundLog, target_log: int) -> int:
        """Register a file that batches are taken from; returns its number. target_log: number of the log that receives them."""
        self._logs.append(source)
        self._target_logs.append(target_log)
        return len(self._logs) - 1

    def target_log(self, number: int) -> int:
        """The log that a file's batches end up in: the file itself, or for a source the damaged log."""
        return number if number < self._own else self._target_logs[number - self._own]

    def view(self, number: int) -> memoryview:
        """The bytes of a log. Raises UnreadableInput."""
        return memoryview(self.file(number).view)  # a walk continues even after the file was unmapped

    def file(self, number: int) -> OpenFile:
        """An open log; it may be closed once other logs have been opened. Raises UnreadableInput."""
        file = self._open.pop(number, None)
        if file is None:
            file = self._reader.open(self._logs[number].path)
            if len(self._open) >= _MAX_OPEN:
                _, oldest = self._open.popitem(last=False)
                oldest.close()
        self._open[number] = file
        return file

    def tables(self, valid_run: ValidRun) -> Iterator[Columns]:
        """The batches of a valid run as repaired, a table at a time (each table is valid until the next one is requested)."""
        view = self.view(valid_run.log)
        table = Columns(C.BATCH_WIDTH, min(BATCHES_PER_TABLE, valid_run.batches))
        state = memoryview(array("q", [valid_run.position, 0]))
        while state[S.BATCHES_END] < valid_run.end_position:
            walk(view, valid_run.end_position, table.cells, table.capacity, state)
            table.count = state[S.BATCHES_COUNT]
            if not table.count:
                raise AssertionError("a stretch holds valid batches only")
            self._repair(valid_run.log, table)
            yield table

    def first_offset(self, number: int, table: Columns, row: int) -> int:
        """The true first offset of a batch: in a compressed set of an old format, only the inner messages contain it."""
        if table.at(C.MAGIC, row) < L.MAGIC_V2 and table.at(C.COUNT, row) < 0:
            for chunk in Decoder(self.view(number), capacity=16).chunks(table, row, row + 1):
                if chunk.records.count:
                    return min(chunk.records.at(C.R_OFFSET, 0), table.at(C.LAST_OFFSET, row))
                break
        return table.at(C.BASE_OFFSET, row)

    def begin_of_batch(self, valid_runs: Iterable[ValidRun], offset: int, end_offset: int) -> int:
        """The base offset of the batch that contains an offset or follows it, in valid runs that are in order; `end_offset` if there is
        none."""
        for valid_run in valid_runs:
            if valid_run.last_offset >= offset:
                for table in self.tables(valid_run):
                    row = bisect_left(table.column(C.LAST_OFFSET), offset)
                    if row < table.count:
                        return table.at(C.BASE_OFFSET, row)
        return end_offset

    def true_first_offset(self, valid_run: ValidRun) -> int:
        """`first_offset` of the first batch of a valid run. Only a header that does not contain it, or is repaired, is put into a table."""
        view, start = self.file(valid_run.log).view, valid_run.position
        if not self._logs[valid_run.log].fixes and view[start + L.MAGIC_POSITION] == L.MAGIC_V2:
            return int.from_bytes(view[start : start + 8], "big", signed=True)
        table = next(self.tables(replace(valid_run, batches=1)))
        return self.first_offset(valid_run.log, table, 0)

    def pieces(self, valid_run: ValidRun) -> Iterator[Piece]:
        """The pieces of a file with the content of the valid run."""
        log = self._logs[valid_run.log]
        position = valid_run.position
        for at in self._fixes_in(valid_run.log, position, valid_run.end_position):
            yield Span(log.name, position, at - position)
            yield Fresh(self._repaired_head(valid_run.log, at))
            position = at + L.HEADER_TO_MAGIC
        yield Span(log.name, position, valid_run.end_position - position)

    def is_untouched(self, number: int, valid_runs: Sequence[ValidRun]) -> bool:
        """Whether these valid runs, written in order, equal the log as it is."""
        position = 0
        for valid_run in valid_runs:
            if valid_run.log != number or valid_run.position != position:
                return False
            position = valid_run.end_position
        return position == self._logs[number].size_bytes and not self._logs[number].fixes

    def is_in_own_segment(self, number: int, first_offset: int, last_offset: int) -> bool:
        """Whether the offsets are in the range that the file names assign to a segment."""
        base = self._logs[number].base_offset
        following = self._logs[number + 1].base_offset if number + 1 < self._own else L.INT64_MAX
        return base <= first_offset and last_offset < max(following, base + 1)

    def set_fix(self, number: int, position: int, fix: HeaderFix) -> None:
        """Set the corrected header fields of that batch; a fix with only None removes the correction."""
        fixes = self._logs[number].fixes
        if fix == HeaderFix():
            fixes.pop(position, None)
        else:
            fixes[position] = fix
        self._fixed.pop(number, None)

    def _repair(self, number: int, table: Columns) -> None:
        positions = table.column(C.POSITION)
        fixes: Mapping[int, HeaderFix] = self._logs[number].fixes
        end = positions[-1] + table.at(C.SIZE, table.count - 1)
        for at in self._fixes_in(number, positions[0], end):
            row, fix = bisect_left(positions, at), fixes[at]
            if fix.base_offset is not None:
                set_offset(table, row, fix.base_offset)
            if fix.leader_epoch is not None:
                table.cells[C.LEADER_EPOCH * table.capacity + row] = fix.leader_epoch
            if fix.magic is not None:
                table.cells[C.MAGIC * table.capacity + row] = fix.magic

    def _fixes_in(self, number: int, start: int, end: int) -> list[int]:
        """Positions of batches to be repaired, in order."""
        fixes = self._logs[number].fixes
        if not fixes:
            return []
        known = self._fixed.get(number)
        if known is None:
            known = self._fixed[number] = sorted(fixes)
        return known[bisect_left(known, start) : bisect_left(known, end)]

    def _repaired_head(self, number: int, position: int) -> bytes:
        fix = self._logs[number].fixes[position]
        head = bytearray(self.view(number)[position : position + L.HEADER_TO_MAGIC])
        if fix.base_offset is not None:
            head[:8] = fix.base_offset.to_bytes(8, "big", signed=True)
        if fix.leader_epoch is not None:
            head[L.ENTRY_OVERHEAD : L.MAGIC_POSITION] = fix.leader_epoch.to_bytes(4, "big", signed=True)
        if fix.magic is not None:
            head[L.MAGIC_POSITION] = fix.magic
        return bytes(head)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
