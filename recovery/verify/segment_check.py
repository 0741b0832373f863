"""One pass over a `.log`: checks bytes, checksums, headers and order, and passes the batches to every consumer.

1. The scanner cuts the file into tables of valid batches and damage spans (`segment.scan`).
2. The chain compares each batch with its neighbours and corrects altered headers (`chain`).
3. The kernel sums up the rest; each `Consumer` sees every valid batch once, in order.
4. At the end: gaps, timestamps in the future, mixed formats, each in one finding for the file.

The quick level has no consumers, and a table of 4096 batches costs a few kernel calls.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from operator import itemgetter
from typing import Protocol

from kseg.jobs.events import Advance, Event
from kseg.recovery.verify.chain import Chain
from kseg.recovery.verify.header_plausibility import HeaderContext, PreviousBatch
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.totals import Totals
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import counted
from kseg.segment.diagnosis import FutureTimestamps
from kseg.segment.files import OpenFile
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel import verify_records
from kseg.segment.moments import moment
from kseg.segment.partition.directory import SegmentFiles
from kseg.segment.partition.log_shape import ShapeTaker
from kseg.segment.partition.topic_settings import DEFAULT_TIMESTAMP_AFTER_MAX_MS
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding
from kseg.segment.scanning.preallocated_tail import PREALLOCATED
from kseg.segment.scanning.prevalidated import SkippableSpans
from kseg.segment.scanning.scan import Scanner
from kseg.segment.values import dataclass

MAX_SPANS = 100_000


class Consumer(Protocol):
    """A consumer of the valid batches of a segment, with altered headers corrected."""

    def take(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        """Rows first … stop - 1, the batches after the ones taken before."""
        ...

    def finish(self, facts: "SegmentFacts") -> Iterator[Finding]:
        """Called when there are no more batches."""
        return iter(())


@dataclass(slots=True)
class SegmentFacts:
    """The result of a pass over a segment. first_offset, last_offset: of valid batches, None if there is none.
    gaps: number of places inside it where offsets are missing. cleaned: number of batches that only a cleaner leaves. damage: spans of
    position and length. last_epoch: -1 = unknown."""

    path: str
    base_offset: int
    size_bytes: int = 0
    batches: int = 0
    records: int = 0
    sets_not_opened: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    last_magic: int | None = None
    max_timestamp_ms: int = L.NO_TIMESTAMP
    gaps: int = 0
    missing_offsets: int = 0
    cleaned: int = 0
    producers: int = 0
    magics: int = 0
    last_epoch: int = L.NO_LEADER_EPOCH
    padding_bytes: int = 0
    damaged_bytes: int = 0
    damage: list[tuple[int, int]] = field(default_factory=list)
    batch_findings: int = 0

    @classmethod
    def of_unread(cls, segment: SegmentFiles) -> "SegmentFacts":
        """A segment whose log cannot be opened: all of it counts as damaged, so that its end is not taken for known."""
        log = segment.log
        return cls(log.path, segment.base_offset, log.size_bytes, damage=[(0, log.size_bytes)])

    @property
    def has_valid_crc(self) -> bool:
        """Whether every byte belongs to a valid batch that is consistent with its neighbours."""
        return not self.damage and not self.batch_findings

    @property
    def end_offset(self) -> int:
        return self.base_offset if self.last_offset is None else self.last_offset + 1

    def note_damage(self, position: int, length: int) -> None:
        if len(self.damage) < MAX_SPANS:
            self.damage.append((position, length))
        else:  # if there are very many spans, the remaining ones count as one
            start, _ = self.damage[-1]
            self.damage[-1] = start, position + length - start

    def is_damaged_at(self, position: int) -> bool:
        at = bisect_right(self.damage, position, key=itemgetter(0)) - 1
        return at >= 0 and position < sum(self.damage[at])


class SegmentCheck:
    """The pass over one segment; `facts` and `last_batch` are complete when `events` has ended."""

    def __init__(
        self,
        file: OpenFile,
        context: HeaderContext,
        options: VerifyOptions,
        totals: Totals,
        consumers: Sequence[Consumer] = (),
        skippable: SkippableSpans | None = None,
        blocks: Callable[[Scanner], Iterator[Columns | Damage]] = Scanner.blocks,
    ) -> None:
        """blocks: returns the blocks of a scanner; other processes may produce them."""
        size_bytes = len(file.view)
        self.facts = SegmentFacts(context.path, context.base_offset, size_bytes)
        self.last_batch: PreviousBatch | None = None
        self._file = file
        self._context = context
        self._options = options
        self._totals = totals
        self._consumers = consumers
        self._trust = skippable
        self._blocks = blocks
        self._chain = Chain(context)
        self._sums = memoryview(array("q", bytes(8 * S.SUM_WIDTH)))
        self._sums[S.SUM_MAX_TIMESTAMP] = L.NO_TIMESTAMP
        self._seen_position = 0
        self._wrong_magic_bytes = 0
        self._is_ordered = True

    def events(self) -> Iterator[Event]:
        chain, path = self._chain, self._context.path
        scanner = Scanner.over(
            self._file,
            self._context.base_offset,
            skippable=self._trust,
            next_base=lambda: self._context.next_base,
        )
        for item in self._blocks(scanner):
            if isinstance(item, Damage):
                yield from self._counted(chain.close_before(item))
                yield from self._consume()
                finding = damage_finding(path, item)
                self._note_damage(item, finding)
                yield finding
                done = item.position + item.length
            else:
                done = item.at(C.POSITION, item.count - 1) + item.at(C.SIZE, item.count - 1)
                yield from self._counted(chain.feed(item))
                yield from self._consume()
            yield Advance(path, done - self._seen_position)
            self._seen_position = done
        chain.rows.is_gapless = not self._sums[S.SUM_GAPS] and not self._sums[S.SUM_CLEANED]
        yield from self._counted(chain.close())
        self.last_batch = chain.last_batch()
        yield from self._consume()
        self._sum_up()
        yield from self._conclusions()
        for consumer in self._consumers:
            yield from consumer.finish(self.facts)

    def _counted(self, findings: Iterator[Finding]) -> Iterator[Finding]:
        for finding in findings:
            self.facts.batch_findings += 1
            self._is_ordered &= finding.id != "offset-not-monotonic"
            if finding.id == "bad-magic":
                self._wrong_magic_bytes += finding.length or 0
            yield finding

    def _consume(self) -> Iterator[Finding]:
        chain, facts = self._chain, self.facts
        table, stop = chain.table, chain.ready
        if stop:
            # a broker rejects records that are further ahead of its clock, so clocks that differ by less are not reported
            future_ms = self._options.now_ms + DEFAULT_TIMESTAMP_AFTER_MAX_MS
            verify_records.tally(table.cells, table.capacity, 0, stop, future_ms, self._sums)
            if facts.first_offset is None:
                facts.first_offset = table.at(C.BASE_OFFSET, 0)
            facts.last_offset = table.at(C.LAST_OFFSET, stop - 1)
            facts.last_magic = table.at(C.MAGIC, stop - 1)
            facts.batches += stop
            for consumer in self._consumers:
                yield from consumer.take(table, 0, stop)
        chain.carry()

    def _note_damage(self, damage: Damage, finding: Finding) -> None:
        if finding.id == PREALLOCATED:  # the log ends here
            self.facts.padding_bytes += damage.length
            return
        self._sums[S.SUM_CONTIGUOUS] = 0
        if damage.kind == "zero-tail":
            self.facts.padding_bytes += damage.length
        else:
            self.facts.damaged_bytes += damage.length
        self.facts.note_damage(damage.position, damage.length)

    def _sum_up(self) -> None:
        facts, sums = self.facts, self._sums
        facts.records, facts.sets_not_opened = sums[S.SUM_RECORDS], sums[S.SUM_WRAPPERS]
        facts.max_timestamp_ms = sums[S.SUM_MAX_TIMESTAMP]
        facts.gaps, facts.missing_offsets = sums[S.SUM_GAPS], sums[S.SUM_MISSING]
        facts.cleaned, facts.producers = sums[S.SUM_CLEANED], sums[S.SUM_PRODUCERS]
        facts.magics = sums[S.SUM_MAGICS]
        facts.last_epoch = self._chain.last_epoch
        damaged = facts.damaged_bytes + self._wrong_magic_bytes
        self._totals.account(facts.path, facts.size_bytes, damaged, facts.padding_bytes)
        self._totals.batches += facts.batches
        self._totals.records += facts.records
        self._totals.sets_not_opened += facts.sets_not_opened

    def _conclusions(self) -> Iterator[Finding]:
        facts, sums, path = self.facts, self._sums, self._context.path
        if facts.gaps and self._is_ordered:  # without order the missing offsets are unknown
            where = sums[S.SUM_GAP_OFFSET]
            yield Finding(
                "offset-gap",
                path,
                f"{counted(facts.missing_offsets, 'offset')} "
                f"{'is' if facts.missing_offsets == 1 else 'are'} missing at "
                f"{counted(facts.gaps, 'place')}, first at offset {where}",
                position=sums[S.SUM_GAP_POSITION],
                length=0,
                first_offset=where,
                numbers={"gaps": facts.gaps, "missing_offsets": facts.missing_offsets},
            )
        if sums[S.SUM_FUTURE]:
            future = FutureTimestamps(sums[S.SUM_FUTURE], sums[S.SUM_FUTURE_TIMESTAMP])
            offset = sums[S.SUM_FUTURE_OFFSET]
            yield Finding(
                "future-timestamp",
                path,
                f"{counted(future.batches, 'batch')} with a timestamp in the future, the first one {moment(future.timestamp_ms)} at "
                f"offset {offset}",
                position=sums[S.SUM_FUTURE_POSITION],
                first_offset=offset,
                numbers=future.numbers(),
                diagnosis=future,
            )
        magics = [magic for magic in range(3) if facts.magics >> magic & 1]
        if len(magics) > 1:
            names = " and ".join(map(str, magics))
            yield Finding("mixed-magic", path, f"the segment mixes batches of message formats {names}")
        if facts.size_bytes > L.MAX_SEGMENT_BYTES:
            message = f"the segment has {counted(facts.size_bytes, 'byte')}; a broker opens at most {L.MAX_SEGMENT_BYTES}"
            yield Finding("oversized-segment", path, message, numbers={"bytes": facts.size_bytes})


class SegmentShaper:
    """A `Consumer` that passes the batches of one segment on to the collector of the log's shape."""

    def __init__(self, taker: ShapeTaker, base_offset: int, view: memoryview) -> None:
        self._taker = taker
        self._view = view
        taker.begin(base_offset)

    def take(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        self._taker.take(table, first, stop)
        return iter(())

    def finish(self, facts: SegmentFacts) -> Iterator[Finding]:
        self._taker.end(facts.size_bytes, self._view)
        return iter(())
