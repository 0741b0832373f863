"""Collect the valid runs of one log during the assessment: runs of batches, damage, and header fields to correct.

A consumer in the pass of `verify` (`verify.segment_check`): findings come first, then the rows that they concern. A table without findings
costs one comparison. After the first finding, the kernel also checks for breaks in the order.

    altered leader epoch, wrong magic                   a `HeaderFix`; the rows come with the probable value
    altered base offset                                 likewise if there is a probable value; the batch is *doubtful*:
                                                        the end of the pass decides whether it was altered, moved or copied
    offsets below 0, a last offset below the first      the batch is removed: no log can hold it
    offsets that do not increase                        a new valid run

The first batch after damage is rated. So far only its checksum (32 bits) supports it, and it may still be
part of a record value that looks like a batch. The evidence for it:

    checksum    magic, length and checksum are right                                always
    length      its length leads to another valid batch, or to the end of the file
    offset      it is above what came before the damage and below the next segment, and the next batch is higher
    epoch       its leader epoch is not below that before the damage, nor above that of the next batch

Confidence is high with all four, medium with three, low otherwise. If its offset does not continue from
before the damage, it and the later batches are not trusted yet; the whole log decides (`misplaced_batches`).
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kseg.recovery.policy import Restorable
from kseg.recovery.salvage.logs import FoundLog, HeaderFix, ValidRun, valid_run_of
from kseg.recovery.verify.header_plausibility import first_of
from kseg.recovery.verify.segment_check import Consumer
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.diagnosis import AlteredBaseOffset, AlteredLeaderEpoch, InvalidBytes
from kseg.segment.files import OpenFile
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel import verify_records
from kseg.segment.scanning.preallocated_tail import PREALLOCATED
from kseg.segment.scanning.scan import Scanner
from kseg.segment.values import dataclass

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
# At most this many valid runs are searched for the offset before damage.
_LOOK_BACK = 64
CHECKSUM, LENGTH, OFFSET, EPOCH = "checksum", "length", "offset", "epoch"


@dataclass(frozen=True, slots=True)
class Loss:
    """Bytes that are removed from a log. cause: id of the finding. batches: number of valid ones among them. first_offset,
    last_offset, records: lost with the damage, according to its finding. is_of_another_log: a valid run that has no place in this one."""

    log: int
    position: int
    length: int
    cause: str
    batches: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    records: int | None = None
    is_of_another_log: bool = False


@dataclass(frozen=True, slots=True)
class DoubtfulBatch:
    """A batch whose base offset contradicts its neighbours in the file. claimed: with the offsets of its header. corrected: with the
    offsets that fit between them, None if several fit. is_one_bit: the two differ in one bit. is_inside: it is inside a damaged range.
    is_wrapper: a compressed set of an old format, whose number of offsets is unknown. is_of_a_run: one of a few far from all others
    (`outliers`), which are corrected together. is_above_both: above the previous and the next batch, whose offsets are out of order as
    well; it stays, unless it is an altered copy."""

    claimed: ValidRun
    corrected: ValidRun | None = None
    is_one_bit: bool = False
    is_inside: bool = False
    is_wrapper: bool = False
    is_of_a_run: bool = False
    is_above_both: bool = False


@dataclass(frozen=True, slots=True)
class Resumption:
    """Why the first batch after damage is trusted. evidence: the checks that it passed."""

    evidence: tuple[str, ...]

    @property
    def confidence(self) -> str:
        return {4: "high", 3: "medium"}.get(len(self.evidence), "low")


class ValidRunCollector(Consumer):
    """A consumer for one log. number: of the log. next_base: of the next segment, None for the last.

    valid_runs, losses: in order of position. doubtful: batches that are not decided yet. altered: findings about base
    offsets that only the whole file proves wrong. restorable: damage whose original bytes are known. resumptions: by the position of the
    damage.
    """

    def __init__(self, number: int, log: FoundLog, next_base: int | None) -> None:
        self.log = log
        self.valid_runs: list[ValidRun] = []
        self.losses: list[Loss] = []
        self.doubtful: list[DoubtfulBatch] = []
        self.altered: list[Finding] = []
        self.restorable: list[Restorable] = []
        self.resumptions: dict[int, Resumption] = {}
        self._number = number
        self.next_base = next_base
        self._is_suspicious = False
        self._claims: dict[int, AlteredBaseOffset] = {}
        self._checkpointed: list[int] = []  # positions of batches that get a valid run of their own
        self._is_cut = False
        self._is_unproven = False
        self._unknown_epochs: list[int] = []
        self._damage: int | None = None
        self._last_epoch = L.NO_LEADER_EPOCH
        self._state = memoryview(array("q", bytes(8 * S.SEEN_WIDTH)))

    # --- what is said

    def note(self, finding: Finding) -> None:
        """Take a finding about this log, before the rows that it concerns, unless the next segment reported it."""
        if isinstance(finding.diagnosis, InvalidBytes):
            self._note_damage(finding, finding.diagnosis)
        elif finding.id in _ORDER:
            self._is_suspicious = True
            self._note_order(finding)

    def _note_damage(self, finding: Finding, damage: InvalidBytes) -> None:
        assert finding.position is not None and finding.length is not None
        self.losses.append(
            Loss(
                self._number,
                finding.position,
                finding.length,
                finding.id,
                first_offset=finding.first_offset,
                last_offset=finding.last_offset,
                records=damage.records,
            )
        )
        if damage.flipped or damage.intact_length_bytes is not None:
            self.restorable.append(Restorable(self.log.name, finding.position, damage, finding))
        self._damage = finding.position

    def _note_order(self, finding: Finding) -> None:
        position, diagnosis = finding.position, finding.diagnosis
        if position is None:
            return
        if isinstance(diagnosis, AlteredBaseOffset):
            self._claims[position] = diagnosis
            self._checkpointed.append(position)
            if diagnosis.probable is not None:
                self._fix(position, HeaderFix(base_offset=diagnosis.probable))
        elif isinstance(diagnosis, AlteredLeaderEpoch):
            position -= L.ENTRY_OVERHEAD
            if diagnosis.probable is not None:
                self._fix(position, HeaderFix(leader_epoch=diagnosis.probable))
            else:
                self._unknown_epochs.append(position)
        elif finding.id == "bad-magic":
            self._fix(position, HeaderFix(magic=L.MAGIC_V2))

    def _fix(self, position: int, fix: HeaderFix) -> None:
        self._checkpointed.append(position)
        self.log.fixes[position] = fix.over(self.log.fixes.get(position))

    # --- what passes by

    def take(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        if self._damage is not None:
            self._rate(table, first, stop)
        if self._is_suspicious:
            self._take_closely(table, first, stop)
        else:
            self._extend(table, first, stop)
        self._last_epoch = table.at(C.LEADER_EPOCH, stop - 1)
        return iter(())

    def _take_closely(self, table: Columns, first: int, stop: int) -> None:
        self._learn_epochs(table, stop)
        begin = first
        reached = table.at(C.POSITION, stop - 1)
        noted = {position for position in self._checkpointed if position <= reached}
        self._checkpointed = [position for position in self._checkpointed if position > reached]
        for row in self._rows_at(table, noted, first, stop):
            self._take_ordered(table, begin, row)
            self._take_single(table, row)
            begin = row + 1
        self._take_ordered(table, begin, stop)

    def _take_single(self, table: Columns, row: int) -> None:
        """A batch with a finding about its header: it may have to be moved alone."""
        self._is_cut = True
        valid_run = valid_run_of(self._number, table, row, row + 1)
        claim = self._claims.pop(valid_run.position, None)
        if claim is None:
            self._take_ordered(table, row, row + 1)
        else:
            width = valid_run.last_offset - valid_run.first_offset
            claimed = replace(valid_run, first_offset=claim.found, last_offset=claim.found + width)
            is_wrapper = table.at(C.MAGIC, row) < L.MAGIC_V2 and table.at(C.COUNT, row) < 0
            is_one_bit = claim.flipped_bit is not None
            corrected = None if claim.probable is None else valid_run
            self.doubtful.append(DoubtfulBatch(claimed, corrected, is_one_bit, is_wrapper=is_wrapper))
        self._is_cut = True

    def _take_ordered(self, table: Columns, first: int, stop: int) -> None:
        """Add rows that all have offsets, split where these do not increase."""
        state, row = self._state, first
        state[S.SEEN_LAST] = -L.INT64_MAX - 1
        while row < stop:
            row = verify_records.next_suspect(table.cells, table.capacity, row, stop, state)
            if row >= stop:
                break
            last = table.at(C.LAST_OFFSET, row)
            if first_of(table, row) < 0 or not first_of(table, row) <= last < L.INT64_MAX:
                self._extend(table, first, row)
                self._leave_out(table, row)
                first = row + 1
            elif state[S.SEEN_REASONS] & verify_records.OFFSET:
                self._extend(table, first, row)
                first = row
            row += 1
        self._extend(table, first, stop)

    def _extend(self, table: Columns, first: int, stop: int) -> None:
        """Add rows that follow one another in the file with increasing offsets."""
        while first < stop and first_of(table, first) < 0:  # increasing from below 0
            self._leave_out(table, first)
            first += 1
        if first >= stop:
            return
        valid_run = valid_run_of(self._number, table, first, stop)
        before = self.valid_runs[-1] if self.valid_runs else None
        is_joined = before is not None and before.end_position == valid_run.position and not self._is_cut
        if before is not None and is_joined and before.last_offset < valid_run.first_offset:
            self.valid_runs[-1] = before.joined(valid_run)
        else:
            self._is_unproven &= not self._goes_on(valid_run.first_offset)
            self.valid_runs.append(replace(valid_run, is_believed=not self._is_unproven))
        self._is_cut = False

    def _leave_out(self, table: Columns, row: int) -> None:
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        self.log.fixes.pop(position, None)
        self.losses.append(Loss(self._number, position, size, "offset-not-monotonic", 1))

    def search_damage(self, file: OpenFile) -> None:
        """Add the valid batches inside damage to the doubtful ones. file: the log."""
        spans = [
            loss
            for loss in self.losses
            if not loss.batches and loss.cause not in ("zero-filled", "zero-tail", PREALLOCATED)
        ]
        if not spans:
            return
        scanner = Scanner.over(file, self.log.base_offset)
        for loss in spans:
            for table in scanner.valid_within(loss.position + 1, loss.position + loss.length):
                valid_run = valid_run_of(self._number, table, 0, 1)
                is_wrapper = table.at(C.MAGIC, 0) < L.MAGIC_V2
                self.doubtful.append(DoubtfulBatch(valid_run, is_inside=True, is_wrapper=is_wrapper))

    def remove(self, valid_run: ValidRun) -> None:
        """Take a valid run for a loss, because it has no place in the log."""
        self.valid_runs.remove(valid_run)
        place = valid_run.log, valid_run.position, valid_run.length
        self.losses.append(Loss(*place, "offset-not-monotonic", valid_run.batches, is_of_another_log=True))

    def rescue(self, valid_run: ValidRun) -> None:
        """Keep a batch inside damage: the damage shrinks to the bytes around it."""
        at = next(
            number
            for number, loss in enumerate(self.losses)
            if loss.position <= valid_run.position < loss.position + loss.length
        )
        loss = self.losses[at]
        front = replace(loss, length=valid_run.position - loss.position)
        rest = loss.position + loss.length - valid_run.end_position
        back = replace(
            loss, position=valid_run.end_position, length=rest, first_offset=None, last_offset=None, records=0
        )
        self.losses[at : at + 1] = [part for part in (front, back) if part.length]

    def _learn_epochs(self, table: Columns, stop: int) -> None:
        """Adopt the epochs that the assessment chose: if several fit, that of the preceding batch."""
        for row in self._rows_at(table, self._unknown_epochs, 0, stop):
            self._fix(table.at(C.POSITION, row), HeaderFix(leader_epoch=table.at(C.LEADER_EPOCH, row)))
        self._unknown_epochs.clear()

    @staticmethod
    def _rows_at(table: Columns, positions: Iterable[int], first: int, stop: int) -> list[int]:
        """The rows of the batches at these positions, in order."""
        known = table.column(C.POSITION)[first:stop]
        low, high = known[0], known[-1]
        wanted = sorted(position for position in positions if low <= position <= high)
        rows = ((bisect_left(known, position), position) for position in wanted)
        return [first + row for row, position in rows if known[row] == position]

    # --- after damage

    def _goes_on(self, offset: int) -> bool:
        """Whether an offset is plausible here: above the last plausible offset, or within this segment. The last valid run
        may end with an altered batch, so it is enough to be above the one before that."""
        believed = [found.last_offset + 1 for found in self.valid_runs[-_LOOK_BACK:] if found.is_believed]
        lows = believed[-2:] if len(believed) > 1 else [self.log.base_offset, *believed]
        return any(low <= offset <= low + L.INT32_MAX for low in lows)

    def _rate(self, table: Columns, first: int, stop: int) -> None:
        damage, self._damage = self._damage, None
        assert damage is not None
        self._is_unproven = True
        evidence = [CHECKSUM]
        altered = self.log.fixes.get(table.at(C.POSITION, first), HeaderFix())
        end = table.at(C.POSITION, first) + table.at(C.SIZE, first)
        follows = first + 1 < stop
        if follows or end == self.log.size_bytes:
            evidence.append(LENGTH)
        low = self.valid_runs[-1].last_offset + 1 if self.valid_runs else self.log.base_offset
        reach = self.log.base_offset + L.INT32_MAX
        high = reach if self.next_base is None else min(reach, self.next_base - 1)
        if follows:
            high = min(high, first_of(table, first + 1) - 1)
        is_between = low <= first_of(table, first) and table.at(C.LAST_OFFSET, first) <= high
        if is_between and altered.base_offset is None:
            evidence.append(OFFSET)
        epoch = table.at(C.LEADER_EPOCH, first)
        after = table.at(C.LEADER_EPOCH, first + 1) if follows else epoch
        is_between = self._last_epoch <= epoch <= after or L.NO_LEADER_EPOCH in (epoch, after)
        if is_between and altered.leader_epoch is None:
            evidence.append(EPOCH)
        self.resumptions[damage] = Resumption(tuple(evidence))
