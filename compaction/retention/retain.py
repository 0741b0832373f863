"""`retain` for one partition: `retain(target, RetainOptions) -> Iterator[Event]`.

1. With --apply an unfinished change of `retain` is completed first; without --apply it is refused.
2. Collect the evidence (`retention_evidence`), decide what is deleted (`rules`), explain it (`verdicts`) and plan which files
   change (`marking`). With --unmark, plan what is restored instead (`unmark`).
3. With --apply, the executor carries the plan out. With --purge, marked files are deleted as well, in the order that `purge_pass`
   describes. On a cluster the marks are always made first and with a journal, which tells a later attempt what was deleted.

Yields a row for each segment, one for each marked file if marks are concerned, and one result. The caller holds the lock of the
data directory when `apply` is set, and writes its checkpoint afterwards (`run`).
"""

import os
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

from kseg.change.apply.journal_probe import is_known_to_kseg
from kseg.change.plan.inputs import Listing, listing_of
from kseg.change.plan.steps import FileIdentity, Plan, Step
from kseg.change.run.pipeline import TargetGroup, work_together
from kseg.change.run.prepared import Prepared, carried_out, complete_or_refuse
from kseg.compaction.retention import rows
from kseg.compaction.retention.options import RetainOptions
from kseg.compaction.retention.retain07 import decide_kafka07, gather_kafka07, kafka07_steps
from kseg.compaction.retention.retention_evidence import (
    RetentionEvidence,
    checkpointed_start,
    gather,
    open_log,
    refuse_remote_start,
)
from kseg.compaction.retention.rows import COMMAND, RetainResult
from kseg.compaction.retention.rules import (
    Candidate,
    Decision,
    LogToRetain,
    decide,
    decide_to_free,
    thresholds,
    what_if,
)
from kseg.compaction.retention.topic_limits import configured, exempted, is_kafka07, known_for
from kseg.compaction.retention.verdicts import SegmentTimestamp, TimestampOf, Verdict, verdicts
from kseg.jobs import events
from kseg.jobs.events import Event
from kseg.segment import layout as L
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import Finding
from kseg.segment.partition.largest_timestamp import record_of
from kseg.segment.partition.log_dir_state import LogDirState
from kseg.segment.partition.names import Role, is_kafka07_log, parse_file_name
from kseg.segment.partition.targets import FileTarget, LogTarget, PartitionTarget, only_one_file
from kseg.segment.partition.topic_settings import TopicSettings


def retain_group(group: TargetGroup, options: RetainOptions) -> Iterator[Event]:
    """Plan the retention of each partition of the group, and carry it out if the options say so; an exception becomes the Failure of its
    target and does not stop the others."""
    yield from work_together(group, options, prepare, carry_out, RetainResult)


def prepare(
    target: LogTarget, options: RetainOptions
) -> Generator[Event, None, Prepared[RetainResult] | None]:
    """Plan: yields verdicts with reasons; None for a directory that retention skips.

    Raises UsageError for a single file and for a log start offset above the high watermark, UnreadableInput, Refused (a broker would
    first change the log in some other way, unfinished journal).
    """
    if isinstance(target, FileTarget):
        raise only_one_file(target, "to apply retention")
    exempt = exempted(target)
    if exempt is not None:
        yield exempt
        return None
    listing = listing_of(target.path, follow_links=True)
    known = known_for(target, listing.files, options)
    options, unknown = configured(target, known, options)
    if unknown is not None:
        yield unknown
        if not (options.purge or options.unmark):
            return None
    is_resumed = complete_or_refuse(target.path, COMMAND, options, listing.names)
    if is_resumed:
        listing = listing_of(target.path, follow_links=True)
    inputs = listing.files
    result = rows.retain_result(target.shown_name, target.path, options, known)
    if options.unmark:
        prepared = yield from _unmarked(target, inputs, options, result)
    elif is_kafka07(inputs):
        prepared = yield from _kafka07(target, inputs, options, result)
    else:
        prepared = yield from _marked(target, listing, options, result, known)
        # on a cluster the journal of the previous attempt contains what was moved
        if is_resumed and options.shared is None:
            prepared = replace(prepared, result=replace(prepared.result, log_start_moved=True))
    return prepared


def carry_out(prepared: Prepared[RetainResult] | None, options: RetainOptions) -> Iterator[Event]:
    """Apply the plan and yield the result. Raises Refused."""
    if prepared is None:
        return
    if options.apply and options.purge and options.shared is None:
        from kseg.compaction.retention.purge_pass import purged_around

        result = yield from purged_around(prepared, options)
    else:
        result = prepared.result.with_outcome(carried_out(prepared, options))
        if options.purge:
            from kseg.compaction.retention.purge_pass import purged

            deleted = yield from purged(prepared, options)
            result = replace(result, purged=deleted.names, bytes_purged=deleted.size_bytes)
    yield events.Row(result.as_row(), result)


def _plan(target: PartitionTarget, inputs: tuple[FileIdentity, ...], steps: tuple[Step, ...]) -> Plan:
    return Plan(command=COMMAND, directory=target.path, inputs=inputs, steps=steps)


# --- marking


def _marked(
    target: PartitionTarget,
    listing: Listing,
    options: RetainOptions,
    result: RetainResult,
    known: TopicSettings | None,
) -> Generator[Event, None, Prepared[RetainResult]]:
    from kseg.compaction.retention.marking import marking_steps

    if listing.odd_logs:
        raise UnreadableInput(f"cannot read {listing.odd_logs[0]}: not a regular file")
    log, dir_state = open_log(target, listing.names)
    with log:
        evidence = gather(log, dir_state, listing.files, options)
        decision = decide(evidence.log_to_retain, options.limits)
        if options.cuts is not None:
            decision = decide_to_free(evidence.log_to_retain, decision, options.cuts.get(target.path))
        may_be_tiered = known is not None and known.may_be_tiered and not options.limits.is_tiered
        if decision.rules and may_be_tiered:
            refuse_remote_start(evidence, checkpointed_start(target, dir_state))
        outcomes = list(verdicts(evidence.log_to_retain, options, decision, _timestamps(evidence)))
        largest = [aged.largest.timestamp_ms for aged in evidence.segments]
        mtimes = [aged.mtime_ms for aged in evidence.segments]
        reasons = [verdict.reason for verdict in outcomes[: len(decision.rules)]]
        steps = marking_steps(evidence, decision, reasons, options.producer_id_expiration_ms)
        yield from log.findings
        yield from _zero_timestamp_findings(evidence)
        yield from _rows(target, options, evidence.log_to_retain, outcomes, largest, mtimes)
    deleted = evidence.segments[: len(decision.rules)]
    result = replace(
        result,
        **_decided(evidence.log_to_retain, decision),
        files_bytes=sum(aged.files_bytes for aged in deleted),
        log_start_moved=decision.log_start_offset > evidence.previous_start
        or (not options.limits.is_tiered and _is_entry_outdated(target, evidence, dir_state)),
    )
    return Prepared(plan=_plan(target, listing.files, steps), result=result)


def _is_entry_outdated(
    target: PartitionTarget, evidence: RetentionEvidence, dir_state: LogDirState | None
) -> bool:
    """Whether kseg has deleted segments here and the checkpoint still has a start below the first one: the state left by a run
    that was killed between the partition and the checkpoint."""
    checkpointed, segments = checkpointed_start(target, dir_state), evidence.segments
    is_below = checkpointed is not None and bool(segments) and checkpointed < segments[0].segment.base_offset
    return is_below and is_known_to_kseg(target.path)


def _timestamps(evidence: RetentionEvidence) -> TimestampOf:
    def timestamp_of(index: int, is_first: bool) -> SegmentTimestamp:
        aged = evidence.segments[index]
        if aged.largest.timestamp_ms < 0:
            return SegmentTimestamp(aged.mtime_ms, is_mtime=True)
        record = record_of(aged.segment, aged.largest) if is_first else None
        return SegmentTimestamp(aged.largest.timestamp_ms, None if record is None else record.offset)

    return timestamp_of


def _zero_timestamp_findings(evidence: RetentionEvidence) -> Iterator[Finding]:
    for aged in evidence.segments:
        if aged.largest.is_zeros:
            path = aged.segment.paths[Role.TIME_INDEX]
            yield Finding("time-index-zeros-believed", path, "a broker reads its zero entries as timestamp 0")


def _rows(
    target: PartitionTarget,
    options: RetainOptions,
    log_to_retain: LogToRetain,
    outcomes: list[Verdict],
    largest: list[int],
    mtimes: list[int],
) -> Iterator[events.Row]:
    name = target.shown_name
    limits = thresholds(log_to_retain)
    for at, candidate in enumerate(log_to_retain.candidates):
        yield events.Row(
            rows.segment_row(
                name,
                candidate.base_offset,
                candidate.size_bytes,
                largest[at],
                mtimes[at],
                outcomes[at],
                limits[at],
            )
        )
    if options.what_if:
        yield from map(events.Row, rows.what_if_rows(name, what_if(log_to_retain, options.limits)))


def _decided(log_to_retain: LogToRetain, decision: Decision) -> dict[str, Any]:
    """The fields of the result that the decision determines."""
    deleted = log_to_retain.candidates[: len(decision.rules)]
    remaining = log_to_retain.candidates[len(decision.rules) :]
    return {
        "deleted": tuple(candidate.base_offset for candidate in deleted),
        "segments": len(remaining) + decision.rolls,
        "first_base_offset": log_to_retain.log_end_offset if decision.rolls else _first_base(remaining),
        "log_start_offset": decision.log_start_offset,
        "log_end_offset": log_to_retain.log_end_offset,
        "high_watermark": log_to_retain.high_watermark,
        "rolled": decision.rolls,
        "bytes_freed": sum(candidate.size_bytes for candidate in deleted),
    }


def _first_base(candidates: tuple[Candidate, ...]) -> int | None:
    return candidates[0].base_offset if candidates else None


def _kafka07(
    target: PartitionTarget, inputs: tuple[FileIdentity, ...], options: RetainOptions, result: RetainResult
) -> Generator[Event, None, Prepared[RetainResult]]:
    evidence = gather_kafka07(target.path, inputs, options)
    log_to_retain = evidence.log_to_retain
    decision = decide_kafka07(log_to_retain, options.limits)
    if options.cuts is not None:
        decision = decide_to_free(log_to_retain, decision, options.cuts.get(target.path))

    def timestamp_of(index: int, _is_first: bool) -> SegmentTimestamp:
        return SegmentTimestamp(log_to_retain.candidates[index].stamp_ms, is_mtime=True)

    outcomes = list(verdicts(log_to_retain, options, decision, timestamp_of))
    mtimes = [candidate.stamp_ms for candidate in log_to_retain.candidates]
    yield from _rows(target, options, log_to_retain, outcomes, [L.NO_TIMESTAMP] * len(mtimes), mtimes)
    steps = kafka07_steps(evidence, decision, [verdict.reason for verdict in outcomes[: len(decision.rules)]])
    decided = _decided(log_to_retain, decision)
    result = replace(result, **decided, files_bytes=decided["bytes_freed"])
    return Prepared(plan=_plan(target, inputs, steps), result=result)


# --- marks


def _unmarked(
    target: PartitionTarget, inputs: tuple[FileIdentity, ...], options: RetainOptions, result: RetainResult
) -> Generator[Event, None, Prepared[RetainResult]]:
    from kseg.compaction.retention.unmark import base_of, plan_unmark

    names = frozenset(file.name for file in inputs)
    has_kafka07_log = is_kafka07_log(map(parse_file_name, names))
    dir_state: LogDirState | None = None
    if has_kafka07_log:
        live = [
            name for name in map(parse_file_name, names) if name.role is Role.KAFKA07_LOG and name.is_live
        ]
        first = min((name.base_offset for name in live if name.base_offset is not None), default=None)
        unmarking = plan_unmark(target.path, None, names, first)
    else:
        log, dir_state = open_log(target)
        with log:
            first = base_of(log)
            unmarking = plan_unmark(target.path, log, names, first)
            result = replace(result, log_end_offset=log.end_offset, high_watermark=log.high_watermark)
    for mark_verdict in unmarking.outcomes:
        mark = mark_verdict.mark
        verdict = "unmark" if mark_verdict.is_restored else "keep"
        path = os.path.join(target.path, mark.name.name)
        row = rows.mark_row(
            target.shown_name, path, mark.size_bytes, mark.marked_at_ms, verdict, mark_verdict.reason
        )
        yield events.Row(row)
    first = start = unmarking.bases[0] if unmarking.bases else first
    if options.limits.is_tiered and not has_kafka07_log:
        start = checkpointed_start(target, dir_state) or 0
    if start is not None and options.log_start_offset is not None:
        start = max(start, options.log_start_offset)
    keeps_start = has_kafka07_log or options.limits.is_tiered
    result = replace(
        result,
        first_base_offset=first,
        log_start_offset=start,
        unmarked=tuple(unmarking.bases),
        bytes_freed=-unmarking.bytes_restored,
        log_start_moved=bool(unmarking.bases) and not keeps_start,
    )
    return Prepared(plan=_plan(target, inputs, unmarking.steps), result=result)
