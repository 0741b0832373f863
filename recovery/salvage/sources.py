"""Lost records that a file beside the log still holds: batches of a leftover take the place of damaged ones.

An intact `.deleted`, `.cleaned` or `.swap` may hold what damage has taken from a live log. Its batches are taken as they are,
with their offsets, but nothing comes back that was deleted on purpose:

1. Only into damage: the offsets that it stands for must be known from both ends, and be at or above the log start.
   What retention has deleted lies below, and what a cleaning took out is not damaged.
2. The batch must be the one that was lost: it has the base offset and the checksum that the damaged header has. Where the
   header does not say, all batches that are taken into the hole must hold as many records as the headers there declare.
   Where they say nothing at all, only a log that no cleaner has been in takes batches of a `.deleted` file: the others may
   hold what was compacted away. A `.cleaned` or `.swap` file holds nothing that the log it was made from had not.
3. They must fit: valid, offsets rising within the hole, leader epochs between those of the batches around it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from kseg.recovery.salvage.leftovers import SetAside
from kseg.recovery.salvage.logs import FoundLog, Logs, ValidRun, stretch_of
from kseg.recovery.salvage.valid_runs import Loss, Watch
from kseg.recovery.salvage.working_image import Draft
from kseg.recovery.verify.segment_check import SegmentFacts
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.partition.names import FileState, parse_file_name
from kseg.segment.scanning.lost_offsets import plus, records_of
from kseg.segment.scanning.scan import Scanner
from kseg.segment.values import dataclass

RESTORED = "lost-records-restored"


@dataclass(frozen=True, slots=True)
class Restored:
    """Batches of a leftover that take the place of damage. stretch: in the leftover; loss: the damage."""

    stretch: ValidRun
    loss: Loss
    source: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    stretch: ValidRun
    crc: int
    records: int | None


class Sources:
    """Looks for lost batches in logs that were set aside. kept: what stays of the live logs, in the order of offsets.
    facts: of the live logs, by path."""

    def __init__(
        self,
        draft: Draft,
        logs: Logs,
        watches: Sequence[Watch],
        kept: Sequence[ValidRun],
        facts: Iterable[SegmentFacts],
        log_start_offset: int,
    ) -> None:
        self._draft = draft
        self._logs = logs
        self._watches = watches
        self._kept = kept
        self._facts = {each.base_offset: each for each in facts}
        self._log_start = log_start_offset

    def restored(self, asides: Sequence[SetAside]) -> list[Restored]:
        """What is taken, in the order of offsets."""
        found: list[Restored] = []
        for watch in self._watches:
            for loss in watch.losses:
                found += self._for_loss(loss, asides)
        return sorted(found, key=lambda each: each.stretch.first_offset)

    def _for_loss(self, loss: Loss, asides: Sequence[SetAside]) -> list[Restored]:
        first, last = loss.first_offset, loss.last_offset
        if loss.batches or first is None or last is None or first < self._log_start:
            return []
        if not self._is_free(first, last):
            return []
        for aside in asides:
            contents = aside.contents
            if contents.first_offset is None or contents.last_offset is None:
                continue
            if contents.first_offset <= last and contents.last_offset >= first:
                candidates = [*self._candidates(aside, loss, first, last)]
                if candidates and self._are_the_lost(aside, loss, candidates):
                    return [Restored(each.stretch, loss, aside.name) for each in candidates]
        return []

    def _is_free(self, first: int, last: int) -> bool:
        at = bisect_left(self._kept, first, key=lambda stretch: stretch.last_offset)
        return at == len(self._kept) or self._kept[at].first_offset > last

    def _candidates(self, aside: SetAside, loss: Loss, first: int, last: int) -> Iterator[_Candidate]:
        """The batches of a leftover that fit into the hole."""
        lowest, highest = self._epochs_around(first, last)
        source = FoundLog(
            aside.name,
            aside.name,
            self._draft.path_of(aside.name),
            parse_file_name(aside.name).base_offset or 0,
            aside.contents.size_bytes,
        )
        number: int | None = None
        before = first - 1
        with self._draft.reader.open(source.path) as file:
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
                    stretch = stretch_of(number, block, row, row + 1)
                    yield _Candidate(stretch, block.at(C.CRC, row), records_of(block, row, row + 1))

    def _epochs_around(self, first: int, last: int) -> tuple[int, int]:
        at = bisect_right(self._kept, first, key=lambda stretch: stretch.first_offset)
        lowest = self._kept[at - 1].last_epoch if at else L.NO_LEADER_EPOCH
        behind = bisect_left(self._kept, last, key=lambda stretch: stretch.first_offset)
        highest = self._kept[behind].first_epoch if behind < len(self._kept) else L.INT32_MAX
        return lowest, L.INT32_MAX if highest == L.NO_LEADER_EPOCH else highest

    def _are_the_lost(self, aside: SetAside, loss: Loss, candidates: Sequence[_Candidate]) -> bool:
        if self._has_their_headers(loss, candidates):
            return True
        if loss.records is not None:
            records: int | None = 0
            for candidate in candidates:
                records = plus(records, candidate.records)
            return records == loss.records and self._fill(loss, candidates)
        facts = self._facts.get(self._logs[loss.log].base_offset)
        is_original = parse_file_name(aside.name).state is FileState.DELETED
        return not is_original or (facts is not None and not facts.cleaned and not facts.gaps)

    def _has_their_headers(self, loss: Loss, candidates: Sequence[_Candidate]) -> bool:
        """Whether the damage begins with the base offset and the checksum of each of them, where it should lie."""
        view, position = self._logs.view(loss.log), loss.position
        for candidate in candidates:
            head = view[position : min(position + L.BATCH_HEADER, loss.position + loss.length)]
            crc = int.from_bytes(head[L.CRC_POSITION : L.CRC_POSITION + 4], "big")
            if len(head) < L.CRC_POSITION + 4 or crc != candidate.crc:
                return False
            position += candidate.stretch.length
        return position >= loss.position + loss.length

    @staticmethod
    def _fill(loss: Loss, candidates: Sequence[_Candidate]) -> bool:
        first, last = candidates[0].stretch.first_offset, candidates[-1].stretch.last_offset
        return (first, last) == (loss.first_offset, loss.last_offset)


def with_restored(kept: Sequence[ValidRun], restored: Sequence[Restored]) -> list[ValidRun]:
    """All of it in the order of offsets; damage lies between two stretches, never in one."""
    return sorted([*kept, *(each.stretch for each in restored)], key=lambda each: each.first_offset)


def restored_findings(draft: Draft, logs: Logs, restored: Sequence[Restored]) -> Iterator[Finding]:
    """What is taken from where."""
    for each in restored:
        stretch, name = each.stretch, logs[each.loss.log].name
        first, last = stretch.first_offset, stretch.last_offset
        message = (
            f"the batch of offsets {first} to {last}, which damage has taken from {name}, is taken from {each.source}, "
            f"{stretch.length} bytes at position {stretch.position}"
        )
        yield Finding(
            RESTORED,
            draft.path_of(each.source),
            message,
            stretch.position,
            stretch.length,
            first,
            last,
            {"restored_to": name, "damage_position": each.loss.position},
        )
