"""Delete marked files permanently (Kafka: the `delete-file` task, `file.delete.delay.ms` after the mark).

A file is deleted when it was marked at least the delay ago (`segment/partition/deletion_marks` says how that is known). The files are
unlinked one after another and nothing is written, so that a full disk can be freed. After a kill the next purge deletes the rest.

On a cluster all of them leave the directory as one change with a journal, which tells a later attempt what was deleted. Then the
journal and what it kept are removed, and the space is free. If a purge was killed before that, the next one does it.
"""

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.executor import apply_plan
from kseg.change.apply.file_operations import remove_quietly
from kseg.change.apply.journal import Journal, JournalState, read_journal
from kseg.change.apply.journal_location import JournalLocation, as_pointed, location_for
from kseg.change.apply.journal_scan import journals_in
from kseg.change.apply.journal_writer import discard
from kseg.change.apply.lock import claimed, claimed_by_command
from kseg.change.apply.recorded_change import clear_the_way
from kseg.change.apply.staging import check_inputs
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import FileIdentity, Plan, Remove, Rename, Step
from kseg.compaction.retention.options import RetainOptions
from kseg.compaction.retention.rows import COMMAND
from kseg.compaction.retention.units import duration_words
from kseg.segment.errors import Refused
from kseg.segment.layout import DELETED_SUFFIX
from kseg.segment.partition.deletion_marks import DeletionMark, marks_in
from kseg.segment.partition.names import FileState, parse_file_name

_ID_SUFFIX = "-purge"


@dataclass(frozen=True, slots=True)
class PurgeVerdict:
    """Whether a marked file is due for deletion, and why."""

    mark: DeletionMark
    is_due: bool
    reason: str


def purge_verdicts(directory: str, options: RetainOptions) -> tuple[PurgeVerdict, ...]:
    """One verdict per marked file in a directory. Raises UnreadableInput."""
    return tuple(_purge_verdict(mark, options) for mark in marks_in(directory))


def _purge_verdict(mark: DeletionMark, options: RetainOptions) -> PurgeVerdict:
    delay_ms = options.file_delete_delay_ms
    age_ms = options.now_ms - mark.marked_at_ms
    is_due = age_ms >= delay_ms or not delay_ms
    age_text = f"marked {duration_words(max(0, age_ms))} ago, the delay is {duration_words(delay_ms)}"
    return PurgeVerdict(mark, is_due, age_text)


def purge(
    directory: str,
    names: Sequence[str],
    options: RetainOptions,
    disk: Disk = DISK,
    *,
    note: Mapping[str, object] | None = None,
) -> None:
    """Delete these marked files. note: in the journal, for later attempts. Raises Refused."""
    if options.shared is None:
        _delete(directory, names, disk)
        free_purged(directory, options, disk)
        return
    inputs = inputs_of(directory)
    steps = tuple(Remove(name, "it is marked for deletion") for name in names)
    plan = Plan(command=COMMAND, directory=directory, inputs=inputs, steps=steps)
    if not plan.is_empty:
        apply_plan(
            plan,
            journal_id=purge_id(options.run_id),
            keeping=replace(options.keeping, quarantine=None),
            note=note,
            disk=disk,
        )
    free_purged(directory, options, disk)


def _delete(directory: str, names: Sequence[str], disk: Disk) -> None:
    """Delete one by one without a journal: it could restore nothing, and a full disk has no room for it."""
    if not names:
        return
    with claimed(directory):
        clear_the_way(directory, disk)
        try:
            for name in names:
                remove_quietly(disk, os.path.join(directory, name))
            disk.sync_directory(directory)
        except OSError as error:
            where = directory if error.filename is None else error.filename
            raise Refused(
                f"cannot delete {where}: {error.strerror}; run the same command again to delete the remaining files"
            ) from error


def mark_at_once(plan: Plan, disk: Disk) -> tuple[Plan, list[FileIdentity]]:
    """Mark what a plan marks, without a journal, since all of it is about to be deleted; returns the rest of the plan. A plan that first
    creates files (for a log that would otherwise be empty) is returned unchanged: its deletions must not come first.

    If the directory is full and has no room for the marked name, the file itself is deleted; these are returned too. Raises Refused.
    """
    marks = [step for step in plan.steps if _is_mark(step)]
    if not marks or not _is_mark(plan.steps[0]):
        return plan, []
    path, deleted = plan.directory, set[str]()
    with claimed_by_command(plan.directory, disk.follow_links):
        clear_the_way(plan.directory, disk)
        check_inputs(plan.directory, plan.inputs, disk)
        try:
            for step in marks:
                path = os.path.join(plan.directory, step.name)
                if not _was_marked(path, disk):
                    deleted.add(step.name)
            disk.sync_directory(plan.directory)
        except OSError as error:
            raise Refused(
                f"cannot mark {path}: {error.strerror}; run the same command again to continue"
            ) from error
    names = {step.name for step in marks}
    remaining = replace(
        plan,
        inputs=tuple(file for file in plan.inputs if file.name not in names),
        steps=tuple(step for step in plan.steps if step not in marks),
    )
    return remaining, [file for file in plan.inputs if file.name in deleted]


def _is_mark(step: Step) -> bool:
    return isinstance(step, Rename) and step.new_name == step.name + DELETED_SUFFIX


def _was_marked(path: str, disk: Disk) -> bool:
    try:
        disk.rename(path, path + DELETED_SUFFIX)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG):
            raise
        disk.unlink(path)
        return False
    return True


def purge_id(run_id: str) -> str:
    """The journal id of a run's purge."""
    return f"{run_id}{_ID_SUFFIX}"


def free_purged(directory: str, options: RetainOptions, disk: Disk = DISK) -> None:
    """Free what purges have removed. The journal of this run stays as long as a later attempt may look for it. Raises Refused if
    that is not possible."""
    kept = None if options.shared is None else purge_id(options.run_id)
    for journal in journals_in(directory, disk):
        if journal.location.id.endswith(_ID_SUFFIX) and journal.state is JournalState.DONE:
            _check(journal, disk)
            _drop(journal.location, disk, with_journal=journal.location.id != kept)


def drop_purge(directory: str, run_id: str, disk: Disk = DISK) -> None:
    """Discard the journal of a run's purge, which is no longer needed. Raises Refused."""
    place = as_pointed(location_for(directory, purge_id(run_id)), disk)
    journal = read_journal(place, disk)
    if journal.state is JournalState.DONE:
        _check(journal, disk)
        _drop(place, disk, with_journal=True)


def _check(journal: Journal, disk: Disk) -> None:
    """Raises Refused for a journal that keeps something other than files that were marked for deletion: no purge made it."""
    place = journal.location
    marked = {
        place.old(str(step["file"]))
        for step in journal.header.get("steps", ())
        if step["do"] == "remove" and parse_file_name(str(step["file"])).state is FileState.DELETED
    }
    for path in place.files(disk):
        status = disk.status(path)
        is_ours = path in marked or path == place.journal
        if not is_ours or status is None or not stat.S_ISREG(status.st_mode):
            raise Refused(f"{path} was not put there by a purge; inspect it, then move it away")


def _drop(place: JournalLocation, disk: Disk, *, with_journal: bool) -> None:
    try:
        if with_journal:
            discard(place, disk)
        else:
            for path in place.files(disk):
                if path != place.journal:
                    disk.unlink(path)
    except OSError as error:
        raise Refused(f"cannot remove {place.journal}: {error.strerror}") from error
