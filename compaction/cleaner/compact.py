"""`compact` for one partition: `compact(target, CompactOptions) -> Iterator[Event]`.

1. With --apply an unfinished change of `compact` is completed first; without --apply it is refused.
2. Collect the state of the partition (`cleaning_evidence`) and the range that a cleaner would clean now (`cleanable`).
3. Run the rounds (`rounds`). With --apply or --output new logs are written along the way, to files without names; a plan alone only counts.
4. Plan the steps that put the new segments into place (`swapping`); the executor carries them out.

Yields findings, a row for each step, and one result. With `apply` the caller holds the lock of the data directory, and writes its
checkpoint afterwards (`run`).
"""

import os
from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import pairwise

from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Plan
from kseg.change.run.pipeline import TargetGroup, work_together
from kseg.change.run.prepared import (
    Prepared,
    carried_out,
    complete_or_refuse,
    copy_path,
    planning,
    shown_steps,
)
from kseg.compaction.cleaner import rows
from kseg.compaction.cleaner.cleanable import Cleanable, cleanable, is_overdue
from kseg.compaction.cleaner.cleaning_evidence import CleaningEvidence, first_timestamps, gather, open_log
from kseg.compaction.cleaner.forked_passes import ForkedPasses
from kseg.compaction.cleaner.header_order import OFFSETS, contradictions
from kseg.compaction.cleaner.options import CleanSettings, CompactOptions, Damaged
from kseg.compaction.cleaner.passes import LocalPasses, MakePasses
from kseg.compaction.cleaner.rounds import Cleaned, Rounds
from kseg.compaction.cleaner.rows import COMMAND, CompactResult
from kseg.compaction.cleaner.segment_reader import DamagedSegment, survey
from kseg.compaction.cleaner.segments import between, kept_open
from kseg.compaction.cleaner.settings_file import configured
from kseg.compaction.cleaner.swapping import swap_steps
from kseg.compaction.known_settings import as_config, settings_for, unknown_policy
from kseg.compaction.retention.options import RetentionPolicy, policies_of
from kseg.jobs import events
from kseg.jobs.events import Event, Failure
from kseg.segment.counted import counted
from kseg.segment.errors import Refused, UsageError
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.format_evidence import findings_against_v2
from kseg.segment.partition.names import PartitionState, is_kafka07_log, parse_file_name
from kseg.segment.partition.targets import FileTarget, LogTarget, PartitionTarget, only_one_file
from kseg.segment.partition.topic_settings import CLEANUP_POLICY, TopicSettings


def compact_group(group: TargetGroup, options: CompactOptions) -> Iterator[Event]:
    """Plan the compaction of each partition of the group, and carry it out if the options say so; an exception becomes the Failure of its
    target and does not stop the others."""
    yield from work_together(group, options, prepare, carry_out, CompactResult)


def prepare(
    target: LogTarget, options: CompactOptions, passes: MakePasses | None = None
) -> Generator[Event, None, Prepared[CompactResult] | None]:
    """Plan: yields findings and steps; None for a log that a cleaner does not clean. A log with damage is a Failure with status 4.

    passes: runs the passes of the cleaning; None: this process, or several by `options.jobs`. Raises UsageError for a single file,
    UnreadableInput, Refused (a broker would first change the log in some other way, unfinished journal, output already exists).
    """
    passes = passes or (ForkedPasses if options.jobs > 1 else LocalPasses)
    if isinstance(target, FileTarget):
        raise only_one_file(target, "to compact it")
    not_cleaned = not_cleaned_by_any(target)
    if not_cleaned is not None:
        yield not_cleaned
        return None
    options, known, excluded = with_topic_settings(target, options)
    if excluded is not None:
        yield excluded
        return None
    complete_or_refuse(target.path, COMMAND, options)
    inputs = inputs_of(target.path, follow_links=True)
    log, dir_state = open_log(target, options)
    with log, planning(target.path, inputs):
        if not log.segments:
            yield Finding("not-compacted", target.path, "the partition has no segments")
            return None
        yield from findings_against_v2(log, target.path, ", in which a cleaner of Kafka 4 writes all batches")
        evidence = gather(log, dir_state, inputs, options)
        try:
            return (yield from _planned(target, evidence, options, passes, known))
        except DamagedSegment as damaged:
            yield from _refusal(target, evidence, damaged)
            return None


def with_topic_settings(
    target: PartitionTarget, options: CompactOptions
) -> tuple[CompactOptions, TopicSettings | None, Finding | None]:
    """The options with the settings of the target's topic, these settings, None if the run has none, and the finding that a cleaner does
    not clean the log or that its policy is unknown, None otherwise."""
    known = settings_for(target, options.topics)
    if known is None:
        return options, None, None
    try:
        options = replace(options, settings=configured(as_config(target, known), options.settings))
        options.settings.check()
        policies_of(tuple(known.policies))
    except UsageError as error:  # a value that no broker accepts: the intended policy is unknown
        known = replace(known, unknown=str(error))
    return options, known, _policy_excludes_compaction(target, known)


def carry_out(prepared: Prepared[CompactResult] | None, options: CompactOptions) -> Iterator[Event]:
    """Apply the plan and yield the result. Raises Refused."""
    if prepared is not None:
        result = prepared.result.with_outcome(carried_out(prepared, options))
        yield events.Row(result.as_row(), result)


def not_cleaned_by_any(target: PartitionTarget) -> Finding | None:
    """Why a broker's cleaner would not clean a directory, None when it would."""
    name = own_partition_name(target.path)
    why = ""
    if name is not None and name.is_metadata_log:
        why = "snapshots trim the metadata log, not compaction"
    elif name is not None and name.state not in (PartitionState.LIVE, PartitionState.FUTURE):
        why = f"the directory was set aside ({name.state}), so a broker does not clean it"
    elif is_kafka07_log(map(parse_file_name, os.listdir(target.path))):
        why = "Kafka 0.7 has neither keys nor compaction"
    return Finding("not-compacted", target.path, why) if why else None


def _policy_excludes_compaction(target: PartitionTarget, known: TopicSettings) -> Finding | None:
    """A finding when the cleanup.policy excludes compaction or is unknown."""
    unknown = unknown_policy(target, known)
    if unknown is not None or RetentionPolicy.COMPACT in known.policies:
        return unknown
    policy = known.settings[CLEANUP_POLICY]
    message = f"its cleanup.policy is {policy.value or 'empty'} ({policy.source.words})"
    return Finding("not-compacted", target.path, message)


def _planned(
    target: PartitionTarget,
    evidence: CleaningEvidence,
    options: CompactOptions,
    passes: MakePasses,
    known: TopicSettings | None,
) -> Generator[Event, None, Prepared[CompactResult]]:
    yield from evidence.log.findings
    if evidence.roll_damage and options.damaged is Damaged.REFUSE:
        raise DamagedSegment(evidence.segments[-1], evidence.roll_damage)
    yield from evidence.roll_damage
    range_ = cleanable(evidence.log_to_clean, options.settings)
    if range_.is_reset:
        last_clean = evidence.log_to_clean.last_clean_offset
        message = (
            f"the first dirty offset {last_clean} is outside the log; cleaning starts at the log start offset"
        )
        yield Finding("dirty-offset-reset", target.path, message, first_offset=last_clean)
    result = rows.compact_result(target.shown_name, target.path, evidence, range_, known)
    cleaned = None
    is_due = range_.is_due(options.settings, is_past_limit(evidence, range_, options.settings))
    with kept_open(evidence.segments if is_due else ()):
        if is_due and (yield from _is_in_order(target, evidence, range_, options)):
            cleaned = _cleaned(target, evidence, range_, options, passes)
    if cleaned is not None:
        yield from _findings(target, cleaned)
        result = rows.with_cleaned(result, cleaned)
        for row in rows.detail_rows(target.shown_name, cleaned, options.settings.now_ms):
            yield events.Row(row)
    segments = evidence.segments if cleaned is None else cleaned.segments
    steps = swap_steps(evidence, segments, marks=options.output is None)
    plan = Plan(command=COMMAND, directory=target.path, inputs=evidence.inputs, steps=steps)
    copy = None if options.output is None else copy_path(options.output, target.path)
    sources = tuple(segment.log for segment in segments if cleaned and segment.log is not None)
    try:
        yield from shown_steps(target.shown_name, plan, copy)
    except Refused:
        for source in sources:
            source.close()
        raise
    return Prepared(
        plan=plan,
        result=replace(result, steps=len(steps)),
        copy=copy,
        hard_link=options.hard_link,
        sources=sources,
    )


def _is_in_order(
    target: PartitionTarget, evidence: CleaningEvidence, range_: Cleanable, options: CompactOptions
) -> Generator[Event, None, bool]:
    """Whether the offsets of everything that the cleaning would read show which record of a key is the latest. Segments with an altered
    leader epoch are marked as damaged. Raises DamagedSegment unless damage is skipped."""
    segments, is_in_order = evidence.segments, True
    for segment, following in pairwise(segments):
        if segment.base_offset >= range_.first_uncleanable_offset:
            break
        found = contradictions(segment, following.base_offset)
        if not found:
            continue
        if options.damaged is Damaged.REFUSE:
            raise DamagedSegment(segment, tuple(found))
        yield from found
        segment.is_damaged = True
        is_in_order &= not any(finding.id == OFFSETS for finding in found)
    if not is_in_order:
        message = "offsets contradict each other, so the latest record of a key cannot be determined; nothing is cleaned"
        yield Finding("group-left-alone", target.path, message)
    return is_in_order


def is_past_limit(evidence: CleaningEvidence, range_: Cleanable, settings: CleanSettings) -> bool:
    """Whether dirty records have waited longer than max.compaction.lag.ms."""
    if settings.max_compaction_lag_ms is None:
        return False
    active = evidence.segments[-1].base_offset
    dirty = between(evidence.segments, range_.first_dirty_offset, active)
    return is_overdue(first_timestamps(dirty, evidence.log), settings)


def scratch_directory(target: PartitionTarget, options: CompactOptions) -> str | None:
    """The directory on whose file system new logs are written during planning; None to count only."""
    if not options.writes:
        return None
    return target.path if options.output is None else _existing(options.output)


def _cleaned(
    target: PartitionTarget,
    evidence: CleaningEvidence,
    range_: Cleanable,
    options: CompactOptions,
    passes: MakePasses,
) -> Cleaned:
    rounds = Rounds(
        evidence.segments,
        options.settings,
        evidence.log_to_clean.log_start_offset,
        evidence.last_records,
        scratch_directory=scratch_directory(target, options),
        skip_damaged=options.damaged is Damaged.SKIP,
        top_keys=0 if options.writes else options.top_keys,
        passes=passes,
    )
    return rounds.run(range_.first_dirty_offset, range_.first_uncleanable_offset, range_.dirty_bytes)


def _existing(path: str) -> str:
    """The directory itself, or its nearest existing parent."""
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _findings(target: PartitionTarget, cleaned: Cleaned) -> Iterator[Finding]:
    yield from cleaned.findings
    tally = cleaned.tally
    if tally.legacy_emptied:
        count = tally.legacy_emptied
        message = (
            f"{count} batch of magic 0 or 1 lost all its records but ends the round, so its offsets are kept"
        )
        yield Finding("legacy-batch-emptied", target.path, message, numbers={"batches": count})
    if tally.negative_rebuilt:
        count = tally.negative_rebuilt
        message = (
            f"{counted(count, 'batch')} with negative timestamps lost some records; a broker's cleaner would fail there, "
            "and no longer clean the partition"
        )
        yield Finding("negative-timestamp-rewritten", target.path, message, numbers={"batches": count})
    if tally.groups_skipped:
        count = tally.groups_skipped
        groups = counted(count, "group")
        message = f"damaged segments, and segments grouped with them, are left unchanged: {groups}"
        yield Finding("group-left-alone", target.path, message, numbers={"groups": tally.groups_skipped})


def _refusal(target: PartitionTarget, evidence: CleaningEvidence, damaged: DamagedSegment) -> Iterator[Event]:
    """All damage in the closed segments, and the command that repairs it."""
    found = list(damaged.findings)
    known = {(finding.path, finding.position) for finding in found}
    for segment in evidence.segments[:-1]:
        if segment.log is None:
            found += [each for each in survey(segment) if (each.path, each.position) not in known]
    yield from found
    yield Failure(
        target.path,
        f"{target.path} is damaged and was not compacted; `kseg recover` shows what can be saved; "
        "--damaged skip leaves damaged segments, and those grouped with them, unchanged",
        Refused.exit_status,
    )
