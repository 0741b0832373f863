"""A data directory's own files after its partitions were repaired: checkpoints, leftovers, the clean-shutdown marker.

The order around a repair, so that a broker that opens the directory at any moment does no worse than recover:

1. The marker goes first (`opening_plan`), before any partition changes: while it lies there a broker believes what it
   finds and checks nothing.
2. Partitions are repaired; those that are to be marked clean are synced, every file of them.
3. Checkpoints are brought into line (`closing_plan`; the rules are in `checkpoints`), `.tmp` files of aborted writes
   go: Kafka writes `<name>.tmp`, syncs and renames, so one that is still there was never finished.
4. The marker comes last, and only when every partition of the data directory was looked at, is sound, and has its
   recovery point at its log end. Then the broker starts without recovery.

A marker written here is empty, as Kafka's own was up to 3.6. The JSON of later versions holds the broker epoch, with
which a broker shows the controller that its last stop was clean and nothing can be lost (KIP-966). That claim is not
ours to make after a repair. -1 is no way to say so: where a broker has several data directories, one that says -1 is
passed over when the next one has an epoch (LogManager.readBrokerEpochFromCleanShutdownFiles); an empty file makes
the broker register as after an unclean stop, whatever the others say. So is one that comes back after it was taken
away: only a run that changes something takes it away.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from kseg.recovery.policy import Policy
from kseg.recovery.repair.checkpoints import AlignedCheckpoint, PartitionOutcome, align
from kseg.segment.errors import FormatError, Refused, UnreadableInput
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.names import (
    NAME_BY_ROLE,
    OFFSET_CHECKPOINT_ROLES,
    FileState,
    PartitionName,
    PartitionState,
    Role,
    parse_file_name,
    parse_partition_directory,
)
from kseg.segment.plan.image import DirectoryImage, steps_between
from kseg.segment.plan.inputs import inputs_of
from kseg.segment.plan.pieces import Content, Fresh, content_of
from kseg.segment.plan.steps import Plan, Remove, Write
from kseg.segment.sidecar.checkpoint import encode_offset_checkpoint
from kseg.segment.sidecar.metadata_files import CleanShutdown, encode_clean_shutdown

COMMAND = "recover"
MARKER = NAME_BY_ROLE[Role.CLEAN_SHUTDOWN]

# what a broker writes by way of a .tmp file
_WRITTEN_ROLES = (*OFFSET_CHECKPOINT_ROLES, Role.META_PROPERTIES)
_SHOWN = 3
_CHECKPOINT_WORDS = {
    Role.RECOVERY_POINTS: "recovery points",
    Role.HIGH_WATERMARKS: "high watermarks",
    Role.LOG_START_OFFSETS: "log start offsets",
    Role.CLEANER_OFFSETS: "first dirty offsets",
}


def has_marker(log_dir: str) -> bool:
    """Whether the clean-shutdown marker lies there."""
    return os.path.lexists(os.path.join(log_dir, MARKER))


def opening_plan(log_dir: str, doubts: Sequence[str]) -> Plan:
    """Takes the marker away before partitions change; empty when there is none, or no doubt.

    doubts: a sentence for each partition that is not sound, or is about to change. Raises UnreadableInput.
    """
    inputs = inputs_of(log_dir)
    if not doubts or all(file.name != MARKER for file in inputs):
        return Plan(command=COMMAND, directory=log_dir, inputs=inputs, steps=())
    why = f"the marker says that all logs are sound, but {_listed(doubts)}"
    finding = Finding(
        "false-clean-shutdown", os.path.join(log_dir, MARKER), why, numbers={"reasons": len(doubts)}
    )
    return Plan(
        command=COMMAND,
        directory=log_dir,
        inputs=inputs,
        steps=(Remove(MARKER, f"{why}; without it a broker recovers what it does not know to be synced"),),
        reasons=(finding,),
    )


def marking_plan(log_dir: str) -> Plan:
    """Puts the marker back. Raises UnreadableInput."""
    marker = Write(MARKER, _empty_marker(), "what it said of the data directory holds again")
    return Plan(command=COMMAND, directory=log_dir, inputs=inputs_of(log_dir), steps=(marker,))


def doubts_about(log_dir: str, outcomes: Iterable[PartitionOutcome]) -> list[str]:
    """Why the data directory may not be called clean: a sentence for each log that is not sound or was not looked at.

    A log that is scheduled for deletion is no log any more. Raises UnreadableInput.
    """
    seen = {outcome.name: outcome for outcome in outcomes}
    doubts = []
    for directory, name in partitions_in(log_dir):
        if name.state is PartitionState.DELETE:
            continue
        outcome = seen.get(name)
        if outcome is None:
            doubts.append(f"{directory} was not looked at")
        elif outcome.doubt:
            doubts.append(f"{directory} {outcome.doubt}")
    return doubts


def refuse_unless_sound(log_dir: str, outcomes: Iterable[PartitionOutcome]) -> None:
    """Raises Refused with the list of partitions for which the data directory cannot be marked clean."""
    doubts = doubts_about(log_dir, outcomes)
    if doubts:
        raise Refused(f"{log_dir} is not marked clean: {'; '.join(doubts)}")


def will_mark(
    log_dir: str,
    outcomes: Sequence[PartitionOutcome],
    *,
    mark_clean: bool,
    was_marked: bool,
) -> bool:
    """Whether `closing_plan` calls the data directory clean: then every partition looked at has to be synced before.

    A marker that was taken away comes back when all that was looked at is sound; of other partitions it says what it
    said before. Where nothing changes it is not touched. Raises UnreadableInput."""
    if mark_clean:
        return True
    return _is_taken_away(log_dir, outcomes, was_marked) and not any(outcome.doubt for outcome in outcomes)


def _is_taken_away(log_dir: str, outcomes: Iterable[PartitionOutcome], was_marked: bool) -> bool:
    """Whether the marker is away while partitions change; where they are only planned it lies there still."""
    return was_marked and (not has_marker(log_dir) or any(outcome.changed for outcome in outcomes))


def closing_plan(
    log_dir: str,
    outcomes: Sequence[PartitionOutcome],
    policy: Policy,
    *,
    mark_clean: bool = False,
    was_marked: bool = False,
) -> Plan:
    """What the data directory's own files need once its partitions are as in `outcomes`.

    mark_clean: write the marker. was_marked: there was one before the run (`has_marker`); it comes
    back under the same conditions, else it stays away. Where the partitions are only planned the marker is still there,
    and the plan has the step that makes it what it will be.
    The caller has synced every partition when `will_mark` is true.
    Raises Refused when `mark_clean` cannot be (nothing is planned then), UnreadableInput.
    """
    inputs = inputs_of(log_dir)
    if mark_clean:
        refuse_unless_sound(log_dir, outcomes)
    is_clean = will_mark(log_dir, outcomes, mark_clean=mark_clean, was_marked=was_marked)
    before = DirectoryImage.of(inputs)
    after = before.copy()
    why: dict[str, str] = {}
    findings = [
        *_aligned(log_dir, after, why, outcomes, policy, is_clean),
        *_without_leftovers(log_dir, after, why),
    ]
    steps = [*steps_between(before, after, why)]
    is_away = _is_taken_away(log_dir, outcomes, was_marked)
    if is_clean and (is_away or MARKER not in before):
        steps.append(Write(MARKER, _empty_marker(), "every log of the data directory is sound and synced"))
    elif is_away and MARKER in before:
        steps.append(Remove(MARKER, "not every log of the data directory is sound"))
    return Plan(
        command=COMMAND,
        directory=log_dir,
        inputs=inputs,
        steps=tuple(steps),
        reasons=tuple(findings),
    )


def plan_of_copy(plan: Plan, outcomes: Sequence[PartitionOutcome]) -> Plan:
    """The closing plan for a copy: without lock and journals, which are of the original, and with a marker only where
    there was one and all that was copied is sound."""
    steps = list(plan.steps)
    inputs = [
        file for file in plan.inputs if parse_file_name(file.name).role not in (Role.LOCK, Role.KSEG_JOURNAL)
    ]
    is_marked = any(file.name == MARKER for file in plan.inputs)
    if (
        is_marked
        and any(outcome.doubt for outcome in outcomes)
        and all(step.name != MARKER for step in steps)
    ):
        steps.append(Remove(MARKER, "not every log of the copy is sound"))
    return replace(plan, inputs=tuple(inputs), steps=tuple(steps))


def _empty_marker() -> Content:
    return content_of([Fresh(encode_clean_shutdown(CleanShutdown()))])


def partitions_in(log_dir: str) -> list[tuple[str, PartitionName]]:
    """(directory, what its name says) of every partition in a data directory, by name."""
    found = []
    try:
        with os.scandir(log_dir) as entries:
            for entry in entries:
                with suppress(FormatError):
                    if entry.is_dir():
                        found.append((entry.name, parse_partition_directory(entry.name)))
    except OSError as error:
        raise UnreadableInput(f"cannot read {log_dir}: {error.strerror}") from error
    return sorted(found, key=lambda partition: partition[0])


# --- checkpoints


def _aligned(
    log_dir: str,
    image: DirectoryImage,
    why: dict[str, str],
    outcomes: Sequence[PartitionOutcome],
    policy: Policy,
    mark_clean: bool,
) -> Iterator[Finding]:
    """Writes into the image the checkpoints that need it, and says what was wrong with them."""
    present = frozenset(
        (name.topic, name.partition)
        for _, name in partitions_in(log_dir)
        if name.state in (PartitionState.LIVE, PartitionState.FUTURE)
    )
    for role in OFFSET_CHECKPOINT_ROLES:
        name = NAME_BY_ROLE[role]
        data = read_small(os.path.join(log_dir, name)) if name in image else None
        aligned = align(role, data, outcomes, present, policy, mark_clean=mark_clean)
        if not aligned.is_due:
            continue
        image.write(name, encode_offset_checkpoint(aligned.entries), name if name in image else None)
        why[name] = _reason(role, aligned)
        yield from _findings(os.path.join(log_dir, name), aligned, {o.name.text: o for o in outcomes})


def _reason(role: Role, aligned: AlignedCheckpoint) -> str:
    words = []
    if aligned.problem:
        words.append(f"it cannot be read ({aligned.problem})")
    if aligned.changes:
        changes = _listed([change.words for change in aligned.changes])
        words.append(f"{_CHECKPOINT_WORDS[role]} as the logs are: {changes}")
    if aligned.dropped:
        dropped = _listed([f"{entry.topic}-{entry.partition}" for entry in aligned.dropped])
        words.append(f"no log here for {dropped}")
    return "; ".join(words)


def _findings(
    path: str, aligned: AlignedCheckpoint, outcomes: Mapping[str, PartitionOutcome]
) -> Iterator[Finding]:
    if aligned.problem:
        yield Finding("checkpoint-corrupt", path, aligned.problem)
    for change in aligned.changes:
        outcome = outcomes[change.partition]
        if change.old is None:
            continue
        if change.old > outcome.log_end_offset:
            kind, where = "checkpoint-beyond-log", f"its log ends at {outcome.log_end_offset}"
        elif change.old < outcome.log_start_offset:
            kind, where = "checkpoint-below-log", f"its log starts at {outcome.log_start_offset}"
        else:
            continue
        message = f"the entry of {change.partition} is {change.old}, {where}"
        yield Finding(kind, path, message, first_offset=change.old)


def _without_leftovers(log_dir: str, image: DirectoryImage, why: dict[str, str]) -> Iterator[Finding]:
    """Takes out of the image what aborted writes left."""
    for name in image:
        parsed = parse_file_name(name)
        if parsed.state is FileState.TMP and parsed.role in _WRITTEN_ROLES:
            image.remove(name)
            why[name] = "a write that was never finished"
            yield Finding("leftover-tmp", os.path.join(log_dir, name), why[name])


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return f"{'; '.join(words[:_SHOWN])}{more}"
