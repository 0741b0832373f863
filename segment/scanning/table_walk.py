"""The walk over the entries of a buffer into tables of batches, with their checksums verified."""

from array import array
from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import walk
from kseg.segment.scanning.crc_verdicts import CrcVerifier

if TYPE_CHECKING:
    from kseg.segment.scanning.prevalidated import SkippableSpans

REMEMBERED_VERDICTS = 4096


class TableWalk:
    """A walk over one buffer. skippable: spans that were validated before, whose checksums are not computed again."""

    def __init__(self, view: memoryview, skippable: "SkippableSpans | None" = None) -> None:
        self.view = view
        self._judge = CrcVerifier(view)
        self._trust = skippable
        self._state = memoryview(array("q", [0, 0]))
        # the last request (table, position, end, until) and why that walk stopped
        self._walked: tuple[tuple[Columns, int, int, int], int] | None = None
        self._probe: Columns | None = None
        self._verdicts: dict[int, int | None] = {}

    @property
    def stopped(self) -> int:
        """The position that the last walk reached."""
        return self._state[S.BATCHES_END]

    def fill(self, table: Columns, position: int, end: int, until: int = -1) -> int:
        """Walk from `position` into the table, as Kafka would, verifying every checksum; returns why it stopped. until: omit batches that
        begin at or after it; -1: no limit."""
        request = table, position, end, until
        if self._walked is not None and self._walked[0] == request:
            # the same walk again: its rows are still in the table
            table.count = self._state[S.BATCHES_COUNT]
            return self._walked[1]
        self._state[S.BATCHES_END] = position
        reason = walk(self.view, end, table.cells, table.capacity, self._state, until)
        table.count = self._state[S.BATCHES_COUNT]
        if self._trust is not None and self._trust.covers(table, position, self._state[S.BATCHES_END]):
            table.column(C.VALID)[:] = memoryview(array("q", [1]) * table.count)
            if self._trust.with_records:
                table.column(C.BODY)[:] = memoryview(array("q", [C.BODY_SOUND]) * table.count)
        else:
            self._judge.verify(table)
        self._walked = request, reason
        return reason

    def forget_from(self, position: int) -> None:
        """Count the bytes checksummed after the start of damage: they will be checksummed again."""
        self._judge.wasted_bytes += max(0, self._state[S.BATCHES_END] - position)

    def probe(self, position: int, end: int) -> Columns | None:
        """The valid batch that starts at `position`, in a table of its own that the next probe overwrites; None if there is none."""
        probe = self._probe = self._probe or Columns(C.BATCH_WIDTH, 1)
        state = memoryview(array("q", [position, 0]))
        walk(self.view, end, probe.cells, 1, state)
        probe.count = state[S.BATCHES_COUNT]
        if not probe.count:
            return None
        self._judge.wasted_bytes += probe.at(C.SIZE, 0)
        self._judge.verify(probe)
        return probe if probe.at(C.VALID, 0) == 1 else None

    def valid_offset_at(self, position: int, end: int) -> int | None:
        """Base offset of the valid batch that starts at `position`, None if there is none."""
        # length fields may lead to the same batch repeatedly: its checksum is computed once
        if position not in self._verdicts:
            if len(self._verdicts) >= REMEMBERED_VERDICTS:
                self._verdicts.clear()
            probe = self.probe(position, end)
            self._verdicts[position] = None if probe is None else probe.at(C.BASE_OFFSET, 0)
        return self._verdicts[position]
