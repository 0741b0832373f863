"""Restore lost records from leftover files: batches of a leftover replace damaged ones.

An intact `.deleted`, `.cleaned` or `.swap` may have what damage destroyed in a live log. Its batches are copied
unchanged, with their offsets. These rules prevent anything that was deleted on purpose from coming back:

1. Only damage is replaced: the lost offsets must be known at both ends, and be at or above the log start.
   What retention deleted is below it, and what a cleaning removed is not damaged.
2. The batch must be the lost one: it has the base offset and the checksum of the damaged header. If the
   header is unreadable, all batches that fill the gap must together have as many records as the readable headers there declare.
   If no header is readable, batches of a `.deleted` file are used only for a log without traces of cleaning: in other logs
   they may have been compacted away. A `.cleaned` or `.swap` file contains only what its source log contained.
3. They must fit: valid, offsets increasing within the hole, leader epochs between those of the batches around it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from kseg.recovery.salvage.leftovers import LeftoverLog
from kseg.recovery.salvage.logs import FoundLog, Logs, ValidRun, valid_run_of
from kseg.recovery.salvage.valid_runs import Loss, ValidRunCollector
from kseg.recovery.salvage.working_image import WorkingImage
from kseg.recovery.verify.segment_check import SegmentFacts
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import counted, offsets_words
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.partition.names import FileState, parse_file_name
from kseg.segment.scanning.lost_offsets import plus, records_of
from kseg.segment.scanning.scan import Scanner
from kseg.segment.values import dataclass

RESTORED = "lost-records-restored"


@dataclass(frozen=True, slots=True)
class Restored:
    """Batches of a leftover that replace damage. valid_run: in the leftover; loss: the damage."""

    valid_run: ValidRun
    loss: Loss
    source: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    valid_run: ValidRun
    crc: int
    records: int | None


class Sources:
    """Searches for lost batches in logs that were set aside. kept: what stays of the live logs, in the order of offsets.
    facts: about the live logs, by path."""

    def __init__(
        self,
        working_image: WorkingImage,
        logs: Logs,
        collectors: Sequence[ValidRunCollector],
        kept: Sequence[ValidRun],
        facts: Iterable[SegmentFacts],
        log_start_offset: int,
    ) -> None:
        self._working_image = working_image
        self._logs = logs
        self._collectors = collectors
        self._kept = kept
        self._facts = {each.base_offset: each for each in facts}
        self._log_start = log_start_offset

    def restored(self, leftovers: Sequence[LeftoverLog]) -> list[Restored]:
        """The restored batches, in order of offset."""
        found: list[Restored] = []
        for collector in self._collectors:
            for loss in collector.losses:
                found += self._for_loss(loss, leftovers)
        return sorted(found, key=lambda each: each.valid_run.first_offset)

    def _for_loss(self, loss: Loss, leftovers: Sequence[LeftoverLog]) -> list[Restored]:
        first, last = loss.first_offset, loss.last_offset
        if loss.batches or first is None or last is None or first < self._log_start:
            return []
        if not self._is_free(first, last):
            return []
        for leftover in leftovers:
            contents = leftover.contents
            if contents.first_offset is None or contents.last_offset is None:
                continue
            if contents.first_offset <= last and contents.last_offset >= first:
                candidates = [*self._candidates(leftover, loss, first, last)]
                if candidates and self._are_the_lost(leftover, loss, candidates):
                    return [Restored(each.valid_run, loss, leftover.name) for each in candidates]
        return []

    def _is_free(self, first: int, last: int) -> bool:
        at = bisect_left(self._kept, first, key=lambda valid_run: valid_run.last_offset)
        return at == len(self._kept) or self._kept[at].first_offset > last

    def _candidates(self, leftover: LeftoverLog, loss: Loss, first: int, last: int) -> Iterator[_Candidate]:
        """Batches of a leftover that fit into the damaged range."""
        lowest, highest = self._epochs_around(first, last)
        source = FoundLog(
            leftover.name,
            leftover.name,
            self._working_image.path_of(leftover.name),
            parse_file_name(leftover.name).base_offset or 0,
            leftover.contents.size_bytes,
        )
        number: int | None = None
        before = first - 1
        with self._working_image.reader.open(source.path) as file:
            for block in Scanner(file.view, source.base_offset).blocks():
                if not isinstance(block, Columns):
                    continue
                for row in range(block.count):
                    begin, end = block.at(C.BASE_OFFSET, row), block.at(C.LAST_OFFSET, row)
                    epoch = block.at(C.LEADER_EPOCH, row)
                    is_current = block.at(C.MAGIC, row) == L.MAGIC_V2
                    if not is_current or not before < begin <= end <= last or not lowest <= epoch <= highest:
                        continue
                    if number is None:
                        number = self._logs.add_source(source, loss.log)
                    before = end
                    valid_run = valid_run_of(number, block, row, row + 1)
                    yield _Candidate(valid_run, block.at(C.CRC, row), records_of(block, row, row + 1))

    def _epochs_around(self, first: int, last: int) -> tuple[int, int]:
        at = bisect_right(self._kept, first, key=lambda valid_run: valid_run.first_offset)
        lowest = self._kept[at - 1].last_epoch if at else L.NO_LEADER_EPOCH
        after = bisect_left(self._kept, last, key=lambda valid_run: valid_run.first_offset)
        highest = self._kept[after].first_epoch if after < len(self._kept) else L.INT32_MAX
        return lowest, L.INT32_MAX if highest == L.NO_LEADER_EPOCH else highest

    def _are_the_lost(self, leftover: LeftoverLog, loss: Loss, candidates: Sequence[_Candidate]) -> bool:
        if self._has_their_headers(loss, candidates):
            return True
        if loss.records is not None:
            records: int | None = 0
            for candidate in candidates:
                records = plus(records, candidate.records)
            return records == loss.records and self._fill(loss, candidates)
        facts = self._facts.get(self._logs[loss.log].base_offset)
        is_original = parse_file_name(leftover.name).state is FileState.DELETED
        return not is_original or (facts is not None and not facts.cleaned and not facts.gaps)

    def _has_their_headers(self, loss: Loss, candidates: Sequence[_Candidate]) -> bool:
        """Whether the damage has the base offset and the checksum of each of these batches at the expected positions."""
        view, position = self._logs.view(loss.log), loss.position
        for candidate in candidates:
            head = view[position : min(position + L.BATCH_HEADER, loss.position + loss.length)]
            crc = int.from_bytes(head[L.CRC_POSITION : L.CRC_POSITION + 4], "big")
            if len(head) < L.CRC_POSITION + 4 or crc != candidate.crc:
                return False
            position += candidate.valid_run.length
        return position >= loss.position + loss.length

    @staticmethod
    def _fill(loss: Loss, candidates: Sequence[_Candidate]) -> bool:
        first, last = candidates[0].valid_run.first_offset, candidates[-1].valid_run.last_offset
        return (first, last) == (loss.first_offset, loss.last_offset)


def with_restored(kept: Sequence[ValidRun], restored: Sequence[Restored]) -> list[ValidRun]:
    """Kept and restored runs in order of offset; damage is between two valid runs, never inside one."""
    return sorted([*kept, *(each.valid_run for each in restored)], key=lambda each: each.first_offset)


def restored_findings(
    working_image: WorkingImage, logs: Logs, restored: Sequence[Restored]
) -> Iterator[Finding]:
    """One finding per leftover that batches are restored from."""
    for each in restored:
        valid_run, name = each.valid_run, logs[each.loss.log].name
        first, last = valid_run.first_offset, valid_run.last_offset
        message = (
            f"the batch with {offsets_words(first, last)}, lost to damage in {name}, is restored from {each.source}, "
            f"{counted(valid_run.length, 'byte')} at position {valid_run.position}"
        )
        yield Finding(
            RESTORED,
            working_image.path_of(each.source),
            message,
            valid_run.position,
            valid_run.length,
            first,
            last,
            {"restored_to": name, "damage_position": each.loss.position},
        )
