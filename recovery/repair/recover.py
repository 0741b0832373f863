"""The work of `recover` on one partition or segment: `recover(target, RecoverOptions) -> Iterator[Event]`.

1. A half-done journal of `recover` is brought to its end first (--apply); without --apply it is in the way.
2. What lies there: the files, and what the data directory says of the partition (`broker_state`).
3. The policy makes the directory as it would be (`loading`, `salvage`, `kafka07`), the difference is the plan.
4. What the other policy would cost is worked out unless nothing is wrong.
5. --apply hands the plan to the executor, --output makes the copy; else the plan was all.

Yields the findings that led to the plan, one row for each step, and one result. Whoever runs this with `apply` holds
the lock of the data directory.
"""

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress

from kseg.change.plan.directory_image import DirectoryImage, steps_between
from kseg.change.plan.steps import Plan, step_rows
from kseg.change.run.pipeline import TargetGroup, work_together
from kseg.change.run.prepared import Prepared, carried_out, copy_path, settle_before
from kseg.jobs.events import Event, Failure, Row
from kseg.recovery.policy import Circumstances, Policy, Repair
from kseg.recovery.repair import rows
from kseg.recovery.repair.broker_state import circumstances_of
from kseg.recovery.repair.obstacles import obstacles, refuse_obstructed, with_obstacles
from kseg.recovery.repair.options import RecoverOptions
from kseg.recovery.repair.remaining_damage import with_what_remains
from kseg.recovery.repair.target import Subject, subject_of
from kseg.recovery.salvage.unchanged import left_alone
from kseg.segment.errors import Refused, UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.findings import ERROR, INFO, Finding
from kseg.segment.partition.targets import FileTarget, PartitionTarget, directory_of

COMMAND = "recover"

# What says nothing of what a broker's load would do to the logs.
_NO_LOAD_MINDS = frozenset(("partition-metadata-missing", "becomes-stray", "topic-id-conflict"))


def recover(target: FileTarget | PartitionTarget, options: RecoverOptions) -> Iterator[Event]:
    """Plan the repair of one target, and carry it out when the options say so.

    Raises UsageError for a file that is no segment's, UnreadableInput, Refused (inputs changed, half-done journal,
    output there already). Where policy kafka has no result the target is a Failure with status 4.
    """
    yield from carry_out((yield from prepare(target, options)), options)


def prepare(
    target: FileTarget | PartitionTarget, options: RecoverOptions
) -> Generator[Event, None, Prepared | None]:
    """The first half of `recover`: yields what led to the plan and its steps; None where there is no plan."""
    settle_before(directory_of(target), COMMAND, options)
    subject = subject_of(target)
    try:
        return (yield from _prepared(subject, options))
    finally:
        if options.drop_cache:
            _drop_cached(subject)


def _prepared(subject: Subject, options: RecoverOptions) -> Generator[Event, None, Prepared | None]:
    around = circumstances_of(subject.directory, subject.partition, subject.log_dir, options)
    found = DirectoryImage.of(subject.found)
    identity = options.identity_of(subject.directory)
    in_the_way = obstacles(subject.directory)
    is_ordinary = identity.finding is None and not in_the_way
    repair = _at_a_glance(subject, found, around, options) if is_ordinary else None
    if repair is None:
        repair = _repair(subject, options.policy, around, options)
        if repair.death is None and not subject.is_ancient and subject.base_offset is None:
            from kseg.recovery.repair.topic_id_repair import with_topic_id

            repair = with_topic_id(repair, subject.directory, subject.log_dir, options.topic_id, identity)
    repair = with_obstacles(repair, subject.directory, in_the_way)
    yield from filter(subject.concerns, repair.findings)
    if repair.death is not None:
        yield from _death(subject, repair)
        return None
    plan = _plan(subject, found, repair)
    refuse_obstructed(plan, in_the_way)
    for row in step_rows(subject.name, plan):
        yield Row(row)
    salvaged, costs = _costs(subject, repair, plan, around, options)
    remains = _remaining(subject, repair, salvaged, plan, around, options)
    # whose topic it is says `misplaced`
    remains = [each for each in remains if subject.concerns(each) and each != identity.finding]
    repair = with_what_remains(repair, options.policy, remains, subject.directory)
    around_copy = options.copy_of(subject.log_dir)
    return Prepared(
        plan=plan,
        result=rows.result_row(subject.name, options.policy, repair, plan, costs),
        copy=None if around_copy is None else copy_path(around_copy, subject.directory),
        hard_link=options.hard_link,
    )


def _drop_cached(subject: Subject) -> None:
    """Both policies have read what they wanted, some of it twice: only now nobody needs the pages."""
    for file in subject.found:
        with suppress(UnreadableInput):
            MappedFile(os.path.join(subject.directory, file.name), drop_cache=True).close()


def carry_out(prepared: Prepared | None, options: RecoverOptions) -> Iterator[Event]:
    """The second half: the result, once the files are as planned. Raises Refused."""
    if prepared is not None:
        yield Row(prepared.result | carried_out(prepared, options))


def _at_a_glance(
    subject: Subject, found: DirectoryImage, around: Circumstances, options: RecoverOptions
) -> Repair | None:
    """What salvage answers where nothing is out of the ordinary: most partitions need no more than that look."""
    is_asked = options.policy is Policy.SALVAGE and not options.rebuild and options.topic_id is None
    if not is_asked or subject.base_offset is not None or subject.partition is None:
        return None
    return left_alone(subject.directory, subject.partition, found, around, options.settings)


def _repair(subject: Subject, policy: Policy, around: Circumstances, options: RecoverOptions) -> Repair:
    if subject.is_ancient:
        from kseg.recovery.kafka07.recover07 import recover_ancient

        return recover_ancient(subject.directory, subject.inputs, policy, around)
    if policy is Policy.KAFKA:
        from kseg.recovery.loading.loader import load_as_broker

        repair = load_as_broker(
            subject.directory, subject.inputs, around, options.settings, rebuild=options.rebuild
        )
    else:
        from kseg.recovery.repair.remaining_damage import with_doubt
        from kseg.recovery.salvage.salvage import salvage

        repair = with_doubt(
            salvage(subject.directory, subject.inputs, around, options.settings, rebuild=options.rebuild)
        )
    return repair


def _plan(subject: Subject, found: DirectoryImage, repair: Repair) -> Plan:
    is_same = repair.image is found
    steps = () if is_same else steps_between(found, subject.restricted(repair.image), repair.why)
    return Plan(
        command=COMMAND,
        directory=subject.directory,
        inputs=subject.found,
        steps=steps,
        reasons=repair.findings,
    )


def _costs(
    subject: Subject, repair: Repair, plan: Plan, around: Circumstances, options: RecoverOptions
) -> tuple[Repair, dict[str, rows.Row]]:
    """The answer of policy salvage, and what either policy costs. Salvage reads every byte: where it has nothing to say, no
    broker loses anything. A broker that loads cleanly reads next to nothing, so its peace proves nothing."""
    if options.policy is Policy.SALVAGE:
        worries = [f for f in repair.findings if f.severity != INFO and f.id not in _NO_LOAD_MINDS]
        is_at_peace = plan.is_empty and not worries
        salvaged = repair
        loaded = repair if is_at_peace else _repair(subject, Policy.KAFKA, around, options)
    else:
        loaded = repair
        salvaged = repair if repair.is_orderly else _repair(subject, Policy.SALVAGE, around, options)
    if salvaged is loaded:
        return salvaged, {policy.value: rows.cost_row(salvaged) for policy in Policy}
    left = rows.NOTHING_UNREAD
    if loaded.death is None and salvaged.death is None and not subject.is_ancient:
        from kseg.recovery.repair.retention_after_load import TimeLimit, deleted_by_wrong_times
        from kseg.recovery.repair.unreachable_records import unread

        images, deleted = (loaded.image, salvaged.image), frozenset[str]()
        retention_ms = options.retention_of(subject.directory)
        if retention_ms is not None:
            limit = TimeLimit(options.settings.now_ms, retention_ms)
            deleted = deleted_by_wrong_times(subject.directory, subject.inputs, *images, limit)
        left = unread(subject.directory, *images, loaded.log_end_offset, deleted)
    return salvaged, {
        Policy.SALVAGE.value: rows.cost_row(salvaged),
        Policy.KAFKA.value: rows.cost_row(loaded, salvaged.removed, left),
    }


def _remaining(
    subject: Subject,
    repair: Repair,
    salvaged: Repair,
    plan: Plan,
    around: Circumstances,
    options: RecoverOptions,
) -> Sequence[Finding]:
    """What is to be said of the partition once the plan is carried out, by policy salvage. That policy changes every file with
    an error that it can help, so only where it does not, somebody has to look."""
    if plan.is_empty:
        return salvaged.findings
    if subject.is_ancient or (options.policy is Policy.SALVAGE and not _has_error_left(repair, plan)):
        return ()
    from kseg.recovery.salvage.fixpoint import findings_afterwards

    try:
        return findings_afterwards(subject.directory, subject.inputs, repair, around, options.settings)
    except Refused:  # no room to look: what is wrong now is what may be wrong then
        return salvaged.findings


def _has_error_left(repair: Repair, plan: Plan) -> bool:
    """Whether an error is about a file that the plan leaves as it is."""
    changed = {step.name for step in plan.steps}
    errors = (finding for finding in repair.findings if finding.severity == ERROR)
    return any(os.path.basename(finding.path) not in changed for finding in errors)


def _death(subject: Subject, repair: Repair) -> Iterator[Event]:
    assert repair.death is not None
    sentence = f"a broker cannot load {subject.directory}: {repair.death.sentence}"
    yield Finding(
        "broker-load-fails",
        subject.directory,
        repair.death.sentence,
        numbers={"kafka_exception": repair.death.kafka_exception},
    )
    yield Failure(subject.directory, f"{sentence} ({repair.death.kafka_exception})", Refused.exit_status)


def recover_group(group: TargetGroup, options: RecoverOptions) -> Iterator[Event]:
    """`recover` for each target of the group; what one raises becomes its Failure and stops no other."""
    yield from work_together(group, options, prepare, carry_out)
