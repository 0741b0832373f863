"""The valid batches of one log as the judgement passes by: stretches, damage, what is to be repaired.

A consumer of the pass that `verify` makes (`verify.segment_check`): findings come first, then the rows they are about.
A table about which nothing was found costs one comparison. From the first finding on, the kernel looks for breaks in
the order.

    altered base offset or leader epoch, wrong magic    a `HeaderFix`; the rows come with the probable value
    altered base offset, nobody knows the true one      the batch is *displaced*: it is valid, and whether it was moved
                                                        (then its offsets are right) or altered is seen at the end
    offsets below 0, a last offset below the first      it goes: no log can hold them
    offsets that do not rise                            a new stretch

Behind damage the first batch is weighed. Its checksum alone (32 bits) is what the search stopped at, and what it
found may still be the middle of somebody's value that looks like a batch. For it speaks:

    checksum    magic, length and checksum are right                                always
    length      its length leads to another valid batch, or to the end of the file
    offset      it lies above what came before the damage and below the next segment, and the batch behind it higher
    epoch       its leader epoch is not below that before the damage, nor above that of the batch behind it

Confidence is high when all speak for it, medium when one does not, low otherwise.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kseg.recovery.salvage.found import FoundLog, HeaderFix, Stretch
from kseg.recovery.verify.neighbours import first_of
from kseg.recovery.verify.segment_check import SegmentFacts
from kseg.segment import columns as C
from kseg.segment import layout as L
from kseg.segment.columns import Columns
from kseg.segment.findings import Finding
from kseg.segment.kernel import check

_ORDER = frozenset(
    (
        "offset-not-monotonic",
        "offset-below-segment",
        "altered-base-offset",
        "altered-leader-epoch",
        "record-count-mismatch",
        "bad-magic",
    )
)
CHECKSUM, LENGTH, OFFSET, EPOCH = "checksum", "length", "offset", "epoch"


@dataclass(frozen=True, slots=True)
class Loss:
    """Bytes of a log that do not stay. cause: id of the finding. batches: valid ones among them. first_offset,
    last_offset: of these batches; for damage, of what its header claims when that can be true."""

    log: int
    position: int
    length: int
    cause: str
    batches: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Resumption:
    """Why the first batch behind damage is believed. evidence: what speaks for it."""

    evidence: tuple[str, ...]

    @property
    def confidence(self) -> str:
        return {4: "high", 3: "medium"}.get(len(self.evidence), "low")


class Watch:
    """A consumer for one log. number: of the log. next_base: of the next segment, None for the last.

    stretches, losses: in order of position. displaced: batches (as stretches of one) whose offsets contradict their
    neighbours; until they are placed they are among the losses. resumptions: by the position of the damage.
    """

    def __init__(self, number: int, log: FoundLog, next_base: int | None) -> None:
        self.log = log
        self.stretches: list[Stretch] = []
        self.losses: list[Loss] = []
        self.displaced: list[Stretch] = []
        self.resumptions: dict[int, Resumption] = {}
        self._number = number
        self._next_base = next_base
        self._is_suspicious = False
        self._unplaced: dict[int, int] = {}
        self._unknown_epochs: list[int] = []
        self._damage: int | None = None
        self._last_epoch = L.NO_LEADER_EPOCH
        self._state = memoryview(array("q", bytes(8 * check.SEEN_WIDTH)))

    # --- what is said

    def note(self, finding: Finding) -> None:
        """A finding about this log; before the rows it is about are taken, unless the next segment told it."""
        if "claimed_offset" in finding.numbers:
            self._note_damage(finding)
        elif finding.id in _ORDER:
            self._is_suspicious = True
            self._note_order(finding)

    def _note_damage(self, finding: Finding) -> None:
        assert finding.position is not None and finding.length is not None
        claimed = finding.numbers["claimed_offset"]
        first = claimed if isinstance(claimed, int) and claimed == finding.first_offset else None
        self.losses.append(
            Loss(self._number, finding.position, finding.length, finding.id, first_offset=first)
        )
        self._damage = finding.position

    def _note_order(self, finding: Finding) -> None:
        numbers, position = finding.numbers, finding.position
        if position is None:
            return
        if finding.id == "altered-base-offset":
            probable = numbers["probable_base_offset"]
            if isinstance(probable, int):
                self._fix(position, HeaderFix(base_offset=probable))
            else:
                found = numbers["found_base_offset"]
                assert isinstance(found, int)
                self._unplaced[position] = found
        elif finding.id == "altered-leader-epoch":
            position -= L.ENTRY_OVERHEAD
            probable = numbers["probable_epoch"]
            if isinstance(probable, int):
                self._fix(position, HeaderFix(leader_epoch=probable))
            else:
                self._unknown_epochs.append(position)
        elif finding.id == "bad-magic":
            self._fix(position, HeaderFix(magic=L.MAGIC_V2))

    def _fix(self, position: int, fix: HeaderFix) -> None:
        self.log.fixes[position] = fix.over(self.log.fixes.get(position))

    # --- what passes by

    def take(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        if self._damage is not None:
            self._weigh(table, first, stop)
        if self._is_suspicious:
            self._take_closely(table, first, stop)
        else:
            self._extend(table, first, stop)
        self._last_epoch = table.at(C.LEADER_EPOCH, stop - 1)
        return iter(())

    def finish(self, facts: SegmentFacts) -> Iterator[Finding]:
        return iter(())

    def _take_closely(self, table: Columns, first: int, stop: int) -> None:
        self._learn_epochs(table, stop)
        begin = first
        for row in self._rows_at(table, self._unplaced, stop):
            self._take_ordered(table, begin, row)
            self._displace(table, row)
            begin = row + 1
        self._take_ordered(table, begin, stop)

    def _take_ordered(self, table: Columns, first: int, stop: int) -> None:
        """Rows that all have offsets, cut where these do not rise."""
        state, row = self._state, first
        state[check.SEEN_LAST] = -L.INT64_MAX - 1
        while row < stop:
            row = check.next_suspect(table.cells, table.capacity, row, stop, state)
            if row >= stop:
                break
            last = table.at(C.LAST_OFFSET, row)
            if first_of(table, row) < 0 or not first_of(table, row) <= last < L.INT64_MAX:
                self._extend(table, first, row)
                self._leave_out(table, row, "offset-not-monotonic")
                first = row + 1
            elif state[check.SEEN_REASONS] & check.OFFSET:
                self._extend(table, first, row)
                first = row
            row += 1
        self._extend(table, first, stop)

    def _extend(self, table: Columns, first: int, stop: int) -> None:
        """Rows whose offsets rise, one behind the other in the file."""
        while first < stop and first_of(table, first) < 0:  # rising up from below 0
            self._leave_out(table, first, "offset-not-monotonic")
            first += 1
        if first >= stop:
            return
        position = table.at(C.POSITION, first)
        length = table.at(C.POSITION, stop - 1) + table.at(C.SIZE, stop - 1) - position
        low, last = first_of(table, first), table.at(C.LAST_OFFSET, stop - 1)
        before = self.stretches[-1] if self.stretches else None
        if before is not None and before.end_position == position and before.last_offset < low:
            self.stretches[-1] = replace(
                before,
                length=before.length + length,
                last_offset=last,
                batches=before.batches + stop - first,
            )
        else:
            self.stretches.append(Stretch(self._number, position, length, low, last, stop - first))

    def _leave_out(self, table: Columns, row: int, cause: str) -> None:
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        self.log.fixes.pop(position, None)
        self.losses.append(Loss(self._number, position, size, cause, 1))

    def _displace(self, table: Columns, row: int) -> None:
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        first = self._unplaced.pop(position)
        width = table.at(C.LAST_OFFSET, row) - first_of(table, row)
        self.displaced.append(Stretch(self._number, position, size, first, first + width, 1))
        self._leave_out(table, row, "altered-base-offset")

    def place(self, stretch: Stretch) -> None:
        """A displaced batch has found its place after all."""
        self.losses = [loss for loss in self.losses if loss.position != stretch.position]

    def _learn_epochs(self, table: Columns, stop: int) -> None:
        """Where several epochs fit alike, the judgement has put that of the batch before."""
        for row in self._rows_at(table, self._unknown_epochs, stop):
            self._fix(table.at(C.POSITION, row), HeaderFix(leader_epoch=table.at(C.LEADER_EPOCH, row)))
        self._unknown_epochs.clear()

    @staticmethod
    def _rows_at(table: Columns, positions: Iterable[int], stop: int) -> list[int]:
        known = table.column(C.POSITION)[:stop]
        rows = ((bisect_left(known, position), position) for position in sorted(positions))
        return [row for row, position in rows if row < stop and known[row] == position]

    # --- behind damage

    def _weigh(self, table: Columns, first: int, stop: int) -> None:
        damage, self._damage = self._damage, None
        assert damage is not None
        evidence = [CHECKSUM]
        altered = self.log.fixes.get(table.at(C.POSITION, first), HeaderFix())
        end = table.at(C.POSITION, first) + table.at(C.SIZE, first)
        follows = first + 1 < stop
        if follows or end == self.log.size_bytes:
            evidence.append(LENGTH)
        low = self.stretches[-1].last_offset + 1 if self.stretches else self.log.base_offset
        reach = self.log.base_offset + L.INT32_MAX
        high = reach if self._next_base is None else min(reach, self._next_base - 1)
        if follows:
            high = min(high, first_of(table, first + 1) - 1)
        is_between = low <= first_of(table, first) and table.at(C.LAST_OFFSET, first) <= high
        if is_between and altered.base_offset is None and table.at(C.POSITION, first) not in self._unplaced:
            evidence.append(OFFSET)
        epoch = table.at(C.LEADER_EPOCH, first)
        behind = table.at(C.LEADER_EPOCH, first + 1) if follows else epoch
        is_between = self._last_epoch <= epoch <= behind or L.NO_LEADER_EPOCH in (epoch, behind)
        if is_between and altered.leader_epoch is None:
            evidence.append(EPOCH)
        self.resumptions[damage] = Resumption(tuple(evidence))
