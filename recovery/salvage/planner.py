"""The long way of salvage, taken where something is wrong: steps 3 to 6 of its plan (`salvage`)."""

from collections.abc import Iterator

from kseg.recovery.policy import Circumstances, LoadSettings, Removed, Repair
from kseg.recovery.salvage.assessment import Assessment, weighed_findings
from kseg.recovery.salvage.extra_findings import overlap_findings, transaction_findings, without_repetition
from kseg.recovery.salvage.leftovers import Leftovers, set_aside_findings
from kseg.recovery.salvage.logs import Logs
from kseg.recovery.salvage.losses import Kept, Losses, Witnessed, lost_offsets
from kseg.recovery.salvage.misplaced_batches import settled_order
from kseg.recovery.salvage.overlaps import Joiner
from kseg.recovery.salvage.segment_layout import PlannedSegment, arrange
from kseg.recovery.salvage.side_file_plan import Beside
from kseg.recovery.salvage.sources import Restored, Sources, restored_findings, with_restored
from kseg.recovery.salvage.working_image import Draft
from kseg.recovery.verify.partition_files import known_last_offsets
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.partition.names import segment_file_name


class Planning:
    """The steps 3 to 6 of salvage for one partition; `repair` once."""

    def __init__(
        self,
        draft: Draft,
        leftovers: Leftovers,
        judgement: Assessment,
        logs: Logs,
        circumstances: Circumstances,
        settings: LoadSettings,
        rebuild: bool,
    ) -> None:
        self._draft = draft
        self._leftovers = leftovers
        self._judgement = judgement
        self._logs = logs
        self._circumstances = circumstances
        self._settings = settings
        self._rebuild = rebuild
        self._restored: list[Restored] = []

    def repair(self) -> Repair:
        """The answer of the policy."""
        order = settled_order(self._logs, self._judgement.watches, self._known_end(), self._judgement.epochs)
        self._restored = Sources(
            self._draft,
            self._logs,
            self._judgement.watches,
            order.kept,
            self._judgement.facts,
            self._circumstances.log_start_offset,
        ).restored(self._leftovers.logs)
        stays = with_restored(order.kept, self._restored)
        kept = Kept.of(stays)
        segments = arrange(self._logs, stays, self._emptied(order))
        changed = self._lay(segments)
        end_offset = segments[-1].end_offset if segments else self._circumstances.log_start_offset
        log_start_offset = self._circumstances.log_start_offset
        if segments:
            log_start_offset = min(max(log_start_offset, segments[0].base_offset), end_offset)
        removed, tail = self._losses(order, kept, end_offset)
        beside = Beside(
            self._draft,
            self._judgement,
            self._logs,
            segments,
            changed,
            self._circumstances,
            self._settings,
            rebuild=self._rebuild,
        )
        beside.settle(log_start_offset, end_offset, lost_offsets(removed))
        return Repair(
            image=self._draft.image,
            log_start_offset=log_start_offset,
            log_end_offset=end_offset,
            last_stable_offset=beside.producers.last_stable_offset(end_offset, log_start_offset),
            recovery_point=self._circumstances.safe_point(end_offset),
            why=self._draft.changes(),
            findings=tuple(without_repetition(self._findings(order, kept, tail, beside))),
            removed=removed,
            kept=tuple(kept.ranges),
        )

    # --- logs

    def _emptied(self, order: Joiner) -> list[int]:
        """Logs without a batch whose names still hold: empty ones, and those in which all is damaged."""
        gone = {stretch.log for stretch in order.kept} | {beaten.stretch.log for beaten in order.beaten}
        gone |= {each.loss.log for each in self._restored}
        named = {segment.log.path for segment in self._judgement.partition.segments}
        return [
            number
            for number, log in enumerate(self._judgement.logs)
            if number not in gone and log.path in named
        ]

    def _lay(self, segments: tuple[PlannedSegment, ...]) -> frozenset[int]:
        """Put the logs into the draft; the numbers of the segments whose log is not as it was."""
        names = {segment_file_name(segment.base_offset, L.LOG_SUFFIX) for segment in segments}
        for log in self._judgement.logs:
            if log.called not in names:
                self._draft.remove(log.called, "what it holds is in other segments, or is not valid")
        changed = set()
        for number, segment in enumerate(segments):
            name = segment_file_name(segment.base_offset, L.LOG_SUFFIX)
            if self._is_as_it_was(segment, name):
                continue
            changed.add(number)
            pieces = [piece for stretch in segment.stretches for piece in self._logs.pieces(stretch)]
            source = segment.origin
            if source is None:
                source = self._logs.home(segment.stretches[0].log)
            like = self._judgement.logs[source].name
            self._draft.lay(name, pieces, like, self._reason(segment, name))
        return frozenset(changed)

    def _is_as_it_was(self, segment: PlannedSegment, name: str) -> bool:
        if segment.origin is None or self._judgement.logs[segment.origin].called != name:
            return False
        return self._logs.is_untouched(segment.origin, segment.stretches)

    def _reason(self, segment: PlannedSegment, name: str) -> str:
        """Why a log is another one, in words."""
        said = []
        logs = {self._logs.home(stretch.log) for stretch in segment.stretches}
        if segment.origin is None:
            said.append("split off a segment that a broker cannot hold as one")
        elif self._judgement.logs[segment.origin].called != name:
            said.append(f"its first offset is {segment.base_offset}")
        causes = sorted({loss.cause for number in logs for loss in self._judgement.watches[number].losses})
        if segment.origin is not None and not segment.stretches:
            causes = sorted({loss.cause for loss in self._judgement.watches[segment.origin].losses})
        if causes:
            said.append(f"what is not valid goes ({', '.join(causes)})")
        if any(self._judgement.logs[number].fixes for number in logs):
            said.append("altered header fields are set right")
        sources = sorted(
            {self._logs[stretch.log].name for stretch in segment.stretches if stretch.log not in logs}
        )
        if sources:
            said.append(f"lost records are taken from {', '.join(sources)}")
        if len(logs) > 1:
            said.append("each offset is held once, in order")
        elif not said:
            is_beginning = [stretch.position for stretch in segment.stretches] == [0]
            said.append(
                "cut where the next segment begins" if is_beginning else "its batches are put in order"
            )
        return "; ".join(said)

    # --- the answer

    def _losses(
        self, order: Joiner, kept: Kept, end_offset: int
    ) -> tuple[tuple[Removed, ...], Finding | None]:
        """What goes, and what is to be said of a log that was never written to its end."""
        judgement = self._judgement
        losses = Losses(self._logs, judgement.watches, kept, self._witness(end_offset))
        removed = losses.removed(order.beaten, [log for log in self._leftovers.logs if not log.stays])
        return losses.with_tail(removed, end_offset)

    def _findings(self, order: Joiner, kept: Kept, tail: Finding | None, beside: Beside) -> Iterator[Finding]:
        yield from self._leftovers.findings
        yield from set_aside_findings(self._draft, self._leftovers.logs, kept.ranges)
        yield from weighed_findings(self._judgement)
        yield from restored_findings(self._draft, self._logs, self._restored)
        yield from overlap_findings(self._logs, order.beaten)
        if tail is not None:
            yield tail
        yield from beside.findings
        yield from transaction_findings(self._draft.directory, beside.cut)

    def _known_end(self) -> int | None:
        """The greatest believable offset that files beside the log know of."""
        judgement = self._judgement
        lasts = [watch.stretches[-1].last_offset for watch in judgement.watches if watch.stretches]
        if not judgement.partition.segments:
            return None
        reach = max((*lasts, judgement.partition.segments[-1].base_offset)) + L.INT32_MAX
        known = known_last_offsets(judgement.partition, judgement.around, self._draft.reader)
        return max((offset for offset in known if offset < reach), default=None)

    def _witness(self, end_offset: int) -> Witnessed | None:
        """`_known_end`, when it lies behind the log's."""
        known = self._known_end()
        if known is None or known < end_offset:
            return None
        return Witnessed(known, "an index, a snapshot or a checkpoint")
