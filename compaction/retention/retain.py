"""The work of `retain` on one partition: `retain(target, RetainOptions) -> Iterator[Event]`.

1. A half-done change of `retain` is brought to its end first (--apply); without --apply it is in the way.
2. What lies there (`retention_evidence`), what goes (`rules`), why (`verdicts`), and which files change (`marking`); with
   --unmark what comes back instead (`unmark`).
3. --apply hands the plan to the executor. With --purge, marks that are old enough are purged before, which may make room for that,
   and those made now behind it, once their delay has passed. Without a delay nothing could be taken back anyway: what goes is
   marked and deleted first and needs no journal, so a disk without a free byte can be freed; then the leader epochs follow. (On a cluster the
   marks are made first, with a journal: it tells a later attempt what has gone.)

Yields a row for each segment, one for each marked file where marks are concerned, and one result. Whoever runs this
with `apply` holds the lock of the data directory, and writes its checkpoint afterwards (`run`).
"""

import os
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import TypedDict

from kseg.change.apply.journal_probe import is_known_to_kseg
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import FileIdentity, Plan, Step
from kseg.change.run.pipeline import LogTarget, TargetGroup, work_together
from kseg.change.run.prepared import Prepared, carried_out, settle_before
from kseg.compaction.known_settings import (
    as_config,
    of_old_format,
    settings_for,
    unknown_policy,
    with_settings,
)
from kseg.compaction.retention import rows
from kseg.compaction.retention.options import (
    NO_LIMITS,
    Limits,
    RetainOptions,
    configured_delay_ms,
    configured_limits,
)
from kseg.compaction.retention.retain07 import ancient_steps, decide_ancient, gather_ancient
from kseg.compaction.retention.retention_evidence import RetentionEvidence, gather, noted_start, open_log
from kseg.compaction.retention.rows import COMMAND, Row
from kseg.compaction.retention.rules import (
    Candidate,
    Decision,
    LogToRetain,
    decide,
    decide_to_free,
    thresholds,
    what_if,
)
from kseg.compaction.retention.verdicts import Stamp, StampOf, Verdict, verdicts
from kseg.jobs import events
from kseg.jobs.events import Event
from kseg.segment import layout as L
from kseg.segment.errors import UsageError
from kseg.segment.findings import Finding
from kseg.segment.partition.deletion_marks import marks_in
from kseg.segment.partition.directory import list_partition, own_partition_name
from kseg.segment.partition.largest_timestamp import record_of
from kseg.segment.partition.names import SHARE_GROUP_STATE_TOPIC, PartitionState, Role, parse_file_name
from kseg.segment.partition.targets import FileTarget, PartitionTarget
from kseg.segment.partition.topic_settings import TopicSettings


def retain(target: LogTarget, options: RetainOptions) -> Iterator[Event]:
    """Plan the retention of one partition, and carry it out when the options say so.

    Raises UsageError for a single file and for a log start offset above the high watermark, UnreadableInput, Refused
    (a broker would first do something else, inputs changed, half-done journal).
    """
    yield from carry_out((yield from prepare(target, options)), options)


def retain_group(group: TargetGroup, options: RetainOptions) -> Iterator[Event]:
    """`retain` for each target of the group; what one raises becomes its Failure and stops no other."""
    yield from work_together(group, options, prepare, carry_out)


def prepare(target: LogTarget, options: RetainOptions) -> Generator[Event, None, Prepared | None]:
    """The first half: yields what goes and why; None for a directory that retention leaves alone."""
    if isinstance(target, FileTarget):
        raise UsageError(
            f"{target.path} is one file of a log; name its partition directory to apply retention"
        )
    left_alone = untouched(target)
    if left_alone is not None:
        yield left_alone
        return None
    known = known_for(target, inputs_of(target.path), options)
    options, unknown = configured(target, known, options)
    if unknown is not None:
        yield unknown
        if not (options.purge or options.unmark):
            return None
    is_resumed = settle_before(target.path, COMMAND, options)
    inputs = inputs_of(target.path)
    result = with_settings(rows.result_row(_name(target), target.path, options), known)
    if options.unmark:
        prepared = yield from _unmarked(target, inputs, options, result)
    elif is_ancient(inputs):
        prepared = yield from _ancient(target, inputs, options, result)
    else:
        prepared = yield from _marked(target, inputs, options, result)
        # on a cluster the journal of the attempt before says what has moved
        if (is_resumed and options.shared is None) or _is_entry_outdated(target):
            prepared.result["log_start_moved"] = True
    return prepared


def _is_entry_outdated(target: PartitionTarget) -> bool:
    """Whether kseg has been here, and the checkpoint notes a start below the first segment: a run that was killed between
    the partition and the checkpoint leaves that."""
    if target.log_dir is None or not is_known_to_kseg(target.path):
        return False
    noted = noted_start(target)
    bases = [segment.base_offset for segment in list_partition(target.path).segments]
    return noted is not None and bool(bases) and noted < bases[0]


def known_for(
    target: PartitionTarget, inputs: tuple[FileIdentity, ...], options: RetainOptions
) -> TopicSettings | None:
    """What the run was told of the topic of a partition; None when it was told nothing of any."""
    known = settings_for(target, options.topics)
    return of_old_format(known) if known is not None and is_ancient(inputs) else known


def configured(
    target: PartitionTarget, known: TopicSettings | None, options: RetainOptions
) -> tuple[RetainOptions, Finding | None]:
    """The options with the limits of the topic; and that its policy is not known, when that matters: then nothing is marked."""
    name = own_partition_name(target.path)
    if known is None:
        if name is not None and not options.is_policy_given:
            options = replace(options, limits=options.limits.for_topic(name.topic))
        return options, None
    try:
        config = as_config(target, known)
        limits, delay_ms = configured_limits(config), configured_delay_ms(config)
    except UsageError as error:  # a value that no broker takes: what the topic is meant to be nobody knows
        known, limits, delay_ms = replace(known, unknown=str(error)), Limits(), None
    unknown = None if options.only_marked else unknown_policy(target, known)
    if options.only_marked or unknown is not None:
        limits = NO_LIMITS
        options = replace(options, log_start_offset=None)
    elif name is not None and name.topic == SHARE_GROUP_STATE_TOPIC and not options.is_policy_given:
        limits = limits.for_topic(name.topic)
    if delay_ms is not None:
        options = replace(options, file_delete_delay_ms=delay_ms)
    return replace(options, limits=limits), unknown


def carry_out(prepared: Prepared | None, options: RetainOptions) -> Iterator[Event]:
    """The second half: the result, once the files are as planned. Raises Refused."""
    if prepared is None:
        return
    if not (options.apply and options.purge) or options.shared is not None:
        marked = carried_out(prepared, options)
        done: Row = {"applied": options.apply, "journal": marked.get("journal")}
        done |= {"room": marked["room"]} if "room" in marked else {}
        if options.purge:
            done |= dict((yield from _purged(prepared, options)))
    else:
        done = yield from _purged_around(prepared, options)
    yield events.Row(prepared.result | done)


def _purged_around(prepared: Prepared, options: RetainOptions) -> Generator[Event, None, Row]:
    """What is marked already goes first: it may make the room that marking needs. Then what is marked now, once its delay has
    passed. The rows come by the names of the files, as those of one purge."""
    said: list[Event] = []
    try:
        return _marked_and_purged(prepared, options, said)
    finally:
        yield from sorted(said, key=_file_of)


def _marked_and_purged(prepared: Prepared, options: RetainOptions, said: list[Event]) -> Row:
    from kseg.change.apply.disk import disk_for
    from kseg.compaction.retention.purge import mark_at_once

    directory = prepared.plan.directory
    passes = [_listened_to(_purged(prepared, options), said)]
    gone = frozenset(passes[0]["purged"])
    inputs = tuple(file for file in prepared.plan.inputs if file.name not in gone)
    rest = replace(prepared, plan=replace(prepared.plan, inputs=inputs))
    waiting = frozenset(mark.name.name for mark in marks_in(directory))
    is_readable = options.accept_unreadable or not prepared.unreadable
    if is_readable and not _with_delay(directory, options).file_delete_delay_ms:
        plan, unmarked = mark_at_once(rest.plan, disk_for(options.follow_links))
        rest = replace(rest, plan=plan)
        names, size_bytes = [file.name for file in unmarked], sum(file.size_bytes for file in unmarked)
        passes.append(_Purged(purged=names, bytes_purged=size_bytes))
        passes.append(_listened_to(_purged(prepared, options, but=waiting), said))
    marked = carried_out(rest, options)
    passes.append(_listened_to(_purged(prepared, options, but=waiting), said))
    return {
        "applied": True,
        "journal": marked.get("journal"),
        "purged": sorted(name for each in passes for name in each["purged"]),
        "bytes_purged": sum(each["bytes_purged"] for each in passes),
    }


def _listened_to(work: "Generator[Event, None, _Purged]", said: list[Event]) -> "_Purged":
    """The value of `work`, its events noted in `said`."""
    while True:
        try:
            said.append(next(work))
        except StopIteration as stop:
            done: _Purged = stop.value
            return done


def _file_of(event: Event) -> str:
    return str(event.values["file"]) if isinstance(event, events.Row) else ""


def _name(target: PartitionTarget) -> str:
    """`topic-partition`, or the path of a directory that is named otherwise."""
    name = own_partition_name(target.path)
    return target.path if name is None else name.text


def untouched(target: PartitionTarget) -> Finding | None:
    """Why a broker's retention does not come to a directory."""
    name = own_partition_name(target.path)
    if name is None or (
        name.state in (PartitionState.LIVE, PartitionState.FUTURE) and not name.is_metadata_log
    ):
        return None
    if name.is_metadata_log:
        why = "the metadata log is shortened by its snapshots, not by retention"
    else:
        why = f"the directory was set aside ({name.state}), so a broker's retention does not come to it"
    return Finding("not-retained", target.path, why)


def is_ancient(inputs: tuple[FileIdentity, ...]) -> bool:
    """Whether this is a 0.7 log: `.kafka` files and no `.log`. Told by suffixes: a large log has many names."""
    return any(file.name.endswith(L.ANCIENT_SUFFIX) for file in inputs) and not any(
        file.name.endswith(L.LOG_SUFFIX) for file in inputs
    )


def _plan(target: PartitionTarget, inputs: tuple[FileIdentity, ...], steps: tuple[Step, ...]) -> Plan:
    return Plan(command=COMMAND, directory=target.path, inputs=inputs, steps=steps)


# --- marking


def _marked(
    target: PartitionTarget, inputs: tuple[FileIdentity, ...], options: RetainOptions, result: Row
) -> Generator[Event, None, Prepared]:
    from kseg.compaction.retention.marking import marking_steps

    log, around = open_log(target)
    with log:
        evidence = gather(log, around, inputs, options)
        decision = decide(evidence.standing, options.limits)
        if options.cuts is not None:
            decision = decide_to_free(evidence.standing, decision, options.cuts.get(target.path))
        judged = list(verdicts(evidence.standing, options, decision, _stamps(evidence)))
        largest = [aged.largest.timestamp_ms for aged in evidence.segments]
        mtimes = [aged.mtime_ms for aged in evidence.segments]
        steps = marking_steps(
            evidence, decision, [verdict.reason for verdict in judged[: len(decision.rules)]]
        )
        yield from log.findings
        yield from _zero_findings(evidence)
        yield from _rows(target, options, evidence.standing, judged, largest, mtimes)
    gone = evidence.segments[: len(decision.rules)]
    result |= _outcome(evidence.standing, decision)
    result["files_bytes"] = sum(aged.files_bytes for aged in gone)
    result["log_start_moved"] = decision.log_start_offset > evidence.start_before
    return Prepared(plan=_plan(target, inputs, steps), result=result)


def _stamps(evidence: RetentionEvidence) -> StampOf:
    def stamp_of(index: int, is_first: bool) -> Stamp:
        aged = evidence.segments[index]
        if aged.largest.timestamp_ms < 0:
            return Stamp(aged.mtime_ms, is_mtime=True)
        record = record_of(aged.segment, aged.largest) if is_first else None
        return Stamp(aged.largest.timestamp_ms, None if record is None else record.offset)

    return stamp_of


def _zero_findings(evidence: RetentionEvidence) -> Iterator[Finding]:
    for aged in evidence.segments:
        if aged.largest.is_of_zeros:
            path = aged.segment.paths[Role.TIME_INDEX]
            yield Finding("time-index-zeros-believed", path, "a broker takes its zeros for the timestamp 0")


def _rows(
    target: PartitionTarget,
    options: RetainOptions,
    standing: LogToRetain,
    judged: list[Verdict],
    largest: list[int],
    mtimes: list[int],
) -> Iterator[events.Row]:
    name = _name(target)
    limits = thresholds(standing)
    for at, candidate in enumerate(standing.candidates):
        yield events.Row(
            rows.segment_row(
                name,
                candidate.base_offset,
                candidate.size_bytes,
                largest[at],
                mtimes[at],
                judged[at],
                limits[at],
            )
        )
    if options.what_if:
        yield from map(events.Row, rows.what_if_rows(name, what_if(standing, options.limits)))


def _outcome(standing: LogToRetain, decision: Decision) -> Row:
    gone = standing.candidates[: len(decision.rules)]
    left = standing.candidates[len(decision.rules) :]
    return {
        "deleted": [candidate.base_offset for candidate in gone],
        "segments": len(left) + decision.rolls,
        "first_base_offset": standing.log_end_offset if decision.rolls else _first_base(left),
        "log_start_offset": decision.log_start_offset,
        "log_end_offset": standing.log_end_offset,
        "high_watermark": standing.high_watermark,
        "rolled": decision.rolls,
        "bytes_freed": sum(candidate.size_bytes for candidate in gone),
    }


def _first_base(candidates: tuple[Candidate, ...]) -> int | None:
    return candidates[0].base_offset if candidates else None


def _ancient(
    target: PartitionTarget, inputs: tuple[FileIdentity, ...], options: RetainOptions, result: Row
) -> Generator[Event, None, Prepared]:
    evidence = gather_ancient(target.path, inputs, options)
    standing = evidence.standing
    decision = decide_ancient(standing, options.limits)
    if options.cuts is not None:
        decision = decide_to_free(standing, decision, options.cuts.get(target.path))

    def stamp_of(index: int, _is_first: bool) -> Stamp:
        return Stamp(standing.candidates[index].stamp_ms, is_mtime=True)

    judged = list(verdicts(standing, options, decision, stamp_of))
    mtimes = [candidate.stamp_ms for candidate in standing.candidates]
    yield from _rows(target, options, standing, judged, [L.NO_TIMESTAMP] * len(mtimes), mtimes)
    steps = ancient_steps(evidence, decision, [verdict.reason for verdict in judged[: len(decision.rules)]])
    result |= _outcome(standing, decision)
    result["files_bytes"] = result["bytes_freed"]
    result["log_start_moved"] = False
    return Prepared(plan=_plan(target, inputs, steps), result=result)


# --- marks


def _unmarked(
    target: PartitionTarget, inputs: tuple[FileIdentity, ...], options: RetainOptions, result: Row
) -> Generator[Event, None, Prepared]:
    from kseg.compaction.retention.unmark import take_back

    names = frozenset(file.name for file in inputs)
    is_ancient = any(parse_file_name(name).role is Role.ANCIENT_LOG for name in names)
    if is_ancient:
        live = [
            name for name in map(parse_file_name, names) if name.role is Role.ANCIENT_LOG and name.is_live
        ]
        first = min((name.base_offset for name in live if name.base_offset is not None), default=None)
        back = take_back(target.path, None, names, first)
    else:
        log, _ = open_log(target)
        with log:
            first = log.segments[0].base_offset if log.segments else None
            back = take_back(target.path, log, names, first)
            result["log_end_offset"] = log.end_offset
            result["high_watermark"] = log.high_watermark
    for judged in back.judged:
        mark = judged.mark
        verdict = "unmark" if judged.comes_back else "keep"
        path = os.path.join(target.path, mark.name.name)
        row = rows.mark_row(_name(target), path, mark.size_bytes, mark.marked_at_ms, verdict, judged.reason)
        yield events.Row(row)
    start = back.bases[0] if back.bases else first
    result["first_base_offset"] = start
    result["log_start_offset"] = start
    if start is not None and options.log_start_offset is not None:
        result["log_start_offset"] = max(start, options.log_start_offset)
    result["unmarked"] = list(back.bases)
    result["bytes_freed"] = -back.bytes_back
    result["log_start_moved"] = bool(back.bases) and not is_ancient
    return Prepared(plan=_plan(target, inputs, back.steps), result=result)


class _Purged(TypedDict):
    """What a result says of it: the names, and their bytes."""

    purged: list[str]
    bytes_purged: int


def _with_delay(directory: str, options: RetainOptions) -> RetainOptions:
    """The options with what the topic is configured to."""
    target = PartitionTarget(directory)
    return configured(target, settings_for(target, options.topics), options)[0]


def _purged(
    prepared: Prepared, options: RetainOptions, but: frozenset[str] = frozenset()
) -> Generator[Event, None, _Purged]:
    """but: marks that stay, and that were spoken of."""
    from kseg.change.apply.disk import disk_for
    from kseg.compaction.retention.purge import free_purged, purge, purge_id, ripeness

    directory = prepared.plan.directory
    options = _with_delay(directory, options)
    if options.apply and options.shared is not None:
        from kseg.change.run.attempts import earlier_attempt

        earlier = earlier_attempt(
            directory, purge_id(options.run_id), directory, disk_for(options.follow_links)
        )
        if earlier is not None:
            yield from earlier.events
            free_purged(directory, options)
            told = earlier.prepared.result
            return _Purged(purged=list(told["purged"]), bytes_purged=int(told["bytes_purged"]))
    name = str(prepared.result["partition"])
    judged, gone = [], []
    for ripe in ripeness(directory, options):
        mark, verdict = ripe.mark, "purge" if ripe.is_ripe else "wait"
        if mark.name.name in but:
            continue
        path = os.path.join(directory, mark.name.name)
        row = rows.mark_row(name, path, mark.size_bytes, mark.marked_at_ms, verdict, ripe.reason)
        judged.append(events.Row(row))
        if ripe.is_ripe:
            gone.append(mark)
    yield from judged
    names = [mark.name.name for mark in gone]
    done = _Purged(purged=names, bytes_purged=sum(mark.size_bytes for mark in gone))
    if options.apply:
        purge(
            directory,
            names,
            options,
            disk_for(options.follow_links),
            told=_told(directory, judged, done, options),
        )
    return done


def _told(
    directory: str, judged: list[events.Row], done: _Purged, options: RetainOptions
) -> dict[str, object] | None:
    if options.shared is None:
        return None
    from kseg.change.run.attempts import told

    return told(directory, judged, done)
