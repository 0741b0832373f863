"""The full salvage of a partition with damage: steps 3 to 6 of the plan (`salvage`)."""

from collections.abc import Iterable, Iterator, Sequence

from kseg.recovery.policy import BrokerState, LoadSettings, Removed, Repair
from kseg.recovery.salvage.assessment import Assessment, rated_findings
from kseg.recovery.salvage.kept_offsets import KeptOffsets, Range, kept_offsets
from kseg.recovery.salvage.known_end import end_evidence, known_end
from kseg.recovery.salvage.leftovers import Leftovers, leftover_findings
from kseg.recovery.salvage.logs import Logs
from kseg.recovery.salvage.losses import Losses, lost_offsets
from kseg.recovery.salvage.misplaced_batches import resolved_order
from kseg.recovery.salvage.overlaps import (
    BELIEVED,
    COPY,
    EPOCH,
    FIRST,
    IN_ORDER,
    ORIGINAL,
    OWN_SEGMENT,
    POSSIBLE,
    MergeResult,
    Superseded,
)
from kseg.recovery.salvage.segment_layout import PlannedSegment, arrange
from kseg.recovery.salvage.side_file_plan import SideFilePlan
from kseg.recovery.salvage.sources import Restored, Sources, restored_findings, with_restored
from kseg.recovery.salvage.working_image import WorkingImage
from kseg.recovery.verify.totals import SHOWN_PER_FILE
from kseg.segment import layout as L
from kseg.segment.counted import counted, offsets_words
from kseg.segment.findings import Finding
from kseg.segment.partition.names import segment_file_name
from kseg.segment.scanning.damage_findings import transaction_end_lost
from kseg.segment.scanning.preallocated_tail import PREALLOCATED
from kseg.segment.state.producer import OpenTransaction, last_stable_offset

_RULES = {
    COPY: "byte-equal copies; the first copy is kept",
    EPOCH: "the copy with the higher leader epoch is kept",
    OWN_SEGMENT: "the copy in the segment of these offsets is kept",
    FIRST: "the first copy is kept",
    IN_ORDER: "the copy that is in order with adjacent batches is kept",
    ORIGINAL: "the other is a copy of the previous batch with another offset",
    POSSIBLE: "the copy whose leader epoch is not above that of later batches is kept",
    BELIEVED: "the copy that does not follow damage is kept",
}


class Planner:
    """Steps 3 to 6 of `salvage` for one partition. Call `repair` once."""

    def __init__(
        self,
        working_image: WorkingImage,
        leftovers: Leftovers,
        assessment: Assessment,
        logs: Logs,
        broker_state: BrokerState,
        settings: LoadSettings,
        rebuild: bool,
    ) -> None:
        self._working_image = working_image
        self._leftovers = leftovers
        self._assessment = assessment
        self._logs = logs
        self._broker_state = broker_state
        self._settings = settings
        self._rebuild = rebuild
        self._restored: list[Restored] = []

    def repair(self, lost: Sequence[Range] = ()) -> Repair:
        """The result of the policy. lost: offsets that a previous round lost."""
        order = resolved_order(
            self._logs,
            self._assessment.collectors,
            known_end(self._assessment),
            self._assessment.epochs,
        )
        self._restored = Sources(
            self._working_image,
            self._logs,
            self._assessment.collectors,
            order.kept,
            self._assessment.facts,
            self._broker_state.log_start_offset,
        ).restored(self._leftovers.logs)
        is_kept = with_restored(order.kept, self._restored)
        kept = kept_offsets(self._logs, is_kept, order.superseded, lost)
        segments = arrange(self._logs, is_kept, self._emptied(order))
        changed = self._put_logs(segments)
        end_offset = segments[-1].end_offset if segments else self._broker_state.log_start_offset
        log_start_offset = self._broker_state.log_start_offset
        if segments:
            log_start_offset = min(
                self._settings.topic.log_start(log_start_offset, segments[0].base_offset), end_offset
            )
        removed, tail = self._losses(order, kept, end_offset)
        side_files = SideFilePlan(
            self._working_image,
            self._assessment,
            self._logs,
            segments,
            changed,
            self._broker_state,
            self._settings,
            rebuild=self._rebuild,
        )
        side_files.apply(log_start_offset, end_offset, lost_offsets(removed))
        kept_runs = [valid_run for segment in segments for valid_run in segment.valid_runs]
        return Repair(
            image=self._working_image.image,
            log_start_offset=log_start_offset,
            log_end_offset=end_offset,
            last_stable_offset=last_stable_offset(
                side_files.producers.first_unstable_offset,
                log_start_offset,
                end_offset,
                lambda offset: self._logs.begin_of_batch(kept_runs, offset, end_offset),
            ),
            recovery_point=self._broker_state.safe_point(end_offset),
            why=self._working_image.changes(),
            findings=tuple(without_repetition(self._findings(order, kept, tail, side_files))),
            removed=removed,
            unread=tuple(self._assessment.unread),
            kept=tuple(kept.ranges),
        )

    # --- logs

    def _emptied(self, order: MergeResult) -> list[int]:
        """Logs without a valid batch whose names stay valid: empty ones, and those with nothing but damage."""
        gone = {valid_run.log for valid_run in order.kept} | {
            superseded.valid_run.log for superseded in order.superseded
        }
        gone |= {each.loss.log for each in self._restored}
        named = {segment.log.path for segment in self._assessment.partition.segments}
        return [
            number
            for number, log in enumerate(self._assessment.logs)
            if number not in gone and log.path in named
        ]

    def _put_logs(self, segments: tuple[PlannedSegment, ...]) -> frozenset[int]:
        """Put the logs into the draft; return the numbers of the segments whose log changed."""
        names = {segment_file_name(segment.base_offset, L.LOG_SUFFIX) for segment in segments}
        for log in self._assessment.logs:
            if log.called not in names:
                self._working_image.remove(log.called, "its batches are in other segments, or are not valid")
        changed = set()
        for number, segment in enumerate(segments):
            name = segment_file_name(segment.base_offset, L.LOG_SUFFIX)
            if self._is_as_it_was(segment, name):
                continue
            changed.add(number)
            pieces = [piece for valid_run in segment.valid_runs for piece in self._logs.pieces(valid_run)]
            source = segment.origin
            if source is None:
                source = self._logs.target_log(segment.valid_runs[0].log)
            like = self._assessment.logs[source].name
            self._working_image.put_log(name, pieces, like, self._reason(segment, name))
        return frozenset(changed)

    def _is_as_it_was(self, segment: PlannedSegment, name: str) -> bool:
        if segment.origin is None or self._assessment.logs[segment.origin].called != name:
            return False
        return self._logs.is_untouched(segment.origin, segment.valid_runs)

    def _reason(self, segment: PlannedSegment, name: str) -> str:
        """Why a log differs from the original, as text."""
        reasons = []
        logs = {self._logs.target_log(valid_run.log) for valid_run in segment.valid_runs}
        if segment.origin is None:
            reasons.append("split off a segment that is too large for a broker")
        elif self._assessment.logs[segment.origin].called != name:
            reasons.append(f"its first offset is {segment.base_offset}")
        causes = sorted(
            {loss.cause for number in logs for loss in self._assessment.collectors[number].losses}
        )
        if segment.origin is not None and not segment.valid_runs:
            causes = sorted({loss.cause for loss in self._assessment.collectors[segment.origin].losses})
        if causes == [PREALLOCATED]:
            reasons.append("the preallocated rest is cut off, as a broker does")
        elif causes:
            reasons.append(f"invalid bytes are removed ({', '.join(causes)})")
        if any(self._assessment.logs[number].fixes for number in logs):
            reasons.append("altered header fields are corrected")
        sources = sorted(
            {self._logs[valid_run.log].name for valid_run in segment.valid_runs if valid_run.log not in logs}
        )
        if sources:
            reasons.append(f"lost records are taken from {', '.join(sources)}")
        if len(logs) > 1:
            reasons.append("each offset exists once, in order")
        elif not reasons:
            is_beginning = [valid_run.position for valid_run in segment.valid_runs] == [0]
            reasons.append(
                "truncated where the next segment starts" if is_beginning else "its batches are put in order"
            )
        return "; ".join(reasons)

    # --- the answer

    def _losses(
        self, order: MergeResult, kept: KeptOffsets, end_offset: int
    ) -> tuple[tuple[Removed, ...], Finding | None]:
        """What is removed, and the findings about a log whose end was never written."""
        assessment = self._assessment
        evidence = end_evidence(assessment, self._logs, end_offset, self._broker_state)
        losses = Losses(self._logs, assessment.collectors, kept, evidence)
        removed = losses.removed(order.superseded, [log for log in self._leftovers.logs if not log.is_kept])
        return losses.with_tail(removed, end_offset)

    def _findings(
        self, order: MergeResult, kept: KeptOffsets, tail: Finding | None, side_files: SideFilePlan
    ) -> Iterator[Finding]:
        yield from self._leftovers.findings
        yield from leftover_findings(self._working_image, self._leftovers.logs, kept.ranges)
        yield from rated_findings(self._assessment)
        yield from restored_findings(self._working_image, self._logs, self._restored)
        yield from overlap_findings(self._logs, order.superseded)
        if tail is not None:
            yield tail
        yield from side_files.findings
        yield from transaction_findings(self._working_image.directory, side_files.cut)


def overlap_findings(logs: Logs, superseded: Sequence[Superseded]) -> Iterator[Finding]:
    """One finding per range of offsets that two batches hold, with the copy that is removed."""
    for entry in superseded[:SHOWN_PER_FILE]:
        valid_run, log = entry.valid_run, logs[entry.valid_run.log]
        first, last = valid_run.first_offset, valid_run.last_offset
        message = (
            f"{offsets_words(first, last)} exist{'s' if first == last else ''} twice: "
            f"{_RULES[entry.rule]}, in {logs[entry.kept_log].name}"
        )
        yield Finding(
            "overlap-resolved",
            log.path,
            message,
            valid_run.position,
            valid_run.length,
            first,
            last,
            {"rule": entry.rule, "batches": valid_run.batches, "kept_in": logs[entry.kept_log].name},
        )

    more = len(superseded) - SHOWN_PER_FILE
    if more > 0:
        path = logs[superseded[SHOWN_PER_FILE].valid_run.log].path
        yield Finding(
            "overlap-resolved",
            path,
            f"{counted(more, 'more range')} that exist twice",
            numbers={"more": more},
        )


def transaction_findings(
    path: str, cut: Iterable[tuple[OpenTransaction, tuple[int, int]]]
) -> Iterator[Finding]:
    """Transactions that were open at offsets that are lost, one finding each."""
    reported = set()
    for opened, (first, last) in cut:
        if (opened.producer_id, opened.first_offset) in reported:
            continue
        reported.add((opened.producer_id, opened.first_offset))
        producer = opened.producer_id, opened.producer_epoch
        offsets = opened.first_offset, opened.last_offset
        yield transaction_end_lost(path, producer, offsets, (first, last))


def without_repetition(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Drop repeated findings: replaying what is kept repeats findings of the assessment."""
    seen = set()
    for finding in findings:
        mark = finding.id, finding.path, finding.position, finding.first_offset, finding.message
        if mark not in seen:
            seen.add(mark)
            yield finding
