"""`recover` on one partition or segment: `recover(target, RecoverOptions) -> Iterator[Event]`.

1. Complete an unfinished journal of `recover` (--apply); without --apply it is an error.
2. Collect the files, and what the data directory says about the partition (`broker_state`).
3. The policy computes the repaired directory (`loading`, `salvage`, `kafka07`), the difference is the plan.
4. Compute the cost of the other policy, unless nothing is wrong beyond what every crash leaves.
5. --apply passes the plan to the executor, --output writes the copy; otherwise the plan is the result.

Yields the findings that led to the plan, one row for each step, and one result. The caller holds the lock of the data
directory when `apply` is set.
"""

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from kseg.change.plan.directory_image import DirectoryImage, steps_between
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
from kseg.jobs.events import Event, Failure, Row
from kseg.recovery.policy import BrokerState, Policy, Repair
from kseg.recovery.repair import rows
from kseg.recovery.repair.broker_state import broker_state_of, broker_state_of_segment
from kseg.recovery.repair.clean_shutdown_marker import with_indexes_of_active_segment
from kseg.recovery.repair.lossless_load import is_written_by_load, loses_nothing
from kseg.recovery.repair.obstacles import (
    SEGMENT_MISSING,
    may_lack_logs,
    obstacles,
    refuse_obstructed,
    with_obstacles,
)
from kseg.recovery.repair.options import RecoverOptions
from kseg.recovery.repair.remaining_damage import (
    with_coordinator,
    with_harmful_batches,
    with_metadata_gap,
    with_remaining_damage,
)
from kseg.recovery.repair.rows import RecoverResult
from kseg.recovery.repair.target import RecoveryTarget, recovery_target_of
from kseg.recovery.salvage.unchanged import unchanged_repair
from kseg.segment.errors import Refused, UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.findings import ERROR, INFO, Finding
from kseg.segment.partition.targets import LogTarget, PartitionTarget, directory_of
from kseg.segment.partition.topic_identity import BECOMES_STRAY

COMMAND = "recover"

# Findings that do not affect what a broker's load does to the logs.
_IGNORED_BY_LOAD = frozenset(("partition-metadata-missing", *BECOMES_STRAY, "topic-id-conflict"))


def recover(target: LogTarget, options: RecoverOptions) -> Iterator[Event]:
    """Plan the repair of one target, and carry it out if the options say so.

    Raises UsageError for a file that does not belong to a segment, UnreadableInput, Refused (inputs changed, unfinished journal,
    output already exists). Where policy kafka has no result the target is a Failure with status 4.
    """
    yield from carry_out((yield from prepare(target, options)), options)


def prepare(
    target: LogTarget, options: RecoverOptions
) -> Generator[Event, None, Prepared[RecoverResult] | None]:
    """The first half of `recover`: yields the findings and the steps of the plan; returns None if there is no plan."""
    complete_or_refuse(directory_of(target), COMMAND, options)
    recovery_target = recovery_target_of(target)
    try:
        with planning(recovery_target.directory, recovery_target.found):
            return (yield from _prepared(recovery_target, options))
    finally:
        if options.drop_cache:
            _drop_cached(recovery_target)


def _prepared(
    recovery_target: RecoveryTarget, options: RecoverOptions
) -> Generator[Event, None, Prepared[RecoverResult] | None]:
    settings = options.load_settings_of(recovery_target.directory)
    if settings is not options.settings:
        options = replace(options, settings=settings)
    broker_state = _broker_state(recovery_target, options)
    found = DirectoryImage.of(recovery_target.found)
    identity = options.identity_of(recovery_target.directory)
    in_the_way = obstacles(recovery_target.directory)
    is_ordinary = identity.finding is None and not in_the_way
    repair = _unchanged_repair(recovery_target, found, broker_state, options) if is_ordinary else None
    if repair is None:
        repair = _repair(recovery_target, options.policy, broker_state, options)
        if (
            repair.load_failure is None
            and not recovery_target.is_kafka07
            and recovery_target.base_offset is None
        ):
            from kseg.recovery.repair.topic_id_repair import with_topic_id

            repair = with_topic_id(
                repair, recovery_target.directory, recovery_target.log_dir, options.topic_id, identity
            )
    if options.mark_clean:
        repair = with_indexes_of_active_segment(repair)
    repair = with_obstacles(repair, recovery_target.directory, in_the_way)
    yield from filter(recovery_target.concerns, repair.findings)
    if repair.load_failure is not None:
        yield from _load_failure(recovery_target, repair)
        return None
    whole = repair
    name = recovery_target.partition
    if name is not None and name.is_metadata_log and options.policy is Policy.SALVAGE:
        repair = with_metadata_gap(repair, found, is_loadable=identity.has_loadable_gap)
    plan = _plan(recovery_target, found, repair)
    # without anything to repair, reading all records would take most of the time; `verify` does it in any case
    failures = _coordinator_findings(recovery_target, repair, options) if plan.steps else ()
    yield from failures
    refuse_obstructed(plan, in_the_way)
    around_copy = options.copy_of(recovery_target.log_dir)
    copy = None if around_copy is None else copy_path(around_copy, recovery_target.directory)
    yield from shown_steps(recovery_target.name, plan, copy)
    afterwards = _findings_afterwards(recovery_target, repair, plan, broker_state, options)
    salvaged, costs = _costs(recovery_target, found, whole, plan, broker_state, options, afterwards)
    topic = options.topic_of(recovery_target.directory)
    # if the state afterwards is unknown, what is wrong now may still be wrong then
    remains = salvaged.findings if afterwards is None else afterwards
    # `misplaced` already reports which topic the directory belongs to
    remains = [each for each in remains if recovery_target.concerns(each) and each != identity.finding]
    repair = with_remaining_damage(repair, options.policy, remains, recovery_target.directory)
    repair = with_coordinator(repair, failures)
    missing = [
        each for each in salvaged.findings if each.id == SEGMENT_MISSING and recovery_target.concerns(each)
    ]
    return Prepared(
        plan=plan,
        result=rows.recover_result(
            recovery_target.name, options.policy, repair, plan, costs, topic.as_values(), missing
        ),
        copy=copy,
        hard_link=options.hard_link,
    )


def _broker_state(recovery_target: RecoveryTarget, options: RecoverOptions) -> BrokerState:
    directory, name, around = recovery_target.directory, recovery_target.partition, recovery_target.around
    if recovery_target.base_offset is None:
        return broker_state_of(directory, name, around, options)
    return broker_state_of_segment(directory, name, around, recovery_target.next_segment, options)


def _coordinator_findings(
    recovery_target: RecoveryTarget, repair: Repair, options: RecoverOptions
) -> Sequence[Finding]:
    """About records of the repaired log that a coordinator fails to load."""
    if recovery_target.base_offset is not None:
        return ()
    target = PartitionTarget(recovery_target.directory, recovery_target.log_dir)
    found = [*options.coordinator_findings(target)]
    if not found:
        return ()
    from kseg.recovery.salvage.losses import lost_offsets  # most partitions do not need it

    lost = lost_offsets(repair.removed)
    return [
        finding
        for finding in found
        if finding.first_offset is None
        or (
            finding.first_offset < repair.log_end_offset
            and not any(first <= finding.first_offset <= last for first, last in lost)
        )
    ]


def _drop_cached(recovery_target: RecoveryTarget) -> None:
    """Release the cached pages, once both policies have read the files."""
    for file in recovery_target.found:
        with suppress(UnreadableInput):
            MappedFile(os.path.join(recovery_target.directory, file.name), drop_cache=True).close()


def carry_out(prepared: Prepared[RecoverResult] | None, options: RecoverOptions) -> Iterator[Event]:
    """The second half of `recover`: apply the plan and return the result. Raises Refused."""
    if prepared is not None:
        result = prepared.result.with_outcome(carried_out(prepared, options))
        yield Row(result.as_row(), result)


def _unchanged_repair(
    recovery_target: RecoveryTarget, found: DirectoryImage, broker_state: BrokerState, options: RecoverOptions
) -> Repair | None:
    """The result of salvage for a healthy partition by the quick check alone, which is enough for most partitions."""
    if options.policy is not Policy.SALVAGE or options.topic_id is not None:
        return None
    return _unchanged_by_salvage(recovery_target, found, broker_state, options)


def _unchanged_by_salvage(
    recovery_target: RecoveryTarget, found: DirectoryImage, broker_state: BrokerState, options: RecoverOptions
) -> Repair | None:
    is_whole_partition = recovery_target.base_offset is None and recovery_target.partition is not None
    if options.rebuild or not is_whole_partition or recovery_target.is_kafka07:
        return None
    assert recovery_target.partition is not None
    return unchanged_repair(
        recovery_target.directory, recovery_target.partition, found, broker_state, options.settings
    )


def _repair(
    recovery_target: RecoveryTarget, policy: Policy, broker_state: BrokerState, options: RecoverOptions
) -> Repair:
    if recovery_target.is_kafka07:
        from kseg.recovery.kafka07.recover07 import recover07

        return recover07(recovery_target.directory, recovery_target.inputs, policy, broker_state)
    if policy is Policy.KAFKA:
        from kseg.recovery.loading.loader import load_as_broker

        repair = load_as_broker(
            recovery_target.directory,
            recovery_target.inputs,
            broker_state,
            options.settings,
            rebuild=options.rebuild,
        )
    else:
        from kseg.recovery.salvage.salvage import salvage

        repair = with_harmful_batches(
            salvage(
                recovery_target.directory,
                recovery_target.inputs,
                broker_state,
                options.settings,
                rebuild=options.rebuild,
                repair_bits=options.repair_bits,
            )
        )
    return repair


def _plan(recovery_target: RecoveryTarget, found: DirectoryImage, repair: Repair) -> Plan:
    is_same = repair.image is found
    steps = () if is_same else steps_between(found, recovery_target.restricted(repair.image), repair.why)
    return Plan(
        command=COMMAND,
        directory=recovery_target.directory,
        inputs=recovery_target.found,
        steps=steps,
        reasons=repair.findings,
    )


def _costs(
    recovery_target: RecoveryTarget,
    found: DirectoryImage,
    repair: Repair,
    plan: Plan,
    broker_state: BrokerState,
    options: RecoverOptions,
    afterwards: Sequence[Finding] | None,
) -> tuple[Repair, dict[str, rows.Row]]:
    """The result of policy salvage, and the cost of either policy. Salvage reads every byte: if it reports nothing, no broker
    loses anything. A clean load alone proves nothing, since a broker that loads after a clean shutdown reads next to nothing.
    afterwards: what salvage finds once a load is done, None if that is unknown."""
    if options.policy is Policy.SALVAGE:
        salvaged = loaded = repair
        is_doubted = any(f.severity != INFO and f.id not in _IGNORED_BY_LOAD for f in repair.findings)
        if not (is_doubted or plan.is_empty) and is_written_by_load(plan, broker_state):
            return salvaged, _lossless(salvaged)
        if is_doubted or not plan.is_empty:
            loaded = _repair(recovery_target, Policy.KAFKA, broker_state, options)
    else:
        loaded = repair
        salvaged = repair
        # which records a lost log had is known before the load removes its indexes
        lacks_logs = may_lack_logs(recovery_target)
        if (
            not lacks_logs
            and is_written_by_load(plan, broker_state)
            and loses_nothing(recovery_target, loaded, broker_state, options, afterwards)
        ):
            return salvaged, _lossless(loaded)
        if lacks_logs or not repair.is_in_order:
            # the result of salvage for an ordinary directory is known without running it, whatever a load would rewrite
            salvaged = _unchanged_by_salvage(recovery_target, found, broker_state, options) or _repair(
                recovery_target, Policy.SALVAGE, broker_state, options
            )
    if salvaged is loaded:
        return salvaged, {policy.value: rows.cost_row(salvaged) for policy in Policy}
    both = Policy.SALVAGE.value, Policy.KAFKA.value
    if recovery_target.is_kafka07 or salvaged.load_failure is not None:
        return salvaged, {
            both[0]: rows.cost_row(salvaged),
            both[1]: rows.cost_row(loaded, salvaged.removed),
        }
    from kseg.recovery.repair.lost_records import lost_by_each, lost_by_salvage
    from kseg.recovery.repair.retention_after_load import deleted_by_wrong_times, time_limit

    expired = frozenset[str]()
    topic = options.topic_of(recovery_target.directory)
    is_compacted = "compact" in topic.policies
    sizes = {file.name: file.size_bytes for file in recovery_target.inputs}
    if loaded.load_failure is not None:
        lost = lost_by_salvage(recovery_target.directory, sizes, salvaged, is_compacted=is_compacted)
        return salvaged, {both[0]: rows.cost_row(salvaged, lost=lost), both[1]: rows.cost_row(loaded)}
    limit = time_limit(topic, recovery_target.partition, options.settings.now_ms)
    if limit is not None:
        images = loaded.image, salvaged.image
        expired = deleted_by_wrong_times(recovery_target.directory, recovery_target.inputs, *images, limit)
    by_salvage, by_kafka = lost_by_each(
        recovery_target.directory, sizes, salvaged, loaded, expired, is_compacted=is_compacted
    )
    return salvaged, {
        both[0]: rows.cost_row(salvaged, lost=by_salvage),
        both[1]: rows.cost_row(loaded, salvaged.removed, by_kafka) | {"expired_segments": len(expired)},
    }


def _lossless(repair: Repair) -> dict[str, rows.Row]:
    cost = rows.cost_row(repair)
    return {Policy.SALVAGE.value: cost, Policy.KAFKA.value: cost | {"expired_segments": 0}}


def _findings_afterwards(
    recovery_target: RecoveryTarget,
    repair: Repair,
    plan: Plan,
    broker_state: BrokerState,
    options: RecoverOptions,
) -> Sequence[Finding] | None:
    """What policy salvage would report once the plan is carried out; None if there is no plan, or no room to check. A plan of
    salvage changes every file with an error that it can repair, so only the other files have to be checked."""
    if plan.is_empty:
        return None
    if recovery_target.is_kafka07 or (options.policy is Policy.SALVAGE and not _has_error_left(repair, plan)):
        return ()
    from kseg.recovery.salvage.fixpoint import findings_afterwards

    with suppress(Refused):
        return findings_afterwards(
            recovery_target.directory,
            recovery_target.inputs,
            repair,
            broker_state,
            options.settings,
            recovery_target.partition if recovery_target.base_offset is None else None,
        )
    return None


def _has_error_left(repair: Repair, plan: Plan) -> bool:
    """Whether an error concerns a file that the plan does not change."""
    changed = {step.name for step in plan.steps}
    errors = (finding for finding in repair.findings if finding.severity == ERROR)
    return any(os.path.basename(finding.path) not in changed for finding in errors)


def _load_failure(recovery_target: RecoveryTarget, repair: Repair) -> Iterator[Event]:
    assert repair.load_failure is not None
    sentence = f"a broker cannot load {recovery_target.directory}: {repair.load_failure.sentence}"
    yield Finding(
        "broker-load-fails",
        recovery_target.directory,
        repair.load_failure.sentence,
        numbers={"kafka_exception": repair.load_failure.kafka_exception},
    )
    yield Failure(
        recovery_target.directory, f"{sentence} ({repair.load_failure.kafka_exception})", Refused.exit_status
    )


def recover_group(group: TargetGroup, options: RecoverOptions) -> Iterator[Event]:
    """`recover` for each target of the group; an exception of one becomes its Failure and does not stop the others."""
    yield from work_together(group, options, prepare, carry_out, RecoverResult)
