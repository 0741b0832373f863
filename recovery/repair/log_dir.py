"""The files of a data directory after its partitions were repaired: checkpoints, leftovers, the clean-shutdown marker.

The order ensures that a broker that opens the directory at any moment does, in the worst case, an unnecessary recovery:

1. Remove the marker first (`opening_plan`), before any partition changes: a broker trusts it and checks nothing.
2. Repair the partitions; sync every file of those that are to be marked clean.
3. Align the checkpoints (`closing_plan`; the rules are in `aligned_checkpoints`), remove `.tmp` files of aborted writes:
   Kafka writes `<name>.tmp`, syncs and renames, so an existing one was never finished.
4. Write the marker last, where it is still true or --mark-clean asks for one (`clean_shutdown_marker`). Then the broker
   starts without recovery.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kseg.change.apply.journal_probe import may_have_journal
from kseg.change.plan.content import Fresh, content_of
from kseg.change.plan.directory_image import DirectoryImage, steps_between
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Plan, Remove, Step, Write
from kseg.recovery.policy import Policy
from kseg.recovery.repair.aligned_checkpoints import Key, PartitionOutcome
from kseg.recovery.repair.checkpoint_repair import repaired_checkpoints
from kseg.recovery.repair.clean_shutdown_marker import (
    MARKER,
    Marker,
    content_after,
    has_marker,
    listed,
    marker_objections,
    without_epoch,
)
from kseg.recovery.repair.meta_properties_repair import (
    META_PROPERTIES,
    IdentityRepair,
    Registered,
    RequestedIdentity,
    identity_repair,
)
from kseg.segment.errors import Refused
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import partitions_in
from kseg.segment.partition.names import (
    NAME_BY_ROLE,
    OFFSET_CHECKPOINT_ROLES,
    FileState,
    PartitionName,
    PartitionState,
    Role,
    parse_file_name,
)
from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint, offsets_by_partition
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.change.run.copied_checkpoints import Carried

LOSSES = "losses"  # in the journal that holds the marker: the partitions from which the run removes bytes
_SOMETHING = "a partition"  # if the journal does not name them

COMMAND = "recover"

_WITHOUT_MARKER = "without it a broker recovers all segments above the recovery point, and truncates a log at the first damage there"

# the files that a broker writes through a .tmp file
_WRITTEN_ROLES = (*OFFSET_CHECKPOINT_ROLES, Role.META_PROPERTIES)


def opening_plan(log_dir: str, doubts: Sequence[str]) -> Plan:
    """Plan that removes the marker before partitions change; empty without a marker or doubts.

    doubts: a sentence for each partition that is not sound, or is about to change. Raises UnreadableInput.
    """
    inputs = inputs_of(log_dir)
    if not doubts or all(file.name != MARKER for file in inputs):
        return Plan(command=COMMAND, directory=log_dir, inputs=inputs, steps=())
    why = f"the marker says that all logs are valid, but {listed(doubts)}"
    finding = Finding(
        "false-clean-shutdown", os.path.join(log_dir, MARKER), why, numbers={"reasons": len(doubts)}
    )
    return Plan(
        command=COMMAND,
        directory=log_dir,
        inputs=inputs,
        steps=(Remove(MARKER, f"{why}; {_WITHOUT_MARKER}"),),
        reasons=(finding,),
    )


def doubts_about(log_dir: str, outcomes: Iterable[PartitionOutcome]) -> list[str]:
    """Why the data directory must not be marked clean: a sentence for each log that is not sound or was not checked.

    A log that is scheduled for deletion is no longer a log. Raises UnreadableInput.
    """
    seen = {outcome.name: outcome for outcome in outcomes}
    doubts = []
    for directory, name in partitions_in(log_dir):
        if name.state is PartitionState.DELETE:
            continue
        outcome = seen.get(name)
        if outcome is None:
            doubts.append(f"{directory} was not checked")
        elif outcome.doubt:
            doubts.append(f"{directory} {outcome.doubt}")
    return doubts


def refuse_unless_clean(log_dir: str, outcomes: Iterable[PartitionOutcome]) -> None:
    """Raises Refused with the list of partitions for which the data directory cannot be marked clean."""
    doubts = doubts_about(log_dir, outcomes)
    if doubts:
        raise Refused(f"{log_dir} is not marked clean: {'; '.join(doubts)}")


def closing_plan(
    log_dir: str,
    outcomes: Sequence[PartitionOutcome],
    policy: Policy,
    *,
    mark_clean: bool = False,
    marker: Marker | None = None,
    identity: IdentityRepair | None = None,
    missing: Collection[Key] = (),
) -> Plan:
    """Plan for the data directory's own files once its partitions are as in `outcomes`.

    mark_clean: write the marker. marker: the existing one before the run (`marker_of`). If the partitions are
    only planned it still exists, and the plan contains the step that changes it. identity: of meta.properties.
    missing: partitions that should have a directory here and have none; their checkpoint entries are kept for when they return.
    The caller has synced every partition when `will_mark` is true.
    Raises Refused when `mark_clean` cannot be fulfilled (nothing is planned then), UnreadableInput.
    """
    inputs = inputs_of(log_dir)
    if mark_clean:
        refuse_unless_clean(log_dir, outcomes)
    marking = _marking(log_dir, outcomes, mark_clean, marker)
    before = DirectoryImage.of(inputs)
    after = before.copy()
    why: dict[str, str] = {}
    findings = [
        *repaired_checkpoints(log_dir, after, why, outcomes, policy, marking.is_clean, marker, missing),
        *_without_leftovers(log_dir, after, why),
        *_identified(after, why, identity),
    ]
    steps = [*steps_between(before, after, why), *marking.steps(MARKER in before)]
    return Plan(
        command=COMMAND,
        directory=log_dir,
        inputs=inputs,
        steps=tuple(steps),
        reasons=tuple(findings),
    )


def beside_broker(plan: Plan) -> Plan:
    """The closing plan without the checkpoints: a running broker writes them in the meantime, so they are newer than what was read of the
    logs, or belong to a deleted topic of the same name."""

    def is_checkpoint(path: str) -> bool:
        return parse_file_name(os.path.basename(path)).role in OFFSET_CHECKPOINT_ROLES

    return replace(
        plan,
        steps=tuple(step for step in plan.steps if not is_checkpoint(step.name)),
        reasons=tuple(finding for finding in plan.reasons if not is_checkpoint(finding.path)),
    )


def marking_plan(log_dir: str, outcomes: Sequence[PartitionOutcome], marker: Marker) -> Plan:
    """Plan for the marker alone, after single segments were repaired. Raises UnreadableInput."""
    inputs = inputs_of(log_dir)
    marking = _marking(log_dir, outcomes, False, marker, looked_at=())
    steps = marking.steps(any(file.name == MARKER for file in inputs))
    return Plan(command=COMMAND, directory=log_dir, inputs=inputs, steps=tuple(steps))


def reported_plan(
    plan: Plan, outcomes: Sequence[PartitionOutcome], *, mark_clean: bool, marker: Marker | None
) -> Plan:
    """The closing plan as reported: a marker that is only restored is not a change, and one that stays removed is one."""
    marking = _marking(plan.directory, outcomes, mark_clean, marker)
    steps = [step for step in plan.steps if step.name != MARKER]
    is_same = marker is not None and marker.content is not None and marker.content == marking.content
    if not marking.is_left and not is_same:
        steps += marking.steps(marker is not None)
    return replace(plan, steps=tuple(steps))


def will_mark(
    log_dir: str, outcomes: Sequence[PartitionOutcome], *, mark_clean: bool, marker: Marker | None
) -> bool:
    """Whether a marker will be written, in which case every checked partition must be synced first. Raises UnreadableInput."""
    return _marking(log_dir, outcomes, mark_clean, marker).is_clean


@dataclass(frozen=True, slots=True)
class _Marking:
    """is_clean: the marker covers the changes of this run. content: of the marker, None if there must be none.
    why: the reason. is_left: it is unchanged, whether it exists or not."""

    is_clean: bool = False
    content: bytes | None = None
    why: str = ""
    is_left: bool = False

    def steps(self, is_there: bool) -> Iterator[Step]:
        if self.is_left:
            return
        if self.content is not None:
            yield Write(MARKER, content_of([Fresh(self.content)]), self.why, MARKER if is_there else None)
        elif is_there:
            yield Remove(MARKER, self.why)


def _marking(
    log_dir: str,
    outcomes: Sequence[PartitionOutcome],
    mark_clean: bool,
    marker: Marker | None,
    looked_at: Collection[PartitionName] | None = None,
) -> _Marking:
    """looked_at: the partitions that were checked completely; None means those in the outcomes."""
    is_there = has_marker(log_dir)
    if mark_clean:
        content = content_after(marker, outcomes)
        is_left = is_there and marker is not None and marker.content == content
        why = "every log of the data directory is valid and synced"
        if marker is not None and marker.missing:
            why += f"; without a broker epoch, because {listed(marker.missing)} {'are' if len(marker.missing) > 1 else 'is'} missing"
        return _Marking(True, content, why, is_left)
    is_concerned = not is_there or any(outcome.changed for outcome in outcomes)
    problem = "" if marker is None else marker.problem
    if marker is None or not (is_concerned or problem):
        return _Marking(is_left=True)
    told = [outcome for outcome in outcomes if not outcome.is_left_as_found]
    seen = {outcome.name for outcome in told} if looked_at is None else looked_at
    others = [found for found in partitions_in(log_dir) if found[1] not in seen]
    # read once: what a file system fails to deliver may be there the next time
    reasons = [problem] if problem else []
    reasons += marker_objections(log_dir, told, others)
    if reasons:
        return _Marking(why=f"the marker is no longer true: {listed(reasons)}; {_WITHOUT_MARKER}")
    content = content_after(marker, outcomes)
    if lost := without_epoch(marker, outcomes):
        why = f"the marker stays, without the broker epoch, which says that nothing was lost: {listed(lost)}"
        return _Marking(True, content, why)
    return _Marking(True, content, "the marker is true again", is_left=is_there)


def carried_entries(log_dir: str, plan: Plan, outcomes: Sequence[PartitionOutcome]) -> "Carried":
    """The checkpoint entries of the partitions of this run, after the closing plan."""
    from kseg.change.run.copied_checkpoints import entries_of

    wanted = {outcome.key for outcome in outcomes if outcome.has_checkpoints}
    carried = entries_of(log_dir, wanted)
    for role in OFFSET_CHECKPOINT_ROLES:
        for step in plan.steps:
            if isinstance(step, Write) and step.name == NAME_BY_ROLE[role]:
                data = b"".join(piece.data for piece in step.content if isinstance(piece, Fresh))
                offsets = offsets_by_partition(decode_offset_checkpoint(data))
                carried[role] = {key: offset for key, offset in offsets.items() if key in wanted}
    return carried


def plan_of_copy(plan: Plan) -> Plan:
    """The closing plan for a copy, without the lock file and the journals, which belong to the original."""
    inputs = [
        file for file in plan.inputs if parse_file_name(file.name).role not in (Role.LOCK, Role.KSEG_JOURNAL)
    ]
    return replace(plan, inputs=tuple(inputs))


def identity_in_run(
    log_dir: str, log_dirs: Sequence[str], requested: RequestedIdentity, now_ms: int, registered: Registered
) -> IdentityRepair | None:
    """The repair of the meta.properties of one of the data directories of a run (`identity_repair`). Raises UnreadableInput."""
    others = [other for other in log_dirs if other != log_dir]
    partitions = [os.path.join(log_dir, name) for name, _ in partitions_in(log_dir)]
    return identity_repair(log_dir, others, requested, now_ms, registered, partitions)


# --- meta.properties and leftovers


def _identified(
    image: DirectoryImage, why: dict[str, str], identity: IdentityRepair | None
) -> Iterator[Finding]:
    if identity is None:
        return
    yield identity.finding
    if identity.content is not None:
        like = META_PROPERTIES if META_PROPERTIES in image else None
        image.write(META_PROPERTIES, identity.content, like)
        why[META_PROPERTIES] = identity.why


def _without_leftovers(log_dir: str, image: DirectoryImage, why: dict[str, str]) -> Iterator[Finding]:
    """Remove the temporary files of aborted writes from the image."""
    for name in image:
        parsed = parse_file_name(name)
        if parsed.state is FileState.TMP and parsed.role in _WRITTEN_ROLES:
            image.remove(name)
            why[name] = "left by an unfinished write"
            yield Finding("leftover-tmp", os.path.join(log_dir, name), why[name])


@dataclass(frozen=True, slots=True)
class Opening:
    """The journal of a run that removed the marker and was killed, and that no later run has closed. A later run restores the marker from
    it once the marker is true again. marker: the one that was removed."""

    id: str
    marker: Marker


def opening_of(log_dir: str) -> Opening | None:
    """The opening journal of a run that did not complete, None if there is none."""
    from kseg.change.apply.journal import JournalState
    from kseg.change.apply.journal_scan import journals_in

    if not may_have_journal(log_dir):
        return None
    journals = journals_in(log_dir)
    followed = {journal.header.get("after") for journal in journals}
    found = None
    for journal in journals:
        is_opening = journal.command == COMMAND and journal.state is JournalState.DONE
        saved = journal.location.old(MARKER)
        if is_opening and journal.location.id not in followed and os.path.exists(saved):
            announced = journal.header.get("told")
            losses = announced.get(LOSSES) if isinstance(announced, dict) else None
            names = [str(name) for name in losses] if isinstance(losses, list) else [_SOMETHING]
            found = Opening(journal.location.id, Marker(saved, tuple(names)))
    return found
